//! Bodies of events without the secrets that look like ones.

use std::borrow::Cow;

use atoll_model::mask_secrets;
use serde_json::{Map, Value};

/// Masks the secrets in the texts of a value.
pub(crate) fn masked(value: &Value) -> Cow<'_, Value> {
    if !has_secret(value) {
        return Cow::Borrowed(value);
    }
    let mut masked = value.clone();
    mask(&mut masked);
    Cow::Owned(masked)
}

fn has_secret(value: &Value) -> bool {
    match value {
        Value::String(text) => matches!(mask_secrets(text), Cow::Owned(_)),
        Value::Array(items) => items.iter().any(has_secret),
        Value::Object(members) => shown(members).any(|(_, member)| has_secret(member)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn shown(members: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    members.iter().filter(|(name, _)| !is_functional(name))
}

/// Returns whether a member is read again to act by: the name of a request is compared whole.
fn is_functional(name: &str) -> bool {
    name == "once"
}

fn mask(value: &mut Value) {
    match value {
        Value::String(text) => *text = mask_secrets(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Object(members) => {
            let shown = members.iter_mut().filter(|(name, _)| !is_functional(name));
            shown.for_each(|(_, member)| mask(member));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
