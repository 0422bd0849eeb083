//! Content that a program may have moved to what is not applied: then the original is all that is
//! left of it once the layer is gone.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};

use crate::digest::held;
use crate::facts::Kind;
use crate::plan::{Entry, Node};
use crate::planning::Planner;
use crate::tree::Tree;
use crate::{Change, ChangeSet, EntryKind, RelativePath, Step};

type Hash = [u8; 32];

/// The contents of files that are not applied: of each size that goes, the digests.
type Contents = HashMap<u64, HashSet<Hash>>;

/// The entries that are left out.
#[derive(Default)]
struct LeftOut {
    is_any: bool,
    /// A directory in it cannot be read: it may hold content of any size.
    may_be_anything: bool,
    /// The sizes of files that cannot be read.
    sizes: HashSet<u64>,
    contents: Contents,
}

impl Planner<'_> {
    /// Drops the steps after which content may be nowhere: those that remove something while anything
    /// is left out, or replace a file whose content may be in that, and those that remove a file whose
    /// content a change of another class has, which is not applied.
    pub fn keep_what_may_have_moved(&mut self, changes: &ChangeSet) {
        let left_out = self.left_out(changes);
        let apart = self.contents_apart();
        let steps = std::mem::take(&mut self.plan.steps);
        let (staying, rest): (Vec<Step>, _) = steps.into_iter().partition(|step| {
            let mut lost = lost(step);
            self.may_hold(&left_out, step) || lost.any(|entry| self.is_in(&apart, step, entry))
        });
        self.plan.steps = rest;
        self.plan
            .unremoved
            .extend(staying.into_iter().map(|step| step.path));
    }

    fn left_out(&self, changes: &ChangeSet) -> LeftOut {
        let going = sizes(self.plan.steps.iter().flat_map(Step::old_entries));
        let mut all = LeftOut {
            is_any: !self.plan.left_out.is_empty(),
            ..LeftOut::default()
        };
        for path in &self.plan.left_out {
            let facts = self.reader.after.facts(path).ok().flatten();
            let Some(facts) = facts.filter(|facts| facts.kind == Kind::File) else {
                // What is in a directory that can be read is left out by name.
                let is_unread =
                    changes.locked.contains_key(path) || changes.faults.contains_key(path);
                all.may_be_anything |= is_unread;
                continue;
            };
            if going.contains(&facts.bytes) {
                match hash(&self.reader.after, path) {
                    Some(hash) => drop(all.contents.entry(facts.bytes).or_default().insert(hash)),
                    None => drop(all.sizes.insert(facts.bytes)),
                }
            }
        }
        all
    }

    fn may_hold(&self, left_out: &LeftOut, step: &Step) -> bool {
        let holds = |entry: &Entry| {
            let bytes = entry.bytes();
            bytes > 0
                && (left_out.may_be_anything
                    || left_out.sizes.contains(&bytes)
                    || self.is_in(&left_out.contents, step, entry))
        };
        left_out.is_any && (step.removes() || step.old_entries().iter().any(holds))
    }

    /// Returns the contents of new files that are held back or not selected for their class.
    fn contents_apart(&self) -> Contents {
        let going = sizes(self.plan.steps.iter().flat_map(lost));
        let mut contents = Contents::new();
        for change in &self.apart {
            let Some(bytes) = file_bytes(change).filter(|bytes| going.contains(bytes)) else {
                continue;
            };
            let place = self.reader.place_of(&change.path, &change.source);
            if let Some(hash) = place.ok().and_then(|(tree, at)| hash(tree, at)) {
                contents.entry(bytes).or_default().insert(hash);
            }
        }
        contents
    }

    /// Returns whether the original of an entry has one of these contents.
    fn is_in(&self, contents: &Contents, step: &Step, entry: &Entry) -> bool {
        let Some(contents) = contents.get(&entry.bytes()) else {
            return false;
        };
        let at = step.path.concat(&entry.beneath);
        hash(&self.reader.before, &at).is_some_and(|hash| contents.contains(&hash))
    }
}

fn sizes<'a>(entries: impl Iterator<Item = &'a Entry>) -> HashSet<u64> {
    entries
        .map(Entry::bytes)
        .filter(|bytes| *bytes > 0)
        .collect()
}

/// Returns the files with content that go in a step, and of which no other file takes the place.
fn lost(step: &Step) -> impl Iterator<Item = &Entry> {
    let stays: HashSet<&RelativePath> = (step.new_entries().iter())
        .filter(|entry| matches!(entry.node, Node::File { .. }))
        .map(|entry| &entry.beneath)
        .collect();
    let old = step.old_entries().iter();
    old.filter(move |entry| entry.bytes() > 0 && !stays.contains(&entry.beneath))
}

fn file_bytes(change: &Change) -> Option<u64> {
    let after = change.after.as_ref()?;
    (after.kind == EntryKind::File).then_some(after.bytes)
}

fn hash(tree: &Tree, at: &RelativePath) -> Option<Hash> {
    let (file, _) = tree.file(at).ok()?;
    let mut hash = Sha256::new();
    held(&mut hash, &file).ok()?;
    Some(hash.finalize().into())
}
