//! The undo of runs that wrote straight to their workspace. Their changes are recorded at their
//! end, so that the undo does not remove later ones.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::SystemTime;

use atoll_layer::{
    Bounds, LiveSnapshot, Opened, Plan, Refusal, RelativePath, Selection, UndoPreview,
    changes as changes_of, owners_not_given, plan_restore,
};
use atoll_ledger::StateDir;
use atoll_model::WorkspaceMode;
use atoll_store::{LayerKind, RunRecord, RunState};

use super::last_undo::LastUndo;
use super::{Work, refuse_any};
use crate::changes::{self, LayerChanges};
use crate::failure::{Doing, Failure};
use crate::promotion::{Allowed, Approver};
use crate::undo_report::UndoReport;

/// Returns the path of the end note of a live run's layer, below the run's directory.
fn note_path(state: &StateDir, record: &RunRecord, one: &LayerChanges) -> PathBuf {
    let name = format!("left-{}.json", one.layer.name);
    state.run_dir(&record.run).join(name)
}

fn plan_back(one: &LayerChanges) -> Result<Plan, Failure> {
    let selection = Selection {
        control: true,
        caches: true,
        ignored: true,
        force: false,
        paths: Vec::new(),
    };
    plan_restore(&one.paths, &one.set, &selection).doing("the checkpoint cannot be restored")
}

/// Writes the end note of a live run: the changes that it left in the workspace. Without the note
/// they cannot be told from later ones, which an undo then reports.
pub fn note_end(
    state: &StateDir,
    record: &RunRecord,
    all: &[LayerChanges],
    surface: &dyn Approver,
) {
    if record.mode != WorkspaceMode::Live {
        return;
    }
    for one in all
        .iter()
        .filter(|one| one.layer.kind == LayerKind::Workspace)
    {
        if let Err(failure) = write_note(state, record, one) {
            surface.warn(format!(
                "what the run left in the workspace could not be noted: {}.\n\
                 Undoing it will take all back that changed since it started",
                failure.why.unwrap_or(failure.what)
            ));
        }
    }
}

fn write_note(state: &StateDir, record: &RunRecord, one: &LayerChanges) -> Result<(), Failure> {
    let note = LiveSnapshot::of(&plan_back(one)?, &one.set, SystemTime::now());
    let path = note_path(state, record, one);
    let new = path.with_extension("new");
    let failed = "the note cannot be written";
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)
        .doing(failed)?;
    let mut text = BufWriter::new(file);
    serde_json::to_writer(&mut text, &note).doing(failed)?;
    text.flush().doing(failed)?;
    fs::rename(&new, &path).doing(failed)
}

/// Returns the end note of a run; none if its end was not observed.
fn read_note(state: &StateDir, record: &RunRecord, one: &LayerChanges) -> Option<LiveSnapshot> {
    let file = File::open(note_path(state, record, one)).ok()?;
    serde_json::from_reader(BufReader::new(file)).ok()
}

/// The way in which a live run's changes are undone.
#[derive(Clone, Copy, Debug)]
pub enum How<'a> {
    /// They are undone.
    Restoring {
        /// The permission.
        allowed: &'a Allowed,
        /// True if a path changed since is overwritten too, and kept aside. Otherwise nothing is
        /// undone where something changed since.
        force: bool,
    },
    /// Nothing is written: only the report of a forced undo is returned.
    Looking,
}

impl How<'_> {
    fn is_by_force(self) -> bool {
        matches!(self, Self::Restoring { force: true, .. })
    }

    fn writes(self) -> bool {
        matches!(self, Self::Restoring { .. })
    }
}

impl Work<'_> {
    /// Restores the workspace of a live run to its checkpoint. Returns the report of it.
    ///
    /// # Errors
    /// When it was done already, or when something changed there since the run's end: nothing is
    /// written then, unless it is forced.
    pub fn restore(&self, record: &RunRecord, how: How<'_>) -> Result<UndoReport, Failure> {
        if record.state == RunState::Undone {
            return Err(Failure::new(format!(
                "what run {} changed was taken back already",
                record.run
            ))
            .because("there is nothing to take back"));
        }
        self.refuse_interrupted(record)?;
        let mut met = UndoReport::default();
        for one in changes::read(self.state, record)?
            .iter()
            .filter(|one| one.layer.kind == LayerKind::Workspace)
        {
            met = met.and(self.restore_layer(record, one, how)?);
        }
        Ok(met)
    }

    fn restore_layer(
        &self,
        record: &RunRecord,
        one: &LayerChanges,
        how: How<'_>,
    ) -> Result<UndoReport, Failure> {
        let note = read_note(self.state, record, one);
        if note.is_none() && !how.is_by_force() {
            return Err(refuse_unseen(record, &plan_back(one)?));
        }
        let unopened = "what the run made unreadable cannot be opened up";
        let bounds = Bounds::default();
        let opened = Opened::up(&one.paths, &one.set, note.as_ref(), &bounds).doing(unopened)?;
        let restored = self.restore_opened(record, one, note, &opened, how);
        let settled = match &restored {
            Ok((refused, _)) if how.writes() => opened.settle(refused),
            Ok(_) | Err(_) => opened.close(),
        };
        let (_, met) = restored?;
        settled.doing("what was opened up could not be closed again")?;
        Ok(met)
    }

    /// Restores the workspace once everything in it that can be made readable is readable. Returns
    /// the changes that were not undone, and the report.
    fn restore_opened(
        &self,
        record: &RunRecord,
        one: &LayerChanges,
        note: Option<LiveSnapshot>,
        opened: &Opened,
        how: How<'_>,
    ) -> Result<(Vec<Refusal>, UndoReport), Failure> {
        let unread = "the workspace cannot be read";
        let mut plan = match opened.is_empty() {
            true => plan_back(one)?,
            false => plan_back(&LayerChanges {
                layer: one.layer.clone(),
                paths: one.paths.clone(),
                set: changes_of(&one.paths, &Bounds::default()).doing(unread)?,
            })?,
        };
        let mut meets = UndoPreview::default();
        match note {
            Some(note) => (plan, meets) = note.narrow(plan, opened),
            None => self.surface.warn(format!(
                "nobody saw the end of run {}: all is taken back that changed since it \
                 started, whoever changed it",
                record.run
            )),
        }
        let shown = |path: &RelativePath| PathBuf::from(path.as_os_str());
        let mut met = UndoReport::default();
        met.add_changed(&plan.conflicts, &shown);
        met.foresee(&meets, &shown);
        let by_force = how.is_by_force();
        if by_force || (how.writes() && !met.in_the_way.is_empty()) {
            let command = format!("atoll undo {}", record.run);
            met.settle(&command, by_force)?;
            self.tell_force(&met, by_force, &command);
        }
        if by_force {
            plan = plan.without_conflicts();
        }
        met.add_refused(&plan.refused, &shown);
        let refused = plan.refused.clone();
        let How::Restoring { allowed, .. } = how else {
            return Ok((refused, met));
        };
        refuse_later_changes(&plan, record)?;
        if !plan.is_empty() {
            let journal = changes::next_journal(self.state, record, &one.layer)?;
            let directory = changes::journals_of(self.state, record);
            let last = LastUndo::of_live(&directory, &journal, record.state)?;
            let last = last.meeting(&met);
            last.write(&directory)?;
            self.apply_layer(record, one, plan, allowed)?;
            let owners = owners_not_given(&journal).doing("the journal cannot be read")?;
            met.add_owners(&owners, &shown);
            last.with_owners(&met, &directory)?;
        }
        Ok((refused, met))
    }
}

fn refuse_unseen(record: &RunRecord, plan: &Plan) -> Failure {
    Failure::new(format!(
        "the changes of run {} cannot be told from later ones; nothing was written",
        record.run
    ))
    .because(format!(
        "nobody saw its end. Paths changed in the workspace since it started: {}",
        plan.steps.len()
    ))
    .advise(format!("atoll diff {} shows them", record.run))
    .advise(format!(
        "atoll undo {} --force takes them all back, whoever changed them",
        record.run
    ))
}

fn refuse_later_changes(plan: &Plan, record: &RunRecord) -> Result<(), Failure> {
    let failure = Failure::new("the workspace changed since the run ended; nothing was written")
        .advise(format!(
            "atoll undo {run} --force takes these back too; what stands there is kept, and atoll undo \
             {run} --take-back brings it back",
            run = record.run
        ));
    refuse_any(plan, failure)
}

/// Refuses to discard the changes of a live run: they are in the workspace, where discarding them
/// would be an undo that nobody asked for.
pub fn refuse_discard(record: &RunRecord) -> Result<(), Failure> {
    if record.mode != WorkspaceMode::Live || record.state == RunState::Undone {
        return Ok(());
    }
    Err(Failure::new(format!(
        "run {} wrote straight to its workspace",
        record.run
    ))
    .because("it was started with --live, or in a fence: its changes are in the directory, not kept beside it")
    .advise(format!("atoll undo {} takes its changes back", record.run))
    .advise("atoll gc --older-than TIME leaves them, and removes its record and checkpoint"))
}
