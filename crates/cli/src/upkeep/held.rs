//! What Atoll's state holds that `gc` leaves: by whom, and what would free it.

use std::collections::BTreeSet;
use std::path::Path;

use atoll_engine::printable::printable;
use atoll_ledger::StateDir;
use atoll_model::format_bytes;
use atoll_store::{RunRecord, RunState, directory_usage, list_runs, run_disk_usage};

use crate::render::{counted, state_name};

/// The most runs that are named.
const RUNS_MAX: usize = 5;
/// The directory of what servers keep, in Atoll's state.
const SERVED: &str = "served";
/// The directory of the ledger there.
const LEDGER: &str = "ledger";

/// Returns lines on what stays, the largest runs by name; empty where nothing does.
pub fn told(state: &StateDir, goes: &BTreeSet<&str>) -> String {
    let records = list_runs(state)
        .map(|list| list.records)
        .unwrap_or_default();
    let stay = records
        .iter()
        .filter(|one| !goes.contains(one.run.as_str()));
    let mut stay: Vec<(u64, &RunRecord)> = stay
        .map(|one| {
            (
                run_disk_usage(state, &one.run).map_or(0, |used| used.bytes),
                one,
            )
        })
        .collect();
    stay.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let mut lines: Vec<String> = stay.iter().take(RUNS_MAX).map(of_run).collect();
    let rest = stay.get(RUNS_MAX..).unwrap_or_default();
    if !rest.is_empty() {
        let bytes = rest.iter().map(|(bytes, _)| *bytes).sum();
        let runs = counted(rest.len() as u64, "smaller run", "smaller runs");
        let bytes = format_bytes(bytes);
        lines.push(format!("  {runs} ({bytes}): atoll runs --all lists them"));
    }
    let (caches, kept) = (state.shared_layers_dir(), state.kept_dir());
    let served = state.path().join(SERVED);
    let ledger = state.path().join(LEDGER);
    let of_caches = format!(
        "while no run goes on, rm -r {}/NAME",
        printable(caches.as_os_str().as_encoded_bytes())
    );
    let of_kept = "atoll kept lists them, atoll kept discard NAME frees one";
    let of_served = "atoll snapshot, template and volume delete NAME";
    let all = [
        (&caches, ("caches that profiles keep", of_caches.as_str())),
        (&kept, ("directories of agents", of_kept)),
        (&served, ("sandboxes of a server", of_served)),
        (&ledger, ("the ledger", "nothing of it is ever removed")),
    ];
    lines.extend(
        all.iter()
            .filter_map(|(path, what)| of_directory(path, *what)),
    );
    match lines.is_empty() {
        true => String::new(),
        false => format!("Held:\n{}\n", lines.join("\n")),
    }
}

fn of_run((bytes, record): &(u64, &RunRecord)) -> String {
    let run = &record.run;
    let frees = match record.state {
        RunState::Running => format!("atoll stop {run} ends it"),
        RunState::Kept | RunState::Interrupted | RunState::Failed => {
            format!("atoll discard {run} frees it, after atoll apply {run} or not")
        }
        RunState::PartlyApplied => {
            format!("atoll discard {run} frees it; what was applied stays, and cannot be undone")
        }
        RunState::Applied | RunState::Undone => {
            format!(
                "atoll data about {run} says when it goes, atoll gc --older-than TIME removes it"
            )
        }
        RunState::Discarded => "atoll gc removes it".to_owned(),
    };
    let (bytes, state) = (format_bytes(*bytes), state_name(record.state));
    format!("  {run} ({state}, {bytes}): {frees}")
}

fn of_directory(path: &Path, what: (&str, &str)) -> Option<String> {
    let used = directory_usage(path).filter(|used| used.entries > 1)?;
    let (name, frees) = what;
    Some(format!("  {name} ({}): {frees}", format_bytes(used.bytes)))
}
