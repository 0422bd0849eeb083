//! Resolves a selection into changes, and groups those that belong to one step.

use std::collections::BTreeMap;

use crate::facts::Kind;
use crate::planning::{Planner, makes_directory};
use crate::{Change, ChangeKind, ChangeSet, Class, PlanError, Refusal, RelativePath, TreeError};

impl<'a> Planner<'a> {
    /// Returns the selected changes, with the directories that they need.
    pub fn choose(&mut self, changes: &'a ChangeSet) -> BTreeMap<&'a RelativePath, &'a Change> {
        let mut wanted = BTreeMap::new();
        for change in &changes.changes {
            if !self.selection.is_named(change) {
                continue;
            }
            if !self.is_of_selected_class(change) {
                self.apart.push(change);
                continue;
            }
            // It was refused after it was seen: what is in it is not known.
            if self.refused.contains(&change.path) {
                self.plan.left_out.insert(change.path.clone());
                continue;
            }
            let above: Vec<RelativePath> = change.path.ancestors().collect();
            if above.iter().any(|path| self.refused.contains(path)) {
                self.refuse(&change.path, "a directory above it is refused");
                continue;
            }
            let needed: Vec<&Change> = above
                .iter()
                .filter_map(|path| self.made.get(path).copied())
                .collect();
            let held = needed
                .iter()
                .any(|needed| needed.class == Class::Control && !self.selection.control);
            if held {
                self.plan.held_control.push(change.path.clone());
                self.apart.push(change);
                continue;
            }
            wanted.extend(needed.into_iter().map(|needed| (&needed.path, needed)));
            wanted.insert(&change.path, change);
        }
        wanted
    }

    pub fn is_of_selected_class(&mut self, change: &Change) -> bool {
        match change.class {
            Class::Ordinary => true,
            Class::Cache => self.selection.caches || self.is_of_named_bulk(change),
            Class::Ignored => self.selection.ignored || self.is_of_named_bulk(change),
            Class::Control => {
                if !self.selection.control {
                    self.plan.held_control.push(change.path.clone());
                }
                self.selection.control
            }
        }
    }

    fn is_of_named_bulk(&self, change: &Change) -> bool {
        let mut named = self.named_bulk.iter();
        named.any(|path| change.path.starts_with(path))
    }

    /// Groups the entries of new directories under the topmost of these: it is built as a whole and
    /// appears at once.
    pub fn group(
        &self,
        wanted: &BTreeMap<&'a RelativePath, &'a Change>,
    ) -> BTreeMap<RelativePath, Vec<&'a Change>> {
        let is_new = |path: &RelativePath| {
            wanted.get(path).is_some_and(|change| {
                makes_directory(change)
                    && !(change.kind == ChangeKind::Added && self.is_host_directory(path))
            })
        };
        let mut tops: BTreeMap<RelativePath, Vec<&Change>> = BTreeMap::new();
        for (path, change) in wanted {
            let top = path.ancestors().filter(is_new).last();
            tops.entry(top.unwrap_or_else(|| (*path).clone()))
                .or_default()
                .push(change);
        }
        tops
    }

    fn is_host_directory(&self, path: &RelativePath) -> bool {
        let facts = self.reader.before.facts(path).ok().flatten();
        facts.is_some_and(|facts| facts.kind == Kind::Directory)
    }

    /// Refuses to plan on what may be read only by half: an error at an entry that is not itself left
    /// out has made something look as if it were not there.
    pub fn refuse_faults(&self, changes: &ChangeSet) -> Result<(), PlanError> {
        let (before, after) = (self.reader.before.faults(), self.reader.after.faults());
        let mut faults = changes.faults.iter().chain(&before).chain(&after);
        // Others are named for a part of them, and applied.
        let is_whole = |refusal: &&Refusal| {
            self.plan.left_out.contains(&refusal.path) || changes.refused.contains(refusal)
        };
        let is_left_out = |path: &RelativePath| {
            let mut refused = self.plan.refused.iter().filter(is_whole);
            refused.any(|refusal| path.starts_with(&refusal.path))
        };
        match faults.find(|(path, _)| !is_left_out(path)) {
            None => Ok(()),
            Some((path, errno)) => Err(TreeError::new("cannot read", path, *errno).into()),
        }
    }
}
