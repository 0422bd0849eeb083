//! The ledger's events of a tenant's sandboxes, for the callers of a server.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use atoll_ledger::{Durability, Event, Filter, Ledger, Prover, format_time};
use atoll_model::{Once, RunId, ServedExec};
use serde_json::{Value, json};

use super::Engine;
use super::volumes::VOLUME;
use crate::events::{events_of, seals};
use crate::failure::{Doing, Failure};

/// The type of a note in a session.
const NOTED: &str = "session.noted";
/// The most sandboxes that a session names.
const SESSION_SANDBOXES_MAX: usize = 100;

/// The events that are wanted.
#[derive(Clone, Debug, Default)]
pub struct WantedEvents {
    /// Only those of this run.
    pub run: Option<RunId>,
    /// Only those of this served sandbox, by its id.
    pub sandbox: Option<String>,
    /// Only those of this session: of its sandboxes, and notes.
    pub session: Option<String>,
    /// Only those of this type, or whose type begins with it and a dot.
    pub kind: Option<String>,
    /// Only those with this number or a later one.
    pub from: u64,
    /// The most that are returned.
    pub limit: usize,
}

impl WantedEvents {
    /// Returns whether an event without a run is a note that is wanted.
    fn is_note(&self, tenant: &str, event: &Event) -> bool {
        let is = |name: &str, value: &str| event.body.get(name).is_some_and(|told| told == value);
        event.kind == NOTED
            && is("tenant", tenant)
            && self.run.is_none()
            && self.sandbox.is_none()
            && self.session.as_ref().is_none_or(|name| is("name", name))
    }

    /// Returns whether an event is about a volume, and wanted: it is of no run, sandbox or session.
    fn is_of_volume(&self, tenant: &str, event: &Event) -> bool {
        let is_own = event.body.get("tenant").is_some_and(|told| told == tenant);
        let is_narrowed = self.run.is_some() || self.sandbox.is_some() || self.session.is_some();
        event.kind.starts_with(VOLUME) && is_own && !is_narrowed
    }
}

/// A session of a tenant: its sandboxes, and when something of it was recorded.
#[derive(Clone, Debug)]
pub struct ServedSession {
    /// Its name.
    pub name: String,
    /// The ids of its sandboxes, the oldest first; the most recent ones if there are many.
    pub sandboxes: Vec<String>,
    /// The notes in it.
    pub notes: u64,
    /// The time of its first event.
    pub begun: String,
    /// The time of the last sandbox, or note.
    pub last: String,
}

/// Events of a tenant.
#[derive(Clone, Debug, Default)]
pub struct FoundEvents {
    /// Each with `number`, `time`, `run`, `type` and `body`, the oldest first.
    pub events: Vec<Value>,
    /// The number to go on from, if there are more.
    pub next: Option<u64>,
}

/// A request of late that had a name, and was carried out.
#[derive(Clone, Debug)]
pub struct NamedRequest {
    /// Its name.
    pub once: Once,
    /// The time of its record.
    pub time: String,
    /// Set for a program in a sandbox; others made one.
    pub is_exec: bool,
}

/// Reads the name of a request from the record of what was carried out.
fn named(event: &Event) -> Option<NamedRequest> {
    let is_allowed = event.body.get("verdict").is_none_or(|told| told == "allow");
    let once = event.body.pointer("/served/once").filter(|_| is_allowed)?;
    let text = |name: &str| once.get(name)?.as_str().map(str::to_owned);
    Some(NamedRequest {
        once: Once {
            tenant: text("tenant")?,
            sandbox: text("sandbox")?,
            key: text("key")?,
            digest: text("digest")?,
        },
        time: event.time.clone(),
        is_exec: event.kind == "exec.opened",
    })
}

impl Engine {
    /// Returns why a run did not reach a host that it may reach, as the last such connection tells;
    /// `None` if it reached all, or none is known.
    #[must_use]
    pub fn unreached(&self, run: &RunId) -> Option<String> {
        let events = events_of(&self.shared.state, run).ok()?;
        let is_unreached = |one: &&Event| one.body.get("unreached") == Some(&Value::Bool(true));
        let mut unreached = events.iter().rev().filter(is_unreached);
        unreached.find_map(|one| Some(one.body.get("failure")?.as_str()?.to_owned()))
    }

    /// Returns the requests with names that were carried out within this time, the oldest first.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn named_requests(&self, within: Duration) -> Result<Vec<NamedRequest>, Failure> {
        let since = SystemTime::now().checked_sub(within);
        let filter = Filter {
            since: since.map(format_time),
            mentions: vec!["once".to_owned()],
            ..Filter::default()
        };
        let unread = "the ledger cannot be read";
        let mut found = Vec::new();
        for event in Ledger::events(&self.shared.state, filter).doing(unread)? {
            found.extend(named(&event.doing(unread)?));
        }
        Ok(found)
    }

    /// Returns events of a tenant's sandboxes; those of others, and of Atoll itself, are like ones
    /// that are not there.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn recorded(&self, tenant: &str, wanted: &WantedEvents) -> Result<FoundEvents, Failure> {
        let seals = seals(&self.shared.state)?;
        let mut found = FoundEvents::default();
        self.each_of(tenant, wanted, |event| {
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

    /// Adds a note to a session, of whoever works on its task: durable once this returns.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub fn note(
        &self,
        tenant: &str,
        session: &str,
        by: &ServedExec,
        note: &Value,
    ) -> Result<u64, Failure> {
        let body = json!({
            "tenant": tenant,
            "name": session,
            "caller": by.caller,
            "trace": by.trace,
            "note": note,
        });
        let recorded = self
            .shared
            .ledger
            .record(None, NOTED, body, Durability::Durable);
        Ok(recorded.doing("the note is not recorded")?.seq)
    }

    /// Returns a tenant's sessions, the oldest first.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn sessions(&self, tenant: &str) -> Result<Vec<ServedSession>, Failure> {
        let mut all: Vec<ServedSession> = Vec::new();
        self.each_of(tenant, &WantedEvents::default(), |event| {
            let is_note = event.kind == NOTED;
            let name = match is_note {
                true => event.body.get("name"),
                false => event.body.pointer("/served/session"),
            };
            let Some(name) = name.and_then(Value::as_str) else {
                return true;
            };
            let at = all.iter().position(|one| one.name == name);
            let at = at.unwrap_or_else(|| {
                all.push(ServedSession {
                    name: name.to_owned(),
                    sandboxes: Vec::new(),
                    notes: 0,
                    begun: event.time.clone(),
                    last: String::new(),
                });
                all.len() - 1
            });
            let Some(session) = all.get_mut(at) else {
                return true;
            };
            session.last.clone_from(&event.time);
            session.notes += u64::from(is_note);
            let sandbox = event.body.pointer("/served/sandbox");
            if let Some(sandbox) = sandbox.and_then(Value::as_str) {
                if session.sandboxes.len() >= SESSION_SANDBOXES_MAX {
                    session.sandboxes.remove(0);
                }
                session.sandboxes.push(sandbox.to_owned());
            }
            true
        })?;
        Ok(all)
    }

    /// Proves that an event of a tenant's is in the ledger (C2SP tlog-proof); `None` where the
    /// tenant has none of this number.
    ///
    /// # Errors
    /// When the ledger cannot be read, or signed.
    pub fn proof(&self, tenant: &str, number: u64) -> Result<Option<String>, Failure> {
        let mut found = None;
        self.each_of(tenant, &WantedEvents::default(), |event| {
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

    /// Passes on each event of a tenant's sandboxes, or of the run or sandbox that is wanted, until
    /// `each` returns false.
    fn each_of(
        &self,
        tenant: &str,
        wanted: &WantedEvents,
        mut each: impl FnMut(Event) -> bool,
    ) -> Result<(), Failure> {
        let filter = Filter {
            run: wanted.run.clone(),
            ..Filter::default()
        };
        let unread = "the ledger cannot be read";
        let mut own = BTreeSet::new();
        for event in Ledger::events(&self.shared.state, filter).doing(unread)? {
            let event = event.doing(unread)?;
            let Some(run) = &event.run else {
                let is_wanted =
                    wanted.is_note(tenant, &event) || wanted.is_of_volume(tenant, &event);
                if is_wanted && !each(event) {
                    break;
                }
                continue;
            };
            // A run is opened once, before anything else of it.
            let served = |name: &str| event.body.get("served").and_then(|all| all.get(name));
            let is_wanted = || {
                let is = |name: &str, value: &str| served(name).is_some_and(|told| told == value);
                let fits = |name: &str, wanted: &Option<String>| {
                    wanted.as_ref().is_none_or(|value| is(name, value))
                };
                is("tenant", tenant)
                    && fits("sandbox", &wanted.sandbox)
                    && fits("session", &wanted.session)
            };
            if event.kind == "run.opened" && is_wanted() {
                own.insert(run.clone());
            }
            if own.contains(run) && !each(event) {
                break;
            }
        }
        Ok(())
    }
}
