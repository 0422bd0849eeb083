use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use atoll_ledger::lock::{lock_now, open_lock, wait_for_lock};
use atoll_ledger::state::RUNS;
use atoll_ledger::{Durability, FileFault, StateDir};
use atoll_model::RunId;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;

use crate::record::RECORD_VERSION;
use crate::record_file::{self, NEW_RECORD, RECORD, RecordFault, replace};
use crate::{RunError, RunRecord};

/// The largest record, bytes.
const RECORD_BYTES_MAX: u64 = 8 << 20;
/// The longest wait of a record's change for another change of it, milliseconds.
const UPDATE_WAIT_MS_MAX: u64 = 10_000;
/// The most runs that an error names.
const CANDIDATES_MAX: usize = 5;

const RUN_LOCK: &str = "lock";
const OPEN_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW);

/// The records of runs, newest first, and the runs whose record cannot be read.
#[derive(Debug, Default)]
pub struct RunList {
    /// The records, newest first.
    pub records: Vec<RunRecord>,
    /// The runs that cannot be read, with the reasons.
    pub broken: Vec<(RunId, RunError)>,
}

/// The right to work on a run's changes, for one process at a time; ends when
/// dropped.
#[derive(Debug)]
pub struct RunLock {
    run: RunId,
    _file: File,
}

impl RunLock {
    /// Returns the locked run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }
}

/// The length of the part of a run's name that encodes the second of its start, bytes.
const SECOND_BYTES: usize = 13;

/// Makes a run's directory (mode 0700) and its record.
///
/// # Errors
/// [`RunError::Exists`], or [`RunError::File`].
pub fn create_run(state: &StateDir, record: &RunRecord) -> Result<(), RunError> {
    let runs = state.subdirectory(RUNS, true)?;
    let path = state.run_dir(&record.run);
    match rustix::fs::mkdirat(&runs, record.run.as_str(), Mode::RWXU) {
        Err(Errno::EXIST) => return Err(RunError::Exists(record.run.clone())),
        other => other.map_err(FileFault::on("create", &path))?,
    }
    let directory = open_run(state, &runs, &record.run)?;
    let written = write_record(state, &directory, record, Durability::Buffered);
    if written.is_err() {
        // What is left is an empty run, which would only puzzle.
        for name in [NEW_RECORD, RECORD] {
            let _ = rustix::fs::unlinkat(&directory, name, AtFlags::empty());
        }
        let _ = rustix::fs::unlinkat(&runs, record.run.as_str(), AtFlags::REMOVEDIR);
    }
    written
}

/// Reads a run's record.
///
/// # Errors
/// [`RunError`] when it is missing, not readable, or of a newer version.
pub fn load_run(state: &StateDir, run: &RunId) -> Result<RunRecord, RunError> {
    let runs = existing_runs(state)?.ok_or_else(|| RunError::Missing(run.clone()))?;
    read_record(state, &open_run(state, &runs, run)?, run)
}

/// Changes a run's record: reads it, lets `change` edit it, and replaces the file
/// in one step. Two changes at once happen one after the other. `Durable` waits
/// until the new record is on disk.
///
/// # Errors
/// [`RunError`]; the record is what it was then.
pub fn update_run(
    state: &StateDir,
    run: &RunId,
    durability: Durability,
    change: impl FnOnce(&mut RunRecord),
) -> Result<RunRecord, RunError> {
    let runs = existing_runs(state)?.ok_or_else(|| RunError::Missing(run.clone()))?;
    let directory = open_run(state, &runs, run)?;
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    let path = state.run_dir(run);
    wait_for_lock(&directory, &path, exclusive, UPDATE_WAIT_MS_MAX)?;
    let mut record = read_record(state, &directory, run)?;
    change(&mut record);
    write_record(state, &directory, &record, durability)?;
    if durability == Durability::Durable {
        rustix::fs::fsync(&runs).map_err(FileFault::on("write", state.path().join(RUNS)))?;
    }
    Ok(record)
}

/// Reads all records.
///
/// # Errors
/// [`RunError::File`] when the directory of runs cannot be read.
pub fn list_runs(state: &StateDir) -> Result<RunList, RunError> {
    let mut list = RunList::default();
    let Some(runs) = existing_runs(state)? else {
        return Ok(list);
    };
    for run in run_names(state, &runs)? {
        let read =
            open_run(state, &runs, &run).and_then(|directory| read_record(state, &directory, &run));
        match read {
            Ok(record) => list.records.push(record),
            Err(error) => list.broken.push((run, error)),
        }
    }
    // Names tell the second; runs of one second follow each other too.
    let second = |run: &RunId| {
        run.as_str()
            .get(..SECOND_BYTES)
            .unwrap_or_default()
            .to_owned()
    };
    list.records.sort_by(|left, right| {
        let later = (second(&right.run), right.started_at_ms, &right.run);
        later.cmp(&(second(&left.run), left.started_at_ms, &left.run))
    });
    Ok(list)
}

/// Finds the one run that is meant by its name, the begin or the end of its name,
/// or `last` for the newest.
///
/// # Errors
/// [`RunError::NoRuns`], [`RunError::NoMatch`] or [`RunError::Ambiguous`], with
/// the runs that could be meant.
pub fn find_run(state: &StateDir, text: &str) -> Result<RunId, RunError> {
    let runs = existing_runs(state)?.ok_or(RunError::NoRuns)?;
    let names = run_names(state, &runs)?;
    let newest = names.first().ok_or(RunError::NoRuns)?;
    let wanted = text.trim().to_ascii_lowercase();
    if wanted == "last" {
        return Ok(started_last(state, &names, newest));
    }
    let matching: Vec<RunId> = names
        .iter()
        .filter(|run| {
            let name = run.as_str();
            !wanted.is_empty() && (name.starts_with(&wanted) || name.ends_with(&wanted))
        })
        .cloned()
        .collect();
    match matching.as_slice() {
        [run] => Ok(run.clone()),
        [] => Err(RunError::NoMatch {
            text: text.to_owned(),
            candidates: names.into_iter().take(CANDIDATES_MAX).collect(),
        }),
        several => Err(RunError::Ambiguous {
            text: text.to_owned(),
            count: several.len(),
            candidates: several.iter().take(CANDIDATES_MAX).cloned().collect(),
        }),
    }
}

/// Takes the right to work on a run's changes, or fails at once with the process that has it.
///
/// # Errors
/// [`RunError::Locked`], [`RunError::Missing`] or [`RunError::File`].
pub fn lock_run(state: &StateDir, run: &RunId) -> Result<RunLock, RunError> {
    let runs = existing_runs(state)?.ok_or_else(|| RunError::Missing(run.clone()))?;
    let directory = open_run(state, &runs, run)?;
    let path = state.run_dir(run);
    let file = File::from(open_lock(&directory, &path, RUN_LOCK)?);
    let path = path.join(RUN_LOCK);
    if !lock_now(&file, &path, FlockOperation::NonBlockingLockExclusive)? {
        let mut text = String::new();
        let _ = (&file).take(16).read_to_string(&mut text);
        return Err(RunError::Locked {
            run: run.clone(),
            holder: text.trim().parse().ok(),
        });
    }
    // Someone may have removed the run between the opening and the locking.
    let inode = file
        .metadata()
        .map_err(FileFault::on("examine", &path))?
        .ino();
    match path.symlink_metadata() {
        Ok(facts) if facts.ino() == inode => {}
        Ok(_) | Err(_) => return Err(RunError::Missing(run.clone())),
    }
    let process = format!("{}\n", std::process::id());
    let noted = file
        .set_len(0)
        .and_then(|()| file.write_all_at(process.as_bytes(), 0))
        .map_err(FileFault::on("write", &path));
    match noted {
        // The lock holds without it; and on a full disk runs can be removed.
        Err(fault) if fault.is_out_of_space() => {}
        other => other?,
    }
    Ok(RunLock {
        run: run.clone(),
        _file: file,
    })
}

/// Opens the directory of runs; `None` before the first run.
pub(crate) fn existing_runs(state: &StateDir) -> Result<Option<OwnedFd>, RunError> {
    match state.subdirectory(RUNS, false) {
        Ok(runs) => Ok(Some(runs)),
        Err(fault) if fault.is_not_found() => Ok(None),
        Err(fault) => Err(fault.into()),
    }
}

/// Lists the names of all runs, newest first.
pub(crate) fn run_names(state: &StateDir, runs: impl AsFd) -> Result<Vec<RunId>, RunError> {
    let path = state.path().join(RUNS);
    let mut names = Vec::new();
    for entry in Dir::read_from(runs).map_err(FileFault::on("list", &path))? {
        let entry = entry.map_err(FileFault::on("list", &path))?;
        let name = entry.file_name().to_str().ok();
        names.extend(name.and_then(|name| RunId::parse(name).ok()));
    }
    names.sort_unstable_by(|left: &RunId, right| right.cmp(left));
    Ok(names)
}

pub(crate) fn open_run(
    state: &StateDir,
    runs: impl AsFd,
    run: &RunId,
) -> Result<OwnedFd, RunError> {
    match rustix::fs::openat(runs, run.as_str(), OPEN_DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => Err(RunError::Missing(run.clone())),
        opened => Ok(opened.map_err(FileFault::on("open", state.run_dir(run)))?),
    }
}

fn read_record(state: &StateDir, directory: impl AsFd, run: &RunId) -> Result<RunRecord, RunError> {
    let path = state.run_dir(run).join(RECORD);
    let unreadable = |why: String| of_record(run, RecordFault::Unreadable(why));
    let read = record_file::read(directory, RECORD, (&path, RECORD_BYTES_MAX));
    let value = read.map_err(|fault| of_record(run, fault))?;
    let value = value.ok_or_else(|| unreadable("there is no record.json".to_owned()))?;
    match value.get("v").and_then(Value::as_u64) {
        Some(v) if v > u64::from(RECORD_VERSION) => {
            return Err(RunError::Newer {
                run: run.clone(),
                v,
            });
        }
        Some(_) | None => {}
    }
    let record: RunRecord =
        serde_json::from_value(value).map_err(|error| unreadable(error.to_string()))?;
    if record.run != *run {
        return Err(unreadable(format!(
            "it is the record of run {}",
            record.run
        )));
    }
    Ok(record)
}

fn of_record(run: &RunId, fault: RecordFault) -> RunError {
    match fault {
        RecordFault::File(fault) => fault.into(),
        RecordFault::Unreadable(why) => RunError::Unreadable {
            run: run.clone(),
            why,
        },
    }
}

fn write_record(
    state: &StateDir,
    directory: impl AsFd,
    record: &RunRecord,
    durability: Durability,
) -> Result<(), RunError> {
    let path = state.run_dir(&record.run).join(RECORD);
    replace(directory.as_fd(), &path, record, durability)
        .map_err(|fault| of_record(&record.run, fault))
}

/// Returns the run that was started last, by the records of the runs of the newest second: names
/// have no finer time.
fn started_last(state: &StateDir, names: &[RunId], newest: &RunId) -> RunId {
    const SECOND_DIGITS: usize = "YYMMDD-HHMMSS".len();
    let second = newest.as_str().get(..SECOND_DIGITS).unwrap_or_default();
    let mut same = names
        .iter()
        .take_while(|run| run.as_str().starts_with(second))
        .peekable();
    let first = same.next();
    match (first, same.peek()) {
        (Some(_), Some(_)) => names
            .iter()
            .take_while(|run| run.as_str().starts_with(second))
            .max_by_key(|run| {
                load_run(state, run).map_or((0, *run), |record| (record.started_at_ms, *run))
            })
            .unwrap_or(newest)
            .clone(),
        _ => newest.clone(),
    }
}
