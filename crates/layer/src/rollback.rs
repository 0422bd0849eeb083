//! The rollback of finished steps: the entries there now, their differences from how the steps left
//! them, and the steps that revert them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::{io, mem};

use crate::below::is_head;
use crate::engine::{Engine, only_tree};
use crate::entries::Walker;
use crate::facts::Stamp;
use crate::host::replaced_meanwhile;
use crate::journal::Results;
use crate::parting::part;
use crate::plan::{Act, Content, Entry, Node};
use crate::unchanged::{CHANGED, are_facts_unchanged, is_entry_unchanged};
use crate::worktrees::{Left, Own, left};
use crate::{ApplyError, Bounds, Conflict, RelativePath, RetainedDirectory, Step, TreeError};

const GONE: &str = "it is gone since it was applied";
const AGAIN: &str = "it has come into being again since";
const REPOSITORY: &str = "it is a git repository that others have written to since";
const SPECIAL: &str = "a socket, FIFO or device is there now, which could not be brought back";
const IN_THE_WAY: &str = "a directory that holds what is not of this apply is there now";

/// A function that takes the steps that revert others.
pub(crate) type Push<'a> = &'a mut dyn FnMut(Step) -> Result<(), ApplyError>;

/// The obstacles to steps that revert others.
#[derive(Default)]
pub(crate) struct Rollback {
    /// Paths at which the directory is not what it was after the steps.
    pub conflicts: Vec<Conflict>,
    /// Paths at which an entry would be overwritten or removed.
    pub aside: Vec<Conflict>,
    /// Paths that cannot be looked at, so that nothing is undone there, not even with force.
    pub skipped: Vec<Conflict>,
    /// Originals that could only be put back in the place of others' files.
    pub in_the_way: Vec<Conflict>,
    /// The directories that stay, because they hold others' files.
    pub stays: Vec<RetainedDirectory>,
}

impl Rollback {
    fn conflict(&mut self, path: RelativePath, why: &str) {
        let why = why.to_owned();
        self.conflicts.push(Conflict { path, why });
    }

    /// Records a conflict with an entry that is there.
    fn conflict_aside(&mut self, path: RelativePath, why: &str) {
        let one = Conflict {
            path,
            why: why.to_owned(),
        };
        self.conflicts.push(one.clone());
        self.aside.push(one);
    }
}

/// The steps by which later applies to the same directory will have been undone before an earlier
/// one is: the latest first, each by path.
#[derive(Default)]
pub(crate) struct Later(Vec<Undoing>);

/// The steps that undo one apply, each by path.
#[derive(Default)]
pub(crate) struct Undoing(BTreeMap<RelativePath, Step>);

impl Undoing {
    pub fn add(&mut self, mut step: Step) {
        if let Act::Replace { old, new } = &mut step.act {
            // What could not be brought back will not be there.
            new.retain(|entry| entry.node != Node::Special);
            *old = Vec::new();
        }
        self.0.insert(step.path.clone(), step);
    }
}

impl Later {
    pub fn add(&mut self, steps: Undoing) {
        self.0.push(steps);
    }

    /// Returns the entries that will be at a path where these are now.
    fn at(&self, path: &RelativePath, mut entries: Vec<Entry>) -> Vec<Entry> {
        for Undoing(steps) in &self.0 {
            let mut above = std::iter::once(path.clone()).chain(path.ancestors());
            let above = above.find_map(|above| steps.get(&above));
            if let Some(step) = above
                && let Act::Replace { new, .. } = &step.act
            {
                let rest = path.beneath(&step.path).unwrap_or_default();
                let moved = |entry: &Entry| Some((entry.beneath.beneath(&rest)?, entry.clone()));
                let moved = new.iter().filter_map(moved);
                let moved = moved.map(|(beneath, entry)| Entry { beneath, ..entry });
                entries = moved.map(elsewhere).collect();
                continue;
            }
            let prefix = path.as_bytes();
            let within = steps.range(path.clone()..);
            let within = within.take_while(|(at, _)| at.as_bytes().starts_with(prefix));
            for (at, step) in within {
                if let Some(rest) = at.beneath(path) {
                    undone_within(&mut entries, &rest, step);
                }
            }
        }
        entries
    }
}

fn undone_within(entries: &mut Vec<Entry>, rest: &RelativePath, step: &Step) {
    match &step.act {
        Act::Replace { new, .. } => {
            entries.retain(|entry| !entry.beneath.starts_with(rest));
            entries.extend(new.iter().map(|entry| {
                elsewhere(Entry {
                    beneath: rest.concat(&entry.beneath),
                    ..entry.clone()
                })
            }));
        }
        Act::Facts { new, .. } => {
            for entry in entries.iter_mut().filter(|entry| entry.beneath == *rest) {
                let (node, beneath) = (entry.node.clone(), entry.beneath.clone());
                *entry = Entry {
                    node,
                    beneath,
                    ..(**new).clone()
                };
            }
        }
        Act::Rename { .. } => {}
    }
}

/// Marks an entry's content as being in a journal: it cannot be compared with the current one.
fn elsewhere(mut entry: Entry) -> Entry {
    if let Node::File { content, .. } = &mut entry.node {
        *content = Content::Untouched;
    }
    entry
}

/// Gives the steps that revert those at `indices`, the last first, to `push`. A path at which the directory
/// differs from the `results` is a conflict; without results everything is taken for the steps'
/// own.
///
/// # Errors
/// Without results, what cannot be read; those of `push`, and of reading the plan.
pub(crate) fn rollback(
    engine: &Engine,
    indices: &[usize],
    results: Option<&Results>,
    later: &Later,
    push: Push<'_>,
) -> Result<Rollback, ApplyError> {
    let own = engine.work.repository.as_ref();
    let own = own.map(|own| Own::of(engine, own)).transpose()?;
    let mut looking = Looking {
        engine,
        later,
        walker: Walker::new(Bounds::default()),
        back: Rollback::default(),
        steps: Vec::new(),
    };
    for index in indices.iter().rev() {
        let step = &engine.steps.get(*index)?;
        let left = own.as_ref().map_or(Left::No, |own| left(step, engine, own));
        if left == Left::Yes {
            continue;
        }
        let planned = results.and_then(|results| results.steps.get(*index));
        if let (Left::Told(why), Some(_)) = (left, planned) {
            looking.back.conflict(step.path.clone(), why);
        }
        match looking.undo_one(step, planned.map(AsRef::as_ref)) {
            Err(error) if results.is_none() => return Err(error),
            // Without force this is a conflict; with it nothing is undone there, and that is told.
            Err(error) => {
                let (path, why) = (step.path.clone(), error.to_string());
                looking.back.conflict(path.clone(), CHANGED);
                looking.back.skipped.push(Conflict { path, why });
            }
            Ok(()) => {}
        }
        looking.steps.drain(..).try_for_each(&mut *push)?;
    }
    let mut back = looking.back;
    let by_path = |left: &Conflict, right: &Conflict| left.path.cmp(&right.path);
    back.conflicts.sort_by(by_path);
    back.in_the_way.sort_by(by_path);
    back.aside.sort_by(by_path);
    back.skipped.sort_by(by_path);
    Ok(back)
}

struct Looking<'a> {
    engine: &'a Engine,
    later: &'a Later,
    walker: Walker,
    back: Rollback,
    /// The steps that revert the one looked at.
    steps: Vec<Step>,
}

impl Looking<'_> {
    fn undo_one(
        &mut self,
        step: &Step,
        planned: Option<&[(RelativePath, Stamp)]>,
    ) -> Result<(), ApplyError> {
        let path = &step.path;
        match &step.act {
            Act::Replace { old, new } => self.undo_replaced(step, old, new, planned),
            Act::Facts { old, new } => {
                let now = self.one(path)?;
                if !now.is_of_the_kind_of(old) {
                    let error = TreeError::new("cannot change", path, replaced_meanwhile());
                    return Err(error.into());
                }
                if planned.is_some_and(|planned| !are_facts_unchanged(&now, new, planned)) {
                    self.back.conflict_aside(path.clone(), CHANGED);
                }
                let (old, new) = (Box::new(now), old.clone());
                self.push(path, Act::Facts { old, new });
                Ok(())
            }
            Act::Rename { from, .. } => {
                let gone = || {
                    let source = io::Error::from(io::ErrorKind::NotFound);
                    only_tree(TreeError::new("cannot move", path, source).into())
                };
                let directory = self.one(path)?.stamp.ok_or_else(gone)?;
                let is_itself = |(_, stamp): &(_, Stamp)| stamp.same_entry(&directory);
                if planned.is_some_and(|planned| !planned.first().is_some_and(is_itself)) {
                    self.back.conflict(path.clone(), CHANGED);
                }
                let at = path.clone();
                let act = Act::Rename {
                    directory,
                    from: at,
                };
                self.push(from, act);
                Ok(())
            }
        }
    }

    fn one(&mut self, path: &RelativePath) -> Result<Entry, ApplyError> {
        let now = self.walker.one(&self.engine.tree, path, Content::Untouched);
        let there = now.as_ref().ok().cloned().into_iter().collect();
        match self.later.at(path, there).into_iter().next() {
            Some(then) => Ok(then),
            None => Ok(now?),
        }
    }

    fn push(&mut self, path: &RelativePath, act: Act) {
        let path = path.clone();
        self.steps.push(Step { path, act });
    }

    fn undo_replaced(
        &mut self,
        step: &Step,
        old: &[Entry],
        new: &[Entry],
        planned: Option<&[(RelativePath, Stamp)]>,
    ) -> Result<(), ApplyError> {
        let path = &step.path;
        let now = self.engine.present(&mut self.walker, path)?;
        let now = self.later.at(path, now);
        let both = old.iter().chain(new).map(|entry| &entry.beneath);
        let known: HashSet<&RelativePath> = both.collect();
        if let Some(planned) = planned {
            let mut special = now.iter().filter(|entry| entry.node == Node::Special);
            if let Some(special) = special.find(|entry| known.contains(&entry.beneath)) {
                let (path, why) = (path.concat(&special.beneath), SPECIAL.to_owned());
                self.back.in_the_way.push(Conflict { path, why });
                return Ok(());
            }
            self.compare(step, old, new, &now, planned);
        }
        match part(path, now, old.to_vec(), &known) {
            Ok(parted) => {
                self.steps.extend(parted.steps);
                if let Some(stays) = parted.stays {
                    self.tell_repositories(path, new, &stays, planned.is_some());
                    self.back.stays.push(stays);
                }
            }
            Err(path) => {
                let why = IN_THE_WAY.to_owned();
                self.back.in_the_way.push(Conflict { path, why });
            }
        }
        Ok(())
    }

    /// Records those of a step's own entries that are not as the step has left them. Entries that
    /// others have put beside them do not matter: they stay.
    fn compare(
        &mut self,
        step: &Step,
        old: &[Entry],
        new: &[Entry],
        now: &[Entry],
        planned: &[(RelativePath, Stamp)],
    ) {
        let before: HashSet<&RelativePath> = old.iter().map(|entry| &entry.beneath).collect();
        let written: HashMap<&RelativePath, &Entry> =
            new.iter().map(|entry| (&entry.beneath, entry)).collect();
        let then: HashMap<&RelativePath, &Stamp> = planned
            .iter()
            .map(|(beneath, stamp)| (beneath, stamp))
            .collect();
        let mut there = HashSet::new();
        for entry in now {
            let at = &entry.beneath;
            there.insert(at);
            let why = match (written.get(at), then.get(at)) {
                (Some(written), Some(then))
                    if is_entry_unchanged(self.engine, step, entry, written, then) =>
                {
                    continue;
                }
                (Some(_), _) => CHANGED,
                (None, _) if before.contains(at) => AGAIN,
                (None, _) => continue,
            };
            self.back.conflict_aside(step.path.concat(at), why);
        }
        // What is gone of what there was nothing before is as it would be.
        let gone = new.iter().map(|entry| &entry.beneath);
        for at in gone.filter(|at| before.contains(at) && !there.contains(at)) {
            self.back.conflict(step.path.concat(at), GONE);
        }
    }

    /// Records a conflict for each repository that the step has made and others have added to:
    /// their additions are nothing without what the step made.
    fn tell_repositories(
        &mut self,
        path: &RelativePath,
        new: &[Entry],
        stays: &RetainedDirectory,
        is_undo: bool,
    ) {
        for head in new.iter().filter(|entry| is_head(entry.beneath.name())) {
            let directory = path.concat(&head.beneath.parent().unwrap_or_default());
            let mut holds = stays.holds.iter();
            if is_undo && holds.any(|held| held.starts_with(&directory)) {
                self.back.conflict(directory, REPOSITORY);
            }
        }
    }
}

/// Returns a step that reverts another, for a journal within the one that keeps the originals.
pub(crate) fn outside(mut step: Step) -> Step {
    if let Act::Replace { new, .. } = &mut step.act {
        *new = mem::take(new)
            .into_iter()
            .filter_map(from_outside)
            .collect();
    }
    step
}

/// Returns an original, for a journal within the one that keeps it.
fn from_outside(mut entry: Entry) -> Option<Entry> {
    entry.stamp = None;
    match &mut entry.node {
        Node::File { content, .. } => {
            if let Content::Kept { number, .. } = content {
                *content = Content::Outer { number: *number };
            }
        }
        Node::Directory | Node::Symlink { .. } => {}
        Node::Special => return None,
    }
    Some(entry)
}
