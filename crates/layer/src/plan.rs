use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use crate::facts::{Facts, Kind, Stamp, Time};
use crate::path::Bytes;
use crate::{Change, ChangeSet, Class, Refusal, RelativePath};

/// A selection of changes to apply.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// These paths and what lies beneath them; empty means all.
    pub paths: Vec<RelativePath>,
    /// Also control files.
    pub control: bool,
    /// Also caches.
    pub caches: bool,
    /// Also ignored files.
    pub ignored: bool,
    /// Overwrite what changed on the host meanwhile. It is kept in the journal.
    pub force: bool,
}

impl Selection {
    /// Returns whether a change is in reach of the paths: named by one of them, or beneath it.
    #[must_use]
    pub fn is_named(&self, change: &Change) -> bool {
        let mut paths = self.paths.iter();
        self.paths.is_empty() || paths.any(|path| change.path.starts_with(path))
    }

    /// Returns the named paths at which only caches and ignored files changed: whoever names one
    /// means these.
    #[must_use]
    pub fn named_bulk(&self, changes: &ChangeSet) -> Vec<RelativePath> {
        let is_bulk = |path: &&RelativePath| {
            let within = changes.changes.iter();
            let within = within.filter(|change| change.path.starts_with(path));
            let (mut bulk, mut ordinary) = (false, false);
            for change in within {
                bulk |= matches!(change.class, Class::Cache | Class::Ignored);
                ordinary |= change.class == Class::Ordinary;
            }
            bulk && !ordinary && !path.is_root()
        };
        self.paths.iter().filter(is_bulk).cloned().collect()
    }

    /// Returns the entries that may be of selected changes, though they are not known as such.
    pub(crate) fn of_unread(
        &self,
        unread: &BTreeMap<RelativePath, Class>,
        named_bulk: &[RelativePath],
    ) -> BTreeSet<RelativePath> {
        let is_meant = |path: &RelativePath, class: Class| {
            let is_bulk = || named_bulk.iter().any(|named| path.starts_with(named));
            let mut paths = self.paths.iter();
            let is_named = paths.any(|named| path.starts_with(named) || named.starts_with(path));
            (self.paths.is_empty() || is_named)
                && match class {
                    Class::Ordinary | Class::Control => true,
                    Class::Cache => self.caches || is_bulk(),
                    Class::Ignored => self.ignored || is_bulk(),
                }
        };
        let meant = unread
            .iter()
            .filter(|(path, class)| is_meant(path, **class));
        meant.map(|(path, _)| path.clone()).collect()
    }
}

/// A plan for changing the host directory, fully spelled out.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The steps, which never overlap.
    pub steps: Vec<Step>,
    /// Entries that changed on the host meanwhile: [`crate::apply`] refuses a plan that has any.
    pub conflicts: Vec<Conflict>,
    /// Control files that were selected by path but not by `control`.
    pub held_control: Vec<RelativePath>,
    /// Entries that will not be applied, each with the reason.
    pub refused: Vec<Refusal>,
    /// The selected ones among these that have content: without them the plan is one in part.
    pub left_out: BTreeSet<RelativePath>,
    /// Entries that stay because something is not applied: its content may be theirs, moved.
    pub unremoved: Vec<RelativePath>,
    pub(crate) root: PathBuf,
    pub(crate) root_identity: (u64, u64),
    pub(crate) content: PathBuf,
    pub(crate) work: Option<PathBuf>,
    pub(crate) put_back: Option<PathBuf>,
    pub(crate) repository: Option<RelativePath>,
}

/// An entry that cannot be written because of what is on the host now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Its path.
    pub path: RelativePath,
    /// The reason, for a person.
    pub why: String,
}

/// One change to the host directory, atomic in itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    pub(crate) path: RelativePath,
    pub(crate) act: Act,
}

/// The effect of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Act {
    /// Puts `new` in the place of `old`; either can be empty. The first entry is
    /// the path itself, the others lie beneath it, parents first.
    Replace {
        #[serde(deserialize_with = "exact")]
        old: Vec<Entry>,
        #[serde(deserialize_with = "exact")]
        new: Vec<Entry>,
    },
    /// Changes permissions, owner and extended attributes in place.
    Facts { old: Box<Entry>, new: Box<Entry> },
    /// Moves a directory as it is.
    Rename {
        from: RelativePath,
        directory: Stamp,
    },
}

/// Reads entries into no more memory than they need: most steps have one, and there are many.
fn exact<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Entry>, D::Error> {
    let mut entries = Vec::deserialize(from)?;
    entries.shrink_to_fit();
    Ok(entries)
}

/// One file, directory or symbolic link, complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Its path, beneath the step's.
    pub beneath: RelativePath,
    pub node: Node,
    pub mode: u32,
    /// The mode instead, where the entry on the host has an access control list: then
    /// the group's bits are the list's mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed_mode: Option<u32>,
    pub uid: u32,
    pub gid: u32,
    pub modified: Time,
    pub xattrs: Vec<(Bytes, Bytes)>,
    /// Entries with the same number are hard links of each other.
    pub link: Option<u64>,
    /// For entries on the host: the state that they must still be in.
    pub stamp: Option<Stamp>,
}

/// An entry's type, with the place of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Node {
    File {
        content: Content,
        bytes: u64,
    },
    Directory,
    Symlink {
        target: Bytes,
    },
    /// A socket, FIFO or device of the host's, which cannot be kept.
    Special,
}

/// The place of a file's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Content {
    /// In the layer (or checkpoint), at this path.
    Layer(RelativePath),
    /// In the work directory of the layer, at this path.
    Indexed(RelativePath),
    /// In the journal, copied there from this path of the host.
    Kept { number: u64, from: RelativePath },
    /// In the enclosing journal (while undoing).
    Outer { number: u64 },
    /// Nowhere: the step does not touch it.
    Untouched,
}

/// The effect of a step, for summaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// A new entry appears, with those beneath it.
    Create {
        /// The number of entries, the path itself included.
        entries: usize,
    },
    /// An entry replaces another.
    Replace,
    /// An entry is removed, with those beneath it.
    Remove {
        /// The number of entries, the path itself included.
        entries: usize,
    },
    /// Permissions, owner or extended attributes change.
    Facts,
    /// A directory moves.
    Rename,
}

impl Node {
    /// Returns whether an entry of this kind has this type.
    pub(crate) fn is(&self, kind: Kind) -> bool {
        match self {
            Self::File { .. } => kind == Kind::File,
            Self::Directory => kind == Kind::Directory,
            Self::Symlink { .. } => kind == Kind::Symlink,
            Self::Special => !matches!(kind, Kind::File | Kind::Directory | Kind::Symlink),
        }
    }
}

impl Plan {
    /// Returns whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Drops the steps that remove something, for when anything is left out of another directory: the
    /// program may have moved there what it removed here.
    pub fn keep_what_is_removed(&mut self) {
        let removing = self.steps.extract_if(.., |step| step.removes());
        self.unremoved.extend(removing.map(|step| step.path));
    }

    /// Returns whether something selected is left out, or stays for what is not applied.
    #[must_use]
    pub fn leaves_out(&self) -> bool {
        !(self.left_out.is_empty() && self.unremoved.is_empty())
    }

    /// Returns the plan without its conflicts: a decision for a person.
    #[must_use]
    pub fn without_conflicts(mut self) -> Self {
        self.conflicts.clear();
        self
    }

    /// Returns the bytes of file content that the plan writes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.steps
            .iter()
            .flat_map(Step::new_entries)
            .map(Entry::bytes)
            .sum()
    }
}

impl Step {
    /// Returns the step's path.
    #[must_use]
    pub fn path(&self) -> &RelativePath {
        &self.path
    }

    /// Returns whether the step changes the permissions of a file that has several names.
    pub(crate) fn is_of_shared_facts(&self) -> bool {
        let Act::Facts { old, .. } = &self.act else {
            return false;
        };
        let is_shared = |stamp: &Stamp| stamp.links > 1 && !stamp.is_directory();
        old.stamp.as_ref().is_some_and(is_shared)
    }

    /// Returns the step's effect.
    #[must_use]
    pub fn action(&self) -> StepAction {
        match &self.act {
            Act::Replace { old, new } if old.is_empty() => {
                StepAction::Create { entries: new.len() }
            }
            Act::Replace { old, new } if new.is_empty() => {
                StepAction::Remove { entries: old.len() }
            }
            Act::Replace { .. } => StepAction::Replace,
            Act::Facts { .. } => StepAction::Facts,
            Act::Rename { .. } => StepAction::Rename,
        }
    }

    /// Returns whether something is gone after the step that nothing takes the place of.
    pub(crate) fn removes(&self) -> bool {
        let new: HashSet<_> = (self.new_entries().iter())
            .map(|entry| &entry.beneath)
            .collect();
        let mut old = self.old_entries().iter();
        old.any(|entry| !new.contains(&entry.beneath))
    }

    pub(crate) fn old_entries(&self) -> &[Entry] {
        match &self.act {
            Act::Replace { old, .. } => old,
            Act::Facts { .. } | Act::Rename { .. } => &[],
        }
    }

    /// Returns the number and the stamp of an original that can be kept as it is, by its move into
    /// the journal: a file with no other name by which anybody could write to it.
    pub(crate) fn movable(&self) -> Option<(u64, &Stamp)> {
        let [entry] = self.old_entries() else {
            return None;
        };
        let Node::File {
            content: Content::Kept { number, .. },
            ..
        } = &entry.node
        else {
            return None;
        };
        let alone = entry.stamp.as_ref().filter(|stamp| stamp.links == 1);
        alone.map(|stamp| (*number, stamp))
    }

    /// Returns the entries that the step is planned to find.
    pub(crate) fn found_entries(&self) -> &[Entry] {
        match &self.act {
            Act::Replace { old, .. } => old,
            Act::Facts { old, .. } => std::slice::from_ref(old),
            Act::Rename { .. } => &[],
        }
    }

    pub(crate) fn new_entries(&self) -> &[Entry] {
        match &self.act {
            Act::Replace { new, .. } => new,
            Act::Facts { .. } | Act::Rename { .. } => &[],
        }
    }
}

impl Entry {
    /// Returns whether it describes this inode.
    pub(crate) fn is_of(&self, facts: &Facts) -> bool {
        self.stamp
            .is_some_and(|stamp| stamp.same_entry(&facts.stamp()))
    }

    /// Returns whether both are of one type, so that the metadata of one may be given to the other.
    pub(crate) fn is_of_the_kind_of(&self, other: &Self) -> bool {
        std::mem::discriminant(&self.node) == std::mem::discriminant(&other.node)
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self.node {
            Node::File { bytes, .. } => bytes,
            Node::Directory | Node::Symlink { .. } | Node::Special => 0,
        }
    }
}
