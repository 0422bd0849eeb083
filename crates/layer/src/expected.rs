//! The results of a journal's steps, as they were prepared: anything else at their paths is
//! somebody else's.

use std::collections::HashMap;

use crate::engine::Engine;
use crate::entries::Walker;
use crate::facts::Stamp;
use crate::journal::{Journal, Results, Stage};
use crate::plan::{Act, Content, Entry, Node};
use crate::unchanged::{CHANGED, is_entry_unchanged};
use crate::{ApplyError, Bounds, Conflict, RelativePath, Step};

/// The stamps of entries, each with its path beneath a step's.
pub(crate) type Stamps = Vec<(RelativePath, Stamp)>;

const TOPS: &str = "prepared.json";
const BENEATH: &str = "beneath.json";
const MADE: &str = "it was made meanwhile";

/// The content prepared for each step, under its temporary name.
#[derive(Default)]
pub(crate) struct Prepared {
    tops: Vec<Option<Stamp>>,
    /// The stamps beneath the tops; `None` in journals that do not record them.
    beneath: Option<Vec<Stamps>>,
}

impl Prepared {
    /// Adds the content prepared for the next step: its top, and the entries beneath.
    pub fn push(&mut self, top: Option<Stamp>, beneath: Stamps) {
        self.tops.push(top);
        self.beneath.get_or_insert_default().push(beneath);
    }

    /// Writes it to the journal, before the first name is changed.
    pub fn write(&self, journal: &Journal) -> Result<(), ApplyError> {
        if let Some(beneath) = &self.beneath {
            journal.write_json(BENEATH, beneath)?;
        }
        journal.write_json(TOPS, &self.tops)
    }

    /// Reads it from the journal.
    pub fn read(journal: &Journal) -> Result<Self, ApplyError> {
        let is_told = journal.path().join(BENEATH).exists();
        let beneath = is_told.then(|| journal.read_json(BENEATH));
        Ok(Self {
            tops: journal.read_json(TOPS)?,
            beneath: beneath.transpose()?,
        })
    }

    /// Returns the top of the content prepared for a step; `None` where only something is removed.
    pub fn top(&self, index: usize) -> Option<Stamp> {
        self.tops.get(index).copied().flatten()
    }

    /// Returns the stamps that a finished step left at its path, whose top is `now`. `None` where
    /// they are unknown.
    fn left(&self, index: usize, now: Option<Stamp>) -> Option<Stamps> {
        let beneath = self.beneath.as_ref()?;
        let beneath = beneath.get(index).cloned().unwrap_or_default();
        let top = self.top(index).map(|top| {
            // That it was given its name has moved the time of change on.
            let itself = now.filter(|now| top.holds_after_rename(now));
            (RelativePath::root(), itself.unwrap_or(top))
        });
        Some(top.into_iter().chain(beneath).collect())
    }
}

/// Returns the results of the steps that are done; entries that were given permissions or moved are
/// taken as they are. `None` before names are changed, and for journals that do not record it.
pub(crate) fn expected(engine: &Engine) -> Result<Option<Results>, ApplyError> {
    if engine.journal.stage()? != Some(Stage::Committing) {
        return Ok(None);
    }
    let prepared = Prepared::read(&engine.journal)?;
    let mut walker = Walker::new(Bounds::default());
    let mut results = Results::default();
    for step in engine.steps.iter() {
        let (index, step) = step?;
        let left = match &step.act {
            Act::Replace { .. } => {
                let now = engine.tree.facts(&step.path).ok().flatten();
                match prepared.left(index, now.map(|now| now.stamp())) {
                    Some(left) => left,
                    None => return Ok(None),
                }
            }
            Act::Facts { .. } | Act::Rename { .. } => {
                itself(engine, &mut walker, &step).unwrap_or_default()
            }
        };
        results.steps.push(left.into());
    }
    Ok(Some(results))
}

/// Returns the directory's state once all steps are done. Where somebody has changed a step's
/// result since, that result is returned: else theirs would be taken for the step's own.
pub(crate) fn results(engine: &Engine, prepared: &Prepared) -> Result<Results, ApplyError> {
    let mut walker = Walker::new(Bounds::default());
    let mut results = Results::default();
    for step in engine.steps.iter() {
        let (index, step) = step?;
        let left = match &step.act {
            Act::Replace { new, .. } => {
                let facts = engine.tree.facts(&step.path).ok().flatten();
                let top = prepared.top(index).filter(|_| is_alone(new));
                if let Some((top, now)) = top.zip(facts.map(|facts| facts.stamp()))
                    && top.holds_after_rename(&now)
                {
                    results.steps.push([(RelativePath::root(), now)].into());
                    continue;
                }
                let now = engine.present(&mut walker, &step.path)?;
                let left = prepared.left(index, top_of(&now));
                match left.filter(|left| !is_as_left(engine, &step, &now, left)) {
                    Some(left) => left,
                    None => stamps(now),
                }
            }
            Act::Facts { .. } | Act::Rename { .. } => itself(engine, &mut walker, &step)?,
        };
        results.steps.push(left.into());
    }
    Ok(results)
}

/// Returns the entries at a step's path that were not prepared for it: they would be removed with
/// its result. Empty where that is not known.
pub(crate) fn others(
    engine: &Engine,
    prepared: &Prepared,
    index: usize,
    step: &Step,
) -> Result<Vec<Conflict>, ApplyError> {
    let mut walker = Walker::new(Bounds::default());
    let now = engine.present(&mut walker, &step.path)?;
    let Some(left) = prepared.left(index, top_of(&now)) else {
        return Ok(Vec::new());
    };
    let own = own(step, &left);
    let changed = now
        .iter()
        .filter(|entry| !is_own(engine, step, &own, entry));
    let conflict = |entry: &Entry| {
        let why = match own.contains_key(&entry.beneath) {
            true => CHANGED,
            false => MADE,
        };
        Conflict {
            path: step.path.concat(&entry.beneath),
            why: why.to_owned(),
        }
    };
    Ok(changed.map(conflict).collect())
}

/// The entries that a step makes, by path, each with its stamp from then.
type Own<'a> = HashMap<&'a RelativePath, (&'a Entry, &'a Stamp)>;

fn own<'a>(step: &'a Step, left: &'a Stamps) -> Own<'a> {
    let left: HashMap<&RelativePath, &Stamp> = left.iter().map(|(at, stamp)| (at, stamp)).collect();
    let new = step.new_entries().iter();
    new.filter_map(|entry| Some((&entry.beneath, (entry, *left.get(&entry.beneath)?))))
        .collect()
}

fn is_own(engine: &Engine, step: &Step, own: &Own<'_>, now: &Entry) -> bool {
    own.get(&now.beneath).is_some_and(|(written, then)| {
        let is_itself = now.stamp.is_some_and(|now| then.holds_after_rename(&now));
        is_itself || is_entry_unchanged(engine, step, now, written, then)
    })
}

/// Returns whether all that a step has made is there as it was.
fn is_as_left(engine: &Engine, step: &Step, now: &[Entry], left: &Stamps) -> bool {
    let own = own(step, left);
    let there = now.iter().filter(|entry| is_own(engine, step, &own, entry));
    match step.new_entries() {
        [] => now.is_empty(),
        new => there.count() == new.len(),
    }
}

/// Returns whether a step makes a single file or link.
fn is_alone(new: &[Entry]) -> bool {
    matches!(new, [one] if matches!(one.node, Node::File { .. } | Node::Symlink { .. }))
}

fn top_of(now: &[Entry]) -> Option<Stamp> {
    now.iter().find(|entry| entry.beneath.is_root())?.stamp
}

/// Returns the stamp of an entry that was given permissions or moved, as it is now.
fn itself(engine: &Engine, walker: &mut Walker, step: &Step) -> Result<Stamps, ApplyError> {
    let now = walker.one(&engine.tree, &step.path, Content::Untouched)?;
    Ok(stamps(vec![now]))
}

fn stamps(entries: Vec<Entry>) -> Stamps {
    let stamped = entries.into_iter();
    stamped
        .filter_map(|entry| Some((entry.beneath, entry.stamp?)))
        .collect()
}
