//! Tools of a server's callers: their sessions, and the sandboxes that calls run in.

mod runner;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_engine::sandboxes::{NeedsApproval, PriorAnswer};
use atoll_model::{Reason, RunId};
use atoll_store::FIRST_TENANT;
use atoll_tools::{Asked, Cancel, ChangeSet, Refusal as Refused, Said, Session, ToolSwitches};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::spawn_blocking;

use super::answers::{Answer, Answered, fault};
use super::approving::Question;
use super::caller::{Caller, check_maker};
use super::sandboxes::Sandboxes;
use super::server::Server;
use crate::line::{Reader, Stream, Writer};
use crate::protocol::{CallToolAsk, Kind, MayFacts, Refusal, ToolFacts, ToolReply, ToolsAsk};
use crate::tool_facts::{failed, may, part, reply};
use runner::{IDLE, ServedRunner};

/// The time between two looks for sessions that end.
const LOOK: Duration = Duration::from_secs(1);
/// The time between two looks whether a list has changed.
const WATCH: Duration = Duration::from_secs(1);
/// The most sessions of one caller.
const SESSIONS_MAX: usize = 1_024;
/// The longest name of a session, bytes.
const NAME_BYTES_MAX: usize = 128;

/// The owner of a session: its tenant, its caller's name, and the caller's name for it.
type Key = (String, String, String);

/// The tools of a server.
pub(super) struct Tools {
    server: Arc<Server>,
    sandboxes: Arc<Sandboxes>,
    switches: Arc<ToolSwitches>,
    sessions: Mutex<HashMap<Key, Arc<Held>>>,
}

/// A session that is kept for its caller.
struct Held {
    session: Session<ServedRunner>,
    used: Mutex<Instant>,
}

impl Tools {
    pub(super) fn new(server: &Arc<Server>, sandboxes: &Arc<Sandboxes>) -> Arc<Self> {
        Arc::new(Self {
            switches: Arc::new(ToolSwitches::new(
                server.engine.configuration(),
                server.engine.state(),
            )),
            server: Arc::clone(server),
            sandboxes: Arc::clone(sandboxes),
            sessions: Mutex::default(),
        })
    }

    /// Carries out a request about tools.
    pub(super) async fn run(
        self: &Arc<Self>,
        caller: &Caller,
        ask: ToolsAsk,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        check_maker(caller)?;
        match ask {
            ToolsAsk::ListTools(ask) => {
                let held = self.session(caller, ask.session.as_deref())?;
                let form = ask.form;
                let listed = within(&held, move |session| session.listing(form)).await?;
                ask.answer(listed.into_iter().map(ToolFacts::from).collect())
            }
            ToolsAsk::WatchTools(ask) => {
                let held = self.session(caller, ask.session.as_deref())?;
                Ok(Answered::Written(watch(held, reader, writer).await))
            }
            ToolsAsk::CallTool(ask) => {
                let reply = self.call(caller, &ask.0, reader, writer).await?;
                ask.answer(reply)
            }
            ToolsAsk::MayCall(ask) => {
                let held = self.session(caller, ask.session.as_deref())?;
                let (name, arguments) = (ask.name.clone(), ask.arguments.clone());
                let verdict = within(&held, move |session| session.may(&name, &arguments));
                let facts: MayFacts = may(verdict.await?)?;
                ask.answer(facts)
            }
            ToolsAsk::ReadResult(ask) => {
                let held = self.session(caller, ask.session.as_deref())?;
                let rest = held.session.rest_of(ask.call, ask.from);
                ask.answer(part(rest)?)
            }
            ToolsAsk::EndToolSession(ask) => {
                let key = key(caller, Some(&ask.session))?;
                let ended = self.locked().remove(&key);
                if let Some(held) = ended {
                    end(held).await;
                }
                ask.answer(())
            }
        }
    }

    /// Calls a tool, once an approver has agreed where policies ask about it.
    async fn call(
        self: &Arc<Self>,
        caller: &Caller,
        ask: &CallToolAsk,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<ToolReply, Refusal> {
        let held = self.session(caller, ask.session.as_deref())?;
        let called = self.called(&held, caller, ask, PriorAnswer::Nobody, reader, writer);
        let (asked, arguments) = match called.await? {
            Err(Refused::NeedsApproval { asked, arguments }) => (asked, arguments),
            called => return reply(held.session.id().as_str(), called),
        };
        let question = Question {
            action: "call",
            sandbox: held.session.id().to_string(),
            run: Some(held.session.id().clone()),
            caller: Some(caller.name.clone()),
            shown: json!({ "tool": ask.name, "arguments": arguments }),
            asked,
        };
        let approvals = &self.sandboxes.approvals;
        let answer = tokio::select! {
            answer = approvals.ask_approver(&caller.tenant, question) => answer?,
            // Nobody waits for it any more.
            _ = reader.next::<()>() => return Err(gone()),
        };
        let called = self.called(&held, caller, ask, answer, reader, writer);
        let called = called.await?;
        reply(held.session.id().as_str(), called)
    }

    /// Makes a call, which ends if its caller goes.
    async fn called(
        self: &Arc<Self>,
        held: &Arc<Held>,
        caller: &Caller,
        ask: &CallToolAsk,
        answer: PriorAnswer,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Result<atoll_tools::Answer, Refused>, Refusal> {
        let cancel = Cancel::new().map_err(|failure| failed(&failure))?;
        let word = cancel.clone();
        let ask = ask.clone();
        let (sender, mut said) = unbounded_channel();
        let (approvals, caller) = (Arc::clone(&self.sandboxes.approvals), caller.clone());
        let called = within(held, move |session| {
            let listener = |one: Said| drop(sender.send(one));
            let approver = |change: &ChangeSet, reasons: &[Reason]| {
                let question = about(session.id(), &caller, &ask.name, change, reasons);
                let answer = approvals.ask_approver(&caller.tenant, question);
                match Handle::current().block_on(answer) {
                    Ok(PriorAnswer::Agreed(_)) => Ok(()),
                    Ok(PriorAnswer::Denied(why)) => Err(why.to_owned()),
                    Ok(PriorAnswer::Nobody) => Err("nobody was asked".to_owned()),
                    Err(refusal) => Err(refusal.told()),
                }
            };
            session.call(&Asked {
                name: &ask.name,
                arguments: &ask.arguments,
                key: ask.key.as_deref(),
                answer: &answer,
                cancel: &cancel,
                listener: ask.listens.then_some(&listener),
                answers: ask.answers.as_ref(),
                askable: ask.askable,
                approver: Some(&approver),
            })
        });
        tokio::pin!(called);
        loop {
            tokio::select! {
                biased;
                Some(one) = said.recv() => pass_on(&one, writer).await,
                called = &mut called => return called,
                _ = reader.next::<()>() => {
                    word.cancel();
                    return called.await;
                }
            }
        }
    }

    /// Returns a session of a caller's, which begins with its first use.
    fn session(
        self: &Arc<Self>,
        caller: &Caller,
        name: Option<&str>,
    ) -> Result<Arc<Held>, Refusal> {
        let key = key(caller, name)?;
        let mut sessions = self.locked();
        if let Some(held) = sessions.get(&key) {
            *locked(&held.used) = Instant::now();
            return Ok(Arc::clone(held));
        }
        let own = |one: &&Key| one.0 == key.0 && one.1 == key.1;
        if sessions.keys().filter(own).count() >= SESSIONS_MAX {
            let what = format!("the caller has {SESSIONS_MAX} sessions of tools already");
            return Err(Refusal::new(Kind::Quota, what).advise("end one, or wait until it is idle"));
        }
        let runner = ServedRunner::new(&self.sandboxes, caller);
        let session = Session::new(
            self.server.engine.clone(),
            Arc::clone(&self.switches),
            runner,
            Some(names_of(caller)),
        );
        let held = Arc::new(Held {
            session,
            used: Mutex::new(Instant::now()),
        });
        sessions.insert(key, Arc::clone(&held));
        Ok(held)
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Key, Arc<Held>>> {
        locked(&self.sessions)
    }

    /// Ends sessions that nobody uses, and those that a limit ends, for as long as the server is there.
    pub(super) async fn end_idle(self: &Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let mut idle = Vec::new();
            // One that a call is being made in is held by that, too.
            self.locked().retain(|_, held| {
                let is_used = Arc::strong_count(held) > 1 || locked(&held.used).elapsed() < IDLE;
                if !is_used {
                    idle.push(Arc::clone(held));
                }
                is_used
            });
            for held in idle {
                end(held).await;
            }
            let held: Vec<Arc<Held>> = self.locked().values().cloned().collect();
            if held.is_empty() {
                continue;
            }
            let registry = self.switches.registry();
            // A caller that comes back to it is told.
            let expired = move || {
                held.iter()
                    .for_each(|one| drop(one.session.expire(&registry)))
            };
            let _ = spawn_blocking(expired).await;
        }
    }
}

fn locked<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the names by which a tool may say that it is for a caller. A name alone is of the first
/// tenant: others choose their callers' names themselves.
fn names_of(caller: &Caller) -> Vec<String> {
    let Caller { tenant, name, .. } = caller;
    let mut names = vec![format!("{tenant}/{name}")];
    if tenant == FIRST_TENANT {
        names.push(name.clone());
    }
    names
}

/// Passes on what is said during a call.
async fn pass_on(said: &Said, writer: &mut Writer) {
    // Whoever does not take it is seen to have gone.
    if let Ok(text) = serde_json::to_vec(said) {
        let _ = writer.content(Stream::Output, &text).await;
    }
}

/// Tells when the lists of a session change, until it has ended or nobody is told any more.
async fn watch(held: Arc<Held>, reader: &mut Reader, writer: &mut Writer) -> io::Result<()> {
    writer.message(&Ok::<_, Refusal>(())).await?;
    // Being watched keeps no session.
    let watched = Arc::downgrade(&held);
    drop(held);
    let mut seen = None;
    loop {
        let Some(held) = watched.upgrade() else {
            return Ok(());
        };
        let looked = spawn_blocking(move || {
            let changed = held.session.changed_lists(&mut seen);
            (changed, seen)
        });
        let changed;
        (changed, seen) = looked.await.map_err(io::Error::other)?;
        if changed.any() {
            writer.message(&Ok::<_, Refusal>(changed)).await?;
        }
        tokio::select! {
            () = tokio::time::sleep(WATCH) => {}
            _ = reader.next::<()>() => return Ok(()),
        }
    }
}

/// Returns the question about the change set of a shadow run.
fn about(
    session: &RunId,
    caller: &Caller,
    tool: &str,
    change: &ChangeSet,
    reasons: &[Reason],
) -> Question {
    Question {
        action: "promote",
        sandbox: session.to_string(),
        run: Some(session.clone()),
        caller: Some(caller.name.clone()),
        shown: json!({ "tool": tool, "change": change.json() }),
        asked: NeedsApproval {
            agreement: change.facts.digest.clone(),
            reasons: reasons.to_vec(),
        },
    }
}

fn gone() -> Refusal {
    Refusal::new(Kind::Late, "the caller has gone")
}

fn key(caller: &Caller, name: Option<&str>) -> Result<Key, Refusal> {
    let name = name.unwrap_or_default();
    if name.len() > NAME_BYTES_MAX {
        let what = format!("a session's name is longer than {NAME_BYTES_MAX} bytes");
        return Err(Refusal::new(Kind::Invalid, what));
    }
    Ok((caller.tenant.clone(), caller.name.clone(), name.to_owned()))
}

/// Carries out work of a session that takes its time.
async fn within<T: Send + 'static>(
    held: &Arc<Held>,
    work: impl FnOnce(&Session<ServedRunner>) -> T + Send + 'static,
) -> Result<T, Refusal> {
    let held = Arc::clone(held);
    let done = spawn_blocking(move || {
        let done = work(&held.session);
        *locked(&held.used) = Instant::now();
        done
    });
    done.await.map_err(|error| fault(&error))
}

/// Ends the sandboxes of a session.
async fn end(held: Arc<Held>) {
    let ended = Arc::clone(&held);
    let _ = spawn_blocking(move || ended.session.end()).await;
    held.session.runner().end().await;
}
