use atoll_model::TerminalRights;
use proptest::prelude::*;

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

/// Reads output in a way of its own and says what is wrong with it.
fn inspect(out: &[u8], rights: TerminalRights) -> Result<(), String> {
    let text = std::str::from_utf8(out).map_err(|error| error.to_string())?;
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        match character {
            '\x1b' => rest = inspect_sequence(rest, rights)?,
            '\x07'..='\x0f' => {}
            other if other.is_control() => return Err(format!("control {other:?}")),
            _ => {}
        }
    }
    Ok(())
}

fn inspect_sequence(rest: &str, rights: TerminalRights) -> Result<&str, String> {
    let kind = rest.chars().next().ok_or("a lone escape")?;
    let rest = &rest[1..];
    match kind {
        '[' => {
            let end = rest
                .find(|character: char| ('@'..='~').contains(&character))
                .ok_or("no end")?;
            let (body, last) = (&rest[..end], &rest[end..=end]);
            if !body.bytes().all(|byte| (0x20..=0x3f).contains(&byte)) {
                return Err(format!("body {body:?}"));
            }
            let asks = "cnxy".contains(last)
                || body.ends_with('$')
                || (last == "q" && body.starts_with('>'))
                || (last == "u" && body.starts_with(['?', '<', '=', '>']))
                || (last == "t" && !matches!(body.get(..2), Some("22" | "23")));
            if asks && !rights.queries {
                return Err(format!("asks {body:?}{last}"));
            }
            if last == "i" || (last == "t" && matches!(body, "20" | "21")) {
                return Err(format!("never {body:?}{last}"));
            }
            Ok(&rest[end + 1..])
        }
        ']' | 'k' => {
            let end = rest.find(['\x07', '\x1b']).ok_or("no end")?;
            let body = &rest[..end];
            let number = body.split(';').next().unwrap_or_default();
            let refused = match number {
                _ if kind == 'k' => !rights.title,
                "0" | "1" | "2" => !rights.title,
                "52" => !rights.clipboard || body.contains('?'),
                "4" | "10" | "11" | "12" => !rights.queries && body.contains('?'),
                "8" | "104" | "110" | "111" | "112" | "133" => false,
                _ => true,
            };
            if refused || body.chars().any(char::is_control) {
                return Err(format!("command {body:?}"));
            }
            let after = &rest[end..];
            after
                .strip_prefix('\x07')
                .or_else(|| after.strip_prefix("\x1b\\"))
                .ok_or_else(|| format!("ends with {after:?}"))
        }
        '(' | ')' => rest
            .strip_prefix(['0', 'A', 'B', 'U'])
            .ok_or_else(|| format!("set {rest:?}")),
        '7' | '8' | 'c' | 'D' | 'E' | 'H' | 'M' | '=' | '>' => Ok(rest),
        other => Err(format!("escape {other:?}")),
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
        prop_assert!(!printable(&bytes).chars().any(printable::is_deceptive));
    }
}
