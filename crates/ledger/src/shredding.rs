//! The end of sealed content: the key of a run is destroyed, which is recorded first, and which a
//! hold prevents. A shredding is noted before it begins, so that the next process finishes it if
//! this one ends half way.

use std::collections::BTreeSet;

use atoll_model::{RunId, SessionId};
use serde_json::{Value, json};

use crate::event::{Draft, HOLD_RELEASED, HOLD_SET, SHREDDED};
use crate::journal::Journal;
use crate::open_runs::OpenRuns;
use crate::read::{Events, Filter};
use crate::seals::{HeldKeys, ShredWhy, Shredding};
use crate::{FileFault, LedgerError, PrivateFault, StateDir};

/// The part of the ledger that a shredding or a hold is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// One run.
    Run(RunId),
    /// All runs of a session, also those to come.
    Session(SessionId),
}

/// The result of a shredding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shredded {
    /// The runs whose keys are destroyed now.
    pub runs: Vec<RunId>,
    /// The runs that are left because of a hold.
    pub held: Vec<RunId>,
    /// The runs that are left because they go on.
    pub living: Vec<RunId>,
}

/// Sealed content could not be shredded.
#[derive(Debug, thiserror::Error)]
pub enum ShredError {
    /// The ledger cannot be read or added to, or a key cannot be overwritten.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The keys cannot be read.
    #[error(transparent)]
    Private(#[from] PrivateFault),
}

impl From<FileFault> for ShredError {
    fn from(fault: FileFault) -> Self {
        Self::Ledger(fault.into())
    }
}

/// Sets a hold, or releases it; on disk when it returns. A shredding that was begun is finished
/// first.
pub(crate) fn hold(
    state: &StateDir,
    journal: &Journal,
    what: &Evidence,
    on: bool,
) -> Result<(), ShredError> {
    // Nobody shreds what is just being held.
    let keys = HeldKeys::of(state)?;
    if let Some(keys) = &keys {
        finish(keys, journal)?;
    }
    let kind = if on { HOLD_SET } else { HOLD_RELEASED };
    let draft = match what {
        Evidence::Run(run) => Draft::new(kind, Some(run), &json!({}))?,
        Evidence::Session(session) => {
            Draft::new(kind, None, &json!({ "session": session.as_str() }))?
        }
    };
    journal.append_durable(&draft)?;
    Ok(())
}

/// Destroys the keys of the runs that `is_meant` selects. Runs under a hold, or that go on, are
/// left.
pub(crate) fn shred(
    state: &StateDir,
    journal: &Journal,
    why: ShredWhy,
    is_meant: impl Fn(&RunId, Option<&SessionId>) -> bool,
) -> Result<Shredded, ShredError> {
    let Some(keys) = HeldKeys::of(state)? else {
        return Ok(Shredded::default());
    };
    let mut done = Shredded {
        runs: finish(&keys, journal)?,
        ..Shredded::default()
    };
    done.runs.retain(|run| is_meant(run, None));
    let (held_runs, held_sessions) = holds(state)?;
    let open_runs = OpenRuns::open(state)?;
    let mut runs = Vec::new();
    for (run, session) in keys.runs()? {
        if !is_meant(&run, session.as_ref()) {
            continue;
        }
        let is_of_held = session.is_some_and(|session| held_sessions.contains(&session));
        if is_of_held || held_runs.contains(&run) {
            done.held.push(run);
        } else if open_runs.is_alive(&run)? {
            done.living.push(run);
        } else {
            runs.push(run);
        }
    }
    if !runs.is_empty() {
        let shredding = Shredding { why, runs };
        keys.begin(&shredding)?;
        carry_out(&keys, journal, &shredding)?;
        done.runs.extend(shredding.runs);
    }
    Ok(done)
}

/// Finishes a shredding that a process has begun and not finished, unless another is at it.
pub(crate) fn finish_unfinished(state: &StateDir, journal: &Journal) -> Result<(), ShredError> {
    match HeldKeys::of_unfinished(state)? {
        Some(keys) => finish(&keys, journal).map(drop),
        None => Ok(()),
    }
}

/// Finishes a shredding, and returns its runs.
fn finish(keys: &HeldKeys, journal: &Journal) -> Result<Vec<RunId>, ShredError> {
    let Some(shredding) = keys.shredding()? else {
        return Ok(Vec::new());
    };
    carry_out(keys, journal, &shredding)?;
    Ok(shredding.runs)
}

/// Carries out a shredding. It is recorded first: content that is gone without a record would be a
/// loss.
fn carry_out(keys: &HeldKeys, journal: &Journal, shredding: &Shredding) -> Result<(), ShredError> {
    let body = json!({ "why": shredding.why.name() });
    let drafts = shredding.runs.iter();
    let drafts = drafts.map(|run| Draft::new(SHREDDED, Some(run), &body));
    let drafts: Vec<Draft<'_>> = drafts.collect::<Result<_, _>>()?;
    if !drafts.is_empty() {
        let tail = journal.append_all(&drafts)?;
        journal.make_durable(tail)?;
    }
    Ok(keys.destroy(shredding)?)
}

/// Returns the runs and the sessions under a hold.
fn holds(state: &StateDir) -> Result<(BTreeSet<RunId>, BTreeSet<SessionId>), LedgerError> {
    let filter = Filter {
        kind: Some("hold".to_owned()),
        ..Filter::default()
    };
    let (mut runs, mut sessions) = (BTreeSet::new(), BTreeSet::new());
    for event in Events::from_start(state, filter)? {
        // What is damaged could have been a hold.
        let event = event?;
        let on = event.kind == HOLD_SET;
        let session = event.body.get("session").and_then(Value::as_str);
        let session = session.and_then(|session| SessionId::parse(session).ok());
        match (event.run, session) {
            (Some(run), _) if on => drop(runs.insert(run)),
            (Some(run), _) => drop(runs.remove(&run)),
            (None, Some(session)) if on => drop(sessions.insert(session)),
            (None, Some(session)) => drop(sessions.remove(&session)),
            (None, None) => {}
        }
    }
    Ok((runs, sessions))
}
