//! Messages after the login, in whatever pieces they come.

use proptest::prelude::*;

use super::*;
use atoll_egress::secret::Secret;

const PLACEHOLDER: &str = "sk-Xk29fLq7ZpW3vB8nRt5YhJ4mC6dSg";
const REAL: &str = "sk-r3alK3yOfTh1sT3stWh1chN0bodyS";

fn placeholders() -> Placeholders {
    Placeholders::new(vec![PLACEHOLDER.as_bytes().to_vec()]).unwrap()
}

fn masks() -> Masks {
    let secret = Secret::new(REAL.as_bytes().to_vec()).unwrap();
    Masks::new(vec![(secret, PLACEHOLDER.as_bytes().to_vec())]).unwrap()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[kind][..], &length, body].concat()
}

/// Returns what goes on of these bytes in pieces of this length, and whether they end well.
fn passed(passing: &mut impl Inspection, bytes: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let mut on = Vec::new();
    for piece in bytes.chunks(piece) {
        if passing.take(piece, &mut on).is_err() {
            return (on, false);
        }
        passing.sent();
    }
    (on, true)
}

fn said(bytes: &[u8], piece: usize) -> (Vec<u8>, bool) {
    passed(&mut ClientMessages::new(&placeholders()), bytes, piece)
}

#[test]
fn postgres_placeholder_in_query_or_copy_is_stopped() {
    let other: String = PLACEHOLDER.chars().rev().collect();
    for (value, is_let) in [(PLACEHOLDER, false), (other.as_str(), true)] {
        let query = message(b'Q', format!("select '{value}'\0").as_bytes());
        let bound = message(b'B', format!("\0\0\0\0\0\x01{value}").as_bytes());
        // For the server it is one stream.
        let copied = value.as_bytes().chunks(9);
        let copied: Vec<u8> = copied.flat_map(|part| message(b'd', part)).collect();
        for (name, bytes) in [("query", query), ("bound", bound), ("copied", copied)] {
            for piece in [1, 3, 7, 16, 4096] {
                let (on, ended) = said(&bytes, piece);
                assert_eq!(ended, is_let, "{name} by {piece}");
                assert!(bytes.starts_with(&on) && (on == bytes) == is_let);
            }
        }
    }
}

#[test]
fn postgres_server_messages_are_masked_whole() {
    let row = |value: &str| message(b'D', &[&[0, 1, 0, 0, 0, 32], value.as_bytes()].concat());
    let all = |value: &str| {
        let notice = message(b'A', b"\0\0\0\x07channel\0abcdefghijklmnop\0");
        [row("none"), row(value), message(b'C', b""), notice].concat()
    };
    let (came, wanted) = (all(REAL), all(PLACEHOLDER));
    for piece in 1..came.len() {
        let is_between = AtomicBool::new(true);
        let mut heard = ServerMessages::new(&masks(), &is_between);
        let (on, ended) = passed(&mut heard, &came, piece);
        // Though each of them ends with what could begin a value.
        assert!(ended && on == wanted, "{piece}: {on:?}");
        assert!(is_between.into_inner());
    }
    let is_between = AtomicBool::new(true);
    let mut heard = ServerMessages::new(&masks(), &is_between);
    let mut on = Vec::new();
    heard.take(&came[..came.len() - 1], &mut on).unwrap();
    heard.sent();
    assert!(!is_between.load(Ordering::Relaxed));
}

#[test]
fn postgres_malformed_message_ends_connection() {
    for bytes in [&b"Q\0\0\0\x03"[..], b"Q\xff\xff\xff\xff", b"Q\0\0\0\0"] {
        assert!(!said(bytes, 2).1, "{bytes:?}");
        let is_between = AtomicBool::new(true);
        let mut heard = ServerMessages::new(&masks(), &is_between);
        assert!(!passed(&mut heard, bytes, 2).1, "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn postgres_messages_cut_anywhere_are_alike(bytes: Vec<u8>, piece in 1_usize..9) {
        let (whole, is_whole) = said(&bytes, usize::MAX);
        let (cut, is_cut) = said(&bytes, piece);
        prop_assert_eq!(is_whole, is_cut);
        prop_assert!(!is_whole || whole == cut);
    }
}
