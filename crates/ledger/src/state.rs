//! The state directory, and the names of the directories directly below it.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use atoll_model::RunId;
use rustix::fs::{Access, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::{FileFault, disk};

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// The directory of all of Atoll's state: the ledger, the markers of living runs, the records and
/// layers of runs. Only its owner may write to it.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    directory: OwnedFd,
}

/// The state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A relative path would mean another directory after each `cd`.
    #[error(
        "the state directory {} is a relative path; set XDG_STATE_HOME to an absolute one",
        .0.display()
    )]
    Relative(PathBuf),
    /// The path is not a directory.
    #[error("the state directory {} is not a directory; move it away, or set XDG_STATE_HOME", .0.display())]
    NotADirectory(PathBuf),
    /// Another user owns it, and could change what Atoll relies on.
    #[error(
        "the state directory {} belongs to user id {owner}, but Atoll runs as {caller}; \
         run as its owner, or set XDG_STATE_HOME to a directory of your own",
        path.display()
    )]
    OwnedByOther {
        /// The directory.
        path: PathBuf,
        /// The user id of the owner.
        owner: u32,
        /// The user id of the caller.
        caller: u32,
    },
    /// Other users can write to it, and could change what Atoll relies on.
    #[error(
        "the state directory {} can be written to by other users (mode {mode:04o}); \
         run: chmod go-w {0}",
        path.display()
    )]
    WritableByOthers {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The kernel refused.
    #[error(transparent)]
    File(#[from] FileFault),
}

impl StateDir {
    /// Opens the state directory for reading and writing; creates it, and the
    /// directories above it, with mode 0700 where missing.
    ///
    /// # Errors
    /// [`StateError`] when it is not a directory, not the caller's own, writable
    /// by others, or cannot be written to.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        if path.is_relative() {
            return Err(StateError::Relative(path.to_owned()));
        }
        let state = match Self::open_read_only(path) {
            Err(StateError::File(fault)) if fault.is_not_found() => {
                make_with_those_above(path)
                    .map_err(FileFault::on("create the state directory", path))?;
                Self::open_read_only(path)?
            }
            other => other?,
        };
        rustix::fs::accessat(
            &state.directory,
            ".",
            Access::WRITE_OK | Access::EXEC_OK,
            AtFlags::EACCESS,
        )
        .map_err(FileFault::on("write to the state directory", path))?;
        Ok(state)
    }

    /// Opens a state directory that exists, to read from it only.
    ///
    /// # Errors
    /// [`StateError`] when it is missing, not a directory, not the caller's own
    /// or writable by others.
    pub fn open_read_only(path: &Path) -> Result<Self, StateError> {
        let directory = match rustix::fs::open(path, OPEN_DIRECTORY, Mode::empty()) {
            Err(Errno::NOTDIR) if path.symlink_metadata().is_ok() => {
                return Err(StateError::NotADirectory(path.to_owned()));
            }
            other => other.map_err(FileFault::on("open the state directory", path))?,
        };
        let facts = rustix::fs::fstat(&directory)
            .map_err(FileFault::on("examine the state directory", path))?;
        let caller = rustix::process::geteuid().as_raw();
        if facts.st_uid != caller {
            return Err(StateError::OwnedByOther {
                path: path.to_owned(),
                owner: facts.st_uid,
                caller,
            });
        }
        if facts.st_mode & 0o022 != 0 {
            return Err(StateError::WritableByOthers {
                path: path.to_owned(),
                mode: facts.st_mode & 0o7777,
            });
        }
        Ok(Self {
            path: path.to_owned(),
            directory,
        })
    }

    /// Opens the same directory once more.
    pub(crate) fn again(&self) -> Result<Self, FileFault> {
        let directory = rustix::fs::openat(&self.directory, ".", OPEN_DIRECTORY, Mode::empty())
            .map_err(FileFault::on("open the state directory", &self.path))?;
        Ok(Self {
            path: self.path.clone(),
            directory,
        })
    }

    /// Returns the path of the state directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory of everything that belongs to one run.
    #[must_use]
    pub fn run_dir(&self, run: &RunId) -> PathBuf {
        self.path.join(RUNS).join(run.as_str())
    }

    /// Returns the directory of a run's files that last as long as the run; none of them is kept.
    #[must_use]
    pub fn scratch_dir(&self, run: &RunId) -> PathBuf {
        self.path.join(SCRATCH).join(run.as_str())
    }

    /// Returns the directory of the layers that several runs share.
    #[must_use]
    pub fn shared_layers_dir(&self) -> PathBuf {
        self.path.join(SHARED_LAYERS)
    }

    /// Returns the directory of the layers over parts of the home that a profile's next run goes on
    /// with.
    #[must_use]
    pub fn kept_dir(&self) -> PathBuf {
        self.path.join(KEPT)
    }

    /// Waits until the names directly below are on disk: the content of a directory is lost with
    /// its name.
    pub(crate) fn sync_names(&self) -> Result<(), FileFault> {
        disk::sync_names(&self.directory)
            .map_err(FileFault::on("wait for the disk to hold", &self.path))
    }

    /// Opens one of the directories directly below; `create` makes it when missing.
    ///
    /// # Errors
    /// [`FileFault`].
    pub fn subdirectory(&self, name: &'static str, create: bool) -> Result<OwnedFd, FileFault> {
        let open = || rustix::fs::openat(&self.directory, name, OPEN_DIRECTORY, Mode::empty());
        let opened = match open() {
            Err(Errno::NOENT) if create => {
                match disk::make_directory(&self.directory, name) {
                    // Another process was faster; its directory is as good.
                    Ok(()) | Err(Errno::EXIST) => {
                        self.sync_names()?;
                        open()
                    }
                    Err(errno) => Err(errno),
                }
            }
            other => other,
        };
        opened.map_err(FileFault::on("open the directory", self.path.join(name)))
    }
}

/// Makes a directory and its missing parents, their names on disk.
fn make_with_those_above(path: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|one| !one.exists()).collect();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    for above in missing.iter().filter_map(|made| made.parent()) {
        let synced = std::fs::File::open(above).and_then(|above| above.sync_all());
        match synced.map_err(|cause| cause.kind()) {
            // A directory that may be written to and not be read, and file systems that have
            // no such wait for directories.
            Ok(()) | Err(ErrorKind::PermissionDenied | ErrorKind::InvalidInput) => {}
            Err(kind) => return Err(kind.into()),
        }
    }
    Ok(())
}

/// The control sockets of runs that have not ended.
pub const CONTROL: &str = "control";
/// The places up to which the ledger was sent elsewhere.
pub const TELEMETRY: &str = "telemetry";
/// The notices that a person was given once.
pub const TOLD: &str = "told";
/// The labels that runs of a session have gained, for concurrent runs.
pub const GAINED: &str = "gained";
/// The lock of legal holds, and of all that they keep from being destroyed.
pub const HOLDS: &str = "holds";
/// The layers over parts of the home that a profile's next run goes on with.
pub const KEPT: &str = "kept";
/// The ledger.
pub const LEDGER: &str = "ledger";
/// The key that signs the ledger's checkpoints.
pub const LEDGER_KEY: &str = "ledger-key";
/// The numbers and times of the signed layers of an organisation that were seen.
pub const ORGANISATION: &str = "organisation";
/// The markers of living runs.
pub const OPEN_RUNS: &str = "open";
/// The records and layers of runs.
pub const RUNS: &str = "runs";
/// The files of runs of which none are kept.
pub const SCRATCH: &str = "scratch";
/// The keys that seal sensitive content of the ledger.
pub const SEALS: &str = "seals";
/// The places in the ledger at which sessions began.
pub const SESSIONS: &str = "sessions";
/// The layers that several runs share.
pub const SHARED_LAYERS: &str = "layers";
/// The certificate authority of this deployment.
pub const AUTHORITY: &str = "authority";
/// The trust stores by which a sandbox's programs trust that authority.
pub const TRUST: &str = "trust";
/// The vault.
pub const VAULT: &str = "vault";
/// The key that issues capability tokens, and the list of those that are revoked.
pub const TOKENS: &str = "tokens";
