//! What is answered.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::handed::base_name;
use crate::obligation::PERSON;
use crate::{Obligation, Obligations, Rate};

/// What the names of files begin with that say what a level of trust means.
const LEVEL: &str = "level/";
/// The same for what becomes of data that a session has touched.
const LABELS: &str = "labels/";
/// Where the purposes that come with Atoll are written, in names of files.
const PURPOSE: &str = "purpose/";
/// How a file of a purpose of people's own ends.
const PURPOSE_END: &str = ".purpose.cedar";

/// The purpose of which a file is, by its name.
#[must_use]
pub fn purpose_of(file: &str) -> Option<&str> {
    let shipped = file.strip_prefix(PURPOSE);
    let shipped = shipped.and_then(|name| name.strip_suffix(".cedar"));
    shipped.or_else(|| base_name(file).strip_suffix(PURPOSE_END))
}

/// Whether something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It may, with its obligations.
    Allow,
    /// It may once somebody has agreed.
    Ask,
    /// It may not.
    Deny,
}

/// A policy that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deciding {
    /// Its `@id`, or where it is written.
    pub id: Arc<str>,
    /// The file that it is in.
    pub file: Arc<str>,
    /// Its line, counted from 1.
    pub line: u32,
    /// Its `@reason`, for people.
    pub reason: Option<Arc<str>>,
    /// What it says where it holds: allowed or denied.
    pub effect: Effect,
    /// After how long it ends what it permits.
    pub timeout: Option<Duration>,
    /// Whether somebody has to agree where it holds.
    pub asks: bool,
    /// What is touched where it holds.
    pub labels: BTreeSet<String>,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may happen.
    pub effect: Effect,
    /// The policies that decided: what forbids where something does, else what permits.
    pub deciding: Vec<Deciding>,
    /// What has to be done where it may.
    pub obligations: Obligations,
    /// How often it can happen, by which policy: each is kept to by itself.
    pub rates: Vec<(Arc<str>, Rate)>,
    /// Where nothing permits it, of each layer that denies it for that the first policy that
    /// permits others of its kind.
    pub others: Vec<Deciding>,
    /// Policies with `@shadow` that would have counted.
    pub shadowed: Vec<Deciding>,
    /// Why nobody could tell; then it is denied.
    pub errors: Vec<String>,
    /// Whether it is denied since somebody would have to agree, and nobody is asked.
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
            shadowed: Vec::new(),
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

    /// The same where only some obligations can be carried out: one with others is a denial, and
    /// so is one that somebody would have to be asked about.
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

    /// Whether a level of trust decided alone, and nobody's own policy.
    #[must_use]
    pub fn is_of_level(&self) -> bool {
        !self.deciding.is_empty() && self.deciding.iter().all(Deciding::is_of_level)
    }

    /// Whether what a session is for decided alone.
    #[must_use]
    pub fn is_of_purpose(&self) -> bool {
        !self.deciding.is_empty() && self.deciding.iter().all(Deciding::is_of_purpose)
    }

    /// The same where nobody is asked.
    pub(crate) fn strictly(mut self) -> Self {
        if self.effect == Effect::Ask {
            self.effect = Effect::Deny;
            self.is_unasked = true;
            self.deciding.retain(|one| one.asks);
        }
        self
    }

    /// Why it may not happen, in words: with where policies are written. Those of a level are in
    /// no file, and name it.
    #[must_use]
    pub fn why(&self) -> String {
        self.told(|one| match one.is_of_level() {
            true => one.to_string(),
            false => format!("{one} ({}:{})", one.file, one.line),
        })
    }

    /// The same for a program, which is not told where policies are written.
    #[must_use]
    pub fn why_inside(&self) -> String {
        match self.errors.is_empty() {
            true => self.told(ToString::to_string),
            false => "its policies cannot tell, which is a denial".to_owned(),
        }
    }

    /// The policies that say how long it may take, with where they are written.
    #[must_use]
    pub fn timed_by(&self) -> String {
        let timeout = self.obligations.timeout;
        let all = self.deciding.iter().filter(|one| one.timeout == timeout);
        let all: Vec<String> = all
            .map(|one| format!("policy {} ({}:{})", one.id, one.file, one.line))
            .collect();
        all.join(", ")
    }

    /// The policies that give this label, for a program: what permits beside them gives none.
    #[must_use]
    pub fn labelled_by(&self, label: &str) -> String {
        let all = self
            .deciding
            .iter()
            .filter(|one| one.labels.contains(label));
        let all: Vec<String> = all.map(ToString::to_string).collect();
        all.join(", ")
    }

    /// The policies that somebody is asked by: what permits beside them asks for nothing.
    pub fn asking(&self) -> impl Iterator<Item = &Deciding> {
        self.deciding.iter().filter(|one| one.asks)
    }

    /// Who has to agree, each of them.
    #[must_use]
    pub fn agreeing(&self) -> Vec<String> {
        let all = self.obligations.approve.iter();
        all.map(|one| match one == PERSON {
            true => "a person".to_owned(),
            false => format!("{one:?}"),
        })
        .collect()
    }

    /// Whether it may happen once a person says yes, and nobody else has to.
    #[must_use]
    pub fn asks_a_person(&self) -> bool {
        self.effect == Effect::Ask && self.obligations.asks_nobody_else()
    }

    /// What can come of it: what nobody can agree to is denied.
    #[must_use]
    pub fn at_most(&self) -> Effect {
        match self.effect {
            Effect::Ask if !self.asks_a_person() => Effect::Deny,
            effect @ (Effect::Allow | Effect::Ask | Effect::Deny) => effect,
        }
    }

    fn told(&self, one: impl Fn(&Deciding) -> String) -> String {
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
    /// Whether a level of trust says so, or what becomes of data by Atoll's own rule.
    #[must_use]
    pub fn is_of_level(&self) -> bool {
        [LEVEL, LABELS].iter().any(|own| self.file.starts_with(own))
    }

    /// Whether what a session is for says so.
    #[must_use]
    pub fn is_of_purpose(&self) -> bool {
        purpose_of(&self.file).is_some()
    }
}

impl Effect {
    /// What a policy of this effect would have done with something.
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
