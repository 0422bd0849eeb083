use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use atoll_ledger::{FileFault, StateDir};
use atoll_model::RunId;
use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::RunError;
use crate::runs::{existing_runs, open_run};
use crate::tree::{is_dots, open_directory};

/// The disk usage of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// The bytes on disk; a file with several names counts once.
    pub bytes: u64,
    /// The number of files, directories and other entries.
    pub entries: u64,
    /// The number of directories that could not be read, which may hold more.
    pub unreadable: u64,
}

/// The unit in which `stat` counts blocks, bytes.
const BLOCK_BYTES: u64 = 512;

/// Measures everything in a run's directory, without following symbolic links,
/// without leaving its file system and without changing anything.
///
/// # Errors
/// [`RunError::Missing`] or [`RunError::File`].
pub fn run_disk_usage(state: &StateDir, run: &RunId) -> Result<DiskUsage, RunError> {
    let runs = existing_runs(state)?.ok_or_else(|| RunError::Missing(run.clone()))?;
    let top = open_run(state, &runs, run)?;
    measure(top).map_err(|errno| FileFault::on("measure", state.run_dir(run))(errno).into())
}

/// Measures a directory, as [`run_disk_usage`] a run's. `None` where there is none, or it cannot be
/// read.
#[must_use]
pub fn directory_usage(path: &Path) -> Option<DiskUsage> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    measure(top).ok()
}

/// A directory that was read, with those below it that were not yet.
struct Level {
    identity: (u64, u64),
    below: Vec<CString>,
}

/// Measures a tree. Only the current directory is open; the way back is `..`, checked to be the
/// parent that it came from. So no depth is too deep.
pub(crate) fn measure(top: OwnedFd) -> Result<DiskUsage, Errno> {
    let mut usage = DiskUsage::default();
    let mut seen = HashSet::new();
    let mut levels = vec![look(top.as_fd(), &mut usage, &mut seen)?];
    let mut current = top;
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.below.pop() {
            match enter(current.as_fd(), &name) {
                Ok(child) => {
                    levels.push(look(child.as_fd(), &mut usage, &mut seen)?);
                    current = child;
                }
                Err(Errno::ACCESS | Errno::XDEV) => usage.unreadable += 1,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(errno),
            }
            continue;
        }
        levels.pop();
        if let Some(above) = levels.last() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let parent = rustix::fs::openat(&current, "..", flags, Mode::empty())?;
            if identity(&rustix::fs::fstat(&parent)?) != above.identity {
                return Err(Errno::AGAIN);
            }
            current = parent;
        }
    }
    Ok(usage)
}

fn enter(parent: BorrowedFd<'_>, name: &CString) -> Result<OwnedFd, Errno> {
    let child = open_directory(parent, name, OFlags::RDONLY)?;
    // Without this right nothing in it can be examined, nor the way back be found.
    rustix::fs::accessat(&child, ".", Access::EXEC_OK, AtFlags::EACCESS)?;
    Ok(child)
}

fn look(
    directory: BorrowedFd<'_>,
    usage: &mut DiskUsage,
    seen: &mut HashSet<(u64, u64)>,
) -> Result<Level, Errno> {
    let facts = rustix::fs::fstat(directory)?;
    let mut level = Level {
        identity: identity(&facts),
        below: Vec::new(),
    };
    // A directory's own room is counted with its parent's entries, the top's here.
    if usage.entries == 0 {
        count(&facts, usage);
    }
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_dots(name) {
            continue;
        }
        let facts = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        if FileType::from_raw_mode(facts.st_mode) == FileType::Directory {
            count(&facts, usage);
            level.below.push(name.to_owned());
        } else if facts.st_nlink <= 1 || seen.insert(identity(&facts)) {
            count(&facts, usage);
        }
    }
    Ok(level)
}

fn count(facts: &Stat, usage: &mut DiskUsage) {
    let blocks = u64::try_from(facts.st_blocks).unwrap_or(0);
    usage.bytes += blocks.saturating_mul(BLOCK_BYTES);
    usage.entries += 1;
}

fn identity(facts: &Stat) -> (u64, u64) {
    (facts.st_dev, facts.st_ino)
}
