//! The served sandboxes that calls of tools run in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::{CreateSandbox, Requested, Sandbox};
use atoll_engine::supervision::keep_variables;
use atoll_model::{CallId, Ending, ServedExec};
use atoll_tools::{
    OUTPUT_BYTES_MAX, Program, Ran, RanEnd, Runner, SandboxLife, Tool, Upstream, content,
};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::super::answers::fault;
use super::super::begun::Begun;
use super::super::caller::Caller;
use super::super::identity::{Identity, OfTool};
use super::super::lifecycle::{Lifecycle, Reason};
use super::super::living::Living;
use super::super::process::Process;
use super::super::sandboxes::Sandboxes;
use super::super::window::{Next, Reading};
use crate::line::Stream;
use crate::protocol::{CreateAsk, End, Kind, Refusal, StartAsk};
use crate::ready::watched;

/// The template of tools' sandboxes.
const TEMPLATE: &str = "base";
/// The notes of sandboxes that tools, and upstreams, run in.
const OF_TOOL: &str = "atoll.tool";
const OF_UPSTREAM: &str = "atoll.upstream";
/// The time that a call's sandbox lives longer than the call.
const MARGIN: Duration = Duration::from_secs(60);
const SIGKILL: u8 = 9;
/// The time in which a program that was killed is gone.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// The time after which a session that is not used ends, with its sandboxes.
pub(super) const IDLE: Duration = Duration::from_secs(30 * 60);

/// The place of one sandbox, held while it is made.
type Slot = Arc<Mutex<Option<Arc<Living>>>>;

/// The sandboxes of one session.
pub(super) struct ServedRunner {
    sandboxes: Arc<Sandboxes>,
    caller: Caller,
    handle: Handle,
    /// Those that live for the session, by their boundary; `None` once it has ended.
    living: Mutex<Option<BTreeMap<String, Slot>>>,
}

impl ServedRunner {
    /// Makes it for a session of a caller's.
    pub(super) fn new(sandboxes: &Arc<Sandboxes>, caller: &Caller) -> Self {
        keep_variables();
        Self {
            sandboxes: Arc::clone(sandboxes),
            // What is of one request alone is not of those that come after it.
            caller: Caller {
                once: None,
                trace: None,
                ..caller.clone()
            },
            handle: Handle::current(),
            living: Mutex::new(Some(BTreeMap::new())),
        }
    }

    /// Ends the sandboxes; no further one is made that lives for the session.
    pub(super) async fn end(&self) {
        let living = self.living.lock().await.take();
        for slot in living.unwrap_or_default().values() {
            if let Some(sandbox) = slot.lock().await.take() {
                self.sandboxes.end(&sandbox, Reason::Caller).await;
            }
        }
    }

    /// Returns the request for a sandbox of a tool's.
    fn ask_of(&self, tool: &Tool) -> CreateAsk {
        let time = match tool.life {
            SandboxLife::Call => tool.timeout + MARGIN,
            SandboxLife::Session => tool.timeout + IDLE,
        };
        self.ask((OF_TOOL, tool.name.as_str()), time)
    }

    /// Returns the request for a sandbox that lives so long, with a note of what it is for.
    fn ask(&self, note: (&str, &str), time: Duration) -> CreateAsk {
        let (name, value) = note;
        let most = self.sandboxes.server.configuration.quota.timeout_s;
        CreateAsk {
            template: TEMPLATE.to_owned(),
            timeout_s: Some(time.as_secs().min(most)),
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
        let slot = {
            let mut living = self.living.lock().await;
            let living = living.as_mut().ok_or_else(over)?;
            Arc::clone(living.entry(key).or_default())
        };
        // Others begin at the same time: an approver may be asked about this one.
        let mut slot = slot.lock().await;
        let is_there = |one: &&Arc<Living>| one.life.is(Lifecycle::is_running);
        if let Some(one) = slot.as_ref().filter(is_there) {
            one.live_for(self.sandboxes.server.life(ask.timeout_s)?, true);
            return Ok(Arc::clone(one));
        }
        let made = self.make(ask, requested, parent).await?;
        if self.living.lock().await.is_none() {
            self.sandboxes.end(&made, Reason::Caller).await;
            return Err(over());
        }
        *slot = Some(Arc::clone(&made));
        Ok(made)
    }

    async fn ran(&self, tool: &Tool, program: &Program) -> Result<Ran, Refusal> {
        let ask = self.ask_of(tool);
        let living = match tool.life {
            SandboxLife::Call => self.make(ask, &tool.requested, &program.parent).await?,
            SandboxLife::Session => {
                let key = tool.sandbox_key().unwrap_or_default();
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
        let ask = self.ask_of(tool);
        self.sandboxes
            .tool_boundary(&self.caller, &ask, &tool.requested)
    }

    fn run(&self, tool: &Tool, program: &Program) -> Result<Ran, Failure> {
        let ran = self.handle.block_on(self.ran(tool, program));
        ran.map_err(failure)
    }

    fn close(&self) {
        self.handle.block_on(self.end());
    }

    fn sandbox_of(&self, tool: &Tool) -> Option<Arc<Sandbox>> {
        let key = tool.sandbox_key()?;
        self.handle.block_on(async {
            let slot = self.living.lock().await.as_ref()?.get(&key).cloned()?;
            let slot = slot.lock().await;
            let living = slot
                .as_ref()
                .filter(|one| one.life.is(Lifecycle::is_running))?;
            Some(Arc::clone(&living.sandbox))
        })
    }

    fn copy(&self, _: &Requested, _: &CallId) -> Result<Sandbox, Failure> {
        Err(Failure::new("there is no copy to run it on first")
            .because("a server's sandboxes have no workspace that it could be applied to")
            .of_kind(atoll_engine::failure::Kind::Denied))
    }

    fn upstream(
        &self,
        upstream: &Upstream,
        parent: &CallId,
    ) -> Result<(Arc<Sandbox>, Option<ServedExec>), Failure> {
        let key = upstream.sandbox_key();
        let ask = self.ask((OF_UPSTREAM, &upstream.name), upstream.timeout + IDLE);
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

fn over() -> Refusal {
    Refusal::new(Kind::NoSandbox, "the session of tools has ended")
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
            next = reading.next() => next,
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
