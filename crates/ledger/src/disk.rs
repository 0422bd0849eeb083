//! Every change of a file that the ledger rests on: here, so that tests can let any of them
//! fail, and can know what a loss of power would have left of it at any moment.

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
    /// On disk before the append returns: survives a loss of power.
    Durable,
    /// Handed to the kernel: survives Atoll's end, not a loss of power. The next
    /// durable append of any process makes it durable too.
    Buffered,
}

/// Writes all of these bytes from this place on.
pub(crate) fn write(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    #[cfg(test)]
    power::write(file, bytes, offset)?;
    file.write_all_at(bytes, offset)?;
    #[cfg(test)]
    power::written(file, bytes, offset);
    Ok(())
}

/// Makes a file this long, bytes.
pub(crate) fn set_length(file: &File, length: u64) -> io::Result<()> {
    #[cfg(test)]
    power::set_length(file, length)?;
    file.set_len(length)?;
    #[cfg(test)]
    power::length_set(file, length);
    Ok(())
}

/// Waits until the content of a file is on disk, and its length.
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

/// Gives a file another name in the same directory, in the place of what has it.
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
