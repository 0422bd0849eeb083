//! The meaning of layers for a session with a label, compared with the same session without it.
//! Adding a label to a session only takes rights away if nothing is allowed because of the label.

use cedar_policy::PolicySet;
use serde_json::{Map, Value, json};

use crate::Action;
use crate::canonical::{CanonicalPolicies, condition, read};
use crate::layers::Layers;
use crate::owed::Owed;

/// Set operations by which a policy can ask for labels that it names.
const ASKS_FOR_SOME: [&str; 3] = ["contains", "containsAny", "containsAll"];

impl CanonicalPolicies {
    /// Returns the meaning for a session that has this label, and for the same session without it;
    /// `None` if no policy asks for the label.
    ///
    /// # Errors
    /// When a policy reads labels in any way other than asking for named ones.
    pub fn by_label(&self, label: &str, action: Action) -> Result<Option<(Self, Self)>, String> {
        let mut without = Vec::new();
        let mut asks = false;
        for policy in self.set.policies() {
            let mut all = policy.to_json().map_err(|error| error.to_string())?;
            asks |= forget(&mut all, label)?;
            without.push(read(all, policy.id().clone())?);
        }
        if !asks {
            return Ok(None);
        }
        let without = PolicySet::from_policies(without).map_err(|error| error.to_string())?;
        let without = Self {
            set: without,
            ..self.clone()
        };
        let mut with = self.clone();
        with.forbid(
            "only with the label",
            action,
            json!({"!": {"arg": has(label)}}),
        )?;
        Ok(Some((with, without)))
    }
}

impl Layers {
    /// Returns a permitting policy whose obligations apply depending on the label, if there is one.
    ///
    /// # Errors
    /// As [`CanonicalPolicies::by_label`].
    pub fn owes_by_label(&self, label: &str, action: Action) -> Result<Option<String>, String> {
        for (policy, meta) in self.permits(action) {
            let mut holds = condition(policy)?;
            let owes = !Owed::by(policy, meta, false).is_empty();
            if owes && forget(&mut holds, label)? {
                return Ok(Some(meta.deciding.to_string()));
            }
        }
        Ok(None)
    }
}

/// Returns the expression that a session has a label.
fn has(label: &str) -> Value {
    let context = json!({"Var": "context"});
    let is_there = json!({"has": {"left": context, "attr": "labels"}});
    let labels = json!({".": {"left": context, "attr": "labels"}});
    let named = json!({"contains": {"left": labels, "right": {"Value": label}}});
    json!({"&&": {"left": is_there, "right": named}})
}

/// Rewrites an expression, in Cedar's JSON, as if the session did not have the label. Returns
/// whether that changes it.
fn forget(one: &mut Value, label: &str) -> Result<bool, String> {
    match one {
        Value::Array(all) => {
            let mut changed = false;
            for one in all {
                changed |= forget(one, label)?;
            }
            Ok(changed)
        }
        Value::Object(members) => match asked_for(members)? {
            Some(named) if named.contains(&json!({ "Value": label })) => {
                *one = left_over(members, named, label);
                Ok(true)
            }
            Some(_) => Ok(false),
            None => {
                if is_context(members) {
                    return Err(UNREADABLE.to_owned());
                }
                let mut changed = false;
                for (name, inner) in members.iter_mut() {
                    // Another member of the context is no label, nor is whether there are any.
                    if ["has", "."].contains(&name.as_str()) && is_plain_member(name, inner) {
                        continue;
                    }
                    changed |= forget(inner, label)?;
                }
                Ok(changed)
            }
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(false),
    }
}

/// The error for a policy that reads labels so that a single one cannot be singled out.
const UNREADABLE: &str = "a policy reads labels in another way than to ask for some that it names";

/// Returns the labels that an expression asks for; `None` if it asks for none, or asks a set other
/// than the session's labels.
fn asked_for(members: &Map<String, Value>) -> Result<Option<Vec<Value>>, String> {
    let Some((name, sides)) = members
        .iter()
        .find(|(name, _)| ASKS_FOR_SOME.contains(&name.as_str()))
    else {
        return Ok(None);
    };
    if sides.get("left").is_none_or(|left| !is_labels(left)) {
        return Ok(None);
    }
    let right = sides.get("right").unwrap_or(&Value::Null);
    let named = match (name.as_str(), right.get("Set").and_then(Value::as_array)) {
        ("contains", _) => vec![right.clone()],
        (_, Some(named)) => named.clone(),
        (_, None) => return Err(UNREADABLE.to_owned()),
    };
    let is_text = |one: &Value| one.get("Value").is_some_and(Value::is_string);
    match named.iter().all(is_text) {
        true => Ok(Some(named)),
        false => Err(UNREADABLE.to_owned()),
    }
}

/// Returns the expression for a session without the label, which is among the `named` ones.
fn left_over(members: &Map<String, Value>, named: Vec<Value>, label: &str) -> Value {
    let others = named
        .into_iter()
        .filter(|one| *one != json!({ "Value": label }));
    let others: Vec<Value> = others.collect();
    match members
        .get("containsAny")
        .and_then(|sides| sides.get("left"))
    {
        Some(left) if !others.is_empty() => {
            json!({"containsAny": {"left": left, "right": {"Set": others}}})
        }
        Some(_) | None => json!({"Value": false}),
    }
}

fn is_labels(one: &Value) -> bool {
    *one == json!({".": {"left": {"Var": "context"}, "attr": "labels"}})
}

/// Returns whether an expression is the whole context, which includes the labels.
fn is_context(members: &Map<String, Value>) -> bool {
    members.get("Var").and_then(Value::as_str) == Some("context")
}

/// Returns whether an expression reads, or tests for, a context member other than the labels.
fn is_plain_member(operation: &str, sides: &Value) -> bool {
    let is_of_context = sides.get("left") == Some(&json!({"Var": "context"}));
    let is_labels = sides.get("attr").and_then(Value::as_str) == Some("labels");
    is_of_context && (operation == "has" || !is_labels)
}

#[cfg(test)]
mod tests {
    use cedar_policy::Policy;

    use super::*;

    /// Returns a policy as if the session did not have the label; `None` if that changes nothing.
    fn without(policy: &str, label: &str) -> Result<Option<String>, String> {
        let policy = Policy::parse(None, policy).map_err(|error| error.to_string())?;
        let mut all = policy.to_json().map_err(|error| error.to_string())?;
        let changed = forget(&mut all, label)?;
        let policy = read(all, policy.id().clone())?;
        Ok(changed.then(|| {
            policy
                .to_string()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        }))
    }

    #[test]
    fn a_label_is_forgotten_where_it_is_asked_for_by_name_alone() {
        let of = |condition: &str| {
            let policy = format!("permit(principal, action, resource) when {{ {condition} }};");
            without(&policy, "x")
        };
        for (condition, left) in [
            ("context.labels.contains(\"x\")", "when { false }"),
            (
                "context has labels && context.labels.contains(\"x\")",
                "when { ((context has labels) && false) }",
            ),
            (
                "context.labels.containsAll([\"x\", \"y\"])",
                "when { false }",
            ),
            ("context.labels.containsAny([\"x\"])", "when { false }"),
            (
                "context.labels.containsAny([\"x\", \"y\"])",
                "when { ((context[\"labels\"]).containsAny([\"y\"])) }",
            ),
            (
                "!context.labels.contains(\"x\") || context.port == 1",
                "(!false)",
            ),
        ] {
            let found = of(condition)
                .unwrap()
                .unwrap_or_default()
                .replace("context.labels", "context[\"labels\"]");
            let plain = |text: &str| {
                text.replace(['(', ')'], "")
                    .replace("context.labels", "context[\"labels\"]")
            };
            assert!(plain(&found).contains(&plain(left)), "{condition}: {found}");
        }
        for condition in [
            "context.labels.contains(\"y\")",
            "context.labels.containsAny([\"y\"])",
            "context has labels",
            "context.task.contains(\"x\")",
            "context.port == 443 && principal has x",
        ] {
            assert_eq!(of(condition), Ok(None), "{condition}");
        }
        for condition in [
            "context.labels.isEmpty()",
            "context.labels == [\"x\"]",
            "[\"x\"].containsAll(context.labels)",
            "context.labels.contains(context.task)",
            "context == {}",
            "(if true then context else context).labels.contains(\"x\")",
        ] {
            assert!(of(condition).is_err(), "{condition}");
        }
    }
}
