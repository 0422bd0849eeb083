use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_model::RunId;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::lock::{LockFault, lock_now, wait_for_lock};
use crate::state::OPEN_RUNS;
use crate::{FileFault, LedgerError, StateDir};

/// How long the maker of a marker waits for a process that, having seen it before
/// it was locked, looks whether it is a forgotten one, milliseconds.
const MARK_WAIT_MS_MAX: u64 = 100;
/// How often a marker is made again after such a process has removed it.
const MARK_ATTEMPTS_MAX: u32 = 100;
const MARKER_BYTES_MAX: usize = 64;

/// The directory `open`: one marker file for each living run, locked by the
/// process that carries the run. The kernel drops the lock with the process, so
/// a marker without a lock is a run that nobody closed.
#[derive(Debug)]
pub(crate) struct OpenRuns {
    path: PathBuf,
    directory: Arc<OwnedFd>,
}

/// The marker of one run, locked by this process.
#[derive(Debug)]
pub(crate) struct Marker {
    run: RunId,
    path: PathBuf,
    directory: Arc<OwnedFd>,
    file: File,
}

impl OpenRuns {
    pub(crate) fn open(state: &StateDir) -> Result<Self, FileFault> {
        Ok(Self {
            path: state.path().join(OPEN_RUNS),
            directory: Arc::new(state.subdirectory(OPEN_RUNS, true)?),
        })
    }

    /// Makes and locks the marker of a run that is about to be recorded. `start`
    /// is where its events cannot be before: segment and offset.
    pub(crate) fn mark(&self, run: &RunId, start: (u32, u64)) -> Result<Marker, LedgerError> {
        let path = self.path.join(run.as_str());
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        for _ in 0..MARK_ATTEMPTS_MAX {
            let mode = Mode::RUSR | Mode::WUSR;
            let file = match rustix::fs::openat(&self.directory, run.as_str(), flags, mode) {
                Err(Errno::EXIST) => return Err(LedgerError::RunExists(run.clone())),
                other => other.map_err(FileFault::on("create", &path))?,
            };
            // Only the holder of its lock removes a marker, so it is never removed
            // here, where its name may stand for another file already.
            wait_for_lock(&file, &path, EXCLUSIVE, MARK_WAIT_MS_MAX)?;
            if is_linked(&file, &path)? {
                let marker = self.marker(run, file);
                let content = format!("{} {}\n", start.0, start.1);
                let written = marker.file.write_all_at(content.as_bytes(), 0);
                written.map_err(FileFault::on("write", &path))?;
                return Ok(marker);
            }
        }
        Err(LedgerError::RunExists(run.clone()))
    }

    /// Takes over the marker of a run whose process is gone; `None` when a living
    /// process holds it or it is no longer there.
    pub(crate) fn take_over(&self, run: &RunId) -> Result<Option<Marker>, LedgerError> {
        let path = self.path.join(run.as_str());
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match rustix::fs::openat(&self.directory, run.as_str(), flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(FileFault::on("open", &path))?,
        };
        let ours = lock_now(&file, &path, EXCLUSIVE)? && is_linked(&file, &path)?;
        Ok(ours.then(|| self.marker(run, file)))
    }

    /// Takes over a run whose marker may be missing; `None` when a living process
    /// holds it. A lock that is held only for a look is waited for, because there
    /// is no second chance.
    pub(crate) fn claim(&self, run: &RunId) -> Result<Option<Marker>, LedgerError> {
        let path = self.path.join(run.as_str());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        for _ in 0..MARK_ATTEMPTS_MAX {
            let file = rustix::fs::openat(&self.directory, run.as_str(), flags, mode)
                .map_err(FileFault::on("open", &path))?;
            match wait_for_lock(&file, &path, EXCLUSIVE, MARK_WAIT_MS_MAX) {
                Ok(()) if is_linked(&file, &path)? => return Ok(Some(self.marker(run, file))),
                Ok(()) => {}
                Err(LockFault::TimedOut { .. }) => return Ok(None),
                Err(LockFault::File(fault)) => return Err(fault.into()),
            }
        }
        Ok(None)
    }

    /// Whether a living process holds the marker of this run.
    pub(crate) fn is_alive(&self, run: &RunId) -> Result<bool, FileFault> {
        let path = self.path.join(run.as_str());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::openat(&self.directory, run.as_str(), flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(false),
            opened => {
                let file = opened.map_err(FileFault::on("open", &path))?;
                Ok(!lock_now(&file, &path, EXCLUSIVE)?)
            }
        }
    }

    /// Where a run's events begin at the earliest; nothing where it has no marker, or has not
    /// been recorded yet.
    pub(crate) fn start_of(&self, run: &RunId) -> Result<Option<(u32, u64)>, FileFault> {
        let path = self.path.join(run.as_str());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::openat(&self.directory, run.as_str(), flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            opened => {
                let file = opened.map_err(FileFault::on("open", &path))?;
                self.marker(run, file).start()
            }
        }
    }

    /// The runs that have a marker.
    pub(crate) fn list(&self) -> Result<Vec<RunId>, FileFault> {
        let listing = Dir::read_from(&self.directory).map_err(FileFault::on("list", &self.path))?;
        let mut runs = Vec::new();
        for entry in listing {
            let entry = entry.map_err(FileFault::on("list", &self.path))?;
            let name = entry.file_name().to_str().ok();
            runs.extend(name.and_then(|name| RunId::parse(name).ok()));
        }
        runs.sort_unstable();
        Ok(runs)
    }

    fn marker(&self, run: &RunId, file: OwnedFd) -> Marker {
        Marker {
            run: run.clone(),
            path: self.path.join(run.as_str()),
            directory: Arc::clone(&self.directory),
            file: File::from(file),
        }
    }
}

impl Marker {
    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }

    /// Where the run's events begin at the earliest; `None` when the marker was
    /// never written, and so the run never recorded.
    pub(crate) fn start(&self) -> Result<Option<(u32, u64)>, FileFault> {
        let mut bytes = [0_u8; MARKER_BYTES_MAX];
        let count = self
            .file
            .read_at(&mut bytes, 0)
            .map_err(FileFault::on("read", &self.path))?;
        let text = bytes.get(..count).unwrap_or_default();
        if text.is_empty() {
            return Ok(None);
        }
        let numbers = std::str::from_utf8(text).ok().and_then(|text| {
            let (segment, offset) = text.strip_suffix('\n')?.split_once(' ')?;
            Some((segment.parse().ok()?, offset.parse().ok()?))
        });
        // What cannot be read says nothing about where to begin.
        Ok(Some(numbers.unwrap_or((0, 0))))
    }

    /// Removes the marker, then unlocks it: whoever gets the lock after that sees
    /// that the file is gone.
    pub(crate) fn remove(self) -> Result<(), FileFault> {
        match rustix::fs::unlinkat(&self.directory, self.run.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(FileFault::on("remove", &self.path)(errno)),
        }
    }
}

const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;

fn is_linked(file: impl AsFd, path: &Path) -> Result<bool, FileFault> {
    let facts = rustix::fs::fstat(file).map_err(FileFault::on("examine", path))?;
    Ok(facts.st_nlink > 0)
}
