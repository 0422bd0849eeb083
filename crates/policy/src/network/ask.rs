//! What a person is asked about: `network.ask` in files, `--ask`.

use atoll_model::network::{Conditions, Meant, Ports, RuleLimits, Way};

use crate::document::{Document, Section};
use crate::network::read_rules;
use crate::network::rule::Effect;
use crate::origin::{Origin, Sourced};

/// What becomes of what a person would be asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answering {
    /// A person is asked.
    #[default]
    Person,
    /// It goes out where whoever may allow asks about it; what others ask about is still asked.
    Allow,
    /// It does not go out.
    Deny,
}

/// Lists of what is asked about, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskSettings {
    rules: Vec<Asking>,
}

/// One of them.
#[derive(Clone, Debug)]
struct Asking {
    rule: Sourced<Meant>,
    /// Whether it opens what it asks about, or only asks about what others open.
    opens: bool,
}

impl AskSettings {
    /// Of who may allow: what is asked about can be reached so.
    pub(crate) fn opening(rules: Vec<Sourced<Meant>>) -> Self {
        let opening = |rule| Asking { rule, opens: true };
        Self {
            rules: rules.into_iter().map(opening).collect(),
        }
    }

    /// `ask` in the `[network]` of the organisation, which opens nothing.
    pub(crate) fn read_narrowing(document: &mut Document, section: &mut Section<'_>) -> Self {
        let rules = read_rules(document, section, "ask", "network.ask", Effect::Ask);
        Self::opening(rules).narrowed()
    }

    /// The same of who may only tighten: it opens nothing.
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

    /// As they are written.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sourced<Meant>> {
        self.rules.iter().map(|one| &one.rule)
    }

    /// What is opened first.
    pub(crate) fn first(&self) -> Option<(String, &Origin)> {
        let first = self.rules.iter().find(|one| one.opens)?;
        let what = format!("reaching {} with a person's yes", first.rule.value);
        Some((what, &first.rule.origin))
    }

    /// What is opened.
    pub(crate) fn opens(&self) -> Vec<Sourced<Meant>> {
        let opening = self.rules.iter().filter(|one| one.opens);
        opening.map(|one| one.rule.clone()).collect()
    }

    /// What is asked about: where no port is named at each of them, as what is denied.
    pub(crate) fn asks(&self) -> Vec<Sourced<Meant>> {
        Self::asking(self.rules.iter())
    }

    /// The same of those that open nothing: of the organisation and of projects.
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
