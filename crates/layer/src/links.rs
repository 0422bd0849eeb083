//! Further names of changed files. With overlayfs' index, a change through one name
//! of a file shows under its other names too, though the upper directory names only
//! the one that was used.

use std::collections::HashMap;

use crate::change::Source;
use crate::facts::{Facts, Kind, Xattrs, xattrs};
use crate::read::{Reader, Shape, list_with_kinds, xattrs_at};
use crate::{Change, ChangeKind, Class, ReadError, RelativePath};

/// Changed files that have further names before, by device and inode.
pub(crate) type Shared = HashMap<(u64, u64), RelativePath>;

impl Reader {
    /// Remembers a changed file that may be reachable by further names.
    pub fn remember_names(
        &mut self,
        path: &RelativePath,
        kind: &ChangeKind,
        before: Option<&Facts>,
        notes: &Xattrs,
    ) {
        if notes.overlay("nlink").is_none() {
            return;
        }
        match (kind, before) {
            (ChangeKind::Modified, Some(facts)) if facts.links > 1 => {
                self.shared
                    .insert((facts.device, facts.inode), path.clone());
            }
            // Permissions belong to the file, whatever it is called.
            (ChangeKind::Mode | ChangeKind::Modified, _) => {}
            _ => self.note(
                path,
                "it is a further name of a file; other names keep their content",
            ),
        }
    }

    /// Adds a change for each further name that shows through.
    pub fn add_further_names(&mut self) -> Result<(), ReadError> {
        let shared = std::mem::take(&mut self.shared);
        let mut directories = match shared.is_empty() {
            true => Vec::new(),
            false => vec![RelativePath::root()],
        };
        while let Some(directory) = directories.pop() {
            let Ok(entries) = list_with_kinds(&self.before, &directory) else {
                continue;
            };
            self.look(entries.len() as u64)?;
            for (path, kind) in entries {
                match kind {
                    Kind::Directory if self.shows_through(&path) => directories.push(path),
                    Kind::File => self.add_further_name(&shared, path),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn add_further_name(&mut self, shared: &Shared, path: RelativePath) {
        let Ok(Some(facts)) = self.before.facts(&path) else {
            return;
        };
        let Some(changed) = shared.get(&(facts.device, facts.inode)) else {
            return;
        };
        if !matches!(self.after.facts(&path), Ok(None)) {
            return;
        }
        let Ok(Some(new)) = self.after.facts(changed) else {
            return;
        };
        self.set.changes.push(Change {
            kind: ChangeKind::Modified,
            class: Class::Ordinary,
            reason: None,
            before: self.describe(&self.before, &path, &facts),
            after: self.describe(&self.after, changed, &new),
            within: 0,
            source: Source::AfterAt(changed.clone()),
            is_older: false,
            path,
        });
    }

    /// Whether a file with further names came away from them: without an index overlayfs
    /// copies it for the one name that was used, and in place its permissions would change
    /// under all of them.
    pub fn is_parted(&self, change: &Change, before: &Facts) -> bool {
        let (Shape::Overlay(flavour), Kind::File, 2..) = (self.shape, before.kind, before.links)
        else {
            return false;
        };
        let at = match &change.source {
            Source::After => &change.path,
            Source::AfterAt(at) => at,
            Source::Before(_) => return false,
        };
        let bytes_max = self.bounds.xattr_bytes_max;
        let notes = xattrs_at(&self.after, at, Kind::File, Some(flavour), bytes_max);
        notes.is_ok_and(|notes| notes.overlay("nlink").is_none())
    }

    /// Whether a directory before is merged in its own place.
    fn shows_through(&self, path: &RelativePath) -> bool {
        let Shape::Overlay(flavour) = self.shape else {
            return false;
        };
        match self.after.facts(path) {
            Ok(None) => true,
            Ok(Some(facts)) if facts.kind == Kind::Directory => {
                let notes = self.after.directory(path).and_then(|directory| {
                    xattrs(directory, Some(flavour), self.bounds.xattr_bytes_max)
                });
                notes.is_ok_and(|notes| {
                    notes.overlay("opaque").is_none() && notes.overlay("redirect").is_none()
                })
            }
            Ok(Some(_)) | Err(_) => false,
        }
    }
}
