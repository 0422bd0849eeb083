//! Locks on files, which end with the process that holds them.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::FileFault;

/// The longest pause between two attempts to get a lock, microseconds.
const PAUSE_US_MAX: u64 = 1_000;

/// A lock that was not got.
#[derive(Debug)]
pub enum LockFault {
    /// The kernel refused.
    File(FileFault),
    /// Another process has held the lock for too long.
    TimedOut {
        /// The locked file.
        path: PathBuf,
        /// The time that was waited, milliseconds.
        waited_ms: u128,
    },
}

/// Opens a file that only serves to be locked.
///
/// # Errors
/// [`FileFault`].
pub fn open_lock(directory: impl AsFd, path: &Path, name: &str) -> Result<OwnedFd, FileFault> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)
        .map_err(FileFault::on("open", path.join(name)))
}

/// Takes the lock if it is free.
///
/// # Errors
/// [`FileFault`].
pub fn lock_now(
    file: impl AsFd,
    path: &Path,
    operation: FlockOperation,
) -> Result<bool, FileFault> {
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(errno) => Err(FileFault::on("lock", path)(errno)),
    }
}

/// Polls for the lock instead of sleeping in the kernel, because that sleep has no limit.
///
/// # Errors
/// [`LockFault`].
pub fn wait_for_lock(
    file: impl AsFd,
    path: &Path,
    operation: FlockOperation,
    wait_ms_max: u64,
) -> Result<(), LockFault> {
    let begin = Instant::now();
    let mut pause_us = 10;
    while !lock_now(&file, path, operation).map_err(LockFault::File)? {
        let waited = begin.elapsed();
        if waited > Duration::from_millis(wait_ms_max) {
            return Err(LockFault::TimedOut {
                path: path.to_owned(),
                waited_ms: waited.as_millis(),
            });
        }
        std::thread::sleep(Duration::from_micros(pause_us));
        pause_us = (pause_us * 2).min(PAUSE_US_MAX);
    }
    Ok(())
}
