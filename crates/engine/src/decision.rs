//! The decisions about a run's changes: apply, keep, discard, and undo.

mod allowed;
pub(crate) mod applying;
mod conflicts;
pub mod killed;
pub mod last_undo;
pub mod live;
pub mod others;
pub mod taking_back;
pub(crate) mod told;
pub mod undoing;

use std::path::PathBuf;
use std::time::SystemTime;

use atoll_layer::{JournalState, Plan, Selection, apply, finish, journal_state, take_back, undo};
use atoll_ledger::{Durability, Ledger, StateDir, host_text};
use atoll_model::WorkspaceMode;
use atoll_store::{
    LayerRecord, RunRecord, RunState, load_run, release_for_removal, remove_run_if, update_run,
};
use serde_json::json;

pub(crate) use self::conflicts::refuse_conflicts;
pub use self::conflicts::{apply_hints, refuse_any};
use self::last_undo::LastUndo;
use self::live::How;
use self::others::Others;
use self::taking_back::cut_short;
use self::undoing::shown_in;
use crate::changes::{self, LayerChanges};
use crate::failure::{Doing, Failure};
use crate::notice::Notice;
use crate::promotion::{self, Allowed, Approver, Checked};

const UNRECORDED: &str = "the decision could not be recorded";

/// A decision about a run's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Writes the ordinary ones to the workspace.
    Apply,
    /// Writes the ordinary ones and those in caches.
    ApplyWithCaches,
    /// Keeps them in the run's layer.
    Keep,
    /// Removes them.
    Discard,
    /// Does nothing: they were never kept.
    Gone,
}

/// The state of a run's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// A person is about to be asked.
    Undecided,
    /// Kept in the run's layer.
    Kept,
    /// Written to the workspace.
    Applied,
    /// Some written to the workspace.
    PartlyApplied,
    /// Discarded.
    Discarded,
    /// Written directly to the workspace, after a checkpoint.
    Live,
}

/// The extent of an apply.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The number of steps.
    pub steps: u64,
    /// True if something selected was left out, because it cannot be read or must not be written.
    pub is_left_out: bool,
}

/// The context for carrying out a decision.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The directory in which runs are kept.
    pub state: &'a StateDir,
    /// The ledger in which decisions are recorded.
    pub ledger: &'a Ledger,
    /// The surface that takes notices and asks the person.
    pub surface: &'a dyn Approver,
    /// True if nobody has seen what is applied, since an option decided before there were any
    /// changes.
    pub is_unseen: bool,
    /// True if an option says that nobody is asked anything.
    pub is_unattended: bool,
    /// The checks that the changes have passed, and that alone are applied.
    pub checked: Option<&'a Checked>,
}

impl Work<'_> {
    /// Carries out a decision about all of a run's changes.
    ///
    /// # Errors
    /// When the changes cannot be written; they are kept then.
    pub fn carry_out(
        &self,
        decision: Decision,
        record: &mut RunRecord,
        all: &[LayerChanges],
        groups: &changes::Changes,
    ) -> Result<Afterwards, Failure> {
        record.changes = Some(changes::counts(groups));
        match decision {
            Decision::Gone => Ok(Afterwards::Discarded),
            Decision::Discard => {
                self.discard(record)?;
                Ok(Afterwards::Discarded)
            }
            Decision::Apply | Decision::ApplyWithCaches
                if groups.total() > 0 && record.mode == WorkspaceMode::CopyOnWrite =>
            {
                let counts = record.changes;
                let note = |kept: &mut RunRecord| kept.changes = counts;
                self.update(record, note)?;
                let selection = Selection {
                    caches: decision == Decision::ApplyWithCaches,
                    ..Selection::default()
                };
                let extent = self.apply(record, all, &selection)?;
                if extent.steps == 0 {
                    self.surface.notice(Notice::NothingToApply);
                }
                Ok(match record.state {
                    RunState::Applied => Afterwards::Applied,
                    RunState::PartlyApplied => Afterwards::PartlyApplied,
                    RunState::Running
                    | RunState::Kept
                    | RunState::Discarded
                    | RunState::Interrupted
                    | RunState::Undone
                    | RunState::Failed => Afterwards::Kept,
                })
            }
            Decision::Apply | Decision::ApplyWithCaches | Decision::Keep => {
                let counts = record.changes;
                self.update(record, |kept| kept.changes = counts)?;
                Ok(if record.mode == WorkspaceMode::Live {
                    Afterwards::Live
                } else {
                    Afterwards::Kept
                })
            }
        }
    }

    /// Applies selected changes, and records this before and after. What cannot be read is left
    /// out before anything is written.
    ///
    /// # Errors
    /// Conflicts in any of them, before one is written; no space, a directory that cannot be
    /// written: nothing is left half done.
    pub fn apply(
        &self,
        record: &mut RunRecord,
        all: &[LayerChanges],
        selection: &Selection,
    ) -> Result<Extent, Failure> {
        let _lock = self.lock(record)?;
        self.refuse_interrupted(record)?;
        self.refuse_half_undone(record)?;
        let plans = promotion::plans(all, selection)?;
        (plans.iter()).try_for_each(|planned| refuse_conflicts(&planned.plan, record))?;
        let allowed = allowed::to_apply(self, record, all, selection, &plans)?;
        let mut held = plans.iter().any(|one| !one.plan.held_control.is_empty());
        let is_left_out = plans.iter().any(|one| one.plan.leaves_out());
        held |= is_left_out || all.iter().any(|one| applying::is_partly(one, selection));
        let places = plans.iter();
        let written = places.map(|one| (one.changes.layer.host.as_path(), &one.plan));
        let written = applying::places(written);
        let is_whole = applying::is_whole(all, selection);
        let begun = SystemTime::now();
        let others = match is_whole {
            true => Others::none(),
            false => Others::of(|| changes::read(self.state, record)),
        };
        let done = self.apply_plans(record, plans, &allowed);
        if (done.is_err() || held || !is_whole) && !selection.force {
            // A failure here costs a conflict later, and nothing else.
            let _ = self.forget_own_writes(record, begun, &written, &others);
        }
        let (steps, layers) = done?;
        let extent = Extent { steps, is_left_out };
        if steps == 0 {
            return Ok(extent);
        }
        let state = if held {
            RunState::PartlyApplied
        } else {
            RunState::Applied
        };
        if let Err(failure) = self.update(record, |kept| kept.state = state) {
            self.undo_applied_layers(record, &layers)?;
            if !selection.force {
                let _ = self.forget_own_writes(record, begun, &written, &others);
            }
            return Err(failure);
        }
        Ok(extent)
    }

    /// Applies a plan to one layer, with a journal of its own.
    ///
    /// # Errors
    /// When it cannot be done; nothing is left half done.
    pub fn apply_layer(
        &self,
        record: &RunRecord,
        one: &LayerChanges,
        plan: Plan,
        allowed: &Allowed,
    ) -> Result<u64, Failure> {
        allowed.refuse_other(&plan)?;
        let journal = changes::next_journal(self.state, record, &one.layer)?;
        let mut what = json!({
            "layer": one.layer.name,
            "directory": host_text(&one.layer.host),
            "steps": plan.steps.len(),
            "bytes": plan.bytes(),
        });
        allowed.note(&journal, &mut what);
        self.record(record, "apply.started", what)?;
        match apply(plan, &journal, &mut |_| {}) {
            Ok(applied) => {
                let mut what = json!({ "layer": one.layer.name, "entries": applied.entries });
                if let (Some(what), true) = (what.as_object_mut(), self.is_unseen) {
                    what.insert("unseen".to_owned(), json!(true));
                }
                if let Err(failure) = self.record(record, "apply.finished", what) {
                    // What is not on record is not applied.
                    return match undo(&journal, false) {
                        Ok(_) => Err(failure),
                        Err(error) => Err(failure
                            .because(error)
                            .advise(format!("atoll undo {} takes it back", record.run))),
                    };
                }
                Ok(applied.steps)
            }
            Err(error) => {
                let what = json!({ "layer": one.layer.name, "why": error.to_string() });
                self.record(record, "apply.failed", what)?;
                let failure = Failure::new("the changes could not be applied").because(&error);
                let hints = apply_hints(&error, &record.run).into_iter();
                Err(hints.fold(failure, Failure::advise))
            }
        }
    }

    /// Completes an interrupted apply: rolls it forward, or back.
    ///
    /// # Errors
    /// When there is none, or it cannot be done.
    pub fn settle(&self, record: &mut RunRecord, backwards: bool) -> Result<(), Failure> {
        let _lock = self.lock(record)?;
        let mut found = false;
        let directory = changes::journals_of(self.state, record);
        let last = LastUndo::read(&directory)?;
        for (layer, journal) in self.journals(record)? {
            if journal_state(&journal).doing("the journal cannot be read")?
                != JournalState::Interrupted
            {
                continue;
            }
            found = true;
            // That of a live run is an apply, of its checkpoint.
            let of_undo = last.as_ref().filter(|_| record.mode != WorkspaceMode::Live);
            if of_undo.is_some_and(|last| last.names_all(std::slice::from_ref(&journal))) {
                return Err(half_undone(record));
            }
            let (kind, settled) = if backwards {
                ("apply.taken-back", take_back(&journal))
            } else {
                ("apply.finished", finish(&journal))
            };
            let settled = settled.map_err(|error| {
                let option = if backwards { "--take-back" } else { "--finish" };
                let command = format!("atoll apply {} {option}", record.run);
                cut_short("apply", &error, &command, &|path| shown_in(&layer, path))
            })?;
            let what = json!({ "layer": layer.name, "entries": settled.entries });
            self.record(record, kind, what)?;
        }
        if !found {
            return Err(Failure::new(format!(
                "no apply of run {} was cut short",
                record.run
            )));
        }
        let mut is_applied = false;
        for (_, journal) in self.journals(record)? {
            let state = journal_state(&journal).doing("the journal cannot be read")?;
            is_applied |= state == JournalState::Done;
        }
        let is_undone = match last {
            Some(last) => !(last.of_state(&directory, JournalState::Undone)?).is_empty(),
            None => false,
        };
        let state = match (is_applied, record.mode) {
            (false, WorkspaceMode::CopyOnWrite) if is_undone => RunState::Undone,
            (false, _) => RunState::Kept,
            (true, WorkspaceMode::Live) => RunState::Undone,
            (true, _) => RunState::Applied,
        };
        self.update(record, |kept| kept.state = state)?;
        if backwards && record.mode != WorkspaceMode::Live {
            // A failure here costs a conflict later, and nothing else.
            let journals: Vec<PathBuf> =
                self.journals(record)?.into_iter().map(|it| it.1).collect();
            let _ = self.forget_taken_back(record, &journals);
        }
        Ok(())
    }

    /// Returns all journals of a run with their layers, oldest first within a layer.
    fn journals(&self, record: &RunRecord) -> Result<Vec<(LayerRecord, PathBuf)>, Failure> {
        let mut all = Vec::new();
        for layer in &record.layers {
            let journals = changes::journals(self.state, record, layer)?.into_iter();
            all.extend(journals.map(|journal| (layer.clone(), journal)));
        }
        Ok(all)
    }

    /// Refuses to go on while an apply or an undo of the run is interrupted.
    ///
    /// # Errors
    /// When there is one.
    pub fn refuse_interrupted(&self, record: &RunRecord) -> Result<(), Failure> {
        let last = LastUndo::read(&changes::journals_of(self.state, record))?;
        for (_, journal) in self.journals(record)? {
            if journal_state(&journal).doing("the journal cannot be read")?
                == JournalState::Interrupted
            {
                let of_undo = last.as_ref();
                if of_undo.is_some_and(|last| last.names_all(std::slice::from_ref(&journal))) {
                    return Err(half_undone(record));
                }
                return Err(Failure::new("an apply of this run was cut short")
                    .advise(format!("atoll apply {} --take-back", record.run))
                    .advise(format!("atoll apply {} --finish", record.run)));
            }
        }
        Ok(())
    }

    /// Refuses to apply after a partial undo: the new apply could not be told from the rest of the
    /// undo.
    fn refuse_half_undone(&self, record: &RunRecord) -> Result<(), Failure> {
        let directory = changes::journals_of(self.state, record);
        let last = match record.mode {
            WorkspaceMode::Live => None,
            WorkspaceMode::CopyOnWrite | WorkspaceMode::ReadOnly => LastUndo::read(&directory)?,
        };
        match last {
            Some(last) if last.is_cut_short(&directory)? => Err(half_undone(record)),
            Some(_) | None => Ok(()),
        }
    }

    /// Removes a run's changes, and all that is kept of it but the ledger.
    ///
    /// # Errors
    /// When it is running, or cannot be removed; when an apply or an undo of it was interrupted,
    /// since the files that this has set aside are nowhere else.
    pub fn discard(&self, record: &mut RunRecord) -> Result<(), Failure> {
        release_for_removal(self.state);
        self.refuse_interrupted(record)?;
        self.refuse_half_undone(record)?;
        if record.mode == WorkspaceMode::Live && record.state != RunState::Undone {
            let command = format!("atoll undo {}", record.run);
            let allowed = allowed::to_undo(self, record)?;
            let how = How::Restoring {
                allowed: &allowed,
                force: false,
            };
            let report = Box::new(self.restore(record, how)?);
            self.surface.notice(Notice::Undone { report, command });
        }
        // Others may have worked on it since the first look.
        let look = || {
            self.refuse_interrupted(record)?;
            self.refuse_half_undone(record)?;
            let kept = load_run(self.state, &record.run).doing("the run cannot be read")?;
            if kept.state != record.state {
                return Err(Failure::new("the run is not discarded")
                    .because("another command has worked on it meanwhile")
                    .advise(format!(
                        "atoll diff {} shows what is left of it",
                        record.run
                    )));
            }
            self.record(record, "run.discarded", json!({ "state": record.state }))
        };
        remove_run_if(self.state, &record.run, look)
            .map_err(|error| killed::not_removed(self.state, record, error))??;
        record.state = RunState::Discarded;
        Ok(())
    }

    /// Records a decision, on disk before it returns.
    pub fn record(
        &self,
        record: &RunRecord,
        kind: &str,
        body: serde_json::Value,
    ) -> Result<(), Failure> {
        self.ledger
            .record(Some(&record.run), kind, body, Durability::Durable)
            .map(drop)
            .doing(UNRECORDED)
    }

    fn update(
        &self,
        record: &mut RunRecord,
        change: impl FnOnce(&mut RunRecord),
    ) -> Result<(), Failure> {
        *record = update_run(self.state, &record.run, Durability::Buffered, change)
            .doing("the run's record could not be changed")?;
        Ok(())
    }
}

fn half_undone(record: &RunRecord) -> Failure {
    let run = &record.run;
    Failure::new(format!("an undo of run {run} was cut short"))
        .advise(format!("atoll undo {run} goes on with it"))
        .advise(format!("atoll undo {run} --take-back takes it back"))
}
