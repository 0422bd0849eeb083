//! Reasons for denials, and the places that cannot be workspaces.

use std::fmt::Display;
use std::path::Path;

use atoll_model::{Reason, Verdict};

use crate::origin::Sourced;
use crate::places::overlap;

/// Creates a reason that a person or an agent can act on.
pub(crate) fn reason(
    what: impl Into<String>,
    why: impl Into<String>,
    rule: &impl Display,
    how_to_ask: impl Into<String>,
) -> Reason {
    Reason {
        what: what.into(),
        why: why.into(),
        rule: rule.to_string(),
        how_to_ask: how_to_ask.into(),
    }
}

/// Returns why a denied place prevents this path from being shown.
pub(crate) fn denial(denied: &Sourced<std::path::PathBuf>, path: &Path) -> Option<String> {
    if !overlap(&denied.value, path) {
        return None;
    }
    let place = denied.value.display();
    Some(if denied.value == path {
        format!("{place} is denied")
    } else if path.starts_with(&denied.value) {
        format!("it lies in {place}, which is denied")
    } else {
        format!("it holds {place}, which is denied and cannot be cut out of it")
    })
}

/// Returns the denial of an action on a living sandbox of which nothing is known.
pub(crate) fn unknown_sandbox<G>(what: &str) -> Verdict<G> {
    Verdict::Deny(vec![reason(
        what,
        "nobody says what the sandbox has by now",
        &"built in",
        "report it: this is a defect of Atoll",
    )])
}
