//! Facts that an agent states of itself, and obligations of several policies combined.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{facts, file, principal};
use crate::{Asked, Decision, Effect, Facts, Known, Layer, Layers, Policies, Question, Rate};

fn read(texts: &[&str], confidence: Option<u8>) -> Decision {
    let layers = [Layer::Organisation, Layer::User, Layer::Project];
    let files = layers.into_iter().zip(texts);
    let files = files
        .map(|(layer, text)| (layer, vec![file(text)]))
        .collect::<Vec<_>>();
    let layers = Layers::compile(&files, &Known::default()).unwrap();
    let (principal, facts) = (principal(), facts());
    layers.authorize(&Question {
        principal: &principal,
        asked: Asked::Read(std::path::Path::new("/srv/a")),
        facts: &Facts {
            confidence,
            ..facts
        },
    })
}

fn rank(effect: Effect) -> u8 {
    match effect {
        Effect::Allow => 0,
        Effect::Ask => 1,
        Effect::Deny => 2,
    }
}

/// Returns policies on confidence of every shape that is accepted, also such as would grant
/// something because of it.
fn policy() -> impl Strategy<Value = String> {
    let condition = ("has|hasnot", 0_u8..=100, prop::bool::ANY).prop_map(|(has, at, over)| {
        let compared = if over { ">" } else { "<" };
        match has.as_str() {
            "has" => format!("context has confidence && context.confidence {compared} {at}"),
            _ => format!("!(context has confidence && context.confidence {compared} {at})"),
        }
    });
    let head = prop::sample::select(vec![
        ("permit", "unless"),
        ("@approve(\"person\") permit", "when"),
        ("@approve(\"person\") permit", "unless"),
        ("forbid", "when"),
        ("forbid", "unless"),
    ]);
    (head, condition).prop_map(|((head, clause), condition)| {
        format!(
            "{head}(principal, action == Action::\"read\", resource) {clause} {{ {condition} }};"
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_statement_opens_anything(policies in vec(policy(), 1..4), stated in 0_u8..=100) {
        let text = policies.join("\n");
        let open = "permit(principal, action == Action::\"read\", resource);";
        for texts in [vec![text.as_str()], vec![open, text.as_str()]] {
            let (unsaid, said) = (read(&texts, None), read(&texts, Some(stated)));
            prop_assert!(rank(said.effect) >= rank(unsaid.effect), "{texts:?} {stated}");
        }
    }
}

#[test]
fn what_opens_by_confidence_is_a_mistake() {
    let compiles = |text: &str| Policies::compile(&[file(text)], Known::default());
    let action = "(principal, action == Action::\"read\", resource)";
    let sure = "context has confidence && context.confidence > 90";
    for text in [
        format!("permit{action} when {{ {sure} }};"),
        format!("permit{action} when {{ context.time > 1 }} when {{ {sure} }};"),
        format!("permit{action} when {{ !({sure}) }};"),
        format!("permit{action} when {{ if context.time > 1 then true else ({sure}) }};"),
        format!(
            "permit{action} when {{ context has \"confidence\" && context[\"confid\\u{{65}}nce\"] > 9 }};"
        ),
    ] {
        let faults = compiles(&text).unwrap_err();
        let told = faults[0].to_string();
        assert!(
            told.contains("confidence can only tighten"),
            "{text}: {told}"
        );
    }
    for text in [
        format!("permit{action} unless {{ {sure} }};"),
        format!("forbid{action} unless {{ {sure} }};"),
        format!("@approve(\"person\") permit{action} when {{ {sure} }};"),
        format!("permit{action} when {{ context.profile == \"confidence\" }};"),
        format!("permit{action} when {{ context.time > 1 // confidence\n }} unless {{ {sure} }};"),
    ] {
        assert!(compiles(&text).is_ok(), "{text}");
    }
}

/// Of policies that hold together, in one layer or in several, the stricter obligation counts.
#[test]
fn obligations_of_several_policies_are_all_kept_to() {
    let one = "@id(\"one\") @timeout(\"2h\") @rate(\"10/m\") @label(\"a\") permit(principal, action, resource);";
    let two = "@id(\"two\") @timeout(\"30m\") @rate(\"10/m\") @label(\"b, a\") @approve(\"person\") permit(principal, action, resource);";
    let check = |found: &Decision| {
        let all = &found.obligations;
        assert_eq!(found.effect, Effect::Ask);
        assert_eq!(all.timeout, Some(Duration::from_secs(1800)));
        assert_eq!(all.label.iter().collect::<Vec<_>>(), ["a", "b"]);
        // Who gives a label is not who permits beside it.
        assert_eq!(found.labelled_by("b"), "policy two");
        assert_eq!(found.labelled_by("c"), "");
        let rate = Rate {
            count: 10,
            seconds: 60,
        };
        let mut rates: Vec<(&str, Rate)> = found
            .rates
            .iter()
            .map(|(by, rate)| (&**by, *rate))
            .collect();
        rates.sort();
        assert_eq!(rates, [("one", rate), ("two", rate)]);
    };
    check(&read(&[&format!("{one}\n{two}")], None));
    check(&read(&[one, two], None));
    check(&read(&[two, one], None));
    let forbid = "forbid(principal, action, resource);";
    assert_eq!(read(&[one, two, forbid], None).effect, Effect::Deny);
}
