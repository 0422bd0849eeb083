use atoll_model::TerminalRights;

use super::*;

const NONE: TerminalRights = TerminalRights {
    queries: false,
    clipboard: false,
    title: false,
};
const QUERIES: TerminalRights = TerminalRights {
    queries: true,
    ..NONE
};
const CLIPBOARD: TerminalRights = TerminalRights {
    clipboard: true,
    ..NONE
};
const TITLE: TerminalRights = TerminalRights {
    title: true,
    ..NONE
};
const ALL: TerminalRights = TerminalRights {
    queries: true,
    clipboard: true,
    title: true,
};
const EVERY: [TerminalRights; 5] = [NONE, QUERIES, CLIPBOARD, TITLE, ALL];

type Counts = BTreeMap<&'static str, u64>;

/// Returns the filter's output for an input in these pieces, and the counts of removals.
fn filter(pieces: &[&[u8]], rights: TerminalRights) -> (Vec<u8>, Counts) {
    let mut filter = EscapeFilter::new(rights);
    let mut out = Vec::new();
    for piece in pieces {
        filter.push(piece, &mut out);
    }
    filter.finish(&mut out);
    (out, filter.removed().clone())
}

/// Checks one input whole, byte by byte and split everywhere, and once more over
/// its own output.
fn check(input: &[u8], rights: TerminalRights, expected: &[u8]) -> Counts {
    let (out, counts) = filter(&[input], rights);
    assert_eq!(
        out.escape_ascii().to_string(),
        expected.escape_ascii().to_string(),
        "input {} with {rights:?}",
        input.escape_ascii()
    );
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(filter(&bytes, rights), (out.clone(), counts.clone()));
    for split in 0..=input.len() {
        let (left, right) = input.split_at(split);
        assert_eq!(
            filter(&[left, right], rights),
            (out.clone(), counts.clone()),
            "split at {split}"
        );
    }
    assert_eq!(filter(&[&out], rights), (out, Counts::new()), "once more");
    counts
}

fn passes(inputs: &[&str], rights: TerminalRights) {
    for input in inputs {
        let counts = check(input.as_bytes(), rights, input.as_bytes());
        assert!(counts.is_empty(), "{input:?} counted {counts:?}");
    }
}

/// Each is removed whole, so that only its neighbours are left, and counted.
fn removed(inputs: &[&[u8]], rights: &[TerminalRights], kind: &'static str) {
    for input in inputs {
        for &rights in rights {
            let counts = check(&[b"a", *input, b"b"].concat(), rights, b"ab");
            assert_eq!(
                counts,
                Counts::from([(kind, 1)]),
                "{} with {rights:?}",
                input.escape_ascii()
            );
        }
    }
}

#[test]
fn text_passes() {
    for rights in EVERY {
        passes(
            &[
                "",
                "hello\r\n\tworld\x08\x07\x0b\x0c",
                "ünïcödé 你好 🏝️ \u{10ffff}\u{800}\u{ffff}\u{d7ff}\u{e000}\u{a0}",
                "✜✛ have 0x9c and 0x9b as continuation bytes",
                "line drawing \x0elqqk\x0f",
                "a line of more than one block, to go through the part that judges 32 bytes \
                 at a time, with an ä in it, and an end that is no whole block",
            ],
            rights,
        );
    }
}

#[test]
fn looks_cursor_and_erasing_pass() {
    passes(
        &[
            "\x1b[m\x1b[0;1;31m\x1b[38;5;208m\x1b[38:2::1:2:3m\x1b[4:3m",
            "\x1b[A\x1b[2B\x1b[3C\x1b[4D\x1b[E\x1b[F\x1b[5G\x1b[H\x1b[1;1H\x1b[;5f\x1b[9d",
            "\x1b[J\x1b[2J\x1b[3J\x1b[K\x1b[1K\x1b[?2J\x1b[?K\x1b[4X",
            "\x1b[2L\x1b[2M\x1b[2P\x1b[2@\x1b[S\x1b[T\x1b[2T\x1b[3b\x1b[I\x1b[Z\x1b[0g\x1bH",
            "\x1b[2;20r\x1b[r\x1b[s\x1b[u\x1b7\x1b8\x1bM\x1bD\x1bE\x1b=\x1b>\x1bc\x1b[!p",
            "\x1b(B\x1b(0\x1b)0\x1b)B\x1b(A",
            "\x1b[2 q\x1b[ q\x1b[?5W",
        ],
        NONE,
    );
}

#[test]
fn modes_on_the_list_pass_and_others_do_not() {
    passes(
        &[
            "\x1b[?25l\x1b[?25h\x1b[?7l\x1b[?1049h\x1b[?1049l\x1b[?2004h\x1b[?1;1000;1006h",
            "\x1b[?2026h\x1b[?2026l\x1b[4h\x1b[4l\x1b[34h\x1b[?1004h\x1b[?12l",
        ],
        NONE,
    );
    removed(
        &[
            b"\x1b[?2l",
            b"\x1b[?3h",
            b"\x1b[?1001h",
            b"\x1b[?01001h",
            b"\x1b[?h",
            b"\x1b[2h",
            b"\x1b[12l",
            b"\x1b[20h",
            b"\x1b[?25s",
            b"\x1b[?25r",
            b"\x1b[>25h",
            b"\x1b[?66561h",
        ],
        &EVERY,
        "mode",
    );
    removed(&[b"\x1b[?2031h", b"\x1b[?2048h"], &[NONE, TITLE], "mode");
    passes(&["\x1b[?2031h\x1b[?2048h"], QUERIES);
    let counts = check(b"\x1b[?25;2;1004l", NONE, b"\x1b[?25;1004l");
    assert_eq!(counts, Counts::from([("mode", 1)]));
}

#[test]
fn questions_need_a_right() {
    let with_numbers = [
        "\x1b[5n",
        "\x1b[6n",
        "\x1b[?6n",
        "\x1b[?996n",
        "\x1b[c",
        "\x1b[0c",
        "\x1b[>c",
        "\x1b[=c",
        "\x1b[?2026$p",
        "\x1b[4$p",
        "\x1b[>q",
        "\x1b[>0q",
        "\x1b[?4m",
        "\x1b[14t",
        "\x1b[14;2t",
        "\x1b[16t",
        "\x1b[18t",
        "\x1b]10;?\x07",
        "\x1b]11;?\x1b\\",
        "\x1b]12;?\x07",
        "\x1b]4;1;?\x07",
        "\x1b]4;1;#fff;2;?\x1b\\",
    ];
    passes(&with_numbers, QUERIES);
    let bytes: Vec<&[u8]> = with_numbers.iter().map(|text| text.as_bytes()).collect();
    removed(&bytes, &[NONE, CLIPBOARD, TITLE], "query");
    removed(
        &[
            b"\x1b[?15n",
            b"\x1b[1;1;1;1;1;1*y",
            b"\x1b[x",
            b"\x1b[1c",
            b"\x1bZ",
        ],
        &EVERY,
        "query",
    );
}

#[test]
fn the_answer_back_character_is_never_sent() {
    removed(
        &[b"\x05", b"\x10", b"\x11", b"\x13"],
        &EVERY,
        "control-character",
    );
    check(b"a\0\x7fb", NONE, b"ab");
    check(b"\x1b[1\x053\x07m", NONE, b"\x07\x1b[13m");
}

#[test]
fn the_keyboard_protocol_needs_a_right_and_leaves_the_shells_part() {
    removed(
        &[
            b"\x1b[?u",
            b"\x1b[>1u",
            b"\x1b[<u",
            b"\x1b[=1;1u",
            b"\x1b[>4;2m",
            b"\x1b[>4m",
        ],
        &[NONE, CLIPBOARD, TITLE],
        "keyboard",
    );
    passes(
        &[
            "\x1b[?u\x1b[=1;1u",
            "\x1b[>1u\x1b[<u",
            "\x1b[>1u\x1b[>5u\x1b[<2u",
            "\x1b[>4;2m\x1b[>4m",
        ],
        QUERIES,
    );
    check(b"\x1b[<u", QUERIES, b"");
    check(b"\x1b[>1u\x1b[<9u\x1b[<u", QUERIES, b"\x1b[>1u\x1b[<1u");
    let eight = b"\x1b[>1u".repeat(8);
    check(&b"\x1b[>1u".repeat(20), QUERIES, &eight);
    removed(&[b"\x1b[>1;2m", b"\x1b[>m"], &EVERY, "unknown");
}

#[test]
fn titles_need_a_right_and_lose_their_controls() {
    removed(
        &[
            b"\x1b]0;x\x07",
            b"\x1b]2;x\x1b\\",
            b"\x1b]1;x\x07",
            b"\x1bkx\x1b\\",
            b"\x1b[22;0t",
            b"\x1b[23t",
        ],
        &[NONE, QUERIES, CLIPBOARD],
        "title",
    );
    passes(
        &[
            "\x1b]0;x\x07",
            "\x1b]2;ä b\x1b\\",
            "\x1bkx\x1b\\",
            "\x1b[22;2t\x1b[23;2t\x1b[22;0;0t\x1b[23;0;0t",
        ],
        TITLE,
    );
    check(b"\x1b]2;a\tb\nc\x07", TITLE, b"\x1b]2;abc\x07");
    check(
        "\x1b]2;a\u{202e}b\u{200b}c\x07".as_bytes(),
        TITLE,
        b"\x1b]2;abc\x07",
    );
    check(b"\x1b]002;a\x07", TITLE, b"\x1b]2;a\x07");
    check(b"\x1b]2\x07", TITLE, b"\x1b]2;\x07");
    let long = [b"\x1b]2;".as_slice(), &[b'x'; 300], b"\x07"].concat();
    let cut = [b"\x1b]2;".as_slice(), &[b'x'; 256], b"\x07"].concat();
    check(&long, TITLE, &cut);
    // Reading the title back would type it.
    removed(
        &[
            b"\x1b[20t",
            b"\x1b[21t",
            b"\x1b[22;0;5t",
            b"\x1b[22;0;0;0t",
            b"\x1b[>2t",
            b"\x1b[>2T",
        ],
        &EVERY,
        "title",
    );
}

#[test]
fn the_clipboard_needs_a_right_and_is_never_read() {
    let writes: [&[u8]; 3] = [
        b"\x1b]52;c;aGk=\x07",
        b"\x1b]52;;aGk=\x1b\\",
        b"\x1b]52;pc;AAAA\x07",
    ];
    removed(&writes, &[NONE, QUERIES, TITLE], "clipboard");
    for write in writes {
        check(write, CLIPBOARD, write);
    }
    check(b"\x1b]052;c;aGk=\x07", CLIPBOARD, b"\x1b]52;c;aGk=\x07");
    let mut filter = EscapeFilter::new(CLIPBOARD);
    filter.push(&writes.concat(), &mut Vec::new());
    assert_eq!(filter.copied(), Copied { times: 3, bytes: 7 });
    removed(
        &[
            b"\x1b]52;c;?\x07",
            b"\x1b]52;c;\x07",
            b"\x1b]52;c;!\x07",
            b"\x1b]52;c;aGk\x07",
            b"\x1b]52\x07",
            b"\x1b]52;x;aGk=\x07",
            b"\x1b]0052;c;?\x1b\\",
        ],
        &EVERY,
        "clipboard",
    );
    // 2^32 + 52, for readers that let numbers overflow.
    removed(
        &[b"\x1b]4294967348;c;aGk=\x07", b"\x1b]52c;c;aGk=\x07"],
        &EVERY,
        "unknown",
    );
}

#[test]
fn links_lead_to_the_web_or_nowhere() {
    passes(
        &[
            "\x1b]8;;https://example.org/\x1b\\text\x1b]8;;\x1b\\",
            "\x1b]8;id=a-1;HTTP://x/\x07text\x1b]8;;\x07",
            "\x1b]8;;mailto:a@b\x07x\x1b]8;;\x07",
        ],
        NONE,
    );
    for other in [
        "file:///etc/passwd",
        "javascript:x",
        "ssh://x",
        "x-man:ls",
        "https:/",
        "http://a b",
        "http://ä",
    ] {
        let input = format!("\x1b]8;;{other}\x07text\x1b]8;;\x07");
        let counts = check(input.as_bytes(), NONE, b"\x1b]8;;\x07text\x1b]8;;\x07");
        assert_eq!(counts, Counts::from([("hyperlink", 1)]), "{other}");
    }
    check(
        b"\x1b]8;foo=1:id=x;http://y\x07",
        NONE,
        b"\x1b]8;id=x;http://y\x07",
    );
    check(b"\x1b]8;id=\";http://y\x07", NONE, b"\x1b]8;;http://y\x07");
    let long = [b"\x1b]8;;https://".as_slice(), &[b'x'; 2_100], b"\x07"].concat();
    check(&long, NONE, b"\x1b]8;;\x07");
}

#[test]
fn colours_and_prompt_marks_pass() {
    passes(
        &[
            "\x1b]4;1;rgb:ff/00/00\x1b\\\x1b]4;1;#fff;2;red\x07\x1b]104\x07\x1b]104;1;2\x07",
            "\x1b]10;#ffffff\x07\x1b]11;rgb:0/0/0\x1b\\\x1b]12;red\x07",
            "\x1b]110\x07\x1b]111\x07\x1b]112\x07",
            "\x1b]133;A\x07\x1b]133;D;0\x1b\\\x1b]133;P;k=i\x07",
        ],
        NONE,
    );
    removed(
        &[
            b"\x1b]4;1\x07",
            b"\x1b]4;x;red\x07",
            b"\x1b]10;a b\x07",
            b"\x1b]10;\x07",
            b"\x1b]4;1;(\x07",
        ],
        &EVERY,
        "malformed",
    );
    removed(
        &[
            b"\x1b]133;A;\xc3\xa4\x07",
            b"\x1b]133;Z\x07",
            b"\x1b]104;x\x07",
        ],
        &EVERY,
        "unknown",
    );
}

#[test]
fn what_is_never_allowed_is_removed_whole() {
    removed(
        &[
            b"\x1b]9;hi\x07",
            b"\x1b]777;notify;a;b\x07",
            b"\x1b]99;;x\x1b\\",
        ],
        &EVERY,
        "notification",
    );
    removed(
        &[
            b"\x1bP+q544e\x1b\\",
            b"\x1bP$qm\x1b\\",
            b"\x1bP0;0|17/17\x1b\\",
            b"\x1bPq#0;2;0;0;0~\x1b\\",
            b"\x1bPtmux;x\x07\x1b\\",
            b"\x1bP\xe2\x82\xac\xff\x1b\\",
        ],
        &EVERY,
        "device-control",
    );
    removed(
        &[b"\x1b_Gf=24;AAAA\x1b\\", b"\x1b_x\x07y\x1b\\"],
        &EVERY,
        "application-command",
    );
    removed(&[b"\x1b^x\x1b\\", b"\x1bXx\x1b\\"], &EVERY, "other-string");
    removed(&[b"\x1b[5i", b"\x1b[i", b"\x1b[?4i"], &EVERY, "printer");
    removed(
        &[
            b"\x1b[8;1;1t",
            b"\x1b[3;0;0t",
            b"\x1b[1t",
            b"\x1b[11t",
            b"\x1b[t",
            b"\x1b[14;1t",
        ],
        &EVERY,
        "window",
    );
    removed(
        &[
            b"\x1b]50;?\x07",
            b"\x1b]1337;File=:AAAA\x07",
            b"\x1b]7;file:///\x07",
            b"\x1b]\x07",
            b"\x1b];x\x07",
            b"\x1b]lx\x1b\\",
            b"\x1b%@",
            b"\x1b G",
            b"\x1bn",
            b"\x1b[?1;0;256S",
            b"\x1b#8",
            b"\x1b(C",
            b"\x1b(!0",
            b"\x1b!!!!0",
            b"\x1b[1;2;3;4;5T",
            b"\x1b[62\"p",
            b"\x1b[1q",
            b"\x1b[7 q",
            b"\x1b[1!p",
        ],
        &EVERY,
        "unknown",
    );
}

#[test]
fn a_multiplexers_wrapping_does_not_help() {
    let wrapped = b"\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\";
    check(wrapped, NONE, b"");
    let nested = b"\x1b]0;\x1b]52;c;aGk=\x07";
    check(nested, TITLE, b"");
}

#[test]
fn broken_sequences_are_dropped_and_text_goes_on() {
    let counts = |input: &[u8], expected: &[u8], kinds: &[(&'static str, u64)]| {
        let found = check(input, ALL, expected);
        assert_eq!(
            found,
            kinds.iter().copied().collect::<Counts>(),
            "{}",
            input.escape_ascii()
        );
    };
    counts(
        b"\x1b[31\x18mx",
        b"mx",
        &[("control-character", 1), ("malformed", 1)],
    );
    counts(b"\x1b]0;a\x1amx", b"mx", &[("malformed", 1)]);
    counts(b"\x1b[31\x1b[32mx", b"\x1b[32mx", &[("malformed", 1)]);
    counts(b"\x1b\x1b\x1b[mx", b"\x1b[mx", &[("malformed", 2)]);
    counts(b"\x1b]0;a\x1b[mx", b"\x1b[mx", &[("malformed", 1)]);
    counts(
        "\x1b[3ä1m".as_bytes(),
        "ä1m".as_bytes(),
        &[("malformed", 1)],
    );
    counts(b"\x1b[3?1mx", b"x", &[("malformed", 1)]);
    counts(b"\x1b[1 1qx", b"x", &[("malformed", 1)]);
    counts(b"\x1b[??1hx", b"x", &[("malformed", 1)]);
    counts(b"\x1b[   qx", b"x", &[("malformed", 1)]);
    counts(b"a\x1b\\b", b"ab", &[]);
    for open in [
        b"\x1b".as_slice(),
        b"\x1b[3",
        b"\x1b]0;x",
        b"\x1bP",
        b"\x1b]0;x\x1b",
        b"\x1b(",
    ] {
        counts(open, b"", &[("unfinished", 1)]);
    }
}

#[test]
fn high_controls_are_dropped_in_both_forms() {
    for high in 0x80..=0x9f_u8 {
        let bare = [b'a', high, b'b'];
        let coded = [b'a', 0xc2, high, b'b'];
        for input in [bare.as_slice(), &coded] {
            let counts = check(input, ALL, b"ab");
            assert_eq!(counts, Counts::from([("control-character", 1)]));
        }
    }
    check(b"\x9d52;c;aGk=\x07", ALL, b"52;c;aGk=\x07");
    check(b"\xc2\x9b6n", ALL, b"6n");
    // As the end of a string they count.
    check(b"\x1b]2;x\x9cy", ALL, b"\x1b]2;x\x1b\\y");
    check("\x1b]2;x\u{9c}y".as_bytes(), ALL, b"\x1b]2;x\x1b\\y");
    check("\x1b]2;✜y\x07".as_bytes(), ALL, "\x1b]2;✜y\x07".as_bytes());
}

#[test]
fn what_is_not_utf8_is_replaced() {
    let replaced = |input: &[u8], expected: &str| {
        check(input, NONE, expected.as_bytes());
    };
    replaced(b"a\xffb", "a\u{fffd}b");
    replaced(b"a\xe2\x82b", "a\u{fffd}b");
    replaced(b"a\xe2\x82", "a\u{fffd}");
    replaced(b"\xc0\xaf", "\u{fffd}\u{fffd}");
    replaced(b"\xed\xa0\xa0", "\u{fffd}\u{fffd}\u{fffd}");
    replaced(b"\xf4\xa0", "\u{fffd}\u{fffd}");
    replaced(b"\xe2\x1b[m\x82", "\u{fffd}\x1b[m");
    replaced(b"\xc2\x1b]52;;\x07\x9b6n", "\u{fffd}6n");
}

#[test]
fn removing_never_joins_the_neighbours() {
    check(b"\x1b\x1b]52;c;QUFB\x07[6n", NONE, b"[6n");
    check(b"\x1b[\x1b]52;c;QUFB\x076n", NONE, b"6n");
    check(b"\x1b]0;\x1b]52;;\x07\x1b\\x", NONE, b"x");
}

#[test]
fn the_linux_consoles_palette_does_not_swallow_text() {
    removed(&[b"\x1b]R", b"\x1b]P1ff0000"], &EVERY, "unknown");
    check(b"\x1b]P1ff\nx", NONE, b"\nx");
}

#[test]
fn sizes_are_bounded() {
    let at = |digits: usize| [b"\x1b[".as_slice(), &b"1;".repeat(digits / 2), b"m"].concat();
    check(&at(256), NONE, &at(256));
    let counts = filter(&[&at(258)], NONE);
    assert_eq!(counts, (Vec::new(), Counts::from([("oversize", 1)])));
    let clip = |bytes: usize| [b"\x1b]52;c;".as_slice(), &vec![b'A'; bytes], b"\x07"].concat();
    let fits = clip(parser::STRING_BYTES_MAX - 8);
    assert_eq!(filter(&[&fits], CLIPBOARD).0, fits);
    let counts = filter(&[&clip(parser::STRING_BYTES_MAX)], CLIPBOARD);
    assert_eq!(counts, (Vec::new(), Counts::from([("oversize", 1)])));
    check(b"\x1b[99999999999C", NONE, b"\x1b[9999C");
    check(b"\x1b[1;32766;5H", NONE, b"\x1b[1;9999;5H");
    check(b"\x1b[38:2:00000255:1m", NONE, b"\x1b[38:2:9999:1m");
}

#[test]
fn restore_undoes_what_was_left() {
    let restored = |input: &str, rights: TerminalRights| {
        let mut filter = EscapeFilter::new(rights);
        let mut out = Vec::new();
        filter.push(input.as_bytes(), &mut out);
        filter.finish(&mut out);
        let mut restored = Vec::new();
        filter.restore(&mut restored);
        let mut again = Vec::new();
        filter.restore(&mut again);
        assert_eq!(again, b"", "a second time");
        let (passed, _) = super::tests::filter(&[&out, &restored], rights);
        assert_eq!(
            passed,
            [out, restored.clone()].concat(),
            "it is on the list"
        );
        String::from_utf8(restored).expect("UTF-8")
    };
    for nothing in [
        "text \x1b[31mred\x1b[0m\n",
        "\x1b[?25l\x1b[?25h\x1b[?1000h\x1b[?1000l",
        "\x1b(0x\x1b(B\x0e\x0f\x1b[5;10r\x1b[r\x1b]8;;http://x\x07\x1b]8;;\x07",
        "\x1b[?12h\x1b[?7h",
    ] {
        assert_eq!(restored(nothing, NONE), "", "{nothing:?}");
    }
    assert_eq!(restored("\x1b[8m", NONE), "\x1b[0m");
    assert_eq!(restored("\x0e", NONE), "\x0f");
    assert_eq!(
        restored("\x1b[?25l\x1b[?1003h", NONE),
        "\x1b[?25h\x1b[?1003l"
    );
    assert_eq!(
        restored("\x1b]11;#000\x07\x1b]4;7;#000\x07", NONE),
        "\x1b]104\x1b\\\x1b]111\x1b\\"
    );
    assert_eq!(restored("\x1b]8;;http://x\x07", NONE), "\x1b]8;;\x1b\\");
    assert_eq!(
        restored("\x1b[3;4r", NONE),
        "\x1b7\x1b[r\x1b8\x0f\x1b(B\x1b)B\x1b[0m"
    );
    assert_eq!(
        restored("\x1b[>1u\x1b[?1049h\x1b[>3u\x1b[>5u", QUERIES),
        "\x1b[<2u\x1b[?1049l\x1b[<1u\x0f\x1b(B\x1b)B\x1b[0m"
    );
    // A hidden look that comes back with a saved cursor.
    assert_eq!(
        restored("\x1b[8m\x1b7\x1b[m\x1b8", NONE),
        "\x0f\x1b(B\x1b)B\x1b[0m"
    );
    assert_eq!(
        restored("\x1b[8m\x1b[?1049h\x1b[m\x1b[?1049l", NONE),
        "\x0f\x1b(B\x1b)B\x1b[0m"
    );
    assert_eq!(restored("\x1b[?6h", NONE), "\x1b[?6l\x1b[9999;1H");
}

#[test]
fn a_terminal_is_set_aside_and_taken_up_as_it_was() {
    let both = |text: &str| {
        let mut filter = EscapeFilter::new(QUERIES);
        filter.push(text.as_bytes(), &mut Vec::new());
        let (mut aside, mut up) = (Vec::new(), Vec::new());
        filter.set_aside(&mut aside);
        filter.take_up(&mut up);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(aside), text(up))
    };
    let rest = "\x0f\x1b(B\x1b)B\x1b[0m";
    for (text, aside, up) in [
        ("plain", "\x1b[?1049h\x1b[?2004h", "\x1b[?2004l\x1b[?1049l"),
        (
            "\x1b[8m\x0e",
            "\x1b[?1049h\x1b[?2004h",
            "\x1b[?2004l\x1b[?1049l",
        ),
        ("\x1b[?2004h", "\x1b[?1049h", "\x1b[?1049l"),
        (
            "\x1b[?25l\x1b[?2026h\x1b[?7l",
            "\x1b[?1049h\x1b[?7h\x1b[?25h\x1b[?2026l\x1b[?2004h",
            "\x1b[?2004l\x1b[?1049l\x1b[?7l\x1b[?25l\x1b[?2026h",
        ),
        (
            "\x1b[3;4r\x1b[4h\x1b=",
            "\x1b[?1049h\x1b[r\x1b[4l\x1b>\x1b[?2004h",
            "\x1b[?2004l\x1b[?1049l\x1b7\x1b[3;4r\x1b8\x1b[4h\x1b=",
        ),
        (
            "\x1b]11;#000\x07\x1b]8;;http://x\x07",
            "\x1b[?1049h\x1b]8;;\x1b\\\x1b]111\x1b\\\x1b[?2004h",
            "\x1b[?2004l\x1b[?1049l",
        ),
        (
            "\x1b[>4;2m",
            "\x1b[?1049h\x1b[>4m\x1b[?2004h",
            "\x1b[?2004l\x1b[?1049l\x1b[>4;2m",
        ),
        (
            "\x1b[>4;2m\x1b[>4m",
            "\x1b[?1049h\x1b[?2004h",
            "\x1b[?2004l\x1b[?1049l",
        ),
        // Each screen has keyboard modes of its own.
        (
            "\x1b[>1u",
            "\x1b[?1049h\x1b[>0u\x1b[?2004h",
            "\x1b[?2004l\x1b[<1u\x1b[?1049l",
        ),
        (
            "\x1b[?1049h\x1b[?6h",
            "\x1b7\x1b[?6l\x1b[?2004h",
            "\x1b[?2004l\x1b8",
        ),
    ] {
        assert_eq!(
            both(text),
            (format!("{aside}{rest}"), up.to_owned()),
            "{text:?}"
        );
    }
}
