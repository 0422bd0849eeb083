//! Events of sandboxes' lives in E2B's form: as the front lists them, and as webhooks get them.

use serde_json::{Map, Value, json};

use crate::protocol::LifecycleEventFacts;
use crate::rfc3339::time_of;

/// The kinds of events in E2B's API; of these sandboxes the first three come.
pub(crate) const KINDS: [&str; 6] = [
    "created",
    "updated",
    "killed",
    "paused",
    "resumed",
    "checkpointed",
];

/// The beginning of the name of every type.
const PREFIX: &str = "sandbox.lifecycle.";

/// Returns the type of a kind.
pub(crate) fn type_of(kind: &str) -> String {
    format!("{PREFIX}{kind}")
}

/// Returns the kind of a type, if there is one of this name.
pub(crate) fn kind_of(name: &str) -> Option<&'static str> {
    let kind = name.strip_prefix(PREFIX)?;
    KINDS.into_iter().find(|known| *known == kind)
}

/// Writes an event.
pub(crate) fn rendered(event: &LifecycleEventFacts) -> Value {
    let fact = |name: &str| event.facts.get(name).cloned().unwrap_or_default();
    let mut data = Map::new();
    // Long ones are left out of events.
    let metadata = Some(fact("metadata")).filter(Value::is_object);
    let metadata = metadata.unwrap_or_else(|| json!({}));
    data.insert("sandbox_metadata".to_owned(), metadata);
    if event.kind == "killed" {
        let started = fact("started_ms").as_u64().map(time_of);
        let execution = json!({
            "started_at": started,
            "vcpu_count": fact("cpus"),
            "memory_mb": fact("memory_mib"),
            "execution_time": fact("lived_ms"),
        });
        data.insert("execution".to_owned(), execution);
    }
    // Not E2B's.
    data.insert("why".to_owned(), fact("why"));
    json!({
        "version": "v2",
        "id": event.id,
        "type": type_of(&event.kind),
        "eventData": data,
        // There are no builds of templates here.
        "sandboxBuildId": fact("template"),
        "sandboxExecutionId": fact("run"),
        "sandboxId": event.sandbox,
        "sandboxTeamId": event.tenant,
        "sandboxTemplateId": fact("template"),
        "timestamp": time_of(event.at_ms),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn killed_event_has_the_execution() {
        let event = LifecycleEventFacts {
            id: "e".to_owned(),
            tenant: "team".to_owned(),
            sandbox: "i1".to_owned(),
            kind: "killed".to_owned(),
            at_ms: 1_754_513_964_000,
            facts: json!({
                "why": "its time was over", "run": "r", "template": "base",
                "metadata": { "a": "b" }, "cpus": 2, "memory_mib": 1024,
                "started_ms": 1_754_513_904_000_u64, "lived_ms": 60_000,
            }),
        };
        let expected = json!({
            "version": "v2",
            "id": "e",
            "type": "sandbox.lifecycle.killed",
            "eventData": {
                "sandbox_metadata": { "a": "b" },
                "execution": {
                    "started_at": "2025-08-06T20:58:24Z",
                    "vcpu_count": 2,
                    "memory_mb": 1024,
                    "execution_time": 60_000,
                },
                "why": "its time was over",
            },
            "sandboxBuildId": "base",
            "sandboxExecutionId": "r",
            "sandboxId": "i1",
            "sandboxTeamId": "team",
            "sandboxTemplateId": "base",
            "timestamp": "2025-08-06T20:59:24Z",
        });
        assert_eq!(rendered(&event), expected);
        let created = LifecycleEventFacts {
            kind: "created".to_owned(),
            ..event
        };
        assert_eq!(rendered(&created)["eventData"].get("execution"), None);
    }

    #[test]
    fn type_of_each_kind_is_read_again() {
        for kind in KINDS {
            assert_eq!(kind_of(&type_of(kind)), Some(kind));
        }
        assert_eq!(kind_of("created"), None);
        assert_eq!(kind_of("sandbox.lifecycle.x"), None);
    }
}
