//! Files of an agent's settings, in whose places something without their secrets stands inside.

use serde::{Deserialize, Serialize};

/// A value in whose place something else stands. Nothing of it is in here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Masked {
    /// Where it is, as a JSON Pointer (RFC 6901).
    pub at: String,
    /// What stands there: a text; none for a number, which is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What stood inside for a file of settings when a run began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stood {
    /// The SHA-256 of its text, in hexadecimal digits; none where nothing stood there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Where it differed from the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<Masked>,
    /// Whether the file was there and nothing could stand for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unfit: bool,
}

impl Stood {
    /// Whether nothing of the file is a secret, as far as that is known.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        self.masked.is_empty() && !self.is_unfit
    }
}
