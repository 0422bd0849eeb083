//! Tools of a server's callers: their sessions, and the sandboxes that calls run in.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::{CreateSandbox, PriorAnswer, Requested, Sandbox};
use atoll_model::{CallId, Ending, ServedExec};
use atoll_tools::{
    Asked, Cancel, OUTPUT_BYTES_MAX, Program, Ran, RanEnd, Refusal as Refused, Runner, SandboxLife,
    Session, Tool, ToolSwitches, Upstream, content,
};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::answers::{Answer, Answered, fault};
use super::approving::Question;
use super::begun::Begun;
use super::caller::{Caller, check_maker};
use super::identity::{Identity, OfTool};
use super::lifecycle::{Lifecycle, Reason};
use super::living::Living;
use super::process::Process;
use super::sandboxes::Sandboxes;
use super::server::Server;
use super::window::{Next, Reading};
use crate::line::{Reader, Stream};
use crate::protocol::{
    CallToolAsk, CreateAsk, End, Kind, MayFacts, Refusal, StartAsk, ToolFacts, ToolReply, ToolsAsk,
};
use crate::ready::watched;
use crate::tool_facts::{failed, may, reply};

/// The template of tools' sandboxes.
const TEMPLATE: &str = "base";
/// The notes of sandboxes that tools, and upstreams, run in.
const OF_TOOL: &str = "atoll.tool";
const OF_UPSTREAM: &str = "atoll.upstream";
/// The time after which a session that is not used ends, with its sandboxes.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// The time between two looks for such sessions.
const LOOK: Duration = Duration::from_secs(30);
/// The most sessions of one caller.
const SESSIONS_MAX: usize = 1_024;
/// The longest name of a session, bytes.
const NAME_BYTES_MAX: usize = 128;
const SIGKILL: u8 = 9;
/// The time in which a program that was killed is gone.
const KILL_WAIT: Duration = Duration::from_secs(5);

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
    pub(super) async fn tools(
        self: &Arc<Self>,
        caller: &Caller,
        ask: ToolsAsk,
        reader: &mut Reader,
    ) -> Result<Answered, Refusal> {
        check_maker(caller)?;
        match ask {
            ToolsAsk::ListTools(ask) => {
                let listed = self.list(caller, ask.session.as_deref()).await?;
                ask.answer(listed)
            }
            ToolsAsk::CallTool(ask) => {
                let reply = self.call(caller, &ask.0, reader).await?;
                ask.answer(reply)
            }
            ToolsAsk::MayCall(ask) => {
                let held = self.session(caller, ask.session.as_deref())?;
                let (name, arguments) = (ask.name.clone(), ask.arguments.clone());
                let verdict = within(&held, move |session| session.may(&name, &arguments));
                let facts: MayFacts = may(verdict.await?)?;
                ask.answer(facts)
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

    async fn list(
        self: &Arc<Self>,
        caller: &Caller,
        session: Option<&str>,
    ) -> Result<Vec<ToolFacts>, Refusal> {
        let held = self.session(caller, session)?;
        let tools = within(&held, Session::tools).await?;
        let tools = tools.map_err(|failure| failed(&failure))?;
        Ok(tools.iter().map(|tool| ToolFacts::from(&**tool)).collect())
    }

    /// Calls a tool, once an approver has agreed where policies ask about it.
    async fn call(
        self: &Arc<Self>,
        caller: &Caller,
        ask: &CallToolAsk,
        reader: &mut Reader,
    ) -> Result<ToolReply, Refusal> {
        let held = self.session(caller, ask.session.as_deref())?;
        let asked = match self.called(&held, ask, PriorAnswer::Nobody, reader).await? {
            Err(Refused::NeedsApproval(asked)) => asked,
            called => return reply(held.session.id().as_str(), called),
        };
        let question = Question {
            action: "call",
            sandbox: held.session.id().to_string(),
            run: Some(held.session.id().clone()),
            caller: Some(caller.name.clone()),
            shown: json!({ "tool": ask.name, "arguments": ask.arguments }),
            asked,
        };
        let approvals = &self.sandboxes.approvals;
        let answer = tokio::select! {
            answer = approvals.ask_approver(&caller.tenant, question) => answer?,
            // Nobody waits for it any more.
            _ = reader.next::<()>() => return Err(gone()),
        };
        let called = self.called(&held, ask, answer, reader).await?;
        reply(held.session.id().as_str(), called)
    }

    /// Makes a call, which ends if its caller goes.
    async fn called(
        self: &Arc<Self>,
        held: &Arc<Held>,
        ask: &CallToolAsk,
        answer: PriorAnswer,
        reader: &mut Reader,
    ) -> Result<Result<atoll_tools::Answer, Refused>, Refusal> {
        let cancel = Cancel::new().map_err(|failure| failed(&failure))?;
        let word = cancel.clone();
        let (name, arguments) = (ask.name.clone(), ask.arguments.clone());
        let called = within(held, move |session| {
            session.call(&Asked {
                name: &name,
                arguments: &arguments,
                key: None,
                answer: &answer,
                cancel: &cancel,
            })
        });
        tokio::pin!(called);
        tokio::select! {
            called = &mut called => called,
            _ = reader.next::<()>() => {
                word.cancel();
                called.await
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
        let runner = ServedRunner {
            sandboxes: Arc::clone(&self.sandboxes),
            caller: Caller {
                once: None,
                ..caller.clone()
            },
            handle: Handle::current(),
            living: tokio::sync::Mutex::default(),
        };
        let session = Session::new(
            self.server.engine.clone(),
            Arc::clone(&self.switches),
            runner,
            Some(caller.name.clone()),
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

    /// Ends sessions that nobody uses, for as long as the server is there.
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
        }
    }
}

fn locked<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
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
    let _ = spawn_blocking(move || ended.session.disconnect()).await;
    let runner = held.session.runner();
    let living = std::mem::take(&mut *runner.living.lock().await);
    for sandbox in living.values() {
        runner.sandboxes.end(sandbox, Reason::Caller).await;
    }
}

/// The sandboxes of one session.
struct ServedRunner {
    sandboxes: Arc<Sandboxes>,
    caller: Caller,
    handle: Handle,
    /// Those that live for the session, by their boundary.
    living: tokio::sync::Mutex<BTreeMap<String, Arc<Living>>>,
}

impl ServedRunner {
    /// Returns the request for a sandbox, with a note of what it is for.
    fn ask(note: (&str, &str)) -> CreateAsk {
        let (name, value) = note;
        CreateAsk {
            template: TEMPLATE.to_owned(),
            metadata: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            ..CreateAsk::default()
        }
    }

    async fn make(
        &self,
        ask: CreateAsk,
        requested: &Requested,
        parent: &CallId,
    ) -> Result<Arc<Living>, Refusal> {
        let identity = Identity::new(&ask, TEMPLATE.to_owned(), Begun::default())?;
        let identity = identity.for_tool(OfTool {
            requested: requested.clone(),
            parent: Some(Box::new(parent.clone())),
        });
        self.sandboxes
            .create_as(&self.caller, None, ask, identity)
            .await
    }

    /// Returns the session's sandbox of a key, made by the first call.
    async fn living(
        &self,
        key: String,
        ask: CreateAsk,
        requested: &Requested,
        parent: &CallId,
    ) -> Result<Arc<Living>, Refusal> {
        let mut living = self.living.lock().await;
        if let Some(one) = living
            .get(&key)
            .filter(|one| one.life.is(Lifecycle::is_running))
        {
            return Ok(Arc::clone(one));
        }
        let made = self.make(ask, requested, parent).await?;
        living.insert(key, Arc::clone(&made));
        Ok(made)
    }

    async fn ran(&self, tool: &Tool, program: &Program) -> Result<Ran, Refusal> {
        let ask = Self::ask((OF_TOOL, tool.name.as_str()));
        let living = match tool.life {
            SandboxLife::Call => self.make(ask, &tool.requested, &program.parent).await?,
            SandboxLife::Session => {
                let key = format!("{:?}", tool.requested);
                let living = self.living(key, ask, &tool.requested, &program.parent);
                living.await?
            }
        };
        let ran = self.followed(&living, program).await;
        if tool.life == SandboxLife::Call {
            self.sandboxes.end(&living, Reason::Caller).await;
        }
        ran
    }

    /// Runs a program to its end.
    async fn followed(&self, living: &Arc<Living>, program: &Program) -> Result<Ran, Refusal> {
        let command = program.command.iter();
        let ask = StartAsk {
            command: command
                .map(|one| one.to_string_lossy().into_owned())
                .collect(),
            input: !program.stdin.is_empty(),
            ..StartAsk::default()
        };
        let by = ServedExec {
            caller: Some(self.caller.name.clone()),
            trace: self.caller.trace.clone(),
            parent: Some(Box::new(program.parent.clone())),
            ..ServedExec::default()
        };
        let until = tokio::time::Instant::now() + program.timeout;
        let (process, reading) = self.sandboxes.programs.start(living, ask, by).await?;
        let writing = program.stdin.clone();
        let input = Arc::clone(&process);
        let writing = tokio::spawn(async move {
            // A program that closes its input has read enough.
            if !writing.is_empty() && input.write(&writing).await.is_ok() {
                let _ = input.close_input().await;
            }
        });
        let followed = follow(&process, reading, program, until).await;
        writing.abort();
        let (end, [stdout, stderr], lost) = followed?;
        let (sandbox, path) = (Arc::clone(&living.sandbox), program.file.clone());
        let file = match path {
            None => None,
            Some(path) => {
                let read = spawn_blocking(move || content(&sandbox, &path)).await;
                Some(read.unwrap_or_else(|error| Err(error.to_string())))
            }
        };
        Ok(Ran {
            run: living.sandbox.run().clone(),
            end,
            stdout,
            stderr,
            lost,
            file,
        })
    }
}

impl Runner for ServedRunner {
    fn boundary(&self, tool: &Tool) -> CreateSandbox {
        let ask = Self::ask((OF_TOOL, tool.name.as_str()));
        self.sandboxes
            .tool_boundary(&self.caller, &ask, &tool.requested)
    }

    fn run(&self, tool: &Tool, program: &Program) -> Result<Ran, Failure> {
        let ran = self.handle.block_on(self.ran(tool, program));
        ran.map_err(failure)
    }

    fn upstream(
        &self,
        upstream: &Upstream,
        parent: &CallId,
    ) -> Result<(Arc<Sandbox>, Option<ServedExec>), Failure> {
        // No other upstream, and no tool, has a key like this.
        let key = format!("upstream {}", upstream.name);
        let ask = Self::ask((OF_UPSTREAM, &upstream.name));
        let living = self.living(key, ask, &upstream.requested, parent);
        let living = self.handle.block_on(living).map_err(failure)?;
        let by = ServedExec {
            caller: Some(self.caller.name.clone()),
            trace: self.caller.trace.clone(),
            ..ServedExec::default()
        };
        Ok((Arc::clone(&living.sandbox), Some(by)))
    }
}

fn failure(refusal: Refusal) -> Failure {
    let failure = Failure::new(refusal.what);
    match refusal.advice {
        Some(advice) => failure.advise(advice),
        None => failure,
    }
}

/// The output of a program: its standard output and error, and how many bytes were not kept.
type Output = (RanEnd, [Vec<u8>; 2], u64);

/// Reads what a program writes, until its end, its time or its caller's word.
async fn follow(
    process: &Process,
    mut reading: Reading,
    program: &Program,
    until: tokio::time::Instant,
) -> Result<Output, Refusal> {
    let word = program.cancel.descriptor().try_clone_to_owned();
    let word = word.and_then(watched).map_err(|error| fault(&error))?;
    let (mut kept, mut lost) = ([Vec::new(), Vec::new()], reading.lost);
    let mut killed = None;
    let mut until = until;
    loop {
        let next = tokio::select! {
            biased;
            next = reading.next() => next,
            _ = word.readable(), if killed.is_none() => {
                killed = Some(RanEnd::Cancelled);
                until = tokio::time::Instant::now() + KILL_WAIT;
                process.signal(SIGKILL);
                continue;
            }
            () = tokio::time::sleep_until(until) => {
                if let Some(why) = killed {
                    return Ok((why, kept, lost));
                }
                killed = Some(RanEnd::TimedOut);
                until = tokio::time::Instant::now() + KILL_WAIT;
                process.signal(SIGKILL);
                continue;
            }
        };
        match next {
            Next::Content(stream, content) => {
                let [out, err] = &mut kept;
                let to = match stream {
                    Stream::Output | Stream::Terminal => out,
                    Stream::Error => err,
                };
                let room = OUTPUT_BYTES_MAX - to.len();
                let fits = content.get(..content.len().min(room)).unwrap_or_default();
                to.extend_from_slice(fits);
                lost += (content.len() - fits.len()) as u64;
            }
            Next::End(end) => {
                let end = killed.unwrap_or(RanEnd::Ended(ending(end)?));
                return Ok((end, kept, lost));
            }
        }
    }
}

/// Returns the ending of a program, or why it has none.
fn ending(end: End) -> Result<Ending, Refusal> {
    Ok(match end {
        End::Exited(status) => Ending::Exited { status },
        End::Signalled(signal) => Ending::Signalled { signal },
        End::Limited(_) | End::Otherwise(_) | End::Late | End::Gone(_) | End::TooSlow => {
            let what = format!("its program did not come to its end: {}", end.why());
            return Err(Refusal::new(Kind::Unavailable, what));
        }
    })
}
