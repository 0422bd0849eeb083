//! Decisions.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::files::base_name;
use crate::obligation::PERSON;
use crate::{Obligation, Obligations, Rate};

/// The prefix of the file names of policies generated for a level of trust.
const LEVEL: &str = "level/";
/// The prefix of the file names of policies generated for labels of touched data.
const LABELS: &str = "labels/";
/// The prefix of the file names of the purposes that ship with Atoll.
const PURPOSE: &str = "purpose/";
/// The suffix of the file of a person's own purpose.
const PURPOSE_END: &str = ".purpose.cedar";

/// Returns the purpose that a file defines, by the file's name.
#[must_use]
pub fn purpose_of(file: &str) -> Option<&str> {
    let shipped = file.strip_prefix(PURPOSE);
    let shipped = shipped.and_then(|name| name.strip_suffix(".cedar"));
    shipped.or_else(|| base_name(file).strip_suffix(PURPOSE_END))
}

/// The effect of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Allowed, with the obligations.
    Allow,
    /// Allowed once somebody approves.
    Ask,
    /// Denied.
    Deny,
}

/// A policy that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deciding {
    /// The policy's `@id`, or its place in the file.
    pub id: Arc<str>,
    /// The file.
    pub file: Arc<str>,
    /// The line, counted from 1.
    pub line: u32,
    /// Its `@reason`, for people.
    pub reason: Option<Arc<str>>,
    /// The policy's effect where it holds: allow or deny.
    pub effect: Effect,
    /// The time after which a permitted action is ended.
    pub timeout: Option<Duration>,
    /// Set when the policy requires an approval.
    pub asks: bool,
    /// The labels that the session gets where the policy holds.
    pub labels: BTreeSet<String>,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The effect.
    pub effect: Effect,
    /// The policies that decided: the forbids that hold if there are any, else the permits.
    pub deciding: Vec<Deciding>,
    /// The obligations of an allowed action.
    pub obligations: Obligations,
    /// The rate limits, each with the id of its policy; each is enforced on its own.
    pub rates: Vec<(Arc<str>, Rate)>,
    /// The first policy that permits others of its kind, of each layer that denies the action because
    /// nothing permits it.
    pub others: Vec<Deciding>,
    /// Policies with `@report_only` that would have decided.
    pub reported: Vec<Deciding>,
    /// The errors of evaluation, any of which is a denial.
    pub errors: Vec<String>,
    /// Set when the action is denied because it needs an approval and nobody is asked.
    pub is_unasked: bool,
}

impl Decision {
    pub(crate) fn nothing_said() -> Self {
        Self {
            effect: Effect::Allow,
            deciding: Vec::new(),
            obligations: Obligations::default(),
            rates: Vec::new(),
            others: Vec::new(),
            reported: Vec::new(),
            errors: Vec::new(),
            is_unasked: false,
        }
    }

    pub(crate) fn failed(why: String) -> Self {
        Self {
            effect: Effect::Deny,
            errors: vec![why],
            ..Self::nothing_said()
        }
    }

    /// Denies an allowed or askable action that has an obligation other than the `carried` ones.
    #[must_use]
    pub fn within(mut self, carried: &[Obligation]) -> Self {
        if self.effect == Effect::Deny {
            return self;
        }
        let missing = self.obligations.uncarried(carried);
        if !missing.is_empty() {
            let by: Vec<String> = self.deciding.iter().map(ToString::to_string).collect();
            let (missing, by) = (missing.join(", "), by.join(", "));
            self.errors.push(format!(
                "{missing} is not carried out here, and {by} asks for it"
            ));
            self.effect = Effect::Deny;
        }
        self
    }

    /// Returns whether a level of trust alone decided, without any policy that a person wrote.
    #[must_use]
    pub fn is_of_level(&self) -> bool {
        !self.deciding.is_empty() && self.deciding.iter().all(Deciding::is_of_level)
    }

    /// Returns whether the session's purpose alone decided.
    #[must_use]
    pub fn is_of_purpose(&self) -> bool {
        !self.deciding.is_empty() && self.deciding.iter().all(Deciding::is_of_purpose)
    }

    /// Turns an approval into a denial, as where nobody is asked.
    pub(crate) fn strictly(mut self) -> Self {
        if self.effect == Effect::Ask {
            self.effect = Effect::Deny;
            self.is_unasked = true;
            self.deciding.retain(|one| one.asks);
        }
        self
    }

    /// Explains the decision with the place of each policy. Policies of a level lie in no file and
    /// name their level instead.
    #[must_use]
    pub fn why(&self) -> String {
        self.explained(|one| match one.is_of_level() {
            true => one.to_string(),
            false => format!("{one} ({}:{})", one.file, one.line),
        })
    }

    /// Explains the decision for a program in the sandbox, without the places of policies.
    #[must_use]
    pub fn why_inside(&self) -> String {
        match self.errors.is_empty() {
            true => self.explained(ToString::to_string),
            false => "its policies cannot tell, which is a denial".to_owned(),
        }
    }

    /// Returns the policies that set the timeout, with their places.
    #[must_use]
    pub fn timed_by(&self) -> String {
        let timeout = self.obligations.timeout;
        let all = self.deciding.iter().filter(|one| one.timeout == timeout);
        let all: Vec<String> = all
            .map(|one| format!("policy {} ({}:{})", one.id, one.file, one.line))
            .collect();
        all.join(", ")
    }

    /// Returns the policies that give this label, for a program; other permits that hold give none.
    #[must_use]
    pub fn labelled_by(&self, label: &str) -> String {
        let all = self
            .deciding
            .iter()
            .filter(|one| one.labels.contains(label));
        let all: Vec<String> = all.map(ToString::to_string).collect();
        all.join(", ")
    }

    /// Returns the policies that require an approval; other permits that hold require none.
    pub fn asking(&self) -> impl Iterator<Item = &Deciding> {
        self.deciding.iter().filter(|one| one.asks)
    }

    /// Returns every approver required.
    #[must_use]
    pub fn agreeing(&self) -> Vec<String> {
        let all = self.obligations.approve.iter();
        all.map(|one| match one == PERSON {
            true => "a person".to_owned(),
            false => format!("{one:?}"),
        })
        .collect()
    }

    /// Returns whether the approval of a person alone is required.
    #[must_use]
    pub fn asks_a_person(&self) -> bool {
        self.effect == Effect::Ask && self.obligations.asks_nobody_else()
    }

    /// Returns the best possible outcome: an approval that nobody can give is a denial.
    #[must_use]
    pub fn at_most(&self) -> Effect {
        match self.effect {
            Effect::Ask if !self.asks_a_person() => Effect::Deny,
            effect @ (Effect::Allow | Effect::Ask | Effect::Deny) => effect,
        }
    }

    fn explained(&self, one: impl Fn(&Deciding) -> String) -> String {
        if !self.errors.is_empty() {
            return format!("policies cannot tell: {}", self.errors.join("; "));
        }
        let all: Vec<String> = match self.effect {
            Effect::Ask => self.asking().map(&one).collect(),
            Effect::Allow | Effect::Deny => self.deciding.iter().map(&one).collect(),
        };
        match (self.effect, all.as_slice()) {
            (Effect::Deny, []) if self.others.is_empty() => "no policy permits it".to_owned(),
            (Effect::Deny, []) => {
                let others: Vec<String> = self.others.iter().map(one).collect();
                format!(
                    "no policy permits it: {} permits only others",
                    others.join(", ")
                )
            }
            (Effect::Deny, all) if self.is_unasked => format!(
                "to be approved, by {}; trust mode strict denies that",
                all.join(", ")
            ),
            (Effect::Deny, all) => format!("forbidden by {}", all.join(", ")),
            (Effect::Ask, all) if self.asks_a_person() => {
                format!("a person is asked by {}", all.join(", "))
            }
            (Effect::Ask, all) => format!(
                "not without approval of {}, by {}",
                self.agreeing().join(" and "),
                all.join(", ")
            ),
            (Effect::Allow, []) => "no policy says anything of it".to_owned(),
            (Effect::Allow, all) => format!("permitted by {}", all.join(", ")),
        }
    }
}

impl Deciding {
    /// Returns whether the policy is of a level of trust, or of Atoll's own rules on labels.
    #[must_use]
    pub fn is_of_level(&self) -> bool {
        [LEVEL, LABELS].iter().any(|own| self.file.starts_with(own))
    }

    /// Returns whether the policy is of the session's purpose.
    #[must_use]
    pub fn is_of_purpose(&self) -> bool {
        purpose_of(&self.file).is_some()
    }
}

impl Effect {
    /// Returns the past participle by which a policy of this effect is reported.
    #[must_use]
    pub fn done(self) -> &'static str {
        match self {
            Self::Allow => "permitted",
            Self::Ask => "asked about",
            Self::Deny => "denied",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Allow => "allowed",
            Self::Ask => "to be approved",
            Self::Deny => "denied",
        })
    }
}

impl fmt::Display for Deciding {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "policy {}", self.id)?;
        match &self.reason {
            Some(reason) => write!(to, ", {reason}"),
            None => Ok(()),
        }
    }
}
