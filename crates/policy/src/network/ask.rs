//! Rules that require an approval: `network.ask` in files, `--ask`.

use atoll_model::network::{Conditions, Meant, Ports, RuleLimits, Way};

use crate::document::{Document, Section};
use crate::network::read_rules;
use crate::network::rule::Effect;
use crate::origin::{Origin, Sourced};

/// The handling of rules that require an approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answering {
    /// A person is asked.
    #[default]
    Person,
    /// Rules of a person's own profile or options allow without asking; those of others still ask.
    Allow,
    /// They deny.
    Deny,
}

/// The rules that require an approval, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskSettings {
    rules: Vec<Asking>,
}

/// One such rule.
#[derive(Clone, Debug)]
struct Asking {
    rule: Sourced<Meant>,
    /// Set when the rule also allows its destinations, instead of restricting those that other
    /// rules allow.
    opens: bool,
}

impl AskSettings {
    /// Creates rules of an author who may allow: their destinations are reachable with an approval.
    pub(crate) fn opening(rules: Vec<Sourced<Meant>>) -> Self {
        let opening = |rule| Asking { rule, opens: true };
        Self {
            rules: rules.into_iter().map(opening).collect(),
        }
    }

    /// Reads `ask` in the organisation's `[network]`, which allows nothing.
    pub(crate) fn read_narrowing(document: &mut Document, section: &mut Section<'_>) -> Self {
        let rules = read_rules(document, section, "ask", "network.ask", Effect::Ask);
        Self::opening(rules).narrowed()
    }

    /// Returns the rules as of an author who may only tighten: they allow nothing.
    pub(crate) fn narrowed(mut self) -> Self {
        for one in &mut self.rules {
            one.opens = false;
        }
        self
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.rules.extend(other.rules);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the rules as written.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sourced<Meant>> {
        self.rules.iter().map(|one| &one.rule)
    }

    /// Returns the first destination that is allowed, with its origin.
    pub(crate) fn first(&self) -> Option<(String, &Origin)> {
        let first = self.rules.iter().find(|one| one.opens)?;
        let what = format!("reaching {} with a person's yes", first.rule.value);
        Some((what, &first.rule.origin))
    }

    /// Returns the rules that allow.
    pub(crate) fn opens(&self) -> Vec<Sourced<Meant>> {
        let opening = self.rules.iter().filter(|one| one.opens);
        opening.map(|one| one.rule.clone()).collect()
    }

    /// Returns the rules in the form in which they require an approval: without a port they hold at
    /// every port, as denials do.
    pub(crate) fn asks(&self) -> Vec<Sourced<Meant>> {
        Self::asking(self.rules.iter())
    }

    /// Returns those of the rules that allow nothing, the organisation's and projects'.
    pub(crate) fn asks_of_others(&self) -> Vec<Sourced<Meant>> {
        Self::asking(self.rules.iter().filter(|one| !one.opens))
    }

    fn asking<'a>(rules: impl Iterator<Item = &'a Asking>) -> Vec<Sourced<Meant>> {
        let asking = |one: &Asking| {
            one.rule.clone().map(|mut meant| {
                if meant.to.ports == Ports::Web {
                    meant.to.ports = Ports::All;
                }
                Meant {
                    way: Way::Usual,
                    limits: RuleLimits::default(),
                    requests: Conditions {
                        packages: None,
                        ..meant.requests
                    },
                    to: meant.to,
                }
            })
        };
        rules.map(asking).collect()
    }
}
