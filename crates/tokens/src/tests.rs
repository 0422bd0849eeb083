//! The rights of tokens, and every way to widen them.

use atoll_model::network::{HostPart, Look, Request, Scheme, Target};
use atoll_model::{RunId, SessionName};
use biscuit_auth::builder::{BlockBuilder, Term, fact};
use biscuit_auth::{Biscuit, KeyPair, UnverifiedBiscuit};

use super::*;

const NOW_S: u64 = 1_800_000_000;

fn terms(rights: &[&str]) -> Terms {
    let rights = rights.iter().map(|right| right.parse().unwrap());
    Terms {
        rights: rights.collect(),
        ..Terms::default()
    }
}

fn holder(session: Option<&str>) -> Holder {
    Holder {
        run: RunId::new(NOW_S, 7),
        session: session.map(|name| SessionName::parse(name).unwrap()),
        workspace: "/srv/one".to_owned(),
        person: 1000,
        is_bound: false,
    }
}

fn held(key: &IssuingKey, text: &str) -> Held {
    held_in(key, &[text], None)
}

fn held_in(key: &IssuingKey, texts: &[&str], session: Option<&str>) -> Held {
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    let held = Held::new(key.public(), &texts, holder(session)).unwrap();
    // What carries has it by this way.
    Held::take(&held.hand().unwrap()).unwrap()
}

/// Asks tokens about an action, given in the words of rights.
fn ask_at(held: &Held, asked: &str, now_s: u64) -> bool {
    let words: Vec<&str> = asked.split(' ').collect();
    let host_port = |text: &str| {
        let (host, port) = text.rsplit_once(':').unwrap();
        let host: HostPart = host.parse().unwrap();
        (host, port.parse::<u16>().unwrap())
    };
    let carried = match words[..] {
        ["resolve", name] => {
            let name = atoll_model::network::HostName::parse(name).unwrap();
            held.carry(Asked::Resolve(&name), now_s)
        }
        ["into" | "past", place] => {
            let (host, port) = host_port(place);
            let look = match words[0] {
                "into" => Look::Into,
                _ => Look::Past,
            };
            let host = &host;
            held.carry(Asked::Connect { host, port, look }, now_s)
        }
        ["use-credential", name] => {
            let name = name.parse().unwrap();
            held.carry(Asked::UseCredential(&name), now_s)
        }
        ["call", tool, ref arguments @ ..] => {
            let mut all = serde_json::Map::new();
            for word in arguments {
                let (name, value) = word.split_once('=').unwrap();
                let text = || serde_json::Value::from(value);
                let value = serde_json::from_str(value).unwrap_or_else(|_| text());
                all.insert(name.to_owned(), value);
            }
            let arguments = &all;
            held.carry(Asked::Call { tool, arguments }, now_s)
        }
        ["publish", port] => held.carry(Asked::Publish(port.parse().unwrap()), now_s),
        [method, url] => {
            let (scheme, rest) = url.split_once("://").unwrap();
            let scheme = match scheme {
                "http" => Scheme::Http,
                _ => Scheme::Https,
            };
            let (host, path) = rest.split_at(rest.find('/').unwrap());
            let target = Target::parse(path).unwrap();
            let request = Request {
                host: &host.parse().unwrap(),
                port: scheme.port(),
                scheme,
                method,
                target: &target,
            };
            held.carry(Asked::Request(&request), now_s)
        }
        _ => panic!("{asked}"),
    };
    carried.is_ok()
}

fn ask(held: &Held, asked: &str) -> bool {
    ask_at(held, asked, NOW_S)
}

#[test]
fn a_right_carries_what_it_says_and_nothing_else() {
    let key = IssuingKey::generate();
    let cases: [(&str, &[&str], &[&str]); 16] = [
        (
            "connect api.example.com:443",
            &[
                "resolve api.example.com",
                "into api.example.com:443",
                "past api.example.com:443",
                "GET https://api.example.com/",
                "POST https://api.example.com/a%2fb",
            ],
            &[
                "resolve example.com",
                "past api.example.com:444",
                "into example.com:443",
                "into xapi.example.com:443",
                "GET http://api.example.com/",
                "publish 443",
                "use-credential api",
            ],
        ),
        (
            "connect *.example.com:443",
            &["past a.example.com:443", "past a.b.example.com:443"],
            &[
                "past example.com:443",
                "past aexample.com:443",
                "past a.example.org:443",
            ],
        ),
        (
            "connect *:*",
            &["past a.example.com:1", "into [2001:db8::1]:443"],
            &["publish 1"],
        ),
        (
            "connect 192.0.2.1:22",
            &["past 192.0.2.1:22"],
            &["past 192.0.2.2:22", "past 192.0.2.1:23"],
        ),
        (
            "connect [2001:db8::1]:22",
            &["past [2001:db8::1]:22"],
            &["past [2001:db8::2]:22"],
        ),
        (
            "request GET https://api.example.com/v1/*",
            &[
                "resolve api.example.com",
                "into api.example.com:443",
                "GET https://api.example.com/v1/",
                "GET https://api.example.com/v1/a/b?c=d",
            ],
            &[
                "past api.example.com:443",
                "HEAD https://api.example.com/v1/a",
                "GET http://api.example.com/v1/a",
                "GET https://api.example.com/v1",
                "GET https://api.example.com/v2/a",
                "GET https://api.example.com/v1/../v2",
                "GET https://api.example.com/v1/%2e%2e/v2",
                "GET https://api.example.com/V1/a",
            ],
        ),
        (
            "request GET https://api.example.com/v1",
            &["GET https://api.example.com/v1?q"],
            &[
                "GET https://api.example.com/v1/",
                "GET https://api.example.com/v1a",
            ],
        ),
        (
            "request * https://api.example.com/*",
            &["PATCH https://api.example.com/a%2fb"],
            &["past api.example.com:443", "PATCH https://example.com/"],
        ),
        (
            "resolve *.example.com",
            &["resolve a.example.com"],
            &["resolve example.com", "into a.example.com:443"],
        ),
        (
            "use-credential github",
            &["use-credential github"],
            &["use-credential git", "resolve github"],
        ),
        ("use-credential *", &["use-credential git"], &["publish 1"]),
        (
            "publish 8080",
            &["publish 8080"],
            &["publish 8081", "into localhost.example:8080"],
        ),
        (
            "call lookup",
            &["call lookup", "call lookup customer=42"],
            &["call lookups", "call look", "resolve lookup"],
        ),
        (
            "call tickets__*",
            &["call tickets__list", "call tickets__"],
            &["call tickets", "call xtickets__list"],
        ),
        (
            "call lookup customer=42 deep=true",
            &["call lookup customer=42 deep=true other=1"],
            &[
                "call lookup",
                "call lookup customer=42",
                "call lookup customer=420 deep=true",
                "call lookup customer=[42] deep=true",
                "call lookup customer=42.0 deep=true",
                "call lookup Customer=42 deep=true",
            ],
        ),
        (
            "call read path=docs/*",
            &["call read path=docs/a", "call read path=docs/a/b..c"],
            &[
                "call read",
                "call read path=doc",
                "call read path=docs/../key",
                "call read path=docs/a/..",
                "call read path=docs/%2e%2e/key",
                "call read path=docs//key",
                "call read path=docs/a\\..\\key",
                "call read path=[\"docs/a\"]",
            ],
        ),
    ];
    for (right, carried, denied) in cases {
        let token = issue(&key, &terms(&[right])).unwrap();
        let held = held(&key, &token);
        for asked in carried {
            assert!(ask(&held, asked), "{right} carries {asked}");
        }
        for asked in denied {
            assert!(!ask(&held, asked), "{right} does not carry {asked}");
        }
    }
}

#[test]
fn what_is_no_right_is_refused_and_what_is_one_is_shown_as_it_was_written() {
    for text in [
        "connect api.example.com:443",
        "connect *:*",
        "connect [2001:db8::1]:22",
        "request GET https://api.example.com/v1/*",
        "request * http://*.example.com:8080/",
        "resolve *",
        "use-credential *",
        "use-credential github",
        "publish *",
        "publish 8080",
        "call *",
        "call tickets__* customer=42 path=docs/* url=https://example.com/*",
    ] {
        let right: Right = text.parse().unwrap();
        assert_eq!(right.to_string(), text);
    }
    for text in [
        "",
        "connect",
        "connect api.example.com",
        "connect api.example.com:0",
        "connect a:443 b",
        "connect 2001:db8::1:22",
        "connect a\":443",
        "connect *.*:1",
        "connect a.*:1",
        "connect a:65536",
        "connect a:08",
        "request GET api.example.com/",
        "request GET https://a",
        "request GET https://a/v*",
        "request GET https://a/*/b",
        "request GET https://a/?q",
        "request GET https://a/\"/*",
        "request GET https://a/x/../y",
        "request get,post https://a/",
        "request GET ftp://a/",
        "request GET https://u@a/",
        "resolve",
        "resolve a:1",
        "use-credential a\"b",
        "publish",
        "publish x",
        "call",
        "call a*b",
        "call a\"b",
        "call a b",
        "call a b=",
        "call a b-c=1",
        "call a b=1 b=1",
        "call a b=x/../*",
        "call a b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1",
        "administer x",
    ] {
        assert!(text.parse::<Right>().is_err(), "{text:?}");
    }
}

#[test]
fn a_right_that_is_none_is_told_how_it_is_written() {
    let why = |text: &str| text.parse::<Right>().unwrap_err().to_string();
    let methods = why("request GET,HEAD https://api.example.com/*");
    assert!(methods.contains("say --allow again"), "{methods}");
    let whole = why("request GET https://api.example.com");
    assert!(whole.contains("https://api.example.com/* is"), "{whole}");
}

#[test]
fn who_may_send_requests_is_told_of_a_connection_that_is_carried_unseen() {
    let key = IssuingKey::generate();
    let rights = [
        "request GET http://api.example.com/*",
        "request GET http://api.example.com:8080/*",
        "request GET https://api.example.com/*",
    ];
    let held = held(&key, &issue(&key, &terms(&rights)).unwrap());
    let host: HostPart = "api.example.com".parse().unwrap();
    let why = |port, look| {
        let asked = Asked::Connect {
            host: &host,
            port,
            look,
        };
        held.carry(asked, NOW_S).err()
    };
    for (port, url) in [
        (80, "'http://api.example.com'"),
        (8080, "'http://api.example.com:8080'"),
        (443, "'https://api.example.com'"),
    ] {
        assert_eq!(why(port, Look::Into), None);
        let told = why(port, Look::Past).unwrap();
        assert!(
            told.starts_with(NOT_CARRIED) && told.contains(url),
            "{told}"
        );
    }
    // Nothing is there either way.
    assert_eq!(why(81, Look::Past).as_deref(), Some(NOT_CARRIED));
}

#[test]
fn whoever_narrows_only_narrows() {
    let key = IssuingKey::generate();
    let first = issue(
        &key,
        &terms(&["connect *.example.com:443", "use-credential *"]),
    )
    .unwrap();
    let further = Terms {
        until_s: Some(NOW_S + 60),
        ..terms(&[
            "request GET https://api.example.com/*",
            "connect other.example.net:443",
        ])
    };
    let second = attenuate(&first, &further).unwrap();
    let wide = held(&key, &first);
    assert!(ask(&wide, "POST https://api.example.com/") && ask(&wide, "use-credential git"));
    let narrow = held(&key, &second);
    assert!(ask(&narrow, "GET https://api.example.com/"));
    for asked in [
        "POST https://api.example.com/",
        "GET https://a.example.com/",
        "use-credential git",
        "past other.example.net:443",
        "resolve other.example.net",
    ] {
        assert!(!ask(&narrow, asked), "{asked}");
    }
    assert!(ask_at(&narrow, "GET https://api.example.com/", NOW_S + 59));
    assert!(!ask_at(&narrow, "GET https://api.example.com/", NOW_S + 60));
    // A later end than the first moves nothing.
    let later = Terms {
        until_s: Some(NOW_S + 600),
        ..Terms::default()
    };
    let third = held(&key, &attenuate(&second, &later).unwrap());
    assert!(!ask_at(&third, "GET https://api.example.com/", NOW_S + 60));
    assert_eq!(third.end_s(), Some(NOW_S + 60));
    let why = third.carry(Asked::Publish(1), NOW_S + 60).unwrap_err();
    assert!(
        why.contains("it has ended, at 2027-01-15T08:01:00Z"),
        "{why}"
    );
}

#[test]
fn what_counts_in_one_run_alone_carries_nothing_before_it_is_bound() {
    let key = IssuingKey::generate();
    let once = Terms {
        once: true,
        ..Terms::default()
    };
    let issued = Terms {
        once: true,
        ..terms(&["publish 80"])
    };
    let words = issued.words().unwrap();
    assert!(
        words.ends_with("once in the first run that holds it\n"),
        "{words}"
    );
    assert_eq!(Terms::parse(&words).unwrap(), issued);
    let wide = issue(&key, &terms(&["publish 80"])).unwrap();
    let issued = issue(&key, &issued).unwrap();
    let narrowed = attenuate(&wide, &once).unwrap();
    let further = attenuate(&narrowed, &terms(&["publish 80"])).unwrap();
    for (token, blocks) in [
        (&wide, vec![]),
        (&issued, vec![0]),
        (&narrowed, vec![1]),
        (&further, vec![1]),
    ] {
        let mut held = held_in(&key, &[token], None);
        assert_eq!(ask(&held, "publish 80"), blocks.is_empty());
        held.bind();
        assert!(ask(&held, "publish 80"));
        let handed = Held::take(&held.hand().unwrap()).unwrap();
        assert!(ask(&handed, "publish 80"));
        let read = Token::read(token, key.public()).unwrap();
        let ids = read.ids();
        let bound: Vec<String> = blocks.iter().map(|at: &usize| ids[*at].clone()).collect();
        assert_eq!(read.once().unwrap(), bound);
    }
}

#[test]
fn a_token_counts_for_its_session_its_workspace_and_its_time_alone() {
    let key = IssuingKey::generate();
    let all = Terms {
        from_s: Some(NOW_S - 60),
        until_s: Some(NOW_S + 60),
        session: Some(SessionName::parse("fix").unwrap()),
        workspace: Some("/srv/one".to_owned()),
        ..terms(&["publish 80"])
    };
    let token = issue(&key, &all).unwrap();
    let in_session = |session| held_in(&key, &[&token], session);
    assert!(ask(&in_session(Some("fix")), "publish 80"));
    assert!(!ask(&in_session(Some("fix2")), "publish 80"));
    assert!(!ask(&in_session(None), "publish 80"));
    for now_s in [0, NOW_S - 61, NOW_S + 60, u64::MAX] {
        assert!(
            !ask_at(&in_session(Some("fix")), "publish 80", now_s),
            "{now_s}"
        );
    }
    assert_eq!(
        in_session(all.session.as_ref().map(SessionName::as_str)).stray(),
        None
    );
    for session in [None, Some("two")] {
        let bound = all.session.clone().map(Bound::Session);
        assert_eq!(in_session(session).stray(), bound, "{session:?}");
    }
    let elsewhere = Terms {
        workspace: Some("/srv/two".to_owned()),
        ..all.clone()
    };
    let elsewhere = issue(&key, &elsewhere).unwrap();
    assert_eq!(
        held_in(&key, &[&elsewhere], Some("fix")).stray(),
        Some(Bound::Workspace("/srv/two".to_owned()))
    );
    assert!(!ask(
        &held_in(&key, &[&elsewhere], Some("fix")),
        "publish 80"
    ));
    // Words and Datalog say the same.
    let read = Token::read(&token, key.public()).unwrap();
    let parts = read.parts().unwrap();
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].terms.as_ref(), Some(&all), "{parts:?}");
    let odd = Terms {
        workspace: Some("/a\");".to_owned()),
        ..all
    };
    assert!(issue(&key, &odd).is_err());
}

#[test]
fn a_connection_that_is_carried_unseen_past_a_right_on_requests_is_told_how_to_be_seen() {
    let key = IssuingKey::generate();
    let rights = [
        "request GET http://a.example:8114/b/*",
        "connect b.example:22",
    ];
    let held = held(&key, &issue(&key, &terms(&rights)).unwrap());
    let why = |host: &str, port: u16, look: Look| {
        let host = &host.parse::<HostPart>().unwrap();
        held.carry(Asked::Connect { host, port, look }, NOW_S)
    };
    assert_eq!(why("a.example", 8114, Look::Into), Ok(()));
    assert_eq!(
        why("a.example", 8114, Look::Past),
        Err(format!(
            "{NOT_CARRIED}: it carries requests there, and this connection is carried unseen: \
             --allow 'http://a.example:8114' has them looked at"
        ))
    );
    assert_eq!(why("b.example", 22, Look::Past), Ok(()));
    assert_eq!(
        why("b.example", 23, Look::Past),
        Err(NOT_CARRIED.to_owned())
    );
}

#[test]
fn every_token_of_a_run_has_to_carry_what_is_asked() {
    let key = IssuingKey::generate();
    let one = issue(&key, &terms(&["publish 80", "publish 81"])).unwrap();
    let two = issue(&key, &terms(&["publish 81", "publish 82"])).unwrap();
    let both = held_in(&key, &[&one, &two], None);
    let asked = ["publish 80", "publish 81", "publish 82"];
    assert_eq!(asked.map(|asked| ask(&both, asked)), [false, true, false]);
}

/// Appends a block that Atoll would not write.
fn appended(token: &str, block: BlockBuilder) -> String {
    let token = UnverifiedBiscuit::from_base64(token).unwrap();
    token.append(block).unwrap().to_base64().unwrap()
}

fn code(code: &str) -> BlockBuilder {
    BlockBuilder::new().code(code).unwrap()
}

#[test]
fn what_others_append_narrows_or_is_not_taken() {
    let key = IssuingKey::generate();
    let token = issue(&key, &terms(&["publish 80", "publish 81"])).unwrap();
    // The control: checks of another tool are taken, and narrow.
    let narrowed = appended(&token, code("check if port($p), $p > 80; check if run($r)"));
    let narrowed = held(&key, &narrowed);
    assert!(!ask(&narrowed, "publish 80") && ask(&narrowed, "publish 81"));
    let shown = narrowed.tokens().next().unwrap().parts().unwrap();
    assert!(
        shown[1].terms.is_none() && shown[1].source.contains("$p > 80"),
        "{shown:?}"
    );
    let never = held(&key, &appended(&token, code("reject if true")));
    assert!(!ask(&never, "publish 81"));
    let long = format!("check if {}", vec!["port($p)"; 17].join(", "));
    for (block, why) in [
        ("carried(true)", Foreign::Facts),
        ("carried(true) <- action($a)", Foreign::Rules),
        ("f($x) <- f($x), g($x)", Foreign::Rules),
        (
            "check if [1, 2, 3].all($x -> [1, 2].any($y -> $x > $y))",
            Foreign::Operation,
        ),
        (
            "check if action($a), $a.matches(\"((a{99}){99}){99}\")",
            Foreign::Operation,
        ),
        (
            "check if path($p), $p + $p + $p != \"a\"",
            Foreign::Operation,
        ),
        ("check if port($p), $p + 1 > 80", Foreign::Operation),
        ("check if carried(true) trusting previous", Foreign::Scopes),
        (&long, Foreign::Body),
    ] {
        let token = appended(&token, code(block));
        let read = Token::read(&token, key.public());
        assert_eq!(read.map(drop), Err(TokenError::Foreign(why)), "{block}");
    }
    let scoped = code("check if port(80)").scope(biscuit_auth::builder::Scope::Previous);
    let read = Token::read(&appended(&token, scoped), key.public());
    assert_eq!(read.map(drop), Err(TokenError::Foreign(Foreign::Scopes)));
    // A text that would be shown as something else.
    let text = |text: &str| {
        let code = BlockBuilder::new().code_with_params(
            "check if host({h})",
            [("h".to_owned(), Term::Str(text.to_owned()))].into(),
            [].into(),
        );
        Token::read(&appended(&token, code.unwrap()), key.public()).map(drop)
    };
    assert_eq!(text("plain"), Ok(()));
    assert_eq!(
        text("a\"); check if host(\"b"),
        Err(TokenError::Foreign(Foreign::Text))
    );
    assert_eq!(text("\u{1b}[2J"), Err(TokenError::Foreign(Foreign::Text)));
    // Words that say more than the block does are not believed.
    let lies = code("check if port(81)").context("allow publish *\n".to_owned());
    let lies = Token::read(&appended(&token, lies), key.public()).unwrap();
    assert_eq!(lies.parts().unwrap()[1].terms, None);
    let many = Terms {
        until_s: Some(NOW_S),
        ..Terms::default()
    };
    let mut grown = token;
    let failed = (0..BLOCKS_MAX + 1).find_map(|_| match attenuate(&grown, &many) {
        Ok(narrower) => {
            grown = narrower;
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(failed, Some(TokenError::Foreign(Foreign::Blocks)));
}

#[test]
fn tokens_of_another_key_are_none_and_neither_are_changed_ones() {
    let key = IssuingKey::generate();
    let other = IssuingKey::generate();
    let text = issue(&key, &terms(&["publish 80"])).unwrap();
    let narrow = Terms {
        session: Some(SessionName::parse("fix").unwrap()),
        ..Terms::default()
    };
    let text = attenuate(&text, &narrow).unwrap();
    let read = Token::read(&text, other.public());
    assert_eq!(read.map(drop), Err(TokenError::Signature));
    let token = Token::read(&text, key.public()).unwrap();
    let bytes = token.biscuit.to_vec().unwrap();
    let carries = |text: &str, session, asked| {
        let held = Held::new(key.public(), &[text.to_owned()], holder(session));
        held.is_ok_and(|held| ask(&held, asked))
    };
    assert!(carries(&text, Some("fix"), "publish 80"), "the control");
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        let read = Biscuit::from(&changed, key.public().0);
        // What nobody signs leaves a token that says the same.
        if let Ok(text) = read.and_then(|read| read.to_base64()) {
            assert!(!carries(&text, None, "publish 80"), "{at}");
            assert!(!carries(&text, Some("fix"), "publish 81"), "{at}");
        }
        assert!(
            Biscuit::from(&bytes[..at], key.public().0).is_err(),
            "cut at {at}"
        );
    }
    for text in ["", "x", "!", "En0", &"A".repeat(1 << 10), "\u{0}"] {
        assert!(Token::read(text, key.public()).is_err(), "{text:?}");
    }
    let huge = "A".repeat(TOKEN_BYTES_MAX + 1);
    assert_eq!(
        Token::read(&huge, key.public()).map(drop),
        Err(TokenError::TooLong)
    );
    assert!(Held::take(b"{}").is_none());
}

#[test]
fn the_last_block_cannot_be_taken_away() {
    let key = IssuingKey::generate();
    let wide = issue(&key, &terms(&["publish 80", "publish 81"])).unwrap();
    let narrow = attenuate(&wide, &terms(&["publish 80"])).unwrap();
    // Its holder has the narrower one alone: neither its key nor its signature fit the first block.
    use biscuit_auth::format::schema;
    use prost::Message as _;
    let bytes = Token::read(&narrow, key.public())
        .unwrap()
        .biscuit
        .to_vec()
        .unwrap();
    let mut proto = schema::Biscuit::decode(&bytes[..]).unwrap();
    assert!(Biscuit::from(proto.encode_to_vec(), key.public().0).is_ok());
    let taken = proto.blocks.pop().unwrap();
    assert!(Biscuit::from(proto.encode_to_vec(), key.public().0).is_err());
    proto.blocks = vec![taken.clone(), taken];
    assert!(Biscuit::from(proto.encode_to_vec(), key.public().0).is_err());
}

#[test]
fn a_token_that_is_revoked_has_the_ids_of_those_it_came_from() {
    let key = IssuingKey::generate();
    let first = issue(&key, &terms(&["publish 80"])).unwrap();
    let second = attenuate(&first, &terms(&["publish 80"])).unwrap();
    let ids = |text: &str| Token::read(text, key.public()).unwrap().ids();
    assert_eq!(ids(&first).len(), 1);
    assert_eq!(ids(&second)[..1], ids(&first)[..]);
    assert_ne!(ids(&second)[1], ids(&first)[0]);
}

/// A holder could have such a block counted again: a signature of ECDSA has a second form.
#[test]
fn a_block_whose_revocation_its_holder_could_undo_is_not_taken() {
    let key = IssuingKey::generate();
    let first = issue(&key, &terms(&["publish 80"])).unwrap();
    let appended_by = |next: KeyPair| {
        let token = UnverifiedBiscuit::from_base64(&first).unwrap();
        let token = token.append_with_keypair(&next, code("check if port(80)"));
        token.unwrap().to_base64().unwrap()
    };
    use biscuit_auth::builder::Algorithm;
    let weak = appended_by(KeyPair::new_with_algorithm(Algorithm::Secp256r1));
    let refused = TokenError::Foreign(Foreign::Key);
    let read = Token::read(&weak, key.public());
    assert_eq!(read.map(drop), Err(refused.clone()));
    assert_eq!(attenuate(&weak, &terms(&["publish 80"])), Err(refused));
    let good = appended_by(KeyPair::new_with_algorithm(Algorithm::Ed25519));
    assert!(ask(&held(&key, &good), "publish 80"), "the control");
}

/// Agreement between `meets` and tokens: a token narrowed from one right to another carries none of
/// what either does exactly where the two do not meet.
#[test]
fn rights_that_do_not_meet_are_told_apart_from_those_that_do() {
    let right = |text: &str| text.parse::<Right>().unwrap();
    for (one, other, expected) in [
        ("connect a.example:443", "connect a.example:443", true),
        ("connect a.example:443", "connect a.example:*", true),
        ("connect a.example:443", "connect a.example:80", false),
        ("connect a.example:443", "connect *:443", true),
        ("connect a.example:443", "connect *.example:443", true),
        ("connect example:443", "connect *.example:443", false),
        ("connect a.example:443", "connect b.example:443", false),
        ("connect *.b.example:443", "connect *.example:443", true),
        ("connect *.b.example:443", "connect *.c.example:443", false),
        ("connect 192.0.2.1:443", "connect *.example:443", false),
        (
            "connect a.example:443",
            "request GET https://a.example/v1",
            true,
        ),
        (
            "connect a.example:80",
            "request GET https://a.example/v1",
            false,
        ),
        (
            "resolve a.example",
            "request GET https://a.example/v1",
            true,
        ),
        (
            "resolve b.example",
            "request GET https://a.example/v1",
            false,
        ),
        (
            "request GET https://a.example/v1/*",
            "request * https://a.example/*",
            true,
        ),
        (
            "request GET https://a.example/v1/*",
            "request GET https://a.example/v2/*",
            false,
        ),
        (
            "request GET https://a.example/v1/x",
            "request GET https://a.example/v1/*",
            true,
        ),
        (
            "request GET https://a.example/*",
            "request POST https://a.example/*",
            false,
        ),
        (
            "request GET http://a.example/*",
            "request GET https://a.example/*",
            false,
        ),
        ("use-credential a", "use-credential *", true),
        ("use-credential a", "use-credential b", false),
        ("publish 80", "publish *", true),
        ("publish 80", "publish 81", false),
        ("publish 443", "connect a.example:443", false),
        ("use-credential a", "resolve a", false),
    ] {
        let (one, other) = (right(one), right(other));
        assert_eq!(one.meets(&other), expected, "{one}, {other}");
        assert_eq!(other.meets(&one), expected, "{other}, {one}");
    }
}

/// Rights that meet each other in every way that there is.
const MEETING: [&str; 15] = [
    "resolve *",
    "resolve a.example",
    "connect a.example:443",
    "connect *.example:443",
    "connect *:*",
    "connect 192.0.2.1:443",
    "request GET https://a.example/v1/*",
    "request * https://*.example/v1/x",
    "request POST https://a.example/*",
    "request GET http://a.example/*",
    "use-credential *",
    "use-credential key",
    "publish *",
    "publish 80",
    "publish 81",
];

/// A narrowed token carries the intersection and nothing else, except for the name and the
/// connection needed for it, which may be carried where nothing is sent there.
#[test]
fn rights_in_common_are_what_a_token_carries() {
    let key = IssuingKey::generate();
    let exact = [
        "past a.example:443",
        "past b.example:443",
        "past 192.0.2.1:443",
        "past other.org:443",
        "past a.example:80",
        "GET https://a.example/v1/x",
        "GET https://a.example/v1/y",
        "GET https://b.example/v1/x",
        "POST https://a.example/v1/x",
        "POST https://a.example/v2",
        "GET http://a.example/v1/x",
        "use-credential key",
        "use-credential other",
        "publish 80",
        "publish 81",
    ];
    let on_the_way = ["resolve a.example", "resolve b.org", "into a.example:443"];
    let right = |text: &str| text.parse::<Right>().unwrap();
    for (at, one) in MEETING.iter().enumerate() {
        let issued = issue(&key, &terms(&[one])).unwrap();
        for other in &MEETING[at..] {
            let narrowed = held(&key, &attenuate(&issued, &terms(&[other])).unwrap());
            let common = in_common(&[right(one)], &[right(other)]).unwrap();
            let anew = Terms {
                rights: common.clone(),
                ..Terms::default()
            };
            let anew = (!common.is_empty()).then(|| held(&key, &issue(&key, &anew).unwrap()));
            let is_in = |question: &str| anew.as_ref().is_some_and(|anew| ask(anew, question));
            for question in exact {
                let told = format!("{one}, {other}: {question}");
                assert_eq!(is_in(question), ask(&narrowed, question), "{told}");
            }
            for question in on_the_way {
                let told = format!("{one}, {other}: {question}");
                assert!(!is_in(question) || ask(&narrowed, question), "{told}");
            }
        }
    }
}

#[test]
fn rights_in_common_past_the_most_are_not_told() {
    let rights = |count: usize, text: &dyn Fn(usize) -> String| -> Vec<Right> {
        (0..count).map(|one| text(one).parse().unwrap()).collect()
    };
    let hosts = rights(20, &|one| format!("connect h{one}.example:*"));
    let ports = rights(20, &|one| format!("connect *:{}", one + 1));
    assert_eq!(in_common(&hosts, &ports), Err(TooManyRights));
    let few = in_common(&hosts[..4], &ports).unwrap();
    assert_eq!(few.len(), 80);
    assert_eq!(in_common(&few, &few).unwrap(), few);
}

#[test]
fn a_token_without_rules_carries_nothing() {
    let key = KeyPair::new();
    let issuing = IssuingKey(key);
    let token = Biscuit::builder().code("check if true").unwrap();
    let token = token.build(&issuing.0).unwrap().to_base64().unwrap();
    assert!(!ask(&held(&issuing, &token), "publish 80"));
    let stated = Biscuit::builder()
        .fact(fact("carried", &[Term::Bool(true)]))
        .unwrap();
    let stated = stated.build(&issuing.0).unwrap().to_base64().unwrap();
    let read = Token::read(&stated, issuing.public());
    assert_eq!(read.map(drop), Err(TokenError::Foreign(Foreign::Facts)));
}

/// The most expensive question that a holder can cause: a check as long as a token may be.
#[test]
fn the_longest_token_is_answered_in_time() {
    let key = IssuingKey::generate();
    let token = issue(&key, &terms(&["publish 80"])).unwrap();
    let all = vec!["$p"; 450].join(" | ");
    let check = format!("check if port($p), ({all}) > 0");
    let token = appended(&token, code(&check));
    let set: Vec<String> = (0..180).map(|one| one.to_string()).collect();
    let set = format!(
        "check if port($p), {{{0}}}.union({{{0}}}).contains($p)",
        set.join(", ")
    );
    let token = appended(&token, code(&set));
    assert!(token.len() <= TOKEN_BYTES_MAX, "{}", token.len());
    let held = held(&key, &token);
    let begun = std::time::Instant::now();
    assert!(ask(&held, "publish 80"));
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn calls_that_several_blocks_carry_are_those_of_all() {
    let key = IssuingKey::generate();
    let wide = issue(&key, &terms(&["call read path=docs/*", "call list"])).unwrap();
    let narrow = attenuate(&wide, &terms(&["call read path=docs/a/*"])).unwrap();
    let held = held(&key, &narrow);
    assert!(ask(&held, "call read path=docs/a/b"));
    assert!(!ask(&held, "call read path=docs/b"), "of one alone");
    assert!(!ask(&held, "call list"), "of the other alone");
    assert!(held.may_call("read"));
    assert!(!held.may_call("list") && !held.may_call("write"));
    let rights = |texts: &[&str]| terms(texts).rights;
    for (one, other, expected) in [
        ("call a*", "call ab x=1", Some("call ab x=1")),
        ("call a x=1", "call a y=2", Some("call a x=1 y=2")),
        ("call a x=d/*", "call a x=d/e", Some("call a x=d/e")),
        ("call a x=d/*", "call a x=d/../e", None),
        ("call a x=1", "call a x=2", None),
        ("call a", "call b", None),
    ] {
        let common = in_common(&rights(&[one]), &rights(&[other])).unwrap();
        let told: Vec<String> = common.iter().map(ToString::to_string).collect();
        assert_eq!(told.first().map(String::as_str), expected, "{one} {other}");
    }
}
