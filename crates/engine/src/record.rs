//! The record of a run: as it begins, and as it ends.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use atoll_model::{Call, Outcome, RunId, is_probe, mask_secrets};
use atoll_policy::Grant;
use atoll_store::{RECORD_VERSION, RunRecord, RunState};
use serde_json::{Value, json};

use crate::supervision::Flows;

/// Returns the record of a run that begins.
pub(crate) fn begun(
    call: &Call,
    grant: &Grant,
    purposes: Vec<String>,
    resumed_from: Option<RunId>,
    now: SystemTime,
) -> RunRecord {
    let started = now.duration_since(SystemTime::UNIX_EPOCH);
    let started = started.unwrap_or(Duration::ZERO);
    RunRecord {
        v: RECORD_VERSION,
        run: call.run().clone(),
        command: call.command().iter().map(masked).collect(),
        workspace: call.workspace().to_owned(),
        directory: call.directory().to_owned(),
        profile: grant.boundary().profile.clone(),
        purposes,
        mode: grant.boundary().workspace,
        base: None,
        layers: Vec::new(),
        started_at_ms: u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
        state: RunState::Running,
        exit: None,
        ending: None,
        changes: None,
        attempts: 0,
        resumed_from,
    }
}

/// Returns a word of a command without secrets that look like ones: a record is for people.
fn masked(word: &OsString) -> OsString {
    word.to_str().map_or_else(
        || word.clone(),
        |text| mask_secrets(text).into_owned().into(),
    )
}

/// Enters the program's end into the record.
pub(crate) fn note_outcome(record: &mut RunRecord, outcome: &Outcome) {
    let attempts = outcome.attempts.iter().filter(|one| !is_probe(one.call));
    let counts = attempts.map(|one| one.count);
    record.attempts = counts.fold(0, u64::saturating_add);
    record.ending = Some(outcome.ending);
    record.exit = Some(outcome.ending.exit_status());
}

/// Returns the details of the closing event.
pub(crate) fn closing(outcome: &Outcome, flows: &Flows, kept: bool) -> Value {
    let mut details = json!({ "exit": outcome.ending.exit_status(), "kept": kept });
    if let (Some(details), Some(failure)) = (details.as_object_mut(), &flows.failure) {
        details.insert("network-failure".to_owned(), json!(failure));
    }
    if let (Some(details), Some(stopped)) = (details.as_object_mut(), &flows.stopped) {
        details.insert("stopped".to_owned(), json!(stopped));
    }
    details
}
