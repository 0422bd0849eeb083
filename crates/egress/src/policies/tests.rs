//! Decisions by the policies that are handed over.

use std::time::Duration;

use atoll_cedar::{Layer, PolicyFile, Principal, hand};
use atoll_model::Mode;
use atoll_model::network::{Scheme, Target};

use super::*;

fn policies(text: &str) -> Policies {
    layered(&[(Layer::User, "/policies/own.cedar", text)])
}

fn layered(files: &[(Layer, &str, &str)]) -> Policies {
    Policies::read(&handed(files)).unwrap()
}

fn handed(files: &[(Layer, &str, &str)]) -> Vec<u8> {
    handed_with(files, &Facts::new(0, Mode::Full, "default"))
}

fn handed_with(files: &[(Layer, &str, &str)], facts: &Facts) -> Vec<u8> {
    let principal = Principal {
        person: 1000,
        session: Some("run".to_owned()),
    };
    let file = |(layer, name, text): &(Layer, &str, &str)| {
        let file = PolicyFile {
            name: (*name).to_owned(),
            content: text.as_bytes().to_vec(),
        };
        (*layer, vec![file])
    };
    let files: Vec<_> = files.iter().map(file).collect();
    hand(&principal, facts, &files).unwrap()
}

fn host(text: &str) -> HostPart {
    text.parse().unwrap()
}

fn request(policies: &Policies, method: &str) -> Result<Option<ApprovalNeed>, Forbidden> {
    let (host, target) = (host("example.com"), Target::parse("/v1").unwrap());
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method,
        target: &target,
    };
    let passed = policies.now().request(&request, Follows::Nothing);
    passed.map(|passed| passed.asks)
}

#[test]
fn policies_absent_leave_all_to_rules() {
    let none = Policies::default();
    assert!(
        none.now()
            .connection(&host("example.com"), 443, Look::Past)
            .is_ok()
    );
    assert!(request(&none, "POST").is_ok());
    assert!(Policies::read(b"{}").is_none());
}

#[test]
fn request_denied_with_its_connection_or_name() {
    let about = |action: &str| {
        policies(&format!(
            "@id(\"no\") forbid(principal in Person::\"1000\", action == Action::\"{action}\", resource);"
        ))
    };
    let (name, port) = (host("example.com"), 443);
    for (action, connects, requests) in [
        ("resolve", false, false),
        ("connect", false, false),
        ("request", true, false),
        ("publish", true, true),
    ] {
        let policies = about(action);
        let connected = policies.now().connection(&name, port, Look::Into);
        assert_eq!(connected.is_ok(), connects, "{action}");
        assert_eq!(request(&policies, "GET").is_ok(), requests, "{action}");
    }
    // An address has no name to be asked for.
    let refused = about("resolve")
        .now()
        .connection(&host("192.0.2.1"), port, Look::Into);
    assert!(refused.is_ok());
    let refused = about("connect")
        .now()
        .connection(&name, port, Look::Past)
        .unwrap_err();
    assert_eq!(
        refused.why,
        "forbidden by policy no (/policies/own.cedar:1)"
    );
    assert_eq!(refused.shown, "forbidden by policy no");
    assert_eq!(refused.policy.as_deref(), Some("policy no"));
}

/// A NAT64 network carries an IPv6 address to the IPv4 address within it.
#[test]
fn mapped_address_is_judged_as_inner_one() {
    let target = Target::parse("/v1").unwrap();
    let requests = |policies: &Policies, host: &HostPart| {
        let request = Request {
            host,
            port: 443,
            scheme: Scheme::Https,
            method: "GET",
            target: &target,
        };
        policies.now().request(&request, Follows::Nothing).is_ok()
    };
    for action in ["connect", "request"] {
        for (scope, when) in [
            (
                "resource",
                "context has ip && context.ip.isInRange(ip(\"10.0.0.0/8\"))",
            ),
            ("resource == Host::\"10.1.2.3\"", "true"),
        ] {
            let policies = policies(&format!(
                "forbid(principal, action == Action::\"{action}\", {scope}) when {{ {when} }};"
            ));
            for (name, is_open) in [
                ("[64:ff9b::a01:203]", false),
                ("10.1.2.3", false),
                ("[64:ff9b::c000:201]", true),
                ("[64:ff9c::a01:203]", true),
                ("example.com", true),
            ] {
                let host = host(name);
                assert_eq!(
                    requests(&policies, &host),
                    is_open,
                    "{action} {when} {name}"
                );
                let connects = policies.now().connection(&host, 443, Look::Past).is_ok();
                let is_free = is_open || action == "request";
                assert_eq!(connects, is_free, "{action} {when} {name}");
            }
        }
    }
}

#[test]
fn policies_use_time_of_question() {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let key = "KEY".parse().unwrap();
    let until = |time: u64| {
        let text = "forbid(principal, action == Action::\"use_credential\", resource)";
        policies(&format!("{text} when {{ context.time > {time} }};"))
    };
    assert!(until(now + 3600).now().credential(&key).is_ok());
    assert!(until(now - 1).now().credential(&key).is_err());
}

/// An obligation that is not carried out here is a denial.
#[test]
fn unsupported_obligation_denies() {
    for annotation in [
        "@approve(\"team-a\")",
        "@redact(\"cookie\")",
        "@log(\"It was.\")",
    ] {
        let text =
            format!("{annotation} permit(principal, action == Action::\"request\", resource);");
        assert!(request(&policies(&text), "GET").is_err(), "{annotation}");
    }
    let plain = "permit(principal, action == Action::\"request\", resource);";
    assert!(request(&policies(plain), "GET").unwrap().is_none());
}

/// Policies have a person asked as rules do, and the question names the policy.
#[test]
fn approval_obligation_is_asked() {
    let text = "@id(\"writes\") @approve(\"person\") permit(principal, action in [Action::\"request\", Action::\"connect\"], resource);";
    let asked = request(&policies(text), "POST").unwrap().unwrap();
    assert!(
        asked.rule.contains("policy writes (/policies/own.cedar:1)"),
        "{}",
        asked.rule
    );
    assert!(!asked.is_of_level);
    let connected = policies(text)
        .now()
        .connection(&host("example.com"), 443, Look::Past);
    assert!(connected.unwrap().is_some());
    // A name is not: nobody is asked about one.
    let names = "@approve(\"person\") permit(principal, action == Action::\"resolve\", resource);";
    let refused = policies(names)
        .now()
        .connection(&host("example.com"), 443, Look::Past);
    assert!(refused.is_err());
    assert_eq!(ApprovalNeed::beside(None, None), None);
}

/// An approval of a level's question is none of a question by a person's own policy.
#[test]
fn approval_of_one_policy_is_none_of_another() {
    let level = (
        Layer::Level,
        "level/medium-layered.cedar",
        "@id(\"level-sends\") @approve(\"person\") permit(principal, action == Action::\"request\", resource) when { context.sends };\n\
         permit(principal, action == Action::\"request\", resource) unless { context.sends };",
    );
    let own = (
        Layer::User,
        "/policies/own.cedar",
        "@id(\"own-connect\") @approve(\"person\") permit(principal, action == Action::\"connect\", resource);",
    );
    let both = request(&layered(&[level, own]), "POST").unwrap().unwrap();
    for one in ["policy level-sends;", "policy own-connect ("] {
        assert!(both.rule.contains(one), "{}", both.rule);
    }
    assert!(!both.is_of_level);
    // The control: each alone is asked by alone.
    let alone = request(&layered(&[level]), "POST").unwrap().unwrap();
    assert!(alone.is_of_level && !alone.rule.contains("own-connect"));
    let alone = request(&layered(&[level, own]), "GET").unwrap().unwrap();
    assert!(!alone.is_of_level && !alone.rule.contains("level-sends"));
}

/// A policy that merely permits adds no words to a question.
#[test]
fn permit_without_obligation_asks_nobody() {
    let asks = "@id(\"asks\") @approve(\"person\") permit(principal, action == Action::\"request\", resource);\n\
         @id(\"beside\") permit(principal, action == Action::\"request\", resource);";
    let soothes = "@id(\"soothes\") @reason(\"this is harmless\") permit(principal, action == Action::\"request\", resource);";
    let asked = layered(&[
        (Layer::Level, "level/medium-layered.cedar", asks),
        (Layer::User, "/policies/own.cedar", soothes),
        (Layer::Project, "/project/atoll.cedar", soothes),
    ]);
    let asked = request(&asked, "POST").unwrap().unwrap();
    assert_eq!(asked.rule, "a person is asked by policy asks");
    assert!(asked.is_of_level);
}

/// A lease for a whole rule is matched by its text: no two sets of policies share one.
#[test]
fn bounded_long_texts_stay_distinct() {
    let asked = |last: &str| {
        let one = |id: &str| {
            format!(
                "@id(\"{id}\") @approve(\"person\") permit(principal, action == Action::\"request\", resource);"
            )
        };
        let mut all: Vec<String> = (0..40).map(|at| one(&format!("asking-{at}"))).collect();
        all.push(one(last));
        request(&policies(&all.join("\n")), "POST")
            .unwrap()
            .unwrap()
    };
    let (one, other) = (asked("one"), asked("other"));
    let alike = one.rule.bytes().zip(other.rule.bytes());
    assert!(alike.take_while(|(one, other)| one == other).count() > ASKED_TEXT_BYTES_MAX);
    assert_ne!(one.rule, other.rule);
    assert_eq!(one.rule, asked("one").rule);
    assert!(one.rule.len() < 2 * ASKED_TEXT_BYTES_MAX);
}

/// A needed approval is a denial where nobody is asked.
#[test]
fn strict_level_denies_approvals() {
    let file = PolicyFile {
        name: "/policies/own.cedar".to_owned(),
        content: b"@id(\"asks\") @approve(\"person\") permit(principal, action in [Action::\"request\", Action::\"connect\"], resource);\n\
            @id(\"beside\") permit(principal, action == Action::\"request\", resource);".to_vec(),
    };
    let principal = Principal {
        person: 1000,
        session: Some("run".to_owned()),
    };
    for is_strict in [false, true] {
        let facts = Facts {
            is_strict,
            ..Facts::new(0, Mode::Full, "default")
        };
        let files = [(Layer::User, vec![file.clone()])];
        let policies = Policies::read(&hand(&principal, &facts, &files).unwrap()).unwrap();
        let connected = policies
            .now()
            .connection(&host("example.com"), 443, Look::Past);
        assert_eq!(connected.is_err(), is_strict);
        match request(&policies, "POST") {
            Ok(asked) => assert!(!is_strict && asked.is_some()),
            Err(refused) => {
                assert!(is_strict);
                let why = "to be approved, by policy asks; trust mode strict denies that";
                assert_eq!(refused.shown, why);
                assert_eq!(refused.policy.as_deref(), Some("policy asks"));
            }
        }
    }
}

/// A flow in both directions goes on while anything is read: whoever vouches for its host, it
/// counts as untrusted from its beginning, unless it is with a model.
#[test]
fn two_way_flow_is_judged_as_having_read() {
    let asking = "@id(\"a\") permit(principal, action in [Action::\"connect\", Action::\"request\"], resource) unless { context has labels && context.labels.contains(\"untrusted\") };";
    let principal = Principal {
        person: 1000,
        session: Some("run".to_owned()),
    };
    let file = PolicyFile {
        name: "/policies/own.cedar".to_owned(),
        content: asking.as_bytes().to_vec(),
    };
    let facts = Facts {
        labels: Some(BTreeSet::new()),
        trusted: vec!["corp.example".to_owned(), "model.example".to_owned()],
        models: vec!["model.example".to_owned()],
        ..Facts::new(0, Mode::Full, "default")
    };
    let handed = hand(&principal, &facts, &[(Layer::User, vec![file])]).unwrap();
    let policies = Policies::read(&handed).unwrap();
    let target = Target::parse("/v1").unwrap();
    for (name, passes) in [
        ("corp.example", false),
        ("example.org", false),
        ("192.0.2.1", false),
        ("model.example", true),
    ] {
        let host = &host(name);
        let past = policies.now().connection(host, 443, Look::Past);
        assert_eq!(past.is_ok(), passes, "{name}");
        let request = Request {
            host,
            port: 443,
            scheme: Scheme::Https,
            method: "GET",
            target: &target,
        };
        let messages = policies.now().request(&request, Follows::Messages);
        assert_eq!(messages.is_ok(), passes, "{name}");
        // The control: what is looked into has read nothing yet.
        assert!(
            policies.now().connection(host, 443, Look::Into).is_ok(),
            "{name}"
        );
        assert!(
            policies.now().request(&request, Follows::Body).is_ok(),
            "{name}"
        );
    }
}

/// An approval is for the question that was asked: another one that came meanwhile is asked anew.
#[test]
fn approval_of_another_question_is_refused() {
    let asks = |rule: &str| {
        Some(ApprovalNeed {
            rule: rule.to_owned(),
            is_of_level: false,
        })
    };
    for now in [None, asks("policy one")] {
        assert!(ApprovalNeed::still("policy one", None, now).is_ok());
    }
    for now in ["policy two", "policy one; policy two"] {
        let denied = ApprovalNeed::still("policy one", None, asks(now)).unwrap_err();
        assert!(denied.shown.contains("try again"), "{}", denied.shown);
    }
}

/// Deeds of a run lower its reputation, once for each kind, and nothing raises it.
#[test]
fn reputation_falls_during_run() {
    let text =
        "@id(\"much\") permit(principal, action, resource) when { context.reputation >= 40 };";
    let facts = Facts {
        reputation: 70,
        ..Facts::new(0, Mode::Full, "default")
    };
    let handed = handed_with(&[(Layer::User, "own.cedar", text)], &facts);
    let policies = Policies::read(&handed).unwrap();
    assert!(request(&policies, "GET").is_ok());
    for _ in 0..3 {
        policies.did(HistoryEvent::Misuse);
        policies.did(HistoryEvent::Vouched);
        assert!(request(&policies, "GET").is_ok());
    }
    policies.did(HistoryEvent::Refused);
    let denied = request(&policies, "GET").unwrap_err();
    assert!(denied.why.contains("much"), "{}", denied.why);
    policies.did(HistoryEvent::Vouched);
    assert!(request(&policies, "GET").is_err());
    // Where nobody says what it has, it has nothing.
    assert!(request(&self::policies(text), "GET").is_err());
}

/// Returns a file as it is handed over: at its beginning.
fn file(text: &[u8]) -> std::os::fd::OwnedFd {
    let file = atoll_sys::descriptor::sealed_memory(c"policies", text).unwrap();
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
    file
}

/// Reloaded policies decide from then on, on open flows as well; a decision begun is finished by
/// its own.
#[tokio::test]
async fn reload_applies_to_new_and_open_flows() {
    let forbids = |action: &str, method: &str| {
        let text = format!(
            "@id(\"{method}\") forbid(principal, action == Action::\"{action}\", resource) \
             when {{ context.method == \"{method}\" }};"
        );
        handed(&[(Layer::User, "/policies/own.cedar", &text)])
    };
    let policies = Policies::read(&forbids("request", "POST")).unwrap();
    let before = policies.now();
    assert!(request(&policies, "POST").is_err());
    assert!(request(&policies, "PUT").is_ok());
    for wrong in [&b""[..], b"{}", b"forbid", &vec![b' '; 17 << 20]] {
        assert!(!policies.reload(1, Some(file(wrong))));
        assert_eq!(policies.now().version(), 0);
        assert!(request(&policies, "POST").is_err());
    }
    let method = |now: &PolicySnapshot<'_>, method: &str| {
        let (host, target) = (host("example.com"), Target::parse("/v1").unwrap());
        let request = Request {
            host: &host,
            port: 443,
            scheme: Scheme::Https,
            method,
            target: &target,
        };
        now.request(&request, Follows::Nothing).map(drop)
    };
    let ends = policies.denied_since(0, |now| method(now, "PUT"));
    let stays = policies.denied_since(0, |now| method(now, "GET"));
    let soon = Duration::from_millis(20);
    tokio::pin!(ends, stays);
    assert!(tokio::time::timeout(soon, &mut ends).await.is_err());
    assert!(policies.reload(1, Some(file(&forbids("request", "PUT")))));
    assert_eq!((before.version(), policies.now().version()), (0, 1));
    assert!(method(&before, "POST").is_err() && method(&before, "PUT").is_ok());
    assert!(request(&policies, "POST").is_ok());
    assert!(request(&policies, "PUT").is_err());
    let why = tokio::time::timeout(Duration::from_secs(60), ends)
        .await
        .unwrap();
    assert!(why.contains("policy PUT"), "{why}");
    assert!(tokio::time::timeout(soon, &mut stays).await.is_err());
    // What these have decided is not asked again until there are others.
    let own = policies.denied_since(1, |now| method(now, "PUT"));
    assert!(tokio::time::timeout(soon, own).await.is_err());
    assert!(policies.reload(2, None));
    assert!(request(&policies, "PUT").is_ok());
}

/// Counts for rates are not forgotten with the policies that counted them.
#[test]
fn reload_keeps_rates_and_labels() {
    let text =
        "@id(\"two\") @rate(\"2/h\") permit(principal, action == Action::\"connect\", resource);";
    let rated = handed(&[(Layer::User, "/policies/own.cedar", text)]);
    let policies = Policies::read(&rated).unwrap();
    let connects = || {
        let now = policies.now();
        now.begin_connection(&host("example.com"), 443, Look::Past)
            .is_ok()
    };
    assert!(connects() && connects() && !connects());
    assert!(policies.reload(1, None));
    assert!(connects(), "nothing counts");
    assert!(policies.reload(2, Some(file(&rated))));
    assert!(!connects());
    // Labels that nobody has noted so far are not begun with.
    let principal = Principal {
        person: 1000,
        session: None,
    };
    let noting = Facts {
        labels: Some(BTreeSet::new()),
        ..Facts::new(0, Mode::Full, "default")
    };
    let noting = hand(&principal, &noting, &[]).unwrap();
    assert!(!policies.reload(3, Some(file(&noting))));
    assert!(
        Policies::read(&noting)
            .unwrap()
            .reload(1, Some(file(&noting)))
    );
}

#[test]
fn token_without_right_denies() {
    use atoll_tokens::{Held, Holder, IssuingKey, Terms, issue};
    let key = IssuingKey::generate();
    let rights = [
        "connect 192.0.2.1:443",
        "request GET https://api.example.com/v1/*",
        "use-credential one",
        "publish 80",
    ];
    let terms = Terms {
        rights: rights.iter().map(|right| right.parse().unwrap()).collect(),
        ..Terms::default()
    };
    let holder = Holder {
        run: atoll_model::RunId::new(1, 1),
        session: None,
        workspace: "/w".to_owned(),
        person: 7,
        is_bound: false,
    };
    let held = Held::new(key.public(), &[issue(&key, &terms).unwrap()], holder);
    let without = Policies::default();
    let with = Policies::default().holding(Some(held.unwrap()));
    assert!(with.now().are_about_requests() && !without.now().are_about_requests());
    let name = |name: &str| HostName::parse(name).unwrap();
    let [near, far]: [HostPart; 2] =
        ["api.example.com", "example.com"].map(|one| one.parse().unwrap());
    let address: HostPart = "192.0.2.1".parse().unwrap();
    let targets = ["/v1/a", "/v2/a"].map(|one| atoll_model::network::Target::parse(one).unwrap());
    let request = |host, target| Request {
        host,
        port: 443,
        scheme: atoll_model::network::Scheme::Https,
        method: "GET",
        target,
    };
    let (good, bad) = (request(&near, &targets[0]), request(&near, &targets[1]));
    let answers = |policies: &Policies| {
        let connects = |host, port, look| policies.now().connection(host, port, look).is_ok();
        let begins = |host, port, look| policies.now().begin_connection(host, port, look).is_ok();
        let sends = |one| policies.now().request(one, Follows::Nothing).is_ok();
        let sent = |one| {
            policies
                .now()
                .begin_request(one, Follows::Nothing.into())
                .is_ok()
        };
        let carried = [
            policies.now().name(&name("api.example.com")).is_ok(),
            connects(&near, 443, Look::Into) && begins(&near, 443, Look::Into),
            connects(&address, 443, Look::Past) && begins(&address, 443, Look::Past),
            sends(&good) && sent(&good),
            policies.now().credential(&"one".parse().unwrap()).is_ok(),
            policies.closed(80).is_none(),
            // What Atoll asks for itself is not the program's.
            policies
                .now()
                .request_for_credential(&bad, Follows::Body)
                .is_ok(),
            policies.now().own_request(&bad, Follows::Body).is_ok(),
        ];
        let others = [
            policies.now().name(&name("example.com")).is_ok(),
            connects(&near, 443, Look::Past) || begins(&near, 443, Look::Past),
            connects(&far, 443, Look::Into) || begins(&far, 443, Look::Into),
            sends(&bad) || sent(&bad),
            policies.now().credential(&"two".parse().unwrap()).is_ok(),
            policies.closed(81).is_none(),
        ];
        (carried, others)
    };
    assert_eq!(answers(&without), ([true; 8], [true; 6]), "the control");
    assert_eq!(answers(&with), ([true; 8], [false; 6]));
    let why = with.now().credential(&"two".parse().unwrap()).unwrap_err();
    assert_eq!(
        (why.by, &*why.why),
        (DenialCause::Token, atoll_tokens::NOT_CARRIED)
    );
}

/// Redactions of several policies, of one layer or many, add up; nothing is removed from Atoll's
/// own requests, so those are denied.
#[test]
fn redactions_of_all_policies_apply() {
    use hyper::header::{HeaderMap, HeaderName, HeaderValue};

    use crate::limits::Direction;

    let permit = |names: &str| {
        format!("@redact(\"{names}\") permit(principal, action == Action::\"request\", resource);")
    };
    let (user, project) = (permit("header:a"), permit("response-header:b, header:C"));
    let policies = layered(&[
        (Layer::User, "/policies/own.cedar", &user),
        (Layer::Project, "/srv/atoll.cedar", &project),
    ]);
    let (host, target) = (host("example.com"), Target::parse("/v1").unwrap());
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method: "GET",
        target: &target,
    };
    let now = policies.now();
    let begun = now
        .begin_request(&request, Follows::Nothing.into())
        .unwrap();
    let all = begun.redactions;
    assert_eq!(
        all.told().as_deref(),
        Some("header:a,header:c,response-header:b")
    );
    let left = |way: Direction| {
        let names = ["a", "b", "c", "d"].map(HeaderName::from_static);
        let one = |name| (name, HeaderValue::from_static("x"));
        let mut headers: HeaderMap = names.into_iter().map(one).collect();
        headers.append("a", HeaderValue::from_static("y"));
        all.take_out(way, &mut headers);
        let mut left: Vec<String> = headers.keys().map(ToString::to_string).collect();
        left.sort();
        left.concat()
    };
    assert_eq!(
        (left(Direction::Up), left(Direction::Down)),
        ("bd".into(), "acd".into())
    );
    let own = now.request_for_credential(&request, Follows::Body);
    assert!(own.unwrap_err().why.contains("header:a,header:c"));
    assert!(now.own_request(&request, Follows::Body).is_err());
    // The control: without a name nothing is taken out, and Atoll may ask.
    let plain = self::policies("permit(principal, action == Action::\"request\", resource);");
    let own = plain.now().request_for_credential(&request, Follows::Body);
    assert!(own.unwrap().is_none());
    let passed = plain.now().request(&request, Follows::Nothing).unwrap();
    assert_eq!(passed.redactions.told(), None);
    assert!(all.cover(&passed.redactions) && !passed.redactions.cover(&all));
}
