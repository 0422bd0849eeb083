//! The labels and purposes of sessions and runs, as the ledger records them: the data that they
//! have touched, and the purposes of the work.

use std::collections::BTreeSet;

use atoll_model::{RunId, SessionId};
use serde_json::Value;

use crate::event::LABEL_GAINED;
use crate::read::{Events, Filter};
use crate::state::LEDGER;
use crate::{Event, LedgerError, StateDir, sessions};

/// The runs that have used a kept layer, as in its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptUse {
    /// The profile whose runs share the layer.
    pub profile: String,
    /// The run that found it empty, if known.
    pub first: Option<RunId>,
    /// The last run that used it.
    pub last: RunId,
    /// The labels of these runs that are in the record.
    pub labels: BTreeSet<String>,
    /// True if there are no others.
    pub has_all_labels: bool,
}

/// The purposes of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPurposes {
    /// The purposes that persons have stated.
    pub stated: BTreeSet<String>,
    /// The names of the purposes whose policies narrowed a run, whoever stated them.
    pub narrowed: BTreeSet<String>,
}

/// Reads the labels that the runs of a session have gained: those with which each began, and those
/// that came while it went on. Damage is an error, since it may hide a label: a run that needs to
/// know does not begin.
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

/// Reads the labels of one run. Those of its session count too, if it had one: what others gained
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

/// Reads the labels of the runs that have used a kept layer: all of its profile since it was found
/// empty, if its record does not have them. Those of their sessions count too.
pub(crate) fn of_kept(state: &StateDir, kept: &KeptUse) -> Result<BTreeSet<String>, LedgerError> {
    let mut labels = kept.labels.clone();
    if kept.has_all_labels {
        return Ok(labels);
    }
    let (mut runs, mut sessions) = (BTreeSet::new(), BTreeSet::new());
    let mut has_begun = kept.first.is_none();
    for event in Events::from_start(state, of_kind("run.opened"))? {
        let event = event?;
        has_begun |= event.run == kept.first;
        let profile = event.body.pointer("/decision/profile");
        let is_of_it = profile.and_then(Value::as_str) == Some(&kept.profile);
        if let (true, Some(run)) = (has_begun && is_of_it, event.run.clone()) {
            take(&event, &mut labels);
            let session = event.body.get("session").and_then(Value::as_str);
            sessions.extend(session.and_then(|id| SessionId::parse(id).ok()));
            runs.insert(run);
        }
    }
    if let Some(run) = kept
        .first
        .iter()
        .chain([&kept.last])
        .find(|run| !runs.contains(*run))
    {
        return Err(LedgerError::Damaged {
            path: state.path().join(LEDGER),
            what: format!("it does not know run {run}, which has used what is kept"),
        });
    }
    for event in Events::from_start(state, of_kind(LABEL_GAINED))? {
        let event = event?;
        if event.run.as_ref().is_some_and(|run| runs.contains(run)) {
            take(&event, &mut labels);
        }
    }
    for session in sessions {
        labels.extend(of_session(state, &session)?);
    }
    Ok(labels)
}

fn of_kind(kind: &str) -> Filter {
    Filter {
        kind: Some(kind.to_owned()),
        ..Filter::default()
    }
}

/// Reads the purposes of a session's runs. Damage is an error, as for [`of_session`].
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

/// Reads the purposes of one run.
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
        take(&event?, &mut labels);
    }
    Ok(labels)
}

/// Adds the labels that an event records.
fn take(event: &Event, labels: &mut BTreeSet<String>) {
    if event.kind == LABEL_GAINED {
        let label = event.body.get("label").and_then(Value::as_str);
        labels.extend(label.map(str::to_owned));
    } else if event.kind == "run.opened" {
        let begun = event.body.pointer("/decision/labels");
        let begun = begun.and_then(Value::as_array).into_iter().flatten();
        labels.extend(begun.filter_map(Value::as_str).map(str::to_owned));
    }
}
