//! What has to be done where a policy permits: annotations, read strictly when they are loaded.
//!
//! | annotation | value | of two the stricter is |
//! |---|---|---|
//! | `@approve` | who has to agree: `"person"`, or a group's name | both agree |
//! | `@redact` | what is taken out, as `"header:NAME"`, by commas | what either names |
//! | `@rate` | as `"100/m"`: so often in a second, minute, hour or day | both are kept to |
//! | `@timeout` | as `"90s"`, `"30m"`, `"2h"`, `"1d"` | the shorter |
//! | `@checkpoint` | none | either asks for it |
//! | `@label` | names of what is touched, by commas | what either names |
//! | `@log` | a sentence | both are told |
//!
//! So whatever comes together binds at least as much as each of them alone, in any order.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::{Action, Redaction};

/// The longest annotation, bytes.
const VALUE_BYTES_MAX: usize = 512;
/// Who can be asked.
pub(crate) const PERSON: &str = "person";
/// The most names of one annotation.
const NAMES_MAX: usize = 32;
/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 64;
/// The most that can be counted in one time.
const RATE_MAX: u32 = 10_000;
/// The longest timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// So often in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    /// How often, at least once.
    pub count: u32,
    /// In which time, seconds: 1, 60, 3,600 or 86,400.
    pub seconds: u32,
}

/// One thing that has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obligation {
    /// Somebody agrees first.
    Approve,
    /// Something is taken out of what goes on.
    Redact,
    /// It happens only so often.
    Rate,
    /// It ends after a time.
    Timeout,
    /// There is a state to return to.
    Checkpoint,
    /// The session has touched such data.
    Label,
    /// It is told.
    Log,
}

impl Obligation {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Approve,
        Self::Redact,
        Self::Rate,
        Self::Timeout,
        Self::Checkpoint,
        Self::Label,
        Self::Log,
    ];

    /// Its annotation, without the `@`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Redact => "redact",
            Self::Rate => "rate",
            Self::Timeout => "timeout",
            Self::Checkpoint => "checkpoint",
            Self::Label => "label",
            Self::Log => "log",
        }
    }
}

/// What this build does where it comes with something: anything else denies.
#[must_use]
pub fn carried(action: Action) -> &'static [Obligation] {
    match action {
        // Who starts it is asked.
        Action::Run => &[Obligation::Approve, Obligation::Timeout, Obligation::Log],
        Action::Read => &[Obligation::Label, Obligation::Log],
        Action::Write => &[Obligation::Log],
        // Who uses one waits for a person, as who starts a run that publishes one.
        Action::UseCredential | Action::Publish => &[Obligation::Approve, Obligation::Log],
        // What is written over is kept first, and can be put back; who takes it over is asked.
        Action::Promote => &[Obligation::Approve, Obligation::Checkpoint, Obligation::Log],
        // Of a connection there is nobody to tell but its record.
        Action::Connect => &[Obligation::Approve, Obligation::Label, Obligation::Rate],
        Action::Request => &[
            Obligation::Approve,
            Obligation::Label,
            Obligation::Rate,
            Obligation::Redact,
        ],
        Action::Resolve => &[],
        Action::Exec | Action::Call | Action::Escalate | Action::Administer => &[],
    }
}

/// All that has to be done, of every policy that decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obligations {
    /// Who has to agree, each of them.
    pub approve: BTreeSet<String>,
    /// What is taken out, as it is written: what is no [`Redaction`] denies.
    pub redact: BTreeSet<String>,
    /// How often it can happen; each is kept to.
    pub rate: BTreeSet<Rate>,
    /// After how long it ends.
    pub timeout: Option<Duration>,
    /// Whether there is a state to return to.
    pub checkpoint: bool,
    /// Which data has been touched.
    pub label: BTreeSet<String>,
    /// What is told.
    pub log: BTreeSet<String>,
}

impl Obligations {
    /// Adds an annotation. Returns whether it is one that binds.
    ///
    /// # Errors
    /// What its value would have to be.
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
            Obligation::Log if value.trim().is_empty() => {
                return Err("a sentence is told, and this is none".to_owned());
            }
            Obligation::Log => {
                self.log.insert(value.to_owned());
            }
        }
        Ok(true)
    }

    /// Adds what others ask for: of two the stricter counts.
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
        self.log.extend(other.log.iter().cloned());
    }

    /// Which of them there are.
    #[must_use]
    pub fn all(&self) -> Vec<Obligation> {
        let there = |one: &Obligation| match one {
            Obligation::Approve => !self.approve.is_empty(),
            Obligation::Redact => !self.redact.is_empty(),
            Obligation::Rate => !self.rate.is_empty(),
            Obligation::Timeout => self.timeout.is_some(),
            Obligation::Checkpoint => self.checkpoint,
            Obligation::Label => !self.label.is_empty(),
            Obligation::Log => !self.log.is_empty(),
        };
        Obligation::ALL.into_iter().filter(there).collect()
    }
}

impl Obligations {
    /// What of it is not carried out where only these are, as it would be written.
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

    /// Whether nobody has to agree but a person, who alone can be asked.
    #[must_use]
    pub fn asks_nobody_else(&self) -> bool {
        self.approve.iter().all(|one| one == PERSON)
    }

    /// What is taken out.
    pub fn redactions(&self) -> impl Iterator<Item = Redaction> {
        self.redact.iter().filter_map(|one| Redaction::parse(one))
    }
}

impl Obligations {
    /// Each with its value, as it would be written.
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

/// The same with what each is a name of: `header:NAME`.
fn redactions(value: &str) -> Result<BTreeSet<String>, String> {
    let known = names(&value.replace(':', "."));
    known.map_err(|why| why.replace("'-', '_' and '.'", "'-', '_', '.' and ':'"))?;
    let all = value.split(',');
    Ok(all.map(|one| one.trim().to_ascii_lowercase()).collect())
}

/// A whole number without a sign or a zero at its beginning.
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
