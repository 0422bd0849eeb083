//! Names of any bytes.

use super::support::*;
use crate::escape;
use crate::*;

fn odd_names() -> Vec<Vec<u8>> {
    vec![
        b"new\nline".to_vec(),
        b"\xff\xfe\x80".to_vec(),
        b"esc\x1b[31mred".to_vec(),
        vec![b'n'; 255],
        vec![0xc3; 255],
        b" ".to_vec(),
        b"-rf".to_vec(),
        b"...".to_vec(),
        b"back\\slash".to_vec(),
        b"%41%".to_vec(),
        b"quote\"'`$(x)".to_vec(),
        "ünï\u{202e}cödé".as_bytes().to_vec(),
        (1..=255).filter(|byte| *byte != b'/').collect(),
    ]
}

#[test]
fn odd_names_go_through() {
    let before: Vec<Edit> = odd_names()
        .into_iter()
        .filter(|name| name.len() < 250)
        .map(|name| write([b"old/", name.as_slice()].concat(), "1"))
        .collect();
    let mut edits: Vec<Edit> = odd_names()
        .into_iter()
        .filter(|name| name.len() <= 255)
        .map(|name| write([b"new/", name.as_slice()].concat(), "2"))
        .collect();
    edits.push(remove("old"));
    let (stand, seen) = Stand::copy(&before, &edits);
    super::kinds::round_trip("copy", &stand, &seen);
    for mounted in MOUNTED {
        match Stand::overlay(mounted, &before, &edits, true) {
            Ok((stand, seen)) => super::kinds::round_trip("overlay", &stand, &seen),
            Err(why) => super::skipped_row(&format!("{mounted:?}"), &why),
        }
    }
}

#[test]
fn records_are_read_back() {
    for name in odd_names() {
        let text = escape::record(&name);
        assert!(text.is_ascii() && !text.contains(|letter: char| letter.is_ascii_control()));
        assert_eq!(escape::parse_record(&text), Some(name));
    }
    for wrong in ["%", "%4", "%zz", "%é"] {
        assert_eq!(escape::parse_record(wrong), None, "{wrong}");
    }
}

#[test]
fn nothing_shown_can_command_a_terminal() {
    for name in odd_names() {
        for text in [
            escape::text(&name),
            escape::line(&name),
            escape::quoted_name("a/", &name),
        ] {
            let bad = |letter: char| {
                (letter.is_control() && letter != '\t')
                    || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            };
            assert!(!text.contains(bad), "{text:?}");
        }
    }
    assert_eq!(escape::text(b"a\\x1b\x1b\xff"), "a\\\\x1b\\x1b\\xff");
}

#[test]
fn paths_stay_beneath() {
    for wrong in [
        "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\0b", "/",
    ] {
        assert!(RelativePath::new(wrong).is_err(), "{wrong:?}");
    }
    let deep = path("a/b/c");
    assert_eq!(deep.parent(), Some(path("a/b")));
    assert_eq!(deep.name(), b"c");
    assert_eq!(deep.beneath(&path("a")), Some(path("b/c")));
    assert_eq!(path("ab").beneath(&path("a")), None);
    assert_eq!(path("a").parent(), Some(RelativePath::root()));
    assert_eq!(RelativePath::root().parent(), None);
    assert!(deep.starts_with(&RelativePath::root()));
}
