//! Obligations of an older version, and those that a newer one may not impose.

use super::file;
use crate::{Action, Known, Layer, Layers, Owed, Reach};

fn layers(text: &str) -> Layers {
    Layers::compile(&[(Layer::User, vec![file(text)])], &Known::default()).unwrap()
}

/// Returns the obligations of the old text that the new one does not plainly keep, as printed.
fn unkept(old: &str, new: &str, action: Action) -> Vec<String> {
    let unkept = layers(new).dropped_obligations(&layers(old), action, Reach::Possible);
    let unkept = unkept.unwrap();
    unkept.iter().map(|one| one.owed.to_string()).collect()
}

fn permit(annotations: &str, action: Action, when: &str) -> String {
    let action = action.name();
    format!("{annotations} permit(principal, action == Action::\"{action}\", resource) {when};\n")
}

/// An obligation that nobody carries out, or an approval that nobody can give, forbids, as it
/// denies.
#[test]
fn what_is_denied_for_its_value_is_forbidden() {
    let is_forbidden = |annotation: &str, action: Action, reach: Reach| {
        let meant = layers(&permit(annotation, action, "")).canonical(action, reach);
        let meant = meant.unwrap().set;
        let mut all = meant.policies();
        all.any(|one| one.effect() == cedar_policy::Effect::Forbid)
    };
    for (annotation, expected) in [
        ("@redact(\"header:x\")", false),
        ("@redact(\"authorization\")", true),
        ("@redact(\"header:x, header:host\")", true),
    ] {
        let found = is_forbidden(annotation, Action::Request, Reach::Unasked);
        assert_eq!(found, expected, "{annotation}");
    }
    for action in [
        Action::Run,
        Action::Connect,
        Action::Request,
        Action::Promote,
    ] {
        for (annotation, expected) in [
            ("@approve(\"person\")", false),
            ("@approve(\"lead\")", true),
            ("@approve(\"lead, person\")", true),
        ] {
            let found = is_forbidden(annotation, action, Reach::Possible);
            assert_eq!(found, expected, "{annotation} on {}", action.name());
            assert!(
                is_forbidden(annotation, action, Reach::Unasked),
                "{annotation}"
            );
        }
    }
}

#[test]
fn what_is_done_besides_is_kept_or_told() {
    for (annotation, stricter, looser, action) in [
        (
            "@redact(\"header:x\")",
            "@redact(\"header:x, header:y\")",
            "@redact(\"header:y\")",
            Action::Request,
        ),
        (
            "@rate(\"10/m\")",
            "@rate(\"10/h\")",
            "@rate(\"11/m\")",
            Action::Connect,
        ),
        (
            "@label(\"a\")",
            "@label(\"a, b\")",
            "@label(\"b\")",
            Action::Read,
        ),
        (
            "@timeout(\"2h\")",
            "@timeout(\"1h\")",
            "@timeout(\"3h\")",
            Action::Run,
        ),
        (
            "@checkpoint",
            "@checkpoint @log(\"A.\")",
            "@log(\"A.\")",
            Action::Promote,
        ),
        (
            "@shadow(\"twice\")",
            "@shadow(\"twice\") @log(\"A.\")",
            "@shadow",
            Action::Call,
        ),
    ] {
        let with = |annotation: &str, when: &str| {
            permit(&format!("@id(\"p\") {annotation}"), action, when)
        };
        let old = with(annotation, "");
        for kept in [annotation, stricter] {
            let found = unkept(&old, &with(kept, ""), action);
            assert!(found.is_empty(), "{annotation} {kept}: {found:?}");
        }
        let narrow = with(annotation, "when { principal == Person::\"7\" }");
        for lost in [
            with(looser, ""),
            with("", ""),
            narrow,
            "// None.\n".to_owned(),
        ] {
            let found = unkept(&old, &lost, action);
            assert_eq!(found.len(), 1, "{annotation} {lost}");
            let name = annotation.split('(').next().unwrap();
            assert!(found[0].starts_with(name), "{found:?}");
        }
        // What is not about it asks for nothing.
        assert!(unkept(&old, "", Action::Publish).is_empty());
        // A policy that does not count has nothing done.
        let idle = format!("@report_only {old}").replace("permit", "permit ");
        assert_eq!(unkept(&old, &idle, action).len(), 1, "{idle}");
        assert!(unkept(&idle, "", action).is_empty(), "{idle}");
    }
}

/// A counter that starts anew allows as much again, and so do two counters in place of one.
#[test]
fn what_is_counted_together_stays_so() {
    let rated = |id: &str| permit(&format!("{id} @rate(\"10/m\")"), Action::Request, "");
    let told = |old: &str, new: &str| unkept(old, new, Action::Request);
    let one = rated("@id(\"one\")");
    assert!(told(&one, &format!("// Moved.\n{one}")).is_empty());
    assert_eq!(
        told(&one, &rated("@id(\"two\")")),
        ["@rate(\"10 in 60 s\") counted for policy one"]
    );
    // Without an id its line says which it is, whatever its file is called by now.
    let unnamed = rated("");
    let called = |name: &str| {
        let mut file = file(&unnamed);
        name.clone_into(&mut file.name);
        Layers::compile(&[(Layer::User, vec![file])], &Known::default()).unwrap()
    };
    let (here, there) = (called("/a.cedar"), called("/b.cedar"));
    let between = here.dropped_obligations(&there, Action::Request, Reach::Possible);
    assert!(between.unwrap().is_empty());
    let moved = told(&unnamed, &format!("// Moved.\n{unnamed}"));
    assert_eq!(moved, ["@rate(\"10 in 60 s\") counted for line 1"]);
    let named = told(&unnamed, &rated("@id(\"new:1\")"));
    assert_eq!(named.len(), 1, "{named:?}");
}

#[test]
fn what_was_decided_says_what_is_done() {
    use super::{facts, principal};
    use crate::{Asked, Question};
    use std::path::Path;
    let text = permit("@id(\"p\") @label(\"a\")", Action::Read, "");
    let (principal, facts) = (principal(), facts());
    let decision = layers(&text).authorize(&Question {
        principal: &principal,
        asked: Asked::Read(Path::new("/srv")),
        facts: &facts,
    });
    assert!(Owed::Label("a".to_owned()).is_of(&decision));
    assert!(!Owed::Label("b".to_owned()).is_of(&decision));
    assert!(!Owed::Checkpoint.is_of(&decision));
}
