//! The ledger, and approvals, for callers: each of their own tenant.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::{
    ApprovalScope, CallDigest, Decision, Pending, Scope, ServedSession, WantedEvents,
};
use atoll_model::{RunId, ServedExec};
use atoll_store::Role;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::answers::Answer;
use super::answers::Answered;
use super::answers::fault;
use super::answers::refusal;
use super::approving::Approvals;
use super::caller::Caller;
use super::list::List;
use super::living::Living;
use super::server::Server;
use super::wanted::check_session;
use crate::protocol::{
    AddNote, ApprovalFacts, Decide, EventList, EventsAsk, Kind, LedgerAsk, Noted, Refusal,
    SessionFacts,
};

/// The most events that are returned at once.
const EVENTS_MAX: usize = 1_000;

/// The longest note in a session, bytes.
const NOTE_BYTES_MAX: usize = 64 * 1024;

/// The most readers of one tenant that read or wait.
const WAITING_MAX: usize = 4;

/// The most readers of the ledger at once.
const READERS_MAX: usize = 2;

/// A reader that waits, or reads, for as long as this is kept.
struct Waiting {
    records: Arc<Records>,
    tenant: String,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let waiting = &self.records.waiting;
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = waiting.get_mut(&self.tenant) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                waiting.remove(&self.tenant);
            }
        }
    }
}

/// The ledger, as callers read it.
pub(super) struct Records {
    pub(super) server: Arc<Server>,
    pub(super) list: Arc<List>,
    pub(super) approvals: Arc<Approvals>,
    readers: Arc<Semaphore>,
    /// The readers of each tenant, those that wait included.
    waiting: Mutex<BTreeMap<String, usize>>,
}

impl Records {
    pub(super) fn new(
        server: &Arc<Server>,
        list: &Arc<List>,
        approvals: &Arc<Approvals>,
    ) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(server),
            list: Arc::clone(list),
            approvals: Arc::clone(approvals),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            waiting: Mutex::default(),
        })
    }

    /// Carries out a request about the ledger or approvals.
    pub(super) async fn look_up(
        self: &Arc<Self>,
        caller: &Caller,
        ask: LedgerAsk,
    ) -> Result<Answered, Refusal> {
        if !may(caller.role, &ask) {
            let what = format!("a key of the role {} may not", caller.role.name());
            return Err(Refusal::new(Kind::Forbidden, what)
                .advise("an administrator makes keys of other roles"));
        }
        match ask {
            LedgerAsk::ListEvents(ask) => ask.answer(self.events(caller, &ask.0).await?),
            LedgerAsk::Prove(ask) => {
                let number = ask.number;
                let found = self.reading(caller, move |own, tenant| {
                    own.server.engine.proof(tenant, number)
                });
                let none = || {
                    let what = format!("there is no event {number} of this tenant");
                    Refusal::new(Kind::NotFound, what)
                };
                ask.answer(found.await?.ok_or_else(none)?)
            }
            LedgerAsk::Checkpoint(ask) => {
                let signed = self.reading(caller, |own, _| own.server.engine.checkpoint());
                ask.answer(signed.await?)
            }
            LedgerAsk::ListSessions(ask) => {
                let found = self.reading(caller, |own, tenant| own.server.engine.sessions(tenant));
                ask.answer(found.await?.into_iter().map(session).collect())
            }
            LedgerAsk::AddNote(ask) => ask.answer(self.add_note(caller, &ask).await?),
            LedgerAsk::ListApprovals(ask) => ask.answer(self.approvals(&caller.tenant).await?),
        }
    }

    async fn events(
        self: &Arc<Self>,
        caller: &Caller,
        asked: &EventsAsk,
    ) -> Result<EventList, Refusal> {
        let no_run = || Refusal::new(Kind::NotFound, "there is no such run, sandbox or session");
        let run = asked.run.as_deref().map(RunId::parse).transpose();
        let wanted = WantedEvents {
            run: run.map_err(|_| no_run())?,
            sandbox: asked.sandbox.clone(),
            session: asked.session.clone(),
            kind: asked.kind.clone(),
            from: asked.from,
            limit: asked.limit.clamp(1, EVENTS_MAX),
        };
        let is_of_one =
            wanted.run.is_some() || wanted.sandbox.is_some() || wanted.session.is_some();
        let is_whole = is_of_one && wanted.from == 0 && wanted.kind.is_none();
        let found = self.reading(caller, move |own, tenant| {
            own.server.engine.recorded(tenant, &wanted)
        });
        let found = found.await?;
        match is_whole && found.events.is_empty() {
            true => Err(no_run()),
            false => Ok(EventList {
                events: found.events,
                next: found.next,
            }),
        }
    }

    async fn add_note(self: &Arc<Self>, caller: &Caller, ask: &AddNote) -> Result<Noted, Refusal> {
        let AddNote { session, note } = ask.clone();
        check_session(&session)?;
        let bytes = note.to_string().len();
        if bytes > NOTE_BYTES_MAX {
            let what = format!("the note has {bytes} bytes, and {NOTE_BYTES_MAX} is the most");
            return Err(Refusal::new(Kind::Invalid, what).advise("keep the rest in a file"));
        }
        let by = ServedExec {
            caller: Some(caller.name.clone()),
            trace: caller.trace.clone(),
            ..ServedExec::default()
        };
        let noted = self.reading(caller, move |own, tenant| {
            own.server.engine.note(tenant, &session, &by, &note)
        });
        let number = noted.await?;
        Ok(Noted { number })
    }

    /// Reads the ledger, which takes a thread; few at once.
    async fn reading<T: Send + 'static>(
        self: &Arc<Self>,
        caller: &Caller,
        read: impl FnOnce(&Self, &str) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Refusal> {
        let _waiting = self.wait(&caller.tenant)?;
        let place = Arc::clone(&self.readers).acquire_owned().await;
        let place = place.map_err(|error| fault(&error))?;
        let (own, tenant) = (Arc::clone(self), caller.tenant.clone());
        let read = spawn_blocking(move || {
            let read = read(&own, &tenant);
            drop(place);
            read
        });
        let read = read.await.map_err(|error| fault(&error))?;
        read.map_err(|failure| refusal(&failure))
    }

    /// Counts a reader that waits; refuses one too many of a tenant.
    fn wait(self: &Arc<Self>, tenant: &str) -> Result<Waiting, Refusal> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.entry(tenant.to_owned()).or_insert(0);
        if *count >= WAITING_MAX {
            return Err(Refusal {
                retry_after_s: Some(1),
                ..Refusal::new(Kind::Quota, "others of the tenant read the ledger already")
                    .advise("read it once they are done")
            });
        }
        *count += 1;
        Ok(Waiting {
            records: Arc::clone(self),
            tenant: tenant.to_owned(),
        })
    }

    async fn approvals(self: &Arc<Self>, tenant: &str) -> Result<Vec<ApprovalFacts>, Refusal> {
        let (own, _) = self.list.of(tenant);
        let list = move || {
            let waiting = own.iter().flat_map(|living| {
                // One that has just ended waits for nothing.
                let all = living.sandbox.approvals().unwrap_or_default();
                all.into_iter().map(|one| facts(living, one))
            });
            waiting.collect()
        };
        let all: Vec<_> = spawn_blocking(list).await.map_err(|error| fault(&error))?;
        let waiting = self.approvals.waiting_questions(tenant);
        Ok(waiting.into_iter().chain(all).collect())
    }
}

/// Returns whether a caller of this role may ask for this.
fn may(role: Role, ask: &LedgerAsk) -> bool {
    match (ask, role) {
        (_, Role::Administrator)
        | (
            LedgerAsk::ListEvents(_) | LedgerAsk::Prove(_) | LedgerAsk::Checkpoint(_),
            Role::Auditor,
        )
        | (LedgerAsk::ListApprovals(_), Role::Approver)
        | (LedgerAsk::ListSessions(_), Role::User | Role::Auditor)
        | (LedgerAsk::AddNote(_), Role::User) => true,
        // What came of their own sandboxes.
        (LedgerAsk::ListEvents(ask), Role::User) => {
            ask.0.run.is_some() || ask.0.sandbox.is_some() || ask.0.session.is_some()
        }
        (_, Role::Operator | Role::Approver | Role::Auditor | Role::User) => false,
    }
}

fn session(one: ServedSession) -> SessionFacts {
    SessionFacts {
        name: one.name,
        sandboxes: one.sandboxes,
        notes: one.notes,
        begun: one.begun,
        last: one.last,
    }
}

fn facts(living: &Living, pending: Pending) -> ApprovalFacts {
    ApprovalFacts {
        sandbox: living.spec.id.clone(),
        approval: pending.approval,
        digest: pending.digest.to_string(),
        call: serde_json::to_value(&pending.call).unwrap_or_default(),
        waiting: pending.waiting,
        left_s: pending.left_seconds,
    }
}

/// Decides a call that waits.
pub(super) async fn decide(
    living: &Arc<Living>,
    ask: &Decide,
    by: ServedExec,
) -> Result<(), Refusal> {
    let (approval, asked) = (ask.approval, &ask.decision);
    let digest: CallDigest = asked
        .digest
        .parse()
        .map_err(|_| Refusal::new(Kind::Invalid, "digest is none: take it from the list"))?;
    let decision = match (asked.grant, asked.lasting) {
        (false, _) => Decision::Deny {},
        (true, lasting) => Decision::Grant {
            scope: if lasting { Scope::Run } else { Scope::Once },
            breadth: ApprovalScope::Same,
        },
    };
    let sandbox = Arc::clone(&living.sandbox);
    let decided = spawn_blocking(move || sandbox.decide(approval, digest, decision, &by));
    let decided = decided.await.map_err(|error| fault(&error))?;
    decided.map_err(|failure| refusal(&failure))
}
