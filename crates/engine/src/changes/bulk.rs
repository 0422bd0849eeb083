//! Changes in caches and in files that git ignores: many, made by tools, and applied only by request.

use atoll_layer::{Change, Class, EntryKind, RelativePath, Selection};
use atoll_store::LayerKind;

use super::LayerChanges;

/// Directories in which package managers write their logs.
const LOG_DIRECTORIES: [&[u8]; 2] = [b"_logs", b"logs"];
/// Files in caches that tools write at every call, whatever they do.
const NOTES: [&[u8]; 4] = [
    b"_update-notifier-last-checked",
    b".package-cache",
    b".package-cache-mutate",
    b".global-cache",
];

/// The numbers of changes that an apply leaves, since nobody asked for their class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Those in caches.
    pub caches: u64,
    /// Those in files that git ignores.
    pub ignored: u64,
}

impl LeftOut {
    /// Counts what a selection leaves.
    #[must_use]
    pub fn of(all: &[LayerChanges], selection: &Selection) -> Self {
        let mut left = Self::default();
        for one in all {
            let named = selection.named_bulk(&one.set);
            for change in one.set.changes.iter().filter(|one| selection.is_named(one)) {
                if named.iter().any(|path| change.path.starts_with(path)) {
                    continue;
                }
                let count = 1 + change.within;
                match class_of(one, change) {
                    Class::Cache if !selection.caches => left.caches += count,
                    Class::Ignored if !selection.ignored => left.ignored += count,
                    Class::Ordinary | Class::Control | Class::Cache | Class::Ignored => {}
                }
            }
        }
        left
    }

    /// Returns whether it leaves nothing of these classes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Returns a change's class; in a layer of a cache everything is one.
fn class_of(one: &LayerChanges, change: &Change) -> Class {
    match (one.layer.kind, change.class) {
        (LayerKind::Cache, _) => Class::Cache,
        (LayerKind::Workspace | LayerKind::Home | LayerKind::Repository, class) => class,
    }
}

/// Returns whether tools' own logs in caches are all that changed: nobody decides about these.
#[must_use]
pub fn are_logs_alone(all: &[LayerChanges]) -> bool {
    let mut some = false;
    for one in all {
        for change in &one.set.changes {
            let is_directory =
                (change.after.as_ref()).is_some_and(|facts| facts.kind == EntryKind::Directory);
            let is_bulk = matches!(class_of(one, change), Class::Cache | Class::Ignored);
            if !is_bulk || !(is_directory || is_log(&change.path)) {
                return false;
            }
            some |= !is_directory;
        }
    }
    some
}

fn is_log(path: &RelativePath) -> bool {
    let name = path.name();
    let in_logs = |above: RelativePath| LOG_DIRECTORIES.contains(&above.name());
    name.ends_with(b".log") || NOTES.contains(&name) || path.ancestors().any(in_logs)
}
