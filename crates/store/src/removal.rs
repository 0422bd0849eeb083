use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use atoll_ledger::state::RUNS;
use atoll_ledger::{FileFault, OpenRuns, StateDir};
use atoll_model::RunId;
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use crate::RunError;
use crate::runs::{RunLock, existing_runs, lock_run};
use crate::tree::delete_tree;

/// The prefix of a run's directory while it is being deleted.
const REMOVED: &str = ".removed-";

/// Deletes all files of a run, except what is in the ledger. It disappears from lists at once, also
/// if the deletion is interrupted.
///
/// # Errors
/// [`RunError::Alive`], [`RunError::Locked`], [`RunError::Missing`],
/// [`RunError::Mounted`] or [`RunError::File`].
pub fn remove_run(state: &StateDir, run: &RunId) -> Result<(), RunError> {
    remove_run_if(state, run, || Ok::<(), Infallible>(())).map(|_| ())
}

/// Removes a run, unless `look` refuses it. `look` runs while nobody else can work on the run's
/// changes: the state that it has seen lasts until the run is gone. A refusal is the inner error,
/// and leaves everything as it is.
///
/// # Errors
/// Those of [`remove_run`].
pub fn remove_run_if<E>(
    state: &StateDir,
    run: &RunId,
    look: impl FnOnce() -> Result<(), E>,
) -> Result<Result<(), E>, RunError> {
    let (removal, looked) = Removal::begin(state, run, look)?;
    Ok(match looked {
        Ok(()) => Ok(removal.finish()?),
        Err(refusal) => Err(refusal),
    })
}

/// The removal of a run on whose changes nobody else can work.
pub(crate) struct Removal<'a> {
    state: &'a StateDir,
    runs: OwnedFd,
    alone: RunLock,
}

impl<'a> Removal<'a> {
    /// Locks a run, and looks at it then.
    pub fn begin<T>(
        state: &'a StateDir,
        run: &RunId,
        look: impl FnOnce() -> T,
    ) -> Result<(Self, T), RunError> {
        let open_runs = OpenRuns::open(state)?;
        if open_runs.is_alive(run)? {
            return Err(RunError::Alive(run.clone()));
        }
        let runs = existing_runs(state)?.ok_or_else(|| RunError::Missing(run.clone()))?;
        let alone = lock_run(state, run)?;
        let looked = look();
        Ok((Self { state, runs, alone }, looked))
    }

    pub fn finish(self) -> Result<(), RunError> {
        let Self { state, runs, alone } = self;
        let run = alone.run();
        let removed = format!("{REMOVED}{run}");
        let rename = || {
            let flags = RenameFlags::NOREPLACE;
            rustix::fs::renameat_with(&runs, run.as_str(), &runs, &*removed, flags)
        };
        let renamed = match rename() {
            Err(Errno::EXIST | Errno::NOTEMPTY) => {
                delete_leftover(state, &runs, &removed)?;
                rename()
            }
            other => other,
        };
        renamed.map_err(FileFault::on("remove", state.run_dir(run)))?;
        delete_leftover(state, &runs, &removed)
    }
}

/// Deletes the leftover of an interrupted deletion.
pub(crate) fn delete_leftover(
    state: &StateDir,
    runs: impl AsFd,
    name: &str,
) -> Result<(), RunError> {
    let path = state.path().join(RUNS).join(name);
    match CString::new(name) {
        Ok(name) => delete_tree(runs, &name, &path),
        Err(_) => Ok(()),
    }
}

pub(crate) fn is_leftover(name: &str) -> bool {
    name.strip_prefix(REMOVED)
        .is_some_and(|run| RunId::parse(run).is_ok())
}

/// Returns whether an entry of the directory of runs is gone.
pub(crate) fn is_gone(runs: impl AsFd, name: &str) -> bool {
    matches!(
        rustix::fs::statat(runs, name, AtFlags::SYMLINK_NOFOLLOW),
        Err(Errno::NOENT)
    )
}
