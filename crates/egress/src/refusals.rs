//! What was refused: told of once, and counted.

use std::collections::HashMap;

use atoll_model::network::{Flow, FlowKind, FlowReport, NO_RULE, Unreachable};

/// How many different refusals are kept apart; further ones are not told of by name.
const REFUSALS_MAX: usize = 1024;

/// The refusals of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: HashMap<(Flow, String), u64>,
    further: u64,
}

impl Refusals {
    /// Counts one; what is to be told of at once.
    pub(crate) fn count(&mut self, flow: Flow, why: String) -> Option<FlowReport> {
        let is_full = self.counts.len() >= REFUSALS_MAX;
        let key = (flow, why);
        if let Some(count) = self.counts.get_mut(&key) {
            *count = count.saturating_add(1);
            return None;
        }
        if is_full {
            self.further = self.further.saturating_add(1);
            return None;
        }
        let (flow, why) = key.clone();
        self.counts.insert(key, 1);
        Some(FlowReport::Refused {
            flow,
            why,
            count: 1,
        })
    }

    /// What is still to be told at the end.
    pub(crate) fn rest(self) -> impl Iterator<Item = FlowReport> {
        let further = FlowReport::Refused {
            flow: Flow {
                kind: FlowKind::Name,
                host: "(others)".to_owned(),
                address: None,
                port: 0,
                rule: None,
            },
            why: format!("more than {REFUSALS_MAX} different refusals"),
            count: self.further,
        };
        let further = (self.further > 0).then_some(further);
        let repeated = self.counts.into_iter().filter(|(_, count)| *count > 1);
        let repeated =
            repeated.map(|((flow, why), count)| FlowReport::Refused { flow, why, count });
        repeated.chain(further)
    }
}

/// The same for the program, which is not told where a rule is written: that is a path of
/// the host's.
pub(crate) fn why_inside(unreachable: &Unreachable<'_>) -> String {
    match unreachable {
        Unreachable::Denied(rule) => format!("{} is denied", rule.to),
        Unreachable::NoRule | Unreachable::Special(_) => why(unreachable),
    }
}

/// Why something cannot be reached, in words.
pub(crate) fn why(unreachable: &Unreachable<'_>) -> String {
    match unreachable {
        Unreachable::NoRule => NO_RULE.to_owned(),
        Unreachable::Denied(rule) => format!("{} is denied by {}", rule.to, rule.origin),
        Unreachable::Special(special) => format!(
            "its address is {}: only a rule for that very address allows it",
            special.name
        ),
    }
}
