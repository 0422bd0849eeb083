//! The error of every use case: its kind, its context, and what helps as data.
//!
//! A surface (the command line, a server) words the hints and chooses the exit status.

use std::fmt::Display;
use std::path::PathBuf;

use atoll_ledger::{FileFault, LedgerError, PrivateFault, SigningError, StateError};
use atoll_model::{Call, LimitKey, Reason, RunId};
use atoll_policy::ProfileError;
use atoll_store::VaultError;

use crate::call::CallError;

/// A use case that ended in an error: what happened, why, and what to do next.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// The error.
    pub what: String,
    /// The reason, as far as known.
    pub why: Option<String>,
    /// Remedies, the likeliest first.
    pub hints: Vec<Hint>,
    /// The kind of error.
    pub kind: Kind,
    /// The reasons of a denial, each with its rule.
    pub reasons: Vec<Reason>,
    /// The run it is about, with the profile, if one was named.
    pub about: Option<Box<(RunId, String)>>,
    /// Further notices, reported after everything else.
    pub notices: Box<Notices>,
}

/// The kinds of errors that callers treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something could not be done, wrong usage included.
    Failed,
    /// A policy or a person denied it.
    Denied,
    /// A proof of the ledger does not hold.
    Unproven,
}

/// A remedy.
#[derive(Debug)]
pub enum Hint {
    /// A sentence, or a command as a person types it.
    Text(String),
    /// A state directory that cannot be used is to be made usable.
    State(Box<StateError>),
    /// A profile or a policy with a mistake is to be corrected.
    Profile(Box<ProfileError>),
    /// The ledger is to be made usable.
    Ledger(Box<LedgerError>),
    /// A private file is to be made usable.
    Private(Box<PrivateFault>),
    /// The ledger's key or its checkpoints are to be made usable.
    Signing(Box<SigningError>),
    /// The path is to be writable by its owner alone.
    WritableByOthers(PathBuf),
    /// The path's owner is to be looked at.
    OwnedByOther(PathBuf),
    /// A login file is to be one file of its own, without links.
    OwnFile(PathBuf),
    /// The vault of secrets is to be made usable.
    Vault(Box<VaultError>),
    /// A call that failed is to be made possible.
    Call(Box<CallFault>),
    /// Room is to be made on the disk.
    Room,
    /// A sentence or a command in which each `{}` is the path, as a word of a shell.
    Naming(String, PathBuf),
}

/// A call that failed, with what is known of its run.
#[derive(Debug)]
pub struct CallFault {
    /// The error.
    pub error: CallError,
    /// The requested call.
    pub call: Call,
    /// The name of the profile that decided.
    pub profile: String,
    /// The limits set by options.
    pub limits: Vec<LimitKey>,
}

impl From<&str> for Hint {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&String> for Hint {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<VaultError> for Hint {
    fn from(error: VaultError) -> Self {
        Self::Vault(Box::new(error))
    }
}

impl From<SigningError> for Hint {
    fn from(error: SigningError) -> Self {
        Self::Signing(Box::new(error))
    }
}

impl From<StateError> for Hint {
    fn from(error: StateError) -> Self {
        Self::State(Box::new(error))
    }
}

impl From<ProfileError> for Hint {
    fn from(error: ProfileError) -> Self {
        Self::Profile(Box::new(error))
    }
}

impl From<LedgerError> for Hint {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(Box::new(error))
    }
}

impl From<PrivateFault> for Hint {
    fn from(fault: PrivateFault) -> Self {
        Self::Private(Box::new(fault))
    }
}

/// Sentences behind a failure: apart from it, since failures are handed on by value.
#[derive(Debug, Default)]
pub struct Notices(pub Vec<String>);

impl Failure {
    /// Creates an error in one sentence.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            why: None,
            hints: Vec::new(),
            kind: Kind::Failed,
            reasons: Vec::new(),
            about: None,
            notices: Box::default(),
        }
    }

    /// Creates the error of a file of Atoll's, with a remedy where there is no space for it.
    pub fn of_file(what: &str, fault: &FileFault) -> Self {
        let failure = Self::new(what).because(fault);
        match fault.is_out_of_space() {
            true => failure.advise(Hint::Room),
            false => failure,
        }
    }

    /// Sets the reason.
    #[must_use]
    pub fn because(mut self, why: impl Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    /// Adds a remedy.
    #[must_use]
    pub fn advise(mut self, hint: impl Into<Hint>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds further notices.
    #[must_use]
    pub fn noting<Line: Display>(mut self, notices: impl IntoIterator<Item = Line>) -> Self {
        let notices = notices.into_iter().map(|notice| notice.to_string());
        self.notices.0.extend(notices);
        self
    }

    /// Names the run and the profile that it is about.
    #[must_use]
    pub fn about(mut self, run: &RunId, profile: &str) -> Self {
        self.about = Some(Box::new((run.clone(), profile.to_owned())));
        self
    }

    /// Sets another kind.
    #[must_use]
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }
}

/// Adds the attempted operation to an error.
pub trait Doing<T> {
    /// Turns the error into a failure of this.
    ///
    /// # Errors
    /// As of the operation.
    fn doing(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: Display> Doing<T> for Result<T, E> {
    fn doing(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(what).because(error))
    }
}
