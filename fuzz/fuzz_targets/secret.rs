//! Secrets and placeholders in streams that somebody else has written and cut.

#![no_main]

use std::sync::LazyLock;

use atoll_egress::secret::{Coding, Decoder, Masks, Placeholders, Secret, placeholder};
use libfuzzer_sys::fuzz_target;

const REALS: [&str; 3] = [
    "sk-ant-api03-Xk29fLq7ZpW3vB8n",
    "0123456789abcdef0123",
    "Qw7%aZ~Tn4Lk9Vb2Xc5m",
];

/// What is searched by. Making it takes far longer than searching through one input.
static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let pairs = REALS.map(|real| {
        let stands_for = placeholder(real.as_bytes(), &[1; 32]).unwrap();
        (Secret::new(real.into()).unwrap(), stands_for)
    });
    let placeholders = pairs.iter().map(|(_, stands)| stands.clone()).collect();
    Tables {
        placeholders: Placeholders::new(placeholders).unwrap(),
        masks: Masks::new(pairs.into()).unwrap(),
        reals: Placeholders::new(REALS.map(|real| real.into()).into()).unwrap(),
    }
});

struct Tables {
    placeholders: Placeholders,
    masks: Masks,
    reals: Placeholders,
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, stream)) = bytes.split_first() else {
        return;
    };
    decompressed(*first, stream);
    let Tables {
        placeholders,
        masks,
        reals,
    } = &*TABLES;
    let whole = masks.whole(stream).unwrap_or_else(|| stream.to_vec());
    // Nothing is left, nothing else is changed, and lengths stay.
    assert_eq!(reals.find(&whole), None);
    assert_eq!(whole.len(), stream.len());
    assert_eq!(reals.find(stream).is_none(), whole == stream);
    // Cutting it changes nothing.
    let length = usize::from(*first % 37) + 1;
    let (mut mask, mut masked) = (masks.stream(), Vec::new());
    let (mut finder, mut is_found) = (placeholders.stream(), false);
    for piece in stream.chunks(length) {
        mask.feed(piece, &mut masked);
        is_found |= !is_found && finder.feed(piece).is_err();
    }
    mask.release(&mut masked);
    assert_eq!(masked, whole);
    assert_eq!(is_found, placeholders.find(stream).is_some());
});

/// What is compressed comes to an end, in bounded pieces.
fn decompressed(kind: u8, bytes: &[u8]) {
    let codings = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];
    let mut decoder = Decoder::new(codings[usize::from(kind) % 4]);
    decoder.push(bytes);
    let mut out = Vec::new();
    // Not all of what is long: that is one thing after the other.
    for _ in 0..256 {
        out.clear();
        let Ok(true) = decoder.pull(&mut out) else {
            return;
        };
        assert!(!out.is_empty() && out.len() <= 32 * 1024);
    }
}
