//! The result of a run as JSON.

use atoll_engine::changes;
use atoll_model::{Attempt, LimitKey};
use atoll_store::RunRecord;
use serde_json::json;

use super::{Conclusion, Went, denials_not_seen};
use crate::reached::network_json;
use crate::render;

/// Returns the result of a run as JSON.
pub(super) fn as_json(record: &RunRecord, run: &Conclusion<'_>, went: &Went) -> serde_json::Value {
    let (outcome, groups) = (&went.outcome, &went.groups);
    let denied: Vec<_> = went
        .denied
        .iter()
        .map(|denied| json!({ "what": denied.what, "times": denied.times, "limit": denied.limit.map(LimitKey::name) }))
        .collect();
    let planted: Vec<_> = went
        .planted
        .iter()
        .map(|path| String::from_utf8_lossy(path))
        .collect();
    let attempt = |one: &Attempt| {
        let technique = one.wall.technique();
        json!({
            "wall": one.wall.name(), "call": one.call, "times": one.count,
            "atlas": technique.id, "technique": technique.name,
        })
    };
    let attempts: Vec<_> = outcome.attempts.iter().map(attempt).collect();
    let milliseconds =
        |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let group = |group: &changes::Group| json!({ "added": group.added, "changed": group.changed, "removed": group.removed });
    let mut told = json!({
        "run": record.run,
        "state": render::state_word(record),
        "profile": record.profile,
        "mode": run.mode,
        "root": run.rules.root(),
        "nesting": run.rules.nesting(),
        "workspace": record.workspace.to_string_lossy(),
        "exit": outcome.ending.exit_status(),
        "ending": outcome.ending,
        "wall-clock-ms": milliseconds(outcome.usage.wall_clock),
        "cpu-ms": milliseconds(outcome.usage.cpu),
        "memory-peak-bytes": outcome.usage.memory_peak_bytes,
        "limits-held-by": outcome.enforcement,
        "changes": {
            "workspace": group(&groups.workspace),
            "control": group(&groups.control),
            "caches": group(&groups.caches),
            "ignored": group(&groups.ignored),
        },
        "denied": denied,
        "artifacts": went.artifacts,
        "approvals": went.approvals,
        "stopped": went.flows.stopped,
        "attempts": attempts,
        "network": network_json(&run.rules.network(), &went.flows, went.learnt.as_deref()),
        "denials-not-seen": denials_not_seen(run.rules.nesting()),
        "control-files-in-workspace": planted,
    });
    if let Some(told) = told.as_object_mut() {
        let stated = run.rules.stated_trust().into_iter();
        told.extend(stated.map(|(key, text)| (key.to_owned(), json!(text))));
    }
    told
}
