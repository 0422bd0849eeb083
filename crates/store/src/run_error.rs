use std::path::PathBuf;

use atoll_ledger::FileFault;
use atoll_ledger::lock::LockFault;
use atoll_model::RunId;

use crate::record::RECORD_VERSION;

/// An operation on the files of a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kernel refused a file operation.
    #[error(transparent)]
    File(#[from] FileFault),
    /// There are no files of that run.
    #[error("there is no run {0}; see `atoll runs`")]
    Missing(RunId),
    /// There are files of that run already.
    #[error("there is a run {0} already; start again to get another name")]
    Exists(RunId),
    /// The file is not a record.
    #[error("the record of run {run} cannot be read: {why}")]
    Unreadable {
        /// The run.
        run: RunId,
        /// The fault that was found.
        why: String,
    },
    /// A newer Atoll wrote the record.
    #[error(
        "the record of run {run} has version {v}, and this Atoll reads version {RECORD_VERSION}; \
         use the Atoll that wrote it, or a newer one"
    )]
    Newer {
        /// The run.
        run: RunId,
        /// The record's version.
        v: u64,
    },
    /// There are no runs at all.
    #[error("there are no runs")]
    NoRuns,
    /// No run's name begins or ends like that.
    #[error("no run is called {text:?}; the newest are {}", names(candidates))]
    NoMatch {
        /// The text that was given as a run's name.
        text: String,
        /// The newest runs.
        candidates: Vec<RunId>,
    },
    /// Several runs' names begin or end like that.
    #[error("{text:?} could be any of {count} runs: {}", names(candidates))]
    Ambiguous {
        /// The text that was given as a run's name.
        text: String,
        /// The number of runs that it matches.
        count: usize,
        /// The newest of them.
        candidates: Vec<RunId>,
    },
    /// Another process works on the run's changes.
    #[error(
        "run {run} is in use by another Atoll process{}; wait for it to end",
        holder.map_or(String::new(), |process| format!(" (process {process})"))
    )]
    Locked {
        /// The run.
        run: RunId,
        /// The PID of that process, if known.
        holder: Option<u32>,
    },
    /// The run has not ended.
    #[error("run {0} has not ended; stop it first")]
    Alive(RunId),
    /// A record is being changed for an unusually long time.
    #[error("waited {waited_ms} ms for {}: another Atoll process holds it", path.display())]
    Busy {
        /// The locked file.
        path: PathBuf,
        /// The time that was waited, milliseconds.
        waited_ms: u128,
    },
    /// Something is mounted within a run's directory; it is left as it is.
    #[error("something is mounted at {}; unmount it, then try again", .0.display())]
    Mounted(PathBuf),
    /// The run has changed since the plan was made.
    #[error("run {0} has changed since; look again")]
    Changed(RunId),
}

fn names(runs: &[RunId]) -> String {
    let names: Vec<&str> = runs.iter().map(RunId::as_str).collect();
    names.join(", ")
}

impl From<LockFault> for RunError {
    fn from(fault: LockFault) -> Self {
        match fault {
            LockFault::File(fault) => Self::File(fault),
            LockFault::TimedOut { path, waited_ms } => Self::Busy { path, waited_ms },
        }
    }
}
