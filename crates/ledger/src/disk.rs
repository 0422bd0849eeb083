//! Every file operation that the ledger's durability depends on: in one place, so that tests can
//! make any of them fail, and know what a loss of power could have left at any moment.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

#[cfg(test)]
use crate::tests::power;

/// The durability that an append waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The append waits until the event is on disk: it survives a loss of power.
    Durable,
    /// The event is handed to the kernel: it survives Atoll's end, not a loss of power. The next
    /// durable append of any process makes it durable too.
    Buffered,
}

/// Writes all of these bytes, from this offset on.
pub(crate) fn write(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    #[cfg(test)]
    power::write(file, bytes, offset)?;
    file.write_all_at(bytes, offset)?;
    #[cfg(test)]
    power::written(file, bytes, offset);
    Ok(())
}

/// Sets the length of a file, bytes.
pub(crate) fn set_length(file: &File, length: u64) -> io::Result<()> {
    #[cfg(test)]
    power::set_length(file, length)?;
    file.set_len(length)?;
    #[cfg(test)]
    power::length_set(file, length);
    Ok(())
}

/// Waits until the content and the length of a file are on disk.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    #[cfg(test)]
    let wait = power::sync(file)?;
    file.sync_data()?;
    #[cfg(test)]
    power::synced(file, wait);
    Ok(())
}

/// Waits until the names in a directory are on disk.
pub(crate) fn sync_names(directory: impl AsFd) -> Result<(), Errno> {
    #[cfg(test)]
    power::sync_names(directory.as_fd())?;
    rustix::fs::fsync(directory)
}

/// Opens a file for writing, for its owner alone, and makes it where it is missing; with
/// `OFlags::EXCL` only where it is missing.
pub(crate) fn create(directory: impl AsFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let directory = directory.as_fd();
    #[cfg(test)]
    let is_new = power::create(directory, name)?;
    let flags = flags | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    #[cfg(test)]
    power::created(directory, name, &file, is_new);
    Ok(file)
}

/// Makes a directory for its owner alone.
pub(crate) fn make_directory(parent: impl AsFd, name: &str) -> Result<(), Errno> {
    let parent = parent.as_fd();
    rustix::fs::mkdirat(parent, name, Mode::RWXU)?;
    #[cfg(test)]
    power::made_directory(parent, name);
    Ok(())
}

/// Renames a file within its directory, and replaces a file of the new name.
pub(crate) fn rename(directory: impl AsFd, from: &str, to: &str) -> Result<(), Errno> {
    let directory = directory.as_fd();
    #[cfg(test)]
    power::rename(directory, from, to)?;
    rustix::fs::renameat(directory, from, directory, to)
}

/// Removes a file.
pub(crate) fn remove(directory: impl AsFd, name: &str) -> Result<(), Errno> {
    let directory = directory.as_fd();
    #[cfg(test)]
    power::remove(directory, name)?;
    rustix::fs::unlinkat(directory, name, AtFlags::empty())
}
