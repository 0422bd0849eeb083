//! The choice of a run by its name. `last` is the run that was started last in the current
//! directory or one above it, for every command and whatever became of it: never an older one that
//! happens to be kept. Without such a run it is the last one of all, and its workspace is reported.

pub mod sessions;

use std::path::{Path, PathBuf};

use atoll_ledger::{Event, Filter, Ledger, Seals, StateDir, live_runs, read_host_text};
use atoll_model::RunId;
use atoll_store::{RunError, RunRecord, RunState, find_run, list_runs};

use crate::failure::{Doing, Failure};
use crate::printable::printable;

/// The name that means the run started last in the present directory or one above it; where there
/// is none, the one started last of all.
pub const RUN_LAST: &str = "last";
/// The numbers of events at the ledger's end to search, tried one after the other until the event
/// is among them: a single run can have written any number.
const EVENTS: [usize; 4] = [100, 2_000, 100_000, usize::MAX];
/// The numbers of events to search for a run of the current directory: without one there, a run of
/// another directory is taken.
const EVENTS_HERE: [usize; 3] = [100, 2_000, 100_000];
/// The most runs an error names.
const NAMED_MAX: usize = 5;
/// The types of events that begin something with the id of a run.
const BEGINNINGS: [&str; 3] = ["run.opened", "tool.opened", "checkpoint.taken"];

/// The reaction to the run that `last` means, before it is taken: a surface reports one that worked
/// elsewhere, or asks about it.
pub type Taking<'a> = &'a dyn Fn(&Last) -> Result<(), Failure>;

/// Finds a run of which something is kept.
///
/// # Errors
/// When there is none, or the last one is gone: then with the newest that is left; and as `taking`.
pub fn find(state: &StateDir, text: &str, taking: Taking<'_>) -> Result<RunId, Failure> {
    if is_last(text)
        && let Some(last) = last(state, Begun::Alone)?
    {
        taking(&last)?;
        return last.kept(state);
    }
    find_run(state, text).map_err(|error| match known(state, text, &error) {
        Some(run) => gone(state, &run, false),
        None => Failure::new("there is no such run")
            .because(error)
            .advise("atoll runs lists them"),
    })
}

/// Returns whether a workspace is the current directory or above it.
#[must_use]
pub fn is_here(workspace: &Path) -> bool {
    is_above(workspace, here().as_deref())
}

/// Returns whether the current directory is the workspace or in it. A directory that was removed is
/// in none.
fn is_above(workspace: &Path, here: Option<&Path>) -> bool {
    here.is_some_and(|here| here.starts_with(workspace))
}

fn here() -> Option<PathBuf> {
    std::env::current_dir().ok()?.canonicalize().ok()
}

/// The run that `last` means.
#[derive(Clone, Debug)]
pub struct Last {
    /// The run.
    pub run: RunId,
    /// The workspace, if it is another directory; empty if not known.
    pub elsewhere: Option<PathBuf>,
}

impl Last {
    /// Returns the run, if anything of it is kept. An unreadable record is an error of its own.
    fn kept(self, state: &StateDir) -> Result<RunId, Failure> {
        match state.run_dir(&self.run).exists() {
            true => Ok(self.run),
            false => Err(gone(state, &self.run, true)),
        }
    }
}

/// Finds a run in the ledger if none of the kept ones matches.
fn known(state: &StateDir, text: &str, error: &RunError) -> Option<RunId> {
    let wanted = text.trim().to_ascii_lowercase();
    if wanted.is_empty() || !matches!(error, RunError::NoRuns | RunError::NoMatch { .. }) {
        return None;
    }
    let is_meant = |event: &Event| {
        let run = event.run.as_ref().map(RunId::as_str);
        run.is_some_and(|run| run.starts_with(&wanted) || run.ends_with(&wanted))
    };
    let all = Filter::default();
    newest(state, &EVENTS, &all, is_meant).ok()??.run
}

/// Finds a run that may live on in the ledger only: discarded, or refused.
///
/// # Errors
/// When there is none; and as `taking`.
pub fn find_in_ledger(state: &StateDir, text: &str, taking: Taking<'_>) -> Result<RunId, Failure> {
    if let Ok(run) = RunId::parse(text) {
        return Ok(run);
    }
    let found = if is_last(text) {
        let last = last(state, Begun::OrRefused)?;
        last.as_ref().map(taking).transpose()?;
        last.map(|last| last.run)
    } else {
        let contains = |run: &RunId| !text.is_empty() && run.as_str().contains(text);
        let is_meant = |event: &Event| event.run.as_ref().is_some_and(contains);
        newest(state, &EVENTS, &Filter::default(), is_meant)?.and_then(|event| event.run)
    };
    if let Some(run) = found {
        return Ok(run);
    }
    find(state, text, taking).map_err(|failure| match newest_begun(state).as_slice() {
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

/// Returns the runs that began last, by the ledger, the newest first: kept, denied or discarded.
fn newest_begun(state: &StateDir) -> Vec<RunId> {
    let mut begun = Vec::new();
    for count in EVENTS {
        let Ok(events) = Ledger::tail(state, count, openings()) else {
            break;
        };
        let opened = events.filter_map(Result::ok);
        begun = opened.filter_map(|event| event.run).collect();
        if begun.len() >= NAMED_MAX {
            break;
        }
    }
    begun.into_iter().rev().take(NAMED_MAX).collect()
}

/// Finds a run by its whole id, or the last one, for an irreversible operation: one whose beginning
/// is in the ledger.
///
/// # Errors
/// When there is none; and as `taking`.
pub fn find_begun(state: &StateDir, text: &str, taking: Taking<'_>) -> Result<RunId, Failure> {
    let run = match is_last(text) {
        true => {
            let last = last(state, Begun::Alone)?;
            last.as_ref().map(taking).transpose()?;
            last.map(|last| last.run)
        }
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
        // Of a session of tools, and of a checkpoint that a person has taken, it is another one.
        if BEGINNINGS.contains(&event.kind.as_str()) {
            return Ok(run);
        }
    }
    Err(unknown("the ledger knows no beginning of it"))
}

fn is_last(text: &str) -> bool {
    text.trim().eq_ignore_ascii_case(RUN_LAST)
}

/// The runs that `last` may mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// Those that began: one that was refused has changed nothing.
    Alone,
    /// Those that were refused too: somebody asks about the refusal.
    OrRefused,
}

/// Returns the run started last, by the ledger: of those that worked here, or else of all.
fn last(state: &StateDir, begun: Begun) -> Result<Option<Last>, Failure> {
    let is_allowed = |event: &Event| {
        let verdict = event
            .body
            .get("verdict")
            .and_then(serde_json::Value::as_str);
        // The sandbox of a run's checks is no run that anybody has started.
        let is_of_checks = event.body.pointer("/decision/begins-with").is_some();
        let is_begun = verdict.is_none_or(|verdict| verdict == "allow");
        !is_of_checks && (begun == Begun::OrRefused || is_begun)
    };
    let Some(latest) = newest(state, &EVENTS, &openings(), is_allowed)? else {
        return Ok(None);
    };
    // What a person is told of places needs the keys of what is sealed; without them none is
    // known to be here.
    let seals = Seals::read(state).unwrap_or_default();
    let workspace = |event: &Event| {
        let opened = seals.open(event.clone());
        let text = opened.body.get("workspace").and_then(read_host_text);
        text.map(PathBuf::from)
    };
    // Asked once: a ledger tells of any number of runs.
    let here = here();
    let is_here = |place: &Path| is_above(place, here.as_deref());
    let is_ours =
        |event: &Event| is_allowed(event) && workspace(event).is_some_and(|place| is_here(&place));
    let ours = newest(state, &EVENTS_HERE, &openings(), is_ours)?.and_then(|event| event.run);
    if let Some(run) = ours.or_else(|| kept_there(state, is_here)) {
        let elsewhere = None;
        return Ok(Some(Last { run, elsewhere }));
    }
    let elsewhere = workspace(&latest).unwrap_or_default();
    let is_elsewhere = elsewhere.as_os_str().is_empty() || !is_here(&elsewhere);
    Ok(latest.run.map(|run| Last {
        run,
        elsewhere: is_elsewhere.then_some(elsewhere),
    }))
}

/// Returns the newest kept run that worked there.
fn kept_there(state: &StateDir, is_there: impl Fn(&Path) -> bool) -> Option<RunId> {
    let records = list_runs(state).ok()?.records;
    let found = records
        .into_iter()
        .find(|record| is_there(&record.workspace))?;
    Some(found.run)
}

/// Returns the filter for the events that open runs.
fn openings() -> Filter {
    Filter {
        kind: Some("run.opened".to_owned()),
        ..Filter::default()
    }
}

/// Returns the newest matching event of a run, of those that pass.
fn newest(
    state: &StateDir,
    counts: &[usize],
    filter: &Filter,
    is_meant: impl Fn(&Event) -> bool,
) -> Result<Option<Event>, Failure> {
    for count in counts {
        let events =
            Ledger::tail(state, *count, filter.clone()).doing("the ledger cannot be read")?;
        let is_whole = events.is_whole();
        let meant = events
            .filter_map(Result::ok)
            .filter(|event| event.run.is_some() && is_meant(event));
        let found = meant.last();
        if found.is_some() || is_whole {
            return Ok(found);
        }
    }
    Ok(None)
}

fn gone(state: &StateDir, run: &RunId, is_last: bool) -> Failure {
    if live_runs(state).is_ok_and(|alive| alive.contains(run)) {
        return Failure::new(format!("run {run} goes on, and nothing of it is kept"))
            .because("it was started with --discard: what it changes is shown to nobody")
            .advise(format!("atoll why {run} tells what it may do"))
            .advise(format!("atoll stop {run} ends it"));
    }
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
