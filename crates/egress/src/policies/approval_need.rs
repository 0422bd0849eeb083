//! Policies that need a person's approval.

use atoll_cedar::Decision;
use atoll_model::network::NetworkRule;

use super::{DenialCause, Forbidden, bounded};

/// The policies whose approval by a person something needs.
#[derive(Debug)]
pub(crate) struct ApprovalNeed {
    /// The policies in words, for the person and for the record.
    pub(crate) rule: String,
    /// Set when the level of trust alone needs the approval. That is about what a program sends.
    pub(crate) is_of_level: bool,
}

impl ApprovalNeed {
    pub(super) fn by(decision: &Decision) -> Self {
        // Where none says that it asks, it is nobody's but a person's.
        let mut asking = decision.asking().peekable();
        let is_asked = asking.peek().is_some();
        Self {
            rule: bounded(decision.why()),
            is_of_level: is_asked && asking.all(atoll_cedar::Deciding::is_of_level),
        }
    }

    /// Combines two: an approval of one is none of the other.
    pub(crate) fn and(one: Option<Self>, two: Option<Self>) -> Option<Self> {
        let (one, two) = match (one, two) {
            (Some(one), Some(two)) => (one, two),
            (one, two) => return one.or(two),
        };
        let rule = match one.rule == two.rule {
            true => one.rule,
            false => bounded(format!("{}; {}", one.rule, two.rule)),
        };
        Some(Self {
            rule,
            is_of_level: one.is_of_level && two.is_of_level,
        })
    }

    /// Returns whether this text, kept from when policies were first asked, is that of just these.
    pub(super) fn were(&self, asked: Option<&str>) -> bool {
        asked.is_some_and(|asked| bounded(asked.to_owned()) == self.rule)
    }

    /// Combines them with a rule that needs an approval too, if one does. Returns the text for the
    /// person.
    pub(crate) fn beside(rule: Option<&NetworkRule>, asks: Option<Self>) -> Option<String> {
        match (rule.map(NetworkRule::told), asks) {
            (None, None) => None,
            (Some(rule), None) => Some(rule),
            (None, Some(asks)) => Some(asks.rule),
            (Some(rule), Some(asks)) => Some(format!("{rule}; {}", asks.rule)),
        }
    }

    /// Checks again once a person has approved: where a different approval would be needed by now,
    /// as after a label that came meanwhile, the one given does not hold.
    pub(crate) fn still(
        asked: &str,
        rule: Option<&NetworkRule>,
        asks: Option<Self>,
    ) -> Result<(), Forbidden> {
        match Self::beside(rule, asks) {
            Some(now) if now != asked => {
                let shown = "meanwhile it is asked about for another reason; try again".to_owned();
                Err(Forbidden {
                    why: format!("a person has allowed it, and {shown}"),
                    shown,
                    policy: None,
                    by: DenialCause::Policy,
                })
            }
            Some(_) | None => Ok(()),
        }
    }
}
