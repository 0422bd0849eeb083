//! The paths that a plan writes or removes, for people to judge.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Act, Entry, Node};
use crate::{Plan, RelativePath, Step};

/// One path that a plan writes or removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The path.
    pub path: RelativePath,
    /// The effect on it.
    pub how: Writing,
    /// The entry afterwards.
    pub thing: Thing,
    /// The permissions of the entry that is replaced or changed, the lowest twelve bits; `None`
    /// where there was none, or a link.
    pub mode_before: Option<u32>,
    /// The permissions afterwards, likewise; `None` where there is no entry then, or a link.
    pub mode: Option<u32>,
}

/// The effect of one step on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// A new entry appears.
    Made,
    /// An entry replaces another.
    Replaced,
    /// An entry is removed.
    Removed,
    /// Permissions, owner or extended attributes change.
    Facts,
    /// A directory moves with everything in it.
    Moved,
}

/// The entry at a path afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A file.
    File {
        /// Its length, bytes.
        bytes: u64,
        /// Set when somebody may execute it.
        is_executable: bool,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// The target, as the program wrote it.
        target: Vec<u8>,
    },
    /// Nothing, or an entry that is not written.
    Nothing,
}

impl Plan {
    /// Returns every path that would be written or removed, with the effect on it; the entries of a
    /// directory that moves are not listed.
    pub fn writes(&self) -> impl Iterator<Item = Write> {
        self.steps.iter().flat_map(Step::writes)
    }
}

impl Step {
    pub(crate) fn writes(&self) -> Vec<Write> {
        let write = |entry: &Entry, how, thing| Write {
            path: self.path.concat(&entry.beneath),
            how,
            thing,
            mode_before: None,
            mode: None,
        };
        match &self.act {
            Act::Replace { old, new } => {
                let before: BTreeMap<&[u8], &Entry> = old
                    .iter()
                    .map(|one| (one.beneath.as_bytes(), one))
                    .collect();
                let after: BTreeSet<&[u8]> = new.iter().map(|one| one.beneath.as_bytes()).collect();
                let gone = |one: &&Entry| !after.contains(one.beneath.as_bytes());
                let removed = old.iter().filter(gone);
                let removed = removed.map(|one| write(one, Writing::Removed, Thing::Nothing));
                let made = new.iter().map(|one| {
                    let old = before.get(one.beneath.as_bytes());
                    let how = match old {
                        Some(_) => Writing::Replaced,
                        None => Writing::Made,
                    };
                    Write {
                        mode_before: old.and_then(|old| old.shown_mode()),
                        mode: one.shown_mode(),
                        ..write(one, how, one.thing())
                    }
                });
                removed.chain(made).collect()
            }
            Act::Facts { old, new } => vec![Write {
                path: self.path.clone(),
                how: Writing::Facts,
                thing: new.thing(),
                mode_before: old.shown_mode(),
                mode: new.shown_mode(),
            }],
            Act::Rename { from, .. } => {
                let moved = |path: &RelativePath| Write {
                    path: path.clone(),
                    how: Writing::Moved,
                    thing: Thing::Directory,
                    mode_before: None,
                    mode: None,
                };
                vec![moved(from), moved(&self.path)]
            }
        }
    }
}

impl Entry {
    /// Returns what it is, for summaries.
    fn thing(&self) -> Thing {
        match &self.node {
            Node::File { bytes, .. } => Thing::File {
                bytes: *bytes,
                is_executable: self.mode & 0o111 != 0,
            },
            Node::Directory => Thing::Directory,
            Node::Symlink { target } => Thing::Link {
                target: target.0.clone(),
            },
            Node::Special => Thing::Nothing,
        }
    }

    /// Returns its permissions, where they have an effect: a link's have none.
    fn shown_mode(&self) -> Option<u32> {
        match self.node {
            Node::File { .. } | Node::Directory => {
                Some(self.listed_mode.unwrap_or(self.mode) & 0o7777)
            }
            Node::Symlink { .. } | Node::Special => None,
        }
    }
}
