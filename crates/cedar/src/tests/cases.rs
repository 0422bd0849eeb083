//! Tests of policies: reading a file of cases, and running them.

use super::compiled;
use crate::{Decision, Effect, cases};

const POLICIES: &str = "@id(\"gets\") permit(principal, action == Action::\"request\", resource in Host::\"*.example.com\") when { context.method == \"GET\" && context.port == 443 };
@id(\"all\") permit(principal, action in [Action::\"run\", Action::\"read\", Action::\"write\", Action::\"promote\", Action::\"publish\", Action::\"use_credential\", Action::\"resolve\"], resource);
@id(\"ssh\") permit(principal, action == Action::\"connect\", resource) when { context.look == \"past\" && context.port == 22 };";

fn decided(text: &str) -> Result<Decision, String> {
    let policies = compiled(POLICIES);
    let all = cases(&format!("[[case]]\nexpect = 'allow'\n{text}"))?;
    all[0].ask(|question| policies.authorize(question))
}

#[test]
fn a_case_is_a_question() {
    let check = |text: &str, effect| {
        let found = decided(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(found.effect, effect, "{text}: {}", found.why());
    };
    let request = "action = 'request'\nresource = 'api.example.com'\n";
    check(request, Effect::Allow);
    check(&format!("{request}method = 'POST'"), Effect::Deny);
    check(&format!("{request}scheme = 'http'"), Effect::Deny);
    check(
        &format!("{request}scheme = 'http'\nport = 443"),
        Effect::Allow,
    );
    check(
        "action = 'connect'\nresource = '10.1.2.3'\nport = 22\nlook = 'past'",
        Effect::Allow,
    );
    check(
        "action = 'connect'\nresource = '10.1.2.3'\nport = 22",
        Effect::Deny,
    );
    for (action, resource) in [
        ("run", "git"),
        ("read", "/srv"),
        ("write", "/srv"),
        ("promote", "/srv"),
        ("publish", "8080:3000"),
        ("use_credential", "KEY"),
        ("resolve", "example.com"),
    ] {
        check(
            &format!("action = '{action}'\nresource = '{resource}'"),
            Effect::Allow,
        );
    }
}

#[test]
fn caller_of_a_server_is_a_fact_of_every_action() {
    let policies = compiled(
        "permit(principal, action, resource) when { context has served && context.served.tenant == \"team-a\" && context.served.template == \"base\" && context.served.metadata.contains(\"team=ml\") };
        forbid(principal, action, resource) when { context has served.caller && context.served.caller == \"guest\" };",
    );
    let decided = |action: &str, resource: &str, served: &str| {
        let text = format!(
            "[[case]]\nexpect = 'allow'\naction = '{action}'\nresource = '{resource}'\n{served}"
        );
        let all = cases(&text).unwrap_or_else(|why| panic!("{text}: {why}"));
        let found = all[0].ask(|question| policies.authorize(question));
        found.unwrap_or_else(|why| panic!("{text}: {why}")).effect
    };
    let of = |tenant: &str, caller: &str, note: &str| {
        format!(
            "served = {{ tenant = '{tenant}', {caller}template = 'base', metadata = ['{note}'] }}"
        )
    };
    for (action, resource) in [
        ("run", "sh"),
        ("exec", "sh"),
        ("read", "/srv"),
        ("write", "/srv"),
        ("resolve", "example.com"),
        ("connect", "example.com"),
        ("request", "example.com"),
        ("use_credential", "KEY"),
        ("publish", "8080"),
        ("escalate", "run-1"),
        ("administer", "run-1"),
    ] {
        for (served, expected) in [
            (of("team-a", "", "team=ml"), Effect::Allow),
            (of("team-a", "caller = 'ci', ", "team=ml"), Effect::Allow),
            (of("team-a", "caller = 'guest', ", "team=ml"), Effect::Deny),
            (of("team-b", "", "team=ml"), Effect::Deny),
            (of("team-a", "", "team=web"), Effect::Deny),
            (String::new(), Effect::Deny),
        ] {
            let found = decided(action, resource, &served);
            assert_eq!(found, expected, "{action} {served}");
        }
    }
}

#[test]
fn what_is_no_case_is_told() {
    let check = |text: &str, told: &str| {
        let why = decided(text).err().unwrap_or_default();
        assert!(why.contains(told), "{text}: {why}");
    };
    check(
        "action = 'fly'\nresource = 'x'",
        "\"fly\" is nothing that is asked for",
    );
    check("action = 'call'\nresource = 'a b'", "is no name of a tool");
    check(
        "action = 'call'\nresource = 'x'\njson = '[1]'",
        "are a JSON object",
    );
    check("action = 'resolve'\nresource = 'a b'", "is no name");
    check(
        "action = 'connect'\nresource = 'example.com'\nlook = 'through'",
        "look is",
    );
    check(
        "action = 'request'\nresource = 'example.com'\nscheme = 'ftp'",
        "scheme is",
    );
    check("action = 'publish'\nresource = '0'", "is no port");
    check("resource = 'x'", "action is missing");
    check("action = 'run'", "resource is missing");
    check(
        "action = 'read'\nresource = '~/x'",
        "is not an absolute path",
    );
    check(
        "action = 'read'\nresource = '/a/../b'",
        "free of `.` and `..`",
    );
    for (action, resource, more) in [
        ("run", "git", "method = 'POST'"),
        ("run", "git", "port = 1"),
        ("request", "example.com", "look = 'past'"),
        ("connect", "example.com", "path = '/'"),
        ("read", "/srv", "control = true"),
        ("promote", "/srv", "root = true"),
    ] {
        check(
            &format!("action = '{action}'\nresource = '{resource}'\n{more}"),
            &format!("says nothing of {action}: it is of "),
        );
    }
    check(
        "action = 'run'\nresource = 'x'\ncolour = 'red'",
        "unknown field",
    );
    assert!(cases("").unwrap_err().contains("and this has 0"));
    let silent = cases("[[case]]\naction = 'run'\nresource = 'x'");
    assert!(
        silent
            .unwrap_err()
            .contains("case 1 says nothing of what it expects")
    );
}

#[test]
fn a_difference_is_told_with_the_policy_that_decided() {
    let policies = compiled(POLICIES);
    let difference = |text: &str| {
        let all = cases(&format!(
            "[[case]]\naction = 'run'\nresource = 'git'\n{text}"
        ))
        .unwrap();
        let found = all[0].ask(|question| policies.authorize(question)).unwrap();
        all[0].difference(&found)
    };
    assert_eq!(difference("expect = 'allow'"), None);
    assert_eq!(difference("expect = 'allow'\nby = 'all'"), None);
    let told = difference("expect = 'deny'").unwrap();
    assert!(
        told.starts_with("it is allowed, and denied was expected: permitted by policy all"),
        "{told}"
    );
    let told = difference("expect = 'allow'\nby = 'gets'").unwrap();
    assert!(
        told.starts_with("policy gets was to decide: permitted by policy all"),
        "{told}"
    );
}

/// A run does not carry these obligations out: a permit with one denies, and only a person can be
/// asked for an approval.
#[test]
fn case_with_an_undone_obligation_is_denied() {
    for (annotation, action, resource, effect) in [
        ("@rate(\"10/m\")", "run", "git", Effect::Deny),
        ("@checkpoint", "read", "/srv", Effect::Deny),
        ("@approve(\"person\")", "write", "/srv", Effect::Deny),
        (
            "@redact(\"authorization\")",
            "request",
            "a.example",
            Effect::Deny,
        ),
        ("@approve(\"lead\")", "run", "git", Effect::Deny),
        ("@approve(\"person\")", "run", "git", Effect::Ask),
        ("@timeout(\"30m\")", "run", "git", Effect::Allow),
        ("@rate(\"10/m\")", "request", "a.example", Effect::Allow),
    ] {
        let policies = compiled(&format!(
            "@id(\"one\") {annotation} permit(principal, action == Action::\"{action}\", resource);"
        ));
        let (expect, others) = match effect {
            Effect::Allow => ("allow", ["ask", "deny"]),
            Effect::Ask => ("ask", ["allow", "deny"]),
            Effect::Deny => ("deny", ["allow", "ask"]),
        };
        let difference = |expect: &str| {
            let text = format!(
                "[[case]]\naction = '{action}'\nresource = '{resource}'\nexpect = '{expect}'"
            );
            let all = cases(&text).unwrap();
            let found = all[0].ask(|question| policies.authorize(question)).unwrap();
            all[0].difference(&found)
        };
        assert_eq!(difference(expect), None, "{annotation} on {action}");
        for other in others {
            assert!(
                difference(other).is_some(),
                "{annotation} on {action}: {other}"
            );
        }
    }
}
