//! The end of sealed content: the key of a run is destroyed, which is recorded first, and which a
//! hold prevents. A shredding is noted before it begins, so that the next process finishes it if
//! this one ends half way.

use std::collections::BTreeSet;

use atoll_model::{RunId, SessionId};
use serde_json::json;

use crate::StateDir;
use crate::event::{Draft, HOLD_RELEASED, HOLD_SET, SHREDDED};
use crate::holds::{Evidence, Holds, ShredError, locked, runs_of};
use crate::journal::Journal;
use crate::open_runs::OpenRuns;
use crate::seals::{HeldKeys, ShredWhy, Shredding};

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

/// Sets a hold, or releases it; on disk when it returns. A shredding that was begun is finished
/// first, and what is gone is held no more.
pub(crate) fn hold(
    state: &StateDir,
    journal: &Journal,
    what: &Evidence,
    on: bool,
) -> Result<(), ShredError> {
    // Nobody sweeps or shreds what is just being held.
    let _lock = locked(state)?;
    if let Some(keys) = HeldKeys::of(state)? {
        finish(&keys, journal)?;
        if let (Evidence::Run(run), true) = (what, on)
            && keys.is_shredded(run)?
        {
            return Err(ShredError::Gone(run.clone()));
        }
    }
    let kind = if on { HOLD_SET } else { HOLD_RELEASED };
    let draft = match what {
        Evidence::Run(run) => Draft::new(kind, Some(run), &json!({}))?,
        Evidence::Session(session) => {
            Draft::new(kind, None, &json!({ "session": session.as_str() }))?
        }
        Evidence::Tenant(tenant) => Draft::new(kind, None, &json!({ "tenant": tenant }))?,
    };
    journal.append_durable(&draft)?;
    Ok(())
}

/// Destroys the keys of what a person has named.
pub(crate) fn shred_evidence(
    state: &StateDir,
    journal: &Journal,
    what: &Evidence,
) -> Result<Shredded, ShredError> {
    let runs = runs_of(state, &BTreeSet::from([what.clone()]))?;
    let is_meant = |run: &RunId, session: Option<&SessionId>| {
        let is_of_session = |session: &SessionId| *what == Evidence::Session(session.clone());
        runs.contains(run) || session.is_some_and(is_of_session)
    };
    shred(state, journal, ShredWhy::Asked, is_meant)
}

/// Destroys the keys of the runs that `is_meant` selects. Runs under a hold, or that go on, are
/// left.
pub(crate) fn shred(
    state: &StateDir,
    journal: &Journal,
    why: ShredWhy,
    is_meant: impl Fn(&RunId, Option<&SessionId>) -> bool,
) -> Result<Shredded, ShredError> {
    let holds = Holds::lock(state)?;
    let Some(keys) = HeldKeys::of(state)? else {
        return Ok(Shredded::default());
    };
    let mut done = Shredded {
        runs: finish(&keys, journal)?,
        ..Shredded::default()
    };
    done.runs.retain(|run| is_meant(run, None));
    let open_runs = OpenRuns::open(state)?;
    let mut runs = Vec::new();
    for (run, session) in keys.runs()? {
        if !is_meant(&run, session.as_ref()) {
            continue;
        }
        let is_of_held = session.is_some_and(|session| holds.keeps_session(&session));
        if is_of_held || holds.keeps(&run) {
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
