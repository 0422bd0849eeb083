//! The changes in an agent's directory that are no more than history, by the same measure as the
//! entries that stay in a kept layer.

use std::collections::BTreeSet;

use crate::below::{Below, is_head};
use crate::pending_review::{EXECUTABLE, OWNER_RIGHTS};
use crate::{Change, ChangeKind, ChangeSet, Class, EntryKind, LayerPaths, RelativePath, control};

impl ChangeSet {
    /// Classifies as control files those changes that are it by the directory's own place in the
    /// home, as all of `.codex` is, except for the history that agents keep there. Entries that
    /// cannot be read are not history.
    pub fn classify_within(&mut self, directory: &RelativePath, paths: &LayerPaths) {
        let mut measure = Below::open(&paths.before).ok().map(|below| Measure {
            below,
            repositories: self.changes.iter().filter_map(repository).collect(),
            closed: self
                .changes
                .iter()
                .filter(|change| !is_plain(change))
                .map(|change| change.path.clone())
                .collect(),
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

/// Returns the directory that a change makes a git repository, or stops being one.
fn repository(change: &Change) -> Option<RelativePath> {
    is_head(change.path.name()).then(|| change.path.parent().unwrap_or_default())
}

struct Measure {
    below: Below,
    /// Directories whose HEAD is among the changes.
    repositories: BTreeSet<RelativePath>,
    /// Paths that are no plain file or directory afterwards, so that nothing beneath them is
    /// history.
    closed: BTreeSet<RelativePath>,
}

/// Returns whether a change leaves nothing that could be run, or that could not be read. Removed
/// entries are judged by what they hid.
fn is_plain(change: &Change) -> bool {
    match change.after.as_ref() {
        Some(facts) => match facts.kind {
            EntryKind::File => facts.mode & EXECUTABLE == 0,
            EntryKind::Directory => facts.mode & OWNER_RIGHTS == OWNER_RIGHTS,
            EntryKind::Symlink { .. } | EntryKind::Special => false,
        },
        None => true,
    }
}

impl Measure {
    fn is_history(&mut self, change: &Change) -> bool {
        if !control::is_mere_history(&change.path) {
            return false;
        }
        // A directory that moved brings along what nobody has looked at.
        let is_moved = matches!(change.kind, ChangeKind::Renamed { .. });
        let mut around = change.path.ancestors();
        let in_repository = around
            .any(|above| self.repositories.contains(&above) || self.below.is_repository(&above));
        let is_closed = |path: &RelativePath| self.closed.contains(path);
        let in_closed =
            is_closed(&change.path) || change.path.ancestors().any(|above| is_closed(&above));
        // What is gone, or another kind of thing now, may have held memories.
        let hides = match change.kind {
            ChangeKind::Removed | ChangeKind::Type => self.below.has_control(&change.path),
            ChangeKind::Added
            | ChangeKind::Modified
            | ChangeKind::Mode
            | ChangeKind::Renamed { .. } => false,
        };
        !is_moved && !in_repository && !in_closed && !hides
    }
}
