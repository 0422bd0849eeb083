//! Compressed bodies.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue, RANGE};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::super::{Coding, Decoder, Undecodable, narrow};

/// 300 MiB of one letter compressed with Brotli: a decompression bomb.
const BROTLI_OF_MUCH: &str = "y///P/glwuKxQCD3/o///3/wSwDEYRGA7v0f////4JcAiMMCAN37P/7//8EvARCHBQC693/8//+DXwIgDgsAdO//+P//B78EQBwWAOje//H//w9+CYA4LADQvf/j//8f/BIAcVgAoHv/x///P/glAOKwAED3/o///3/wSwDEYQGA7v0f////4JcAiMMCAN37P/7//8EvARCHBQC693/8//+DXwIgDgsAdO//+P//B78EQBwWAOje//H//w9+CYA4LADQvf/j//8f/BIAcVgAoHv/x///P/glAOKwAED3/o///3/wSwDEYQGA7v0f////4JcAiMMCAN37P/7//8EvARCHBQC693/8//+DXwIgDgsAdO//+P//B78EQBwWAOje//H//w9+CYA4LADQvf/j//8f/BIAcVgAoHv/x///P/glAOKwAED3/o///3/wSwDEYQGA7v0f////4JcAiMMCAN37P/7//8EvARCHBQC693/8//+DXwIgDgsAdO//+P//B78EQBwWAOje//H//w9+CYA4LADQvf/j//8f/BIAcVgAoHv/x///P/glAOKwAED3/o///3/wSwDEYQGA7v0f////4JcAiMMCAN37P/7//8EvARCHBQC693/8//+DXwIgDgsAdO//8v//B78EQBwWAOje/wA=";

/// The text of [`text`] compressed with Brotli.
const BROTLI: &str = "W40EAchxYMeI3yg8G0foRrfFdAdP0hhJXHVwSBrgXq8UwqDo71GwxadwGMRC8Eu5hlkIJDOBAlhBfK0EW47znV5oLnpccunryU+huv5WrcWlv3Y9C7i/4DmBgXChcm9dYnwG7Nel3X75CIwmV2yG0DqD9taznPKsY83adet/n2jrI3nOU92Ynpk95w3b3Lz1HwWTU9Ovj6O+mzN33vqbxuvpWHfTM7PnzH3DWf8xMDk1PfP6djMzd974ByeKf13OZvjfKAjzHW6Y7yhlPhjmO74yf4DQWX6hJN/1WQ4fU+bDZT5Q5mPLfKTLL5jk48L8TZf5UJjv6Mt8TJkPh/kFknxsl79JmQ+W+bgyH13mQ2V+c3yS39Y1mQ1/gOAyHyjzsWU+UuaDZT6uyS+6yl8ozHf4ZT6mzIfLfKDMxz7sn7wb4B8z";

/// Returns a text with a secret in many lines.
pub(super) fn text() -> Vec<u8> {
    let line = |number: usize| {
        let said = if number % 7 == 3 {
            super::REAL
        } else {
            "nothing"
        };
        format!("line {} {said};\n", number % 50)
    };
    (0..3000).map(line).collect::<String>().into_bytes()
}

/// Returns that text in every coding.
pub(super) fn coded() -> Vec<(Coding, &'static str, Vec<u8>)> {
    let text = text();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&text).unwrap();
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(&text).unwrap();
    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
    deflate.write_all(&text).unwrap();
    let zstd = compress_to_vec(&text[..], CompressionLevel::Fastest);
    vec![
        (Coding::Gzip, "gzip", gzip.finish().unwrap()),
        (Coding::Deflate, "deflate", zlib.finish().unwrap()),
        (Coding::Deflate, "deflate", deflate.finish().unwrap()),
        (Coding::Brotli, "br", STANDARD.decode(BROTLI).unwrap()),
        (Coding::Zstd, "zstd", zstd),
    ]
}

fn decoded(coding: Coding, bytes: &[u8], piece: usize) -> Result<Vec<u8>, Undecodable> {
    let mut decoder = Decoder::new(coding);
    let mut out = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        while decoder.pull(&mut out)? {}
    }
    decoder.finish()?;
    Ok(out)
}

#[test]
fn decoder_reads_every_coding_across_cuts() {
    for (coding, _, bytes) in coded() {
        for piece in [1, 7, 1000, usize::MAX] {
            assert!(
                decoded(coding, &bytes, piece) == Ok(text()),
                "{coding:?} in pieces of {piece}"
            );
        }
        let short = &bytes[..bytes.len() - 1];
        assert_eq!(
            decoded(coding, short, 100),
            Err(Undecodable::Short),
            "{coding:?}"
        );
        // Nothing at all is what an answer without a body has.
        assert_eq!(decoded(coding, &[], 1), Ok(Vec::new()));
        // What follows is searched or refused, never passed over.
        let more = [&bytes[..], b"what follows"].concat();
        assert!(decoded(coding, &more, 100).is_err(), "{coding:?}");
    }
}

#[test]
fn decoder_reads_consecutive_members() {
    for (coding, _, bytes) in coded() {
        if matches!(coding, Coding::Gzip | Coding::Zstd) {
            let twice = [&bytes[..], &bytes[..]].concat();
            assert!(decoded(coding, &twice, 99) == Ok([text(), text()].concat()));
        }
    }
}

#[test]
fn decoder_bomb_is_refused() {
    let bytes = STANDARD.decode(BROTLI_OF_MUCH).unwrap();
    let mut decoder = Decoder::new(Coding::Brotli);
    decoder.push(&bytes);
    let mut out = Vec::new();
    let failed = loop {
        out.clear();
        match decoder.pull(&mut out) {
            Ok(true) => assert!(out.len() <= 32 * 1024),
            Ok(false) => panic!("it came to an end"),
            Err(failed) => break failed,
        }
    };
    assert_eq!(failed, Undecodable::Bomb);
}

#[test]
fn accept_encoding_is_narrowed() {
    let check = |asked: Option<&'static str>, range: bool, expected: &str| {
        let mut headers = HeaderMap::new();
        if let Some(asked) = asked {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(asked));
        }
        if range {
            headers.insert(RANGE, HeaderValue::from_static("bytes=0-9"));
        }
        narrow(&mut headers);
        assert_eq!(headers[ACCEPT_ENCODING], expected);
    };
    check(None, false, "identity");
    check(
        Some("gzip, deflate, br, zstd"),
        false,
        "gzip, deflate, br, zstd",
    );
    check(
        Some("GZip;q=0.5, compress, dcb, *;q=0.1"),
        false,
        "GZip;q=0.5",
    );
    check(Some("*"), false, "identity");
    check(Some("gzip"), true, "identity");
}

#[test]
fn decoder_unknown_coding_is_refused() {
    let of = |said: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(said));
        Coding::of(&headers)
    };
    for (coding, name, _) in coded() {
        assert_eq!(of(name), Ok(Some(coding)));
    }
    assert_eq!(of("identity"), Ok(None));
    assert_eq!(of("x-GZIP"), Ok(Some(Coding::Gzip)));
    assert_eq!(of("compress"), Err(Undecodable::Unknown));
    assert_eq!(of("gzip, br"), Err(Undecodable::Unknown));
}
