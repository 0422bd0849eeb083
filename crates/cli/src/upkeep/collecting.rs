//! `atoll gc`: removes what is no longer needed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use atoll_data::retention::{Class, Item, Kind, Place, Rules, ServedRemoval, due, kept, sweep};
use atoll_engine::configuration::Places;
use atoll_engine::events::open_ledger;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_ledger::{Holds, Ledger, StateDir, forget, forgettable};
use atoll_model::{RunId, format_bytes, format_duration, parse_duration};
use atoll_sandbox::{Host, RunGroup, run_groups};
use atoll_server::worker::Offline;
use atoll_store::{ServedStore, Store, release_for_removal};
use serde_json::{Value, json};

use super::held;
use crate::arguments::GcArguments;
use crate::data::item_json;
use crate::output::Output;
use crate::render;
use crate::serve::existing_store;

/// Removes what is no longer needed.
pub fn gc(arguments: &GcArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    if !places.state.exists() {
        output.say("There is nothing to remove.\n");
        return Ok(0);
    }
    let older_than = arguments.older_than.as_deref().map(parse_duration);
    let older_than = older_than
        .transpose()
        .doing("--older-than is not usable")
        .map_err(|failure| failure.advise("atoll gc --older-than 30d --dry-run"))?;
    let rules = Rules::read(&places)?.with_layers_older_than(older_than);
    let state = places.open_state()?;
    if !arguments.dry_run {
        release_for_removal(&state);
    }
    let ledger = open_ledger(&state)?;
    let store = store_alone(&places, output)?;
    let place = Place {
        state: &state,
        ledger: &ledger,
        store: store.as_ref().map(|store| store as &dyn Store),
    };
    let now = SystemTime::now();
    let (all, holds) = (kept(&place)?, held_by(&state)?);
    tell_left(&all, &rules, &holds, now, output);
    let mut failed = 0;
    let gone = match arguments.dry_run {
        true => due(&all, &rules, &holds, now),
        false => {
            let offline = store.as_ref().map(|store| Offline {
                state: &state,
                store,
            });
            let served = offline.as_ref().map(|one| one as &dyn ServedRemoval);
            let swept = sweep(&place, &rules, served, now)?;
            failed = swept.left.len();
            for (what, why) in &swept.left {
                let text = format!("{what} was not removed: {why}");
                output.warn(&printable(text.as_bytes()));
            }
            let shredded = swept.shredded.runs.iter();
            let is_shredded: BTreeSet<&str> = shredded.map(RunId::as_str).collect();
            let sealed = all.into_iter().filter(|one| one.kind == Kind::Sealed);
            let sealed = sealed.filter(|one| is_shredded.contains(one.id.as_str()));
            swept.removed.into_iter().chain(sealed).collect()
        }
    };
    match arguments.json {
        true => output.json(&json!({
            "dry_run": arguments.dry_run,
            "classes": classes_json(&gone),
            "items": gone.iter().map(|one| item_json(one, &rules, &holds)).collect::<Vec<_>>(),
        })),
        false => tell(&gone, now, arguments.dry_run, output),
    }
    finish(&state, &gone, arguments.dry_run, output)?;
    Ok(u8::from(failed > 0))
}

/// Opens the store of a server for this process alone; `None` without one, or while a server runs.
fn store_alone(places: &Places, output: &Output) -> Result<Option<ServedStore>, Failure> {
    let failed = "the server's store cannot be used";
    let Some(mut store) = existing_store(places)? else {
        return Ok(None);
    };
    if store.is_taken().doing(failed)? {
        output.say("A server runs: it sweeps its sandboxes and events by itself.\n");
        return Ok(None);
    }
    store.take().doing(failed)?;
    Ok(Some(store))
}

fn held_by(state: &StateDir) -> Result<Holds, Failure> {
    Holds::read(state).doing("what is held cannot be told, so nothing is removed")
}

/// Tells of things that would go and stay: those that somebody needs, and those under a hold.
fn tell_left(all: &[Item], rules: &Rules, holds: &Holds, now: SystemTime, output: &Output) {
    let over = all.iter().filter(|one| one.is_over(rules, now));
    let mut held = 0;
    for item in over {
        match item.stays {
            _ if item.is_held(holds) => held += 1,
            Some(why) if matches!(item.kind, Kind::Run(_)) => {
                output.warn(&format!("{} stays: {why}", item.id));
            }
            Some(_) | None => {}
        }
    }
    if held > 0 {
        let what = render::counted(held, "thing stays", "things stay");
        output.say(&format!(
            "{what} under a hold; `atoll ledger release WHAT` ends one.\n"
        ));
    }
}

fn tell(gone: &[Item], now: SystemTime, is_dry: bool, output: &Output) {
    let mut kinds: BTreeMap<&str, (Kind, u64, u64)> = BTreeMap::new();
    for item in gone {
        let of = match item.kind {
            Kind::Run(state) => render::state_name(state),
            other => other.name(),
        };
        let age = now.duration_since(item.since).unwrap_or_default();
        output.result(&format!(
            "{}  {of:<14}  {:>9}  {} old\n",
            printable(item.id.as_bytes()),
            format_bytes(item.bytes),
            format_duration(age)
        ));
        let of_kind = kinds.entry(item.kind.name()).or_insert((item.kind, 0, 0));
        of_kind.1 += 1;
        of_kind.2 += item.bytes;
    }
    let would = if is_dry { "would be " } else { "" };
    if !gone.iter().any(|one| matches!(one.kind, Kind::Run(_))) {
        output.say(&format!("0 runs {would}removed.\n"));
    }
    for (kind, count, bytes) in kinds.into_values() {
        let (one, several, done) = words(kind);
        let what = render::counted(count, one, several);
        let class = kind.class().map_or("", Class::name);
        let bytes = format_bytes(bytes);
        output.say(&format!("{what} {would}{done} ({class}, {bytes}).\n"));
    }
}

/// Returns the words for one and several of a kind, and for their end.
fn words(kind: Kind) -> (&'static str, &'static str, &'static str) {
    match kind {
        Kind::Run(_) => ("run", "runs", "removed"),
        Kind::Checkpoint => ("checkpoint", "checkpoints", "freed"),
        Kind::Download => ("download", "downloads", "removed"),
        Kind::UndoNotes => ("file of undo notes", "files of undo notes", "removed"),
        Kind::Artifacts => ("run's artifacts", "runs' artifacts", "destroyed"),
        Kind::Hook => ("hook's directory", "hooks' directories", "removed"),
        Kind::Paused => ("paused sandbox", "paused sandboxes", "removed"),
        Kind::Snapshot => ("snapshot", "snapshots", "removed"),
        Kind::Events => ("sandbox's events", "sandboxes' events", "removed"),
        Kind::Sealed => ("run's sealed content", "runs' sealed content", "shredded"),
        Kind::Template => ("template", "templates", "removed"),
        Kind::Volume => ("volume", "volumes", "removed"),
    }
}

fn classes_json(gone: &[Item]) -> Value {
    let of = |class: Class| {
        let own = gone.iter().filter(|one| one.kind.class() == Some(class));
        let (count, bytes) = own.fold((0_u64, 0_u64), |(count, bytes), one| {
            (count + 1, bytes + one.bytes)
        });
        (
            class.name().to_owned(),
            json!({ "count": count, "bytes": bytes }),
        )
    };
    Value::Object(Class::ALL.into_iter().map(of).collect())
}

/// Removes what belongs to runs that are gone, and tells what is held by others.
fn finish(state: &StateDir, gone: &[Item], is_dry: bool, output: &Output) -> Result<(), Failure> {
    // Once runs are gone, more sessions have none.
    let sessions = forgettable(state).doing("the sessions cannot be listed")?;
    let groups = leftover_groups(state)?;
    if is_dry {
        tell_sessions(sessions.len(), "would be removed", output);
        tell_groups(groups.len(), "would be removed", output);
        let goes = gone.iter().map(|one| one.id.as_str()).collect();
        output.say(&held::told(state, &goes));
        return Ok(());
    }
    let forgotten = forget(state, &sessions).doing("what sessions keep cannot be removed")?;
    tell_sessions(forgotten, "removed", output);
    let removed = groups.iter().filter(|group| group.remove()).count();
    tell_groups(removed, "removed", output);
    output.say(&held::told(state, &BTreeSet::new()));
    Ok(())
}

/// Returns the control groups of runs whose end is in the ledger; others may be alive.
fn leftover_groups(state: &StateDir) -> Result<Vec<RunGroup>, Failure> {
    let mut leftover = Vec::new();
    let Ok(host) = Host::read() else {
        // What no run can be made on has no groups of runs.
        return Ok(leftover);
    };
    for group in run_groups(&host) {
        if Ledger::is_over(state, &group.run).doing("the ledger cannot be read")? {
            leftover.push(group);
        }
    }
    Ok(leftover)
}

/// Reports the removed label files of sessions; the labels stay in the ledger.
fn tell_sessions(count: usize, what: &str, output: &Output) {
    if count > 0 {
        let files = render::counted(count as u64, "file", "files");
        output.say(&format!(
            "{files} by which runs of a session told each other their labels {what}; the ledger has them.\n"
        ));
    }
}

fn tell_groups(count: usize, what: &str, output: &Output) {
    if count > 0 {
        let groups = render::counted(count as u64, "control group", "control groups");
        output.say(&format!("{groups} {what}.\n"));
    }
}
