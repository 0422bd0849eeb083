//! Login files of agents on the host: read as nobody else can have written them, and changed
//! so that there is a whole one at any moment.
//!
//! The directory of one may be shown inside, with something else in its place alone. So a new
//! text is never beside it: it is written within Atoll's own state, on the same file system,
//! and changes places with the file when it is on disk. What comes out then has to be what
//! was read before; else both change back, so that nothing newer is lost.

mod fields;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use atoll_model::network::LOGIN_FILE_BYTES_MAX;
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags, fchmod, fchown, flock,
    fstat, fsync, mkdirat, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use zeroize::Zeroizing;

pub use fields::FieldError;
pub(crate) use fields::{renewed, scope, tokens};

/// Bits of a file's mode by which others than its owner read it, and write it.
const OTHERS_READ: u32 = 0o044;
const OTHERS_WRITE: u32 = 0o022;
/// How often a lock is tried that somebody else holds.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Why a login file is not used, or not changed. Nothing of it is in the words.
#[derive(Debug, thiserror::Error)]
pub enum LoginFileError {
    /// The kernel's answer.
    #[error(transparent)]
    Kernel(#[from] io::Error),
    /// It leads elsewhere.
    #[error("it is a symbolic link")]
    Link,
    /// It is a directory, a pipe, a socket or a device.
    #[error("it is no regular file")]
    Kind,
    /// Somebody could read it by another one of its names.
    #[error("it has further names (hard links), by which it could be read inside")]
    Names,
    /// Somebody else's.
    #[error("it belongs to user id {0}")]
    Owner(u32),
    /// Somebody else could have written it.
    #[error("others than its owner can write to it (mode {0:04o})")]
    Writable(u32),
    /// It is too much.
    #[error("it is longer than {} KiB", .0 / 1024)]
    Long(usize),
    /// It is not what was read before.
    #[error("somebody has changed it meanwhile")]
    Changed,
    /// Another run holds it.
    #[error("another run was renewing it for too long")]
    Held,
    /// It could not be replaced in one step.
    #[error("it is on another file system than Atoll's state, from where it is replaced")]
    Elsewhere,
}

impl From<Errno> for LoginFileError {
    fn from(error: Errno) -> Self {
        Self::Kernel(error.into())
    }
}

/// What is in one, and whose it is.
pub struct LoginText {
    text: Zeroizing<Vec<u8>>,
    mode: u32,
    group: u32,
    names: u64,
}

impl std::fmt::Debug for LoginText {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("LoginText").finish_non_exhaustive()
    }
}

impl LoginText {
    /// All of it.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Who may do what with it: bits of its mode.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// Whether it has further names (hard links).
    #[must_use]
    pub fn has_names(&self) -> bool {
        self.names != 1
    }

    /// Whether others than its owner can read it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.mode & OTHERS_READ != 0
    }
}

/// Reads one. It is no link, this user's own by this name alone, and nobody else writes it.
///
/// # Errors
/// [`LoginFileError`]; of the kernel's `NotFound` and `NotADirectory` where there is none.
pub fn read_login_file(file: &Path) -> Result<LoginText, LoginFileError> {
    let (directory, name) = split(file)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, directory, flags, Mode::empty())?;
    read_at(directory.as_fd(), name)
}

fn split(file: &Path) -> Result<(&Path, &OsStr), LoginFileError> {
    let both = file.parent().zip(file.file_name());
    both.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput).into())
}

/// Reads a file of settings, of this many bytes at most, that is no link: whoever may write it,
/// since nothing of it is believed, and by whatever names.
///
/// # Errors
/// [`LoginFileError`]; of the kernel's `NotFound` and `NotADirectory` where there is none.
pub fn read_settings_file(file: &Path, bytes_max: usize) -> Result<LoginText, LoginFileError> {
    let (directory, name) = split(file)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, directory, flags, Mode::empty())?;
    read_bounded(directory.as_fd(), name, (false, bytes_max))
}

fn read_at(directory: BorrowedFd<'_>, name: &OsStr) -> Result<LoginText, LoginFileError> {
    read_bounded(directory, name, (true, LOGIN_FILE_BYTES_MAX))
}

/// Reads a file of so many bytes at most, which is this user's own alone where it has to be.
fn read_bounded(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    (is_own, bytes_max): (bool, usize),
) -> Result<LoginText, LoginFileError> {
    // A pipe would not end.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat(directory, name, flags | OFlags::RDONLY, Mode::empty());
    let file = File::from(opened.map_err(|error| refused(directory, name, error))?);
    let facts = file.metadata()?;
    let mode = facts.mode() & 0o7777;
    if !facts.is_file() {
        return Err(LoginFileError::Kind);
    }
    if is_own && facts.nlink() != 1 {
        return Err(LoginFileError::Names);
    }
    if is_own && facts.uid() != rustix::process::geteuid().as_raw() {
        return Err(LoginFileError::Owner(facts.uid()));
    }
    if is_own && mode & OTHERS_WRITE != 0 {
        return Err(LoginFileError::Writable(mode));
    }
    // Never larger, so that it is moved to no other place without being overwritten.
    let mut text = Zeroizing::new(Vec::with_capacity(bytes_max + 1));
    let most = u64::try_from(bytes_max + 1).unwrap_or(u64::MAX);
    file.take(most).read_to_end(&mut text)?;
    if text.len() > bytes_max {
        return Err(LoginFileError::Long(bytes_max));
    }
    Ok(LoginText {
        text,
        mode,
        group: facts.gid(),
        names: facts.nlink(),
    })
}

/// Why it cannot be opened.
fn refused(directory: BorrowedFd<'_>, name: &OsStr, error: Errno) -> LoginFileError {
    let facts = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    match facts.map(|facts| FileType::from_raw_mode(facts.st_mode)) {
        Ok(FileType::Symlink) => LoginFileError::Link,
        Ok(FileType::RegularFile) | Err(_) => error.into(),
        // A socket cannot be opened at all.
        Ok(_) => LoginFileError::Kind,
    }
}

/// A login file that no other run of this user changes meanwhile.
#[derive(Debug)]
pub struct LoginLock {
    /// Where it is.
    directory: OwnedFd,
    name: OsString,
    /// Who has this file open holds the lock. It is Atoll's own: the directory above may be shown
    /// inside, where a program could lock it for as long as it likes.
    _lock: OwnedFd,
    /// Where a new text is written.
    own: OwnedFd,
    /// What that is called there.
    new: String,
}

impl LoginLock {
    /// Takes it. `own` is a directory that nobody inside ever sees, and is made where it is
    /// not there. Ends early where `is_wanted` says that nobody waits for it any more.
    ///
    /// # Errors
    /// [`LoginFileError`].
    pub fn take(
        file: &Path,
        own: &Path,
        patience: Duration,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Self, LoginFileError> {
        let (directory, name) = split(file)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, directory, flags, Mode::empty())?;
        match mkdirat(CWD, own, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let private = openat(CWD, own, flags | OFlags::NOFOLLOW, Mode::empty())?;
        let facts = fstat(&directory)?;
        if fstat(&private)?.st_dev != facts.st_dev {
            return Err(LoginFileError::Elsewhere);
        }
        let place = format!("{}-{}", facts.st_dev, facts.st_ino);
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        // It stays: one that is removed could be locked by two, each another one.
        let lock = openat(&private, format!("{place}.lock"), flags, mode)?;
        let until = Instant::now() + patience;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < until && is_wanted() => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(Errno::WOULDBLOCK) => return Err(LoginFileError::Held),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self {
            // Of one directory at a time there is one.
            new: format!("{place}.new"),
            name: name.to_owned(),
            directory,
            _lock: lock,
            own: private,
        })
    }

    /// What is in it now; none where there is no such file.
    ///
    /// # Errors
    /// [`LoginFileError`].
    pub fn read(&self) -> Result<Option<LoginText>, LoginFileError> {
        match read_at(self.directory.as_fd(), &self.name) {
            Ok(text) => Ok(Some(text)),
            Err(LoginFileError::Kernel(error)) if error.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes another text in its place, with the same mode and group: on disk when this
    /// returns, whole at any moment. `before` is what was read; with none there may be no
    /// such file, and the new one is its owner's alone.
    ///
    /// # Errors
    /// [`LoginFileError`]; then what is there is what was there.
    pub fn write(&self, before: Option<&LoginText>, text: &[u8]) -> Result<(), LoginFileError> {
        if text.len() > LOGIN_FILE_BYTES_MAX {
            return Err(LoginFileError::Long(LOGIN_FILE_BYTES_MAX));
        }
        // One that was left behind by a run that was killed.
        self.forget();
        let written = self.write_new(before, text);
        let placed = written.and_then(|()| match before {
            Some(before) => self.exchange(before),
            None => {
                let moved = self.rename(RenameFlags::NOREPLACE);
                moved.map_err(|error| match error {
                    Errno::EXIST => LoginFileError::Changed,
                    error => error.into(),
                })
            }
        });
        self.forget();
        placed?;
        fsync(&self.directory)?;
        Ok(())
    }

    fn write_new(&self, before: Option<&LoginText>, text: &[u8]) -> Result<(), LoginFileError> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let own = Mode::RUSR | Mode::WUSR;
        let file = openat(&self.own, &self.new, flags | OFlags::NOFOLLOW, own)?;
        if let Some(before) = before {
            if fstat(&file)?.st_gid != before.group {
                fchown(&file, None, Some(Gid::from_raw(before.group)))?;
            }
            fchmod(&file, Mode::from_raw_mode(before.mode))?;
        }
        let mut file = File::from(file);
        file.write_all(text)?;
        file.sync_all()?;
        Ok(())
    }

    /// Has both change places, and back where what comes out is not what was read.
    fn exchange(&self, before: &LoginText) -> Result<(), LoginFileError> {
        match self.rename(RenameFlags::EXCHANGE) {
            Ok(()) => {}
            // Not every file system does that: there somebody could come between.
            Err(Errno::INVAL | Errno::NOSYS) => {
                is_same(&read_at(self.directory.as_fd(), &self.name)?, before)?;
                renameat(&self.own, &self.new, &self.directory, &self.name)?;
                return Ok(());
            }
            Err(Errno::NOENT) => return Err(LoginFileError::Changed),
            Err(error) => return Err(error.into()),
        }
        let came_out = read_at(self.own.as_fd(), OsStr::new(&self.new));
        let checked = came_out.and_then(|came_out| is_same(&came_out, before));
        if checked.is_err() {
            self.rename(RenameFlags::EXCHANGE)?;
        }
        checked
    }

    fn rename(&self, how: RenameFlags) -> Result<(), Errno> {
        renameat_with(&self.own, &self.new, &self.directory, &self.name, how)
    }

    /// Removes the text that is not used.
    fn forget(&self) {
        let _ = unlinkat(&self.own, &self.new, AtFlags::empty());
    }
}

fn is_same(now: &LoginText, before: &LoginText) -> Result<(), LoginFileError> {
    match now.text == before.text {
        true => Ok(()),
        false => Err(LoginFileError::Changed),
    }
}

#[cfg(test)]
mod tests;
