use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_model::RunId;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use crate::lock::{LockFault, lock_now, wait_for_lock};
use crate::state::OPEN_RUNS;
use crate::{FileFault, LedgerError, StateDir};

/// The longest wait of a marker's maker, milliseconds, for a process that saw the marker before it
/// was locked and checks whether it was left behind.
const MARK_WAIT_MS_MAX: u64 = 100;
/// The most times that a marker is made again after such a process has removed it.
const MARK_ATTEMPTS_MAX: u32 = 100;
const MARKER_BYTES_MAX: usize = 256;
/// The line of a run whose program has ended.
const ENDING: &str = "ending\n";
/// The line of a session of calls.
const CALLS: &str = "calls\n";

/// The directory `open`: one marker file for each living run, locked by the
/// process that carries the run. The kernel drops the lock with the process, so
/// a marker without a lock is a run that nobody closed.
#[derive(Debug)]
pub struct OpenRuns {
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

/// A session of calls of this process, until it is dropped.
#[derive(Debug)]
pub struct OpenCalls(pub(crate) Option<Marker>);

impl Drop for OpenCalls {
    fn drop(&mut self) {
        if let Some(marker) = self.0.take() {
            // What stays is removed by the next process that looks.
            let _ = marker.remove();
        }
    }
}

/// The process that carries a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carrier {
    pub(crate) number: Pid,
    /// The time at which it began, ticks since boot: its PID alone can be another process's by now
    /// (proc_pid_stat(5)).
    began: u64,
    /// True if the run's program has ended.
    pub(crate) is_ending: bool,
    /// True if it is no run, but a session of calls.
    pub(crate) is_of_calls: bool,
}

impl Carrier {
    fn own() -> Option<Self> {
        let number = getpid();
        Some(Self {
            number,
            began: began(number)?,
            is_ending: false,
            is_of_calls: false,
        })
    }

    #[cfg(test)]
    pub(crate) fn own_start() -> u64 {
        Self::own().map_or(0, |own| own.began)
    }

    #[cfg(test)]
    pub(crate) fn start_of(number: u32) -> u64 {
        let number = Pid::from_raw(number.cast_signed());
        number.and_then(began).unwrap_or(0)
    }

    fn line(&self) -> String {
        format!("{} {}\n", self.number.as_raw_nonzero(), self.began)
    }

    /// Parses a marker: its second line, and whether another one follows.
    fn read(text: &str) -> Option<Self> {
        let mut lines = text.split_inclusive('\n').skip(1);
        let (number, began) = lines.next()?.strip_suffix('\n')?.split_once(' ')?;
        let note = lines.next();
        let number = number.parse().ok().filter(|number| *number > 0);
        Some(Self {
            number: number.and_then(Pid::from_raw)?,
            began: began.parse().ok()?,
            is_ending: note == Some(ENDING),
            is_of_calls: note == Some(CALLS),
        })
    }

    /// Returns whether the process with this PID is still the same.
    pub(crate) fn is_there(&self) -> bool {
        began(self.number) == Some(self.began)
    }
}

fn began(number: Pid) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{}/stat", number.as_raw_nonzero())).ok()?;
    // The name can hold anything: it ends with the last bracket.
    let stat = String::from_utf8_lossy(&stat);
    let (_, fields) = stat.rsplit_once(')')?;
    fields
        .split_ascii_whitespace()
        .nth(BEGAN)
        .and_then(|began| began.parse().ok())
}

/// The index of the start time in a line of `stat`, counted from the field after the name.
const BEGAN: usize = 19;

impl OpenRuns {
    /// Opens the directory, and makes it where it is missing.
    ///
    /// # Errors
    /// [`FileFault`].
    pub fn open(state: &StateDir) -> Result<Self, FileFault> {
        Ok(Self {
            path: state.path().join(OPEN_RUNS),
            directory: Arc::new(state.subdirectory(OPEN_RUNS, true)?),
        })
    }

    /// Makes and locks the marker of a run that is about to be recorded. `start` is the earliest
    /// place of its events: segment and offset.
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
                let carrier = Carrier::own().map_or(String::new(), |own| own.line());
                let content = format!("{} {}\n{carrier}", start.0, start.1);
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

    /// Returns whether a living process holds the marker of this run.
    ///
    /// # Errors
    /// [`FileFault`] where its marker cannot be looked at.
    pub fn is_alive(&self, run: &RunId) -> Result<bool, FileFault> {
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

    /// Returns the process that carries a run, as its marker names it; `None` if there is no
    /// marker, or it is of an Atoll that did not write this yet.
    pub(crate) fn carrier(&self, run: &RunId) -> Result<Option<Carrier>, FileFault> {
        let path = self.path.join(run.as_str());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::openat(&self.directory, run.as_str(), flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            opened => {
                let file = opened.map_err(FileFault::on("open", &path))?;
                let text = self.marker(run, file).text()?;
                Ok(Carrier::read(&text))
            }
        }
    }

    /// Returns the earliest place at which a run's events can begin: segment and offset. `None` if
    /// the run has no marker, or has not been recorded yet.
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

    /// Lists the runs that have a marker.
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

    /// Returns the earliest place at which the run's events can begin: segment and offset. `None`
    /// if the marker was never written, and so the run never recorded.
    pub(crate) fn start(&self) -> Result<Option<(u32, u64)>, FileFault> {
        let text = self.text()?;
        if text.is_empty() {
            return Ok(None);
        }
        let numbers = text.split_once('\n').and_then(|(line, _)| {
            let (segment, offset) = line.split_once(' ')?;
            Some((segment.parse().ok()?, offset.parse().ok()?))
        });
        // What cannot be read says nothing about where to begin.
        Ok(Some(numbers.unwrap_or((0, 0))))
    }

    /// Notes that the program has ended: the rest of the end takes a while, and is not to be
    /// interrupted.
    pub(crate) fn note_ending(&self) -> Result<(), FileFault> {
        self.note(ENDING)
    }

    /// Notes that this is no run, but a session of calls.
    pub(crate) fn note_calls(&self) -> Result<(), FileFault> {
        self.note(CALLS)
    }

    fn note(&self, line: &str) -> Result<(), FileFault> {
        let facts = rustix::fs::fstat(&self.file).map_err(FileFault::on("examine", &self.path))?;
        let end = u64::try_from(facts.st_size).unwrap_or(0);
        let noted = self.file.write_all_at(line.as_bytes(), end);
        noted.map_err(FileFault::on("write", &self.path))
    }

    fn text(&self) -> Result<String, FileFault> {
        let mut bytes = [0_u8; MARKER_BYTES_MAX];
        let count = self
            .file
            .read_at(&mut bytes, 0)
            .map_err(FileFault::on("read", &self.path))?;
        let text = bytes.get(..count).unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
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
