use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::canonical::{CanonicalError, EventBody, INTEGER_MAX, NESTING_MAX, write_value};
use crate::event::format_time;
use crate::hash::Frontier;
use crate::*;

fn canonical(value: &Value) -> Result<String, CanonicalError> {
    let mut out = Vec::new();
    write_value(value, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn strings_are_escaped_as_rfc_8785_says() {
    for (text, expected) in [
        ("", r#""""#),
        (
            "\u{20ac}$\u{000f}\nA'B\"\\\\\"/",
            r#""€$\u000f\nA'B\"\\\\\"/""#,
        ),
        ("\u{8}\t\n\u{c}\r", r#""\b\t\n\f\r""#),
        ("\0\u{1}\u{b}\u{1f}", r#""\u0000\u0001\u000b\u001f""#),
        (
            "\u{7f}\u{80}\u{2028}\u{2029}",
            "\"\u{7f}\u{80}\u{2028}\u{2029}\"",
        ),
        ("</script>&", r#""</script>&""#),
        ("😂 \u{fb33} ö", "\"😂 \u{fb33} ö\""),
    ] {
        assert_eq!(canonical(&json!(text)).unwrap(), expected, "{text:?}");
    }
}

#[test]
fn a_body_that_is_written_as_it_is_told_has_the_same_form() {
    let most = INTEGER_MAX;
    for text in ["", "plain", "\"\\\u{1}\n\u{7f}é😂", "ends with \t"] {
        for number in [0, 7, 10, 1_234_567_890, most] {
            let body = EventBody::default().text("a", text).number("b", number);
            let body = body.text("b-c", text).finish().unwrap();
            let value = json!({ "a": text, "b": number, "b-c": text });
            let body = String::from_utf8(body).unwrap();
            assert_eq!(body, canonical(&value).unwrap());
        }
    }
    assert_eq!(EventBody::default().finish(), Ok(b"{}".to_vec()));
    for (body, fault) in [
        (
            EventBody::default().text("b", "").number("a", 1),
            CanonicalError::Order("a"),
        ),
        (
            EventBody::default().text("a", "").text("a", ""),
            CanonicalError::Order("a"),
        ),
        (
            EventBody::default().number("a", most + 1),
            CanonicalError::Number((most + 1).to_string()),
        ),
        (
            EventBody::default().text("ä", ""),
            CanonicalError::Key("ä".to_owned()),
        ),
    ] {
        assert_eq!(body.finish(), Err(fault));
    }
}

#[test]
fn values_have_one_form() {
    for (text, expected) in [
        (
            r#" { "b" : [ 1 , -2, null ] , "a" : { } } "#,
            r#"{"a":{},"b":[1,-2,null]}"#,
        ),
        (
            r#"{"aa":1,"a":2,"B":3,"_":4,"1":5,"10":6,"":7}"#,
            r#"{"":7,"1":5,"10":6,"B":3,"_":4,"a":2,"aa":1}"#,
        ),
        (
            "[9007199254740992,-9007199254740992]",
            "[9007199254740992,-9007199254740992]",
        ),
        ("[true,false,0]", "[true,false,0]"),
    ] {
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(canonical(&value).unwrap(), expected, "{text}");
    }
}

#[test]
fn what_has_no_canonical_form_is_refused() {
    for text in [
        "1.5",
        "1.0",
        "-0",
        "1e3",
        "9007199254740993",
        "-9007199254740993",
        "18446744073709551615",
        "1e400",
        r#"{"ö":1}"#,
    ] {
        let Ok(value) = serde_json::from_str::<Value>(text) else {
            continue;
        };
        assert!(canonical(&value).is_err(), "{text}");
    }
    let nested = |depth| (0..depth).fold(json!(1), |value, _| json!([value]));
    assert!(canonical(&nested(NESTING_MAX)).is_ok());
    assert_eq!(
        canonical(&nested(NESTING_MAX + 1)),
        Err(CanonicalError::Nesting)
    );
}

#[test]
fn host_text_has_one_form_and_comes_back() {
    for (bytes, expected) in [
        (&b"/tmp/a b"[..], json!("/tmp/a b")),
        ("/tmp/ö".as_bytes(), json!("/tmp/ö")),
        (b"/tmp/\xff", json!({ "hex": "2f746d702fff" })),
        (b"", json!("")),
    ] {
        let text = OsString::from_vec(bytes.to_vec());
        assert_eq!(host_text(&text), expected);
        assert_eq!(read_host_text(&expected), Some(text));
    }
    for wrong in [
        json!(null),
        json!({ "hex": "2f" }),
        json!({ "hex": "FF" }),
        json!({ "hex": "f" }),
        json!({ "hex": "ff", "more": 1 }),
        json!({ "hex": "+f" }),
        json!({}),
        json!([]),
    ] {
        assert_eq!(read_host_text(&wrong), None, "{wrong}");
    }
}

#[test]
fn times_are_rfc_3339_with_microseconds() {
    for (seconds, nanoseconds, expected) in [
        (0, 0, "1970-01-01T00:00:00.000000Z"),
        (951_782_400, 1_999, "2000-02-29T00:00:00.000001Z"),
        (1_795_253_412, 123_456_789, "2026-11-21T09:30:12.123456Z"),
        (253_402_300_799, 999_999_999, "9999-12-31T23:59:59.999999Z"),
        (253_402_300_800, 0, "9999-12-31T23:59:59.000000Z"),
    ] {
        let time = UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        assert_eq!(format_time(time), expected);
    }
    assert_eq!(
        format_time(UNIX_EPOCH - Duration::from_secs(1)),
        "1970-01-01T00:00:00.000000Z"
    );
}

/// Returns the root of the tree of RFC 6962, 2.1, straight from its definition.
fn root_by_definition(leaves: &[Vec<u8>]) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    match leaves {
        [] => Sha256::digest([]).to_vec(),
        [one] => Sha256::new()
            .chain_update([0])
            .chain_update(one)
            .finalize()
            .to_vec(),
        more => {
            let split = more.len().next_power_of_two() / 2;
            let node = Sha256::new()
                .chain_update([1])
                .chain_update(root_by_definition(&more[..split]))
                .chain_update(root_by_definition(&more[split..]));
            node.finalize().to_vec()
        }
    }
}

#[test]
fn the_root_is_that_of_rfc_6962() {
    let mut leaves = Vec::new();
    let mut frontier = Frontier::default();
    for count in 0..70_u8 {
        assert_eq!(
            frontier.root().as_bytes().to_vec(),
            root_by_definition(&leaves),
            "{count} leaves"
        );
        leaves.push(vec![count; usize::from(count)]);
        frontier.push(TreeHash::of_leaf(&vec![count; usize::from(count)]));
    }
    // The empty tree and the empty leaf, as in the test vectors of Certificate Transparency.
    assert_eq!(
        Frontier::default().root().to_string(),
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
    assert_eq!(
        TreeHash::of_leaf(b"").to_string(),
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    );
}

#[test]
fn hashes_have_one_text() {
    let hash = TreeHash::of_leaf(b"x");
    assert_eq!(TreeHash::parse(&hash.to_string()), Ok(hash));
    for wrong in [
        "",
        "00",
        &hash.to_string().to_uppercase(),
        &"g".repeat(64),
        &"ö".repeat(32),
    ] {
        assert_eq!(TreeHash::parse(wrong), Err(InvalidHash), "{wrong:?}");
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-(1_i64 << 53)..=1 << 53).prop_map(|number| json!(number)),
        any::<String>().prop_map(Value::String),
        proptest::collection::vec(any::<char>(), 0..20)
            .prop_map(|text| Value::String(text.into_iter().collect())),
        // Mostly control characters.
        proptest::collection::vec(0_u8..0x30, 0..20)
            .prop_map(|text| Value::String(text.into_iter().map(char::from).collect())),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            proptest::collection::btree_map("[ -~]{0,6}", inner, 0..8)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

proptest! {
    #[test]
    fn canonical_form_comes_back_as_it_was(value in any_value()) {
        let text = canonical(&value).unwrap();
        let back: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&back, &value);
        prop_assert_eq!(canonical(&back).unwrap(), text.clone());
        // Another writer of the same subset, made by others.
        prop_assert_eq!(serde_json::to_string(&value).unwrap(), text);
    }

    #[test]
    fn host_text_of_any_bytes_comes_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let text = OsString::from_vec(bytes);
        prop_assert_eq!(read_host_text(&host_text(&text)), Some(text));
    }

    #[test]
    fn lines_of_any_bytes_are_never_taken_for_events(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Event::read(&bytes, 1, 0).is_err());
    }
}
