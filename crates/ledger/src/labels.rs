//! Which data a session has touched and what it is for, as the ledger tells of it.

use std::collections::BTreeSet;

use atoll_model::{RunId, SessionId};
use serde_json::Value;

use crate::event::LABEL_GAINED;
use crate::read::{Events, Filter};
use crate::sessions;
use crate::{LedgerError, StateDir};

/// What runs were for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPurposes {
    /// What persons have stated.
    pub stated: BTreeSet<String>,
    /// The names of those whose policies narrowed, whoever has said so.
    pub narrowed: BTreeSet<String>,
}

/// The labels that the runs of a session have gained: those with which each began, and what came
/// while it went on. Damage may hide one of them: it is an error, and a run that needs to know
/// does not begin.
pub(crate) fn of_session(
    state: &StateDir,
    session: &SessionId,
) -> Result<BTreeSet<String>, LedgerError> {
    let filter = Filter {
        session: Some(session.clone()),
        ..Filter::default()
    };
    let place = sessions::place_of(state, session)?;
    gained(Events::from_place(state, filter, place)?)
}

/// The same of one run. Those of its session count too, where it was of one: what others gained
/// while it went on was its own.
pub(crate) fn of_run(state: &StateDir, run: &RunId) -> Result<BTreeSet<String>, LedgerError> {
    let filter = Filter {
        run: Some(run.clone()),
        ..Filter::default()
    };
    let mut labels = gained(Events::from_start(state, filter)?)?;
    if let Some(session) = sessions::of_run(state, run)? {
        labels.extend(of_session(state, &session)?);
    }
    Ok(labels)
}

/// What the runs of a session were for: the same as of labels holds of damage.
pub(crate) fn purposes_of_session(
    state: &StateDir,
    session: &SessionId,
) -> Result<RunPurposes, LedgerError> {
    let filter = Filter {
        session: Some(session.clone()),
        ..Filter::default()
    };
    let place = sessions::place_of(state, session)?;
    purposes(Events::from_place(state, filter, place)?)
}

/// The same of one run.
pub(crate) fn purposes_of_run(state: &StateDir, run: &RunId) -> Result<RunPurposes, LedgerError> {
    let filter = Filter {
        run: Some(run.clone()),
        ..Filter::default()
    };
    purposes(Events::from_start(state, filter)?)
}

fn purposes(events: Events) -> Result<RunPurposes, LedgerError> {
    let mut purposes = RunPurposes::default();
    for event in events {
        let event = event?;
        if event.kind == "run.opened" {
            let stated = event.body.pointer("/decision/purpose");
            let stated = stated.and_then(Value::as_str).map(str::to_owned);
            purposes.stated.extend(stated);
            let narrowed = event.body.pointer("/decision/purposes");
            let narrowed = narrowed.and_then(Value::as_array).into_iter().flatten();
            let narrowed = narrowed.filter_map(Value::as_str).map(str::to_owned);
            purposes.narrowed.extend(narrowed);
        }
    }
    Ok(purposes)
}

fn gained(events: Events) -> Result<BTreeSet<String>, LedgerError> {
    let mut labels = BTreeSet::new();
    for event in events {
        let event = event?;
        if event.kind == LABEL_GAINED {
            let label = event.body.get("label").and_then(Value::as_str);
            labels.extend(label.map(str::to_owned));
        } else if event.kind == "run.opened" {
            let begun = event.body.pointer("/decision/labels");
            let begun = begun.and_then(Value::as_array).into_iter().flatten();
            labels.extend(begun.filter_map(Value::as_str).map(str::to_owned));
        }
    }
    Ok(labels)
}
