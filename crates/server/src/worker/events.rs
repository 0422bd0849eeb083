//! The events of sandboxes' lives: noted once, listed, and queued for webhooks in the same step.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use atoll_store::{LifecycleEvent, Page};
use serde_json::{Value, json};

use super::answers::name;
use super::answers::{Answer, Answered, fault};
use super::caller::Caller;
use super::living::Living;
use super::webhooks::Webhooks;
use crate::protocol::{LifecycleEventFacts, ListLifecycleEvents, Refusal};
use crate::rfc3339::milliseconds;

/// The longest notes of a sandbox that its events repeat, bytes in all.
const METADATA_BYTES_MAX: usize = 16 * 1024;

/// Describes an event, with the facts that the sandbox began with.
pub(super) fn facts(tenant: &str, event: LifecycleEvent) -> LifecycleEventFacts {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let mut facts = event.first_facts.as_deref().map(read).unwrap_or_default();
    let own = read(&event.facts);
    match (facts.as_object_mut(), own) {
        (Some(facts), Value::Object(own)) => facts.extend(own),
        (_, own) => facts = own,
    }
    LifecycleEventFacts {
        id: event.id,
        tenant: tenant.to_owned(),
        sandbox: event.sandbox,
        kind: event.kind,
        at_ms: event.at_ms,
        facts,
    }
}

impl Webhooks {
    /// Notes that a sandbox was made, with the facts that all of its events share.
    pub(super) fn note_created(&self, living: &Living) {
        self.note_begun(living, "created", "a caller has made it");
    }

    /// Notes that a sandbox was made, or goes on.
    pub(super) fn note_begun(&self, living: &Living, kind: &str, why: &str) {
        let size = |(name, value): (&String, &String)| name.len() + value.len();
        let bytes: usize = living.spec.metadata.iter().map(size).sum();
        let metadata = (bytes <= METADATA_BYTES_MAX).then_some(&living.spec.metadata);
        let (limits, cpus) = living.sizes().clone();
        let facts = json!({
            "why": why,
            "run": living.sandbox.run().to_string(),
            "template": living.spec.template,
            "metadata": metadata,
            "cpus": cpus,
            "memory_mib": limits.memory_mib,
            "started_ms": milliseconds(living.started),
        });
        self.note(&living.spec.tenant, &living.spec.id, kind, &facts);
    }

    /// Notes that a sandbox was changed; one that changes all the time, once a second.
    pub(super) fn note_updated(&self, living: &Living, why: &str) {
        if living.notes_update() {
            let facts = json!({ "why": why });
            self.note(&living.spec.tenant, &living.spec.id, "updated", &facts);
        }
    }

    /// Notes that a sandbox has ended.
    pub(super) fn note_killed(&self, living: &Living, why: &str) {
        self.note_ended_as(living, "killed", why);
    }

    /// Notes something else that happened to a sandbox.
    pub(super) fn note_as(&self, living: &Living, kind: &str, why: &str) {
        self.note(
            &living.spec.tenant,
            &living.spec.id,
            kind,
            &json!({ "why": why }),
        );
    }

    /// Notes that a sandbox has ended, for good or for a time.
    pub(super) fn note_ended_as(&self, living: &Living, kind: &str, why: &str) {
        let lived = living.started.elapsed().unwrap_or_default();
        let lived_ms = u64::try_from(lived.as_millis()).unwrap_or(u64::MAX);
        let facts = json!({ "why": why, "lived_ms": lived_ms });
        self.note(&living.spec.tenant, &living.spec.id, kind, &facts);
    }

    /// Notes the end of the sandboxes of a server that was killed: they have ended with it.
    pub(super) fn note_lost(&self) {
        let lost = self.server.store.unended().unwrap_or_else(|error| {
            eprintln!("atoll serve: {error}");
            Vec::new()
        });
        let facts = json!({ "why": "the server had ended without ending it" });
        let is_lost = |(_, id): &(String, String)| self.list.paused(id).is_none();
        for (tenant, sandbox) in lost.into_iter().filter(is_lost) {
            self.note(&tenant, &sandbox, "killed", &facts);
        }
    }

    /// Notes what happened to a sandbox. Where that fails the ledger still has it.
    pub(super) fn note(&self, tenant: &str, sandbox: &str, kind: &str, facts: &Value) {
        let event = LifecycleEvent {
            id: name(20).unwrap_or_default(),
            sandbox: sandbox.to_owned(),
            kind: kind.to_owned(),
            at_ms: milliseconds(SystemTime::now()),
            facts: facts.to_string(),
            first_facts: None,
        };
        match self.server.store.note(tenant, &event) {
            Ok(queued) => {
                let dropped = &self.dropped;
                dropped.fetch_add(queued.dropped, Ordering::Relaxed);
                if queued.waiting > 0 {
                    self.woken.notify_one();
                }
            }
            Err(error) => eprintln!("atoll serve: {error}"),
        }
    }

    /// Lists the events of a tenant's sandboxes, or of one of them.
    pub(super) fn events_of(
        &self,
        caller: &Caller,
        ask: ListLifecycleEvents,
    ) -> Result<Answered, Refusal> {
        let tenant = &caller.tenant;
        let page = Page {
            offset: ask.offset,
            limit: ask.limit,
            oldest_first: ask.oldest_first,
        };
        let found = self
            .server
            .store
            .lifecycle_events(tenant, ask.sandbox.as_deref(), &page)
            .map_err(|error| fault(&error))?;
        ask.answer(found.into_iter().map(|one| facts(tenant, one)).collect())
    }
}
