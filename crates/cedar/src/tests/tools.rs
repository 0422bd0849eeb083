//! Calls of tools: arguments as tags, and the tools that a caller is shown.

use atoll_model::{CallTool, ToolEffect, ToolKind, ToolName, ToolUndo};
use serde_json::{Value, json};

use super::{facts, file, principal};
use crate::{Asked, Effect, Known, Layer, Layers, Question, flattened};

fn call(tool: &str, arguments: &Value) -> CallTool {
    CallTool {
        tool: ToolName::parse(tool).unwrap(),
        kind: ToolKind::Command,
        effect: ToolEffect::Write,
        idempotent: false,
        undo: ToolUndo::None,
        text: arguments.to_string(),
        arguments: flattened(arguments).unwrap(),
        key: None,
        spent: Vec::new(),
    }
}

fn with<T>(policies: &[&str], call: &CallTool, ask: impl FnOnce(&Layers, &Question<'_>) -> T) -> T {
    let of_layer = |(at, text): (usize, &&str)| {
        let layer = [Layer::Organisation, Layer::User][at];
        (layer, vec![file(text)])
    };
    let files: Vec<_> = policies.iter().enumerate().map(of_layer).collect();
    let layers = Layers::compile(&files, &Known::default()).unwrap();
    let (principal, facts) = (principal(), facts());
    let asked = Asked::Call(call);
    ask(
        &layers,
        &Question {
            principal: &principal,
            asked,
            facts: &facts,
        },
    )
}

fn effect(policies: &[&str], arguments: &Value) -> Effect {
    let call = call("note", arguments);
    with(policies, &call, |layers, question| {
        layers.authorize(question).effect
    })
}

#[test]
fn policies_see_each_argument_by_its_type() {
    let permit = |when: &str| {
        format!(
            "permit(principal, action == Action::\"call\", resource == Tool::\"note\") when {{ {when} }};"
        )
    };
    let arguments = json!({
        "to": { "name": "ann" }, "count": 3, "dry": true, "tags": ["a", "b"], "ratio": 1.5,
    });
    for when in [
        "context.arguments.text.hasTag(\"to.name\") && context.arguments.text.getTag(\"to.name\") == \"ann\"",
        "context.arguments.number.hasTag(\"count\") && context.arguments.number.getTag(\"count\") > 2",
        "context.arguments.flag.hasTag(\"dry\") && context.arguments.flag.getTag(\"dry\")",
        "context.arguments.list.hasTag(\"tags\") && context.arguments.list.getTag(\"tags\").contains(\"b\")",
        "context.arguments.text.hasTag(\"ratio\") && context.arguments.text.getTag(\"ratio\") like \"1.*\"",
        "context.effect == \"write\" && context.kind == \"command\" && !context.idempotent",
    ] {
        assert_eq!(
            effect(&[&permit(when)], &arguments),
            Effect::Allow,
            "{when}"
        );
        assert_eq!(
            effect(&[&permit(&format!("!({when})"))], &arguments),
            Effect::Deny,
            "{when}"
        );
    }
    // Two names never lead to one value.
    let dotted = json!({ "to.name": "ann" });
    let when = "context.arguments.text.hasTag(\"to.name\")";
    assert_eq!(effect(&[&permit(when)], &dotted), Effect::Deny);
    let many = json!({ "tags": vec!["x"; 2_000] });
    let when = "context.arguments.list.hasTag(\"tags\")";
    assert_eq!(effect(&[&permit(when)], &many), Effect::Deny);
}

#[test]
fn tool_is_offered_if_some_call_may_be_allowed() {
    let offered =
        |policies: &[&str], tool: &str| with(policies, &call(tool, &json!({})), Layers::offers);
    const SOME: &str = "permit(principal, action == Action::\"call\", resource == Tool::\"note\") \
        when { context.effect == \"write\" && context.arguments.number.hasTag(\"count\") };";
    const SMALL: &str = "permit(principal, action == Action::\"call\", resource == Tool::\"note\") \
        when { context.effect == \"write\" } \
        when { context.arguments.number.hasTag(\"count\") };";
    const READS: &str = "permit(principal, action == Action::\"call\", resource) \
        when { context.effect == \"read\" };";
    const CLOSED: &str =
        "forbid(principal, action == Action::\"call\", resource == Tool::\"note\");";
    const SECRETS: &str = "forbid(principal, action == Action::\"call\", resource) \
        when { context.arguments.text.hasTag(\"path\") };";
    const OTHER: &str = "forbid(principal, action == Action::\"exec\", resource);";
    for (policies, tool, expected) in [
        (&[][..], "note", true),
        (&[OTHER], "note", true),
        (&[SOME], "note", true),
        (&[SOME], "other", false),
        (&[SMALL], "note", true),
        (&[READS], "note", false),
        (&[CLOSED], "note", false),
        (&[CLOSED], "other", true),
        (&[SECRETS], "note", true),
        (&[SOME, CLOSED], "note", false),
        (&[SOME, SECRETS], "note", true),
        (&[OTHER, READS], "note", false),
    ] {
        assert_eq!(offered(policies, tool), expected, "{policies:?} {tool}");
    }
}
