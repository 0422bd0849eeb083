use atoll_model::TerminalRights;
use proptest::prelude::*;

use super::inspection::inspect;
use super::*;

fn filter(bytes: &[u8], rights: TerminalRights) -> Vec<u8> {
    let mut filter = EscapeFilter::new(rights);
    let mut out = Vec::new();
    filter.push(bytes, &mut out);
    filter.finish(&mut out);
    out
}

fn rights() -> impl Strategy<Value = TerminalRights> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(queries, clipboard, title)| {
        TerminalRights {
            queries,
            clipboard,
            title,
        }
    })
}

/// Bytes that are arbitrary, but likely to be sequences.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![
            "\x1b", "\x1b[", "\x1b]", "\x1bP", "\x1b_", "\x1bk", "\x1b\\", "\x07", "\u{9b}",
            "\u{9d}", "\u{9c}", "?", ">", "<", "=", ";", ":", "$p", "+q", "52;c;", "QUFB", "0;",
            "2;", "4;1;", "10;", "8;;http://x", "c", "n", "6n", "t", "21t", "u", "q", "m", "h",
            "i", "(", "0", "%", "@", " ", "\x18", "\x1a", "\x05", "\x0e", "1049", "2004", "99999",
            "tmux;", "ä", "你", "\u{202e}", "text\r\n",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

#[test]
fn the_second_reader_reads_numbers_as_terminals_do() {
    let title = TerminalRights {
        title: true,
        ..TerminalRights::default()
    };
    let queries = TerminalRights {
        queries: true,
        ..TerminalRights::default()
    };
    let cases = [
        (b"\x1b[023t".as_slice(), title, true),
        (b"\x1b[22;0t", title, true),
        (b"\x1b[22;0t", queries, false),
        (b"\x1b[014t", queries, true),
        (b"\x1b[014t", title, false),
        (b"\x1b[021t", queries, false),
        (b"\x1b[20;1t", queries, false),
    ];
    for (out, rights, expected) in cases {
        assert_eq!(
            inspect(out, rights).is_ok(),
            expected,
            "{}",
            out.escape_ascii()
        );
        assert!(
            !expected || filter(out, rights) == out,
            "{}",
            out.escape_ascii()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn nothing_dangerous_comes_through(bytes in hostile(), rights in rights()) {
        let out = filter(&bytes, rights);
        prop_assert_eq!(inspect(&out, rights), Ok(()), "{}", out.escape_ascii());
        prop_assert_eq!(filter(&out, rights), out);
    }

    #[test]
    fn arbitrary_bytes_too(bytes in prop::collection::vec(any::<u8>(), 0..300), rights in rights()) {
        let out = filter(&bytes, rights);
        prop_assert_eq!(inspect(&out, rights), Ok(()), "{}", out.escape_ascii());
        prop_assert_eq!(filter(&out, rights), out);
    }

    #[test]
    fn pieces_do_not_matter(bytes in hostile(), cuts in prop::collection::vec(0_usize..200, 0..6), rights in rights()) {
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut whole = EscapeFilter::new(rights);
        let mut pieces = EscapeFilter::new(rights);
        let (mut out, mut out_pieces) = (Vec::new(), Vec::new());
        whole.push(&bytes, &mut out);
        whole.finish(&mut out);
        for cut in cuts.windows(2) {
            pieces.push(&bytes[cut[0]..cut[1]], &mut out_pieces);
        }
        pieces.finish(&mut out_pieces);
        prop_assert_eq!(out, out_pieces);
        prop_assert_eq!(whole.removed(), pieces.removed());
    }

    #[test]
    fn text_passes_unchanged(text in "[^\\p{Cc}]{0,200}", rights in rights()) {
        prop_assert_eq!(filter(text.as_bytes(), rights), text.into_bytes());
    }

    #[test]
    fn restoring_is_on_the_list_and_complete(bytes in hostile(), rights in rights()) {
        let mut first = EscapeFilter::new(rights);
        let mut out = Vec::new();
        first.push(&bytes, &mut out);
        first.finish(&mut out);
        first.restore(&mut out);
        prop_assert_eq!(inspect(&out, rights), Ok(()), "{}", out.escape_ascii());
        // What has been restored needs no restoring, but for what no sequence
        // tells apart: a cursor brought back, keyboard flags, modified keys.
        let mut second = EscapeFilter::new(rights);
        let mut again = Vec::new();
        second.push(&out, &mut again);
        prop_assert_eq!(&again, &out);
    }

    #[test]
    fn printable_is_printable(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(!atoll_engine::printable::printable(&bytes).chars().any(atoll_engine::printable::is_deceptive));
    }
}
