//! Remains of a ledger in the state directory: files that only a ledger can have caused. If they
//! are there and the ledger is not, somebody took it away.

use std::fmt;
use std::path::Path;

use atoll_model::{RunId, SessionId};
use serde_json::{Value, json};

use crate::sent;
use crate::state::{GAINED, RUNS, SESSIONS, TELEMETRY};
use crate::{LedgerError, Seals, StateDir};

/// The ending of the names of files that record where sessions began.
pub(crate) const SESSION_FILE_END: &str = ".session";

/// The numbers of remains, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remains {
    /// Directories of runs, which are made only after their opening was appended.
    runs: u64,
    /// Keys of runs, which are made only once there is a head.
    seals: u64,
    /// Files that record where sessions began.
    sessions: u64,
    /// Files of the labels that a session's runs have gained.
    gained: u64,
    /// Files that record how far the ledger was sent somewhere.
    sent: u64,
}

impl Remains {
    /// Counts the runs alone, for a ledger that has its head.
    pub(crate) fn runs(state: &StateDir) -> Self {
        let is_run = |name: &str| RunId::parse(name).is_ok();
        Self {
            runs: count(&state.path().join(RUNS), is_run),
            ..Self::default()
        }
    }

    /// Counts all kinds, for a ledger without a head.
    ///
    /// # Errors
    /// [`LedgerError::Seal`] where nobody can say whether there are keys of runs.
    pub(crate) fn all(state: &StateDir) -> Result<Self, LedgerError> {
        let seals = Seals::read(state).map_err(|fault| LedgerError::Seal(fault.to_string()))?;
        let counted =
            |name: &str, is_one: fn(&str) -> bool| count(&state.path().join(name), is_one);
        Ok(Self {
            seals: seals.count(),
            sessions: counted(SESSIONS, is_session_file),
            gained: counted(GAINED, |name| SessionId::parse(name).is_ok()),
            sent: counted(TELEMETRY, sent::is_file_name),
            ..Self::runs(state)
        })
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    fn each(self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let all = [
            ("runs", "runs", self.runs),
            ("seals", "keys of runs", self.seals),
            ("sessions", "sessions", self.sessions),
            ("gained", "sessions that gained labels", self.gained),
            ("sent", "places that it was sent to", self.sent),
        ];
        all.into_iter().filter(|(_, _, count)| *count > 0)
    }

    /// Returns the numbers as members of the event that records them.
    pub(crate) fn members(self) -> impl Iterator<Item = (String, Value)> {
        self.each()
            .map(|(name, _, count)| (name.to_owned(), json!(count)))
    }
}

impl fmt::Display for Remains {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self
            .each()
            .map(|(_, words, count)| format!("{words}: {count}"))
            .collect();
        to.write_str(&all.join(", "))
    }
}

/// Returns whether a file of the directory of sessions records where one began.
pub(crate) fn is_session_file(name: &str) -> bool {
    name.ends_with(SESSION_FILE_END)
}

/// Counts the entries of a directory that match; none if the directory is not there.
fn count(directory: &Path, is_one: impl Fn(&str) -> bool) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_one = |entry: &std::fs::DirEntry| entry.file_name().to_str().is_some_and(&is_one);
    entries.filter(is_one).count() as u64
}
