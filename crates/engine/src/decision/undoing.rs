//! Undoes applies. Its effects are previewed first; the directories that stay and the files kept
//! aside are reported after. An undo can itself be reverted.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_layer::{
    ApplyError, JournalState, RelativePath, Undone, journal_state, undo, undo_preview,
};
use atoll_ledger::host_text;
use atoll_model::WorkspaceMode;
use atoll_store::{LayerKind, LayerRecord, RunRecord, RunState};
use serde_json::json;

use super::last_undo::LastUndo;
use super::live::How;
use super::others::Others;
use super::{Work, allowed};
use crate::changes;
use crate::failure::{Doing, Failure};
use crate::notice::Notice;
use crate::promotion::Allowed;
use crate::undo_report::UndoReport;

/// Returns a path of a layer as people know it.
pub(super) fn shown_in(layer: &LayerRecord, path: &RelativePath) -> PathBuf {
    match layer.kind {
        LayerKind::Workspace => path.as_os_str().into(),
        _ => layer.inside.join(path.as_os_str()),
    }
}

/// The journals of one layer, in the order in which they are undone.
type Done = (LayerRecord, Vec<PathBuf>);

impl Work<'_> {
    /// Undoes what was applied, or what a live run wrote. Returns the report of it.
    ///
    /// # Errors
    /// Conflicts with later changes on the host; nothing was applied.
    pub fn undo(&self, record: &mut RunRecord, force: bool) -> Result<UndoReport, Failure> {
        let _lock = self.lock(record)?;
        let allowed = allowed::to_undo(self, record)?;
        self.settle_undo(record, true)?;
        let others = Others::of(|| changes::read(self.state, record));
        let met = match (self.undone_unnoted(record)?, record.mode, force) {
            (Some(met), ..) => met,
            (None, WorkspaceMode::Live, force) => {
                let allowed = &allowed;
                self.restore(record, How::Restoring { allowed, force })?
            }
            (None, WorkspaceMode::CopyOnWrite | WorkspaceMode::ReadOnly, _) => {
                self.undo_applied(record, &allowed, force)?
            }
        };
        let command = format!("atoll undo {}", record.run);
        self.surface.notice(Notice::Undone {
            report: Box::new(met.clone()),
            command,
        });
        self.update_since(record, RunState::Undone, &others)?;
        Ok(met)
    }

    /// Returns the report that an undo would give now, or, where nothing is to be undone, that of
    /// the last one. Nothing is written.
    ///
    /// # Errors
    /// Where nothing was applied, or an apply was interrupted.
    pub fn undo_met(&self, record: &RunRecord) -> Result<UndoReport, Failure> {
        let _lock = self.lock(record)?;
        self.refuse_interrupted(record)?;
        let is_live = record.mode == WorkspaceMode::Live;
        if is_live && record.state != RunState::Undone {
            return self.restore(record, How::Looking);
        }
        let done = match is_live {
            true => Vec::new(),
            false => self.done(record)?,
        };
        if !done.is_empty() {
            return foreseen(record, &done);
        }
        match LastUndo::read(&changes::journals_of(self.state, record))? {
            Some(last) => Ok(last.met),
            None => Err(nothing_applied(record)),
        }
    }

    /// Sets the run's state, and the time from which changes count as others', so that Atoll's own
    /// writes do not and the run can be applied again. If others' changes remain beside them, the
    /// time stays: the two can no longer be told apart, and `--force` is needed.
    pub(super) fn update_since(
        &self,
        record: &mut RunRecord,
        state: RunState,
        others: &Others,
    ) -> Result<(), Failure> {
        if others.stand() {
            return self.update(record, |kept| kept.state = state);
        }
        self.update(record, |kept| kept.state = state)?;
        self.count_others_from(record, SystemTime::now())
    }

    fn undo_applied(
        &self,
        record: &RunRecord,
        _: &Allowed,
        force: bool,
    ) -> Result<UndoReport, Failure> {
        self.refuse_interrupted(record)?;
        let done = self.done(record)?;
        if done.is_empty() {
            return Err(nothing_applied(record));
        }
        let meets = foreseen(record, &done)?;
        let command = format!("atoll undo {}", record.run);
        meets.settle(&command, force)?;
        self.tell_force(&meets, force, &command);
        let all: Vec<PathBuf> = (done.iter().flat_map(|(_, journals)| journals.clone())).collect();
        let directory = changes::journals_of(self.state, record);
        let last = LastUndo::following(&directory, &all, Some(record.state))?;
        let last = last.meeting(&meets);
        last.write(&directory)?;
        let mut before: Vec<(&LayerRecord, &PathBuf)> = Vec::new();
        let mut met = UndoReport::default();
        for (layer, journals) in &done {
            let mut of_layer = Vec::new();
            for journal in journals {
                match self.undo_one(record, layer, journal, force) {
                    Ok(undone) => of_layer.push(undone),
                    Err(failure) => {
                        self.put_back(record, &before);
                        return Err(failure);
                    }
                }
                before.push((layer, journal));
            }
            met.add(of_layer, &|path| shown_in(layer, path));
        }
        last.with_owners(&met, &directory)?;
        Ok(met)
    }

    /// Returns the applies in effect of each layer, the newest journal first, since a later apply
    /// may have written over an earlier one.
    pub(super) fn done(&self, record: &RunRecord) -> Result<Vec<Done>, Failure> {
        let mut done: Vec<Done> = Vec::new();
        for layer in record.layers.iter().rev() {
            let mut of_layer = Vec::new();
            for journal in changes::journals(self.state, record, layer)?
                .into_iter()
                .rev()
            {
                match journal_state(&journal).doing("the journal cannot be read")? {
                    JournalState::None | JournalState::Undone | JournalState::Interrupted => {}
                    JournalState::Done => of_layer.push(journal),
                }
            }
            if !of_layer.is_empty() {
                done.push((layer.clone(), of_layer));
            }
        }
        Ok(done)
    }

    fn undo_one(
        &self,
        record: &RunRecord,
        layer: &LayerRecord,
        journal: &Path,
        force: bool,
    ) -> Result<Undone, Failure> {
        let what = json!({ "layer": layer.name, "directory": host_text(&layer.host) });
        self.record(record, "undo.started", what)?;
        let undone = undo(journal, force).map_err(|error| not_undone(record, error))?;
        let what = json!({ "layer": layer.name, "entries": undone.applied.entries });
        self.record(record, "undo.finished", what)?;
        Ok(undone)
    }
}

/// Previews an undo of all layers before anything is undone: a refusal halfway would leave the
/// directory in a state that never was.
fn foreseen(record: &RunRecord, done: &[Done]) -> Result<UndoReport, Failure> {
    let mut met = UndoReport::default();
    for (layer, journals) in done {
        let preview = undo_preview(journals).map_err(|error| not_undone(record, error))?;
        met.foresee(&preview, &|path| shown_in(layer, path));
    }
    Ok(met)
}

fn nothing_applied(record: &RunRecord) -> Failure {
    let run = &record.run;
    Failure::new(format!("nothing of run {run} was applied"))
        .because("there is nothing to take back")
        .advise(format!("atoll why {run} tells what became of it"))
}

fn not_undone(record: &RunRecord, error: ApplyError) -> Failure {
    let force = format!(
        "atoll undo {} --force takes them back all the same",
        record.run
    );
    let failure = Failure::new("the changes could not be taken back").because(&error);
    match error {
        ApplyError::Conflicts(_) => failure.advise(force),
        ApplyError::TakenBack { .. }
        | ApplyError::Stuck { .. }
        | ApplyError::NoSpace(_)
        | ApplyError::Tree(_) => failure.advise(format!("atoll undo {} again", record.run)),
        ApplyError::InTheWay(_)
        | ApplyError::ChangedMeanwhile(_)
        | ApplyError::State { .. }
        | ApplyError::Locked(_)
        | ApplyError::Damaged { .. }
        | ApplyError::OtherRoot(_) => failure,
    }
}
