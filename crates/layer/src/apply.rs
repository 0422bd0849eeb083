//! Applies a plan, and finishes or rolls back after an interruption.

use std::mem;
use std::os::fd::AsFd;
use std::path::Path;

use crate::engine::Engine;
use crate::expected::{Prepared, expected, others};
use crate::facts::{Facts, Time};
use crate::journal::{Journal, Stage, Work, stage_of};
use crate::path::Bytes;
use crate::plan::Act;
use crate::progress::{Progress, Show};
use crate::rollback::{Later, outside, rollback};
use crate::steps::{PlanWriter, Steps};
use crate::tree::path_bytes;
use crate::unchanged::are_permissions_of;
use crate::{ApplyError, Plan, TreeError, put_back};

/// The amount of work done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Steps, each atomic.
    pub steps: u64,
    /// Files, directories and links written.
    pub entries: u64,
    /// Bytes of their content.
    pub bytes: u64,
}

/// A journal's state, as recorded in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// Nothing was begun.
    None,
    /// A process ended in the middle: continue with [`finish`] or [`take_back`].
    Interrupted,
    /// The plan is applied.
    Done,
    /// The plan was undone or rolled back.
    Undone,
}

/// The name of the nested journal that rolls back.
const BACK: &str = "back";
/// The name of the nested journal that undoes.
pub(crate) const UNDO: &str = "undo";

/// Applies a plan. Nothing in the host directory changes until all new content is written and
/// durable; when anything fails, everything is as before. The journal's directory is made, and must
/// be the caller's own.
///
/// # Errors
/// [`ApplyError::Conflicts`] when the plan has any; [`ApplyError::TakenBack`] when
/// something failed and the directory is as it was.
pub fn apply(
    plan: Plan,
    journal: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Applied, ApplyError> {
    if !plan.conflicts.is_empty() {
        return Err(ApplyError::Conflicts(plan.conflicts));
    }
    let journal = Journal::open(journal, true)?;
    if let Some(stage) = journal.stage()? {
        return Err(ApplyError::State {
            found: stage.name(),
            needed: "empty",
        });
    }
    let work = Work {
        root: Bytes(path_bytes(&plan.root)),
        root_identity: plan.root_identity,
        content: Bytes(path_bytes(&plan.content)),
        work: plan.work.as_deref().map(|work| Bytes(path_bytes(work))),
        begun: Some(Time::now()),
        put_back: put_back::recorded(plan.put_back.as_deref()),
        repository: plan.repository,
        tag: fresh_tag()?,
        loose: false,
    };
    let mut writer = PlanWriter::begin(journal, work)?;
    for step in plan.steps {
        writer.push(&step)?;
    }
    let engine = Engine::begin(writer)?;
    run_or_take_back(&engine, progress)
}

/// Rolls forward after an interruption, to the end of the operation in progress: applying, rolling
/// back or undoing. For a journal already at its end, returns the result of its last operation.
///
/// # Errors
/// As [`apply`].
pub fn finish(journal: &Path) -> Result<Applied, ApplyError> {
    let journal = Journal::open(journal, false)?;
    let stage = journal.stage()?;
    match stage {
        Some(Stage::Keeping | Stage::Preparing | Stage::Committing) => {
            run_or_take_back(&Engine::resume(journal)?, &mut |_| {})
        }
        Some(Stage::TakingBack) => resume_within(&journal, BACK, Stage::TakenBack),
        Some(Stage::Undoing) => resume_within(&journal, UNDO, Stage::Undone),
        Some(Stage::PuttingBack) => settle_putting_back(&journal, true),
        Some(Stage::Undone) => applied_within(&journal, UNDO),
        Some(Stage::Done | Stage::TakenBack) => applied_of(journal.path()),
        None => Err(ApplyError::State {
            found: "empty",
            needed: "interrupted",
        }),
    }
}

/// Rolls back after an interruption: what was begun is as if it never had been. An interrupted undo
/// returns to the state that it was to undo, an interrupted rollback of an undo to the state before
/// it.
///
/// # Errors
/// [`ApplyError::State`] when the journal is done: that is for [`crate::undo`].
pub fn take_back(journal: &Path) -> Result<Applied, ApplyError> {
    let opened = Journal::open(journal, false)?;
    let stage = opened.stage()?;
    match stage {
        Some(Stage::Keeping | Stage::Preparing | Stage::Committing) => {
            go_back(&Engine::resume(opened)?)
        }
        Some(Stage::TakingBack) => resume_within(&opened, BACK, Stage::TakenBack),
        Some(Stage::Undoing) => {
            let within = opened.within(UNDO);
            let taken = match stage_of(&within)? {
                Some(Stage::Done) | None => return resume_within(&opened, UNDO, Stage::Undone),
                Some(Stage::TakenBack) => Applied::default(),
                Some(_) => take_back(&within)?,
            };
            opened.set_stage(Stage::Done)?;
            opened.discard_within(UNDO)?;
            Ok(taken)
        }
        Some(Stage::PuttingBack) => settle_putting_back(&opened, false),
        Some(Stage::TakenBack) => Ok(Applied::default()),
        Some(Stage::Done | Stage::Undone) | None => Err(ApplyError::State {
            found: stage.map_or("empty", Stage::name),
            needed: "interrupted",
        }),
    }
}

/// Reads a journal's state; nothing is opened or locked.
///
/// # Errors
/// [`ApplyError::Damaged`], or when it cannot be read.
pub fn journal_state(journal: &Path) -> Result<JournalState, ApplyError> {
    Ok(match stage_of(journal)? {
        None => JournalState::None,
        Some(
            Stage::Keeping
            | Stage::Preparing
            | Stage::Committing
            | Stage::TakingBack
            | Stage::Undoing
            | Stage::PuttingBack,
        ) => JournalState::Interrupted,
        Some(Stage::Done) => JournalState::Done,
        Some(Stage::TakenBack | Stage::Undone) => JournalState::Undone,
    })
}

pub(crate) fn run_or_take_back(engine: &Engine, progress: Show<'_>) -> Result<Applied, ApplyError> {
    let Err(cause) = engine.run(progress) else {
        return Ok(applied(&engine.steps));
    };
    let cause = Box::new(cause);
    match go_back(engine) {
        Ok(_) => Err(ApplyError::TakenBack { cause }),
        Err(second) => Err(ApplyError::Stuck {
            cause,
            second: Box::new(second),
            journal: engine.journal.path().to_owned(),
        }),
    }
}

/// Rolls back those steps of a journal that were done, with a nested journal.
fn go_back(engine: &Engine) -> Result<Applied, ApplyError> {
    let done = put_back_half_done(engine)?;
    engine.remove_temporaries(|_| true)?;
    let expected = expected(engine)?;
    let journal = &engine.journal;
    journal.discard_within(BACK)?;
    let mut plan = plan_within(engine, BACK, true)?;
    let push = &mut |step| plan.push(&outside(step));
    let mut back = rollback(engine, &done, expected.as_ref(), &Later::default(), push)?;
    if expected.is_some() {
        // What is not as it was left is somebody's since: nobody has said that it may go.
        let changed = [mem::take(&mut back.aside), mem::take(&mut back.skipped)];
        back.in_the_way.extend(changed.into_iter().flatten());
    }
    if !back.in_the_way.is_empty() {
        journal.discard_within(BACK)?;
        return Err(ApplyError::InTheWay(back.in_the_way));
    }
    if plan.is_empty() {
        journal.discard_within(BACK)?;
        put_back::note(journal, BACK);
        journal.set_stage(Stage::TakenBack)?;
        return Ok(Applied::default());
    }
    let within = Engine::begin(plan)?;
    journal.set_stage(Stage::TakingBack)?;
    within.run(&mut |_| {})?;
    put_back::note(journal, BACK);
    journal.set_stage(Stage::TakenBack)?;
    Ok(applied(&within.steps))
}

/// Swaps back what was swapped but not yet checked, since only then is the original itself still
/// there. Returns the indexes of the steps that are done for good.
fn put_back_half_done(engine: &Engine) -> Result<Vec<usize>, ApplyError> {
    let logged = engine.journal.logged()?;
    let committing = engine.journal.stage()? == Some(Stage::Committing);
    let all = match committing {
        true => Prepared::read(&engine.journal)?,
        false => Prepared::default(),
    };
    let mut done = Vec::new();
    let mut in_the_way = Vec::new();
    for step in engine.steps.iter() {
        let (index, step) = step?;
        let is_logged = logged.contains(&index);
        match &step.act {
            Act::Replace { .. } | Act::Rename { .. } if is_logged => done.push(index),
            Act::Replace { .. } if !committing => {}
            Act::Replace { old, .. } => {
                let temporary = engine.temporary(index, &step);
                let Ok(place) = engine.tree.place_of(&step.path) else {
                    continue;
                };
                let prepared = all.top(index);
                let place = place.as_fd();
                engine.give_back(&step, &temporary, place)?;
                let aside = engine.stamp_at(place, &temporary)?;
                if !engine.is_swapped(&step, &temporary, place, prepared)? {
                    // What was prepared goes; the original, whose name somebody took, never.
                    let is_ours = |aside| prepared.is_some_and(|ours| ours.same_entry(aside));
                    if aside.as_ref().is_some_and(|aside| !is_ours(aside)) {
                        in_the_way.extend(engine.put_back(&step, &temporary, place)?);
                    }
                    continue;
                }
                if old.is_empty() || aside.is_none() {
                    done.push(index);
                    continue;
                }
                // What was swapped in goes: with it, what somebody has made of it since.
                match others(engine, &all, index, &step)? {
                    all if all.is_empty() => {
                        engine.swap_back(&step, &temporary, place, prepared)?;
                    }
                    all => in_the_way.extend(all),
                }
            }
            // Harmless when it was not done: it sets what is there already. What took its
            // place meanwhile is none of it, and what somebody has given it since stays.
            Act::Facts { old, new } => {
                let now = engine.tree.facts(&step.path).ok().flatten();
                let is_its = |now: &Facts| old.is_of(now) && are_permissions_of(now, old, new);
                if now.as_ref().is_some_and(is_its) {
                    done.push(index);
                }
            }
            Act::Rename { directory, .. } => {
                let now = engine.tree.facts(&step.path).ok().flatten();
                if now.is_some_and(|now| directory.same_entry(&now.stamp())) {
                    done.push(index);
                }
            }
        }
    }
    match in_the_way.is_empty() {
        true => Ok(done),
        false => Err(ApplyError::InTheWay(in_the_way)),
    }
}

/// Begins the plan of a nested journal.
pub(crate) fn plan_within(
    engine: &Engine,
    name: &str,
    loose: bool,
) -> Result<PlanWriter, ApplyError> {
    let work = Work {
        root: engine.work.root.clone(),
        root_identity: engine.work.root_identity,
        content: engine.work.content.clone(),
        work: engine.work.work.clone(),
        begun: None,
        put_back: None,
        repository: engine.work.repository.clone(),
        tag: fresh_tag()?,
        loose,
    };
    PlanWriter::begin(Journal::open(&engine.journal.within(name), true)?, work)
}

fn resume_within(journal: &Journal, name: &str, end: Stage) -> Result<Applied, ApplyError> {
    let within = journal.within(name);
    let done = match stage_of(&within)? {
        Some(Stage::Done) => applied_within(journal, name)?,
        None => Applied::default(),
        // The undo failed and was taken back, or was being so.
        Some(Stage::TakingBack | Stage::TakenBack) => {
            let taken = take_back(&within)?;
            journal.set_stage(Stage::Done)?;
            return Ok(taken);
        }
        Some(_) => {
            let engine = Engine::resume(Journal::open(&within, false)?)?;
            engine.run(&mut |_| {})?;
            applied(&engine.steps)
        }
    };
    put_back::note(journal, name);
    journal.set_stage(end)?;
    Ok(done)
}

/// Completes the rollback of an undo that was interrupted.
fn settle_putting_back(journal: &Journal, onward: bool) -> Result<Applied, ApplyError> {
    let within = journal.within(UNDO).join(UNDO);
    let (end, done) = match stage_of(&within)? {
        Some(Stage::Done) => (Stage::Done, Applied::default()),
        Some(Stage::TakingBack | Stage::TakenBack) => (Stage::Undone, take_back(&within)?),
        Some(_) if onward => {
            let engine = Engine::resume(Journal::open(&within, false)?)?;
            engine.run(&mut |_| {})?;
            (Stage::Done, applied(&engine.steps))
        }
        Some(_) => (Stage::Undone, take_back(&within)?),
        None => (Stage::Undone, Applied::default()),
    };
    journal.set_stage(end)?;
    if end == Stage::Done {
        journal.discard_within(UNDO)?;
    }
    Ok(done)
}

fn applied_within(journal: &Journal, name: &str) -> Result<Applied, ApplyError> {
    applied_of(Journal::open(&journal.within(name), false)?.path())
}

fn applied_of(journal: &Path) -> Result<Applied, ApplyError> {
    Ok(applied(&Steps::read(journal)?.1))
}

fn applied(steps: &Steps) -> Applied {
    Applied {
        steps: steps.totals.steps,
        entries: steps.totals.new,
        bytes: steps.totals.bytes,
    }
}

/// Returns sixteen random characters, so that no program could have taken the temporary names
/// beforehand.
fn fresh_tag() -> Result<String, ApplyError> {
    use std::io::Read as _;
    let path = "/dev/urandom";
    let mut bytes = [0; 8];
    std::fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| TreeError::new("cannot read", path, error))?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}
