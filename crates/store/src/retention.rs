use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};

use atoll_ledger::state::RUNS;
use atoll_ledger::{FileFault, StateDir};
use atoll_model::RunId;
use rustix::fs::Dir;

use crate::record_file::RECORD;
use crate::removal::{Removal, delete_leftover, is_gone, is_leftover};
use crate::runs::{existing_runs, load_run};
use crate::{RunError, RunRecord, RunState, list_runs};

/// The most runs that are recorded as removed at once.
const BATCH_RUNS_MAX: usize = 64;

/// The retention times of runs, counted from the last change of their record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectPolicy {
    /// The current time.
    pub now: SystemTime,
    /// The retention of runs whose changes were discarded or undone.
    pub discarded_after: Duration,
    /// The retention of runs whose changes were applied; with them goes the possibility to undo.
    pub applied_after: Duration,
    /// The retention of runs that wait for a decision, were interrupted or failed; `None` keeps
    /// them for ever.
    pub undecided_after: Option<Duration>,
}

/// The runs and leftovers that can be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectPlan {
    /// Runs, newest first.
    pub runs: Vec<Collectable>,
    /// The leftovers of deletions that were cut short.
    pub leftovers: Vec<String>,
}

/// A run that can be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collectable {
    /// The run.
    pub run: RunId,
    /// The state of the run.
    pub state: RunState,
    /// The time since its record last changed.
    pub age: Duration,
    /// The reason why it can be removed.
    pub reason: CollectReason,
}

/// The reason why a run can be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectReason {
    /// The changes were discarded or undone.
    Discarded,
    /// The changes are in the workspace.
    Applied,
    /// The changes have waited for a decision for too long.
    Undecided,
}

/// Finds the runs that can be removed by this policy, and changes nothing. A run whose record
/// cannot be read is never among them.
///
/// # Errors
/// [`RunError::File`].
pub fn plan_collection(state: &StateDir, policy: &CollectPolicy) -> Result<CollectPlan, RunError> {
    let mut plan = CollectPlan::default();
    let Some(runs) = existing_runs(state)? else {
        return Ok(plan);
    };
    for record in list_runs(state)?.records {
        let Some((reason, after)) = retention(record.state, policy) else {
            continue;
        };
        let path = state.run_dir(&record.run).join(RECORD);
        let changed = path
            .symlink_metadata()
            .and_then(|facts| facts.modified())
            .map_err(FileFault::on("examine", &path))?;
        let age = policy.now.duration_since(changed).unwrap_or(Duration::ZERO);
        if age >= after {
            plan.runs.push(Collectable {
                run: record.run,
                state: record.state,
                age,
                reason,
            });
        }
    }
    plan.leftovers = leftovers(state, &runs)?;
    Ok(plan)
}

/// Removes the runs and leftovers in the plan. One that cannot be removed, has changed since the
/// plan was made, or is refused by `may_go` or with others by `record`, is left and returned with
/// the reason; both are called while nobody else can work on the runs' changes. `record` has to
/// record durably that these are removed, of several at once: waiting for the disk takes longer
/// than everything else.
#[must_use]
pub fn collect(
    state: &StateDir,
    plan: &CollectPlan,
    may_go: impl Fn(&RunRecord) -> bool,
    mut record: impl FnMut(&[RunRecord]) -> bool,
) -> Vec<(String, RunError)> {
    let mut failed = Vec::new();
    for batch in plan.runs.chunks(BATCH_RUNS_MAX) {
        let (mut records, mut removals) = (Vec::new(), Vec::new());
        for item in batch {
            let changed = || RunError::Changed(item.run.clone());
            let look = || match load_run(state, &item.run)? {
                record if record.state == item.state && may_go(&record) => Ok(record),
                _ => Err(changed()),
            };
            match Removal::begin(state, &item.run, look) {
                Ok((removal, Ok(record))) => {
                    records.push(record);
                    removals.push(removal);
                }
                Err(error) | Ok((_, Err(error))) => failed.push((item.run.to_string(), error)),
            }
        }
        let is_recorded = records.is_empty() || record(&records);
        for (removal, RunRecord { run, .. }) in removals.into_iter().zip(records) {
            let removed = match is_recorded {
                true => removal.finish(),
                false => Err(RunError::Changed(run.clone())),
            };
            if let Err(error) = removed {
                failed.push((run.to_string(), error));
            }
        }
    }
    for name in &plan.leftovers {
        let deleted = match existing_runs(state) {
            Ok(Some(runs)) if is_leftover(name) && !is_gone(&runs, name) => {
                delete_leftover(state, &runs, name)
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = deleted {
            failed.push((name.clone(), error));
        }
    }
    failed
}

fn retention(state: RunState, policy: &CollectPolicy) -> Option<(CollectReason, Duration)> {
    match state {
        RunState::Running => None,
        RunState::Discarded => Some((CollectReason::Discarded, policy.discarded_after)),
        // What an undo has kept of others' is there as long.
        RunState::Applied | RunState::Undone => {
            Some((CollectReason::Applied, policy.applied_after))
        }
        RunState::Kept | RunState::PartlyApplied | RunState::Interrupted | RunState::Failed => {
            let after = policy.undecided_after?;
            Some((CollectReason::Undecided, after))
        }
    }
}

fn leftovers(state: &StateDir, runs: impl AsFd) -> Result<Vec<String>, RunError> {
    let path = state.path().join(RUNS);
    let mut names = Vec::new();
    for entry in Dir::read_from(runs).map_err(FileFault::on("list", &path))? {
        let entry = entry.map_err(FileFault::on("list", &path))?;
        let name = entry.file_name().to_str().unwrap_or_default();
        if is_leftover(name) {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}
