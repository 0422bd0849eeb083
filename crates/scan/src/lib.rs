//! Scanners of files that nobody trusts: pure functions from content to findings.
//!
//! Nothing here is read or written but what is given. A caller that holds anything of worth runs them
//! in a sandbox: they read hostile input. Start reading at [`scan`], then at the module of a scanner.
//!
//! A scanner that cannot look at all of a content says so by an error: that is no finding, and never a
//! pass.

mod active;
mod archives;
mod base64;
mod bzip2;
#[cfg(any(test, feature = "corpus"))]
pub mod corpus;
mod inside;
pub mod instructions;
#[cfg(feature = "yara")]
mod malware;
mod personal;
pub mod pii;
mod programs;
mod secrets;
mod streams;
#[cfg(test)]
mod tests;
mod unpack;

use inside::in_text;
use serde::{Deserialize, Serialize};

pub use secrets::{Rules, RulesError};

/// The version of all scanners, which is noted with what they find. It goes up where one of them finds
/// another thing than before.
pub const VERSION: u32 = 2;

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
    /// Malware, by rules in the language of YARA. A build without the feature `yara` has no scanner for
    /// it: each scan is an error then.
    Malware,
}

impl Scanner {
    /// Each of them.
    pub const ALL: [Self; 6] = [
        Self::Secrets,
        Self::PersonalData,
        Self::Archives,
        Self::Programs,
        Self::ActiveContent,
        Self::Malware,
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
            Self::Malware => "malware",
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
    /// The place: `line 3`, `byte 17`, or the entry of an archive and the place in it, as `a.env, line
    /// 3`. Nothing of a secret is in it.
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
    /// The rules for malware are none that can be used.
    #[error("the rules for malware are invalid: {0}")]
    Rules(String),
    /// The time for it is over.
    #[error("the scan took too long")]
    TooSlow,
    /// This build has no such scanner.
    #[error("this build has no malware scanner")]
    Missing,
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
        Scanner::Secrets => {
            let mut look = |content: &[u8]| rules.scan(content);
            inside::scan(content, &mut |content| in_text(content, &mut look))?
        }
        Scanner::PersonalData => {
            let mut look = |content: &[u8]| Ok(personal::scan(content));
            inside::scan(content, &mut |content| in_text(content, &mut look))?
        }
        Scanner::Archives => archives::scan(content)?,
        Scanner::Programs => inside::scan(content, &mut |content| Ok(programs::scan(content)))?,
        Scanner::ActiveContent => active::scan(content)?,
        Scanner::Malware => malware(content, rules)?,
    };
    found.truncate(FINDINGS_MAX);
    Ok(found)
}

#[cfg(feature = "yara")]
fn malware(content: &[u8], rules: &Rules) -> Result<Vec<Finding>, Unscanned> {
    malware::scan(content, rules.yara())
}

/// A missing scanner is never a pass.
#[cfg(not(feature = "yara"))]
fn malware(_: &[u8], _: &Rules) -> Result<Vec<Finding>, Unscanned> {
    Err(Unscanned::Missing)
}

impl Finding {
    fn at_line(rule: impl Into<String>, content: &[u8], byte: usize, confidence: u8) -> Self {
        Lines::of(content).finding(rule, byte, confidence)
    }

    fn at_byte(rule: impl Into<String>, byte: usize, confidence: u8) -> Self {
        Self {
            rule: rule.into(),
            place: format!("byte {byte}"),
            confidence,
        }
    }

    fn at_entry(rule: &str, entry: &str, confidence: u8) -> Self {
        Self {
            rule: rule.to_owned(),
            place: shown(entry),
            confidence,
        }
    }

    /// Puts the entry of an archive before the place.
    fn within(mut self, entry: &str) -> Self {
        if !entry.is_empty() {
            self.place = format!("{}, {}", shown(entry), self.place);
        }
        self
    }
}

/// A count of the lines of a content, which goes on from where it was asked last.
struct Lines<'a> {
    content: &'a [u8],
    at: usize,
    line: usize,
}

impl<'a> Lines<'a> {
    fn of(content: &'a [u8]) -> Self {
        Self {
            content,
            at: 0,
            line: 1,
        }
    }

    /// Returns a finding at the line of a byte.
    fn finding(&mut self, rule: impl Into<String>, byte: usize, confidence: u8) -> Finding {
        if byte < self.at {
            *self = Self::of(self.content);
        }
        let between = self.content.get(self.at..byte).unwrap_or_default();
        self.line += memchr::memchr_iter(b'\n', between).count();
        self.at = byte;
        Finding {
            rule: rule.into(),
            place: format!("line {}", self.line),
            confidence,
        }
    }
}

/// Returns an entry's place as it is shown: its end, which has its name, where it is long.
fn shown(entry: &str) -> String {
    let shown = entry.escape_debug().to_string();
    let left_out = shown.chars().count().saturating_sub(PLACE_CHARS_MAX);
    shown.chars().skip(left_out).collect()
}

/// The longest entry in a place, characters.
const PLACE_CHARS_MAX: usize = 200;
