//! The ledger together with the records of runs: when it records that a run was interrupted, the
//! run's files are settled too.

use atoll_ledger::{
    Clock, Durability, Ledger, LedgerError, OpenRuns, RunFault, RunFiles, StateDir, UnresponsiveRun,
};
use atoll_model::RunId;

use crate::reserve::release_end;
use crate::runs::{load_run, update_run};
use crate::scratch::remove_scratch;
use crate::{RunError, RunRecord, RunState};

/// The runs of a state directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredRuns;

impl RunFiles for StoredRuns {
    fn release_end(&self, state: &StateDir, run: &RunId) {
        release_end(state, run);
    }

    fn note_interrupted(&self, state: &StateDir, run: &RunId) -> Result<(), RunFault> {
        let updated = note_interrupted(state, run);
        let scratch = remove_scratch(state, run);
        match updated {
            Ok(_) | Err(RunError::Missing(_)) => Ok(scratch?),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens the ledger for appending, makes it when missing, and records as interrupted every run
/// whose Atoll has ended without closing it.
///
/// # Errors
/// [`LedgerError`] when its files cannot be opened or written.
pub fn open_ledger(state: &StateDir, clock: Clock) -> Result<Ledger, LedgerError> {
    Ledger::open(state, clock, &StoredRuns)
}

/// Ends the process that carries a run, as [`atoll_ledger::end_unanswering`] does, and settles the
/// run's files.
///
/// # Errors
/// [`LedgerError`] where it cannot be ended, or its end not be recorded.
pub fn end_unanswering(
    state: &StateDir,
    clock: Clock,
    run: &RunId,
    why: &str,
) -> Result<UnresponsiveRun, LedgerError> {
    atoll_ledger::end_unanswering(state, clock, run, why, &StoredRuns)
}

/// Reads a run's record. One that is "running" although the run is not, because there was no space
/// to write its end, is "interrupted" from then on.
///
/// # Errors
/// [`RunError`] when the record cannot be read.
pub fn settle_run(state: &StateDir, run: &RunId) -> Result<RunRecord, RunError> {
    let mut record = load_run(state, run)?;
    if record.state == RunState::Running && !OpenRuns::open(state)?.is_alive(run)? {
        record.state = RunState::Interrupted;
        // Where there is still no room, it is known all the same.
        let _ = note_interrupted(state, run);
    }
    Ok(record)
}

fn note_interrupted(state: &StateDir, run: &RunId) -> Result<RunRecord, RunError> {
    update_run(state, run, Durability::Buffered, |record| {
        if record.state == RunState::Running {
            record.state = RunState::Interrupted;
        }
    })
}
