//! Scanners of files that nobody trusts: pure functions from content to findings.
//!
//! Nothing here is read or written but what is given. A caller that holds anything of worth runs them
//! in a sandbox: they read hostile input. Start reading at [`scan`], then at the module of a scanner.
//!
//! A scanner that cannot look at all of a content says so by an error: that is no finding, and never a
//! pass.

mod active;
mod archives;
mod personal;
pub mod pii;
mod programs;
mod secrets;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use secrets::{Rules, RulesError};

/// The version of all scanners, which is noted with what they find. It goes up where one of them finds
/// another thing than before.
pub const VERSION: u32 = 1;

/// The largest content that is scanned, bytes.
pub const CONTENT_BYTES_MAX: usize = 64 << 20;

/// The most findings of one scanner in one content.
pub const FINDINGS_MAX: usize = 100;

/// A scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scanner {
    /// Keys and passwords, by rules in the format of gitleaks and by their entropy.
    Secrets,
    /// Personal data, by checksum where there is one.
    PersonalData,
    /// Archives that lead out of their directory, hide what is in them, or grow without bounds.
    Archives,
    /// Programs, whatever the name says.
    Programs,
    /// Documents and pages that run something where they are opened.
    ActiveContent,
}

impl Scanner {
    /// Each of them.
    pub const ALL: [Self; 5] = [
        Self::Secrets,
        Self::PersonalData,
        Self::Archives,
        Self::Programs,
        Self::ActiveContent,
    ];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Secrets => "secrets",
            Self::PersonalData => "personal-data",
            Self::Archives => "archives",
            Self::Programs => "programs",
            Self::ActiveContent => "active-content",
        }
    }

    /// Returns the one of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// Something that a scanner has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The rule.
    pub rule: String,
    /// The place: `line 3`, `byte 17`, or the entry of an archive. Nothing of a secret is in it.
    pub place: String,
    /// The confidence that it is one, percent.
    pub confidence: u8,
}

/// A content could not be scanned, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unscanned {
    /// Too large.
    #[error("it is larger than {} MiB", CONTENT_BYTES_MAX >> 20)]
    TooLarge,
    /// Damaged, or of a form that is not known.
    #[error("it cannot be read as what it is: {0}")]
    Unreadable(String),
}

/// Scans a content. What was found before an error is not told: all of it is held then.
///
/// # Errors
/// [`Unscanned`].
pub fn scan(scanner: Scanner, content: &[u8], rules: &Rules) -> Result<Vec<Finding>, Unscanned> {
    if content.len() > CONTENT_BYTES_MAX {
        return Err(Unscanned::TooLarge);
    }
    let mut found = match scanner {
        Scanner::Secrets => rules.scan(content),
        Scanner::PersonalData => personal::scan(content),
        Scanner::Archives => archives::scan(content)?,
        Scanner::Programs => programs::scan(content),
        Scanner::ActiveContent => active::scan(content)?,
    };
    found.truncate(FINDINGS_MAX);
    Ok(found)
}

impl Finding {
    fn at_line(rule: impl Into<String>, content: &[u8], byte: usize, confidence: u8) -> Self {
        let before = content.get(..byte).unwrap_or(content);
        let line = 1 + memchr::memchr_iter(b'\n', before).count();
        Self {
            rule: rule.into(),
            place: format!("line {line}"),
            confidence,
        }
    }

    fn at_entry(rule: &str, entry: &str, confidence: u8) -> Self {
        Self {
            rule: rule.to_owned(),
            place: entry.escape_debug().take(PLACE_CHARS_MAX).collect(),
            confidence,
        }
    }
}

/// The longest place, characters.
const PLACE_CHARS_MAX: usize = 200;
