//! Content that a program may have moved to what is not applied: then the original is all that is
//! left of it once the layer is gone.

use std::collections::{BTreeSet, HashMap, HashSet};

use sha2::{Digest, Sha256};

use crate::digest::held;
use crate::facts::Kind;
use crate::plan::{Entry, Node};
use crate::planning::Planner;
use crate::tree::Tree;
use crate::{Change, EntryKind, RelativePath, Step};

type Hash = [u8; 32];

/// The sizes of what is left out, where it cannot be read.
struct LeftOut {
    is_any: bool,
    /// Something may hold content of any size: a directory does.
    may_be_anything: bool,
    sizes: BTreeSet<u64>,
}

impl Planner<'_> {
    /// Drops the steps after which content may be nowhere: those that remove something while anything
    /// is left out, or replace a file while one of its size is, and those that remove a file whose
    /// content a change of another class has, which is not applied.
    pub fn keep_what_may_have_moved(&mut self) {
        let left_out = self.left_out();
        let apart = self.contents_apart();
        let steps = std::mem::take(&mut self.plan.steps);
        let (staying, rest): (Vec<Step>, _) = steps.into_iter().partition(|step| {
            left_out.may_hold(step) || lost(step).any(|entry| self.is_apart(step, entry, &apart))
        });
        self.plan.steps = rest;
        self.plan
            .unremoved
            .extend(staying.into_iter().map(|step| step.path));
    }

    fn left_out(&self) -> LeftOut {
        let mut all = LeftOut {
            is_any: !self.plan.left_out.is_empty(),
            may_be_anything: false,
            sizes: BTreeSet::new(),
        };
        for path in &self.plan.left_out {
            match self.reader.after.facts(path) {
                Ok(Some(facts)) if facts.kind == Kind::File => {
                    all.sizes.insert(facts.bytes);
                }
                Ok(Some(facts)) if facts.kind == Kind::Symlink => {}
                _ => all.may_be_anything = true,
            }
        }
        all
    }

    /// Returns the contents of new files that are held back or not selected for their class, where
    /// something of that size goes: each is read once.
    fn contents_apart(&self) -> HashMap<u64, HashSet<Hash>> {
        let going: HashSet<u64> = (self.plan.steps.iter())
            .flat_map(lost)
            .map(Entry::bytes)
            .collect();
        let mut contents = HashMap::<u64, HashSet<Hash>>::new();
        for change in &self.apart {
            let Some(bytes) = file_bytes(change).filter(|bytes| going.contains(bytes)) else {
                continue;
            };
            let read = |(tree, at): (&Tree, &RelativePath)| hash(tree, at);
            let place = self.reader.place_of(&change.path, &change.source);
            if let Some(hash) = place.ok().and_then(read) {
                contents.entry(bytes).or_default().insert(hash);
            }
        }
        contents
    }

    fn is_apart(&self, step: &Step, entry: &Entry, apart: &HashMap<u64, HashSet<Hash>>) -> bool {
        let Some(contents) = apart.get(&entry.bytes()) else {
            return false;
        };
        let at = step.path.concat(&entry.beneath);
        hash(&self.reader.before, &at).is_some_and(|hash| contents.contains(&hash))
    }
}

impl LeftOut {
    fn may_hold(&self, step: &Step) -> bool {
        let is_of_size = |entry: &Entry| {
            let bytes = entry.bytes();
            bytes > 0 && (self.may_be_anything || self.sizes.contains(&bytes))
        };
        self.is_any && (step.removes() || step.old_entries().iter().any(is_of_size))
    }
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
