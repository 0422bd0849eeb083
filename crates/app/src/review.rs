//! Commands that look at runs afterwards: `runs`, `diff`, `apply`, `discard`, `undo`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use atoll_layer::{ChangeKind, Class, DiffOptions, Selection, write_diff};
use atoll_model::{WorkspaceMode, format_duration};
use atoll_sandbox::environment_outside;
use atoll_store::{
    LayerKind, Ledger, RunRecord, RunState, StateDir, list_runs, load_run, settle_run,
};
use serde_json::{Value, json};

use crate::arguments::{
    ApplyArguments, DiffArguments, DiscardArguments, RUN_LAST, RunsArguments, UndoArguments,
};
use crate::changes::{self, LayerChanges, selected_paths};
use crate::configuration::Places;
use crate::decision::Work;
use crate::errands;
use crate::escape::printable;
use crate::failure::{Doing, Failure};
use crate::finding;
use crate::live;
use crate::output::Output;
use crate::render::{self, RunRow, Style};

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
    for record in &mut list.records {
        if record.state == RunState::Running
            && let Ok(settled) = settle_run(&state, &record.run)
        {
            *record = settled;
        }
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
    let rows: Vec<RunRow> = records.iter().map(|record| row(record, now)).collect();
    let columns = crate::console::terminal_size().map_or(COLUMNS, |size| usize::from(size.columns));
    output.result(&render::runs_table(output.paint, &rows, columns));
    if records.len() < wanted.len() {
        output.say(&format!(
            "… and {} more: atoll runs --all\n",
            wanted.len() - records.len()
        ));
    }
    Ok(0)
}

/// The runs that the filters leave, the newest first.
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

fn row(record: &RunRecord, now: SystemTime) -> RunRow {
    let started = SystemTime::UNIX_EPOCH + Duration::from_millis(record.started_at_ms);
    let files = record
        .changes
        .map(|counts| counts.added + counts.changed + counts.removed);
    RunRow {
        run: record.run.clone(),
        age: format_duration(now.duration_since(started).unwrap_or_default()),
        state: state_word(record).replace('-', " "),
        profile: record.profile.clone(),
        ending: record.ending,
        attempts: record.attempts,
        files,
        command: record.command.clone(),
    }
}

/// The record, with the state that people are told.
fn run_json(record: &RunRecord) -> Value {
    let mut value = json!(record);
    if let Some(state) = value.get_mut("state") {
        *state = json!(state_word(record));
    }
    value
}

/// The state in a word, for machines: what a live run wrote is not kept apart.
#[must_use]
pub fn state_word(record: &RunRecord) -> String {
    match (record.mode, record.state) {
        (WorkspaceMode::Live, RunState::Kept) => "written".to_owned(),
        (_, state) => state_name(state).replace(' ', "-"),
    }
}

/// The state in words.
pub fn state_name(state: RunState) -> &'static str {
    match state {
        RunState::Running => "running",
        RunState::Kept => "kept",
        RunState::Applied => "applied",
        RunState::PartlyApplied => "partly applied",
        RunState::Discarded => "discarded",
        RunState::Interrupted => "interrupted",
        RunState::Undone => "undone",
        RunState::Failed => "failed",
    }
}

/// Finds a run and loads its record.
fn load(state: &StateDir, text: &str) -> Result<RunRecord, Failure> {
    let run = finding::find(state, text)?;
    load_run(state, &run)
        .doing("there is no such run")
        .map_err(|failure| failure.advise("atoll runs lists them"))
}

/// The state for writing and the record of a run that has ended.
fn load_ended(places: &Places, text: &str) -> Result<(StateDir, Ledger, RunRecord), Failure> {
    places.read_state()?;
    let state = places.open_state()?;
    let ledger = crate::run::open_ledger(&state)?;
    let record = load(&state, text)?;
    let record = settle_run(&state, &record.run).doing("the run's record cannot be used")?;
    if record.state == RunState::Running {
        return Err(Failure::new(format!("run {} is still running", record.run))
            .advise("wait for its end, or end it"));
    }
    Ok((state, ledger, record))
}

/// Shows what a run changed.
pub fn diff(arguments: &DiffArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let state = places.read_state()?;
    // `atoll diff PATH` means the last run: a path that exists is no run.
    let (run, paths) = match finding::find(&state, &arguments.run) {
        Err(_) if arguments.run != RUN_LAST && std::path::Path::new(&arguments.run).exists() => {
            let mut paths = vec![arguments.run.clone().into()];
            paths.extend(arguments.paths.iter().cloned());
            (RUN_LAST, paths)
        }
        _ => (arguments.run.as_str(), arguments.paths.clone()),
    };
    let record = load(&state, run)?;
    let filter = selected_paths(&record, &paths)?;
    let all: Vec<LayerChanges> = changes::read(&state, &record)?
        .into_iter()
        .filter(|one| arguments.caches || one.layer.kind != LayerKind::Cache)
        .collect();
    if arguments.json {
        let mut told = changes_json(&all);
        if let Some(members) = told.as_object_mut() {
            members.insert("run".to_owned(), json!(record.run));
        }
        output.json(&told);
        return Ok(0);
    }
    let mut text = Vec::new();
    for one in &all {
        let set = without_bulk(one, arguments.caches, &filter);
        if arguments.stat {
            write_stat(one, &set, &filter, output, &mut text);
            continue;
        }
        let options = DiffOptions {
            place: changes::place_of(one),
            colour: output.paint.is_on(),
            ..DiffOptions::default()
        };
        write_diff(&one.paths, &set, &filter, &mut text, &options)
            .doing("no diff could be made")?;
    }
    let refused = refused_there(&all, &filter);
    if text.is_empty() && refused.is_empty() {
        output.say(&format!("Run {} changed nothing there.\n", record.run));
    } else if arguments.no_pager || !output.is_terminal {
        output.result(&String::from_utf8_lossy(&text));
    } else {
        page(&text, output);
    }
    tell_left_out(&all, arguments, &filter, output);
    output.say(&refused);
    Ok(0)
}

/// What no apply takes over, a line each.
pub fn refused_there(all: &[LayerChanges], filter: &[atoll_layer::RelativePath]) -> String {
    let mut lines = String::new();
    for one in all {
        for refusal in one.set.refused.iter().chain(&one.set.withheld) {
            let path = &refusal.path;
            if filter.is_empty() || filter.iter().any(|wanted| path.starts_with(wanted)) {
                let name = printable(&changes::shown_path(one, path.as_bytes()));
                lines.push_str(&format!("refused: {name}: {}\n", refusal.why));
            }
        }
    }
    lines
}

/// Caches and ignored files are many and made by tools: they are counted, and
/// shown only where asked for.
fn without_bulk(
    one: &LayerChanges,
    caches: bool,
    filter: &[atoll_layer::RelativePath],
) -> atoll_layer::ChangeSet {
    let mut set = one.set.clone();
    if filter.is_empty() && !caches {
        set.changes
            .retain(|change| matches!(change.class, Class::Ordinary | Class::Control));
    }
    set
}

fn tell_left_out(
    all: &[LayerChanges],
    arguments: &DiffArguments,
    filter: &[atoll_layer::RelativePath],
    output: &Output,
) {
    if arguments.caches || !filter.is_empty() {
        return;
    }
    let groups = changes::grouped(all);
    for (name, group) in [
        ("in caches", &groups.caches),
        ("ignored by git", &groups.ignored),
    ] {
        if group.total() > 0 {
            output.say(&format!(
                "{} {name} not shown: atoll diff --caches\n",
                render::counted(group.total(), "change", "changes")
            ));
        }
    }
}

/// One line for each change.
pub fn write_stat(
    one: &LayerChanges,
    set: &atoll_layer::ChangeSet,
    filter: &[atoll_layer::RelativePath],
    output: &Output,
    text: &mut Vec<u8>,
) {
    for change in &set.changes {
        if !filter.is_empty() && !filter.iter().any(|wanted| change.path.starts_with(wanted)) {
            continue;
        }
        let (style, sign) = match change.kind {
            ChangeKind::Added => (Style::Good, "A"),
            ChangeKind::Modified => (Style::Notable, "M"),
            ChangeKind::Removed => (Style::Bad, "D"),
            ChangeKind::Mode => (Style::Notable, "P"),
            ChangeKind::Type => (Style::Notable, "T"),
            ChangeKind::Renamed { .. } => (Style::Notable, "R"),
        };
        let class = match change.class {
            Class::Ordinary => String::new(),
            Class::Control => format!("  (control: {})", change.reason.unwrap_or("others run it")),
            Class::Cache => "  (cache)".to_owned(),
            Class::Ignored => "  (ignored)".to_owned(),
        };
        let name = printable(&changes::shown_path(one, change.path.as_bytes()));
        let from = match &change.kind {
            ChangeKind::Renamed { from } => format!("{} → ", printable(from.as_bytes())),
            _ => String::new(),
        };
        text.extend(
            format!("{} {from}{name}{class}\n", output.paint.style(style, sign)).into_bytes(),
        );
    }
}

/// Each change, and what is not carried over, for machines.
pub fn changes_json(all: &[LayerChanges]) -> Value {
    let one_change = |one: &LayerChanges, change: &atoll_layer::Change| {
        json!({
            "path": String::from_utf8_lossy(&changes::shown_path(one, change.path.as_bytes())),
            "kind": match change.kind {
                ChangeKind::Added => "added",
                ChangeKind::Modified => "modified",
                ChangeKind::Removed => "removed",
                ChangeKind::Mode => "mode",
                ChangeKind::Type => "type",
                ChangeKind::Renamed { .. } => "renamed",
            },
            "class": match change.class {
                Class::Ordinary => "ordinary",
                Class::Control => "control",
                Class::Cache => "cache",
                Class::Ignored => "ignored",
            },
            "bytes": change.after.as_ref().map(|after| after.bytes),
        })
    };
    let list: Vec<Value> = all
        .iter()
        .flat_map(|one| {
            one.set
                .changes
                .iter()
                .map(move |change| one_change(one, change))
        })
        .collect();
    let refused: Vec<Value> = changes::refusals(all)
        .map(|(path, why)| json!({ "path": String::from_utf8_lossy(&path), "why": why }))
        .collect();
    json!({ "changes": list, "refused": refused })
}

/// Shows a long text through the person's pager, or directly without one.
pub fn page(text: &[u8], output: &Output) {
    // Neither by PATH nor by any other variable a place of a workspace: a program inside may
    // have written a `less` there.
    let written =
        Places::read().and_then(|places| errands::written(&errands::writers(&places, None)));
    let Ok(written) = written else {
        output.result(&String::from_utf8_lossy(text));
        return;
    };
    let environment = environment_outside(&written);
    let mut own = environment.iter().filter(|(name, _)| name == "PAGER");
    let pager = own
        .next()
        .map_or("less".as_ref(), |(_, pager)| pager.as_os_str());
    let mut command = Command::new("/bin/sh");
    // The pager is the person's own setting, and may hold arguments.
    command
        .arg("-c")
        .arg(pager)
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .env("LESS", "FRX")
        .current_dir("/")
        .stdin(Stdio::piped());
    let shown = output
        .is_terminal
        .then(|| command.spawn().ok())
        .flatten()
        .and_then(|mut child| {
            let mut input = child.stdin.take()?;
            // A pager that was left early needs no more.
            let _ = input.write_all(text);
            drop(input);
            child.wait().ok().filter(std::process::ExitStatus::success)
        });
    if shown.is_none() {
        output.result(&String::from_utf8_lossy(text));
    }
}

/// Writes a run's changes to the workspace.
pub fn apply(arguments: &ApplyArguments, output: &Output) -> Result<u8, Failure> {
    let (state, ledger, mut record) = load_ended(&Places::read()?, &arguments.run)?;
    let work = Work {
        state: &state,
        ledger: &ledger,
        output,
        is_unseen: false,
        is_unattended: false,
    };
    if arguments.finish || arguments.take_back {
        work.settle(&mut record, arguments.take_back)?;
        output.say(&format!(
            "Run {}: {}.\n",
            record.run,
            state_name(record.state)
        ));
        return Ok(0);
    }
    if record.mode == WorkspaceMode::Live {
        return Err(Failure::new(format!(
            "run {} wrote straight to its workspace",
            record.run
        ))
        .because("it was started with --live, or in a fence, so there is nothing to apply")
        .advise(format!("atoll undo {} takes its changes back", record.run)));
    }
    let selection = Selection {
        paths: selected_paths(&record, &arguments.paths)?,
        control: arguments.control,
        caches: arguments.caches,
        ignored: arguments.ignored,
        force: arguments.force,
    };
    record = changes::with_counts(&state, &record);
    let all = changes::read(&state, &record)?;
    if !work.apply(&mut record, &all, &selection)? {
        output.say("There was nothing to apply.\n");
    } else if matches!(record.state, RunState::Applied | RunState::PartlyApplied) {
        output.say(&format!(
            "Run {}: {}. `atoll undo {0}` takes it back.\n",
            record.run,
            state_name(record.state)
        ));
    }
    Ok(0)
}

/// Throws a run's changes away.
pub fn discard(arguments: &DiscardArguments, output: &Output) -> Result<u8, Failure> {
    let (state, ledger, mut record) = load_ended(&Places::read()?, &arguments.run)?;
    let work = Work {
        state: &state,
        ledger: &ledger,
        output,
        is_unseen: false,
        is_unattended: false,
    };
    live::refuse_discard(&record)?;
    let was = record.state;
    work.discard(&mut record)?;
    output.say(&format!("Run {} is discarded.\n", record.run));
    if matches!(was, RunState::Applied | RunState::PartlyApplied) {
        output.warn("what was applied of it stays in the workspace, and cannot be taken back now");
    }
    Ok(0)
}

/// Takes back what was applied.
pub fn undo(arguments: &UndoArguments, output: &Output) -> Result<u8, Failure> {
    let (state, ledger, mut record) = load_ended(&Places::read()?, &arguments.run)?;
    Work {
        state: &state,
        ledger: &ledger,
        output,
        is_unseen: false,
        is_unattended: false,
    }
    .undo(&mut record, arguments.force)?;
    output.say(&format!("Run {}: taken back.\n", record.run));
    Ok(0)
}
