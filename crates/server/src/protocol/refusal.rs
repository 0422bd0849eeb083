//! Refusals: the kind, the reason, and the next step.

use std::io::{self, ErrorKind};

use serde::{Deserialize, Serialize};

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The request is not understood, or cannot be carried out as it is.
    Invalid,
    /// Nothing valid shows who calls.
    Unauthenticated,
    /// The caller may not.
    Forbidden,
    /// There is no such sandbox for this caller.
    NoSandbox,
    /// There is no such thing in the sandbox.
    NotFound,
    /// Something that is there already.
    Exists,
    /// A quota is used up.
    Quota,
    /// There is no room on the disk.
    NoSpace,
    /// Something took too long.
    Late,
    /// The server cannot at the moment.
    Unavailable,
    /// A fault of the server's.
    Fault,
}

/// The reason why something is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind.
    pub kind: Kind,
    /// The error, and the reason.
    pub what: String,
    /// The next step for the caller.
    pub advice: Option<String>,
    /// The time after which to try again, seconds.
    pub retry_after_s: Option<u64>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.what)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// Makes one without advice.
    #[must_use]
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            advice: None,
            retry_after_s: None,
        }
    }

    /// Makes one of a request that cannot be carried out as it is.
    #[must_use]
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, what)
    }

    /// Adds what to do next.
    #[must_use]
    pub fn advise(self, advice: impl Into<String>) -> Self {
        Self {
            advice: Some(advice.into()),
            ..self
        }
    }

    /// Returns one sentence for a caller.
    #[must_use]
    pub fn told(&self) -> String {
        match &self.advice {
            Some(advice) => format!("{}: {advice}", self.what),
            None => self.what.clone(),
        }
    }

    /// Makes the one for an error about a file.
    pub(crate) fn of_file(path: &str, error: &io::Error) -> Self {
        let (kind, why) = match error.kind() {
            ErrorKind::NotFound => (Kind::NotFound, "there is no such file or directory"),
            ErrorKind::AlreadyExists => (Kind::Exists, "it is there already"),
            ErrorKind::NotADirectory => (Kind::Invalid, "it is not a directory"),
            ErrorKind::IsADirectory => (Kind::Invalid, "it is a directory"),
            ErrorKind::DirectoryNotEmpty => (Kind::Invalid, "it is a directory that is not empty"),
            ErrorKind::ConnectionRefused => (Kind::NotFound, "nothing listens there"),
            ErrorKind::PermissionDenied => (Kind::Forbidden, "the sandbox's user may not"),
            ErrorKind::ReadOnlyFilesystem => (Kind::Forbidden, "it is read-only"),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                (Kind::NoSpace, "there is no room left")
            }
            ErrorKind::InvalidInput => (Kind::Invalid, "it is no regular file, or no path"),
            ErrorKind::InvalidFilename => (Kind::Invalid, "a name in it is too long"),
            ErrorKind::ArgumentListTooLong => (Kind::Invalid, "it holds more than can be listed"),
            _ => return Self::new(Kind::Invalid, format!("{path}: {error}")),
        };
        Self::new(kind, format!("{path}: {why}"))
    }
}
