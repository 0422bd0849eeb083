use std::io;
use std::path::{Path, PathBuf};

/// A file operation that failed: the operation, its path, the cause, and what a person can do about
/// it.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {}", path.display(), explain(cause))]
pub struct FileFault {
    doing: &'static str,
    path: PathBuf,
    cause: io::Error,
}

impl FileFault {
    /// Makes the error of an operation on a path, for `map_err`.
    pub fn on<E: Into<io::Error>>(
        doing: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(E) -> Self {
        move |cause| Self {
            doing,
            path: path.as_ref().to_owned(),
            cause: cause.into(),
        }
    }

    /// Returns the path that the operation failed on.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the kind of failure that the kernel reported.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }

    /// Returns whether the disk itself failed.
    #[must_use]
    pub fn is_of_the_disk(&self) -> bool {
        rustix::io::Errno::from_io_error(&self.cause) == Some(rustix::io::Errno::IO)
    }

    /// Returns whether the disk, or the person's quota on it, is full.
    #[must_use]
    pub fn is_out_of_space(&self) -> bool {
        matches!(
            self.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }

    /// Returns whether the place cannot be written to, now or by this user.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(
            self.kind(),
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
        )
    }

    /// Returns whether nothing is there by that name.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }
}

const ELSEWHERE: &str = "or set XDG_STATE_HOME to a directory that can be used";

fn explain(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::StorageFull => {
            format!("no space is left on that file system; free some, {ELSEWHERE}")
        }
        io::ErrorKind::QuotaExceeded => {
            format!("your disk quota is used up; free some space, {ELSEWHERE}")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("that file system is read-only; make it writable, {ELSEWHERE}")
        }
        io::ErrorKind::PermissionDenied => format!(
            "permission denied; make it readable and writable for your user (chmod u+rwX), \
             {ELSEWHERE}"
        ),
        io::ErrorKind::NotADirectory => {
            format!("a part of that path is a file; move it away, {ELSEWHERE}")
        }
        _ => cause.to_string(),
    }
}
