use std::io::{Cursor, Write};

use zip::write::{SimpleFileOptions, ZipWriter};

use crate::{CONTENT_BYTES_MAX, Finding, Rules, Scanner, Unscanned, scan};

fn found(scanner: Scanner, content: &[u8]) -> Vec<String> {
    let rules = Rules::built_in().unwrap();
    let found = scan(scanner, content, &rules).unwrap();
    found.into_iter().map(|one| one.rule).collect()
}

fn check(scanner: Scanner, content: impl AsRef<[u8]>, expected: &[&str]) {
    let content = content.as_ref();
    let shown = String::from_utf8_lossy(content.get(..200).unwrap_or(content)).into_owned();
    assert_eq!(found(scanner, content), expected, "{shown}");
}

/// Returns letters and digits that no rule would take for a word.
fn noise(length: usize) -> String {
    let letters = b"q7Zr2Kx9Wm4Tn8Vb3Hc6Yd5Lg1Js0Pf";
    (0..length)
        .map(|at| char::from(letters[(at * 7 + at / 31) % letters.len()]))
        .collect()
}

#[test]
fn secrets_are_found_by_their_form() {
    for (content, rule) in [
        (
            format!("key = AKIA{}", "QZ7R2KX4WM3TN5VB"),
            "aws-access-key",
        ),
        (
            format!("url: https://x:ghp_{}@github.com", noise(36)),
            "github-token",
        ),
        (format!("glpat-{}", noise(20)), "gitlab-token"),
        (format!("xoxb-1234567890-{}", noise(24)), "slack-token"),
        (format!("sk_live_{}", noise(24)), "stripe-key"),
        (format!("sk-ant-api03-{}", noise(93)), "anthropic-key"),
        (format!("AIza{}", noise(35)), "google-api-key"),
        (
            format!("//registry/:_authToken=npm_{}", noise(36)),
            "npm-token",
        ),
        (format!("hf_{}", noise(34)), "hugging-face-token"),
        (
            format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n", noise(70)),
            "private-key",
        ),
        (
            format!("Bearer eyJ{}.eyJ{}.{}", noise(20), noise(20), noise(30)),
            "web-token",
        ),
        (
            format!("postgres://app:{}@db.internal/app", noise(16)),
            "password-in-address",
        ),
        (format!("password: \"{}\"", noise(20)), "assigned-secret"),
        (
            format!("{{\"api_key\": \"{}\"}}", noise(32)),
            "assigned-secret",
        ),
    ] {
        let rules = found(Scanner::Secrets, content.as_bytes());
        assert!(rules.iter().any(|one| one == rule), "{content}: {rules:?}");
    }
}

#[test]
fn look_alikes_are_no_secrets() {
    for content in [
        "the password is asked for at the terminal",
        "password = os.environ['DATABASE_PASSWORD']",
        "api_key: your_api_key_goes_here_please",
        "let access_token = self.token_of_session(id);",
        "secret_key = settings.SECRET_KEY_FOR_TESTS",
        "https://example.com/a:b@c",
        "AKIAIOSFODNN7EXAMPLE",
        "token = \"aaaaaaaaaaaaaaaaaaaa\"",
        "sha256: 98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4",
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA\n",
        "-----BEGIN PRIVATE KEY-----\n",
    ] {
        check(Scanner::Secrets, content, &[]);
    }
}

/// Values stand for secrets in documents and code, and a name makes a value one.
#[test]
fn values_are_told_from_what_stands_for_them() {
    let secret = noise(24);
    for content in [
        format!("const KEY: &str = \"x\"; const API_KEY: &str = \"{secret}\";"),
        format!("- name: DB_PASSWORD\n  value: {secret}"),
        format!("os.environ['API_KEY'] = '{secret}'"),
        format!("client.setPassword(\"{secret}\")"),
        format!("setenv(\"AUTH_TOKEN\", \"{secret}\")"),
        format!("<password>{secret}</password>"),
        format!("{{\\\"password\\\": \\\"{secret}\\\"}}"),
        format!("--api-key {secret}"),
        "DB_PASS=harbor17".to_owned(),
        "admin_password: Harbor2017".to_owned(),
    ] {
        assert_eq!(
            found(Scanner::Secrets, content.as_bytes()).len(),
            1,
            "{content}"
        );
    }
    for content in [
        format!("primary_key = \"{secret}\""),
        format!("csrf_token = \"{secret}\""),
        format!("bypass = \"{secret}\""),
        format!("secret_name: {secret}"),
        "password: *const std::os::raw::c_char2".to_owned(),
        "signing_key: Ed25519SigningKey,".to_owned(),
        "password=$2PASSWORD_FILE".replace('2', ""),
        "password = input2('name')".to_owned(),
        format!("token: ghp_{}", "x".repeat(36)),
    ] {
        check(Scanner::Secrets, &content, &[]);
    }
}

/// A secret is told by the first rule that fits, once.
#[test]
fn secrets_are_told_once() {
    let token = noise(36);
    check(
        Scanner::Secrets,
        format!("GITHUB_TOKEN=ghp_{token}"),
        &["github-token"],
    );
    let url = format!("password: https://x:ghp_{token}@github.com");
    check(Scanner::Secrets, url, &["github-token"]);
}

#[test]
fn long_contents_cost_little() {
    for begin in [
        "key=",
        "password: ",
        "token=\"",
        "://a:",
        "bearer ",
        "-----BEGIN PRIVATE KEY-----",
        "eyJ",
    ] {
        let _ = found(Scanner::Secrets, begin.repeat(1 << 16).as_bytes());
    }
}

#[test]
fn a_finding_tells_where_and_not_what() {
    let secret = noise(36);
    let content = format!("one\ntwo\nghp_{secret}\n");
    let rules = Rules::built_in().unwrap();
    let found = scan(Scanner::Secrets, content.as_bytes(), &rules).unwrap();
    let expected = Finding {
        rule: "github-token".to_owned(),
        place: "line 3".to_owned(),
        confidence: 95,
    };
    assert_eq!(found, [expected]);
}

#[test]
fn rules_of_gitleaks_are_read() {
    let text = r#"
title = "own"
[extend]
useDefault = true
disabledRules = ["gitlab-token"]
[[rules]]
id = "house-token"
description = "Of this house"
regex = '''house-([a-z0-9]{8})-(x+)'''
secretGroup = 1
entropy = 2.0
keywords = ["House-"]
tags = ["own"]
  [[rules.allowlists]]
  regexes = ['''^dummy''']
  stopwords = ["00000000"]
[[rules]]
id = "by-path"
path = '''\.p12$'''
"#;
    let rules = Rules::read(text).unwrap();
    let of = |content: &str| -> Vec<String> {
        let found = scan(Scanner::Secrets, content.as_bytes(), &rules).unwrap();
        found.into_iter().map(|one| one.rule).collect()
    };
    assert_eq!(of("house-q7zr2kx9-xx"), ["house-token"]);
    assert!(of("house-dummy123-xx").is_empty());
    assert!(of("house-00000000-xx").is_empty());
    assert!(of("house-aaaaaaaa-xx").is_empty());
    assert!(of(&format!("glpat-{}", noise(20))).is_empty());
    assert_eq!(of(&format!("ghp_{}", noise(36))), ["github-token"]);
    for broken in [
        "rules = 1",
        "[[rules]]\nid = 'x'\nregex = '('",
        "[[rules]]\nregex = 'x'",
    ] {
        assert!(Rules::read(broken).is_err(), "{broken}");
    }
}

#[test]
fn personal_data_is_found_by_checksum() {
    let scanner = Scanner::PersonalData;
    check(scanner, "card 4111 1111 1111 1111", &["card"]);
    check(scanner, "card 4111 1111 1111 1112", &[]);
    check(scanner, "DE89370400440532013000", &["IBAN"]);
    check(scanner, "DE89370400440532013001", &[]);
    check(
        scanner,
        b"\xff\xfe anna@example.org \x00 bob@example.org",
        &["e-mail", "e-mail"],
    );
}

#[test]
fn texts_in_utf16_are_read() {
    let text = format!("one\npassword = \"{}\"\nanna@example.org", noise(20));
    let units = text.encode_utf16().flat_map(u16::to_le_bytes);
    let content: Vec<u8> = [0xff, 0xfe].into_iter().chain(units).collect();
    check(Scanner::Secrets, &content, &["assigned-secret"]);
    check(Scanner::PersonalData, &content, &["e-mail"]);
}

#[test]
fn programs_are_told_by_content() {
    let scanner = Scanner::Programs;
    check(scanner, b"\x7fELF\x02\x01\x01", &["elf"]);
    check(scanner, "#!/bin/sh\n", &["script"]);
    check(scanner, "\u{feff}#!/bin/sh\n", &["script"]);
    check(scanner, b"\0asm\x01\0\0\0", &["webassembly"]);
    check(scanner, "@ECHO OFF\r\n", &["batch-script"]);
    let mut windows = vec![0; 0x100];
    windows[..2].copy_from_slice(b"MZ");
    windows[0x3c] = 0x80;
    windows[0x80..0x84].copy_from_slice(b"PE\0\0");
    check(scanner, windows, &["windows-program"]);
    for text in ["MZ is a magazine", "# a heading", "", "plain"] {
        check(scanner, text, &[]);
    }
}

#[test]
fn active_content_is_found() {
    let scanner = Scanner::ActiveContent;
    check(scanner, "<html><script>1</script>", &["script"]);
    check(
        scanner,
        "<svg><a onload = 'x()'/></svg>",
        &["event-handler"],
    );
    check(
        scanner,
        "<!DOCTYPE html><a href=\"javascript:x()\">",
        &["script-address"],
    );
    check(scanner, "<html><IFRAME src=x>", &["embedded"]);
    check(
        scanner,
        "%PDF-1.7 /OpenAction 1 0 R /JS (x) /JavaScript",
        &["pdf-script", "pdf-open-action"],
    );
    check(
        scanner,
        "a,=HYPERLINK(\"http://x\")\n",
        &["spreadsheet-formula"],
    );
    check(
        scanner,
        office(&["word/document.xml", "word/vbaProject.bin"]),
        &["macros"],
    );
    for text in [
        "<html><body><p>a page about scripts, once = 1</p></body></html>",
        "<svg><path d='M0'/></svg>",
        "a,b\n1,-2\n=1+2,3\n",
        "%PDF-1.7 no actions",
        "if one < script { onload = 1 }",
    ] {
        check(scanner, text, &[]);
    }
    check(scanner, office(&["word/document.xml"]), &[]);
}

fn office(names: &[&str]) -> Vec<u8> {
    packed(|zip| {
        for name in names {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(b"x").unwrap();
        }
    })
}

fn packed(fill: impl FnOnce(&mut ZipWriter<Cursor<Vec<u8>>>)) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    fill(&mut zip);
    zip.finish().unwrap().into_inner()
}

fn zipped(name: &str, content: &[u8]) -> Vec<u8> {
    packed(|zip| {
        zip.start_file(name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    })
}

fn gzipped(content: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    to.write_all(content).unwrap();
    to.finish().unwrap()
}

#[test]
fn archives_are_looked_through() {
    let scanner = Scanner::Archives;
    check(scanner, zipped("a/b.txt", b"text"), &[]);
    check(scanner, zipped("../../etc/passwd", b"text"), &["leads-out"]);
    check(scanner, zipped("/etc/passwd", b"text"), &["absolute-path"]);
    check(
        scanner,
        zipped("C:\\Windows\\x", b"text"),
        &["absolute-path"],
    );
    check(
        scanner,
        zipped("a\u{202e}txt.exe", b"text"),
        &["hidden-characters"],
    );
    let twins = packed(|zip| {
        for name in ["caf\u{e9}", "cafe\u{301}", "README", "readme"] {
            zip.start_file(name, SimpleFileOptions::default()).unwrap();
        }
    });
    check(scanner, twins, &["same-name-twice", "same-name-twice"]);
    let link = packed(|zip| {
        zip.add_symlink("link", "../out", SimpleFileOptions::default())
            .unwrap();
    });
    check(scanner, link, &["link"]);
    // Within another, and with the same names in both.
    check(
        scanner,
        zipped("in.zip", &zipped("../x", b"")),
        &["leads-out"],
    );
    check(scanner, zipped("a", &zipped("a", b"")), &[]);
    let mut nested = zipped("x", b"");
    for _ in 0..3 {
        nested = gzipped(&nested);
    }
    check(scanner, nested, &["nested-archives"]);
}

#[test]
fn tar_is_looked_through() {
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |kind: tar::EntryType, name: &str, to: &str| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(0);
        let place = header.as_old_mut();
        place.name[..name.len()].copy_from_slice(name.as_bytes());
        place.linkname[..to.len()].copy_from_slice(to.as_bytes());
        header.set_cksum();
        tar.append(&header, &b""[..]).unwrap();
    };
    add(tar::EntryType::Regular, "fine", "");
    add(tar::EntryType::Symlink, "link", "/etc/passwd");
    add(tar::EntryType::Regular, "a/../../out", "");
    add(tar::EntryType::Char, "device", "");
    let content = tar.into_inner().unwrap();
    let expected = ["link", "absolute-path", "leads-out", "special-file"];
    check(Scanner::Archives, &content, &expected);
    check(Scanner::Archives, gzipped(&content), &expected);
}

#[test]
fn bombs_are_not_unpacked() {
    let scanner = Scanner::Archives;
    let zeros = vec![0; 200 << 20];
    check(scanner, zipped("bomb", &zeros), &["grows-without-bounds"]);
    check(scanner, gzipped(&zeros), &["grows-without-bounds"]);
    // Many that are each small enough.
    let part = vec![0; 1 << 20];
    let many = packed(|zip| {
        for number in 0..300 {
            zip.start_file(format!("{number}"), SimpleFileOptions::default())
                .unwrap();
            zip.write_all(&part).unwrap();
        }
    });
    let rules = found(scanner, &many);
    assert!(
        rules.contains(&"grows-without-bounds".to_owned()),
        "{rules:?}"
    );
}

#[test]
fn overlapping_entries_are_found() {
    // The second entry's header in the directory leads to the first one's data.
    let mut zip = packed(|zip| {
        for name in ["a", "b"] {
            let stored = SimpleFileOptions::default();
            let stored = stored.compression_method(zip::CompressionMethod::Stored);
            zip.start_file(name, stored).unwrap();
            zip.write_all(b"content").unwrap();
        }
    });
    let directory = zip
        .windows(4)
        .enumerate()
        .filter(|(_, part)| *part == b"PK\x01\x02");
    let second = directory.map(|(at, _)| at).nth(1).unwrap();
    zip[second + 42..second + 46].copy_from_slice(&0_u32.to_le_bytes());
    let rules = Rules::built_in().unwrap();
    let scanned = scan(Scanner::Archives, &zip, &rules);
    let is_held = match &scanned {
        Ok(found) => found.iter().any(|one| one.rule == "overlapping-entries"),
        Err(_) => true,
    };
    assert!(is_held, "{scanned:?}");
}

#[test]
fn what_cannot_be_looked_at_is_no_pass() {
    let rules = Rules::built_in().unwrap();
    let scan = |scanner, content: &[u8]| scan(scanner, content, &rules);
    let large = vec![0; CONTENT_BYTES_MAX + 1];
    for scanner in Scanner::ALL {
        assert_eq!(scan(scanner, &large), Err(Unscanned::TooLarge));
    }
    let whole = zipped("a", &[7; 1000]);
    for cut in [10, whole.len() / 2, whole.len() - 1] {
        assert!(scan(Scanner::Archives, &whole[..cut]).is_err(), "{cut}");
    }
    for first in [
        &b"7z\xbc\xaf\x27\x1c"[..],
        b"Rar!\x1a\x07\0",
        b"\xfd7zXZ\0",
        b"BZh9",
        b"\x28\xb5\x2f\xfd",
    ] {
        assert!(scan(Scanner::Archives, first).is_err());
    }
    let mut damaged = gzipped(&[7; 100_000]);
    let half = damaged.len() / 2;
    damaged[half] ^= 0xff;
    assert!(scan(Scanner::Archives, &damaged).is_err());
}

/// Without the feature, the scanner for malware is missing: that is no pass.
#[cfg(not(feature = "yara"))]
#[test]
fn missing_scanner_is_an_error() {
    let rules = Rules::built_in().unwrap();
    let scanned = scan(Scanner::Malware, b"text", &rules);
    assert_eq!(scanned, Err(Unscanned::Missing));
    assert_eq!(rules.check_yara(), Ok(()));
    let rules = rules.with_yara("rule x { condition: true }");
    assert_eq!(rules.check_yara(), Err(Unscanned::Missing));
}
