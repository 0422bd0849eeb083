//! What the steps of a journal have left, as it was prepared for them. After an interruption what
//! stands at their paths can be somebody else's.

use std::collections::HashSet;

use crate::engine::Engine;
use crate::entries::Walker;
use crate::journal::{Results, Stage};
use crate::plan::{Act, Entry, Stamp};
use crate::unchanged::is_entry_unchanged;
use crate::{ApplyError, Bounds, RelativePath, Step};

/// What was prepared beneath the top of each step.
pub(crate) type Beneath = Vec<Vec<(RelativePath, Stamp)>>;

const BENEATH: &str = "beneath.json";

/// Notes it, before the first name is changed.
pub(crate) fn note(engine: &Engine, beneath: &Beneath) -> Result<(), ApplyError> {
    engine.journal.write_json(BENEATH, beneath)
}

/// What the steps have left, each that is done; what was given permissions or moved is taken as
/// it is. None before names are changed, and of journals that do not say it.
pub(crate) fn expected(engine: &Engine) -> Result<Option<Results>, ApplyError> {
    let journal = &engine.journal;
    let is_committing = journal.stage()? == Some(Stage::Committing);
    if !is_committing || !journal.path().join(BENEATH).exists() {
        return Ok(None);
    }
    let beneath: Beneath = journal.read_json(BENEATH)?;
    let prepared: Vec<Option<Stamp>> = journal.read_json("prepared.json")?;
    let mut walker = Walker::new(Bounds::default());
    let mut results = Results::default();
    for (index, step) in engine.work.steps.iter().enumerate() {
        results.steps.push(match &step.act {
            Act::Replace { .. } => {
                let top = prepared.get(index).copied().flatten();
                let top = top.map(|top| (RelativePath::root(), at_its_place(engine, step, top)));
                let beneath = beneath.get(index).cloned().unwrap_or_default();
                top.into_iter().chain(beneath).collect()
            }
            Act::Facts { .. } | Act::Rename { .. } => {
                engine.state_of(&mut walker, step).unwrap_or_default()
            }
        });
    }
    Ok(Some(results))
}

/// The stamp of what was prepared, once it has its name: that has moved the time of change on.
fn at_its_place(engine: &Engine, step: &Step, prepared: Stamp) -> Stamp {
    let now = engine.tree.facts(&step.path).ok().flatten();
    let now = now.map(|now| now.stamp());
    now.filter(|now| prepared.holds_after_rename(now))
        .unwrap_or(prepared)
}

/// What the directory looks like now, where steps were done. What a step had left before an
/// interruption and somebody has changed since is as the step has left it: else it would be taken
/// for the step's own.
pub(crate) fn results(engine: &Engine, before: &HashSet<usize>) -> Result<Results, ApplyError> {
    let mut walker = Walker::new(Bounds::default());
    let mut results = Results::default();
    let steps = engine.work.steps.iter().enumerate();
    let is_before = |(index, step): (usize, &Step)| {
        before.contains(&index) && matches!(step.act, Act::Replace { .. })
    };
    let expected = match steps.clone().any(is_before) {
        true => expected(engine)?,
        false => None,
    };
    for (index, step) in steps {
        let planned = expected.as_ref().filter(|_| is_before((index, step)));
        let planned = planned.and_then(|planned| planned.steps.get(index));
        let planned = match planned {
            Some(planned) if !is_as_left(engine, &mut walker, step, planned)? => Some(planned),
            Some(_) | None => None,
        };
        results.steps.push(match planned {
            Some(planned) => planned.clone(),
            None => engine.state_of(&mut walker, step)?,
        });
    }
    Ok(results)
}

/// Whether all that a step has put somewhere is there as it was.
fn is_as_left(
    engine: &Engine,
    walker: &mut Walker,
    step: &Step,
    planned: &[(RelativePath, Stamp)],
) -> Result<bool, ApplyError> {
    let now = engine.present(walker, &step.path)?;
    let is_there = |written: &Entry| {
        let at = &written.beneath;
        let then = planned.iter().find(|(beneath, _)| beneath == at);
        let there = now.iter().find(|entry| entry.beneath == *at);
        then.zip(there).is_some_and(|((_, then), there)| {
            is_entry_unchanged(engine, step, there, (written, then))
        })
    };
    Ok(match step.new_entries() {
        [] => now.is_empty(),
        new => new.iter().all(is_there),
    })
}
