use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use rustix::io::Errno;

use crate::RelativePath;
use crate::facts::{Kind, Stamp};

/// The reason for control files that are not control files by name.
const PENDING_REVIEW: &str = "it is no history, and was set aside from what runs see";

/// Everything that differs between the two trees, sorted by path bytes.
#[derive(Clone, Debug, Default)]
pub struct ChangeSet {
    /// Changes that can be shown and, if selected, applied.
    pub changes: Vec<Change>,
    /// Entries that will never be applied, each with the reason.
    pub refused: Vec<Refusal>,
    /// The refused ones that have content, with the class of what they are or lie in.
    pub(crate) unread: BTreeMap<RelativePath, Class>,
    /// The entries of either tree that could not be looked at, as for an error of the disk.
    pub(crate) faults: BTreeMap<RelativePath, Errno>,
    /// Entries that are among the changes and will nevertheless not be applied, each with the
    /// reason.
    pub withheld: Vec<Refusal>,
    /// Entries that are applied only in part, and other remarks.
    pub notes: Vec<Refusal>,
    /// Set when an entry's permissions kept it from being read.
    pub(crate) is_locked: bool,
    /// The state of each entry that could not be read for that, as it was then.
    pub(crate) locked: BTreeMap<RelativePath, Stamp>,
    /// For the common directory of a git repository: the worktree's own directory within it.
    pub(crate) repository: Option<RelativePath>,
    /// In live mode: entries of the tree before that are not in the checkpoint.
    pub(crate) uncopied: BTreeSet<RelativePath>,
}

impl ChangeSet {
    /// Classifies all changes as control files: they were set aside from the next run, which would
    /// run or believe them, whatever they are called.
    pub fn classify_pending_review(&mut self) {
        for change in &mut self.changes {
            change.class = Class::Control;
            change.reason = change.reason.or(Some(PENDING_REVIEW));
        }
    }

    /// Leaves out everything at these paths or beneath them: they are not for anybody to review or
    /// apply.
    pub fn leave_out(&mut self, paths: &[RelativePath]) {
        let is_left = |path: &RelativePath| paths.iter().any(|one| path.starts_with(one));
        self.changes.retain(|change| !is_left(&change.path));
        for refusals in [&mut self.refused, &mut self.withheld, &mut self.notes] {
            refusals.retain(|refusal| !is_left(&refusal.path));
        }
        self.unread.retain(|path, _| !is_left(path));
    }
}

/// One entry that differs.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its path.
    pub path: RelativePath,
    /// The way in which it differs.
    pub kind: ChangeKind,
    /// The care it needs.
    pub class: Class,
    /// For control files: the program or person that would execute or trust it.
    pub reason: Option<&'static str>,
    /// The entry before; `None` when added.
    pub before: Option<EntryFacts>,
    /// The entry after; `None` when removed.
    pub after: Option<EntryFacts>,
    /// For a removed or renamed directory: the number of entries beneath it, which are not listed
    /// on their own.
    pub within: u64,
    /// The place from which the content after is read.
    pub(crate) source: Source,
    /// For an apparent addition: set when it is older than the run, so that the program moved it
    /// here or it was removed on the host.
    pub(crate) is_older: bool,
}

/// The place from which an entry's content after is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// In the upper directory or the copy, at the change's own path.
    After,
    /// In the overlay's work directory, at this path: overlayfs' copy of a file with
    /// several names, which shows under all that are left.
    Indexed(RelativePath),
    /// In the tree before, at this path (a renamed directory shows through).
    Before(RelativePath),
}

/// The way in which an entry differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The entry is new.
    Added,
    /// Its content differs (and perhaps its mode).
    Modified,
    /// The entry is gone.
    Removed,
    /// Only its permissions, owner or extended attributes differ.
    Mode,
    /// The type differs: a file is now a directory or a symbolic link, …
    Type,
    /// A directory moved as it was, nothing in it changed.
    Renamed {
        /// The old path.
        from: RelativePath,
    },
}

/// The care that a change needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// An ordinary file.
    Ordinary,
    /// A file that others execute or trust: it needs an approval of its own.
    Control,
    /// A cache that a tool can make again.
    Cache,
    /// A file excluded by the project's own ignore files, as they were before.
    Ignored,
}

/// An entry's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryFacts {
    /// Its type.
    pub kind: EntryKind,
    /// Its permission bits, special bits included.
    pub mode: u32,
    /// Its size in bytes, as stated by the file system.
    pub bytes: u64,
    /// The time of the last write to its content.
    pub modified: SystemTime,
}

/// An entry's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// The target, as written; never followed.
        target: Vec<u8>,
    },
    /// A socket, FIFO or device: only in the tree before, or after in live mode.
    Special,
}

impl EntryKind {
    /// Returns whether it is this type, and one that can be applied and undone.
    pub(crate) fn is(&self, kind: Kind) -> bool {
        match self {
            Self::File => kind == Kind::File,
            Self::Directory => kind == Kind::Directory,
            Self::Symlink { .. } => kind == Kind::Symlink,
            Self::Special => false,
        }
    }
}

/// An entry that is not read or applied, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its path.
    pub path: RelativePath,
    /// The reason, for a person.
    pub why: String,
}

/// The numbers of entries of one class that were added, changed and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// New entries.
    pub added: u64,
    /// Modified entries, changes of mode and type, and renames.
    pub changed: u64,
    /// Removed entries, with those beneath removed directories.
    pub removed: u64,
}

impl ChangeSet {
    /// Returns the counts of one class.
    #[must_use]
    pub fn counts(&self, class: Class) -> Counts {
        self.count(|change| change.class == class)
    }

    /// Returns the counts of all classes together.
    #[must_use]
    pub fn counts_of_all(&self) -> Counts {
        self.count(|_| true)
    }

    /// Returns whether nothing differs and nothing was refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.refused.is_empty()
    }

    fn count(&self, wanted: impl Fn(&Change) -> bool) -> Counts {
        let mut counts = Counts::default();
        for change in self.changes.iter().filter(|change| wanted(change)) {
            match change.kind {
                ChangeKind::Added => counts.added += 1,
                ChangeKind::Removed => counts.removed += 1 + change.within,
                ChangeKind::Type => {
                    counts.changed += 1;
                    counts.removed += change.within;
                }
                ChangeKind::Modified | ChangeKind::Mode | ChangeKind::Renamed { .. } => {
                    counts.changed += 1;
                }
            }
        }
        counts
    }
}
