//! Scopes and conditions that match no question are reported, and refused where they would be
//! relied on.

use super::compiled;
use crate::{Known, Policies, Standing, forbid_nothing, refused, remarks};

const ASKED: [&str; 12] = [
    "run",
    "exec",
    "read",
    "write",
    "connect",
    "request",
    "resolve",
    "use_credential",
    "promote",
    "publish",
    "escalate",
    "administer",
];

/// Returns the remarks on one policy.
fn told(text: &str) -> Vec<(Standing, String)> {
    let all = remarks(&compiled(text)).into_iter();
    all.map(|one| (one.standing, one.what)).collect()
}

#[test]
fn who_never_asks_is_no_principal_to_rely_on() {
    for kind in ["Agent", "Subagent", "Service", "Group"] {
        for head in [
            "principal is KIND",
            "principal == KIND::\"x\"",
            "principal in KIND::\"x\"",
        ] {
            let head = head.replace("KIND", kind);
            // Nobody is a group, so Cedar itself refuses that.
            if kind == "Group" && !head.contains("in Group") {
                continue;
            }
            for action in [
                "action",
                "action == Action::\"connect\"",
                "action == Action::\"run\"",
            ] {
                let text = format!("forbid({head}, {action}, resource);");
                let found = told(&text);
                assert!(
                    matches!(found.as_slice(), [(Standing::Refused, what)] if what.contains(&head)),
                    "{text} {found:?}"
                );
                assert_eq!(refused(&compiled(&text)).len(), 1, "{text}");
                let found = told(&text.replace("forbid", "permit"));
                assert!(
                    matches!(found.as_slice(), [(Standing::Idle, _)]),
                    "{text} {found:?}"
                );
            }
        }
        // In a condition it can be relied on either way.
        for text in [
            "forbid(principal, action, resource) when { principal in KIND::\"x\" };",
            "forbid(principal, action, resource) when { context.time > 1 || principal in KIND::\"x\" };",
            "permit(principal, action, resource) unless { principal in KIND::\"x\" };",
            "permit(principal, action, resource) when { principal in [KIND::\"x\", KIND::\"x\"] };",
        ] {
            let text = text.replace("KIND", kind);
            let found = refused(&compiled(&text));
            assert_eq!(found.len(), 1, "{text} {found:?}");
            assert!(
                found[0].what.contains(&format!("{kind}::\"x\"")),
                "{found:?}"
            );
        }
    }
    let text = "permit(principal, action, resource) unless { principal is Agent };";
    assert_eq!(refused(&compiled(text)).len(), 1);
    let agent = told("forbid(principal in Agent::\"codex\", action, resource);");
    assert!(agent[0].1.contains("context.profile"), "{agent:?}");
}

/// A run asks some questions as the person, others as a session.
#[test]
fn who_asks_otherwise_is_no_principal_to_rely_on() {
    for action in ASKED {
        let is_persons = ["run", "promote", "escalate", "administer"].contains(&action);
        for (head, is_asked) in [
            ("principal", true),
            ("principal in Person::\"1000\"", true),
            ("principal == Person::\"1000\"", is_persons),
            ("principal is Person", is_persons),
            ("principal is Session", !is_persons),
            ("principal is Session in Person::\"1000\"", !is_persons),
            ("principal == Session::\"s\"", !is_persons),
        ] {
            let text = format!("forbid({head}, action == Action::\"{action}\", resource);");
            let found = told(&text);
            let expected = if is_asked { 0 } else { 1 };
            assert_eq!(found.len(), expected, "{text} {found:?}");
            // Beside one of which it holds it is told too; of all of them nothing is meant alone.
            let other = if is_persons { "read" } else { "promote" };
            let both = format!(
                "forbid({head}, action in [Action::\"{action}\", Action::\"{other}\"], resource);"
            );
            let found = refused(&compiled(&both));
            let is_either = ["principal", "principal in Person::\"1000\""].contains(&head);
            assert_eq!(found.len(), usize::from(!is_either), "{both} {found:?}");
            let all = format!("forbid({head}, action, resource);");
            assert_eq!(told(&all), [], "{all}");
        }
    }
}

#[test]
fn what_is_never_acted_on_is_told() {
    for head in [
        "resource is Toolset",
        "resource == Artifact::\"x\"",
        "resource is Policy",
        "resource in Policy::\"x\"",
    ] {
        let text = format!("forbid(principal, action, {head});");
        let found = refused(&compiled(&text));
        assert_eq!(found.len(), 1, "{text} {found:?}");
        assert!(found[0].what.contains(head), "{found:?}");
    }
    let text = "forbid(principal, action == Action::\"promote\", resource is Artifact);";
    assert_eq!(refused(&compiled(text)).len(), 1);
    let text = "permit(principal, action, resource) unless { resource is Toolset };";
    assert_eq!(refused(&compiled(text)).len(), 1);
    for head in ["resource is Path", "resource in Host::\"*.example.com\""] {
        assert_eq!(told(&format!("forbid(principal, action, {head});")), []);
    }
}

/// A group that has a member can match.
#[test]
fn a_group_that_is_known_is_not_told() {
    let mut known = Known::default();
    known.add("Session::\"run-1\"", "Group::\"team\"").unwrap();
    let file = super::file(
        "forbid(principal in Group::\"team\", action, resource);
forbid(principal, action, resource) when { principal in Group::\"team\" };
forbid(principal in Group::\"other\", action, resource);",
    );
    let policies = Policies::compile(&[file], known).unwrap();
    let found = refused(&policies);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].line, 3);
}

/// A forbid that never holds, as types alone show, is reported at a start too.
#[test]
fn a_forbid_that_never_holds_is_found_without_the_check() {
    let idle = |text: &str| {
        let policies = compiled(text);
        let all = forbid_nothing(&policies);
        all.iter().map(|one| one.id.to_string()).collect::<Vec<_>>()
    };
    let text = "@id(\"later\") forbid(principal, action == Action::\"connect\", resource) when { resource is Path };\n\
                @id(\"holds\") forbid(principal, action == Action::\"connect\", resource) when { context.port == 1 };\n\
                @id(\"none\") forbid(principal, action == Action::\"run\", resource) when { resource is Host };";
    assert_eq!(idle(text), ["later", "none"]);
    // What only permits so opens nothing, and what does not count forbids nothing.
    assert_eq!(idle(&text.replace("forbid", "permit")), [""; 0]);
    assert_eq!(
        idle(&text.replace("forbid", "@report_only forbid")),
        [""; 0]
    );
    // What is told of as refused is told once.
    let refused = "forbid(principal is Agent, action == Action::\"connect\", resource);";
    assert_eq!(idle(refused), [""; 0]);
}
