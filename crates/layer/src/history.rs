//! Which changes in an agent's directory are no more than history, by the same measure as what
//! stays in a kept layer.

use std::collections::BTreeSet;

use crate::below::{Below, is_head};
use crate::{Change, ChangeKind, ChangeSet, Class, EntryKind, LayerPaths, RelativePath, control};

impl ChangeSet {
    /// Takes for control files what is one by the directory's own place in the home, as all of
    /// `.codex` is, but for the history that agents keep there. What cannot be looked at is none.
    pub fn classify_within(&mut self, directory: &RelativePath, paths: &LayerPaths) {
        let mut measure = Below::open(&paths.before).ok().map(|below| Measure {
            below,
            repositories: self.changes.iter().filter_map(repository).collect(),
        });
        for change in &mut self.changes {
            let is_history = |measure: &mut Measure| measure.is_history(change);
            if change.class == Class::Control || measure.as_mut().is_some_and(is_history) {
                continue;
            }
            let facts = change.after.as_ref().or(change.before.as_ref());
            let kind = facts.map(|facts| &facts.kind);
            let path = directory.concat(&change.path);
            let is_directory = kind == Some(&EntryKind::Directory);
            let is_link = matches!(kind, Some(EntryKind::Symlink { .. }));
            if let Some(reason) = control::reason(&path, is_directory, is_link) {
                change.class = Class::Control;
                change.reason = Some(reason);
            }
        }
    }
}

/// The directory that a change makes a git repository, or less than one.
fn repository(change: &Change) -> Option<RelativePath> {
    is_head(change.path.name()).then(|| change.path.parent().unwrap_or_default())
}

struct Measure {
    below: Below,
    /// Directories whose HEAD is among the changes.
    repositories: BTreeSet<RelativePath>,
}

impl Measure {
    fn is_history(&mut self, change: &Change) -> bool {
        if !control::is_mere_history(&change.path) {
            return false;
        }
        let facts = change.after.as_ref().or(change.before.as_ref());
        let is_plain = match facts.map(|facts| &facts.kind) {
            Some(EntryKind::File | EntryKind::Directory) => true,
            Some(EntryKind::Symlink { .. } | EntryKind::Special) | None => false,
        };
        // A directory that moved brings along what nobody has looked at.
        let is_moved = matches!(change.kind, ChangeKind::Renamed { .. });
        let mut around = change.path.ancestors();
        let in_repository = around
            .any(|above| self.repositories.contains(&above) || self.below.is_repository(&above));
        is_plain && !is_moved && !in_repository
    }
}
