//! The result of a scanner.

use atoll_scan::Finding;
use serde::{Deserialize, Serialize};

/// The longest reason that is kept, characters.
pub(crate) const WHY_CHARS_MAX: usize = 300;

/// The result of one scanner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing was found, in all of it.
    Clean,
    /// Something was found.
    Found(Vec<Finding>),
    /// The scanner failed, was too slow, or could not read it: that says nothing of the content.
    Failed(String),
}

impl Verdict {
    /// Returns it in a word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Found(_) => "found",
            Self::Failed(_) => "failed",
        }
    }
}
