use std::collections::BTreeSet;
use std::error::Error;

use atoll_model::{RunId, ToolEnd};
use serde_json::{Value, json};

use crate::event::{CLOSING_KINDS, Draft};
use crate::journal::Journal;
use crate::open_runs::{Carrier, Marker, OpenRuns};
use crate::read::{Events, Filter};
use crate::settled::{note_settled, settled_place};
use crate::{FileFault, LedgerError, StateDir};

/// The reason why a run has no recorded end, when nothing better is known.
pub(crate) const UNSEEN: &str = "the Atoll process that carried this run ended without closing it";

/// A run whose Atoll ended before it could close it.
#[derive(Debug)]
pub struct InterruptedRun {
    /// The run; it is recorded as interrupted.
    pub run: RunId,
    /// The reason why its record could not be changed, if so. `None` also for a run that ended
    /// before it had a record.
    pub record: Option<RunFault>,
}

/// The reason why the files of a run could not be changed.
pub type RunFault = Box<dyn Error + Send + Sync>;

/// The files of runs that are kept beside the ledger.
pub trait RunFiles {
    /// Releases the space that was reserved for recording a run's end.
    fn release_end(&self, state: &StateDir, run: &RunId);

    /// Marks a run as interrupted if its record has it as running, and removes the files that it
    /// only needs while it runs.
    ///
    /// # Errors
    /// [`RunFault`]; the run is recorded as interrupted all the same.
    fn note_interrupted(&self, state: &StateDir, run: &RunId) -> Result<(), RunFault>;
}

/// No files of any run are kept.
#[cfg(test)]
impl RunFiles for () {
    fn release_end(&self, _: &StateDir, _: &RunId) {}

    fn note_interrupted(&self, _: &StateDir, _: &RunId) -> Result<(), RunFault> {
        Ok(())
    }
}

/// Records every run as interrupted that was opened, not closed, and has no
/// living process.
///
/// Usually this is one look at the markers, of which there are as many as runs
/// are alive. A lock is held from the finding of a marker to its removal, and
/// the ledger is asked before anything is recorded; so it is recorded once, also
/// when several processes look at the same time or one dies in between.
pub(crate) fn recover(
    journal: &Journal,
    open_runs: &OpenRuns,
    state: &StateDir,
    files: &dyn RunFiles,
) -> Result<Vec<InterruptedRun>, LedgerError> {
    let mut interrupted = Vec::new();
    if journal.is_from_another_boot()? {
        let _alone = journal.hold_recovery_lock()?;
        // Another process may have done all of it while this one waited.
        if journal.is_from_another_boot()? {
            // What a loss of power has left behind the end tells of no run. Where it cannot
            // be set aside now, no append can be made either.
            let _ = journal.settle_end();
            for run in unclosed(state, Filter::default(), settled_place(journal)?)? {
                if let Some(marker) = open_runs.claim(&run)? {
                    interrupted.push(interrupt(journal, state, marker, UNSEEN, files)?);
                }
            }
            journal.note_boot()?;
            let _ = note_settled(journal, open_runs);
        }
    }
    for run in open_runs.list()? {
        let Some(marker) = open_runs.take_over(&run)? else {
            continue;
        };
        interrupted.extend(interrupted_because(journal, state, marker, UNSEEN, files)?);
    }
    Ok(interrupted)
}

/// Records the end of each call of a session that no process carries any more: nobody knows it.
fn close_calls(journal: &Journal, state: &StateDir, marker: &Marker) -> Result<(), LedgerError> {
    let Some(start) = marker.start()? else {
        return Ok(());
    };
    let filter = Filter {
        run: Some(marker.run().clone()),
        ..Filter::default()
    };
    let mut open = BTreeSet::new();
    for event in Events::from_place(state, filter, start)? {
        let event = match event {
            Ok(event) => event,
            Err(LedgerError::Damaged { .. }) => continue,
            Err(error) => return Err(error),
        };
        let call = event.body.get("call").and_then(Value::as_u64);
        match (event.kind.as_str(), call) {
            ("tool.opened", Some(call)) => drop(open.insert(call)),
            ("tool.closed", Some(call)) => drop(open.remove(&call)),
            (_, _) => {}
        }
    }
    for call in open {
        let body = json!({ "call": call, "end": ToolEnd::Unknown.name(), "why": UNSEEN });
        journal.append_durable(&Draft::new("tool.closed", Some(marker.run()), &body)?)?;
    }
    Ok(())
}

/// Records the end of a run that no process carries any more, if it has none.
pub(crate) fn interrupted_because(
    journal: &Journal,
    state: &StateDir,
    marker: Marker,
    why: &str,
    files: &dyn RunFiles,
) -> Result<Option<InterruptedRun>, LedgerError> {
    close_calls(journal, state, &marker)?;
    if is_unclosed(state, &marker)? {
        return interrupt(journal, state, marker, why, files).map(Some);
    }
    // Whoever recorded its end may have died before it noted that here.
    // What cannot be noted now is noted when the run's record is asked for.
    files.release_end(state, marker.run());
    let _ = files.note_interrupted(state, marker.run());
    marker.remove()?;
    Ok(None)
}

fn is_unclosed(state: &StateDir, marker: &Marker) -> Result<bool, LedgerError> {
    // The place is written to the marker before the run is recorded.
    let Some(start) = marker.start()? else {
        return Ok(false);
    };
    let filter = Filter {
        run: Some(marker.run().clone()),
        ..Filter::default()
    };
    Ok(unclosed(state, filter, start)?.contains(marker.run()))
}

/// Returns the runs that were opened and not closed. Damaged lines are skipped; they are for
/// `verify` to report.
fn unclosed(
    state: &StateDir,
    filter: Filter,
    start: (u32, u64),
) -> Result<BTreeSet<RunId>, LedgerError> {
    let mut open = BTreeSet::new();
    for event in Events::from_place(state, filter, start)? {
        let event = match event {
            Ok(event) => event,
            Err(LedgerError::Damaged { .. }) => continue,
            Err(error) => return Err(error),
        };
        let Some(run) = event.run else {
            continue;
        };
        if event.kind == "run.opened" {
            open.insert(run);
        } else if CLOSING_KINDS.contains(&event.kind.as_str()) {
            open.remove(&run);
        }
    }
    Ok(open)
}

fn interrupt(
    journal: &Journal,
    state: &StateDir,
    marker: Marker,
    why: &str,
    files: &dyn RunFiles,
) -> Result<InterruptedRun, LedgerError> {
    let run = marker.run().clone();
    files.release_end(state, &run);
    let body = json!({ "why": why });
    journal.append_durable(&Draft::new("run.interrupted", Some(&run), &body)?)?;
    let noted = files.note_interrupted(state, &run);
    marker.remove()?;
    Ok(InterruptedRun {
        run,
        record: noted.err(),
    })
}

/// Lists the runs that a living process carries, of whatever kind, oldest first; no sessions of calls.
///
/// # Errors
/// [`FileFault`] when they cannot be listed.
pub fn live_runs(state: &StateDir) -> Result<Vec<RunId>, FileFault> {
    let open_runs = OpenRuns::open(state)?;
    let mut alive = Vec::new();
    for run in open_runs.list()? {
        let is_of_calls = |one: &Carrier| one.is_of_calls;
        if open_runs.is_alive(&run)? && !open_runs.carrier(&run)?.as_ref().is_some_and(is_of_calls)
        {
            alive.push(run);
        }
    }
    Ok(alive)
}

impl InterruptedRun {
    /// Returns the remark to print beside the run's name, if its record is not as it should be.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        self.record
            .as_ref()
            .map(|error| format!("its record could not be changed: {error}"))
    }
}
