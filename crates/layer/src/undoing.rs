//! Undoes an apply, and rolls an undo back.

use std::path::Path;

use crate::apply::{UNDO, plan_within, run_or_take_back};
use crate::engine::Engine;
use crate::journal::{Journal, Results, Stage};
use crate::owners::not_given;
use crate::rollback::{Later, Push, Rollback, Undoing, outside, rollback};
use crate::{Applied, ApplyError, Conflict, RetainedDirectory, put_back};

/// A preview of an undo. Each list is sorted by path, without duplicates.
#[derive(Debug, Default)]
pub struct UndoPreview {
    /// Entries that changed since: only force overwrites or removes them.
    pub conflicts: Vec<Conflict>,
    /// Entries that not even force puts back: something that no apply has made would have to go.
    pub in_the_way: Vec<Conflict>,
    /// Entries that cannot be looked at, with the kernel's error: they are among the conflicts, and
    /// force leaves them as they are.
    pub skipped: Vec<Conflict>,
    /// Directories that stay, with what others have put there.
    pub stays: Vec<RetainedDirectory>,
}

/// The result of an undo.
#[derive(Debug, Default)]
pub struct Undone {
    /// The amount of work done.
    pub applied: Applied,
    /// Directories that stay, with what others have put there.
    pub stays: Vec<RetainedDirectory>,
    /// Entries that had changed since, and were overwritten or removed: the journal has them, for
    /// [`take_undo_back`].
    pub aside: Vec<Conflict>,
    /// Entries that could not be looked at, and were not undone.
    pub skipped: Vec<Conflict>,
    /// Entries that were put back without their owner or group.
    pub owners: Vec<Conflict>,
}

/// Previews undoing journals of one directory, the newest first: the writes of a later one are no
/// change to an earlier one. Nothing is written.
///
/// # Errors
/// [`ApplyError::State`], or when the directory cannot be read.
pub fn undo_preview<P: AsRef<Path>>(journals: &[P]) -> Result<UndoPreview, ApplyError> {
    preview(journals, &|journal, later, push| {
        rollback_all(&to_undo(journal)?, later, push)
    })
}

/// Previews rolling back undos, journals of one directory in the order in which that is done, the
/// last undone first. Nothing is written.
///
/// # Errors
/// As [`undo_preview`].
pub fn take_back_preview<P: AsRef<Path>>(journals: &[P]) -> Result<UndoPreview, ApplyError> {
    preview(journals, &|journal, later, push| {
        rollback_all(&to_take_back(journal)?.1, later, push)
    })
}

fn preview<P: AsRef<Path>>(
    journals: &[P],
    plan: &dyn Fn(&Path, &Later, Push<'_>) -> Result<Rollback, ApplyError>,
) -> Result<UndoPreview, ApplyError> {
    let mut preview = UndoPreview::default();
    let mut later = Later::default();
    let mut stays = Vec::new();
    for (index, journal) in journals.iter().enumerate() {
        let is_later = index + 1 < journals.len();
        let mut steps = Undoing::default();
        let back = plan(journal.as_ref(), &later, &mut |step| {
            if is_later {
                steps.add(step);
            }
            Ok(())
        })?;
        later.add(steps);
        preview.conflicts.extend(back.conflicts);
        preview.in_the_way.extend(back.in_the_way);
        preview.skipped.extend(back.skipped);
        stays.extend(back.stays);
    }
    preview.stays = RetainedDirectory::merged(stays);
    let UndoPreview {
        conflicts,
        in_the_way,
        skipped,
        ..
    } = &mut preview;
    for conflicts in [conflicts, in_the_way, skipped] {
        conflicts.sort_by(|left, right| left.path.cmp(&right.path));
        conflicts.dedup_by(|left, right| left.path == right.path);
    }
    Ok(preview)
}

fn to_undo(journal: &Path) -> Result<Engine, ApplyError> {
    let opened = Journal::open(journal, false)?;
    expect(&opened, Stage::Done)?;
    Engine::resume(opened)
}

/// Returns the journal of the apply, and the engine of the undo within it.
fn to_take_back(journal: &Path) -> Result<(Journal, Engine), ApplyError> {
    let outer = Journal::open(journal, false)?;
    expect(&outer, Stage::Undone)?;
    let undone = Journal::open(&outer.within(UNDO), false)?;
    Ok((outer, Engine::resume(undone)?))
}

fn expect(journal: &Journal, needed: Stage) -> Result<(), ApplyError> {
    let stage = journal.stage()?;
    if stage == Some(needed) {
        return Ok(());
    }
    Err(ApplyError::State {
        found: stage.map_or("empty", Stage::name),
        needed: needed.name(),
    })
}

fn rollback_all(engine: &Engine, later: &Later, push: Push<'_>) -> Result<Rollback, ApplyError> {
    let results: Results = engine.journal.read_json("results.json")?;
    let indices: Vec<usize> = (0..engine.steps.len()).collect();
    rollback(engine, &indices, Some(&results), later, push)
}

/// Begins the nested journal that reverts a finished one, unless something is in the way.
fn begin_back(engine: &Engine, force: bool) -> Result<(Engine, Rollback), ApplyError> {
    engine.journal.discard_within(UNDO)?;
    let mut plan = plan_within(engine, UNDO, false)?;
    let push = &mut |step| plan.push(&outside(step));
    let mut back = rollback_all(engine, &Later::default(), push)?;
    if let Err(refusal) = refuse(&mut back, force) {
        engine.journal.discard_within(UNDO)?;
        return Err(refusal);
    }
    Ok((Engine::begin(plan)?, back))
}

/// Makes the directory what it was before [`crate::apply`], except for entries that others have put
/// into directories that it made: those stay. Anything that changed there since is a conflict,
/// unless `force` says to overwrite it; then the journal keeps it.
///
/// # Errors
/// [`ApplyError::Conflicts`], [`ApplyError::InTheWay`], [`ApplyError::State`], or as
/// [`crate::apply`].
pub fn undo(journal: &Path, force: bool) -> Result<Undone, ApplyError> {
    let engine = to_undo(journal)?;
    let (within, back) = begin_back(&engine, force)?;
    let mut undone = Undone {
        applied: Applied::default(),
        stays: back.stays,
        aside: back.aside,
        skipped: back.skipped,
        owners: Vec::new(),
    };
    let journal = &engine.journal;
    journal.set_stage(Stage::Undoing)?;
    match run_or_take_back(&within, &mut |_| {}) {
        Ok(applied) => {
            // Only a notice: everything is done.
            undone.owners = not_given(&within.tree, &within.steps).unwrap_or_default();
            drop(within);
            put_back::note(journal, UNDO);
            journal.set_stage(Stage::Undone)?;
            undone.applied = applied;
            Ok(undone)
        }
        Err(ApplyError::TakenBack { cause }) => {
            journal.set_stage(Stage::Done)?;
            Err(ApplyError::TakenBack { cause })
        }
        Err(error) => Err(error),
    }
}

fn refuse(back: &mut Rollback, force: bool) -> Result<(), ApplyError> {
    if !back.conflicts.is_empty() && !force {
        return Err(ApplyError::Conflicts(std::mem::take(&mut back.conflicts)));
    }
    match std::mem::take(&mut back.in_the_way) {
        all if all.is_empty() => Ok(()),
        all => Err(ApplyError::InTheWay(all)),
    }
}

/// Makes the directory what it was before [`undo`], including anything that was overwritten or
/// removed by force. The journal is done again then.
///
/// # Errors
/// [`ApplyError::Conflicts`] where something changed since the undo; [`ApplyError::State`] where
/// nothing was undone; or as [`crate::apply`].
pub fn take_undo_back(journal: &Path) -> Result<Applied, ApplyError> {
    let (outer, engine) = to_take_back(journal)?;
    let (within, _) = begin_back(&engine, false)?;
    outer.set_stage(Stage::PuttingBack)?;
    match run_or_take_back(&within, &mut |_| {}) {
        Ok(applied) => {
            outer.set_stage(Stage::Done)?;
            outer.discard_within(UNDO)?;
            Ok(applied)
        }
        Err(ApplyError::TakenBack { cause }) => {
            outer.set_stage(Stage::Undone)?;
            Err(ApplyError::TakenBack { cause })
        }
        Err(error) => Err(error),
    }
}
