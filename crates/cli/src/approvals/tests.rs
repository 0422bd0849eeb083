#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use atoll_model::network::{AskedBody, AskedHeader, AskedRequest, FlowKind, Scheme};

use super::*;

#[test]
fn a_lease_is_for_a_day_at_most() {
    let for_time = |text: &str| {
        scope(&GrantApprovalArguments {
            time: Some(text.to_owned()),
            ..GrantApprovalArguments::default()
        })
    };
    for text in ["2d", "25h", "999d"] {
        let refused = for_time(text).unwrap_err();
        assert!(refused.what.contains("--for"), "{refused:?}");
    }
    let day = Scope::Seconds { seconds: 86_400 };
    assert_eq!(for_time("24h").unwrap(), day);
}

#[test]
fn what_a_program_wrote_is_one_line_last_and_marked() {
    let digest = CallDigest::new([0; 32]);
    let evil = "\u{1b}[2J\u{202e}ok\nhost: harmless.example\r";
    let pending = Pending {
        approval: 3,
        digest,
        call: AskedCall {
            signs: None,
            kind: FlowKind::Request,
            host: "example.com".to_owned(),
            port: 443,
            request: Some(AskedRequest {
                scheme: Scheme::Https,
                method: evil.to_owned(),
                path: evil.to_owned(),
                query: Some(evil.to_owned()),
                path_digest: digest,
                target_digest: digest,
                confidence: None,
                is_web_socket: false,
                headers_digest: digest,
                telling_headers_digest: digest,
                telling_headers: vec![AskedHeader {
                    name: "x-evil".to_owned(),
                    value: evil.to_owned(),
                }],
                further_headers: 0,
                body: Some(AskedBody {
                    bytes: 9,
                    digest,
                    beginning: evil.to_owned(),
                }),
            }),
            login: None,
            credentials: vec!["key".parse().unwrap()],
            rule: "example.com (a test)".to_owned(),
            policies: 0,
        },
        waiting: 2,
        age_seconds: 1,
        left_seconds: 9,
        agreed: None,
        takes_two: false,
        second: None,
    };
    let run = RunId::new(1_700_000_000, 7);
    let text = whole(&run, &pending, None);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 14, "{text}");
    assert_eq!(text.matches("\nhost: ").count(), 1, "{text}");
    assert_eq!(lines[1], "host: example.com");
    let words = lines
        .iter()
        .filter(|line| line.starts_with("the program's own words"));
    assert_eq!(words.count(), 3);
    assert!(lines[11].starts_with("the program's own"), "{text}");
    for shown in [&text, &line(&pending.call)] {
        let is_plain = |one: char| one == '\n' || !one.is_control() && one != '\u{202e}';
        assert!(shown.chars().all(is_plain), "{shown:?}");
    }
    // On a narrow terminal no text of a program begins a line that a person could take for one.
    let narrow = whole(&run, &pending, Some(20));
    for line in narrow.lines() {
        assert!(line.len() <= 20, "{line}");
        let begins = lines
            .iter()
            .any(|whole| whole.starts_with(line.split(':').next().unwrap()));
        assert!(line.starts_with("| ") || begins, "{line}");
    }
    assert!(narrow.contains("\n| "), "{narrow}");
    assert_eq!(line(&pending.call).lines().count(), 1);
    // The beginning of a host is anybody's.
    let host = format!("example.com.{}evil.net", "a.".repeat(110));
    let call = AskedCall {
        host,
        ..pending.call
    };
    assert!(line(&call).contains(".a.evil.net port 443"));
    assert!(!line(&call).contains("example.com"));
}
