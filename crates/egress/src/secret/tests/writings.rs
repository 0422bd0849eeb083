//! Every promised way to write a value, applied to the value and to its base64.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::super::{Masks, Secret, placeholder};

use super::reference::stands;

const SECRETS: [&str; 7] = [
    "sk-ant-api03-Xk29fLq7ZpW3vB8n",
    "0000006541deadbeef0123",
    "p4ss+word/with=more&and\"quote",
    "Q7+/=&aB3dE5gH9k",
    "0f8fad5b-d9cb-469f-a165-70867728950e",
    "key=41abcQ&ltd;Ww8xYz30pK",
    "Ab3dE5gH9kLm2N4pQ6rS tUvW",
];

fn masks(real: &str) -> (Masks, Vec<u8>) {
    let stands_for = placeholder(real.as_bytes(), &[7; 32]).unwrap();
    let secret = Secret::new(real.as_bytes().to_vec()).unwrap();
    (
        Masks::new(vec![(secret, stands_for.clone())]).unwrap(),
        stands_for,
    )
}

fn name(byte: u8) -> Option<&'static str> {
    Some(match byte {
        b'&' => "amp",
        b'"' => "quot",
        b'+' => "plus",
        b'/' => "sol",
        b'=' => "equals",
        b';' => "semi",
        _ => return None,
    })
}

/// One way to write a byte.
type Escape = (&'static str, fn(u8) -> String);

const ESCAPES: [Escape; 19] = [
    ("named", |byte| {
        name(byte).map_or(char::from(byte).to_string(), |name| format!("&{name};"))
    }),
    ("named without end", |byte| {
        name(byte).map_or(char::from(byte).to_string(), |name| format!("&{name}"))
    }),
    ("decimal", |byte| format!("&#{byte};")),
    ("decimal with zeros", |byte| format!("&#{byte:05};")),
    ("decimal in eight digits", |byte| format!("&#{byte:08};")),
    ("decimal without end", |byte| format!("&#{byte}")),
    ("reference by digits", |byte| format!("&#x{byte:x};")),
    ("reference in capitals", |byte| format!("&#X{byte:X};")),
    ("reference with zeros", |byte| format!("&#x{byte:06x};")),
    ("reference without end", |byte| format!("&#x{byte:x}")),
    ("braces", |byte| format!("\\u{{{byte:x}}}")),
    ("braces with zeros", |byte| format!("\\u{{{byte:06X}}}")),
    ("eight digits", |byte| format!("\\U{byte:08x}")),
    ("octal", |byte| format!("\\{byte:o}")),
    ("octal in three digits", |byte| format!("\\{byte:03o}")),
    ("quoted-printable", |byte| format!("={byte:02X}")),
    ("percent", |byte| format!("%{byte:02X}")),
    ("JSON", |byte| format!("\\u{byte:04x}")),
    ("digits of a string", |byte| format!("\\x{byte:02x}")),
];

/// Returns a value as it is and within base64, by name.
fn bases(value: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut bases = vec![("as it is".to_owned(), value.to_vec())];
    for before in ["", "a", "?>"] {
        let text = [before.as_bytes(), value, b"~?end"].concat();
        let usual = STANDARD.encode(&text).into_bytes();
        let other = URL_SAFE_NO_PAD.encode(&text).into_bytes();
        bases.push((format!("base64 after {}", before.len()), usual));
        bases.push((format!("other base64 after {}", before.len()), other));
    }
    bases
}

fn joined(bytes: &[u8], width: usize, between: &str) -> Vec<u8> {
    let lines: Vec<&[u8]> = bytes.chunks(width).collect();
    lines.join(between.as_bytes())
}

fn wide(bytes: &[u8], zeros: usize, is_big: bool) -> Vec<u8> {
    let units = bytes.iter().map(|byte| {
        let zeros = vec![0; zeros];
        match is_big {
            true => [zeros, vec![*byte]].concat(),
            false => [vec![*byte], zeros].concat(),
        }
    });
    units.collect::<Vec<_>>().concat()
}

fn digits(bytes: &[u8], between: &str) -> Vec<u8> {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let before = if between.ends_with("0x") { "0x" } else { "" };
    (before.to_owned() + &pairs.join(between)).into_bytes()
}

/// Returns bytes written as digits in each way, by name.
fn in_digits(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut add = |way: String, written| all.push((way, written));
    for between in [
        "",
        " ",
        ":",
        "-",
        ",",
        ", ",
        ",0x",
        ", 0x",
        " 0x",
        "\n",
        "\r\n",
        "\\n",
        "\\r\\n",
        ",\n    0x",
    ] {
        let written = digits(bytes, between);
        let capitals = String::from_utf8_lossy(&written).to_uppercase();
        let capitals = capitals.replace("0X", "0x").replace("\\N", "\\n");
        add(format!("digits by {between:?}"), written);
        add(
            format!("capital digits by {between:?}"),
            capitals.replace("\\R", "\\r").into_bytes(),
        );
    }
    let lines: Vec<Vec<u8>> = bytes.chunks(8).map(|line| digits(line, " ")).collect();
    add("digits in lines".to_owned(), lines.join(&b"\n"[..]));
    add("digits in strings".to_owned(), lines.join(&b"\\n"[..]));
    add("wide digits".to_owned(), wide(&digits(bytes, ""), 1, false));
    all
}

/// Returns a value in each way, by name.
fn writings(value: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for (base, bytes) in bases(value) {
        let is_base64 = base != "as it is";
        let mut add = |way: String, written| all.push((format!("{base}, {way}"), written));
        for (way, escape) in ESCAPES {
            let some =
                |is_escaped: &dyn Fn(usize, u8) -> bool| {
                    let written = bytes.iter().enumerate().map(|(place, byte)| {
                        match is_escaped(place, *byte) {
                            true => escape(*byte),
                            false => char::from(*byte).to_string(),
                        }
                    });
                    written.collect::<String>().into_bytes()
                };
            add(way.to_owned(), some(&|_, _| true));
            // What a server must escape at the least, so that it can be read back.
            let is_mark = |byte: u8| !byte.is_ascii_alphanumeric();
            add(format!("{way} of marks"), some(&|_, byte| is_mark(byte)));
            add(
                format!("{way} of some"),
                some(&|place, byte| place % 3 == 1 || is_mark(byte)),
            );
        }
        let mixed = bytes.iter().enumerate().map(|(place, byte)| {
            let (_, escape) = ESCAPES[place % ESCAPES.len()];
            escape(*byte)
        });
        add(
            "by turns".to_owned(),
            mixed.collect::<String>().into_bytes(),
        );
        for width in [5, 20, 64, 76] {
            for soft in ["=\n", "=\r\n"] {
                add(format!("soft at {width}"), joined(&bytes, width, soft));
            }
        }
        for (zeros, is_big) in [(1, false), (1, true), (3, false), (3, true)] {
            add(format!("wide, {zeros}"), wide(&bytes, zeros, is_big));
        }
        let breaks = [
            "\n",
            "\r\n",
            "\\n",
            "\\r\\n",
            "&#10;",
            "%0D%0A",
            "&NewLine;",
        ];
        for (width, between) in [1, 4, 19, 60, 64, 76]
            .into_iter()
            .flat_map(|width| breaks.map(|between| (width, between)))
            .filter(|_| is_base64)
        {
            add(
                format!("at {width} by {between:?}"),
                joined(&bytes, width, between),
            );
        }
        for (way, written) in in_digits(&bytes) {
            add(way, written);
        }
    }
    all
}

#[test]
fn mask_every_writing_of_secret_is_whole() {
    for real in SECRETS {
        let (masks, stands_for) = masks(real);
        for ((name, written), (_, expected)) in writings(real.as_bytes())
            .into_iter()
            .zip(writings(&stands_for))
        {
            let shown = String::from_utf8_lossy(&written).into_owned();
            // The control: it is there before.
            assert!(stands(&written, real.as_bytes()), "{name}: {shown}");
            let masked = masks.whole(&written);
            let masked = masked.unwrap_or_else(|| panic!("{name} is not found: {shown}"));
            assert_eq!(masked.len(), written.len(), "{name}");
            assert!(!stands(&masked, real.as_bytes()), "{name}: {shown}");
            assert!(masks.whole(&masked).is_none(), "{name}: {shown}");
            // A letter has another number of digits than others in some ways to write it.
            let made = String::from_utf8_lossy(&masked).into_owned();
            let expected = String::from_utf8_lossy(&expected).into_owned();
            let is_alike = made.eq_ignore_ascii_case(&expected);
            let is_numbered = expected.contains("&#") || expected.contains('\\');
            let is_split = name.contains("digits") && !name.starts_with("as it is");
            assert!(
                is_alike || expected.len() != made.len() || is_numbered || is_split,
                "{name}: {made} is not {expected}"
            );
        }
    }
}

#[test]
fn mask_writing_cut_anywhere_is_alike() {
    for (number, real) in SECRETS.into_iter().enumerate().step_by(2) {
        let (masks, _) = masks(real);
        let before = ["x ", "token=", "x&#"][number % 3];
        // Each secret as it is and at one alignment of base64.
        let alignment = format!("base64 after {}", number % 3);
        let all = writings(real.as_bytes()).into_iter();
        let some = |(name, _): &(String, Vec<u8>)| {
            name.starts_with("as it is") || name.starts_with(&alignment)
        };
        for (name, written) in all.filter(some) {
            let stream = [before.as_bytes(), &written[..]].concat();
            let expected = masks.whole(&stream).unwrap();
            for cut in 1..stream.len() {
                let (mut mask, mut out) = (masks.stream(), Vec::new());
                mask.feed(&stream[..cut], &mut out);
                mask.feed(&stream[cut..], &mut out);
                mask.release(&mut out);
                assert!(
                    out == expected,
                    "{name}, cut at {cut}: {} is not {}",
                    String::from_utf8_lossy(&out),
                    String::from_utf8_lossy(&expected),
                );
            }
        }
    }
}

#[test]
fn mask_held_end_depends_on_shape_alone() {
    let (masks, _) = masks(SECRETS[0]);
    let check = |text: &str, held: usize, is_short: bool| {
        let mut mask = masks.stream();
        mask.feed(text.as_bytes(), &mut Vec::new());
        assert_eq!((mask.held(), mask.is_short()), (held, is_short), "{text:?}");
    };
    let line = |byte: &str| format!(". {}\n", byte.repeat(64));
    for (text, held, is_short) in [
        // The secret's own bytes and others.
        (". 73 6b 2d 6", 10, true),
        (". 41 42 43 4", 10, true),
        (". 73 6b 2d 61 6e 74 2d 61 70 69 30 ", 33, false),
        (". 41 42 43 44 45 46 47 48 49 4a 4b ", 33, false),
        (". c2stYW50\n", 9, true),
        (". QUJDREVG\n", 9, true),
        (". s&#x6", 5, true),
        (". Z&#x5", 5, true),
        (". sk=\r\n-a", 7, true),
        (". ZZ=\r\nZZ", 7, true),
        // Ends of events and lines that no value goes on after.
        ("data: {\"text\":\"word\"}\n\n", 0, true),
        ("{\"text\":1}\n", 0, true),
        ("data: word\n\n", 0, true),
        ("The end of a line.\n", 0, true),
        ("if (a) { b(); }\n", 0, true),
        ("at 17:58:07 ", 9, true),
    ] {
        check(text, held, is_short);
    }
    for byte in ["s", "Z"] {
        check(&line(byte), 65, false);
    }
}
