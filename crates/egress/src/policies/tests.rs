//! What is handed over decides here.

use atoll_cedar::{Layer, PolicyFile, hand};
use atoll_model::Mode;
use atoll_model::network::{Scheme, Target};

use super::*;

fn policies(text: &str) -> Policies {
    layered(&[(Layer::User, "/policies/own.cedar", text)])
}

fn layered(files: &[(Layer, &str, &str)]) -> Policies {
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
    let facts = Facts::new(0, Mode::Full, "default");
    let files: Vec<_> = files.iter().map(file).collect();
    let handed = hand(&principal, &facts, &files).unwrap();
    Policies::read(&handed).unwrap()
}

fn host(text: &str) -> HostPart {
    text.parse().unwrap()
}

fn request(policies: &Policies, method: &str) -> Result<Option<Asks>, Forbidden> {
    let (host, target) = (host("example.com"), Target::parse("/v1").unwrap());
    let request = Request {
        host: &host,
        port: 443,
        scheme: Scheme::Https,
        method,
        target: &target,
    };
    policies.request(&request, Follows::Nothing)
}

#[test]
fn without_policies_everything_is_left_to_the_rules() {
    let none = Policies::default();
    assert!(
        none.connection(&host("example.com"), 443, Look::Past)
            .is_ok()
    );
    assert!(request(&none, "POST").is_ok());
    assert!(Policies::read(b"{}").is_none());
}

#[test]
fn a_request_is_never_without_its_connection_nor_that_without_its_name() {
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
        let connected = policies.connection(&name, port, Look::Into);
        assert_eq!(connected.is_ok(), connects, "{action}");
        assert_eq!(request(&policies, "GET").is_ok(), requests, "{action}");
    }
    // An address has no name to be asked for.
    let refused = about("resolve").connection(&host("192.0.2.1"), port, Look::Into);
    assert!(refused.is_ok());
    let refused = about("connect")
        .connection(&name, port, Look::Past)
        .unwrap_err();
    assert_eq!(
        refused.why,
        "forbidden by policy no (/policies/own.cedar:1)"
    );
    assert_eq!(refused.inside, "forbidden by policy no");
    assert_eq!(refused.policy.as_deref(), Some("policy no"));
}

/// A network that translates addresses carries one of IPv6 to the one of IPv4 within it.
#[test]
fn an_address_is_held_to_what_is_said_of_the_one_within_it() {
    let target = Target::parse("/v1").unwrap();
    let requests = |policies: &Policies, host: &HostPart| {
        let request = Request {
            host,
            port: 443,
            scheme: Scheme::Https,
            method: "GET",
            target: &target,
        };
        policies.request(&request, Follows::Nothing).is_ok()
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
                let connects = policies.connection(&host, 443, Look::Past).is_ok();
                let is_free = is_open || action == "request";
                assert_eq!(connects, is_free, "{action} {when} {name}");
            }
        }
    }
}

#[test]
fn the_time_is_that_of_the_question() {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let key = "KEY".parse().unwrap();
    let until = |time: u64| {
        let text = "forbid(principal, action == Action::\"use_credential\", resource)";
        policies(&format!("{text} when {{ context.time > {time} }};"))
    };
    assert!(until(now + 3600).credential(&key).is_ok());
    assert!(until(now - 1).credential(&key).is_err());
}

/// Of a connection nobody is told more than its record says.
#[test]
fn what_is_not_carried_out_denies() {
    for annotation in [
        "@approve(\"team-a\")",
        "@rate(\"1/s\")",
        "@log(\"It was.\")",
    ] {
        let text =
            format!("{annotation} permit(principal, action == Action::\"request\", resource);");
        assert!(request(&policies(&text), "GET").is_err(), "{annotation}");
    }
    let plain = "permit(principal, action == Action::\"request\", resource);";
    assert!(request(&policies(plain), "GET").unwrap().is_none());
}

/// A person is asked by policies as by rules, and told by which.
#[test]
fn what_policies_ask_about_is_asked_about() {
    let text = "@id(\"writes\") @approve(\"person\") permit(principal, action in [Action::\"request\", Action::\"connect\"], resource);";
    let asked = request(&policies(text), "POST").unwrap().unwrap();
    assert!(
        asked.rule.contains("policy writes (/policies/own.cedar:1)"),
        "{}",
        asked.rule
    );
    assert!(!asked.is_of_level);
    let connected = policies(text).connection(&host("example.com"), 443, Look::Past);
    assert!(connected.unwrap().is_some());
    // A name is not: nobody is asked about one.
    let names = "@approve(\"person\") permit(principal, action == Action::\"resolve\", resource);";
    let refused = policies(names).connection(&host("example.com"), 443, Look::Past);
    assert!(refused.is_err());
    assert_eq!(Asks::beside(None, None), None);
}

/// A yes to what a level asks about is none to what a person's policy asks about besides.
#[test]
fn no_question_stands_in_for_another_one() {
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

/// What merely permits puts no words into a question.
#[test]
fn who_merely_permits_does_not_ask() {
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

/// A lease for a whole rule goes by its text: no two sets of policies share one.
#[test]
fn what_is_too_long_to_be_shown_is_told_apart() {
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

/// Where nobody is asked, what policies would ask about does not happen.
#[test]
fn strict_denies_what_policies_ask_about() {
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
        let connected = policies.connection(&host("example.com"), 443, Look::Past);
        assert_eq!(connected.is_err(), is_strict);
        match request(&policies, "POST") {
            Ok(asked) => assert!(!is_strict && asked.is_some()),
            Err(refused) => {
                assert!(is_strict);
                let why = "to be approved, by policy asks; trust mode strict denies that";
                assert_eq!(refused.inside, why);
                assert_eq!(refused.policy.as_deref(), Some("policy asks"));
            }
        }
    }
}
