//! Ends an apply that a kill has cut short, where only one end is right: one that has changed
//! nothing is rolled back, one that is over, but for the run's record, is noted. All others are left
//! to the person.

use std::path::Path;

use atoll_layer::{JournalState, Selection, finish, journal_state, take_back};
use atoll_ledger::StateDir;
use atoll_model::WorkspaceMode;
use atoll_store::{LayerRecord, RunError, RunRecord, RunState, load_run, lock_run};
use serde_json::json;

use super::Work;
use super::last_undo::LastUndo;
use crate::changes;
use crate::events::events_of;
use crate::failure::{Doing, Failure};
use crate::promotion::{self, Planned};

/// The end of an apply that was cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing was changed, and it was rolled back.
    TakenBack,
    /// Everything was changed, and it was finished.
    Finished,
}

/// The progress of an apply, by its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// No name was changed yet.
    Nothing,
    /// Some may have been.
    Part,
}

impl Work<'_> {
    /// Ends an apply of the run that was cut short, where only one end is right. Returns which;
    /// none where nothing was cut short, another process works on the run, or a person has to
    /// decide.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub fn end_cut_short(&self, record: &mut RunRecord) -> Result<Option<Ended>, Failure> {
        if !may_be_cut_short(self.state, record) {
            return Ok(None);
        }
        // Whoever works on it now has its journals, too.
        let Ok(_lock) = lock_run(self.state, &record.run) else {
            return Ok(None);
        };
        *record = load_run(self.state, &record.run).doing("the run cannot be read")?;
        let directory = changes::journals_of(self.state, record);
        let last = LastUndo::read(&directory)?;
        let (mut done, mut interrupted) = (Vec::new(), Vec::new());
        for (layer, journal) in self.journals(record)? {
            let is_of_undo = |last: &LastUndo| last.names_all(std::slice::from_ref(&journal));
            match journal_state(&journal).doing("the journal cannot be read")? {
                JournalState::Interrupted if last.as_ref().is_some_and(is_of_undo) => {
                    return Ok(None);
                }
                JournalState::Interrupted => interrupted.push((layer, journal)),
                JournalState::Done => done.push((layer, journal)),
                JournalState::None | JournalState::Undone => {}
            }
        }
        let is_noted = matches!(record.state, RunState::Applied | RunState::PartlyApplied);
        match (interrupted.as_slice(), done.last()) {
            ([(layer, journal)], _) => match reach(journal) {
                Reach::Nothing if done.is_empty() || is_noted => {
                    let Ok(taken) = take_back(journal) else {
                        return Ok(None);
                    };
                    let what = json!({ "layer": layer.name, "entries": taken.entries });
                    self.record(record, "apply.taken-back", what)?;
                    // A failure here costs a conflict later, and nothing else.
                    let _ = self.forget_taken_back(record, std::slice::from_ref(journal));
                    Ok(Some(Ended::TakenBack))
                }
                Reach::Nothing | Reach::Part => Ok(None),
            },
            ([], Some((layer, journal))) if last.is_none() && self.is_unnoted(record)? => {
                self.end_whole(record, layer, journal)
            }
            (_, _) => Ok(None),
        }
    }

    /// Marks an apply as finished whose steps are all done.
    fn end_whole(
        &self,
        record: &mut RunRecord,
        layer: &LayerRecord,
        journal: &Path,
    ) -> Result<Option<Ended>, Failure> {
        let Ok(applied) = finish(journal) else {
            return Ok(None);
        };
        if self.last_step(record)?.as_deref() != Some("apply.finished") {
            let what = json!({ "layer": layer.name, "entries": applied.entries });
            self.record(record, "apply.finished", what)?;
        }
        let state = match self.is_anything_left(record) {
            true => RunState::PartlyApplied,
            false => RunState::Applied,
        };
        self.update(record, |kept| kept.state = state)?;
        Ok(Some(Ended::Finished))
    }

    /// Returns whether an apply without further options would have something to write.
    fn is_anything_left(&self, record: &RunRecord) -> bool {
        let is_left = |one: &Planned<'_>| {
            let plan = &one.plan;
            !(plan.is_empty() && plan.conflicts.is_empty() && plan.held_control.is_empty())
        };
        let all = changes::read(self.state, record);
        let plans = all
            .as_ref()
            .map(|all| promotion::plans(all, &Selection::default()));
        // What cannot be read may be left.
        !matches!(plans, Ok(Ok(plans)) if !plans.iter().any(is_left))
    }

    /// Returns whether the ledger's last word on the run's changes is an apply, of which the run's
    /// record knows nothing.
    fn is_unnoted(&self, record: &RunRecord) -> Result<bool, Failure> {
        let is_undecided = matches!(record.state, RunState::Kept | RunState::Interrupted);
        let last = self.last_step(record)?;
        let is_apply = matches!(last.as_deref(), Some("apply.started" | "apply.finished"));
        Ok(is_undecided && is_apply)
    }

    /// Returns the type of the last event about applying or undoing the run's changes.
    fn last_step(&self, record: &RunRecord) -> Result<Option<String>, Failure> {
        let events = events_of(self.state, &record.run)?;
        let is_step = |kind: &str| kind.starts_with("apply.") || kind.starts_with("undo.");
        let mut kinds = events.into_iter().rev().map(|event| event.kind);
        Ok(kinds.find(|kind| is_step(kind)))
    }
}

/// Returns whether an apply of the run may have been cut short: a look that costs little, for lists
/// of runs.
#[must_use]
pub fn may_be_cut_short(state: &StateDir, record: &RunRecord) -> bool {
    if record.mode != WorkspaceMode::CopyOnWrite {
        return false;
    }
    let is_undecided = matches!(record.state, RunState::Kept | RunState::Interrupted);
    let entries = std::fs::read_dir(changes::journals_of(state, record));
    let mut journals = entries.into_iter().flatten().flatten();
    journals.any(|entry| match journal_state(&entry.path()) {
        Ok(JournalState::Interrupted) => true,
        Ok(JournalState::Done) => is_undecided,
        Ok(JournalState::None | JournalState::Undone) | Err(_) => false,
    })
}

/// Reads how far the apply of an interrupted journal came, by the stage that `layer` keeps there. A
/// log of all steps says nothing of what is on the disk after a power loss.
fn reach(journal: &Path) -> Reach {
    match std::fs::read_to_string(journal.join("stage")).as_deref() {
        Ok("keeping" | "preparing") => Reach::Nothing,
        Ok(_) | Err(_) => Reach::Part,
    }
}

/// Returns the failure of a removal. A run whose directory has lost its name is discarded, and the
/// rest of it is removed with the next one.
pub(super) fn not_removed(state: &StateDir, record: &RunRecord, error: RunError) -> Failure {
    match state.run_dir(&record.run).exists() {
        true => Failure::new("the run could not be removed").because(error),
        false => Failure::new("the run is discarded, but not all of it could be removed")
            .because(error)
            .advise("atoll gc removes the rest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_is_read_from_stage() {
        let directory = tempfile::tempdir().unwrap();
        let check = |stage: &str, expected: Reach| {
            std::fs::write(directory.path().join("stage"), stage).unwrap();
            assert_eq!(reach(directory.path()), expected, "{stage}");
        };
        check("keeping", Reach::Nothing);
        check("preparing", Reach::Nothing);
        for stage in [
            "committing",
            "taking-back",
            "undoing",
            "putting-back",
            "new",
        ] {
            check(stage, Reach::Part);
        }
    }
}
