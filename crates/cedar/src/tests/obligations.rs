//! Obligations: read strictly, and of two the stricter.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::{compiled, facts, faults, principal};
use crate::{Asked, Decision, Effect, Obligations, Question, Rate, Standing, closing, remarks};
use atoll_model::Shadow;

fn read(text: &str) -> Decision {
    let (principal, facts) = (principal(), facts());
    let asked = Asked::Read(Path::new("/srv"));
    compiled(text).authorize(&Question {
        principal: &principal,
        asked,
        facts: &facts,
    })
}

#[test]
fn annotations_are_typed_values() {
    let check = |annotation: &str, is_good: bool| {
        let text = format!("{annotation} permit(principal, action, resource);");
        assert_eq!(faults(&text).is_empty(), is_good, "{annotation}");
    };
    for good in [
        "@approve(\"person\")",
        "@approve(\"team-a,team-b\")",
        "@redact(\"email, phone\")",
        "@redact(\"header:X-A, response-header:set-cookie\")",
        "@rate(\"100/m\")",
        "@timeout(\"90s\")",
        "@timeout(\"2h\")",
        "@timeout(\"1d\")",
        "@checkpoint",
        "@label(\"customer-data\")",
        "@shadow",
        "@shadow(\"twice\")",
        "@log(\"It was read.\")",
    ] {
        check(good, true);
    }
    for bad in [
        "@approve",
        "@approve(\"\")",
        "@approve(\"a b\")",
        "@redact(\"a,,b\")",
        "@redact(\"header:a b\")",
        "@rate(\"100\")",
        "@rate(\"0/m\")",
        "@rate(\"-1/m\")",
        "@rate(\"+1/m\")",
        "@rate(\"1/w\")",
        "@rate(\"01/m\")",
        "@rate(\"99999999999/m\")",
        "@timeout(\"\")",
        "@timeout(\"90\")",
        "@timeout(\"0s\")",
        "@timeout(\"721h\")",
        "@timeout(\"31d\")",
        "@timeout(\"1.5h\")",
        "@checkpoint(\"x\")",
        "@shadow(\"once\")",
        "@shadow(\"Twice\")",
        "@log",
        "@log(\" \")",
    ] {
        check(bad, false);
    }
}

#[test]
fn all_policies_that_permit_bind() {
    let found = read(
        "@timeout(\"2h\") @rate(\"10/s\") @log(\"a\") permit(principal, action, resource);
         @timeout(\"30m\") @rate(\"100/h\") @label(\"x\") permit(principal, action == Action::\"read\", resource);
         @timeout(\"1s\") @checkpoint permit(principal, action == Action::\"run\", resource);",
    );
    let expected = Obligations {
        timeout: Some(Duration::from_secs(1800)),
        rate: [
            Rate {
                count: 10,
                seconds: 1,
            },
            Rate {
                count: 100,
                seconds: 3600,
            },
        ]
        .into(),
        log: ["a".to_owned()].into(),
        label: ["x".to_owned()].into(),
        ..Obligations::default()
    };
    assert_eq!((found.effect, found.obligations), (Effect::Allow, expected));
}

#[test]
fn what_nobody_knows_denies_where_it_decides() {
    let text =
        "@id(\"odd\") @quarantine(\"x\") permit(principal, action == Action::\"read\", resource);";
    let found = read(text);
    assert_eq!(found.effect, Effect::Deny);
    assert!(found.why().contains("@quarantine"), "{}", found.why());
    // Where it does not decide it changes nothing.
    let elsewhere = text.replace("\"read\"", "\"run\"");
    assert_eq!(
        read(&format!(
            "{elsewhere}\npermit(principal, action, resource);"
        ))
        .effect,
        Effect::Allow
    );
}

#[test]
fn a_check_refuses_what_is_not_carried_out() {
    let text = "@id(\"a\") @timeout(\"1s\") permit(principal, action == Action::\"run\", resource);
@id(\"b\") @timeout(\"2s\") permit(principal, action in [Action::\"read\", Action::\"run\"], resource);
@id(\"c\") @odd permit(principal, action == Action::\"connect\", resource);
@id(\"d\") permit(principal, action == Action::\"write\", resource);
@id(\"e\") forbid(principal, action in [Action::\"write\", Action::\"read\"], resource is Path);
@id(\"f\") forbid(principal, action == Action::\"write\", resource is Path in Path::\"/srv\") when { context.time > 1 };
@id(\"g\") permit(principal, action == Action::\"publish\", resource) when { false };
@id(\"h\") permit(principal, action == Action::\"promote\", resource);
@id(\"i\") permit(principal, action == Action::\"promote\", resource);";
    let found = remarks(&compiled(text));
    let lines: Vec<(u32, Standing)> = found.iter().map(|one| (one.line, one.standing)).collect();
    let (told, idle, refused) = (Standing::Note, Standing::Idle, Standing::Refused);
    assert_eq!(
        lines,
        [(2, refused), (3, refused), (6, told), (7, idle), (9, told)],
        "{found:#?}"
    );
    assert!(
        found[0]
            .what
            .contains("@timeout is not carried out here for read")
    );
}

/// A forbid that no question matches would be relied on; a permit is only idle.
#[test]
fn what_nothing_asks_for_is_told() {
    let text = "forbid(principal, action, resource is Artifact);
permit(principal, action, resource is Artifact);
forbid(principal, action, resource is Path);";
    let found = remarks(&compiled(text));
    let told: Vec<(u32, Standing)> = found.iter().map(|one| (one.line, one.standing)).collect();
    assert!(
        told.contains(&(1, Standing::Refused)) && told.contains(&(2, Standing::Idle)),
        "{found:#?}"
    );
    assert!(told.iter().all(|(line, _)| *line != 3), "{found:#?}");
    assert_eq!(crate::refused(&compiled(text)).len(), 1);
}

#[test]
fn a_permit_beneath_a_forbid_never_permits() {
    let text =
        "@id(\"p\") permit(principal, action == Action::\"write\", resource in Path::\"/srv\");
@id(\"f\") forbid(principal, action, resource);";
    let found = remarks(&compiled(text));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        found[0].what,
        "it never permits: policy f (line 2) forbids all that it is about"
    );
    let text = text.replace("resource);", "resource) when { context.time > 1 };");
    assert_eq!(remarks(&compiled(&text)), []);
}

fn any() -> impl Strategy<Value = Obligations> {
    let names = || proptest::collection::btree_set("[a-c]", 0..3);
    let rate = (1..4_u32, prop::sample::select(vec![1, 60]))
        .prop_map(|(count, seconds)| Rate { count, seconds });
    let rates = proptest::collection::btree_set(rate, 0..3);
    (
        names(),
        names(),
        rates,
        proptest::option::of(1..5_u64),
        any_bool(),
        names(),
        prop::sample::select(vec![None, Some(Shadow::Once), Some(Shadow::Twice)]),
    )
        .prop_map(
            |(approve, redact, rate, timeout, checkpoint, label, shadow)| Obligations {
                approve,
                redact,
                rate,
                timeout: timeout.map(Duration::from_secs),
                checkpoint,
                label,
                shadow,
                log: Default::default(),
            },
        )
}

fn any_bool() -> impl Strategy<Value = bool> {
    proptest::bool::ANY
}

proptest! {
    /// Obligations together bind at least as much as each alone, in any order.
    #[test]
    fn of_two_the_stricter_counts(one in any(), two in any(), three in any()) {
        let sum = |all: &[&Obligations]| all.iter().fold(Obligations::default(), |mut sum, next| { sum.add(next); sum });
        let both = sum(&[&one, &two]);
        prop_assert_eq!(&both, &sum(&[&two, &one]));
        prop_assert_eq!(sum(&[&both, &three]), sum(&[&one, &sum(&[&two, &three])]));
        prop_assert_eq!(&sum(&[&both, &one]), &both);
        for single in [&one, &two] {
            prop_assert!(single.approve.is_subset(&both.approve) && single.redact.is_subset(&both.redact));
            prop_assert!(single.rate.is_subset(&both.rate) && single.label.is_subset(&both.label));
            prop_assert!(both.checkpoint >= single.checkpoint);
            prop_assert!(single.timeout.is_none_or(|time| both.timeout.is_some_and(|least| least <= time)));
        }
    }
}

/// A name with `*.` is an ancestor of others: compared for equality it would never match.
#[test]
fn a_wildcard_that_is_compared_is_refused() {
    let check = |text: &str, is_told: bool| {
        let found = crate::refused(&compiled(text));
        let told: Vec<&str> = found.iter().map(|one| one.what.as_str()).collect();
        let name = "nothing is `*.example.com` itself: write `in Host::\"*.example.com\"`";
        assert_eq!(told == [name], is_told, "{text}: {told:?}");
        assert_eq!(found.is_empty(), !is_told, "{text}: {told:?}");
    };
    let scope = |effect: &str, by: &str| {
        format!(
            "{effect}(principal, action == Action::\"connect\", resource {by} Host::\"*.example.com\");"
        )
    };
    check(&scope("forbid", "=="), true);
    check(&scope("permit", "=="), true);
    check(&scope("forbid", "in"), false);
    let condition = |condition: &str| {
        format!(
            "forbid(principal, action == Action::\"connect\", resource) unless {{ {condition} }};"
        )
    };
    check(&condition("resource == Host::\"*.example.com\""), true);
    check(
        &condition("context.port == 1 || !(Host::\"*.example.com\" != resource)"),
        true,
    );
    check(
        &condition("[Host::\"*.example.com\"].contains(resource)"),
        true,
    );
    check(&condition("resource in Host::\"*.example.com\""), false);
    check(&condition("resource in [Host::\"*.example.com\"]"), false);
    check(
        &condition("resource is Host in Host::\"*.example.com\""),
        false,
    );
    check(&condition("resource == Host::\"example.com\""), false);
}

/// A program can be called by many paths.
#[test]
fn a_program_that_is_meant_as_it_is_typed_is_told() {
    let check = |action: &str, by: &str, is_told: bool| {
        let text = format!("forbid(principal, action == Action::\"{action}\", resource {by});");
        let found = remarks(&compiled(&text));
        let told = found.iter().any(|one| {
            one.what
                .contains("only where a run's command is typed so: write `in Program::\"git\"`")
        });
        assert_eq!(told, is_told, "{text}: {found:?}");
    };
    check("run", "== Program::\"/usr/bin/git\"", true);
    check("run", "in Program::\"/usr/bin/git\"", true);
    check("run", "== Program::\"git\"", true);
    check("run", "in Program::\"git\"", false);
    check("exec", "== Program::\"git\"", false);
}

/// Only headers that do not frame a message are redacted, and by their whole names.
#[test]
fn what_is_taken_out_is_named() {
    use crate::Redaction;
    let header = |name: &str| Some(Redaction::Header(name.to_owned()));
    let of_answer = |name: &str| Some(Redaction::ResponseHeader(name.to_owned()));
    for (text, expected) in [
        ("header:X-Internal", header("x-internal")),
        ("header:authorization", header("authorization")),
        ("response-header:Set-Cookie", of_answer("set-cookie")),
        ("header:", None),
        ("header", None),
        ("authorization", None),
        ("Header:a", None),
        ("header:a:b", None),
        ("header: a", None),
        ("header:*", None),
        ("header:host", None),
        ("header:Content-Length", None),
        ("response-header:transfer-encoding", None),
        ("response-header:content-encoding", None),
        ("query:a", None),
        ("body:a", None),
    ] {
        assert_eq!(Redaction::parse(text), expected, "{text}");
    }
    // One that nobody knows makes the whole policy deny.
    let text = "@redact(\"header:a, query:b\") permit(principal, action == Action::\"request\", resource);";
    let told = crate::refused(&compiled(text));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].what.starts_with("@redact(\"query:b\") is nothing"),
        "{told:?}"
    );
}

/// No approver has a name other than `person`, for actions that can be approved at all.
#[test]
fn who_cannot_be_asked_is_told() {
    for action in ["run", "connect", "request", "promote"] {
        let told = |whom: &str| {
            let text = format!(
                "@approve(\"{whom}\") permit(principal, action == Action::\"{action}\", resource);"
            );
            crate::refused(&compiled(&text))
        };
        assert_eq!(told("person"), [], "{action}");
        for (whom, count) in [("lead", 1), ("person, lead", 1), ("lead, other", 2)] {
            let found = told(whom);
            assert_eq!(found.len(), count, "{action} {found:?}");
            assert!(
                found[0]
                    .what
                    .starts_with("@approve(\"lead\"): nobody can be asked"),
                "{found:?}"
            );
        }
    }
}

#[test]
fn permits_that_close_their_action_are_named() {
    let named = |text: &str| -> Vec<String> {
        let all = closing(&compiled(text)).into_iter();
        all.map(|one| format!("{}: {}", one.line, one.what))
            .collect()
    };
    let one = r#"permit(principal, action == Action::"request", resource == Host::"a.example");"#;
    let all = r#"permit(principal, action == Action::"request", resource);"#;
    let forbids = r#"forbid(principal, action == Action::"request", resource);"#;
    let when = r#"permit(principal, action in [Action::"run", Action::"exec"], resource) when { context.task == "x" };"#;
    assert_eq!(named(forbids), Vec::<String>::new());
    assert_eq!(named(all), Vec::<String>::new());
    assert_eq!(named(&format!("{one}\n{all}")), Vec::<String>::new());
    let found = named(&format!("{forbids}\n{one}\n{one}"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("2: warning: "), "{found:?}");
    assert!(found[0].contains("denies all else of request"), "{found:?}");
    let found = named(&when.replace("context.task", "context.profile"));
    assert!(found[0].contains("of run, exec"), "{found:?}");
}
