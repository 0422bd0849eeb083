//! Files of an agent's settings, in whose places something without their secrets stands inside.

use serde::{Deserialize, Serialize};

/// What stood inside for a file of settings when a run began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stood {
    /// The SHA-256 of its text, in hexadecimal digits; none where nothing stood there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Whether it was another text than the file's, or nothing stood for a file that was there:
    /// then what becomes of it inside must not be written over the file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_secrets: bool,
}
