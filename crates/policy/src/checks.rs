//! Checks of a run's changes before they are taken over: `[checks]`, and `[apply]`.

use std::time::Duration;

use atoll_model::parse_duration;

use crate::document::{Complaint, Document, Section};
use crate::error::{ProfileError, invalid};
use crate::origin::{Origin, Sourced};
use crate::words::Author;

/// The time that all checks of a run have together, unless a profile sets another.
const TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// The longest command or pattern, bytes.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// The checks of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checks {
    /// The commands, each for `sh -c`.
    pub commands: Vec<String>,
    /// Patterns, as in `.gitignore`, of further files that decide what passes; `!` takes files out.
    pub judge: Vec<String>,
    /// The time that all of them have together.
    pub timeout: Duration,
    /// True if changes are applied at the end of a run once the checks have passed.
    pub applies: bool,
}

/// `[checks]` and `[apply]` of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckSettings {
    commands: Vec<Sourced<String>>,
    judge: Vec<Sourced<String>>,
    timeout: Option<Sourced<Duration>>,
    applies: Option<Sourced<bool>>,
}

impl CheckSettings {
    pub(crate) fn read(document: &mut Document, top: &mut Section<'_>, author: Author) -> Self {
        if author == Author::Project {
            let why = "a project's file cannot decide what is checked; write it into a profile of your own";
            document.refuse(top, "checks", why);
            document.refuse(top, "apply", why);
        }
        let mut settings = Self::default();
        if let Some(mut section) = document.section(top, "checks", "checks") {
            let commands = document.list(&mut section, "commands", parse_text);
            let judge = document.list(&mut section, "judge", parse_pattern);
            settings.commands = commands.map(|list| list.value).unwrap_or_default();
            settings.judge = judge.map(|list| list.value).unwrap_or_default();
            settings.timeout = document.text(&mut section, "timeout", parse_timeout);
            document.end(section, &["commands", "judge", "timeout"]);
        }
        if let Some(mut section) = document.section(top, "apply", "apply") {
            settings.applies = document.text(&mut section, "when", parse_when);
            document.end(section, &["when"]);
        }
        settings
    }
}

fn parse_text(text: &str) -> Result<String, Complaint> {
    match text.trim().is_empty() || text.contains('\0') || text.len() > TEXT_BYTES_MAX {
        true => Err(Complaint::new(
            format!("it is empty, longer than {TEXT_BYTES_MAX} bytes, or has a zero byte"),
            "write it as for a shell, as \"cargo test\"",
        )),
        false => Ok(text.to_owned()),
    }
}

fn parse_pattern(text: &str) -> Result<String, Complaint> {
    let text = parse_text(text)?;
    match text.starts_with('#') || text == "!" || text.contains(['\n', '\r']) {
        true => Err(Complaint::new(
            format!("{text:?} matches nothing"),
            "write a pattern as in .gitignore, as \"tests/**\"",
        )),
        false => Ok(text),
    }
}

fn parse_timeout(text: &str) -> Result<Duration, Complaint> {
    match parse_duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        Ok(_) => Err("no check can pass in no time".to_owned().into()),
        Err(error) => Err(error.to_string().into()),
    }
}

fn parse_when(text: &str) -> Result<bool, Complaint> {
    match text {
        "checks" => Ok(true),
        "person" => Ok(false),
        _ => Err(Complaint::new(
            format!("{text:?} is not known"),
            "write \"checks\" or \"person\"",
        )),
    }
}

/// The checks of merged profiles, with the origin of each value.
#[derive(Clone, Debug)]
pub(crate) struct CheckRules {
    pub(crate) commands: Vec<Sourced<String>>,
    pub(crate) judge: Vec<Sourced<String>>,
    pub(crate) timeout: Sourced<Duration>,
    pub(crate) applies: Sourced<bool>,
}

impl Default for CheckRules {
    fn default() -> Self {
        Self {
            commands: Vec::new(),
            judge: Vec::new(),
            timeout: Sourced::built_in(TIMEOUT),
            applies: Sourced::built_in(false),
        }
    }
}

impl CheckRules {
    /// Merges a file's settings over these: lists add up.
    pub(crate) fn merge(&mut self, settings: CheckSettings) {
        self.commands.extend(settings.commands);
        self.judge.extend(settings.judge);
        if let Some(timeout) = settings.timeout {
            self.timeout = timeout;
        }
        if let Some(applies) = settings.applies {
            self.applies = applies;
        }
    }

    /// Refuses to apply by checks where there are none.
    pub(crate) fn settle(&self) -> Result<(), ProfileError> {
        match self.applies.value && self.commands.is_empty() {
            true => {
                let what = "[apply]: when = \"checks\", and `commands` in [checks] names none: \
                            every change would pass";
                Err(invalid(&self.applies.origin, what.to_owned()))
            }
            false => Ok(()),
        }
    }

    /// Returns whether they differ from the defaults, so that they are worth showing.
    pub(crate) fn are_stated(&self) -> bool {
        let origins = [&self.timeout.origin, &self.applies.origin];
        let are_built_in = origins.iter().all(|one| **one == Origin::BuiltIn);
        !(self.commands.is_empty() && self.judge.is_empty() && are_built_in)
    }
}
