//! Bodies in signed chunks as AWS has published them, and every way in which one can differ.

use std::collections::VecDeque;
use std::future::poll_fn;

use hyper::HeaderMap;

use super::*;

/// The key of AWS's examples, and another one.
const SECRET: &[u8] = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const REAL: &[u8] = b"ThRealVeryOwnSecre/tThatIs+KeptAwayFromU";
/// The requests' own signatures in those examples, and those of their chunks.
const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
const OF_PIECES: [&str; 3] = [
    "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
    "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
    "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
];
const SEED_OF_TRAILERS: &str = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
const OF_PIECES_AND_TRAILERS: [&str; 4] = [
    "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
    "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
    "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
    "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435",
];
const TRAILER: &str = "x-amz-checksum-crc32c:sOO8/Q==";
const NAME: &str = "x-amz-checksum-crc32c";
/// A new request's own signature, which the new ones of the chunks follow.
const NEW_SEED: &str = "00000000000000000000000000000000000000000000000000000000000000aa";

fn chain(secret: &[u8], seed: &str) -> SignatureChain {
    SignatureChain::of_example(secret, seed)
}

/// Returns a chunk in its framing.
fn piece(data: &[u8], signature: &str) -> Vec<u8> {
    let line = format!("{:x};chunk-signature={signature}\r\n", data.len());
    [line.as_bytes(), data, b"\r\n"].concat()
}

/// Returns the trailers of a body, and their signature.
fn trailers(lines: &str, signature: &str, end: &str) -> Vec<u8> {
    format!("{lines}x-amz-trailer-signature:{signature}{end}").into_bytes()
}

/// Returns the first example of AWS.
fn published() -> Vec<u8> {
    let [first, second, last] = OF_PIECES;
    [
        piece(&[b'a'; 65536], first),
        piece(&[b'a'; 1024], second),
        piece(b"", last),
    ]
    .concat()
}

/// Returns the example with trailers, in one of the ways in which programs write those.
fn published_with_trailers(line_end: &str, end: &str) -> Vec<u8> {
    let [first, second, last, of_trailers] = OF_PIECES_AND_TRAILERS;
    let line = format!("0;chunk-signature={last}\r\n").into_bytes();
    [
        piece(&[b'a'; 65536], first),
        piece(&[b'a'; 1024], second),
        line,
        trailers(&format!("{TRAILER}{line_end}"), of_trailers, end),
    ]
    .concat()
}

struct Case {
    seed: &'static str,
    bytes: u64,
    trailers: Option<&'static [&'static str]>,
}

const PUBLISHED: Case = Case {
    seed: SEED,
    bytes: 66560,
    trailers: None,
};
const WITH_TRAILERS: Case = Case {
    seed: SEED_OF_TRAILERS,
    bytes: 66560,
    trailers: Some(&[NAME]),
};

impl Case {
    fn pieces(&self) -> Pieces {
        let misuse = Misuse {
            name: "key".parse().unwrap(),
            why: "it is another one".to_owned(),
            instead: String::new(),
            is_alert: true,
        };
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let body = ChunkedBody {
            bytes: self.bytes,
            trailers: self.trailers.map(owned),
        };
        Pieces::new(chain(SECRET, self.seed), body, misuse)
    }

    /// Returns what is sent of a body received in parts of this length, and whether it ends well.
    async fn left(&self, body: &[u8], part: usize, is_end_known: bool) -> (Vec<u8>, bool) {
        let frames = body.chunks(part).map(Bytes::copy_from_slice);
        let frames = frames.map(Frame::data).collect();
        self.left_of(frames, is_end_known).await
    }

    async fn left_of(&self, frames: Vec<Frame<Bytes>>, is_end_known: bool) -> (Vec<u8>, bool) {
        let mut pieces = self.pieces();
        pieces.sign(chain(REAL, NEW_SEED));
        let mut rest = Comes {
            frames: frames.into(),
            is_end_known,
        };
        let mut left = Vec::new();
        loop {
            match poll_fn(|context| pieces.poll(&mut rest, context)).await {
                Some(Ok(frame)) => left.extend_from_slice(&frame.into_data().unwrap()),
                Some(Err(broken)) => {
                    assert!(matches!(broken, BodyError::AnotherBody(_)), "{broken}");
                    return (left, false);
                }
                None => {
                    assert!(pieces.is_over());
                    return (left, true);
                }
            }
        }
    }
}

/// A body of these frames, of known end or not.
struct Comes {
    frames: VecDeque<Frame<Bytes>>,
    is_end_known: bool,
}

impl Body for Comes {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.frames.pop_front().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.is_end_known && self.frames.is_empty()
    }
}

/// Returns a body with other signatures: those of the real key.
fn signed_anew(mut body: Vec<u8>, old: &[&str], links: &[ChainItem<'_>]) -> Vec<u8> {
    let mut real = chain(REAL, NEW_SEED);
    for (old, link) in old.iter().zip(links) {
        let at = body.windows(64).position(|part| part == old.as_bytes());
        body[at.unwrap()..][..64].copy_from_slice(real.sign(*link).as_bytes());
    }
    body
}

#[tokio::test]
async fn chunked_aws_example_is_signed_anew() {
    let (first, second) = ([b'a'; 65536], [b'a'; 1024]);
    let text = format!("{TRAILER}\n");
    let links = [
        ChainItem::Piece(&first),
        ChainItem::Piece(&second),
        ChainItem::Piece(b""),
        ChainItem::Trailers(text.as_bytes()),
    ];
    // By bytes, across pieces, and all at once; with a known end or without.
    for part in [1, 7, 64, 1000, 65537, 1 << 20] {
        for is_end_known in [false, true] {
            let expected = signed_anew(published(), &OF_PIECES, &links);
            let left = PUBLISHED.left(&published(), part, is_end_known).await;
            assert_eq!(left, (expected, true), "{part}");
            for (line_end, end) in [("\r\n", "\r\n\r\n"), ("\n\r\n", "\r\n\r\n"), ("\n", "")] {
                let body = published_with_trailers(line_end, end);
                let expected = signed_anew(body.clone(), &OF_PIECES_AND_TRAILERS, &links);
                let left = WITH_TRAILERS.left(&body, part, is_end_known).await;
                assert_eq!(left, (expected, true), "{part} {line_end:?} {end:?}");
            }
        }
    }
}

/// Returns a body of two chunks and a trailer, signed with this key.
fn made(secret: &[u8], seed: &str, sizes: [&[u8]; 2], lines: &str) -> Vec<u8> {
    let mut own = chain(secret, seed);
    let mut body = Vec::new();
    for data in sizes {
        let signature = own.sign(ChainItem::Piece(data)).to_owned();
        body.extend(piece(data, &signature));
    }
    let signature = own.sign(ChainItem::Piece(b"")).to_owned();
    body.extend(format!("0;chunk-signature={signature}\r\n").into_bytes());
    let signature = own.sign(ChainItem::Trailers(lines.as_bytes())).to_owned();
    body.extend(trailers(
        &lines.replace('\n', "\r\n"),
        &signature,
        "\r\n\r\n",
    ));
    body
}

#[tokio::test]
async fn chunked_body_unsigned_is_not_sent_whole() {
    let [first, second, last] = OF_PIECES;
    let (one, two) = (piece(&[b'a'; 65536], first), piece(&[b'a'; 1024], second));
    let end = piece(b"", last);
    let changed = |at: usize, to: u8| {
        let mut body = published();
        body[at] = to;
        body
    };
    let replaced = |old: &str, new: &str| {
        let text = String::from_utf8(published()).unwrap();
        assert!(text.contains(old));
        text.replacen(old, new, 1).into_bytes()
    };
    let other = chain(REAL, SEED)
        .sign(ChainItem::Piece(&[b'a'; 65536]))
        .to_owned();
    let rows: Vec<(&str, Vec<u8>, usize)> = vec![
        ("a byte of the first piece", changed(1000, b'b'), 0),
        ("its last byte", changed(one.len() - 3, b'b'), 0),
        ("a byte of the second", changed(one.len() + 500, b'b'), 1),
        ("the end of its line", changed(one.len() - 1, b'\r'), 0),
        (
            "a signature",
            replaced(second, &second.replace('0', "1")),
            1,
        ),
        ("the last signature", replaced(last, first), 2),
        ("another key", replaced(first, &other), 0),
        (
            "none",
            replaced(&format!(";chunk-signature={first}"), ""),
            0,
        ),
        ("a short one", replaced(first, &first[1..]), 0),
        (
            "two",
            replaced(first, &format!("{first};chunk-signature={first}")),
            0,
        ),
        (
            "another name",
            replaced("chunk-signature", "chunk-signaturE"),
            0,
        ),
        ("another size", replaced("400;", "401;"), 1),
        ("a sign", replaced("400;", "+400;"), 1),
        (
            "a size as long as nothing",
            replaced("400;", "fffffffff;"),
            1,
        ),
        ("in another order", [&two[..], &one, &end].concat(), 0),
        (
            "one of them twice",
            [&one[..], &one, &two, &end].concat(),
            1,
        ),
        ("one left out", [&one[..], &end].concat(), 1),
        ("the end alone", end.clone(), 0),
        ("no end", [&one[..], &two].concat(), 2),
        (
            "half an end",
            published()[..published().len() - 2].to_vec(),
            2,
        ),
        ("cut in a piece", published()[..70000 - 4000].to_vec(), 1),
        (
            "something after it",
            [&published()[..], b"GET /"].concat(),
            2,
        ),
        ("two ends", [&published()[..], &end].concat(), 2),
        ("nothing", Vec::new(), 0),
        ("no line", vec![b'a'; 4096], 0),
        ("headers", published_with_trailers("\r\n", "\r\n\r\n"), 0),
    ];
    let whole = [0, one.len(), one.len() + two.len()];
    for (what, body, pieces) in rows {
        for (part, is_end_known) in [(1 << 20, true), (1000, false), (3, true)] {
            let (left, ended) = PUBLISHED.left(&body, part, is_end_known).await;
            assert_eq!((left.len(), ended), (whole[pieces], false), "{what}");
        }
        // Where all of it is there nothing leaves.
        let checked = PUBLISHED.pieces().check(&body);
        assert!(matches!(checked, Err(BodyError::AnotherBody(_))), "{what}");
    }
    PUBLISHED.pieces().check(&published()).unwrap();
    // Of another length than was told, though each piece is right.
    for bytes in [0, 65536, 66559, 66561, u64::MAX] {
        let case = Case { bytes, ..PUBLISHED };
        let (_, ended) = case.left(&published(), 1000, true).await;
        assert!(!ended, "{bytes}");
    }
    // Headers of HTTP after it are signed by nobody.
    let frames = || vec![Frame::data(Bytes::from(published()))];
    let (_, ended) = PUBLISHED.left_of(frames(), false).await;
    assert!(ended);
    let with = [frames(), vec![Frame::trailers(HeaderMap::new())]];
    let (_, ended) = PUBLISHED
        .left_of(with.into_iter().flatten().collect(), false)
        .await;
    assert!(!ended);
}

#[tokio::test]
async fn chunked_trailers_unsigned_are_not_sent() {
    let sizes: [&[u8]; 2] = [b"some bytes", b"and more of them"];
    let case = Case {
        bytes: 26,
        ..WITH_TRAILERS
    };
    let line = format!("{TRAILER}\n");
    let right = made(SECRET, SEED_OF_TRAILERS, sizes, &line);
    let (_, ended) = case.left(&right, 10, true).await;
    assert!(ended);
    let text = String::from_utf8(right).unwrap();
    let two = format!("{TRAILER}\nx-amz-meta-a:1\n");
    let rows = [
        ("its value", text.replace("sOO8", "sOO9")),
        ("its name", text.replace(NAME, "x-amz-checksum-crc32d")),
        ("its case", text.replace(NAME, "X-Amz-Checksum-Crc32c")),
        ("left out", text.replace(&format!("{TRAILER}\r\n"), "")),
        (
            "twice",
            text.replace(TRAILER, &format!("{TRAILER}\r\n{TRAILER}")),
        ),
        (
            "no signature",
            text.split("x-amz-trailer-signature")
                .next()
                .unwrap()
                .to_owned(),
        ),
        (
            "after its signature",
            format!("{}{TRAILER}\r\n\r\n", &text[..text.len() - 2]),
        ),
        (
            "two signatures",
            text.replace(
                "x-amz-trailer-signature",
                "x-amz-trailer-signature:a\r\nx-amz-trailer-signature",
            ),
        ),
        ("no end", text.split(TRAILER).next().unwrap().to_owned()),
        (
            "too many",
            text.replace(TRAILER, &format!("{TRAILER}{}", " ".repeat(9000))),
        ),
        (
            "none of those",
            text.split(TRAILER).next().unwrap().to_owned() + "\r\n",
        ),
        // Each signed right, but not what the request has said of it.
        (
            "more than was told",
            String::from_utf8(made(SECRET, SEED_OF_TRAILERS, sizes, &two)).unwrap(),
        ),
        (
            "fewer",
            String::from_utf8(made(SECRET, SEED_OF_TRAILERS, sizes, "")).unwrap(),
        ),
        (
            "what others take for the end of a line",
            String::from_utf8(made(
                SECRET,
                SEED_OF_TRAILERS,
                sizes,
                &format!("{NAME}:1\rx-b:2\n"),
            ))
            .unwrap(),
        ),
        (
            "by another key",
            String::from_utf8(made(REAL, SEED_OF_TRAILERS, sizes, &line)).unwrap(),
        ),
        (
            "of another request",
            String::from_utf8(made(SECRET, SEED, sizes, &line)).unwrap(),
        ),
    ];
    for (what, body) in rows {
        let (left, ended) = case.left(body.as_bytes(), 10, true).await;
        assert!(!ended, "{what}");
        let left = String::from_utf8(left).unwrap();
        assert!(!left.contains("\r\n0;chunk"), "{what}: {left}");
    }
}

#[tokio::test]
async fn chunked_body_holds_one_chunk() {
    let long = vec![b'a'; PIECE_BYTES_MAX + 1];
    let at_most = &long[1..];
    for (data, is_taken) in [(at_most, true), (&long[..], false)] {
        let case = Case {
            bytes: data.len() as u64,
            ..PUBLISHED
        };
        let mut own = chain(SECRET, SEED);
        let signature = own.sign(ChainItem::Piece(data)).to_owned();
        let body = piece(data, &signature);
        let mut pieces = case.pieces();
        pieces.sign(chain(REAL, NEW_SEED));
        pieces.held.extend_from_slice(&body);
        let next = pieces.next();
        match is_taken {
            true => assert_eq!(next.unwrap().unwrap().len(), body.len()),
            false => assert!(matches!(next, Err(BodyError::LongPiece))),
        }
    }
    let mut unsigned = PUBLISHED.pieces();
    unsigned.held.extend_from_slice(&published());
    assert!(matches!(unsigned.next(), Err(BodyError::Short)));
}
