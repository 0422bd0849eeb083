//! Obligations: annotations of permitting policies, read strictly when they are loaded.
//!
//! | annotation | value | of two, in force |
//! |---|---|---|
//! | `@approve` | the approvers: `"person"`, or a group's name | both approve |
//! | `@redact` | the parts to remove, as `"header:NAME"`, separated by commas | the union |
//! | `@rate` | as `"100/m"`: a number per second, minute, hour or day | both |
//! | `@timeout` | as `"90s"`, `"30m"`, `"2h"`, `"1d"` | the shorter |
//! | `@checkpoint` | none | either |
//! | `@label` | labels of touched data, separated by commas | the union |
//! | `@shadow` | none, or `"twice"` | twice |
//! | `@log` | a sentence to report | both |
//!
//! So any combination binds at least as much as each of its parts alone, in any order.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use atoll_model::Shadow;

use crate::{Action, Redaction};

/// The longest annotation, bytes.
const VALUE_BYTES_MAX: usize = 512;
/// The only approver that can be asked.
pub(crate) const PERSON: &str = "person";
/// The most names in one annotation.
const NAMES_MAX: usize = 32;
/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 64;
/// The most events that a rate can count in one period.
const RATE_MAX: u32 = 10_000;
/// The longest timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    /// The number of events, at least 1.
    pub count: u32,
    /// The period, seconds: 1, 60, 3,600 or 86,400.
    pub seconds: u32,
}

/// A kind of obligation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obligation {
    /// Somebody approves first.
    Approve,
    /// Something is redacted.
    Redact,
    /// The action happens only so often.
    Rate,
    /// The action ends after a time.
    Timeout,
    /// There is a state to roll back to.
    Checkpoint,
    /// The session gets labels of touched data.
    Label,
    /// A call runs on a copy first.
    Shadow,
    /// A sentence is reported.
    Log,
}

impl Obligation {
    /// All obligations.
    pub const ALL: [Self; 8] = [
        Self::Approve,
        Self::Redact,
        Self::Rate,
        Self::Timeout,
        Self::Checkpoint,
        Self::Label,
        Self::Shadow,
        Self::Log,
    ];

    /// Returns the annotation's name, without the `@`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Redact => "redact",
            Self::Rate => "rate",
            Self::Timeout => "timeout",
            Self::Checkpoint => "checkpoint",
            Self::Label => "label",
            Self::Shadow => "shadow",
            Self::Log => "log",
        }
    }
}

/// Returns the obligations that this build carries out for an action. Any other one denies.
#[must_use]
pub fn carried(action: Action) -> &'static [Obligation] {
    match action {
        // Who starts it is asked.
        Action::Run | Action::Exec => &[Obligation::Approve, Obligation::Timeout, Obligation::Log],
        Action::Call => &[
            Obligation::Approve,
            Obligation::Timeout,
            Obligation::Shadow,
            Obligation::Log,
        ],
        Action::Read => &[Obligation::Label, Obligation::Log],
        Action::Write => &[Obligation::Log],
        // Who uses one waits for a person, as who starts a run that publishes one.
        Action::UseCredential | Action::Publish => &[Obligation::Approve, Obligation::Log],
        // What is written over is kept first, and can be put back; who takes it over is asked.
        Action::Promote => &[Obligation::Approve, Obligation::Checkpoint, Obligation::Log],
        Action::Restore => &[Obligation::Approve, Obligation::Log],
        // Of a connection there is nobody to tell but its record.
        Action::Connect => &[Obligation::Approve, Obligation::Label, Obligation::Rate],
        Action::Request => &[
            Obligation::Approve,
            Obligation::Label,
            Obligation::Rate,
            Obligation::Redact,
        ],
        Action::Resolve => &[],
        // Who is there has said yes already.
        Action::Escalate | Action::Administer => &[],
    }
}

/// The obligations of every policy that decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obligations {
    /// The approvers, each of whom has to approve.
    pub approve: BTreeSet<String>,
    /// The redactions, as written; one that is no [`Redaction`] denies.
    pub redact: BTreeSet<String>,
    /// The rate limits, each of which is enforced.
    pub rate: BTreeSet<Rate>,
    /// The time after which the action is ended.
    pub timeout: Option<Duration>,
    /// Set when there has to be a state to roll back to.
    pub checkpoint: bool,
    /// The labels of touched data.
    pub label: BTreeSet<String>,
    /// The runs on a copy that come first.
    pub shadow: Option<Shadow>,
    /// The sentences to report.
    pub log: BTreeSet<String>,
}

impl Obligations {
    /// Adds an annotation. Returns whether its name is that of an obligation.
    ///
    /// # Errors
    /// Describes the form that the value has to have.
    pub(crate) fn read(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let Some(one) = Obligation::ALL.into_iter().find(|one| one.name() == name) else {
            return Ok(false);
        };
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!("it is longer than {VALUE_BYTES_MAX} bytes"));
        }
        match one {
            Obligation::Approve => self.approve.extend(names(value)?),
            Obligation::Redact => self.redact.extend(redactions(value)?),
            Obligation::Label => self.label.extend(names(value)?),
            Obligation::Rate => {
                self.rate.insert(rate(value)?);
            }
            Obligation::Timeout => {
                let new = timeout(value)?;
                self.timeout = Some(self.timeout.map_or(new, |present| present.min(new)));
            }
            Obligation::Checkpoint if value.is_empty() => self.checkpoint = true,
            Obligation::Checkpoint => return Err("it has no value".to_owned()),
            Obligation::Shadow => {
                let times = match value {
                    "" => Shadow::Once,
                    "twice" => Shadow::Twice,
                    _ => return Err("it has no value, or \"twice\"".to_owned()),
                };
                self.shadow = self.shadow.max(Some(times));
            }
            Obligation::Log if value.trim().is_empty() => {
                return Err("a sentence is told, and this is none".to_owned());
            }
            Obligation::Log => {
                self.log.insert(value.to_owned());
            }
        }
        Ok(true)
    }

    /// Adds the obligations of another policy; of two the stricter counts.
    pub fn add(&mut self, other: &Self) {
        self.approve.extend(other.approve.iter().cloned());
        self.redact.extend(other.redact.iter().cloned());
        self.rate.extend(&other.rate);
        self.timeout = match (self.timeout, other.timeout) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        self.checkpoint |= other.checkpoint;
        self.label.extend(other.label.iter().cloned());
        self.shadow = self.shadow.max(other.shadow);
        self.log.extend(other.log.iter().cloned());
    }

    /// Returns the kinds of obligation that are present.
    #[must_use]
    pub fn all(&self) -> Vec<Obligation> {
        let there = |one: &Obligation| match one {
            Obligation::Approve => !self.approve.is_empty(),
            Obligation::Redact => !self.redact.is_empty(),
            Obligation::Rate => !self.rate.is_empty(),
            Obligation::Timeout => self.timeout.is_some(),
            Obligation::Checkpoint => self.checkpoint,
            Obligation::Label => !self.label.is_empty(),
            Obligation::Shadow => self.shadow.is_some(),
            Obligation::Log => !self.log.is_empty(),
        };
        Obligation::ALL.into_iter().filter(there).collect()
    }
}

impl Obligations {
    /// Returns the obligations outside the `carried` ones, as written.
    pub(crate) fn uncarried(&self, carried: &[Obligation]) -> Vec<String> {
        let is_whole = |one: &Obligation| carried.contains(one);
        let missing = self.all().into_iter().filter(|one| !is_whole(one));
        let mut missing: Vec<String> = missing.map(|one| one.to_string()).collect();
        if is_whole(&Obligation::Redact) {
            let unknown = self
                .redact
                .iter()
                .filter(|one| Redaction::parse(one).is_none());
            missing.extend(unknown.map(|one| format!("@redact({one:?})")));
        }
        missing
    }

    /// Returns whether no approver is required other than a person, the only one that can be asked.
    #[must_use]
    pub fn asks_nobody_else(&self) -> bool {
        self.approve.iter().all(|one| one == PERSON)
    }

    /// Returns the redactions that this build knows.
    pub fn redactions(&self) -> impl Iterator<Item = Redaction> {
        self.redact.iter().filter_map(|one| Redaction::parse(one))
    }
}

impl Obligations {
    /// Returns each obligation with its value, as written.
    #[must_use]
    pub fn written(&self) -> Vec<String> {
        let names = |names: &BTreeSet<String>| {
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            format!("({:?})", all.join(", "))
        };
        let rate = |one: &Rate| format!("{} in {} s", one.count, one.seconds);
        let value = |one: Obligation| match one {
            Obligation::Approve => names(&self.approve),
            Obligation::Redact => names(&self.redact),
            Obligation::Label => names(&self.label),
            Obligation::Rate => names(&self.rate.iter().map(rate).collect()),
            Obligation::Timeout => {
                let seconds = self.timeout.unwrap_or_default().as_secs();
                format!("(\"{seconds}s\")")
            }
            Obligation::Checkpoint => String::new(),
            Obligation::Shadow => match self.shadow {
                Some(Shadow::Twice) => "(\"twice\")".to_owned(),
                Some(Shadow::Once) | None => String::new(),
            },
            Obligation::Log => names(&self.log),
        };
        let all = self.all().into_iter();
        all.map(|one| format!("{one}{}", value(one))).collect()
    }
}

impl fmt::Display for Obligation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "@{}", self.name())
    }
}

fn names(value: &str) -> Result<BTreeSet<String>, String> {
    let is_name = |name: &&str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_known)
    };
    let all: Vec<&str> = value.split(',').map(str::trim).collect();
    match all.len() <= NAMES_MAX && all.iter().all(is_name) {
        true => Ok(all.into_iter().map(str::to_owned).collect()),
        false => Err(format!(
            "it is names of letters, digits, '-', '_' and '.', with commas between, at most {NAMES_MAX}"
        )),
    }
}

/// Parses names with a prefix, as `header:NAME`.
fn redactions(value: &str) -> Result<BTreeSet<String>, String> {
    let known = names(&value.replace(':', "."));
    known.map_err(|why| why.replace("'-', '_' and '.'", "'-', '_', '.' and ':'"))?;
    let all = value.split(',');
    Ok(all.map(|one| one.trim().to_ascii_lowercase()).collect())
}

/// Parses a whole number without a sign or a leading zero.
fn number(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}

fn rate(value: &str) -> Result<Rate, String> {
    let read = || {
        let (count, unit) = value.split_once('/')?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return None,
        };
        let count = number(count).filter(|count| *count <= RATE_MAX)?;
        Some(Rate { count, seconds })
    };
    read().ok_or_else(|| {
        format!("it is a number and a time, as \"100/m\": s, m, h or d, and {RATE_MAX} at most")
    })
}

fn timeout(value: &str) -> Result<Duration, String> {
    let read = || {
        let (count, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return None,
        };
        let count = u64::from(number(count)?);
        let time = Duration::from_secs(count.checked_mul(seconds)?);
        (time <= TIMEOUT_MAX).then_some(time)
    };
    read().ok_or_else(|| {
        "it is a time, as \"90s\", \"30m\", \"2h\" or \"1d\", of 30 days at most".to_owned()
    })
}
