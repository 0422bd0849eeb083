//! Space for the end of a run, reserved from its beginning: a program can fill the file system that
//! Atoll's state is on, and its end is recorded all the same.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};

use atoll_ledger::{FileFault, StateDir};
use atoll_model::RunId;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::RunError;
use crate::record_file::RECORD;
use crate::runs::{existing_runs, open_run};

const RESERVE: &str = "reserve";
/// The space that a run's end takes beside the record, bytes: an event, perhaps in a new segment,
/// the head, and the needs of the file system itself.
const RESERVE_BYTES: u64 = 64 << 10;
/// The fewest free inodes of a file system that is not full.
const INODES_MIN: u64 = 16;

/// Reserves space for the end of a run, in its directory: for the record to be written anew, and
/// for the ledger's closing event.
///
/// # Errors
/// [`RunError::File`] where there is no room: the run is better not begun.
pub fn reserve_end(state: &StateDir, run: &RunId) -> Result<(), RunError> {
    let runs = existing_runs(state)?.ok_or_else(|| RunError::Missing(run.clone()))?;
    let directory = open_run(state, &runs, run)?;
    let path = state.run_dir(run).join(RESERVE);
    let record = rustix::fs::statat(&directory, RECORD, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(FileFault::on("examine", state.run_dir(run).join(RECORD)))?;
    let bytes = RESERVE_BYTES + 2 * u64::try_from(record.st_size).unwrap_or_default();
    let taken = take(directory.as_fd(), bytes);
    Ok(taken.map_err(FileFault::on("take room for the run's end with", path))?)
}

/// Takes space with a file in a directory.
fn take(directory: BorrowedFd<'_>, bytes: u64) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = File::from(rustix::fs::openat(directory, RESERVE, flags, mode)?);
    let taken = match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        // A file system that cannot promise room gives it for something written.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            (&file).write_all(&vec![0; usize::try_from(bytes).unwrap_or_default()])
        }
        done => done.map_err(Into::into),
    };
    if taken.is_err() {
        let _ = rustix::fs::unlinkat(directory, RESERVE, AtFlags::empty());
    }
    taken
}

/// Holds space in the state directory, so that runs can be removed once its file system is full:
/// that is recorded first. Where there is none any more, nothing is held.
pub fn hold_for_removal(state: &StateDir) {
    let held = state.path().join(RESERVE).symlink_metadata();
    let is_held = held.is_ok_and(|facts| facts.len() >= RESERVE_BYTES);
    if !is_held && let Ok(directory) = File::open(state.path()) {
        let _ = take(directory.as_fd(), RESERVE_BYTES);
    }
}

/// Releases that space where the file system is full; the next use of the state holds it again.
pub fn release_for_removal(state: &StateDir) {
    let is_full = rustix::fs::statvfs(state.path()).is_ok_and(|facts| {
        let bytes = facts.f_bavail.saturating_mul(facts.f_frsize);
        bytes < 4 * RESERVE_BYTES || facts.f_favail < INODES_MIN
    });
    if is_full {
        let _ = std::fs::remove_file(state.path().join(RESERVE));
    }
}

/// Releases the reserved space, right before the end is recorded. A failure is ignored: the writes
/// that follow would report it.
pub fn release_end(state: &StateDir, run: &RunId) {
    if let Ok(Some(runs)) = existing_runs(state)
        && let Ok(directory) = open_run(state, &runs, run)
    {
        let _ = rustix::fs::unlinkat(&directory, RESERVE, AtFlags::empty());
    }
}
