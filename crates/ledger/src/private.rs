//! Files that only their owner may read or change: keys, and content sealed with them.
//!
//! A file is replaced as a whole, so that a change of it is one step; whoever changes one holds the
//! lock of its directory.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::lock::{LockFault, lock_now, open_lock, wait_for_lock};
use crate::{FileFault, StateDir, disk};

const LOCK: &str = "lock";

/// The longest time for which another process may hold the lock, milliseconds.
const LOCK_WAIT_MS_MAX: u64 = 5_000;

/// A private file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFault {
    /// The kernel refused.
    #[error(transparent)]
    File(#[from] FileFault),
    /// Other users can read it, or write there.
    #[error("{} is not yours alone (mode {mode:04o})", path.display())]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The path is not a regular file, or a larger one.
    #[error("{} is no file of at most {} KiB", path.display(), bytes_max >> 10)]
    NoFile {
        /// The path of the file.
        path: PathBuf,
        /// The largest allowed size, bytes.
        bytes_max: u64,
    },
    /// Another process holds the lock for too long.
    #[error("{} is held by another process, for {waited_ms} ms by now", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// The time that was waited, milliseconds.
        waited_ms: u128,
    },
}

impl From<LockFault> for PrivateFault {
    fn from(fault: LockFault) -> Self {
        match fault {
            LockFault::File(fault) => Self::File(fault),
            LockFault::TimedOut { path, waited_ms } => Self::Locked { path, waited_ms },
        }
    }
}

/// A directory whose files are private.
pub struct PrivateDirectory {
    directory: OwnedFd,
    path: PathBuf,
}

impl PrivateDirectory {
    /// Opens one below the state directory; `None` if it does not exist and is not to be made.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn of_state(
        state: &StateDir,
        name: &'static str,
        create: bool,
    ) -> Result<Option<Self>, PrivateFault> {
        let directory = match state.subdirectory(name, create) {
            Err(fault) if fault.is_not_found() && !create => return Ok(None),
            opened => opened?,
        };
        let path = state.path().join(name);
        let facts = rustix::fs::fstat(&directory).map_err(FileFault::on("examine", &path))?;
        refuse_if_open(&path, &facts, 0o077)?;
        Ok(Some(Self { directory, path }))
    }

    /// Opens the one at a path, which others may read but not write to; it is made if missing.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn at(path: &Path) -> Result<Self, PrivateFault> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(FileFault::on("create the directory", path))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())
            .map_err(FileFault::on("open the directory", path))?;
        let facts = rustix::fs::fstat(&directory).map_err(FileFault::on("examine", path))?;
        refuse_if_open(path, &facts, 0o022)?;
        Ok(Self {
            directory,
            path: path.to_owned(),
        })
    }

    /// Returns the directory's descriptor, for entries that are not files.
    pub fn into_descriptor(self) -> OwnedFd {
        self.directory
    }

    /// Borrows the directory's descriptor.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.directory
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the lock of the directory.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn lock(&self) -> Result<OwnedFd, PrivateFault> {
        let lock = open_lock(&self.directory, &self.path, LOCK)?;
        let path = self.path.join(LOCK);
        let operation = FlockOperation::NonBlockingLockExclusive;
        wait_for_lock(&lock, &path, operation, LOCK_WAIT_MS_MAX)?;
        Ok(lock)
    }

    /// Reads a file; `None` if there is none.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, PrivateFault> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(FileFault::on("open", &path))?,
        };
        let facts = rustix::fs::fstat(&file).map_err(FileFault::on("examine", &path))?;
        let is_file = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile;
        let size = u64::try_from(facts.st_size).unwrap_or(u64::MAX);
        if !is_file || size > bytes_max {
            return Err(PrivateFault::NoFile { path, bytes_max });
        }
        refuse_if_open(&path, &facts, 0o077)?;
        // With room for all of it: what a vector leaves behind when it grows is not wiped.
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0).saturating_add(1));
        let mut limited = File::from(file).take(bytes_max);
        limited
            .read_to_end(&mut bytes)
            .map_err(FileFault::on("read", &path))?;
        Ok(Some(bytes))
    }

    /// Opens a file to change it in place, and makes it where it is missing. The caller holds
    /// the lock.
    pub(crate) fn open_in_place(&self, name: &str) -> Result<File, PrivateFault> {
        let path = self.path.join(name);
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        let file =
            disk::create(&self.directory, name, flags).map_err(FileFault::on("open", &path))?;
        let facts = rustix::fs::fstat(&file).map_err(FileFault::on("examine", &path))?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            let bytes_max = u64::MAX;
            return Err(PrivateFault::NoFile { path, bytes_max });
        }
        refuse_if_open(&path, &facts, 0o077)?;
        Ok(File::from(file))
    }

    /// Takes the lock, unless another process holds it.
    pub(crate) fn lock_if_free(&self) -> Result<Option<OwnedFd>, PrivateFault> {
        let lock = open_lock(&self.directory, &self.path, LOCK)?;
        let operation = FlockOperation::NonBlockingLockExclusive;
        let is_ours = lock_now(&lock, &self.path.join(LOCK), operation)?;
        Ok(is_ours.then_some(lock))
    }

    /// Removes a file; returns whether it was there.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn remove(&self, name: &str) -> Result<bool, PrivateFault> {
        let removed = disk::remove(&self.directory, name);
        match removed.and_then(|()| disk::sync_names(&self.directory)) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(FileFault::on("remove", self.path.join(name))(errno).into()),
        }
    }

    /// Renames a file, and replaces a file of the new name. The caller holds the lock.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), PrivateFault> {
        let renamed = disk::rename(&self.directory, from, to)
            .and_then(|()| disk::sync_names(&self.directory));
        Ok(renamed.map_err(FileFault::on("replace", self.path.join(to)))?)
    }

    /// Replaces a file. The caller holds the lock.
    ///
    /// # Errors
    /// [`PrivateFault`].
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), PrivateFault> {
        Ok(replace_file(&self.directory, &self.path, name, bytes)?)
    }
}

/// Replaces a file: the new one is written under another name, brought to disk, and renamed, and
/// the name is brought to disk. Readers find the old one or the new one, whole.
pub(crate) fn replace_file(
    directory: impl AsFd,
    path: &Path,
    name: &str,
    bytes: &[u8],
) -> Result<(), FileFault> {
    let directory: BorrowedFd<'_> = directory.as_fd();
    let (file, new_path) = new_file(directory, path, name, bytes)?;
    disk::sync(&file).map_err(FileFault::on("write", &new_path))?;
    disk::rename(directory, &new_name(name), name)
        .and_then(|()| disk::sync_names(directory))
        .map_err(FileFault::on("replace", path.join(name)))
}

/// Replaces a file as [`replace_file`] does, without waiting for the disk: after a loss of power
/// the old one may be there, or on some file systems an empty one. Only for files that nothing
/// relies on.
pub(crate) fn replace_file_soon(
    directory: impl AsFd,
    path: &Path,
    name: &str,
    bytes: &[u8],
) -> Result<(), FileFault> {
    let directory: BorrowedFd<'_> = directory.as_fd();
    new_file(directory, path, name, bytes)?;
    disk::rename(directory, &new_name(name), name)
        .map_err(FileFault::on("replace", path.join(name)))
}

fn new_name(name: &str) -> String {
    format!("{name}.new")
}

/// Writes the replacement of a file, under another name.
fn new_file(
    directory: BorrowedFd<'_>,
    path: &Path,
    name: &str,
    bytes: &[u8],
) -> Result<(File, PathBuf), FileFault> {
    let new_name = new_name(name);
    let new_path = path.join(&new_name);
    // What a sudden end has left of another one, with whatever mode it has. It is gone from the
    // disk too before the name is given again: else a loss of power may leave the new name of it.
    match disk::remove(directory, &new_name) {
        Ok(()) => {
            disk::sync_names(directory).map_err(FileFault::on("remove", &new_path))?;
        }
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(FileFault::on("remove", &new_path)(errno)),
    }
    let file = disk::create(directory, &new_name, OFlags::WRONLY | OFlags::EXCL)
        .map_err(FileFault::on("make", &new_path))?;
    let file = File::from(file);
    disk::write(&file, bytes, 0).map_err(FileFault::on("write", &new_path))?;
    Ok((file, new_path))
}

/// Refuses a file that others can read, or a directory that they can write to: whoever can read a
/// key has what it opens, and whoever can write there chooses the key.
fn refuse_if_open(path: &Path, facts: &Stat, others: u32) -> Result<(), PrivateFault> {
    let is_own = facts.st_uid == rustix::process::geteuid().as_raw();
    if is_own && facts.st_mode & others == 0 {
        return Ok(());
    }
    Err(PrivateFault::Open {
        path: path.to_owned(),
        mode: facts.st_mode & 0o7777,
    })
}
