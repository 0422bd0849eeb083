use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{InvalidRunId, RunId};

/// The longest name of a session, bytes.
pub const SESSION_NAME_BYTES_MAX: usize = 64;

/// A session's name, given by a person: letters, digits, `.`, `_` and `-`, at most 64 of them, the
/// first a letter or a digit. It is a safe file name, and never reads as a [`SessionId`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionName(String);

/// A session's id: `s-` and the form of a run's id. It is never reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

/// The error for a text that is not a session's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a session's name: letters, digits, '.', '_' and '-', at most \
     {SESSION_NAME_BYTES_MAX} of them, the first a letter or a digit"
)]
pub struct InvalidSessionName(String);

/// The error for a text that is not a session's id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a session's id: expected the form s-261121-093012-k7qd")]
pub struct InvalidSessionId(String);

/// The prefix that distinguishes a session's id from a run's.
const ID_BEGIN: &str = "s-";

impl SessionName {
    /// Reads a name.
    ///
    /// # Errors
    /// [`InvalidSessionName`] for anything that is not one.
    pub fn parse(text: &str) -> Result<Self, InvalidSessionName> {
        let is_one = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let begins = |byte: &u8| byte.is_ascii_alphanumeric();
        let well_formed = text.len() <= SESSION_NAME_BYTES_MAX
            && text.as_bytes().first().is_some_and(begins)
            && text.bytes().all(is_one)
            && SessionId::parse(text).is_err();
        match well_formed {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidSessionName(text.to_owned())),
        }
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl SessionId {
    /// Makes an id from a point in time (seconds since 1970, UTC) and random bits, of which
    /// twenty are used.
    #[must_use]
    pub fn new(unix_seconds: u64, random: u32) -> Self {
        Self(format!("{ID_BEGIN}{}", RunId::new(unix_seconds, random)))
    }

    /// Reads an id that was written by [`SessionId::new`].
    ///
    /// # Errors
    /// [`InvalidSessionId`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidSessionId> {
        let rest = text.strip_prefix(ID_BEGIN).unwrap_or_default();
        match RunId::parse(rest) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(InvalidRunId { .. }) => Err(InvalidSessionId(text.to_owned())),
        }
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TryFrom<String> for SessionName {
    type Error = InvalidSessionName;
    fn try_from(text: String) -> Result<Self, InvalidSessionName> {
        Self::parse(&text)
    }
}

impl From<SessionName> for String {
    fn from(name: SessionName) -> Self {
        name.0
    }
}

impl TryFrom<String> for SessionId {
    type Error = InvalidSessionId;
    fn try_from(text: String) -> Result<Self, InvalidSessionId> {
        Self::parse(&text)
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::{SessionId, SessionName};

    #[test]
    fn names_are_safe_as_files_and_no_ids() {
        let long = "x".repeat(64);
        let longer = "x".repeat(65);
        for (text, expected) in [
            ("fix-login", true),
            ("a", true),
            ("2026.release_3", true),
            ("Fix", true),
            (long.as_str(), true),
            (longer.as_str(), false),
            ("", false),
            (".", false),
            ("..", false),
            (".hidden", false),
            ("-x", false),
            ("a/b", false),
            ("a b", false),
            ("a\n", false),
            ("ä", false),
            ("s-261121-093012-k7qd", false),
            ("s-261121", true),
        ] {
            assert_eq!(SessionName::parse(text).is_ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn an_id_is_read_as_it_was_made() {
        let id = SessionId::new(1_795_253_412, 7);
        assert_eq!(SessionId::parse(id.as_str()), Ok(id));
        for text in ["", "s-", "261121-093012-k7qd", "s-261121-093012-k7qi"] {
            assert!(SessionId::parse(text).is_err(), "{text}");
        }
    }
}
