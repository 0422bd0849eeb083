//! The settings of the command line for trust, task and purpose.

use crate::document::Complaint;
use crate::error::ProfileError;
use crate::levels::{Level, PURPOSE, TrustMode, preset};
use crate::origin::{Origin, Sourced};
use crate::rules::Rules;
use crate::source::Requested;

const TRUST: Origin = Origin::CommandLine("--trust");

const MODE: Origin = Origin::CommandLine("--mode");

const PRESET: Origin = Origin::CommandLine("--preset");

/// The longest task or purpose, bytes.
const STATED_BYTES_MAX: usize = 256;

/// Applies the command line's settings, the person's own.
pub(crate) fn apply(rules: &mut Rules, requested: &Requested) -> Result<(), ProfileError> {
    let wrong = |option: &'static str, complaint: Complaint| ProfileError::Request {
        option,
        why: match complaint.hint {
            Some(hint) => format!("{}; {hint}", complaint.what),
            None => complaint.what,
        },
    };
    let mut presets = requested
        .presets
        .iter()
        .filter_map(|name| preset::named(name));
    if let Some(preset) = presets.next() {
        rules.trust.level = Some(Sourced::new(preset.level, PRESET));
        rules.trust.mode = Some(Sourced::new(preset.mode, PRESET));
    }
    if presets.next().is_some() {
        return Err(ProfileError::Request {
            option: "--preset",
            why: "two of them say how far the program is trusted; leave one out".to_owned(),
        });
    }
    if let Some(text) = &requested.trust {
        let level = Level::parse(text).map_err(|complaint| wrong("--trust", complaint))?;
        rules.trust.level = Some(Sourced::new(level, TRUST));
    }
    if let Some(text) = &requested.mode {
        let mode = TrustMode::parse(text).map_err(|complaint| wrong("--mode", complaint))?;
        rules.trust.mode = Some(Sourced::new(mode, MODE));
    }
    rules.trust.task = stated("--task", requested.task.as_deref())?;
    if let Some(purpose) = stated("--purpose", requested.purpose.as_deref())? {
        rules.trust.displace(Sourced::new(purpose, PURPOSE));
    }
    rules.trust.go_on(&requested.earlier);
    Ok(())
}

fn stated(option: &'static str, text: Option<&str>) -> Result<Option<String>, ProfileError> {
    let Some(text) = text else {
        return Ok(None);
    };
    let is_plain = !text.is_empty() && !text.chars().any(char::is_control);
    match is_plain && text.len() <= STATED_BYTES_MAX {
        true => Ok(Some(text.to_owned())),
        false => Err(ProfileError::Request {
            option,
            why: format!("it is one line of text, at most {STATED_BYTES_MAX} bytes"),
        }),
    }
}
