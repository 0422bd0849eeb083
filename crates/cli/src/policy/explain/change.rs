//! A change that would have allowed something, in words and as JSON.

use atoll_cedar::{Action, Effect, Layer};
use atoll_engine::explain::change::{Change, Step};
use atoll_engine::explain::word;
use serde_json::{Value, json};

/// Describes the step for people.
fn told(step: &Step) -> String {
    match step {
        Step::Person(Some(Action::Promote)) => {
            "a person's yes: `atoll apply` asks at its own terminal before it writes anything, \
                 and without one nothing is taken over"
                .to_owned()
        }
        Step::Person(Some(Action::Restore)) => {
            "a person's yes: `atoll undo` asks at its own terminal before it undoes anything, \
                 and without one nothing is undone"
                .to_owned()
        }
        Step::Person(Some(Action::Run | Action::Exec | Action::Publish)) => {
            "a person's yes: `atoll run` asks at its own terminal before it starts anything, \
                 and without one nothing is started"
                .to_owned()
        }
        Step::Person(_) => {
            "a person's yes: `atoll approvals list` shows it while the program waits".to_owned()
        }
        Step::Trust { option, value } => format!("trust it further: {option} {value}"),
        Step::Allow { rule, entry } => {
            let line = format!("in the profile, under [network]: allow = [{entry}]");
            match rule {
                Some(rule) => {
                    let rule = atoll_engine::shell::command_line(&[rule.into()]);
                    format!("--allow {rule}, or {line}")
                }
                None => line,
            }
        }
        Step::Publish(port) => {
            format!("--publish {port}, or in the profile, under [network]: publish = [{port:?}]")
        }
        Step::Undeny(rule) => format!("take out what denies it: {rule}"),
        Step::Except {
            policy,
            layer,
            condition,
        } => format!(
            "in {}:{}, policy {}, before its `;`: unless {{ {condition} }}{}",
            policy.file,
            policy.line,
            policy.id,
            whose(*layer)
        ),
        Step::Drop { policy, layer } => format!(
            "take out policy {} ({}:{}){}",
            policy.id,
            policy.file,
            policy.line,
            whose(*layer)
        ),
        Step::Permit {
            file,
            layer,
            policy,
        } => format!("in {file}, one line more: {policy}{}", whose(*layer)),
    }
}

/// Returns the step as JSON.
fn step_json(step: &Step) -> Value {
    let text = told(step);
    let kind = match step {
        Step::Person(_) => "approval",
        Step::Trust { .. } => "trust",
        Step::Allow { .. } => "rule",
        Step::Publish(_) => "publish",
        Step::Undeny(_) => "rule-removed",
        Step::Except { .. } => "policy-condition",
        Step::Drop { .. } => "policy-removed",
        Step::Permit { .. } => "policy-added",
    };
    json!({ "kind": kind, "text": text })
}

/// Describes the change for people, a line for each step.
pub(super) fn lines(change: &Change) -> Vec<String> {
    let mut lines: Vec<String> = change.steps.iter().map(told).collect();
    match (change.effect, lines.last_mut()) {
        (Effect::Ask, Some(last)) => last.push_str("; then a person is asked"),
        (Effect::Ask | Effect::Allow | Effect::Deny, _) => {}
    }
    lines
}

/// Returns the change as JSON.
pub(super) fn json(change: &Change) -> Value {
    let steps: Vec<Value> = change.steps.iter().map(step_json).collect();
    json!({ "steps": steps, "then": word(change.effect) })
}

/// Names the owner of a policy, if it is not the person's own.
fn whose(layer: Option<Layer>) -> &'static str {
    match layer {
        Some(Layer::Organisation) => " (the organisation's: ask who wrote it)",
        Some(Layer::Project) => " (the project's: it counts once trusted again, atoll trust)",
        Some(Layer::User | Layer::Level | Layer::Labels | Layer::Purpose) | None => "",
    }
}
