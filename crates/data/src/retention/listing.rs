//! The list of all that is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_engine::changes::journals_of;
use atoll_engine::checkpoints::Checkpoints;
use atoll_engine::decision::last_undo::is_half_done;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::{fetched_input, undo_notes};
use atoll_ledger::{OpenRuns, Seals, StateDir};
use atoll_model::RunId;
use atoll_store::{
    Artifacts, CollectPlan, CollectPolicy, KeptEvents, RunState, ServedError, Store,
    directory_usage, home_name, list_runs, load_run, plan_collection, run_disk_usage,
};

use super::item::{Item, Kind};
use super::place::Place;

/// The directory of the files of hooks, in the state directory.
const HOOKS: &str = "hooks";
/// The file of the run in the directory of a hook.
const HOOK_RUN: &str = "run";
/// The directories of a server's homes and volumes, in the state directory.
const HOMES: &str = "served/homes";
const VOLUMES: &str = "served/volumes";
/// The end of the name of the directory beside a home with root's changes of the system.
const CHANGES: &str = ".system";

const GOES_ON: &str = "it goes on";
const CUT_SHORT: &str = "an apply or undo of it was cut short, and what that has set aside is nowhere else: atoll undo takes it back";
const OPEN_RESTORE: &str = "a restore that was cut short needs it";
const NO_TIME: &str = "nobody knows since when it is there";
const LIVES: &str = "its sandbox has not ended";

/// Returns all that is kept; of a server's store what is in it.
///
/// # Errors
/// When some of it cannot be read.
pub fn kept(place: &Place<'_>) -> Result<Vec<Item>, Failure> {
    let state = place.state;
    let living = OpenRuns::open(state).doing("the living runs cannot be looked at")?;
    let alive = |run: &RunId| living.is_alive(run).unwrap_or(true).then_some(GOES_ON);
    let mut all = runs(state)?;
    let ledger = place.ledger;
    let checkpoints = Checkpoints { state, ledger }.list()?;
    // A restore that was cut short goes on with both.
    let open: BTreeSet<String> = checkpoints
        .iter()
        .filter(|one| !one.whole)
        .filter_map(|one| one.undoes.clone())
        .collect();
    for one in checkpoints {
        let is_open = open.contains(&one.id) || (!one.whole && one.undoes.is_some());
        all.push(Item {
            id: one.id,
            bytes: one.bytes,
            stays: is_open.then_some(OPEN_RESTORE).or(alive(&one.run)),
            ..of_run(Kind::Checkpoint, one.run, at(one.at_ms))
        });
    }
    for one in undo_notes::list(state)? {
        all.push(Item {
            bytes: one.bytes,
            stays: alive(&one.session),
            ..of_run(Kind::UndoNotes, one.session, one.changed)
        });
    }
    let unread = "the artifacts cannot be read";
    let artifacts = Artifacts::open(state, false).doing(unread)?;
    let artifacts = artifacts.map_or(Ok(Vec::new()), |store| store.kept());
    for one in artifacts.doing(unread)? {
        all.push(Item {
            bytes: one.bytes,
            tenant: one.tenant,
            ..of_run(Kind::Artifacts, one.run, at(one.since_ms))
        });
    }
    all.extend(downloads(state)?);
    all.extend(hooks(state, &alive)?);
    let seals = Seals::read(state).doing("the keys of runs cannot be read")?;
    for run in seals.kept() {
        // Its name has whole seconds: the last moment at which it can have begun.
        let began = run.began_seconds();
        let began = began.map(|seconds| (seconds + 1) * 1_000);
        let stays = alive(run).or(began.is_none().then_some(NO_TIME));
        all.push(Item {
            stays,
            ..of_run(Kind::Sealed, run.clone(), at(began.unwrap_or(0)))
        });
    }
    if let Some(store) = place.store {
        all.extend(served(state, store).doing("the server's store cannot be read")?);
    }
    Ok(all)
}

/// Returns a thing that is named after its run.
fn of_run(kind: Kind, run: RunId, since: SystemTime) -> Item {
    Item {
        kind,
        id: run.to_string(),
        bytes: 0,
        since,
        runs: vec![run],
        tenant: None,
        stays: None,
    }
}

/// Returns the runs that have ended, with what is left of removals that were cut short.
pub(super) fn ended_runs(state: &StateDir) -> Result<CollectPlan, Failure> {
    let all = CollectPolicy {
        now: SystemTime::now(),
        discarded_after: Duration::ZERO,
        applied_after: Duration::ZERO,
        undecided_after: Some(Duration::ZERO),
    };
    plan_collection(state, &all).doing("the runs cannot be listed")
}

/// Returns whether an apply or undo of a run was cut short; also where that cannot be told.
pub(super) fn is_cut_short(state: &StateDir, run: &RunId) -> bool {
    // What cannot be read is nothing that can go.
    let is_half_done = load_run(state, run).map_or(Ok(true), |record| {
        is_half_done(&journals_of(state, &record))
    });
    is_half_done.unwrap_or(true)
}

fn runs(state: &StateDir) -> Result<Vec<Item>, Failure> {
    let now = SystemTime::now();
    let item = |run: RunId, run_state, age, stays| Item {
        bytes: run_disk_usage(state, &run).map_or(0, |used| used.bytes),
        stays,
        ..of_run(
            Kind::Run(run_state),
            run,
            now.checked_sub(age).unwrap_or(UNIX_EPOCH),
        )
    };
    let ended = ended_runs(state)?.runs.into_iter().map(|one| {
        let stays = is_cut_short(state, &one.run).then_some(CUT_SHORT);
        item(one.run, one.state, one.age, stays)
    });
    let mut all: Vec<Item> = ended.collect();
    let records = list_runs(state).doing("the runs cannot be listed")?.records;
    let running = records
        .into_iter()
        .filter(|one| one.state == RunState::Running);
    all.extend(running.map(|one| item(one.run, one.state, Duration::ZERO, Some(GOES_ON))));
    Ok(all)
}

fn hooks(
    state: &StateDir,
    alive: &dyn Fn(&RunId) -> Option<&'static str>,
) -> Result<Vec<Item>, Failure> {
    let unread = "the files of hooks cannot be read";
    let entries = match fs::read_dir(state.path().join(HOOKS)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.doing(unread)?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry.doing(unread)?;
        let facts = entry.metadata().doing(unread)?;
        // No link is followed: no hook has made one.
        if !facts.is_dir() {
            continue;
        }
        let run = fs::read_to_string(entry.path().join(HOOK_RUN)).ok();
        let run = run.and_then(|run| RunId::parse(&run).ok());
        all.push(Item {
            kind: Kind::Hook,
            id: entry.file_name().to_string_lossy().into_owned(),
            bytes: directory_usage(&entry.path()).map_or(0, |used| used.bytes),
            since: facts.modified().doing(unread)?,
            stays: run.as_ref().and_then(alive),
            runs: run.into_iter().collect(),
            tenant: None,
        });
    }
    Ok(all)
}

/// Returns the downloads that inputs have named, from the time at which each was fetched.
fn downloads(state: &StateDir) -> Result<Vec<Item>, Failure> {
    let unread = "the downloads of inputs cannot be read";
    let entries = match fs::read_dir(fetched_input(state, "")) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.doing(unread)?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry.doing(unread)?;
        // Of the entry itself: no link is followed.
        let facts = entry.metadata().doing(unread)?;
        all.push(Item {
            kind: Kind::Download,
            id: entry.file_name().to_string_lossy().into_owned(),
            bytes: facts.len(),
            since: facts.modified().doing(unread)?,
            runs: Vec::new(),
            tenant: None,
            stays: None,
        });
    }
    Ok(all)
}

/// Returns the directory of a hook.
pub(super) fn hook(state: &StateDir, id: &str) -> std::path::PathBuf {
    state.path().join(HOOKS).join(id)
}

/// Returns what is in a server's store.
fn served(state: &StateDir, store: &dyn Store) -> Result<Vec<Item>, ServedError> {
    let events = store.kept_events()?;
    let mut all = Vec::new();
    for one in &events {
        all.push(Item {
            runs: one.runs.clone(),
            bytes: one.bytes,
            stays: (!one.is_ended).then_some(LIVES),
            ..of_tenant(Kind::Events, &one.sandbox, &one.tenant, one.last_ms)
        });
    }
    let of_sandbox: BTreeMap<&str, &KeptEvents> = events
        .iter()
        .map(|one| (one.sandbox.as_str(), one))
        .collect();
    let runs = |sandbox: &str| of_sandbox.get(sandbox).map(|one| one.runs.clone());
    let room = |path: &Path| directory_usage(path).map_or(0, |used| used.bytes);
    let homes = state.path().join(HOMES);
    for one in store.paused()? {
        let home = homes.join(home_name(&one.id));
        let changes = homes.join(home_name(&one.id) + CHANGES);
        // The last event is that of its pause; without one nobody knows its time.
        let since = of_sandbox.get(one.id.as_str()).map(|events| events.last_ms);
        all.push(Item {
            bytes: room(&home) + room(&changes),
            runs: runs(&one.id).unwrap_or_default(),
            stays: since.is_none().then_some(NO_TIME),
            ..of_tenant(Kind::Paused, &one.id, &one.tenant, since.unwrap_or(0))
        });
    }
    for one in store.snapshots()?.iter().filter(|one| one.is_whole) {
        all.push(Item {
            bytes: one.bytes,
            runs: runs(&one.sandbox).unwrap_or_default(),
            ..of_tenant(Kind::Snapshot, &one.id, &one.tenant, one.created_ms)
        });
    }
    for one in store.templates()? {
        let template = of_tenant(Kind::Template, &one.id, &one.tenant, one.created_ms);
        all.push(template);
    }
    for one in store.volumes(None)? {
        all.push(Item {
            bytes: room(&state.path().join(VOLUMES).join(&one.id)),
            ..of_tenant(Kind::Volume, &one.id, &one.tenant, one.created_ms)
        });
    }
    Ok(all)
}

fn of_tenant(kind: Kind, id: &str, tenant: &str, since_ms: u64) -> Item {
    Item {
        kind,
        id: id.to_owned(),
        bytes: 0,
        since: at(since_ms),
        runs: Vec::new(),
        tenant: Some(tenant.to_owned()),
        stays: None,
    }
}

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}
