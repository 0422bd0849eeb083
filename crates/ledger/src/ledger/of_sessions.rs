//! The ledger's records of sessions and agents.

use std::collections::BTreeSet;

use atoll_model::conduct::Conduct;
use atoll_model::{RunId, SessionId, SessionName};

use super::Ledger;
use crate::LedgerError;
use crate::labels::KeptUse;
use crate::labels::RunPurposes;
use crate::open_runs::OpenRuns;
use crate::read::{Events, Filter};
use crate::sessions::{self, Session, SessionError};
use crate::{Event, StateDir};
use crate::{conduct, labels};

impl Ledger {
    /// Returns the session of this name, or begins one (`session.opened`, on disk with the run that
    /// is recorded next). `fresh` is the id of a new one.
    ///
    /// # Errors
    /// [`SessionError`]; no session was begun then.
    pub fn open_session(
        &self,
        state: &StateDir,
        name: &SessionName,
        fresh: SessionId,
    ) -> Result<SessionId, SessionError> {
        sessions::open(state, &self.journal, name, fresh)
    }

    /// Reads the labels of the data that the runs of a session have touched. They are never lost.
    ///
    /// # Errors
    /// [`LedgerError`] when the ledger cannot be read: then nobody knows.
    pub fn session_labels(
        state: &StateDir,
        session: &SessionId,
    ) -> Result<BTreeSet<String>, LedgerError> {
        labels::of_session(state, session)
    }

    /// Reads the labels of one run.
    ///
    /// # Errors
    /// As [`Ledger::session_labels`].
    pub fn run_labels(state: &StateDir, run: &RunId) -> Result<BTreeSet<String>, LedgerError> {
        labels::of_run(state, run)
    }

    /// Reads the labels of the runs that have used a kept layer and are not all in its record.
    ///
    /// # Errors
    /// As [`Ledger::session_labels`]; also where the ledger does not know these runs.
    pub fn kept_labels(state: &StateDir, kept: &KeptUse) -> Result<BTreeSet<String>, LedgerError> {
        labels::of_kept(state, kept)
    }

    /// Reads the purposes of a session's runs.
    ///
    /// # Errors
    /// [`LedgerError`] when the ledger cannot be read: then nobody knows.
    pub fn session_purposes(
        state: &StateDir,
        session: &SessionId,
    ) -> Result<RunPurposes, LedgerError> {
        labels::purposes_of_session(state, session)
    }

    /// Reads the purposes of one run.
    ///
    /// # Errors
    /// As [`Ledger::session_purposes`].
    pub fn run_purposes(state: &StateDir, run: &RunId) -> Result<RunPurposes, LedgerError> {
        labels::purposes_of_run(state, run)
    }

    /// Reads the conduct of a person's runs by a profile of this name, as of a day counted from
    /// 1970-01-01. `None` if more was written in the time that counts than is read.
    ///
    /// # Errors
    /// [`LedgerError`] when the ledger cannot be read: then nobody knows.
    pub fn conduct(
        state: &StateDir,
        agent: (u32, &str),
        today: u64,
    ) -> Result<Option<Conduct>, LedgerError> {
        conduct::of_agent(state, agent, today, conduct::CONDUCT_BYTES_MAX)
    }

    /// Returns all sessions with their runs, by the ledger alone, oldest first.
    ///
    /// # Errors
    /// [`LedgerError`] when the ledger cannot be read.
    pub fn sessions(state: &StateDir) -> Result<Vec<Session>, LedgerError> {
        sessions::list(state)
    }

    /// Returns the session of this name if a file records it and the ledger agrees: nothing else of
    /// the ledger is read. Otherwise, callers search [`Ledger::sessions`].
    #[must_use]
    pub fn noted_session(state: &StateDir, name: &SessionName) -> Option<SessionId> {
        sessions::noted_of(state, name).ok().flatten()
    }

    /// Returns the opening event of a run that goes on (`run.opened`, as recorded: sealed members
    /// stay sealed). The search begins at the place in the run's marker, so that a long ledger
    /// takes no longer. `None` if the run is over, or is not recorded yet.
    ///
    /// # Errors
    /// [`LedgerError`] when the marker or the ledger cannot be read.
    pub fn beginning(state: &StateDir, run: &RunId) -> Result<Option<Event>, LedgerError> {
        let Some(place) = OpenRuns::open(state)?.start_of(run)? else {
            return Ok(None);
        };
        let filter = Filter {
            run: Some(run.clone()),
            kind: Some("run.opened".to_owned()),
            ..Filter::default()
        };
        for event in Events::from_place(state, filter, place)? {
            match event {
                // A damaged line is for `verify` to tell.
                Err(LedgerError::Damaged { .. }) => {}
                other => return other.map(Some),
            }
        }
        Ok(None)
    }
}
