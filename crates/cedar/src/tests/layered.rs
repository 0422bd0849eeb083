//! Layers: each only takes away.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{facts, file, principal};
use crate::{Asked, Decision, Effect, Facts, Known, Layer, Layers, PolicyFile, Question, Served};

fn layers(texts: &[(Layer, &str)]) -> Layers {
    let files: Vec<(Layer, Vec<PolicyFile>)> = texts
        .iter()
        .map(|(layer, text)| (*layer, vec![file(text)]))
        .collect();
    Layers::compile(&files, &Known::default()).unwrap()
}

fn read(layers: &Layers, path: &str) -> Decision {
    let (principal, facts) = (principal(), facts());
    let asked = Asked::Read(Path::new(path));
    layers.authorize(&Question {
        principal: &principal,
        asked,
        facts: &facts,
    })
}

const SRV: &str = "permit(principal, action == Action::\"read\", resource in Path::\"/srv\");";
const ALL: &str = "permit(principal, action, resource);";
const NOT_B: &str = "@id(\"no-b\") forbid(principal, action, resource in Path::\"/srv/b\");";
const OTHER: &str = "permit(principal, action == Action::\"run\", resource);";

#[test]
fn what_is_asked_is_allowed_by_every_layer_with_an_opinion() {
    use Layer::{Organisation, Project, User};
    let check = |texts: &[(Layer, &str)], expected: [bool; 3]| {
        let layers = layers(texts);
        let found =
            ["/srv/a", "/srv/b", "/etc"].map(|path| read(&layers, path).effect == Effect::Allow);
        assert_eq!(found, expected, "{texts:?}");
    };
    check(&[], [true, true, true]);
    check(&[(User, OTHER)], [true, true, true]);
    check(&[(User, NOT_B)], [true, false, true]);
    check(&[(User, SRV)], [true, true, false]);
    // A project that permits everything widens nothing.
    check(&[(User, SRV), (Project, ALL)], [true, true, false]);
    check(
        &[(Organisation, NOT_B), (User, ALL), (Project, ALL)],
        [true, false, true],
    );
    check(
        &[(Organisation, ALL), (Project, NOT_B)],
        [true, false, true],
    );
    check(
        &[(Organisation, SRV), (User, NOT_B), (Project, OTHER)],
        [true, false, false],
    );
}

#[test]
fn a_denial_names_the_policy_and_an_approval_is_asked_for() {
    let approve = "@id(\"look\") @approve(\"person\") permit(principal, action, resource);";
    let found = read(
        &layers(&[(Layer::Organisation, ALL), (Layer::User, approve)]),
        "/srv",
    );
    assert_eq!(found.effect, Effect::Ask);
    assert_eq!(found.obligations.approve.len(), 1);
    let why = found.why();
    assert!(
        why.starts_with("a person is asked by policy ")
            && why.ends_with("policy look (/policies/test.cedar:1)"),
        "{why}"
    );
    let found = read(
        &layers(&[(Layer::Organisation, approve), (Layer::Project, NOT_B)]),
        "/srv/b",
    );
    assert_eq!(found.effect, Effect::Deny);
    assert_eq!(
        found.why(),
        "forbidden by policy no-b (/policies/test.cedar:1)"
    );
}

#[test]
fn one_broken_file_leaves_no_layers_at_all() {
    let files = [
        (Layer::User, vec![file(ALL)]),
        (Layer::Project, vec![file("permit(")]),
    ];
    assert!(
        !Layers::compile(&files, &Known::default())
            .unwrap_err()
            .is_empty()
    );
}

#[test]
fn places_that_policies_name_are_known() {
    let text = "forbid(principal, action == Action::\"read\", resource) when { resource in Path::\"/a\" || resource == Path::\"/b\" };
permit(principal, action, resource in Path::\"/c\");
forbid(principal, action == Action::\"write\", resource in Path::\"/d\");
@report_only forbid(principal, action == Action::\"read\", resource in Path::\"/e\");";
    let layers = layers(&[(Layer::User, text), (Layer::Project, SRV)]);
    let of = |action| -> Vec<String> {
        let places = layers.places(action);
        places.iter().map(|one| one.display().to_string()).collect()
    };
    assert_eq!(of(crate::Action::Read), ["/a", "/b", "/c", "/srv"]);
    assert_eq!(of(crate::Action::Write), ["/c", "/d"]);
    assert!(
        layers.are_about(&[crate::Action::Connect]),
        "one is about all"
    );
}

#[test]
fn what_is_handed_over_decides_the_same() {
    let files = [
        (Layer::User, vec![file(SRV)]),
        (Layer::Project, vec![file(NOT_B)]),
    ];
    let facts = Facts {
        time: 0,
        served: Some(Served {
            tenant: "team-a".to_owned(),
            metadata: ["team=ml".to_owned()].into(),
            ..Served::default()
        }),
        ..facts()
    };
    let handed = crate::hand(&principal(), &facts, &files).unwrap();
    let (layers, taken, said) = crate::take(&handed).unwrap();
    assert_eq!((taken, said), (principal(), facts));
    let found = ["/srv/a", "/srv/b", "/etc"].map(|path| read(&layers, path).effect);
    assert_eq!(found, [Effect::Allow, Effect::Deny, Effect::Deny]);
    for broken in [&b""[..], b"{}", &handed[1..]] {
        assert!(crate::take(broken).is_err());
    }
}

fn text() -> impl Strategy<Value = String> {
    let one = prop::sample::select(vec![
        SRV,
        ALL,
        OTHER,
        "forbid(principal, action, resource in Path::\"/srv/b\");",
        "permit(principal, action == Action::\"read\", resource == Path::\"/etc\");",
        "forbid(principal, action == Action::\"read\", resource) when { context.time * 9223372036854775807 > 1 };",
        "@approve(\"person\") permit(principal, action == Action::\"read\", resource in Path::\"/srv\");",
        "@report_only forbid(principal, action, resource);",
    ]);
    vec(one, 0..4).prop_map(|texts| texts.join("\n"))
}

fn rank(effect: Effect) -> u8 {
    match effect {
        Effect::Allow => 2,
        Effect::Ask => 1,
        Effect::Deny => 0,
    }
}

/// Returns whether Cedar alone allows it, by the set that expresses the meaning of the layers.
fn is_allowed_in_one_set(layers: &Layers, path: &str) -> bool {
    let (principal, facts) = (principal(), facts());
    let asked = Asked::Read(Path::new(path));
    let question = Question {
        principal: &principal,
        asked,
        facts: &facts,
    };
    let words = crate::vocabulary::Vocabulary::read().unwrap();
    let needs = crate::question::Needs::of("segments loose");
    let put = question.put(&words, needs, |_| Vec::new()).unwrap();
    let meant = layers
        .canonical(crate::Action::Read, crate::Reach::Possible)
        .unwrap();
    let answer =
        cedar_policy::Authorizer::new().is_authorized(&put.request, &meant.set, &put.entities);
    answer.decision() == cedar_policy::Decision::Allow
}

/// Enough of them differ for a wrong set to be noticed.
#[test]
fn one_set_means_what_all_layers_do() {
    use Layer::{Organisation, Project, User};
    let mut counts = [0_usize; 3];
    let counted = std::cell::RefCell::new(&mut counts);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(200));
    let each = (text(), text(), text());
    runner
        .run(&each, |(first, second, third)| {
            let all = layers(&[(Organisation, &first), (User, &second), (Project, &third)]);
            for path in ["/srv/a", "/srv/b", "/etc", "/"] {
                let able = crate::carried(crate::Action::Read);
                let found = read(&all, path);
                let fails = !found.errors.is_empty();
                let is_allowed = found.within(able).effect == Effect::Allow;
                let one = is_allowed_in_one_set(&all, path);
                let at = match fails {
                    false => {
                        prop_assert_eq!(
                            is_allowed,
                            one,
                            "{} of {} {} {}",
                            path,
                            first,
                            second,
                            third
                        );
                        usize::from(is_allowed)
                    }
                    // Cedar passes over what fails, and this set may allow more.
                    true => {
                        prop_assert!(!is_allowed);
                        2
                    }
                };
                counted.borrow_mut()[at] += 1;
            }
            Ok(())
        })
        .unwrap();
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
}

#[test]
fn one_set_denies_a_path_that_is_read_in_different_ways() {
    let text = "permit(principal, action == Action::\"request\", resource) when { context.path == \"/a\" };\npermit(principal, action == Action::\"request\", resource in Host::\"*.example.com\");";
    let clear = text.replace("== \"/a\"", "== \"/a\" || context.unclear");
    for (text, count) in [(text, 3), (clear.as_str(), 2)] {
        let meant = layers(&[(Layer::User, text)])
            .canonical(crate::Action::Request, crate::Reach::Possible)
            .unwrap();
        assert_eq!(meant.set.policies().count(), count, "{}", meant.set);
    }
}

/// An action that needs an approval is possible, and does not happen unasked.
#[test]
fn one_set_tells_what_is_asked_about_apart() {
    use crate::{Action, Reach};
    let text = "@approve(\"person\") permit(principal, action == Action::\"connect\", resource);\npermit(principal, action == Action::\"connect\", resource) when { context.port == 443 };\npermit(principal, action == Action::\"resolve\", resource);";
    let layers = layers(&[(Layer::User, text)]);
    let forbids = |action, reach| {
        let meant = layers.canonical(action, reach).unwrap();
        let is_forbid = |one: &&cedar_policy::Policy| one.effect() == cedar_policy::Effect::Forbid;
        meant.set.policies().filter(is_forbid).count()
    };
    assert_eq!(forbids(Action::Connect, Reach::Possible), 0);
    assert_eq!(forbids(Action::Connect, Reach::Unasked), 1);
    assert_eq!(forbids(Action::Resolve, Reach::Unasked), 0);
}

proptest! {
    /// A further layer allows nothing that was not allowed before.
    #[test]
    fn a_further_layer_never_widens(first in text(), second in text(), third in text()) {
        use Layer::{Organisation, Project, User};
        let two = layers(&[(Organisation, &first), (User, &second)]);
        let three = layers(&[(Organisation, &first), (User, &second), (Project, &third)]);
        for path in ["/srv/a", "/srv/b", "/etc", "/"] {
            let (before, after) = (read(&two, path), read(&three, path));
            prop_assert!(rank(after.effect) <= rank(before.effect), "{path}");
            prop_assert!(before.obligations.approve.is_subset(&after.obligations.approve));
        }
    }
}
