//! Whether a value stands somewhere, found as slowly and plainly as it can be: at every
//! place, every way to write every symbol. It shares nothing with what it checks.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Whether a value stands anywhere in these bytes, in any form.
pub(crate) fn stands(bytes: &[u8], value: &[u8]) -> bool {
    forms(value)
        .iter()
        .any(|form| (0..bytes.len()).any(|start| stands_at(&bytes[start..], form)))
}

/// Each form of a value: of each symbol, the bytes that it can be.
fn forms(value: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let either = |byte: u8| vec![byte.to_ascii_lowercase(), byte.to_ascii_uppercase()];
    let plain = value.iter().map(|byte| {
        let mut bytes = either(*byte);
        if *byte == b' ' {
            bytes.push(b'+');
        }
        bytes
    });
    let plain: Vec<Vec<u8>> = plain.collect();
    let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut wide: Vec<Vec<u8>> = plain
        .iter()
        .flat_map(|byte| [byte.clone(), vec![0]])
        .collect();
    wide.pop();
    let mut forms = vec![plain, digits.bytes().map(either).collect(), wide];
    for before in 0..3 {
        let encoded = STANDARD_NO_PAD.encode([&vec![0; before], value].concat());
        let whole = (before * 8).div_ceil(6)..(before + value.len()) * 8 / 6;
        let letters = encoded.as_bytes()[whole].iter().map(|letter| match letter {
            b'+' => b"+-".to_vec(),
            b'/' => b"/_".to_vec(),
            letter => vec![*letter],
        });
        forms.push(letters.collect());
    }
    forms
}

fn stands_at(bytes: &[u8], form: &[Vec<u8>]) -> bool {
    let mut places = BTreeSet::from([0]);
    for symbol in form {
        let mut next = BTreeSet::new();
        for (place, byte) in places
            .iter()
            .flat_map(|place| symbol.iter().map(move |byte| (*place, *byte)))
        {
            for written in ways(byte) {
                let there = bytes.get(place..place + written.len());
                if there.is_some_and(|there| is_same(there, &written)) {
                    next.insert(place + written.len());
                }
            }
        }
        places = next;
        if places.is_empty() {
            return false;
        }
    }
    true
}

/// Digits of an escape are the same in either case, and nothing else is.
fn is_same(there: &[u8], written: &[u8]) -> bool {
    match written {
        [before @ .., _, _] if written.len() > 2 => {
            there.starts_with(before) && there.eq_ignore_ascii_case(written)
        }
        _ => there == written,
    }
}

/// Every way to write a byte.
pub(crate) fn ways(byte: u8) -> Vec<Vec<u8>> {
    let mut ways = vec![vec![byte], format!("%{byte:02x}").into_bytes()];
    ways.push(format!("\\x{byte:02x}").into_bytes());
    if byte < 0x80 {
        ways.push(format!("\\u00{byte:02x}").into_bytes());
    }
    let short = match byte {
        b'"' | b'\'' | b'\\' | b'/' => Some(byte),
        8 => Some(b'b'),
        12 => Some(b'f'),
        b'\n' => Some(b'n'),
        b'\r' => Some(b'r'),
        b'\t' => Some(b't'),
        _ => None,
    };
    ways.extend(short.map(|short| vec![b'\\', short]));
    ways
}
