//! Secrets in all their forms, compared with a slow and plain search.

mod bodies;
mod coding;
mod placeholders;
mod reference;
mod writings;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use self::reference::{stands, ways};
use super::*;

const REAL: &str = "sk-ant-api03-Xk29fLq7ZpW3vB8nRt5Y-hJ4_mC6dSgA";

fn stand_in(real: &str) -> Vec<u8> {
    placeholder(real.as_bytes(), &[7; 32]).unwrap()
}

fn masks(reals: &[&str]) -> Masks {
    let pairs = reals.iter().enumerate().map(|(number, real)| {
        let placeholder = placeholder(real.as_bytes(), &[number as u8; 32]).unwrap();
        (Secret::new(real.as_bytes().to_vec()).unwrap(), placeholder)
    });
    Masks::new(pairs.collect()).unwrap()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn percent(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}

fn json(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\u{byte:04x}")).collect()
}

/// Escapes every second byte, in each way by turns.
fn mixed(bytes: &[u8]) -> Vec<u8> {
    let written = bytes.iter().enumerate().map(|(place, byte)| {
        let ways = ways(*byte);
        ways[place % 4 % ways.len()].clone()
    });
    written.collect::<Vec<_>>().concat()
}

fn wide(bytes: &[u8], is_big: bool) -> Vec<u8> {
    let units = bytes
        .iter()
        .map(|byte| if is_big { [0, *byte] } else { [*byte, 0] });
    units.collect::<Vec<_>>().concat()
}

/// Returns a value in every form that is promised, by name.
fn written(value: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let around = |before: &str| [before.as_bytes(), value, b"&tail"].concat();
    vec![
        ("plain", value.to_vec()),
        ("in text", around("token=")),
        ("in another case", value.to_ascii_uppercase()),
        ("hexadecimal", hexadecimal(value).into_bytes()),
        (
            "hexadecimal in capitals",
            hexadecimal(value).to_uppercase().into_bytes(),
        ),
        ("base64", STANDARD.encode(value).into_bytes()),
        (
            "base64 after one byte",
            STANDARD.encode(around("a")).into_bytes(),
        ),
        (
            "base64 after two",
            STANDARD.encode(around("ab")).into_bytes(),
        ),
        (
            "base64 after three",
            STANDARD.encode(around("abc")).into_bytes(),
        ),
        (
            "base64 for addresses",
            URL_SAFE_NO_PAD.encode(around("user:~?")).into_bytes(),
        ),
        (
            "base64 in an address",
            STANDARD
                .encode(around("?>"))
                .replace('+', "%2B")
                .replace('=', "%3D")
                .into_bytes(),
        ),
        ("percent", percent(value).into_bytes()),
        (
            "percent in small letters",
            percent(value).to_lowercase().into_bytes(),
        ),
        ("JSON", json(value).into_bytes()),
        ("by turns", mixed(value)),
        (
            "hexadecimal, escaped",
            percent(hexadecimal(value).as_bytes()).into_bytes(),
        ),
        ("UTF-16, the low byte first", wide(value, false)),
        ("UTF-16, the high byte first", wide(value, true)),
        ("after what begins an escape", [b"%", value].concat()),
        ("after a backslash", [b"\\", value].concat()),
        ("after half an escape", [&b"\\u00"[..], value].concat()),
    ]
}

#[test]
fn mask_keeps_each_encoding() {
    let masks = masks(&[REAL]);
    let stands_for = placeholder(REAL.as_bytes(), &[0; 32]).unwrap();
    let forms = written(REAL.as_bytes())
        .into_iter()
        .zip(written(&stands_for));
    for ((name, real), (_, expected)) in forms {
        // The control: it is there before.
        assert!(stands(&real, REAL.as_bytes()), "{name}");
        let masked = masks
            .whole(&real)
            .unwrap_or_else(|| panic!("{name} is not found"));
        // A letter in the other case than the secret's is in the other one then too, and
        // digits of an escape are the same in either.
        let is_loose =
            name == "in another case" || masked.contains(&b'%') || masked.contains(&b'\\');
        if is_loose {
            assert!(masked.eq_ignore_ascii_case(&expected), "{name}");
            continue;
        }
        assert_eq!(
            String::from_utf8_lossy(&masked),
            String::from_utf8_lossy(&expected),
            "{name}"
        );
    }
    assert!(masks.whole(b"nothing of it, and 73 6b 2d").is_none());
    assert!(masks.whole(&REAL.as_bytes()[..REAL.len() - 1]).is_none());
}

#[test]
fn finder_finds_every_encoding_across_cuts() {
    let value = stand_in(REAL);
    let placeholders = Placeholders::new(vec![
        stand_in("another-secret-of-some-length"),
        value.clone(),
    ])
    .unwrap();
    for (name, form) in written(&value) {
        assert_eq!(
            placeholders.find(&form).map(|found| found.number),
            Some(1),
            "{name}"
        );
        for cut in 0..form.len() {
            let mut finder = placeholders.stream();
            let both = finder
                .feed(&form[..cut])
                .and_then(|()| finder.feed(&form[cut..]));
            assert!(both.is_err(), "{name}, cut at {cut}");
        }
        let mut finder = placeholders.stream();
        assert!(
            form.iter().any(|byte| finder.feed(&[*byte]).is_err()),
            "{name}, byte by byte"
        );
    }
    // What is no placeholder but the secret is not looked for.
    assert_eq!(placeholders.find(REAL.as_bytes()), None);
}

#[test]
fn mask_held_bytes_depend_on_no_secret() {
    let masks = masks(&[REAL]);
    let held = |text: &str| {
        let mut mask = masks.stream();
        mask.feed(text.as_bytes(), &mut Vec::new());
        assert_eq!(mask.is_short(), mask.held() < 8, "{text}");
        mask.held()
    };
    for length in 1..REAL.len() - 1 {
        let beginning = &REAL[..length];
        // Another letter at the end, as long and as likely.
        let mut other = beginning[..length - 1].to_owned();
        other.push('Q');
        assert_eq!(held(&format!("x {beginning}")), held(&format!("x {other}")));
        assert_eq!(held(&format!("x {beginning}")), length);
    }
    assert_eq!(held("data: {\"text\":\"word\"}\n\n"), 0);
    // The whole of it is held like anything of its length.
    assert_eq!(
        held(&format!("x {REAL}")),
        held(&format!("x {}", "Q".repeat(REAL.len())))
    );
}

/// Returns the output of a stream that pauses after every `step` bytes, and then ends.
fn paused(masks: &Masks, stream: &[u8], step: usize) -> Vec<u8> {
    let (mut mask, mut out) = (masks.stream(), Vec::new());
    for piece in stream.chunks(step) {
        mask.feed(piece, &mut out);
        if mask.is_short() {
            mask.release(&mut out);
        }
    }
    mask.release(&mut out);
    out
}

#[test]
fn mask_pauses_reveal_few_bytes() {
    let masks = masks(&[REAL]);
    for (name, form) in written(REAL.as_bytes()) {
        let stream = [b"x ", &form[..], b"\n"].concat();
        let expected = masks.whole(&stream).unwrap();
        // Where the row begins that the value is in, and what of it may be told.
        let begun = if name == "in text" { 2 + 6 } else { 2 };
        let told = begun + 7;
        for step in 1..stream.len() {
            let out = paused(&masks, &stream, step);
            assert_eq!(out.len(), stream.len());
            assert_eq!(out[told..], expected[told..], "{name}, by {step}");
        }
    }
    // The control: what is not masked comes as it was.
    let words = format!("x {}", &REAL[..REAL.len() - 1]);
    assert_eq!(paused(&masks, words.as_bytes(), 3), words.as_bytes());
    // What ends a row has what comes after it go on.
    let words = b"a few words of seven or fewer, and dots..............";
    for step in 1..words.len() {
        let (mut mask, mut out) = (masks.stream(), Vec::new());
        mask.feed(&words[..step], &mut out);
        assert!(mask.is_short(), "{step}");
    }
}

#[test]
fn mask_released_part_has_rest_masked() {
    let masks = masks(&[REAL]);
    let stands_for = placeholder(REAL.as_bytes(), &[0; 32]).unwrap();
    let (begun, rest) = REAL.as_bytes().split_at(20);
    let mut mask = masks.stream();
    let mut out = Vec::new();
    mask.feed(&[b"x ", begun].concat(), &mut out);
    // As where all has come.
    assert!(!mask.is_short());
    mask.release(&mut out);
    mask.feed(rest, &mut out);
    mask.release(&mut out);
    assert_eq!(out, [b"x ", begun, &stands_for[20..]].concat());
}

#[test]
fn mask_endless_stream_uses_little_memory() {
    let masks = masks(&[REAL]);
    let mut mask = masks.stream();
    let mut out = Vec::new();
    for _ in 0..200 {
        out.clear();
        mask.feed(&[b'A'; 16 * 1024], &mut out);
        assert!(mask.held() < REAL.len() * 12);
    }
    assert!(out.capacity() < 256 * 1024);
}

#[test]
fn mask_key_lines_are_masked_each() {
    let body = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgqP3mVX7d1YzT0kLs\nR8uW2hJ5cN4xF6bQ9aEoKtGiDwMzOyBpUvHlSfXjCrZeIgTnAmYqVsL1dRkP0b3h\n";
    let key = format!("-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n");
    let masks = masks(&[&key]);
    // Within JSON within JSON its line breaks are escaped twice.
    let nested = serde_json::to_string(&serde_json::to_string(&key).unwrap()).unwrap();
    let masked = String::from_utf8(masks.whole(nested.as_bytes()).unwrap()).unwrap();
    assert_eq!(masked.len(), nested.len());
    assert!(masked.contains("-----BEGIN PRIVATE KEY-----"));
    for line in body.lines() {
        assert!(nested.contains(line) && !masked.contains(line));
    }
}

#[test]
fn headers_are_searched_and_masked() {
    let mut headers = HeaderMap::new();
    headers.insert(
        "location",
        HeaderValue::from_str(&format!("/?k={REAL}")).unwrap(),
    );
    headers.append("x", HeaderValue::from_static("untouched"));
    // Names of headers have one case.
    for name in [
        format!("x-{REAL}"),
        format!("x-{}", hexadecimal(REAL.as_bytes())),
    ] {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_static("a"));
    }
    assert_eq!(headers.len(), 4);
    masks(&[REAL]).headers(&mut headers);
    let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    assert_eq!(left, ["location", "x"]);
    assert!(!stands(headers["location"].as_bytes(), REAL.as_bytes()));
    assert_eq!(headers["x"], "untouched");
    let value = stand_in(REAL);
    let placeholders = Placeholders::new(vec![value.clone()]).unwrap();
    assert_eq!(placeholders.find_in_headers(&headers), None);
    let mut named = HeaderMap::new();
    named.insert(
        HeaderName::from_bytes(&value).unwrap(),
        HeaderValue::from_static(""),
    );
    assert!(placeholders.find_in_headers(&named).is_some());
    // In the name of a host letters have one case.
    let host = format!(
        "{}.example.com",
        String::from_utf8_lossy(&value).to_lowercase()
    );
    assert!(placeholders.find(host.as_bytes()).is_some());
}

#[test]
fn mask_unlike_placeholder_is_refused() {
    let inner = "Ab1Cd2Ef3Gh4Ij5Kl6Mn";
    let outer = "zzzzzzzzzzzzzzzzzzzzzzzzzzzz";
    let pair = |real: &str, stands: &str| (Secret::new(real.into()).unwrap(), stands.into());
    let bad = vec![
        pair(inner, "Qb1Cd2Qf3Qh4Qj5Ql6Qn"),
        pair(outer, &format!("xxxx{inner}xxxx")),
    ];
    assert!(matches!(Masks::new(bad), Err(PlaceholderError::Unlike)));
    let good = vec![
        pair(inner, "Qb1Cd2Qf3Qh4Qj5Ql6Qn"),
        pair(outer, &"y".repeat(28)),
    ];
    assert!(Masks::new(good).is_ok());
    // One that has another length, or a mark where there was a letter.
    assert!(matches!(
        Masks::new(vec![pair(inner, "short")]),
        Err(PlaceholderError::Unlike)
    ));
    assert!(matches!(
        Masks::new(vec![pair(inner, "Qb1Cd2Qf3Qh4Qj5Ql\"Qn")]),
        Err(PlaceholderError::Unlike)
    ));
}

/// Secrets, some of which have beginnings or ends in common.
fn secrets() -> impl Strategy<Value = Vec<String>> {
    let one = prop_oneof![
        "[A-Za-z0-9]{16,40}",
        "[a-z0-9]{16,24}",
        "sk-[A-Za-z0-9_-]{20,40}",
        "[A-Za-z0-9]{20}[%/+ .~?][A-Za-z0-9]{12}",
        "[A-Za-z0-9]{3}[\"\\\\%][A-Za-z0-9]{18}",
    ];
    prop::collection::vec(one, 1..4)
        .prop_flat_map(|ones| {
            (Just(ones), any::<bool>(), 16_usize..20).prop_map(|(mut ones, is_more, length)| {
                if is_more {
                    // A prefix of the first, and one that begins by its end.
                    let first = ones[0].clone();
                    ones.push(first[..length.min(first.len())].to_owned());
                    ones.push(format!("{}Zq81XyWv72UtSr63", &first[first.len() - 8..]));
                }
                ones.retain(|one| placeholder(one.as_bytes(), &[0; 32]).is_ok());
                ones
            })
        })
        .prop_filter("one at least", |ones| !ones.is_empty())
}

/// A piece of a stream: filler, or a secret by number, the form in which it is written, and the
/// number of bytes missing at its end.
#[derive(Clone, Debug)]
enum Piece {
    Filler(Vec<u8>),
    Secret(usize, usize, usize),
    /// Two secrets that share bytes, if they can.
    Joined(usize, usize),
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        prop::collection::vec(prop::sample::select(&b"%\\u00x4aZ=+/ \"\n\0s"[..]), 0..12)
            .prop_map(Piece::Filler),
        prop::collection::vec(any::<u8>(), 0..24).prop_map(Piece::Filler),
        (
            any::<usize>(),
            any::<usize>(),
            prop_oneof![4 => Just(0_usize), 1 => 1_usize..8]
        )
            .prop_map(|(number, form, missing)| Piece::Secret(number, form, missing)),
        (any::<usize>(), any::<usize>()).prop_map(|(one, other)| Piece::Joined(one, other)),
    ];
    prop::collection::vec(piece, 1..8)
}

fn stream(values: &[Vec<u8>], pieces: &[Piece]) -> Vec<u8> {
    let value = |number: usize| &values[number % values.len()];
    let written = pieces.iter().map(|piece| match piece {
        Piece::Filler(bytes) => bytes.clone(),
        Piece::Secret(number, form, missing) => {
            let all = written(value(*number));
            let (_, bytes) = &all[form % all.len()];
            bytes[..bytes.len() - missing].to_vec()
        }
        Piece::Joined(one, other) => {
            let (one, other) = (value(*one), value(*other));
            let shared = (0..=one.len().min(other.len())).rev();
            let mut shared = shared.filter(|bytes| one.ends_with(&other[..*bytes]));
            [&one[..], &other[shared.next().unwrap_or(0)..]].concat()
        }
    });
    written.collect::<Vec<_>>().concat()
}

/// Splits a stream into pieces of these lengths, repeated.
fn cut<'a>(stream: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = stream;
    let mut cut = Vec::new();
    for length in lengths.iter().cycle().take(stream.len() + 1) {
        let (piece, after) = rest.split_at((*length).min(rest.len()));
        cut.push(piece);
        rest = after;
    }
    cut.push(rest);
    cut
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn mask_leaves_no_secret_in_any_encoding(
        reals in secrets(),
        pieces in pieces(),
        lengths in prop::collection::vec(1_usize..40, 1..6),
    ) {
        let pairs: Vec<(Secret, Vec<u8>)> = reals.iter().enumerate().map(|(number, real)| {
            let stands_for = placeholder(real.as_bytes(), &[number as u8; 32]).unwrap();
            (Secret::new(real.as_bytes().to_vec()).unwrap(), stands_for)
        }).collect();
        let masks = Masks::new(pairs).unwrap();
        let values: Vec<Vec<u8>> = reals.iter().map(|real| real.as_bytes().to_vec()).collect();
        let stream = stream(&values, &pieces);
        let is_any = values.iter().any(|value| stands(&stream, value));
        let mut mask = masks.stream();
        let mut masked = Vec::new();
        for piece in cut(&stream, &lengths) {
            mask.feed(piece, &mut masked);
        }
        mask.release(&mut masked);
        prop_assert_eq!(masked.len(), stream.len());
        prop_assert_eq!(masked == stream, !is_any);
        // What was written in is no part of a secret, though it may be what one lacks to be whole.
        let left: Vec<u8> = std::iter::zip(&stream, &masked)
            .map(|(was, is)| if was == is { *is } else { 1 })
            .collect();
        for value in &values {
            prop_assert!(!stands(&left, value), "{}", String::from_utf8_lossy(&masked));
        }
        prop_assert_eq!(masks.whole(&stream).unwrap_or_else(|| stream.clone()), masked);
    }

    #[test]
    fn finder_agrees_with_reference(
        reals in secrets(),
        pieces in pieces(),
        lengths in prop::collection::vec(1_usize..40, 1..6),
    ) {
        let values: Vec<Vec<u8>> = reals.iter().enumerate().map(|(number, real)| {
            placeholder(real.as_bytes(), &[number as u8; 32]).unwrap()
        }).collect();
        let placeholders = Placeholders::new(values.clone()).unwrap();
        let stream = stream(&values, &pieces);
        let is_any = values.iter().any(|value| stands(&stream, value));
        prop_assert_eq!(placeholders.find(&stream).is_some(), is_any);
        let mut finder = placeholders.stream();
        let found = cut(&stream, &lengths).into_iter().any(|piece| finder.feed(piece).is_err());
        prop_assert_eq!(found, is_any);
    }

    #[test]
    fn mask_cuts_and_pauses_keep_other_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        lengths in prop::collection::vec(1_usize..40, 1..6),
        pauses in prop::collection::vec(any::<bool>(), 1..6),
    ) {
        let mut mask = masks(&[REAL]).stream();
        let mut out = Vec::new();
        for (piece, pauses) in cut(&bytes, &lengths).into_iter().zip(pauses.iter().cycle()) {
            mask.feed(piece, &mut out);
            if *pauses {
                mask.release(&mut out);
                prop_assert_eq!(mask.held(), 0);
            }
        }
        mask.release(&mut out);
        prop_assert_eq!(out, bytes);
    }
}

#[test]
fn locate_returns_at_most_two_per_form() {
    let placeholder = b"ghp_placeholder00000000000000000";
    let other = b"ghp_another111111111111111111111";
    let placeholders = Placeholders::new(vec![placeholder.to_vec(), other.to_vec()]).unwrap();
    let mut text = placeholder.repeat(30_000);
    text.extend_from_slice(b" ");
    let at = text.len();
    text.extend_from_slice(other);
    let located = placeholders.locate(&text);
    let of = |number| located.iter().filter(move |one| one.found.number == number);
    assert_eq!(of(0).count(), 2, "{located:?}");
    let ranges: Vec<_> = of(1).map(|one| one.range.clone()).collect();
    assert_eq!(ranges.len(), 1);
    assert_eq!(ranges.first(), Some(&(at..text.len())));
}

#[test]
fn mask_open_stream_masks_new_values() {
    let masks = Masks::new(Vec::new()).unwrap();
    let mut mask = masks.stream();
    let mut out = Vec::new();
    mask.feed(format!("before {REAL} ").as_bytes(), &mut out);
    mask.release(&mut out);
    // The control: nobody knew it yet.
    assert!(String::from_utf8_lossy(&out).contains(REAL));
    let pair = || (Secret::new(REAL.into()).unwrap(), stand_in(REAL));
    masks.renew(vec![pair()]).unwrap();
    assert_eq!(masks.whole(REAL.as_bytes()), Some(stand_in(REAL)));
    let mut after = Vec::new();
    mask.feed(format!("after {REAL} tail").as_bytes(), &mut after);
    mask.release(&mut after);
    let expected = [b"after ", &stand_in(REAL)[..], b" tail"].concat();
    assert_eq!(after, expected);
    // What cannot be masked changes nothing.
    let unlike = (Secret::new(REAL.into()).unwrap(), b"short".to_vec());
    assert!(masks.renew(vec![unlike]).is_err());
    let mut last = Vec::new();
    mask.feed(REAL.as_bytes(), &mut last);
    mask.release(&mut last);
    assert_eq!(last, stand_in(REAL));
}

#[test]
fn mask_spares_some_and_records_the_rest() {
    let real = |number: u8| format!("k{number}y-0f-An0th3r-h0st-Wh1ch-n0b0dy");
    let pairs = (0..3).map(|number| {
        let stands = placeholder(real(number).as_bytes(), &[number + 1; 32]).unwrap();
        (Secret::new(real(number).into_bytes()).unwrap(), stands)
    });
    let masks = Masks::new(pairs.collect()).unwrap();
    let text = format!("{} {} end", real(0), real(1));
    let (mut streams, mut out) = (Vec::new(), Vec::new());
    for chunk in [1, 7, 200] {
        let noted = std::sync::Arc::<MaskedNumbers>::default();
        let mut mask = masks.stream_but([0, 2, 64].into_iter(), std::sync::Arc::clone(&noted));
        out.clear();
        for piece in text.as_bytes().chunks(chunk) {
            mask.feed(piece, &mut out);
        }
        mask.release(&mut out);
        assert_eq!(out.len(), text.len());
        let masked = String::from_utf8(out.clone()).unwrap();
        assert!(
            masked.starts_with(&real(0)) && masked.ends_with(" end"),
            "{masked}"
        );
        assert!(!masked.contains(&real(1)), "{masked}");
        let held: Vec<bool> = [0, 1, 2, 64].map(|number| noted.holds(number)).into();
        assert_eq!(held, [false, true, false, false]);
        streams.push(masked);
    }
    assert!(streams.iter().all(|one| *one == streams[0]), "{streams:?}");
    // The control: without that both are masked.
    let whole = masks.whole(text.as_bytes()).unwrap();
    assert!(!String::from_utf8(whole).unwrap().contains(&real(0)));
}
