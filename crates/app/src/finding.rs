//! Which run is meant. `last` is the run that was started last, for every command and
//! whatever became of it: never an older one that happens to be kept.

use atoll_model::RunId;
use atoll_store::{Ledger, RunError, RunRecord, RunState, StateDir, find_run, list_runs};

use crate::arguments::RUN_LAST;
use crate::failure::{Doing, Failure};

/// How much of the ledger's end is looked through.
const EVENTS_MAX: usize = 2_000;

/// Finds a run of which something is kept.
///
/// # Errors
/// When there is none, or the last one is gone: then with the newest that is left.
pub fn find(state: &StateDir, text: &str) -> Result<RunId, Failure> {
    if is_last(text)
        && let Some(run) = last(state)?
    {
        // A record that is there and cannot be read is an error of its own.
        return if state.run_dir(&run).exists() {
            Ok(run)
        } else {
            Err(gone(state, &run, true))
        };
    }
    find_run(state, text).map_err(|error| match known(state, text, &error) {
        Some(run) => gone(state, &run, false),
        None => Failure::new("there is no such run")
            .because(error)
            .advise("atoll runs lists them"),
    })
}

/// The run of the ledger that is meant where none of the kept ones is.
fn known(state: &StateDir, text: &str, error: &RunError) -> Option<RunId> {
    let wanted = text.trim().to_ascii_lowercase();
    if wanted.is_empty() || !matches!(error, RunError::NoRuns | RunError::NoMatch { .. }) {
        return None;
    }
    let events = Ledger::tail(state, EVENTS_MAX).ok()?.filter_map(Result::ok);
    let runs = events.filter_map(|event| event.run);
    let is_meant =
        |run: &RunId| run.as_str().starts_with(&wanted) || run.as_str().ends_with(&wanted);
    runs.filter(is_meant).last()
}

/// Finds a run that may live on in the ledger only: discarded, or refused.
///
/// # Errors
/// When there is none.
pub fn find_in_ledger(state: &StateDir, text: &str) -> Result<RunId, Failure> {
    if let Ok(run) = RunId::parse(text) {
        return Ok(run);
    }
    let found = if is_last(text) {
        last(state)?
    } else {
        let opened = Ledger::tail(state, EVENTS_MAX).doing("the ledger cannot be read")?;
        let known = opened.filter_map(Result::ok).filter_map(|event| event.run);
        known
            .filter(|run| !text.is_empty() && run.as_str().contains(text))
            .last()
    };
    found.map_or_else(|| find(state, text), Ok)
}

fn is_last(text: &str) -> bool {
    text.trim().eq_ignore_ascii_case(RUN_LAST)
}

/// The run started last, by the ledger.
fn last(state: &StateDir) -> Result<Option<RunId>, Failure> {
    let events = Ledger::tail(state, EVENTS_MAX).doing("the ledger cannot be read")?;
    let started = events
        .filter_map(Result::ok)
        .filter(|event| event.kind == "run.opened");
    Ok(started.filter_map(|event| event.run).last())
}

fn gone(state: &StateDir, run: &RunId, is_last: bool) -> Failure {
    let mut became = "was discarded";
    for event in Ledger::tail(state, EVENTS_MAX).into_iter().flatten() {
        match event {
            Ok(event) if event.run.as_ref() == Some(run) => match event.kind.as_str() {
                "run.collected" => became = "was removed by atoll gc",
                "run.denied" => became = "was denied",
                "run.failed" => became = "could not be carried out",
                "run.interrupted" => became = "was interrupted before anything was kept of it",
                _ => {}
            },
            _ => {}
        }
    }
    let what = match is_last {
        true => format!("the last run, {run}, {became}"),
        false => format!("run {run} {became}"),
    };
    let failure = Failure::new(what)
        .because("nothing of it is left but the ledger's record")
        .advise(format!("atoll why {run} tells its story"));
    match newest_with_changes(state) {
        Some(other) => failure.advise(format!(
            "the newest run that still holds changes is {other}: atoll diff {other}"
        )),
        None => failure.advise("atoll runs lists those that are left"),
    }
}

fn newest_with_changes(state: &StateDir) -> Option<RunId> {
    let holds = |record: &RunRecord| {
        let is_open = matches!(
            record.state,
            RunState::Kept | RunState::PartlyApplied | RunState::Interrupted
        );
        let counts = record.changes;
        is_open && counts.is_none_or(|it| it.added + it.changed + it.removed > 0)
    };
    let records = list_runs(state).ok()?.records;
    let found = records.into_iter().find(holds)?;
    Some(found.run)
}
