//! The ledger as all commands use it: opened for writing, and the events of a run, with sealed
//! content decrypted if its key is here.

mod times;

use std::collections::BTreeSet;
use std::time::SystemTime;

use atoll_ledger::{Event, Filter, FollowedSeals, Ledger, PrivateFault, Seals, StateDir};
use atoll_model::{RunId, SessionId};
use atoll_sandbox::{Host, RunGroup, run_groups};
use atoll_store::control_directory;
use serde_json::Value;

use crate::failure::{Doing, Failure};
use crate::outputs::put_away_left;
use crate::supervision::connected_to;

pub use times::{beginning, microseconds, seconds};

/// Opens the ledger, and removes the control groups and sockets that interrupted runs have left.
///
/// # Errors
/// When the ledger cannot be opened.
pub fn open_ledger(state: &StateDir) -> Result<Ledger, Failure> {
    let ledger = atoll_store::open_ledger(state, SystemTime::now).map_err(|error| {
        Failure::new("the ledger cannot be opened")
            .because(&error)
            .advise(error)
    })?;
    if !ledger.interrupted().is_empty()
        && let Ok(host) = Host::read()
    {
        let is_interrupted =
            |group: &RunGroup| ledger.interrupted().iter().any(|one| one.run == group.run);
        for group in run_groups(&host)
            .iter()
            .filter(|group| is_interrupted(group))
        {
            // One that still has a process is for `atoll gc`.
            let _ = group.remove();
        }
    }
    // What cannot be put away is tried again, and told by whoever asks for artifacts.
    let _ = put_away_left(state, &ledger);
    if !ledger.interrupted().is_empty()
        && let Ok(Some(sockets)) = control_directory(state, false)
    {
        for interrupted in ledger.interrupted() {
            // Nobody is there any more: that removes it.
            let _ = connected_to(&sockets, &interrupted.run);
        }
    }
    Ok(ledger)
}

/// Returns all events of a run, with sealed content decrypted if its key is here.
///
/// # Errors
/// When the ledger or the keys cannot be read.
pub fn events_of(state: &StateDir, run: &RunId) -> Result<Vec<Event>, Failure> {
    let seals = seals(state)?;
    let all = Ledger::show(state, run).doing("the ledger cannot be read")?;
    let damaged = "the ledger is damaged there; atoll ledger verify tells more";
    all.map(|event| Ok(seals.open(event.doing(damaged)?)))
        .collect()
}

/// Reads the keys of sealed content.
///
/// # Errors
/// When they cannot be read.
pub fn seals(state: &StateDir) -> Result<Seals, Failure> {
    Seals::read(state).map_err(unreadable)
}

/// Returns the runs whose sealed content is on record as shredded.
///
/// # Errors
/// When the ledger cannot be read.
pub fn shredded(state: &StateDir) -> Result<BTreeSet<RunId>, Failure> {
    let filter = Filter {
        kind: Some("seal.shredded".to_owned()),
        ..Filter::default()
    };
    let unread = "the ledger cannot be read";
    let mut all = BTreeSet::new();
    for event in Ledger::events(state, filter).doing(unread)? {
        all.extend(event.doing(unread)?.run);
    }
    Ok(all)
}

/// Reads the keys of sealed events, for a reader that follows the ledger.
///
/// # Errors
/// When they cannot be read.
pub fn followed(state: &StateDir) -> Result<FollowedSeals, Failure> {
    FollowedSeals::read(state).map_err(unreadable)
}

/// Describes a failure to read the keys of sealed events.
pub fn unreadable(fault: PrivateFault) -> Failure {
    Failure::new("the keys of what is sealed cannot be read")
        .because(&fault)
        .advise(fault)
}

/// Returns the session of a run, from its first event.
pub fn session_of(opened: &Event) -> Option<SessionId> {
    let id = opened.body.get("session").and_then(Value::as_str)?;
    SessionId::parse(id).ok()
}

/// Returns the number of a run's next question.
///
/// # Errors
/// When its events cannot be read.
pub fn next_question(state: &StateDir, run: &RunId) -> Result<u64, Failure> {
    let unread = "what a person was asked cannot be read from the ledger";
    let mut last = 0;
    for event in Ledger::show(state, run).doing(unread)? {
        let number = event
            .doing(unread)?
            .body
            .get("approval")
            .and_then(Value::as_u64);
        last = last.max(number.unwrap_or(0));
    }
    Ok(last.saturating_add(1))
}
