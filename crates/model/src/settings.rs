//! Settings files of an agent, which the sandbox sees as copies without their secrets.

use serde::{Deserialize, Serialize};

/// The stand-in for a settings file in the sandbox, as it was when the run began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceholderState {
    /// The SHA-256 of its text, in hexadecimal digits; `None` if there was no stand-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Set when its text differed from the file's, or when an existing file had no stand-in: then
    /// changes made in the sandbox must not be written over the file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_secrets: bool,
}
