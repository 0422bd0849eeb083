//! Retention: all that is kept, when it goes by the rules, and the sweep that removes it. Whatever is
//! destroyed is on record first, and nothing that is under a hold is.
//!
//! Start reading at [`sweep`].

mod item;
mod listing;
mod place;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::time::SystemTime;

use atoll_engine::artifacts::destroy_shredded;
use atoll_engine::checkpoints::Checkpoints;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::{fetched_input, undo_notes};
use atoll_ledger::state::HOLDS;
use atoll_ledger::{Durability, Holds, Ledger, Shredded, StateDir};
use atoll_model::RunId;
use atoll_store::{Artifacts, RunRecord, Store, collect, remove_directory};
use serde_json::json;

pub use item::{Goes, Item, Kind, due};
pub use listing::kept;
pub use place::Place;
pub use rules::{Class, Rules};

/// The most things that are removed while no hold can be set.
const AT_ONCE_MAX: usize = 64;
/// The file that a sweep locks, in the directory of holds.
const SWEEPING: &str = "sweeping";
const UNHELD: &str = "what is held cannot be told, so nothing is removed";

/// Removes what a server has.
pub trait ServedRemoval {
    /// Ends a paused sandbox.
    ///
    /// # Errors
    /// When it cannot be ended now.
    fn end_paused(&self, id: &str) -> Result<(), Failure>;

    /// Removes a snapshot.
    ///
    /// # Errors
    /// When it cannot be removed now.
    fn remove_snapshot(&self, id: &str) -> Result<(), Failure>;
}

/// The result of a sweep.
#[derive(Debug, Default)]
pub struct Swept {
    /// The things that were removed.
    pub removed: Vec<Item>,
    /// Those that were to go and stay, by kind and name, with the reason.
    pub left: Vec<(String, String)>,
    /// The end of sealed content that was too old.
    pub shredded: Shredded,
}

/// Removes all whose end has come by the rules, each on record first. What was cut short before goes on.
/// Without `served` nothing of a server's store is touched: whoever has it sweeps that.
///
/// # Errors
/// When it cannot be told what is kept or held, another sweep is under way, or the ledger cannot be added
/// to.
pub fn sweep(
    place: &Place<'_>,
    rules: &Rules,
    served: Option<&dyn ServedRemoval>,
    now: SystemTime,
) -> Result<Swept, Failure> {
    let state = place.state;
    let mut swept = Swept::default();
    // Makes the directory, too.
    drop(Holds::lock(state).doing(UNHELD)?);
    let _alone = alone(state)?;
    destroy_shredded(state)?;
    let holds = Holds::read(state).doing(UNHELD)?;
    let mut items = due(&kept(place)?, rules, &holds, now);
    items.retain(|one| served.is_some() || !one.kind.is_served());
    let is_of = |one: &Item, is_run| matches!(one.kind, Kind::Run(_)) == is_run;
    let runs: Vec<Item> = items
        .iter()
        .filter(|one| is_of(one, true))
        .cloned()
        .collect();
    sweep_runs(place, runs, &mut swept)?;
    // Keys of sealed content go last, and all at once.
    items.retain(|one| is_of(one, false) && one.kind != Kind::Sealed);
    for chunk in items.chunks(AT_ONCE_MAX) {
        let holds = Holds::lock(state).doing(UNHELD)?;
        // Since it was listed it may have been used, decided about or held.
        let still = due(&kept(place)?, rules, &holds, now);
        for item in chunk.iter().filter(|one| still.contains(one)) {
            match remove(place, item, served) {
                Ok(()) => swept.removed.push(item.clone()),
                Err(failure) => {
                    let why = failure.why.unwrap_or(failure.what);
                    swept.left.push((named(item), why));
                }
            }
        }
    }
    if let Some(age) = rules.age(Class::Evidence) {
        let before = now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let shredded = place.ledger.shred_older(before);
        swept.shredded = shredded.doing("what is too old cannot be shredded")?;
        destroy_shredded(state)?;
    }
    Ok(swept)
}

/// Takes the right to sweep: no two do that at once.
fn alone(state: &StateDir) -> Result<File, Failure> {
    let failed = "nothing is swept";
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(state.path().join(HOLDS).join(SWEEPING));
    let file = file.doing(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Failure::new(failed).because("another sweep is under way"))
        }
        Err(TryLockError::Error(error)) => Err(Failure::new(failed).because(error)),
    }
}

/// Removes changes of runs, with what is left of removals that were cut short.
fn sweep_runs(place: &Place<'_>, runs: Vec<Item>, swept: &mut Swept) -> Result<(), Failure> {
    let state = place.state;
    let names: BTreeSet<&str> = runs.iter().map(|one| one.id.as_str()).collect();
    let mut plan = listing::ended_runs(state)?;
    plan.runs.retain(|one| names.contains(one.run.as_str()));
    let mut unrecorded = Ok(());
    // The last one's way to the disk takes the others with it.
    let mut record = |records: &[RunRecord]| {
        for (index, record) in records.iter().enumerate() {
            let durability = match index + 1 == records.len() {
                true => Durability::Durable,
                false => Durability::Buffered,
            };
            if unrecorded.is_ok() {
                let body = json!({ "state": record.state });
                let run = Some(&record.run);
                let recorded = place.ledger.record(run, "run.collected", body, durability);
                unrecorded = recorded.map(drop);
            }
        }
        unrecorded.is_ok()
    };
    let mut failed = Vec::new();
    let mut rest = std::mem::take(&mut plan.runs);
    loop {
        plan.runs = rest.split_off(rest.len().saturating_sub(AT_ONCE_MAX));
        let holds = Holds::lock(state).doing(UNHELD)?;
        // A hold may have been set, or an apply been begun and cut short, since it was listed.
        let may_go = |record: &RunRecord| {
            !holds.keeps(&record.run) && !listing::is_cut_short(state, &record.run)
        };
        failed.extend(collect(state, &plan, may_go, &mut record));
        plan.leftovers.clear();
        if rest.is_empty() {
            break;
        }
    }
    unrecorded.doing("the removal cannot be recorded")?;
    let is_left = |item: &Item| failed.iter().any(|(name, _)| *name == item.id);
    swept
        .removed
        .extend(runs.into_iter().filter(|one| !is_left(one)));
    let left = failed
        .iter()
        .map(|(name, why)| (name.clone(), why.to_string()));
    swept.left.extend(left);
    Ok(())
}

/// Returns the kind and the name of a thing.
fn named(item: &Item) -> String {
    format!("{} {}", item.kind.name(), item.id)
}

/// Removes one thing, once that is on record.
fn remove(
    place: &Place<'_>,
    item: &Item,
    served: Option<&dyn ServedRemoval>,
) -> Result<(), Failure> {
    let (state, ledger) = (place.state, place.ledger);
    let run = || RunId::parse(&item.id).doing("it is no run");
    match item.kind {
        Kind::Checkpoint => {
            // It is recorded by its own name.
            let checkpoints = Checkpoints { state, ledger };
            checkpoints.discard(&checkpoints.named(&item.id)?)
        }
        Kind::UndoNotes => {
            record(ledger, item)?;
            undo_notes::remove(state, &run()?)
        }
        Kind::Download => {
            record(ledger, item)?;
            let removed = fs::remove_file(fetched_input(state, &item.id));
            removed.doing("the download cannot be removed")
        }
        Kind::Artifacts => {
            let unread = "the artifacts cannot be removed";
            let store = Artifacts::open(state, false).doing(unread)?;
            record(ledger, item)?;
            store.map_or(Ok(()), |store| store.destroy(&run()?).doing(unread))
        }
        Kind::Hook => {
            let directory = listing::hook(state, &item.id);
            let lock = File::open(directory.join("lock")).doing("it cannot be locked")?;
            // Commands of its session begin and end with the lock.
            lock.try_lock().doing("a command of its session runs")?;
            record(ledger, item)?;
            remove_directory(&directory).doing("it cannot be removed")
        }
        Kind::Paused => {
            record(ledger, item)?;
            served.map_or(Ok(()), |served| served.end_paused(&item.id))
        }
        Kind::Snapshot => {
            record(ledger, item)?;
            served.map_or(Ok(()), |served| served.remove_snapshot(&item.id))
        }
        Kind::Events => {
            record(ledger, item)?;
            let tenant = item.tenant.as_deref().unwrap_or_default();
            let forget = |store: &dyn Store| store.forget_events(tenant, &item.id);
            place
                .store
                .map_or(Ok(()), forget)
                .doing("they cannot be removed")
        }
        Kind::Run(_) | Kind::Sealed | Kind::Template | Kind::Volume => Ok(()),
    }
}

/// Records that a thing is removed.
fn record(ledger: &Ledger, item: &Item) -> Result<(), Failure> {
    let body = json!({
        "class": item.kind.class().map(Class::name),
        "kind": item.kind.name(),
        "id": item.id,
        "bytes": item.bytes,
        "tenant": item.tenant,
    });
    let recorded = ledger.record(item.runs.first(), "data.removed", body, Durability::Durable);
    recorded.map(drop).doing("the removal cannot be recorded")
}
