//! Commands that look at runs afterwards: `runs`, `diff`, `apply`, `discard`, `undo`.

mod interrupted;
mod listing;

use std::os::unix::ffi::OsStrExt;

use atoll_engine::changes::bulk::LeftOut;
use atoll_engine::changes::{self, LayerChanges, selected_paths};
use atoll_engine::configuration::Places;
use atoll_engine::control::stand_still;
use atoll_engine::decision::killed::Ended;
use atoll_engine::decision::{Extent, Work, live};
use atoll_engine::events::events_of;
use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_engine::finding::RUN_LAST;
use atoll_engine::held::{holds, refuse_held};
use atoll_engine::printable::printable;
use atoll_engine::supervision::Frozen;
use atoll_layer::{Selection, write_diff};
use atoll_ledger::{Ledger, StateDir, host_text};
use atoll_model::WorkspaceMode;
use atoll_store::{LayerKind, RunRecord, RunState, list_runs, load_run, settle_run};
use serde_json::json;

use crate::arguments::{ApplyArguments, DiffArguments, DiscardArguments, UndoArguments};
use crate::checks::{self, STATUS_UNCHECKED};
use crate::diff::{
    apart, changes_json, diff_options, page, refused_there, write_commits, write_stat,
};
use crate::finding;
use crate::left_out::{self, nothing_shown, tell_left_out, without_bulk};
use crate::output::Output;
use crate::render::{self, state_name, state_word};
use crate::status::{STATUS_OWN_ERROR, status_of};
use crate::undo_report;

use interrupted::{end_before_reading, end_cut_short, interrupted, is_cut_off};
pub use listing::runs;

/// The most runs that an error names.
const NAMED_MAX: usize = 5;

/// Opens the state for writing, and the record of an ended run whose changes are to be decided on:
/// `doing` names the command, as `apply`.
fn load_ended(
    text: &str,
    doing: &str,
    output: &Output,
) -> Result<(StateDir, Ledger, RunRecord), Failure> {
    let places = Places::read()?;
    places.read_state()?;
    let state = places.open_state()?;
    let ledger = atoll_engine::events::open_ledger(&state)?;
    let run = finding::find_to_decide(&state, text, doing, output)?;
    let record = settle_run(&state, &run).doing("the run's record cannot be used")?;
    if record.state == RunState::Running {
        return Err(Failure::new(format!("run {} is still running", record.run))
            .advise("wait for its end, or end it"));
    }
    Ok((state, ledger, record))
}

/// Names the workspace of a run, if it is not the current directory or above it.
fn elsewhere(record: &RunRecord) -> String {
    match atoll_engine::finding::is_here(&record.workspace) {
        true => String::new(),
        false => format!(" in {}", printable(record.workspace.as_os_str().as_bytes())),
    }
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
    let run = finding::find(&state, run)?;
    if let Ok(mut record) = load_run(&state, &run) {
        end_before_reading(&places, &state, &mut record, output);
    }
    let load = || {
        load_run(&state, &run)
            .doing("there is no such run")
            .map_err(|failure| failure.advise("atoll runs lists them"))
    };
    let mut record = load()?;
    let mut frozen = None;
    if record.state == RunState::Running {
        frozen = stand_still(&state, &run)?;
        record = load()?;
    }
    let filter = selected_paths(&record, &paths)?;
    let all: Vec<LayerChanges> = changes::read(&state, &record)?
        .into_iter()
        .filter(|one| arguments.caches || one.layer.kind != LayerKind::Cache)
        .collect();
    if arguments.json {
        let mut told = changes_json(&all);
        held(&record, frozen)?;
        if let Some(members) = told.as_object_mut() {
            members.insert("run".to_owned(), json!(record.run));
        }
        output.json(&told);
        return Ok(0);
    }
    let (mut text, mut left_out) = (Vec::new(), Vec::new());
    for one in &all {
        let set = without_bulk(one, arguments.caches, &filter);
        if arguments.stat {
            write_stat(one, &set, &filter, output, &mut text);
            continue;
        }
        let options = diff_options(one, output);
        let (of_git, rest) = apart(one, set, &filter);
        let named = write_diff(&one.paths, &rest, &filter, &mut text, &options)
            .doing("no diff could be made")?;
        left_out.extend(named);
        write_commits(one, of_git, &mut text);
    }
    held(&record, frozen)?;
    let refused = refused_there(&all, &filter);
    if text.is_empty() && refused.is_empty() {
        output.say(&nothing_shown(&record, &all, arguments, &filter));
        return Ok(0);
    } else if arguments.no_pager || !output.is_terminal {
        output.bytes(&text);
    } else {
        page(&text, output);
    }
    tell_left_out(&all, arguments, &filter, output);
    output.say(&refused);
    Ok(tell_named(&left_out, output))
}

/// Tells of the files that a patch has by name only. Returns the status: the patch is not whole.
fn tell_named(names: &[String], output: &Output) -> u8 {
    if output.is_terminal || names.is_empty() {
        return 0;
    }
    for name in names {
        output.warn(&format!(
            "{name} is not in this patch: larger than 64 MiB, beyond 1 GiB of content, or unreadable"
        ));
    }
    STATUS_OWN_ERROR
}

/// Lets a running sandbox go on whose changes were read; they are of one moment only if it stood
/// still until now.
fn held(record: &RunRecord, frozen: Option<Frozen>) -> Result<(), Failure> {
    match frozen.is_none_or(|frozen| frozen.has_held()) {
        true => Ok(()),
        false => Err(
            Failure::new(format!("run {} went on meanwhile", record.run))
                .because(
                    "it stands still for a minute at most, and reading its changes took longer",
                )
                .advise(format!(
                    "atoll stop {} ends it; atoll diff {0} reads them then",
                    record.run
                )),
        ),
    }
}

/// Writes a run's changes to the workspace.
pub fn apply(arguments: &ApplyArguments, output: &Output) -> Result<u8, Failure> {
    let run = arguments.run.as_deref().unwrap_or(RUN_LAST);
    let (state, ledger, mut record) = load_ended(run, "apply", output)?;
    let work = Work {
        state: &state,
        ledger: &ledger,
        surface: output,
        is_unseen: false,
        is_unattended: false,
        checked: None,
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
    end_cut_short(&work, &mut record, output)?;
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
    let was = record.state;
    record = changes::with_counts(&state, &record);
    let all = changes::read(&state, &record)?;
    changes::refuse_unchanged(&state, &record, &all, &selection.paths)?;
    let checked = match arguments.checks {
        true => match checks::before_apply(&state, &record, &all, &selection, output)? {
            Some(checked) => Some(checked),
            None => return Ok(STATUS_UNCHECKED),
        },
        false => None,
    };
    let work = Work {
        checked: checked.as_ref(),
        ..work
    };
    let extent = work.apply(&mut record, &all, &selection)?;
    let left = LeftOut::of(&all, &selection);
    tell_applied(&state, &record, was, extent, &left, output)?;
    output.say(&left_out::told(&record, left, !selection.paths.is_empty()));
    Ok(status_of(extent))
}

/// Tells what came of an apply.
fn tell_applied(
    state: &StateDir,
    record: &RunRecord,
    was: RunState,
    extent: Extent,
    left: &LeftOut,
    output: &Output,
) -> Result<(), Failure> {
    if extent.steps == 0 {
        output.say(match (extent.is_left_out, left.is_empty()) {
            (true, _) => "Nothing was applied.\n",
            (false, true) => "There was nothing to apply.\n",
            (false, false) => "Nothing was applied.\n",
        });
    } else if matches!(record.state, RunState::Applied | RunState::PartlyApplied) {
        output.say(&format!(
            "Run {}: {}{}. `atoll undo {0}` takes it back.\n",
            record.run,
            state_name(record.state),
            elsewhere(record)
        ));
        if is_cut_off(record.ending, was) {
            output.say(&interrupted(record, &events_of(state, &record.run)?));
        }
    }
    Ok(())
}

/// Throws a run's changes away.
pub fn discard(arguments: &DiscardArguments, output: &Output) -> Result<u8, Failure> {
    let Some(run) = &arguments.run else {
        return match arguments.all || arguments.empty {
            true => discard_many(arguments, output),
            false => Err(none_named()),
        };
    };
    let (state, ledger, mut record) = load_ended(run, "discard", output)?;
    let work = Work {
        state: &state,
        ledger: &ledger,
        surface: output,
        is_unseen: false,
        is_unattended: false,
        checked: None,
    };
    if let Some(Ended::Finished) = end_cut_short(&work, &mut record, output)? {
        // Whoever discards it may think that nothing of it was applied.
        return Err(
            Failure::new(format!("run {} is applied and not discarded", record.run))
                .because("once it is discarded, nothing can take it back")
                .advise(format!("atoll undo {} takes it back", record.run))
                .advise(format!(
                    "atoll discard {} leaves what was applied",
                    record.run
                )),
        );
    }
    live::refuse_discard(&record)?;
    let was = record.state;
    if was == RunState::PartlyApplied && !arguments.yes {
        let question = format!(
            "Run {} is applied in part: what was applied stays, and can no longer be undone. Discard \
             the rest?",
            record.run
        );
        if !output.can_ask {
            return Err(Failure::new(format!("run {} is not discarded", record.run))
                .because("it is applied in part: what was applied could no longer be undone")
                .advise(format!(
                    "atoll undo {} takes back what was applied",
                    record.run
                ))
                .advise(format!(
                    "atoll discard {} --yes discards the rest",
                    record.run
                ))
                .of_kind(Kind::Denied));
        }
        if !finding::says_yes(&question, output)? {
            output.say("Nothing is discarded.\n");
            return Ok(1);
        }
    }
    let holds = holds(&state)?;
    refuse_held(&holds, &record.run)?;
    work.discard(&mut record)?;
    let place = elsewhere(&record);
    output.say(&format!("Run {}{place} is discarded.\n", record.run));
    if matches!(was, RunState::Applied | RunState::PartlyApplied) {
        output.warn("what was applied of it stays in the workspace, and cannot be taken back now");
    }
    Ok(0)
}

/// Refuses to choose a run to discard, with those that could be meant.
fn none_named() -> Failure {
    let failure = Failure::new("no run is named to be discarded");
    let state = Places::read().and_then(|places| places.read_state());
    let list = state.ok().and_then(|state| list_runs(&state).ok());
    let open: Vec<RunRecord> = (list.into_iter().flat_map(|list| list.records))
        .filter(|one| one.state.is_undecided())
        .collect();
    let failure = match open.as_slice() {
        [] => return failure.because("no run has changes that wait for a decision"),
        open => {
            let named = open.iter().take(NAMED_MAX);
            let named: Vec<&str> = named.map(|one| one.run.as_str()).collect();
            let runs = render::counted(open.len() as u64, "run has", "runs have");
            failure.because(format!(
                "{runs} changes that wait for a decision: {}",
                named.join(", ")
            ))
        }
    };
    failure
        .advise("atoll discard last discards the last run's")
        .advise("atoll discard --all discards all of them")
}

/// Throws the changes away of every ended run that nobody has decided on, or removes those without any.
fn discard_many(arguments: &DiscardArguments, output: &Output) -> Result<u8, Failure> {
    let state = Places::read()?.open_state()?;
    let ledger = atoll_engine::events::open_ledger(&state)?;
    let list = list_runs(&state).doing("the runs cannot be listed")?;
    let settled = list
        .records
        .into_iter()
        .filter_map(|record| match record.state {
            RunState::Running => settle_run(&state, &record.run).ok(),
            _ => Some(record),
        });
    let is_open = |record: &RunRecord| record.state.is_undecided();
    let mut records: Vec<RunRecord> = settled.filter(is_open).collect();
    if !arguments.all {
        let mut empty = Vec::new();
        for record in records {
            let changed = changes::grouped(&changes::read(&state, &record)?).total();
            if changed == 0 && record.mode == WorkspaceMode::CopyOnWrite {
                empty.push(record);
            }
        }
        records = empty;
    }
    let runs = |count: usize| render::counted(count as u64, "run", "runs");
    if records.is_empty() {
        output.say("There is none to discard.\n");
        return Ok(0);
    }
    if arguments.all && !arguments.yes && !agrees(&runs(records.len()), output)? {
        output.say("Nothing is discarded.\n");
        return Ok(1);
    }
    let work = Work {
        state: &state,
        ledger: &ledger,
        surface: output,
        is_unseen: false,
        is_unattended: false,
        checked: None,
    };
    let holds = holds(&state)?;
    let (mut done, mut failed) = (0, None);
    for mut record in records {
        // One that is over, though its record does not say so, can still be undone.
        let discarded = match work.end_cut_short(&mut record) {
            Ok(Some(Ended::Finished)) => continue,
            Ok(Some(Ended::TakenBack) | None) => live::refuse_discard(&record)
                .and_then(|()| refuse_held(&holds, &record.run))
                .and_then(|()| work.discard(&mut record)),
            Err(failure) => Err(failure),
        };
        match discarded {
            Ok(()) => done += 1,
            Err(failure) => drop(failed.get_or_insert(failure)),
        }
    }
    output.say(&format!("{} discarded.\n", runs(done)));
    failed.map_or(Ok(0), Err)
}

/// Asks whether the changes of so many runs are thrown away.
fn agrees(runs: &str, output: &Output) -> Result<bool, Failure> {
    if !output.can_ask {
        return Err(Failure::new("nothing is discarded: there is nobody to ask")
            .because(format!("it would throw the changes of {runs} away"))
            .advise("atoll discard --all --yes"));
    }
    let question = format!("The changes of {runs} are thrown away, in every directory. Go on?");
    finding::says_yes(&question, output)
}

/// Undoes an apply, or an undo.
pub fn undo(arguments: &UndoArguments, output: &Output) -> Result<u8, Failure> {
    if let Some(session) = &arguments.session {
        return crate::tools::undo(arguments, session, output);
    }
    let (state, ledger, mut record) = load_ended(&arguments.run, "undo", output)?;
    let work = Work {
        state: &state,
        ledger: &ledger,
        surface: output,
        is_unseen: false,
        is_unattended: false,
        checked: None,
    };
    end_cut_short(&work, &mut record, output)?;
    let run = record.run.clone();
    let about = |record: &RunRecord| {
        let workspace = host_text(&record.workspace);
        json!({ "run": run, "state": state_word(record), "workspace": workspace })
    };
    if arguments.list {
        let met = work.undo_met(&record)?;
        undo_report::show(&met, arguments.json, about(&record), output);
        return Ok(0);
    }
    let what = match arguments.take_back {
        true => {
            work.take_undo_back(&mut record)?;
            if arguments.json {
                output.json(&about(&record));
            }
            format!("{} again", state_word(&record).replace('-', " "))
        }
        false => {
            let met = work.undo(&mut record, arguments.force)?;
            if arguments.json {
                output.json(&met.json(about(&record)));
            }
            format!("taken back{}", undo_report::but_for(&met))
        }
    };
    output.say(&format!("Run {run}: {what}{}.\n", elsewhere(&record)));
    Ok(0)
}
