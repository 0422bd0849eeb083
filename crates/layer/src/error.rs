use std::io;
use std::path::PathBuf;

use crate::{Conflict, RelativePath};

/// An operation on one entry of a tree failed.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {path}: {source}")]
pub struct TreeError {
    /// The operation attempted, as "cannot read".
    pub doing: &'static str,
    /// The path, escaped for people.
    pub path: String,
    /// The kernel's error.
    pub source: io::Error,
}

impl TreeError {
    pub(crate) fn new(
        doing: &'static str,
        path: impl ToString,
        source: impl Into<io::Error>,
    ) -> Self {
        Self {
            doing,
            path: path.to_string(),
            source: source.into(),
        }
    }

    pub(crate) fn is_no_space(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }
}

/// A layer could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// An operation failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The layer holds more entries than may be looked at.
    #[error("the layer holds more than {entries_max} entries, or longer paths than can be kept")]
    TooManyEntries {
        /// The bound.
        entries_max: u64,
    },
    /// The output could not be written.
    #[error("cannot write the diff: {0}")]
    Output(#[source] io::Error),
}

/// No plan could be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// An operation failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// In live mode the changes are in the directory already; and only there
    /// is something to restore.
    #[error("{0}")]
    WrongMode(&'static str),
    /// Too many entries.
    #[error("more than {entries_max} entries to work on")]
    TooManyEntries {
        /// The bound.
        entries_max: u64,
    },
}

/// Applying, finishing, rolling back or undoing failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// An operation failed; everything begun has been rolled back.
    #[error("{cause}; nothing was changed")]
    TakenBack {
        /// The failure.
        cause: Box<ApplyError>,
    },
    /// An operation failed, and so did the rollback: the journal is needed.
    #[error(
        "{cause}; then taking back failed: {second}. The originals are in {}",
        journal.display()
    )]
    Stuck {
        /// The first failure.
        cause: Box<ApplyError>,
        /// The failure of the rollback.
        second: Box<ApplyError>,
        /// The journal with the originals.
        journal: PathBuf,
    },
    /// There is no space for the new content or for the originals.
    #[error("no space left: {0}")]
    NoSpace(TreeError),
    /// An operation failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The plan has conflicts; nothing was begun.
    #[error("{} path(s) changed outside meanwhile, the first: {}", .0.len(), first(.0))]
    Conflicts(Vec<Conflict>),
    /// Something that no apply has made would have to be removed; nothing was begun.
    #[error("{} path(s) cannot be put back, the first: {}", .0.len(), first(.0))]
    InTheWay(Vec<Conflict>),
    /// An entry changed between planning and writing.
    #[error("{0} changed while it was being written")]
    ChangedMeanwhile(RelativePath),
    /// The journal is not in the state that this needs.
    #[error("the journal is {found}, this needs {needed}")]
    State {
        /// Its state.
        found: &'static str,
        /// The state needed.
        needed: &'static str,
    },
    /// Someone else works on this journal.
    #[error("another process works on {}", .0.display())]
    Locked(PathBuf),
    /// The journal cannot be understood.
    #[error("the journal {} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// In what way.
        why: String,
    },
    /// The directory is not the one that the journal was written for.
    #[error("{} is not the directory that the plan was made for", .0.display())]
    OtherRoot(PathBuf),
}

/// A checkpoint could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// An operation failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The destination exists and is not an empty directory, or lies within the
    /// directory to be copied.
    #[error("{} cannot hold a checkpoint: {why}", path.display())]
    Destination {
        /// The destination.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
}

fn first(conflicts: &[Conflict]) -> String {
    conflicts.first().map_or_else(String::new, |conflict| {
        format!("{}: {}", conflict.path, conflict.why)
    })
}
