//! Reasons for denials by a level of trust.

use atoll_cedar::{Deciding, Decision};
use atoll_model::{Mode, Reason};

use crate::levels::TrustRules;
use crate::origin::Origin;
use crate::refusal::reason;

impl TrustRules {
    /// Returns the reason for a denial by the level alone; its rule is the origin of the level.
    pub(crate) fn refusal(&self, decision: &Decision, what: &str, mode: Mode) -> Option<Reason> {
        if !decision.is_of_level() {
            return None;
        }
        let (level, origin) = (self.level(), self.origin());
        let all = decision.deciding.iter();
        let (said, instead): (Vec<String>, Vec<Option<&str>>) =
            all.map(|one| explanation(one, mode)).unzip();
        let mut instead: Vec<String> = instead.into_iter().flatten().map(str::to_owned).collect();
        instead.push(further(&origin));
        Some(reason(
            what,
            format!("trust level {level} ({origin}) {}", said.join(", and ")),
            &origin,
            instead.join(", or "),
        ))
    }
}

/// Returns the restriction of the level, and how to go on without the denied right.
fn explanation(one: &Deciding, mode: Mode) -> (String, Option<&'static str>) {
    match (one.id.rsplit('-').next(), mode) {
        (Some("live"), Mode::Full) => (
            "changes nothing directly".to_owned(),
            Some("leave out --live"),
        ),
        (Some("live"), Mode::Fence) => (
            "changes nothing directly, and without namespaces there is no layer".to_owned(),
            Some("let user namespaces be made (atoll doctor says how)"),
        ),
        (Some("wider"), _) => (
            "gives neither root nor nesting".to_owned(),
            Some("leave out root and nesting"),
        ),
        (_, _) => (format!("refuses it: {one}"), None),
    }
}

/// Returns how to trust the program further, unless the organisation sets the bound.
fn further(origin: &Origin) -> String {
    match origin {
        Origin::File { name, .. } if name.ends_with("/organisation.toml") => {
            format!("ask who wrote {origin}")
        }
        Origin::File { .. } | Origin::CommandLine(_) | Origin::BuiltIn => {
            "trust it further: --trust medium".to_owned()
        }
    }
}
