//! The ledger's events of a tenant's sandboxes, for the callers of a server.

use std::collections::BTreeSet;

use atoll_ledger::{Event, Filter, Ledger, Prover};
use atoll_model::RunId;
use serde_json::{Value, json};

use super::Engine;
use crate::events::seals;
use crate::failure::{Doing, Failure};

/// The events that are wanted.
#[derive(Clone, Debug, Default)]
pub struct WantedEvents {
    /// Only those of this run.
    pub run: Option<RunId>,
    /// Only those of this type, or whose type begins with it and a dot.
    pub kind: Option<String>,
    /// Only those with this number or a later one.
    pub from: u64,
    /// The most that are returned.
    pub limit: usize,
}

/// Events of a tenant.
#[derive(Clone, Debug, Default)]
pub struct FoundEvents {
    /// Each with `number`, `time`, `run`, `type` and `body`, the oldest first.
    pub events: Vec<Value>,
    /// The number to go on from, if there are more.
    pub next: Option<u64>,
}

impl Engine {
    /// Returns events of a tenant's sandboxes; those of others, and of Atoll itself, are like ones
    /// that are not there.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn recorded(&self, tenant: &str, wanted: &WantedEvents) -> Result<FoundEvents, Failure> {
        let seals = seals(&self.shared.state)?;
        let mut found = FoundEvents::default();
        self.each_of(tenant, wanted.run.as_ref(), |event| {
            let is_kind = |kind: &String| {
                let rest = event.kind.strip_prefix(kind.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            if event.position.seq < wanted.from || !wanted.kind.as_ref().is_none_or(is_kind) {
                return true;
            }
            if found.events.len() >= wanted.limit {
                found.next = Some(event.position.seq);
                return false;
            }
            let event = seals.open(event);
            found.events.push(json!({
                "number": event.position.seq,
                "time": event.time,
                "run": event.run.as_ref().map(RunId::to_string),
                "type": event.kind,
                "body": event.body,
            }));
            true
        })?;
        Ok(found)
    }

    /// Proves that an event of a tenant's is in the ledger (C2SP tlog-proof); `None` where the
    /// tenant has none of this number.
    ///
    /// # Errors
    /// When the ledger cannot be read, or signed.
    pub fn proof(&self, tenant: &str, number: u64) -> Result<Option<String>, Failure> {
        let mut found = None;
        self.each_of(tenant, None, |event| {
            if event.position.seq == number {
                found = Some(event);
            }
            found.is_none()
        })?;
        let Some(event) = found else {
            return Ok(None);
        };
        let _ = self.checkpoint()?;
        let prover = Prover::read(&self.shared.state).doing("the ledger cannot be proven")?;
        let proof = prover
            .inclusion(&event)
            .doing("the event cannot be proven")?;
        Ok(Some(proof.text()))
    }

    /// Signs the ledger as it is now (C2SP tlog-checkpoint).
    ///
    /// # Errors
    /// When that is not possible.
    pub fn checkpoint(&self) -> Result<String, Failure> {
        let signed = self.shared.ledger.checkpoint(&self.shared.state);
        Ok(signed
            .doing("the ledger cannot be signed")?
            .text()
            .to_owned())
    }

    /// Passes on each event of a tenant's sandboxes, until `each` returns false.
    fn each_of(
        &self,
        tenant: &str,
        run: Option<&RunId>,
        mut each: impl FnMut(Event) -> bool,
    ) -> Result<(), Failure> {
        let filter = Filter {
            run: run.cloned(),
            ..Filter::default()
        };
        let unread = "the ledger cannot be read";
        let mut own = BTreeSet::new();
        for event in Ledger::events(&self.shared.state, filter).doing(unread)? {
            let event = event.doing(unread)?;
            let Some(run) = &event.run else {
                continue;
            };
            // A run is opened once, before anything else of it.
            let told = event.body.pointer("/served/tenant");
            if event.kind == "run.opened" && told.is_some_and(|told| told == tenant) {
                own.insert(run.clone());
            }
            if own.contains(run) && !each(event) {
                break;
            }
        }
        Ok(())
    }
}
