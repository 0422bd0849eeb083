//! The errors of the store of artifacts.

use std::io;
use std::path::PathBuf;

use atoll_ledger::{FileFault, PrivateFault};

/// The form of its file (PRAGMA `user_version`).
pub(super) const FORM: i64 = 2;

/// Artifacts could not be kept, or read.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// SQLite's.
    #[error("the store of artifacts failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// Their directory cannot be used.
    #[error(transparent)]
    Private(#[from] PrivateFault),
    /// A pack cannot be written, or read.
    #[error("the file of artifacts {}: {error}", .path.display())]
    Pack {
        /// The file.
        path: PathBuf,
        /// The kernel's error; of InvalidData where it is not as it was sealed.
        error: io::Error,
    },
    /// A newer Atoll has written it.
    #[error("the store of artifacts is of form {0}, and this Atoll knows form {FORM}")]
    Newer(i64),
    /// A text of it is none that this Atoll writes.
    #[error("the store of artifacts is damaged: {0}")]
    Damaged(String),
    /// The key of the artifact is gone.
    #[error("the content of {0} was destroyed; its digests are left")]
    Destroyed(String),
}

impl From<FileFault> for ArtifactError {
    fn from(fault: FileFault) -> Self {
        Self::Private(fault.into())
    }
}
