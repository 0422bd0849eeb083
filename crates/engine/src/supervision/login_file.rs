//! Login files of agents on the host: read only if no other user can have written them, and
//! replaced atomically.
//!
//! A login file's directory may be visible in the sandbox, with only the file itself replaced
//! by a placeholder. So a new text is never written beside the file, but within Atoll's own
//! state, on the same file system; once on disk it is exchanged with the file. The text that
//! comes out has to be the one read before; otherwise both are exchanged back, so that no newer
//! text is lost.

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

/// The mode bits by which users other than a file's owner may read it, and write it.
const OTHERS_READ: u32 = 0o044;
const OTHERS_WRITE: u32 = 0o022;
/// The interval of trying a lock that is held.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The reason why a login file is not used, or not changed. The messages contain nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum LoginFileError {
    /// The kernel's error.
    #[error(transparent)]
    Kernel(#[from] io::Error),
    /// The path is a symbolic link.
    #[error("it is a symbolic link")]
    Link,
    /// The path is a directory, a pipe, a socket or a device.
    #[error("it is no regular file")]
    Kind,
    /// The file has other names, by which it could be read.
    #[error("it has further names (hard links), by which it could be read inside")]
    Names,
    /// The file belongs to another user.
    #[error("it belongs to user id {0}")]
    Owner(u32),
    /// Another user could have written the file.
    #[error("others than its owner can write to it (mode {0:04o})")]
    Writable(u32),
    /// The file is too long.
    #[error("it is longer than {} KiB", .0 / 1024)]
    Long(usize),
    /// The file differs from what was read before.
    #[error("somebody has changed it meanwhile")]
    Changed,
    /// Another run holds the lock.
    #[error("another run was renewing it for too long")]
    Held,
    /// The file could not be replaced in one step.
    #[error("it is on another file system than Atoll's state, from where it is replaced")]
    Elsewhere,
}

impl From<Errno> for LoginFileError {
    fn from(error: Errno) -> Self {
        Self::Kernel(error.into())
    }
}

/// The text of a login file, with its owner and mode.
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
    /// Returns the whole text.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the mode bits.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// Returns whether the file has other names (hard links).
    #[must_use]
    pub fn has_names(&self) -> bool {
        self.names != 1
    }

    /// Returns whether users other than the owner can read the file.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.mode & OTHERS_READ != 0
    }
}

/// Reads a login file. It must be no symbolic link, belong to this user, have no other name and
/// be writable to nobody else.
///
/// # Errors
/// [`LoginFileError`]; the kernel's `NotFound` and `NotADirectory` if there is none.
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

/// Reads a settings file of at most this many bytes, which must be no symbolic link. Any user
/// may be able to write it, since it is not trusted, and it may have other names.
///
/// # Errors
/// [`LoginFileError`]; the kernel's `NotFound` and `NotADirectory` if there is none.
pub fn read_settings_file(file: &Path, bytes_max: usize) -> Result<LoginText, LoginFileError> {
    let (directory, name) = split(file)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, directory, flags, Mode::empty())?;
    read_bounded(directory.as_fd(), name, (false, bytes_max))
}

fn read_at(directory: BorrowedFd<'_>, name: &OsStr) -> Result<LoginText, LoginFileError> {
    read_bounded(directory, name, (true, LOGIN_FILE_BYTES_MAX))
}

/// Reads a file of at most `bytes_max` bytes, which with `is_own` must be this user's alone.
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

/// Returns the reason why the file cannot be opened.
fn refused(directory: BorrowedFd<'_>, name: &OsStr, error: Errno) -> LoginFileError {
    let facts = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    match facts.map(|facts| FileType::from_raw_mode(facts.st_mode)) {
        Ok(FileType::Symlink) => LoginFileError::Link,
        Ok(FileType::RegularFile) | Err(_) => error.into(),
        // A socket cannot be opened at all.
        Ok(_) => LoginFileError::Kind,
    }
}

/// A login file locked against changes by other runs of this user.
#[derive(Debug)]
pub struct LoginLock {
    /// The file's directory.
    directory: OwnedFd,
    name: OsString,
    /// The open lock file, which holds the lock. It is Atoll's own: the login file's directory
    /// may be visible in the sandbox, where a program could lock it indefinitely.
    _lock: OwnedFd,
    /// The directory for a new text.
    own: OwnedFd,
    /// The name of the new text there.
    new: String,
}

impl LoginLock {
    /// Takes the lock. `own` is a directory that no sandbox ever sees; it is created if
    /// missing. Gives up early once `is_wanted` returns false.
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

    /// Reads the file; `None` if it does not exist.
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

    /// Replaces the text, with the same mode and group: atomically, and on disk when this
    /// returns. `before` is the text as read; if `None`, the file must not exist, and the new
    /// one is private to its owner.
    ///
    /// # Errors
    /// [`LoginFileError`]; the file is unchanged then.
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

    /// Exchanges both files, and exchanges them back if the old one is not as read.
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

    /// Removes the unused text.
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
