//! The lower directory of a layer, as far as the meaning of the layer's entries depends on it.

use std::path::Path;

use crate::error::TreeError;
use crate::facts::{Facts, Kind};
use crate::read::list_with_kinds;
use crate::tree::{Tree, is_absence};
use crate::{Bounds, RelativePath, control};

/// A layer's lower directory.
pub(crate) struct Below {
    /// `None` when the directory is gone.
    tree: Option<Tree>,
    /// The number of entries looked at.
    looked: u64,
}

impl Below {
    /// Opens the lower directory.
    ///
    /// # Errors
    /// When it is there and cannot be opened.
    pub(crate) fn open(host: &Path) -> Result<Self, TreeError> {
        let tree = match std::fs::metadata(host) {
            Err(error) if is_absence(&error) => None,
            Ok(_) | Err(_) => Some(Tree::open(host)?),
        };
        Ok(Self { tree, looked: 0 })
    }

    /// Returns whether it has a directory at a path, or may have one.
    pub(crate) fn has_directory(&self, path: &RelativePath) -> bool {
        let facts = self.tree.as_ref().map(|tree| tree.facts(path));
        // What cannot be looked at may be one.
        facts.is_some_and(|facts| facts.map_or(true, |facts| facts.is_some_and(is_directory)))
    }

    /// Returns whether an entry at or beneath a path is not history, as memories are not. True for
    /// what cannot be read.
    pub(crate) fn has_control(&mut self, path: &RelativePath) -> bool {
        if !self.has_directory(path) {
            return false;
        }
        let Some(tree) = &self.tree else {
            return false;
        };
        let mut waiting = vec![path.clone()];
        while let Some(directory) = waiting.pop() {
            let Ok(entries) = list_with_kinds(tree, &directory) else {
                return true;
            };
            self.looked = self.looked.saturating_add(entries.len() as u64);
            if self.looked > Bounds::default().entries_max {
                return true;
            }
            for (entry, kind) in entries {
                let is_directory = kind == Kind::Directory;
                let is_control = control::reason(&entry, is_directory, false).is_some();
                if is_control || !control::is_history(&entry) {
                    return true;
                }
                if is_directory {
                    waiting.push(entry);
                }
            }
        }
        false
    }

    /// Returns whether a directory is a git repository. True for one that cannot be read.
    pub(crate) fn is_repository(&self, path: &RelativePath) -> bool {
        let Some(tree) = &self.tree else {
            return false;
        };
        let names = tree.names(path);
        names.map_or(true, |names| names.iter().any(|name| is_head(name)))
    }
}

fn is_directory(facts: Facts) -> bool {
    facts.kind == Kind::Directory
}

/// Returns whether an entry of this name makes its directory a git repository.
pub(crate) fn is_head(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"HEAD")
}
