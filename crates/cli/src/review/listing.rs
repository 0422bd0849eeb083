//! `atoll runs`: the kept and the live runs.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use atoll_engine::changes;
use atoll_engine::configuration::Places;
use atoll_engine::decision::killed::may_be_cut_short;
use atoll_engine::events::events_of;
use atoll_engine::failure::{Doing, Failure};
use atoll_ledger::{StateDir, live_runs, read_host_text};
use atoll_model::{RunId, WorkspaceMode, format_duration};
use atoll_store::{RECORD_VERSION, RunRecord, RunState, list_runs, settle_run};
use serde_json::{Value, json};

use super::interrupted::end_before_reading;
use crate::arguments::RunsArguments;
use crate::output::Output;
use crate::render::{self, RunRow, state_word};

/// The width of tables where the terminal's is not known.
const COLUMNS: usize = 100;
/// Runs listed without `--all`.
const RUNS_SHOWN: usize = 20;

/// Lists runs.
pub fn runs(arguments: &RunsArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    if !places.state.exists() {
        if arguments.json {
            output.json(&json!([]));
        } else {
            output.say("No runs yet. `atoll run -- COMMAND` starts one.\n");
        }
        return Ok(0);
    }
    let state = places.read_state()?;
    let mut list = list_runs(&state).doing("the runs cannot be listed")?;
    let unkept = unkept(&state, &list.records, output);
    list.records.splice(..0, unkept);
    // Those of one second stay as they are.
    let began = |record: &RunRecord| Reverse(record.run.began_seconds());
    list.records.sort_by_key(began);
    for record in &mut list.records {
        if record.state == RunState::Running
            && let Ok(settled) = settle_run(&state, &record.run)
        {
            *record = settled;
        }
        end_before_reading(&places, &state, record, output);
    }
    for (run, why) in &list.broken {
        output.warn(&format!("run {run} cannot be read: {why}"));
    }
    let wanted = wanted(arguments, &list.records)?;
    let shown = if arguments.all {
        usize::MAX
    } else {
        RUNS_SHOWN
    };
    let records: Vec<RunRecord> = wanted
        .iter()
        .take(shown)
        .map(|record| changes::with_counts(&state, record))
        .collect();
    if arguments.json {
        let list: Vec<Value> = records.iter().map(run_json).collect();
        output.json(&json!(list));
        return Ok(0);
    }
    if records.is_empty() && !list.records.is_empty() {
        output.say("No run is like that. `atoll runs --all` lists every one.\n");
        return Ok(0);
    }
    let now = SystemTime::now();
    let rows: Vec<RunRow> = records
        .iter()
        .map(|record| row(&state, record, now))
        .collect();
    let columns =
        crate::terminal::terminal_size().map_or(COLUMNS, |size| usize::from(size.columns));
    output.result(&render::runs_table(output.paint, &rows, columns));
    if records.len() < wanted.len() {
        output.say(&format!(
            "… and {} more: atoll runs --all\n",
            wanted.len() - records.len()
        ));
    }
    Ok(0)
}

/// Returns the runs that pass the filters, the newest first.
fn wanted<'a>(
    arguments: &RunsArguments,
    records: &'a [RunRecord],
) -> Result<Vec<&'a RunRecord>, Failure> {
    // What people type who know lists from other programs.
    let ids: Vec<&String> = arguments
        .runs
        .iter()
        .filter(|word| !["list", "ls"].contains(&word.as_str()))
        .collect();
    let directory = match &arguments.workspace {
        None => None,
        Some(path) => Some(
            path.canonicalize()
                .doing(&format!("--workspace {} cannot be used", path.display()))?,
        ),
    };
    let is_wanted = |record: &&RunRecord| {
        let by_id = ids.is_empty() || ids.iter().any(|id| record.run.as_str().contains(*id));
        let by_place = directory
            .as_ref()
            .is_none_or(|directory| record.workspace.starts_with(directory));
        let by_state = arguments
            .state
            .as_ref()
            .is_none_or(|state| *state == state_word(record));
        by_id && by_place && by_state
    };
    Ok(records.iter().filter(is_wanted).collect())
}

fn row(state: &StateDir, record: &RunRecord, now: SystemTime) -> RunRow {
    let started = SystemTime::UNIX_EPOCH + Duration::from_millis(record.started_at_ms);
    let files = record
        .changes
        .map(|counts| counts.added + counts.changed + counts.removed);
    RunRow {
        run: record.run.clone(),
        age: format_duration(now.duration_since(started).unwrap_or_default()),
        state: match may_be_cut_short(state, record) {
            true => "apply cut short".to_owned(),
            false => state_word(record).replace('-', " "),
        },
        profile: record.profile.clone(),
        ending: record.ending,
        attempts: record.attempts,
        files,
        command: record.command.clone(),
    }
}

/// Returns the record with the state as shown to people.
fn run_json(record: &RunRecord) -> Value {
    let mut value = json!(record);
    if let Some(state) = value.get_mut("state") {
        *state = json!(state_word(record));
    }
    value
}

/// Returns the live runs of which nothing is ever kept (`--discard`), from the ledger.
fn unkept(state: &StateDir, kept: &[RunRecord], output: &Output) -> Vec<RunRecord> {
    let alive = match live_runs(state) {
        Ok(alive) => alive,
        Err(error) => {
            output.warn(&format!("which runs go on cannot be told: {error}"));
            return Vec::new();
        }
    };
    let is_kept = |run: &RunId| kept.iter().any(|record| record.run == *run);
    let unkept = alive.into_iter().filter(|run| !is_kept(run));
    unkept.filter_map(|run| told(state, run)).collect()
}

/// Reads a live run from the ledger alone.
fn told(state: &StateDir, run: RunId) -> Option<RunRecord> {
    let events = events_of(state, &run).ok()?;
    let opened = events.iter().find(|event| event.kind == "run.opened")?;
    let path = |member: &str| {
        let text = opened.body.get(member).and_then(read_host_text);
        text.map(PathBuf::from).unwrap_or_default()
    };
    let decided = |member: &str| opened.body.pointer("/decision")?.get(member).cloned();
    let words = opened.body.get("command").and_then(Value::as_array);
    let profile = decided("profile").and_then(|profile| Some(profile.as_str()?.to_owned()));
    let mode = decided("workspace-mode");
    let mode = mode.and_then(|mode| serde_json::from_value(mode).ok());
    let began = run.began_seconds().unwrap_or_default();
    Some(RunRecord {
        v: RECORD_VERSION,
        command: words
            .into_iter()
            .flatten()
            .filter_map(read_host_text)
            .collect(),
        workspace: path("workspace"),
        directory: path("directory"),
        profile: profile.unwrap_or_default(),
        purposes: Vec::new(),
        mode: mode.unwrap_or(WorkspaceMode::CopyOnWrite),
        base: None,
        layers: Vec::new(),
        started_at_ms: began.saturating_mul(1000),
        state: RunState::Running,
        exit: None,
        ending: None,
        changes: None,
        attempts: 0,
        resumed_from: None,
        run,
    })
}
