//! Requests: their targets, and the rules about them.

use proptest::prelude::*;

use crate::network::*;

fn host(text: &str) -> HostPart {
    text.parse().unwrap()
}

fn pattern(text: &str) -> PathPattern {
    PathPattern::try_from(text.to_owned()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns a rule from its text, with paths.
fn rule(text: &str, paths: &[&str]) -> NetworkRule {
    let Meant {
        to,
        way,
        mut requests,
        limits,
    } = text
        .parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    requests
        .paths
        .extend(paths.iter().map(|path| pattern(path)));
    NetworkRule {
        to,
        way,
        requests,
        limits,
        origin: "a test".to_owned(),
    }
}

fn network(allow: &[&str], deny: &[&str]) -> Network {
    let list = |texts: &[&str]| texts.iter().map(|text| rule(text, &[])).collect();
    Network {
        allow: list(allow),
        deny: list(deny),
        learn: None,
        ..Network::default()
    }
}

/// Returns the decision on a request, written as `METHOD URL`.
fn judged<'a>(network: &'a Network, text: &str) -> Result<&'a NetworkRule, Unreachable<'a>> {
    let (method, url) = text.split_once(' ').unwrap();
    let (scheme, rest) = url.split_once("://").unwrap();
    let at = rest.find('/').unwrap();
    let (place, target) = rest.split_at(at);
    let scheme = match scheme {
        "http" => Scheme::Http,
        _ => Scheme::Https,
    };
    let (name, port) = match place.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().unwrap()),
        None => (place, scheme.port()),
    };
    let target = Target::parse(target).unwrap_or_else(|error| panic!("{text}: {error}"));
    network.request(&Request {
        host: &host(name),
        port,
        scheme,
        method,
        target: &target,
    })
}

#[test]
fn a_target_has_one_normal_form_and_is_kept_as_it_was_written() {
    for (written, path) in [
        ("/", "/"),
        ("*", "*"),
        ("/a/b", "/a/b"),
        ("/a/", "/a/"),
        ("/a?b=c&d", "/a"),
        ("/a?", "/a"),
        ("/?/../x", "/"),
        ("/%61%2d%5F", "/a-_"),
        ("/%7Euser", "/~user"),
        ("/a%2bb", "/a%2Bb"),
        ("/a+b", "/a+b"),
        ("/%e2%82%ac", "/%E2%82%AC"),
        ("/a%20b", "/a%20b"),
        ("/[slug]|{x}^`", "/%5Bslug%5D%7C%7Bx%7D%5E%60"),
        ("/@scope%2fname", "/@scope%2Fname"),
        ("/v1/things:delete", "/v1/things:delete"),
        ("/bucket//key?X-Amz-Signature=ab%2Fcd%3D", "/bucket//key"),
        ("/q?a[]=1&b={x}|y", "/q"),
    ] {
        let target = Target::parse(written).unwrap_or_else(|error| panic!("{written}: {error}"));
        assert_eq!(target.path(), path, "{written}");
        assert_eq!(target.as_written(), written);
    }
    let target = Target::parse("/a?b=%zz");
    assert!(target.is_err());
    assert_eq!(Target::parse("/a?b?c").unwrap().query(), Some("b?c"));
    assert_eq!(Target::parse("/a").unwrap().query(), None);
}

#[test]
fn what_is_no_target_is_refused_whatever_the_rules() {
    for text in [
        "",
        "a",
        "a/b",
        "?a",
        "**",
        "*?",
        "*/a",
        "http://example.com/",
        "example.com:443",
        "/a b",
        "/a#b",
        "/#",
        "/a?b#c",
        "/a\\b",
        "/a?b\\c",
        "\\a",
        "/a\0",
        "/a\r\nX: y",
        "/a\tb",
        "/a\u{7f}",
        "/\u{e9}",
        "/a?\u{e9}",
        "/\u{ff0e}\u{ff0e}/",
        "/%",
        "/%2",
        "/%2g",
        "/%g2",
        "/%%32e",
        "/%u002e",
        "/% 2",
        "/%+2",
        "/a?%",
        "/a\"b",
        "/<a>",
        "/a?\"",
        " /a",
        "/a ",
    ] {
        assert!(Target::parse(text).is_err(), "{text:?}");
    }
    let long = format!("/{}", "a".repeat(TARGET_BYTES_MAX));
    assert!(Target::parse(&long).is_err());
    assert!(Target::parse(long.get(1..).unwrap()).is_err());
    assert!(Target::parse(&format!("/{}", "a".repeat(TARGET_BYTES_MAX - 1))).is_ok());
}

/// Spellings of the path `/secret`, and of ways to it, that have deceived other implementations.
const UNCLEAR: [&str; 38] = [
    "/open/../secret",
    "/open/..",
    "/./secret",
    "/.",
    "/open/%2e%2e/secret",
    "/open/.%2E/secret",
    "/open/%2e/secret",
    "/open/..;/secret",
    "/open/..;x=1/secret",
    "/open/%2e%2e;/secret",
    "/open;x/secret",
    "/open/a;jsessionid=1",
    "/open/%3bx",
    "//secret",
    "//open/secret",
    "/open//secret",
    "/open/a//",
    "/open/..%2fsecret",
    "/open/..%2Fsecret",
    "/open%2f..%2fsecret",
    "/open/..%5csecret",
    "/open%5c..%5Csecret",
    "/open/%252e%252e/secret",
    "/open/..%252fsecret",
    "/open/%25252e",
    "/open/100%25",
    "/open/%c0%ae%c0%ae/secret",
    "/open/..%c0%afsecret",
    "/open/%e0%80%ae%e0%80%ae/secret",
    "/open/%fc%80%80%80%80%ae/secret",
    "/open/%ff",
    "/open/%e9",
    "/open/a%00",
    "/open/a%0d%0aX:y",
    "/open/a%7f",
    "/open/a%3f/../secret",
    "/open/a%23/../secret",
    "/open/%3F",
];

#[test]
fn a_path_that_can_be_read_in_more_than_one_way_is_refused_where_rules_are_about_paths() {
    let about_paths = [
        network(&["https://example.com/open/**"], &[]),
        network(&["https://example.com/**"], &[]),
        network(&["example.com"], &["https://example.com/secret"]),
        network(&["example.com", "https://*.com/open/**"], &[]),
    ];
    let whole = network(
        &["example.com", "https://other.example/open/**"],
        &["https://example.com:8080/secret"],
    );
    // A denial without ports is one at all of them; this one names its port.
    let whole = Network {
        deny: whole
            .deny
            .into_iter()
            .filter(|rule| !rule.requests.is_empty())
            .collect(),
        ..whole
    };
    for path in UNCLEAR {
        let request = format!("GET https://example.com{path}");
        for network in &about_paths {
            let found = judged(network, &request);
            assert!(
                matches!(found, Err(Unreachable::Unclear(_) | Unreachable::Denied(_))),
                "{path}: {found:?}"
            );
        }
        let target = Target::parse(path).unwrap();
        assert!(target.unclear().is_some(), "{path}");
        // Where no rule looks at paths, it is sent on as it was written.
        assert!(judged(&whole, &request).is_ok(), "{path}");
        assert_eq!(target.as_written(), path);
    }
    for path in [
        "/",
        "/a/",
        "/a/...",
        "/a/.b",
        "/a..b",
        "/%E2%82%AC",
        "/@a/b",
        "/g%2b%2b",
        "/a?x=../..;//%2f",
    ] {
        assert_eq!(Target::parse(path).unwrap().unclear(), None, "{path}");
    }
}

/// Characters that some programs read as others, mostly as ASCII ones.
const FOLDED: [&str; 17] = [
    "/open/%C5%BFecret",
    "/open/%E2%84%AAey",
    "/open/%C4%B1d",
    "/open/%C4%B0d",
    "/open/stra%C3%9Fe",
    "/open/STRA%E1%BA%9EE",
    "/open/%EF%BC%8E%EF%BC%8E/secret",
    "/open/%E2%80%A5/secret",
    "/open%EF%BC%8Fsecret",
    "/open/%EF%BD%93ecret",
    "/open/%F0%9D%90%AC",
    "/open/%EF%AC%81le",
    "/open/a%C2%A0b",
    "/open/cafe%CC%81",
    "/open/sec%C2%ADret",
    "/open/sec%E2%80%8Dret",
    "/open/a%EF%B8%8F",
];

#[test]
fn path_of_folded_letters_is_unclear() {
    let about_paths = network(&["https://example.com/open/**"], &[]);
    let whole = network(&["example.com"], &[]);
    for path in FOLDED {
        let request = format!("GET https://example.com{path}");
        let found = judged(&about_paths, &request);
        assert!(
            matches!(found, Err(Unreachable::Unclear(_))),
            "{path}: {found:?}"
        );
        assert!(judged(&whole, &request).is_ok(), "{path}");
    }
    for path in [
        "/caf%C3%A9",
        "/%C3%89cole",
        "/%CE%BF%CE%B4%CF%8C%CF%82",
        "/%D0%BF%D1%83%D1%82%D1%8C",
        "/%E6%97%A5%E6%9C%AC",
        "/%F0%9F%A6%80",
    ] {
        assert_eq!(Target::parse(path).unwrap().unclear(), None, "{path}");
    }
}

#[test]
fn denied_path_in_other_case_is_denied() {
    let network = network(
        &["example.com"],
        &[
            "https://example.com/smuggled",
            "https://example.com/%C3%A9cole/**",
            "https://example.com/%CE%BF%CE%B4%CF%8C%CF%82",
        ],
    );
    for (path, is_denied) in [
        ("/smuggled", true),
        ("/SMUGGLED", true),
        ("/%C5%BFmuggled", true),
        ("/%C3%89COLE/a", true),
        ("/%C3%A9cole/a", true),
        ("/%CE%9F%CE%94%CE%8C%CE%A3", true),
        ("/%CE%BF%CE%B4%CF%8C%CF%83", true),
        ("/ecole/a", false),
        ("/smuggle", false),
    ] {
        let found = judged(&network, &format!("GET https://example.com{path}"));
        let found = matches!(found, Err(Unreachable::Denied(_)));
        assert_eq!(found, is_denied, "{path}");
    }
}

#[test]
fn patterns_of_paths_mean_what_they_say() {
    let allowed = |pattern: &str, path: &str| {
        let network = Network {
            allow: vec![rule("https://example.com", &[pattern])],
            ..Network::default()
        };
        judged(&network, &format!("GET https://example.com{path}")).is_ok()
    };
    for (pattern, yes, no) in [
        ("/", &["/", "/?a"][..], &["/a"][..]),
        (
            "/a",
            &["/a", "/a?b", "/%61"],
            &["/", "/a/", "/A", "/a/b", "/b"],
        ),
        ("/a/", &["/a/"], &["/a", "/a/b"]),
        (
            "/a/*",
            &["/a/b", "/a/b?c"],
            &["/a", "/a/", "/a/b/", "/a/b/c"],
        ),
        ("/*/c", &["/a/c"], &["/c", "/a/b/c", "/a/C"]),
        (
            "/a/**",
            &["/a", "/a/", "/a/b", "/a/b/c"],
            &["/", "/ab", "/A/b"],
        ),
        ("/**", &["/", "/a", "/a/b/"], &[]),
        (
            "/**/x",
            &["/x", "/a/x", "/a/b/x"],
            &["/", "/a", "/x/a", "/ax"],
        ),
        (
            "/a/**/x",
            &["/a/x", "/a/b/x", "/a/x/x"],
            &["/a", "/x", "/a/xx"],
        ),
        ("/*.whl", &["/a.whl"], &["/.whl", "/a.whl.exe", "/a/b.whl"]),
        ("/git-*", &["/git-x"], &["/git-", "/git"]),
        ("/a:b", &["/a:b"], &["/a%3Ab", "/a%3ab"]),
        ("/a%3Ab", &["/a%3ab"], &["/a:b"]),
        ("/[x]", &["/[x]", "/%5bx%5D"], &["/x"]),
        (
            "/info/refs?service=git-upload-pack",
            &["/info/refs?service=git-upload-pack"],
            &[
                "/info/refs",
                "/info/refs?",
                "/info/refs?service=git-receive-pack",
                "/info/refs?service=git-upload-pack&service=git-receive-pack",
                "/info/refs?service=git%2dupload-pack",
            ],
        ),
    ] {
        for path in yes {
            assert!(allowed(pattern, path), "{pattern} does not hold {path}");
        }
        for path in no {
            assert!(!allowed(pattern, path), "{pattern} holds {path}");
        }
    }
    for text in [
        "", "a", "*", "**", "/a b", "/a#b", "/***", "/a**", "/**a", "/a*b*", "/**/a/**", "/a/../b",
        "/a//b", "/a;b", "/%2f", "/%", "/\u{e9}",
    ] {
        assert!(PathPattern::try_from(text.to_owned()).is_err(), "{text}");
    }
    assert!(PathPattern::try_from(format!("/{}", "a".repeat(1024))).is_err());
}

#[test]
fn a_denial_is_held_to_whatever_a_server_may_make_of_a_request() {
    let denied = |text: &str, request: &str| {
        let deny: Vec<NetworkRule> = vec![rule(text, &[])];
        let network = Network {
            allow: vec![rule("*:*", &[])],
            deny,
            learn: None,
            ..Network::default()
        };
        matches!(judged(&network, request), Err(Unreachable::Denied(_)))
    };
    for request in [
        "GET https://example.com/admin",
        "GET https://example.com/admin/",
        "GET https://example.com/ADMIN",
        "GET https://example.com/%61dmin?x",
        "GET https://example.com/%41dmin/",
    ] {
        assert!(denied("https://example.com/admin", request), "{request}");
    }
    for (text, request) in [
        ("https://example.com/a!b", "GET https://example.com/a%21b"),
        ("https://example.com/a/**", "GET https://example.com/a"),
        ("https://example.com/a/", "GET https://example.com/a"),
        (
            "https://example.com/a?b=c",
            "GET https://example.com/a?x&b=c",
        ),
        ("DELETE example.com", "delete https://example.com/x"),
        ("DELETE example.com", "DELETE http://example.com/x"),
        ("http://example.com", "GET http://example.com/x"),
    ] {
        assert!(denied(text, request), "{text}: {request}");
    }
    for (text, request) in [
        ("https://example.com/a", "GET https://example.com/ab"),
        ("https://example.com/a", "GET https://example.com/a/b"),
        ("https://example.com/a", "GET https://other.example/a"),
        ("DELETE example.com", "GET https://example.com/x"),
        ("http://example.com", "GET https://example.com/x"),
    ] {
        assert!(!denied(text, request), "{text}: {request}");
    }
}

#[test]
fn requests_are_judged_by_all_that_a_rule_says() {
    let network = network(
        &[
            "GET,HEAD https://api.example.com/v1/**",
            "POST https://api.example.com/v1/items",
            "http://plain.example",
            "GET any.example:8080",
            "whole.example",
        ],
        &["DELETE whole.example"],
    );
    for (request, expected) in [
        ("GET https://api.example.com/v1/x", true),
        ("HEAD https://api.example.com/v1", true),
        ("get https://api.example.com/v1/x", false),
        ("POST https://api.example.com/v1/items", true),
        ("POST https://api.example.com/v1/items/1", false),
        ("PUT https://api.example.com/v1/items", false),
        ("GET https://api.example.com/v2/x", false),
        ("GET http://api.example.com/v1/x", false),
        ("GET https://api.example.com:8443/v1/x", false),
        ("GET http://plain.example/x", true),
        ("GET https://plain.example/x", false),
        ("GET http://any.example:8080/x", true),
        ("GET https://any.example:8080/x", true),
        ("POST https://any.example:8080/x", false),
        ("GET https://whole.example/x", true),
        ("ANYTHING https://whole.example/x", true),
        ("DELETE https://whole.example/x", false),
        ("GET https://else.example/x", false),
    ] {
        let found = judged(&network, request);
        assert_eq!(found.is_ok(), expected, "{request}: {found:?}");
    }
    // What no request could pass is no connection; what some could is looked into.
    let connection = |name: &str, port| network.connection(&host(name), port).map(|(_, look)| look);
    assert_eq!(connection("api.example.com", 443), Ok(Look::Into));
    assert_eq!(connection("api.example.com", 80), Err(Unreachable::NoRule));
    assert_eq!(connection("any.example", 8080), Ok(Look::Into));
    assert_eq!(connection("whole.example", 443), Ok(Look::Into));
    assert_eq!(
        Network::default().connection(&host("a.example"), 443),
        Err(Unreachable::NoRule)
    );
}

#[test]
fn a_name_is_known_although_some_requests_to_it_are_denied() {
    let network = network(&["example.com"], &["DELETE example.com", "evil.example"]);
    let HostPart::Name(name) = host("example.com") else {
        panic!("a name");
    };
    assert!(network.name(&name).is_ok());
    assert!(judged(&network, "GET http://example.com/").is_ok());
    assert!(judged(&network, "DELETE http://example.com/").is_err());
}

#[test]
fn a_tunnel_is_carried_unseen_only_where_no_request_is_denied() {
    let tunnel = |deny: &[&str]| Network {
        allow: vec![NetworkRule {
            way: Way::Tunnel,
            ..rule("pinned.example", &[])
        }],
        deny: deny.iter().map(|text| rule(text, &[])).collect(),
        learn: None,
        ..Network::default()
    };
    let look = |network: &Network| {
        network
            .connection(&host("pinned.example"), 443)
            .map(|(_, look)| look)
            .ok()
    };
    assert_eq!(look(&tunnel(&[])), Some(Look::Past));
    assert_eq!(look(&tunnel(&["POST pinned.example"])), Some(Look::Into));
    assert_eq!(look(&tunnel(&["pinned.example"])), None);
    // Beside a rule that tells requests apart, the wider one counts.
    let mut both = tunnel(&[]);
    both.allow.push(rule("GET https://pinned.example", &[]));
    assert_eq!(look(&both), Some(Look::Past));
}

#[test]
fn what_a_rule_limits_a_later_plain_one_carries_no_further() {
    let limited = || NetworkRule {
        way: Way::Inspect,
        limits: RuleLimits {
            connections: std::num::NonZeroU32::new(1),
            ..RuleLimits::default()
        },
        ..rule("one.example:9000", &[])
    };
    let tunnel = || NetworkRule {
        way: Way::Tunnel,
        ..rule("one.example:9000", &[])
    };
    let plain = || rule("one.example:9000", &[]);
    for (allow, expected) in [
        (vec![limited()], Look::Into),
        (vec![limited(), plain()], Look::Into),
        (vec![limited(), plain(), tunnel()], Look::Past),
        (vec![plain(), limited()], Look::Past),
        (vec![plain()], Look::Past),
    ] {
        let network = Network {
            allow,
            ..Network::default()
        };
        let (_, look) = network.connection(&host("one.example"), 9000).unwrap();
        assert_eq!(look, expected, "{:?}", network.allow);
    }
}

#[test]
fn learning_lets_pass_what_no_rule_speaks_of_and_nothing_that_one_denies() {
    let mut network = network(
        &["GET https://api.example.com/v1/**", "git.example:22"],
        &["evil.example:*", "DELETE api.example.com"],
    );
    network.learn = Some(NetworkRule::learning());
    let learnt = |rule: &NetworkRule| rule.told() == NetworkRule::learning().told();
    for (request, expected) in [
        ("GET https://api.example.com/v1/x", Some(false)),
        ("POST https://api.example.com/v1/x", Some(true)),
        ("GET https://other.example/x", Some(true)),
        ("DELETE https://api.example.com/v1/x", None),
        ("GET https://evil.example/x", None),
        ("GET https://api.example.com/v1/../x", None),
    ] {
        assert_eq!(
            judged(&network, request).ok().map(learnt),
            expected,
            "{request}"
        );
    }
    for (name, port, expected) in [
        ("git.example", 22, Some((false, Look::Past))),
        ("other.example", 22, Some((true, Look::Past))),
        ("other.example", 443, Some((true, Look::Into))),
        ("api.example.com", 443, Some((false, Look::Into))),
        ("evil.example", 443, None),
        // Without a rule of its own, no address of a private network is one.
        ("10.0.0.1", 443, Some((true, Look::Into))),
    ] {
        let found = network.connection(&host(name), port).ok();
        let found = found.map(|(rule, look)| (learnt(rule), look));
        assert_eq!(found, expected, "{name}:{port}");
    }
    assert!(
        network
            .name(&HostName::parse("other.example").unwrap())
            .is_ok()
    );
    assert!(
        network
            .name(&HostName::parse("evil.example").unwrap())
            .is_err()
    );
    let private = network.address("10.0.0.1".parse().unwrap(), 443, None);
    assert!(matches!(private, Err(Unreachable::Special(_))));
    assert!(!network.is_empty() && network.is_inspected());
}

#[test]
fn rules_are_written_as_they_are_read() {
    for text in [
        "example.com",
        "*.example.com:*",
        "10.1.0.0/16:5432",
        "https://example.com",
        "http://example.com",
        "https://example.com:8443",
        "https://*.example.com",
        "https://*",
        "https://192.0.2.1",
        "https://[2001:db8::1]/a",
        "GET https://api.example.com/v1/**",
        "GET,HEAD https://api.example.com:8443/v1/*/x?a=b",
        "POST example.com:8080",
        "PURGE example.com",
    ] {
        let read: Meant = text
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(read.to_string(), text);
        assert_eq!(read.as_text().as_deref(), Some(text));
    }
    for (text, form) in [
        (
            "get,head https://EXAMPLE.com",
            "GET,HEAD https://example.com",
        ),
        ("https://example.com:443/a", "https://example.com/a"),
        ("http://example.com:80", "http://example.com"),
    ] {
        assert_eq!(text.parse::<Meant>().unwrap().to_string(), form);
    }
    for (text, holds) in [
        ("https://example.com/", "one page"),
        ("GET https://example.com/", "one page"),
        ("example.com/v1", "in a URL"),
        ("GET example.com/v1/**", "in a URL"),
        ("GET /v1/**", "in a URL"),
        ("example.com:443/v1", "in a URL"),
        ("ftp://example.com", "http:// and https://"),
        ("GET,, example.com", "a method is a word"),
        ("G(T example.com", "a method is a word"),
        ("purge example.com", "a method is a word"),
        ("example.org example.com", "a method is a word"),
        ("GET  example.com", "letters, digits"),
        ("GET POST example.com", "letters, digits"),
        ("https://user@example.com/a", "letters, digits"),
        ("https://example.com/a#b", "begins with '/'"),
        ("https://example.com?a", "begins with '/'"),
        ("https://example.com/a/../b", "'..'"),
        ("https://example.com/a**", "'**' once"),
        ("https://10.0.0.0/8", "letters"),
        ("https://[2001:db8::/32]/a", "no address"),
        ("https://", "empty"),
        ("https:///a", "empty"),
    ] {
        let told = match text.parse::<Meant>() {
            Ok(meant) => format!("read as {meant}"),
            Err(error) => error.to_string(),
        };
        if text == "https://10.0.0.0/8" {
            // An address and the path `/8`: a block has no place in a URL.
            assert_eq!(told, "read as https://10.0.0.0/8");
        } else {
            assert!(told.contains(holds), "{text}: {told}");
        }
    }
}

#[test]
fn a_refusal_says_how_to_ask_and_nothing_that_a_shell_would_run() {
    let network = network(&["GET https://api.example.com/v1/**"], &["evil.example:*"]);
    let how = |method: &str, name: &str, target: &str| {
        let (host, target) = (host(name), Target::parse(target).unwrap());
        let request = Request {
            host: &host,
            port: 443,
            scheme: Scheme::Https,
            method,
            target: &target,
        };
        match network.request(&request) {
            Err(refused) => (refused.why_inside(), refused.how_to_ask(&request)),
            Ok(rule) => panic!("allowed by {rule}"),
        }
    };
    let (why, ask) = how("POST", "api.example.com", "/v1/x?secret=1");
    assert_eq!(why, NO_RULE);
    assert!(
        ask.contains("--allow 'POST https://api.example.com/v1/x'"),
        "{ask}"
    );
    assert!(!ask.contains("secret"), "{ask}");
    let (why, ask) = how("GET", "evil.example", "/");
    assert_eq!(why, "evil.example:* is denied");
    assert!(!ask.contains("--allow") && !ask.contains("a test"), "{ask}");
    let (why, ask) = how("GET", "api.example.com", "/v1/../x");
    assert!(why.contains("'..'"), "{why}");
    assert!(ask.contains("another path"), "{ask}");
    for (method, target) in [
        ("POST", "/v1/'$(touch%20x)'"),
        ("POST", "/v1/`id`"),
        ("P'$(id)'", "/v1/x"),
        ("POST", "/v1/a|b"),
        ("POST", "/v1/a&b"),
    ] {
        let (_, ask) = how(method, "api.example.com", target);
        let quoted = ask.split('\'').nth(1).unwrap();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" -._~/%:@+,=".contains(&byte);
        assert!(quoted.bytes().all(is_plain), "{ask}");
        assert_eq!(ask.matches('\'').count(), 2, "{ask}");
    }
}

#[test]
fn rules_arrive_as_they_were_sent() {
    let mut sent = network(
        &["GET,HEAD https://api.example.com/v1/**?a=b", "*"],
        &["POST *:*"],
    );
    sent.learn = Some(NetworkRule::learning());
    let text = serde_json::to_string(&sent).unwrap();
    assert_eq!(serde_json::from_str::<Network>(&text).unwrap(), sent);
    let bad = text.replace("/v1/**?a=b", "/v1/../x");
    assert!(serde_json::from_str::<Network>(&bad).is_err());
}

/// Parts of paths, and separators, from which attempts to bypass a rule are made.
const PARTS: [&str; 26] = [
    "open",
    "secret",
    "SECRET",
    "s%65cret",
    "%73ecret",
    ".",
    "..",
    "...",
    "%2e",
    "%2E%2e",
    ".%2e",
    "%252e%252e",
    "%25252e.",
    ".;x=1",
    "..;",
    ";",
    "%c0%ae",
    "%e9",
    "a",
    "%61",
    "",
    "a%00",
    "%3f",
    "x%23",
    "secret%3f",
    "secret%00",
];
const BETWEEN: [&str; 12] = [
    "/", "/", "/", "/", "//", "%2f", "%2F", "%5c", "%252f", "%255C", "%c0%af", "?",
];

/// Returns the readings that servers may give a path, independently of the implementation under
/// test: escapes are decoded up to three times, `\` can be a `/`, parameters can be dropped, empty
/// segments too.
fn readings(path: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut text: Vec<u8> = path.bytes().collect();
    for _ in 0..3 {
        text = percent_decoded(&text);
        for backslash in [false, true] {
            for parameters in [false, true] {
                for cut in [false, true] {
                    all.push(reading(&text, backslash, parameters, cut));
                }
            }
        }
    }
    all
}

fn reading(text: &[u8], backslash: bool, parameters: bool, cut: bool) -> Vec<String> {
    let mut text = String::from_utf8_lossy(text)
        // Overlong forms, as liberal readers of UTF-8 take them.
        .replace('\u{fffd}', ".");
    if cut {
        let end = text.find(['\0', '?', '#']).unwrap_or(text.len());
        text.truncate(end);
    }
    if backslash {
        text = text.replace('\\', "/");
    }
    let mut segments: Vec<String> = Vec::new();
    for segment in text.split('/') {
        let segment = match segment.split_once(';') {
            Some((before, _)) if parameters => before,
            _ => segment,
        };
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other.to_owned()),
        }
    }
    segments
}

fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let escape = after
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) if *first == b'%' => {
                decoded.push(byte);
                rest = &after[2..];
            }
            _ => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    decoded
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_path_that_is_judged_is_the_path_that_is_sent(
        parts in proptest::collection::vec(
            (proptest::sample::select(&PARTS[..]), proptest::sample::select(&BETWEEN[..])),
            0..4,
        ),
        last in proptest::sample::select(&PARTS[..]),
    ) {
        let parts: String = parts.iter().map(|(part, between)| [*part, *between].concat()).collect();
        let written = format!("/open/{parts}{last}");
        let Ok(target) = Target::parse(&written) else { return Ok(()); };
        prop_assert_eq!(target.as_written(), &written);
        let network = network(&["https://example.com/open/**"], &["https://example.com/open/secret/**"]);
        let host = host("example.com");
        let request = Request { host: &host, port: 443, scheme: Scheme::Https, method: "GET", target: &target };
        if network.request(&request).is_err() { return Ok(()); }
        let path = written.split('?').next().unwrap();
        for read in readings(path) {
            prop_assert_eq!(read.first().map(String::as_str), Some("open"), "{} is {:?}", written, read);
            let second = read.get(1).map(|second| second.to_ascii_lowercase());
            prop_assert_ne!(second.as_deref(), Some("secret"), "{} is {:?}", written, read);
        }
    }

    #[test]
    fn a_normal_form_is_its_own(text in "/[a-zA-Z0-9%/.;:@\\[\\]~!-]{0,24}") {
        let Ok(target) = Target::parse(&text) else { return Ok(()); };
        let again = Target::parse(target.path()).unwrap();
        prop_assert_eq!(again.path(), target.path());
        prop_assert_eq!(again.unclear(), target.unclear());
    }

    #[test]
    fn a_rule_that_is_proposed_allows_what_it_was_proposed_for(
        method in "GET|get|[A-Za-z!']{1,6}", text in "/[a-zA-Z0-9%/.:@!'*$-]{0,20}", port in 1_u16..500, secure in any::<bool>(),
    ) {
        let Ok(target) = Target::parse(&text) else { return Ok(()); };
        let scheme = if secure { Scheme::Https } else { Scheme::Http };
        let host = host("example.com");
        let request = Request { host: &host, port, scheme, method: &method, target: &target };
        let proposed = request.as_rule();
        let read = proposed.as_text().unwrap();
        let network = Network { allow: vec![rule(&read, &[])], ..Network::default() };
        prop_assert!(network.request(&request).is_ok(), "{} does not allow {} {}", read, method, text);
    }

    #[test]
    fn whatever_is_written_as_a_rule_is_read_or_refused(text in "[ A-Za-z0-9.:*/,\\[\\]?#%-]{0,40}") {
        if let Ok(meant) = text.parse::<Meant>() {
            prop_assert_eq!(meant.as_text(), Some(meant.to_string()));
        }
    }
}

/// A rule about requests to an address allows or denies the address for such requests only,
/// whatever else leads there.
#[test]
fn an_address_is_judged_with_the_request_that_is_sent_there() {
    let check = |network: &Network, request: Option<&str>, address: &str, expected: bool| {
        let (method, target) = request.unwrap_or("GET /").split_once(' ').unwrap();
        let target = Target::parse(target).unwrap();
        let asked = Request {
            host: &host("a.example"),
            port: 80,
            scheme: Scheme::Http,
            method,
            target: &target,
        };
        let asked = request.is_some().then_some(&asked);
        let found = network.address(address.parse().unwrap(), 80, asked);
        assert_eq!(found.is_ok(), expected, "{request:?} {address} {found:?}");
    };
    let health = network(&["*", "GET http://10.1.2.3/health"], &[]);
    for (request, expected) in [
        (Some("GET /health"), true),
        (Some("GET /health?a=b"), true),
        (Some("POST /health"), false),
        (Some("GET /admin"), false),
        (Some("GET /x/../health"), false),
        // What is carried unseen can be any request.
        (None, false),
    ] {
        check(&health, request, "10.1.2.3", expected);
        check(&health, request, "10.1.2.4", false);
        check(&health, request, "93.184.216.34", true);
    }
    let denied = network(&["*"], &["DELETE 93.184.216.34"]);
    for (request, expected) in [
        (Some("GET /"), true),
        (Some("DELETE /"), false),
        (Some("delete /"), false),
        (None, false),
    ] {
        check(&denied, request, "93.184.216.34", expected);
    }
    let denied = network(&["*"], &["93.184.216.0/24"]);
    check(&denied, Some("GET /"), "93.184.217.1", true);
    check(&denied, Some("GET /"), "64:ff9b::5db8:d822", false);
    check(&denied, Some("GET /"), "64:ff9b::5db8:d922", true);
}

#[test]
fn a_rule_about_paths_is_not_passed_by_asking_the_whole_server() {
    let network = network(&["*.example"], &["http://a.example/**"]);
    let whole = Target::parse("*").unwrap();
    for method in ["GET", "OPTIONS"] {
        let found = network.request(&Request {
            host: &host("a.example"),
            port: 80,
            scheme: Scheme::Http,
            method,
            target: &whole,
        });
        assert!(matches!(found, Err(Unreachable::Unclear(_))), "{found:?}");
    }
}
