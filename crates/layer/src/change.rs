use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use crate::RelativePath;
use crate::plan::Stamp;

/// Why something is a control file that is none by its name.
const ASIDE: &str = "it is no history, and was set aside from what runs see";

/// Everything that differs between the two trees, sorted by path bytes.
#[derive(Clone, Debug, Default)]
pub struct ChangeSet {
    /// What can be shown and, if chosen, applied.
    pub changes: Vec<Change>,
    /// What will never be applied, and why.
    pub refused: Vec<Refusal>,
    /// What is among the changes and will all the same not be applied, and why.
    pub withheld: Vec<Refusal>,
    /// What is applied without some part of it, and other things worth knowing.
    pub notes: Vec<Refusal>,
    /// Whether the permissions of something kept it from being read.
    pub(crate) is_locked: bool,
    /// What these kept from being read, as it was then.
    pub(crate) locked: BTreeMap<RelativePath, Stamp>,
    /// Of the common directory of a git repository: where in it the worktree's own is.
    pub(crate) repository: Option<RelativePath>,
    /// In live mode: what was there before, but is not in the checkpoint.
    pub(crate) uncopied: BTreeSet<RelativePath>,
}

impl ChangeSet {
    /// Takes all of it for control files: it was set aside from what the next run sees, because
    /// that run would run or believe it, whatever it is called.
    pub fn classify_aside(&mut self) {
        for change in &mut self.changes {
            change.class = Class::Control;
            change.reason = change.reason.or(Some(ASIDE));
        }
    }

    /// Leaves out all that is at these paths or beneath them: what they are is nobody's to see
    /// and to take over.
    pub fn leave_out(&mut self, paths: &[RelativePath]) {
        let is_left = |path: &RelativePath| paths.iter().any(|one| path.starts_with(one));
        self.changes.retain(|change| !is_left(&change.path));
        for refusals in [&mut self.refused, &mut self.withheld, &mut self.notes] {
            refusals.retain(|refusal| !is_left(&refusal.path));
        }
    }
}

/// One entry that differs.
#[derive(Clone, Debug)]
pub struct Change {
    /// Where.
    pub path: RelativePath,
    /// In what way.
    pub kind: ChangeKind,
    /// How much care it needs.
    pub class: Class,
    /// For control files: who would execute or trust it.
    pub reason: Option<&'static str>,
    /// The entry before; `None` when added.
    pub before: Option<EntryFacts>,
    /// The entry after; `None` when removed.
    pub after: Option<EntryFacts>,
    /// For a removed or renamed directory: how many entries lie beneath it. They
    /// are not listed on their own.
    pub within: u64,
    /// Where the content after comes from.
    pub(crate) source: Source,
    /// For what seems to be added: whether it is older than the run, so that it was
    /// moved here by the program, or removed outside.
    pub(crate) is_older: bool,
}

/// Where an entry's content after is to be read.
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

/// In what way an entry differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its content differs (and perhaps its mode).
    Modified,
    /// It is gone.
    Removed,
    /// Only its permissions, owner or extended attributes differ.
    Mode,
    /// It is of another type: a file is now a directory or a symbolic link, …
    Type,
    /// A directory moved as it was, nothing in it changed.
    Renamed {
        /// Where it was.
        from: RelativePath,
    },
}

/// How much care a change needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A file like any other.
    Ordinary,
    /// Others execute or trust it: needs a yes of its own.
    Control,
    /// A tool can make it again.
    Cache,
    /// The project's own ignore files, as they were before, exclude it.
    Ignored,
}

/// What is known about an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryFacts {
    /// What it is.
    pub kind: EntryKind,
    /// Its permission bits, special bits included.
    pub mode: u32,
    /// Its size in bytes, as stated by the file system.
    pub bytes: u64,
    /// When its content was last written.
    pub modified: SystemTime,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it points, as written; never followed.
        target: Vec<u8>,
    },
    /// A socket, FIFO or device: only ever before, or after in live mode.
    Special,
}

/// Something that is not done, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Where.
    pub path: RelativePath,
    /// Why, for a person.
    pub why: String,
}

/// How many entries of one class were added, changed and removed.
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
    /// The counts of one class.
    #[must_use]
    pub fn counts(&self, class: Class) -> Counts {
        self.count(|change| change.class == class)
    }

    /// The counts of all classes together.
    #[must_use]
    pub fn counts_of_all(&self) -> Counts {
        self.count(|_| true)
    }

    /// Whether nothing differs and nothing was refused.
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
