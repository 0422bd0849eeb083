use super::*;

fn masked(text: &str) -> String {
    mask_pii(text, &mut PiiCounts::new()).unwrap_or_else(|| text.to_owned())
}

#[test]
fn personal_data_is_found_by_its_checksums() {
    for (text, expected) in [
        (
            "Write to ann.lee+x@mail.example.com.",
            "Write to [masked: e-mail].",
        ),
        ("<jürgen@bücher.example>", "<[masked: e-mail]>"),
        (
            "mailto:a_b@c.co?subject=x",
            "mailto:[masked: e-mail]?subject=x",
        ),
        (
            "?to=a%2Eb@c.org&cc=d@e.org",
            "?to=[masked: e-mail]&cc=[masked: e-mail]",
        ),
        ("a@b.org,c@d.org", "[masked: e-mail],[masked: e-mail]"),
        ("ann@b.org:hunter2", "[masked: e-mail]:hunter2"),
        ("Tel. +49 30 901820, ok", "Tel. [masked: phone], ok"),
        ("+1 (415) 555-2671", "[masked: phone]"),
        ("+14155552671;", "[masked: phone];"),
        ("tel:+443069990123.", "tel:[masked: phone]."),
        ("4111111111111111", "[masked: card]"),
        ("card 4111 1111 1111 1111 exp", "card [masked: card] exp"),
        ("12 5500-0055-5555-5559!", "12 [masked: card]!"),
        ("amex 3782 822463 10005", "amex [masked: card]"),
        ("pan=6011111111111117;", "pan=[masked: card];"),
        ("3530111333300000,", "[masked: card],"),
        ("30569309025904", "[masked: card]"),
        ("DE89370400440532013000", "[masked: IBAN]"),
        (
            "IBAN: GB29 NWBK 6016 1331 9268 19 (main)",
            "IBAN: [masked: IBAN] (main)",
        ),
        ("NO93 8601 1117 947 and", "[masked: IBAN] and"),
        ("FR14 2004 1010 0505 0001 3M02 606.", "[masked: IBAN]."),
        ("SSN 536-90-4399.", "SSN [masked: SSN]."),
        (
            "{\"mail\":\"a@b.org\",\"ssn\":\"536-90-4399\"}",
            "{\"mail\":\"[masked: e-mail]\",\"ssn\":\"[masked: SSN]\"}",
        ),
    ] {
        assert_eq!(masked(text), expected, "{text}");
    }
}

/// Nothing is masked of what only looks like it.
#[test]
fn benign_look_alikes_stay() {
    for text in [
        // Numbers of orders and parts, without a checksum or an issuer.
        "order 4111111111111112, part 1234-5678-9012-3456",
        "tracking 9400110200881234567890 1Z999AA10123456784",
        "invoice 2026-11-30-0042, ISBN 978-3-16-148410-0",
        "EAN 4006381333931 GTIN 00012345600012",
        // Times, in seconds to nanoseconds; dates; zones.
        "1764500000 1764500000000 1764500000000000 1764500000000000000",
        "2026-11-30T15:24:13.123456+01:00 20261130152413 +0200",
        "2026-11-30 12:30:45,123 +000012345",
        // Versions, and names with an @.
        "v1.2.3-rc.4+20261130 10.0.19045.4170 3.14159265358979",
        "lodash@4.17.21 @types/node@20.1.0 next@15.0.0-canary.1",
        "git@github.com:org/repo.git https://me@host.example/x ssh://git@host.example/r",
        "getty@tty1.service icon@2x.png user@localhost @app.route x@y",
        "image@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        // Ids.
        "41111111-1111-1111-1111-111111111111 f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "4111-1111-1111-1111-2222 sha 4111111111111111abcdef id_4111111111111111",
        "DE89370400440532013001 DE8937040044053201300 XX89370400440532013000 DE12ABCD",
        "ABDE89370400440532013000 DE89370400440532013000X",
        // Numbers in code and measures.
        "x = +10000000; y += 4111111111111111.5; 0.4111111111111111",
        "+999999999999 +2101234567 a+491234567890 +1 015 555 2671 +12345678",
        "000-12-3456 666-12-3456 900-12-3456 123-00-4567 123-45-0000 078-05-1120",
        "1123-45-6789 123-45-67890 12-123-45-6789",
        "255.255.255.255 fe80::1 00:1a:2b:3c:4d:5e",
        "line 10, +49 added, -12 removed; 100,000,000,000,000",
    ] {
        assert!(find_pii(text).is_empty(), "{text}: {:?}", find_pii(text));
    }
}

/// Nearly every number that a wrong digit makes is none.
#[test]
fn wrong_digits_are_found_by_the_checksum() {
    for (text, kind) in [
        ("4111111111111111", PiiKind::Card),
        ("DE89370400440532013000", PiiKind::Iban),
    ] {
        let own = find_pii(text);
        assert_eq!(own.iter().map(|one| one.kind).collect::<Vec<_>>(), [kind]);
        for at in 4..text.len() {
            let mut wrong = text.as_bytes().to_vec();
            wrong[at] = b'0' + (wrong[at] - b'0' + 1) % 10;
            assert!(find_pii(std::str::from_utf8(&wrong).unwrap()).is_empty());
        }
    }
}

#[test]
fn each_kind_is_counted() {
    let mut counts = PiiCounts::new();
    let text = "a@b.org c@d.org 4111111111111111";
    assert!(mask_pii(text, &mut counts).is_some());
    assert_eq!(counts, [(PiiKind::Email, 2), (PiiKind::Card, 1)].into());
    assert!(mask_pii("nothing", &mut counts).is_none());
}

/// No byte is read often.
#[test]
fn long_texts_cost_little() {
    for begin in [
        "a@",
        "+49 ",
        "4111 ",
        "DE89 3704 ",
        "1-",
        "a.b@c.d",
        "9",
        "%40",
        "(at)",
        " @ ",
        "&#64;",
        "YWFh",
        "\u{200b}",
        "(1",
    ] {
        let text = begin.repeat(1 << 17);
        let _ = find_pii(&text);
    }
}

#[test]
fn phones_without_a_code_are_found() {
    for (text, expected) in [
        ("call (415) 555-2671!", "call [masked: phone]!"),
        (
            "415-555-2671 or 415.555.2671",
            "[masked: phone] or [masked: phone]",
        ),
        ("Ann,1-800-555-2384,Berlin", "Ann,[masked: phone],Berlin"),
        ("Tel. 030 901820", "Tel. [masked: phone]"),
        (
            "\"phone\": \"0301234567\"",
            "\"phone\": \"[masked: phone]\"",
        ),
        ("0049 30 901820", "[masked: phone]"),
    ] {
        assert_eq!(masked(text), expected, "{text}");
    }
    for text in [
        "415 555 2671 and 4155552671",
        "115-555-2671 415-155-2671 415-555-26711",
        "phone 2026-11-30, tel 10.20.30.40",
        "call 1764500000; call(1234567)",
        "0044 0323 0307;1E0C 0307",
    ] {
        assert_eq!(masked(text), text);
    }
}

#[test]
fn personal_data_in_other_writing_is_found() {
    for (text, expected) in [
        ("?to=ann%40b.org&x", "?to=[masked: e-mail]&x"),
        (
            "ann&#64;b.org ann&#x40;b.org ann&commat;b.org",
            "[masked: e-mail] [masked: e-mail] [masked: e-mail]",
        ),
        (
            "{\"a\":\"ann\\u0040b.org\"}",
            "{\"a\":\"[masked: e-mail]\"}",
        ),
        (
            "ann\u{200b}@b.org ann\u{ff20}b.org",
            "[masked: e-mail] [masked: e-mail]",
        ),
        (
            "ann [at] b [dot] org, ann @ b.org",
            "[masked: e-mail], [masked: e-mail]",
        ),
        (
            "x\nx \u{ff14}111 1111 1111 1111 x\nx",
            "x\nx [masked: card] x\nx",
        ),
        ("4111\u{a0}1111\u{a0}1111\u{a0}1111", "[masked: card]"),
        ("to YW5uQGIub3JnIGlzIGFubg== x", "to [masked: e-mail]== x"),
        (
            "SSN 536 90 4399, 536\u{2011}90\u{2011}4399",
            "SSN [masked: SSN], [masked: SSN]",
        ),
        ("de89 3704 0044 0532 0130 00", "[masked: IBAN]"),
    ] {
        assert_eq!(masked(text), expected, "{text}");
    }
    for text in [
        "x @ self.weight, y @ z.T, 100%25 &amp; \\u0041 \u{ff10}",
        "aGVsbG8gd29ybGQsIGhlbGxv format!(\"{at}\", (at)) [at] (dot)",
        "4111\u{200b}1111\u{200b}1111\u{200b}1112 536 90 4399",
    ] {
        assert_eq!(masked(text), text);
    }
}

/// Numbers in fields are apart, and those in thousands are one.
#[test]
fn commas_part_fields_and_not_thousands() {
    assert_eq!(masked("17,4111111111111111,123"), "17,[masked: card],123");
    assert_eq!(masked("1,4155552671,2"), "1,4155552671,2");
    assert_eq!(masked("4,111,111,111,111,111"), "4,111,111,111,111,111");
}
