//! Reverts an undo, and completes an interrupted one.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use atoll_layer::{
    ApplyError, Conflict, JournalState, finish, journal_state, take_back, take_back_preview,
    take_undo_back, undo, undo_preview,
};
use atoll_model::WorkspaceMode;
use atoll_store::{LayerRecord, RunRecord, RunState};
use serde_json::json;

use super::last_undo::LastUndo;
use super::others::Others;
use super::undoing::shown_in;
use super::{Work, allowed};
use crate::changes;
use crate::events::events_of;
use crate::failure::{Doing, Failure};
use crate::printable::printable;
use crate::undo_report::{Shown, UndoReport};

impl Work<'_> {
    /// Reverts the part of an undo that is already done, after something changed between the check
    /// and the writes, so that nothing is half done.
    pub(super) fn put_back(&self, record: &RunRecord, before: &[(&LayerRecord, &PathBuf)]) {
        for (layer, journal) in before.iter().rev() {
            if let Err(failure) = self.take_one_back(record, layer, journal) {
                let why = failure.why.unwrap_or(failure.what);
                self.surface.warn(format!(
                    "what was taken back already could not be put back: {why}"
                ));
            }
        }
    }

    fn take_one_back(
        &self,
        record: &RunRecord,
        layer: &LayerRecord,
        journal: &Path,
    ) -> Result<(), Failure> {
        // Of a live run the undo itself was an apply, that of its checkpoint.
        let applied = match record.mode {
            WorkspaceMode::Live => undo(journal, false).map(|undone| undone.applied),
            WorkspaceMode::CopyOnWrite | WorkspaceMode::ReadOnly => take_undo_back(journal),
        };
        let applied = applied
            .map_err(|error| Failure::new("the undo could not be taken back").because(&error))?;
        let what = json!({ "layer": layer.name, "entries": applied.entries });
        self.record(record, "undo.taken-back", what)
    }

    /// Reverts the last undo of a run, and restores the files that were there before it. Everything
    /// is checked before anything is written; if it is interrupted all the same, it can be
    /// repeated.
    ///
    /// # Errors
    /// Where nothing was undone, or something changed or was applied since.
    pub fn take_undo_back(&self, record: &mut RunRecord) -> Result<(), Failure> {
        let _lock = self.lock(record)?;
        let _allowed = allowed::to_undo(self, record)?;
        let was_cut_short = self.settle_undo(record, false)?;
        self.refuse_interrupted(record)?;
        let last = LastUndo::read(&changes::journals_of(self.state, record))?;
        let undone = match &last {
            Some(last) => self.undone_of(record, last)?,
            None => Vec::new(),
        };
        if undone.is_empty() && !was_cut_short {
            let run = &record.run;
            return Err(Failure::new(format!("nothing of run {run} is taken back"))
                .because("there is no undo to take back")
                .advise(format!("atoll why {run} tells what became of it")));
        }
        self.refuse_taking_back(record, &undone)?;
        let others = Others::of(|| changes::read(self.state, record));
        for (layer, journal) in &undone {
            self.take_one_back(record, layer, journal)?;
        }
        let state = last
            .and_then(|last| last.state)
            .unwrap_or(RunState::Applied);
        self.update_since(record, state, &others)
    }

    /// Refuses to revert an undo unless all of its journals can be reverted.
    fn refuse_taking_back(
        &self,
        record: &RunRecord,
        undone: &[(LayerRecord, PathBuf)],
    ) -> Result<(), Failure> {
        let mut foreseen = UndoReport::default();
        for of_layer in undone.chunk_by(|left, right| left.0.name == right.0.name) {
            let journals: Vec<&PathBuf> = of_layer.iter().map(|(_, journal)| journal).collect();
            let preview = match record.mode {
                WorkspaceMode::Live => undo_preview(&journals),
                WorkspaceMode::CopyOnWrite | WorkspaceMode::ReadOnly => {
                    take_back_preview(&journals)
                }
            };
            let preview = preview.doing("the undo could not be taken back")?;
            if let Some((layer, _)) = of_layer.first() {
                foreseen.foresee(&preview, &|path| shown_in(layer, path));
            }
        }
        foreseen.settle_taking_back(&format!("atoll undo {}", record.run))
    }

    /// Rolls back an undo, or the reversal of one, that is half done in a directory, so that it
    /// begins anew there. That of a live run can be rolled forward instead. Returns whether one was
    /// interrupted.
    ///
    /// # Errors
    /// When it cannot be rolled back, as where somebody has since changed what it had written.
    pub(super) fn settle_undo(
        &self,
        record: &mut RunRecord,
        onward: bool,
    ) -> Result<bool, Failure> {
        let directory = changes::journals_of(self.state, record);
        let Some(last) = LastUndo::read(&directory)? else {
            return Ok(false);
        };
        let interrupted = last.of_state(&directory, JournalState::Interrupted)?;
        for (layer, journal) in self.with_layers(record, &interrupted)? {
            let ended = match onward && record.mode == WorkspaceMode::Live {
                true => finish(&journal),
                false => take_back(&journal),
            };
            let taken = ended.map_err(|error| {
                let command = format!("atoll undo {}", record.run);
                cut_short("undo", &error, &command, &|path| shown_in(&layer, path))
            })?;
            let state = journal_state(&journal).doing("the journal cannot be read")?;
            if state == LastUndo::state_in_effect(record.mode) {
                self.record_end(record, &layer, taken.entries)?;
                continue;
            }
            let what = json!({ "layer": layer.name, "entries": taken.entries });
            self.record(record, "undo.taken-back", what)?;
        }
        // The taking back of an undo that was killed may have come to its end without a word in
        // the record.
        let in_effect = last.of_state(&directory, LastUndo::state_in_effect(record.mode))?;
        let is_unnoted = record.state == RunState::Undone && in_effect.is_empty();
        if is_unnoted {
            let state = last.state.unwrap_or(RunState::Applied);
            self.update(record, |kept| kept.state = state)?;
        }
        Ok(is_unnoted || !interrupted.is_empty())
    }

    /// Returns the report of an undo that was killed after its end but before the run's record was
    /// updated, as its journals show. None where there is no such undo.
    ///
    /// # Errors
    /// When a journal or the ledger cannot be read, or its end cannot be recorded.
    pub(super) fn undone_unnoted(&self, record: &RunRecord) -> Result<Option<UndoReport>, Failure> {
        let is_applied = matches!(record.state, RunState::Applied | RunState::PartlyApplied);
        let directory = changes::journals_of(self.state, record);
        let last = match (record.mode, is_applied) {
            (WorkspaceMode::CopyOnWrite, true) => LastUndo::read(&directory)?,
            (_, _) => None,
        };
        let Some(last) = last else {
            return Ok(None);
        };
        let undone = last.of_state(&directory, JournalState::Undone)?;
        if undone.len() < last.journals.len() || !self.done(record)?.is_empty() {
            return Ok(None);
        }
        if let Some((layer, journal)) = self.with_layers(record, &undone)?.last() {
            let done = finish(journal).doing("the journal cannot be read")?;
            self.record_end(record, layer, done.entries)?;
        }
        Ok(Some(last.met))
    }

    /// Records that an undo was done, where the ledger has only its beginning.
    fn record_end(
        &self,
        record: &RunRecord,
        layer: &LayerRecord,
        entries: u64,
    ) -> Result<(), Failure> {
        let [begun, ended] = match record.mode {
            WorkspaceMode::Live => ["apply.started", "apply.finished"],
            WorkspaceMode::CopyOnWrite | WorkspaceMode::ReadOnly => {
                ["undo.started", "undo.finished"]
            }
        };
        let events = events_of(self.state, &record.run)?;
        let mut events = events.iter().rev();
        let newest = events.find(|event| [begun, ended].contains(&event.kind.as_str()));
        if newest.is_some_and(|event| event.kind == begun) {
            let what = json!({ "layer": layer.name, "entries": entries });
            self.record(record, ended, what)?;
        }
        Ok(())
    }

    /// Returns the journals undone by the last undo, the last one first; none where something was
    /// applied since. Journals that are restored already are not among them.
    fn undone_of(
        &self,
        record: &RunRecord,
        last: &LastUndo,
    ) -> Result<Vec<(LayerRecord, PathBuf)>, Failure> {
        let directory = changes::journals_of(self.state, record);
        if record.mode != WorkspaceMode::Live {
            for (_, journal) in self.journals(record)? {
                let state = journal_state(&journal).doing("the journal cannot be read")?;
                if state == JournalState::Done && !last.names_all(std::slice::from_ref(&journal)) {
                    return Ok(Vec::new());
                }
            }
        }
        let mut undone = last.of_state(&directory, LastUndo::state_in_effect(record.mode))?;
        undone.reverse();
        self.with_layers(record, &undone)
    }

    fn with_layers(
        &self,
        record: &RunRecord,
        journals: &[PathBuf],
    ) -> Result<Vec<(LayerRecord, PathBuf)>, Failure> {
        let all = self.journals(record)?;
        let known = |journal: &PathBuf| all.iter().find(|(_, own)| own == journal).cloned();
        Ok(journals.iter().filter_map(known).collect())
    }
}

/// Returns the failure for an interrupted apply or undo that cannot be completed, with all paths in
/// its way, and the advice to clear them and repeat the command.
pub fn cut_short(what: &str, error: &ApplyError, command: &str, shown: Shown<'_>) -> Failure {
    let failure = |end: &str| {
        Failure::new(format!(
            "the {what} that was cut short cannot be ended{end}"
        ))
    };
    let (failure, why, in_the_way) = match error {
        ApplyError::InTheWay(all) => (failure("; nothing was written"), None, all),
        ApplyError::Stuck { cause, second, .. } => match second.as_ref() {
            ApplyError::InTheWay(all) => (failure(""), Some(cause.to_string()), all),
            _ => return failure("").because(error),
        },
        _ => return failure("").because(error),
    };
    let line = |one: &Conflict| {
        let path = shown(&one.path);
        format!("{}: {}", printable(path.as_os_str().as_bytes()), one.why)
    };
    let lines: Vec<String> = why.into_iter().chain(in_the_way.iter().map(line)).collect();
    failure.because(lines.join("\n")).advise(format!(
        "move what is there elsewhere, put back what is missing, then {command} again"
    ))
}
