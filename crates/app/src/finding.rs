//! Which run is meant. `last` is the run that was started last, for every command and
//! whatever became of it: never an older one that happens to be kept.

use atoll_model::RunId;
use atoll_store::{Event, Ledger, RunError, RunRecord, RunState, StateDir, find_run, list_runs};

use crate::arguments::RUN_LAST;
use crate::escape::printable;
use crate::failure::{Doing, Failure};

/// How many events at the ledger's end are looked through, one after the other until what is
/// wanted is among them: a single run can have written any number.
const EVENTS: [usize; 4] = [100, 2_000, 100_000, usize::MAX];
/// How many runs an error names.
const NAMED_MAX: usize = 5;

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
    let is_meant = |event: &Event| {
        let run = event.run.as_ref().map(RunId::as_str);
        run.is_some_and(|run| run.starts_with(&wanted) || run.ends_with(&wanted))
    };
    newest(state, is_meant).ok()?
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
        let contains = |run: &RunId| !text.is_empty() && run.as_str().contains(text);
        newest(state, |event| event.run.as_ref().is_some_and(contains))?
    };
    if let Some(run) = found {
        return Ok(run);
    }
    find(state, text).map_err(|failure| match newest_begun(state).as_slice() {
        [] => failure,
        newest => {
            let named: Vec<&str> = newest.iter().map(RunId::as_str).collect();
            let shown = printable(text.as_bytes());
            failure.because(format!(
                "no run of the ledger is called {shown}; the newest are {}",
                named.join(", ")
            ))
        }
    })
}

/// The runs that began last, by the ledger, the newest first: kept, denied or thrown away.
fn newest_begun(state: &StateDir) -> Vec<RunId> {
    let mut begun = Vec::new();
    for count in EVENTS {
        let Ok(events) = Ledger::tail(state, count) else {
            break;
        };
        let opened = events.filter_map(Result::ok);
        let opened = opened.filter(|event| event.kind == "run.opened");
        begun = opened.filter_map(|event| event.run).collect();
        if begun.len() >= NAMED_MAX {
            break;
        }
    }
    begun.into_iter().rev().take(NAMED_MAX).collect()
}

/// Finds a run by its whole id, or the last one, where what is done with it cannot be taken back:
/// one that the ledger knows the beginning of.
///
/// # Errors
/// When there is none.
pub fn find_begun(state: &StateDir, text: &str) -> Result<RunId, Failure> {
    let run = match is_last(text) {
        true => last(state)?,
        false => RunId::parse(text.trim()).ok(),
    };
    let unknown = |why: &str| {
        let shown = printable(text.as_bytes());
        Failure::new(format!("there is no session and no run {shown}"))
            .because(why)
            .advise("atoll runs and atoll sessions list them")
    };
    let run = run.ok_or_else(|| unknown("a run is named by its whole id here, or by last"))?;
    for event in Ledger::show(state, &run).doing("the ledger cannot be read")? {
        let event = event.doing("the ledger is damaged there; atoll ledger verify tells more")?;
        if event.kind == "run.opened" {
            return Ok(run);
        }
    }
    Err(unknown("the ledger knows no beginning of it"))
}

fn is_last(text: &str) -> bool {
    text.trim().eq_ignore_ascii_case(RUN_LAST)
}

/// The run started last, by the ledger.
fn last(state: &StateDir) -> Result<Option<RunId>, Failure> {
    newest(state, |event| event.kind == "run.opened")
}

/// The run of the newest event that is meant.
fn newest(state: &StateDir, is_meant: impl Fn(&Event) -> bool) -> Result<Option<RunId>, Failure> {
    for count in EVENTS {
        let events = Ledger::tail(state, count).doing("the ledger cannot be read")?;
        let meant = events
            .filter_map(Result::ok)
            .filter(|event| is_meant(event));
        if let Some(run) = meant.filter_map(|event| event.run).last() {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

fn gone(state: &StateDir, run: &RunId, is_last: bool) -> Failure {
    let mut became = "was discarded";
    for event in Ledger::show(state, run).into_iter().flatten().flatten() {
        match event.kind.as_str() {
            "run.collected" => became = "was removed by atoll gc",
            "run.denied" => became = "was denied",
            "run.failed" => became = "could not be carried out",
            "run.interrupted" => became = "was interrupted before anything was kept of it",
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
