use std::io;
use std::path::{Path, PathBuf};
use std::string::ToString;

/// A checkpoint could not be taken, compared, restored or discarded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a file operation.
    #[error("cannot {doing} {}: {error}", path.display())]
    File {
        /// The operation, as a verb.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The text names no target.
    #[error(
        "{text:?} is no target: {why}. Use files:PATH, sqlite:PATH, git:PATH, postgres:NAME or \
         postgres://USER@HOST:PORT/NAME"
    )]
    Target {
        /// The text.
        text: String,
        /// The reason.
        why: &'static str,
    },
    /// The id cannot be part of the name of a ref or database.
    #[error("{0:?} is no id: use 1 to 24 of a-z, 0-9 and -, beginning with a letter or digit")]
    Id(String),
    /// The target is larger than allowed; nothing was copied.
    #[error("{target} has {bytes} bytes, more than the {max} allowed")]
    TooLarge {
        /// The target.
        target: String,
        /// Its size.
        bytes: u64,
        /// The largest size allowed.
        max: u64,
    },
    /// The target itself is a symbolic link.
    #[error("{} is a symbolic link: name the file or directory that it leads to", .0.display())]
    Link(PathBuf),
    /// Another file system is mounted below the target.
    #[error("another file system is mounted at {}: name it as a target of its own", .0.display())]
    Mount(PathBuf),
    /// A file changed on each attempt to read it.
    #[error("{} changes while it is read: try again while nothing writes to it", .0.display())]
    Unsteady(PathBuf),
    /// The directory for a checkpoint holds something already.
    #[error("{} is not empty: name a new directory, or resume a restore that was cut short", .0.display())]
    NotEmpty(PathBuf),
    /// The checkpoint has been changed or is incomplete.
    #[error("the checkpoint in {} is damaged: {why}", path.display())]
    Damaged {
        /// The directory of the checkpoint, or a file in it.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// SQLite refused an operation.
    #[error("cannot {doing} {}: {error}", path.display())]
    Sqlite {
        /// The operation, as a verb.
        doing: &'static str,
        /// The database.
        path: PathBuf,
        /// The reason.
        error: rusqlite::Error,
    },
    /// Another program kept a database locked.
    #[error("{} is locked by another program: try again when it is done", .0.display())]
    Busy(PathBuf),
    /// A program that is needed is not installed, or failed.
    #[error("{program}: {message}")]
    Program {
        /// The program.
        program: &'static str,
        /// The last of what it printed, or the reason it did not start.
        message: String,
    },
    /// A database has other connections, which are not to be ended.
    #[error("database {database} has {count} other connections: close them, or allow ending them")]
    InUse {
        /// The database.
        database: String,
        /// The number of connections.
        count: u64,
    },
    /// A shadow run is not applied: rows do not tell all of it, or the database moved on.
    #[error("{0}")]
    Unmatched(String),
    /// The connection was lost while rows were applied.
    #[error("whether the rows were changed is unknown: {0}")]
    Undetermined(String),
}

impl Error {
    /// Returns a function that adds an operation and its path to an error of the kernel.
    pub(crate) fn on<E: Into<io::Error>>(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        move |error| Self::File {
            doing,
            path: path.to_owned(),
            error: error.into(),
        }
    }

    pub(crate) fn damaged(path: &Path, why: impl ToString) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            why: why.to_string(),
        }
    }
}
