use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_model::Boundary;

use crate::Origin;

/// The exact rights of one sandbox. Only [`decide`](crate::decide) creates one, so a holder knows that
/// policy has allowed what it grants.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    boundary: Boundary,
    policy_digest: String,
    notices: Vec<Notice>,
    policies: Option<Vec<u8>>,
    wall_clock_by: Option<String>,
    labels: BTreeSet<String>,
}

impl Grant {
    pub(crate) fn new(
        boundary: Boundary,
        policy_digest: String,
        notices: Vec<Notice>,
        policies: Option<Vec<u8>>,
        wall_clock_by: Option<String>,
        labels: BTreeSet<String>,
    ) -> Self {
        Self {
            boundary,
            policy_digest,
            notices,
            policies,
            wall_clock_by,
            labels,
        }
    }

    /// Returns the labels of the data that the run has touched when it begins: anything shown
    /// counts as read.
    #[must_use]
    pub fn labels(&self) -> &BTreeSet<String> {
        &self.labels
    }

    /// Returns the serialised policies on connections, for the egress process to ask besides the
    /// boundary's rules; `None` if no policy is about connections.
    #[must_use]
    pub fn policies(&self) -> Option<&[u8]> {
        self.policies.as_deref()
    }

    /// Returns the policies that set the run's time limit, if some did.
    #[must_use]
    pub fn wall_clock_by(&self) -> Option<&str> {
        self.wall_clock_by.as_deref()
    }

    /// Returns the boundary: what may be seen, changed and used.
    #[must_use]
    pub fn boundary(&self) -> &Boundary {
        &self.boundary
    }

    /// Returns the version of the policy that decided: `sha256:` and the digest of every file and
    /// option that it was compiled from.
    #[must_use]
    pub fn policy_digest(&self) -> &str {
        &self.policy_digest
    }

    /// Returns the notices for the person: ignored files, rights that a higher layer took away,
    /// secrets that are passed.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }
}

/// The exact rights of one exec in a sandbox that was granted before. Only
/// [`decide`](crate::decide) creates one.
#[derive(Debug, PartialEq, Eq)]
pub struct ExecGrant {
    pub(crate) command: Vec<OsString>,
    pub(crate) directory: PathBuf,
    pub(crate) terminal: bool,
    pub(crate) wall_clock: Option<Duration>,
    pub(crate) wall_clock_by: Option<String>,
    pub(crate) policy_digest: String,
    pub(crate) notices: Vec<Notice>,
}

impl ExecGrant {
    /// Returns the program and its arguments.
    #[must_use]
    pub fn command(&self) -> &[OsString] {
        &self.command
    }

    /// Returns the working directory at its start.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns whether the program gets a terminal of its own.
    #[must_use]
    pub fn terminal(&self) -> bool {
        self.terminal
    }

    /// Returns the time after which policies end the exec; the sandbox's own limit counts besides.
    #[must_use]
    pub fn wall_clock(&self) -> Option<Duration> {
        self.wall_clock
    }

    /// Returns the policies that set the time limit, if some did.
    #[must_use]
    pub fn wall_clock_by(&self) -> Option<&str> {
        self.wall_clock_by.as_deref()
    }

    /// Returns the version of the policy that decided, as [`Grant::policy_digest`].
    #[must_use]
    pub fn policy_digest(&self) -> &str {
        &self.policy_digest
    }

    /// Returns the notices for the person.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }
}

/// The rights of one call, by what it asks for. Only [`decide`](crate::decide) creates one.
#[derive(Debug, PartialEq, Eq)]
pub enum Granted {
    /// Those of a sandbox.
    Sandbox(Box<Grant>),
    /// Those of an exec.
    Exec(ExecGrant),
}

impl TryFrom<Granted> for Grant {
    type Error = Granted;

    fn try_from(granted: Granted) -> Result<Self, Granted> {
        match granted {
            Granted::Sandbox(grant) => Ok(*grant),
            other @ Granted::Exec(_) => Err(other),
        }
    }
}

impl TryFrom<Granted> for ExecGrant {
    type Error = Granted;

    fn try_from(granted: Granted) -> Result<Self, Granted> {
        match granted {
            Granted::Exec(grant) => Ok(grant),
            other @ Granted::Sandbox(_) => Err(other),
        }
    }
}

/// A notice to the person about how the rules were compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// The sentence.
    pub text: String,
    /// The line or option that it is about.
    pub origin: Origin,
}

impl fmt::Display for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.text, self.origin)
    }
}
