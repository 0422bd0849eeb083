//! The programs of a sandbox: started, followed, steered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_engine::sandboxes::PriorAnswer;
use atoll_model::Once;
use atoll_model::ServedExec;
use serde_json::json;
use tokio::net::TcpStream;

use super::answers::Answer;
use super::answers::Answered;
use super::answers::fault;
use super::answers::refusal;
use super::answers::unanswered;
use super::approving::Approvals;
use super::approving::{Question, advised};
use super::caller::Caller;
use super::completing::completed;
use super::lifecycle::Lifecycle;
use super::living::Living;
use super::once::Idempotency;
use super::once::{Outcome, another, digest};
use super::process::{NotStarted, Process};
use super::rights::shown_to;
use super::server::Server;
use super::templates::{begun, command};
use super::window::{Next, Reading};
use crate::line::{Frame, Reader, Writer};
use crate::protocol::INTERPRETER_PORT;
use crate::protocol::OpenedPort;
use crate::protocol::{
    End, Kind, ProcessAsk, ProcessFacts, Refusal, Request, StartAsk, StartedFacts,
};

/// The time for which a program's output waits for the first who reads it.
const HELD: Duration = Duration::from_secs(5);
/// The time in which a limit that has ended a program is told of, and that signal.
const LIMIT_TOLD: Duration = Duration::from_millis(150);
const SIGKILL: u8 = 9;
/// The time between two looks whether somebody does.
const HELD_LOOK: Duration = Duration::from_millis(20);

/// The time between two looks whether it is.
pub(super) const READY_LOOK: Duration = Duration::from_millis(100);

/// The programs of sandboxes.
pub(super) struct Programs {
    pub(super) server: Arc<Server>,
    pub(super) approvals: Arc<Approvals>,
    pub(super) idempotency: Arc<Idempotency>,
}

impl Programs {
    /// Carries out a request about programs.
    pub(super) async fn run(
        self: &Arc<Self>,
        request: Admitted<'_>,
        ask: ProcessAsk,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let living = request.living;
        match ask {
            ProcessAsk::Start(ask) => {
                let (process, reading) = self.begin(&request, &ask.0).await?;
                Ok(follow(&ask, living, &process, reading, reader, writer).await)
            }
            ProcessAsk::Launch(ask) => {
                let (process, reading) = self.begin(&request, &ask.0).await?;
                let started = started(&process, &reading);
                tokio::spawn(hold(reading));
                ask.answer(started)
            }
            ProcessAsk::Attach(ask) => {
                let process = living.process(&ask.process)?;
                let reading = process.window.read(ask.from);
                Ok(follow(&ask, living, &process, reading, reader, writer).await)
            }
            ProcessAsk::ListProcesses(ask) => {
                let all = processes(living);
                ask.answer(match &request.caller {
                    Some(caller) => shown_to(caller, all),
                    None => all,
                })
            }
            ProcessAsk::Input(ask) => {
                ask.answer(pass_input(&*living.process(&ask.process)?, reader).await?)
            }
            ProcessAsk::CloseInput(ask) => {
                ask.answer(living.process(&ask.process)?.close_input().await?)
            }
            ProcessAsk::Signal(ask) => {
                let process = living.process(&ask.process)?;
                if process.window.over().is_some() {
                    return Err(Refusal::new(Kind::NotFound, "the program has ended"));
                }
                process.signal(ask.number);
                ask.answer(())
            }
            ProcessAsk::Resize(ask) => {
                living.process(&ask.process)?.resize(ask.terminal);
                ask.answer(())
            }
        }
    }

    /// Starts a program, once for each name of a request.
    async fn begin(
        self: &Arc<Self>,
        request: &Admitted<'_>,
        ask: &StartAsk,
    ) -> Result<(Arc<Process>, Reading), Refusal> {
        let (living, ask, by) = (request.living, ask.clone(), request.by.clone());
        match &request.once {
            None => self.start(living, ask, by).await,
            Some(once) => self.start_once(living, once, ask, by).await,
        }
    }

    /// Starts a program, if one more can be supervised, and once an approver has agreed where
    /// policies ask about it.
    pub(super) async fn start(
        self: &Arc<Self>,
        living: &Arc<Living>,
        ask: StartAsk,
        by: ServedExec,
    ) -> Result<(Arc<Process>, Reading), Refusal> {
        let mut by = by;
        let ask = completed(living, ask, &mut by).await?;
        let sandbox = &living.sandbox;
        let place = self.server.place(&living.spec.tenant, &ask)?;
        let nobody = PriorAnswer::Nobody;
        let asked = match Process::start(sandbox, ask.clone(), by.clone(), nobody, place).await {
            Ok((process, reading)) => return Ok(kept(living, process, reading)),
            Err(NotStarted::Refused(refusal)) => return Err(refusal),
            Err(NotStarted::NeedsApproval(asked)) => asked,
        };
        let question = Question {
            action: "exec",
            sandbox: living.spec.id.clone(),
            run: Some(sandbox.run().clone()),
            caller: by.caller.clone(),
            shown: json!({
                "command": ask.command,
                "directory": ask.directory,
                "terminal": ask.terminal.is_some(),
                "variables": ask.environment.keys().collect::<Vec<_>>(),
            }),
            asked,
        };
        let answer = tokio::select! {
            answer = self.approvals.ask_approver(&living.spec.tenant, question) => answer?,
            state = living.life.stopped() => {
                let what = format!("sandbox {} has ended: {state}", living.spec.id);
                return Err(Refusal::new(Kind::NoSandbox, what));
            }
        };
        let place = self.server.place(&living.spec.tenant, &ask)?;
        match Process::start(sandbox, ask, by, answer.clone(), place).await {
            Ok((process, reading)) => Ok(kept(living, process, reading)),
            Err(NotStarted::Refused(refusal)) => Err(advised(&answer, refusal)),
            Err(NotStarted::NeedsApproval(_)) => Err(unanswered()),
        }
    }
}

fn kept(living: &Arc<Living>, process: Arc<Process>, reading: Reading) -> (Arc<Process>, Reading) {
    living.keep(&process);
    (process, reading)
}

fn processes(living: &Living) -> Vec<ProcessFacts> {
    let processes = living.processes();
    let running = processes.iter().filter(|one| one.window.over().is_none());
    running
        .map(|process| ProcessFacts {
            pid: process.pid(),
            started: process.asked.clone(),
        })
        .collect()
}

/// Sends what a program writes, until its end or the reader's.
async fn follow(
    ask: &impl Request<Reply = StartedFacts, Then = End>,
    living: &Living,
    process: &Process,
    mut reading: Reading,
    reader: &mut Reader,
    writer: &mut Writer,
) -> Answered {
    let follow = async {
        writer.reply(ask, started(process, &reading)).await?;
        loop {
            let next = tokio::select! {
                biased;
                next = reading.next() => next,
                // Whoever has asked says nothing more, or is gone.
                _ = reader.next::<()>() => return Ok(()),
                // It writes nothing more for now.
                state = living.life.wait(Lifecycle::keeps_memory) => {
                    return writer.then(ask, End::Gone(state.to_string())).await;
                }
            };
            match next {
                Next::Content(stream, content) => writer.content(stream, &content).await?,
                Next::End(end) => {
                    if end == End::Signalled(SIGKILL) {
                        // A limit ends programs first, and is told of just after that.
                        let _ = tokio::time::timeout(LIMIT_TOLD, living.life.stopped()).await;
                    }
                    let state = living.life.state();
                    let end = match end {
                        End::Exited(_) | End::Signalled(_) | End::Gone(_)
                            if !state.is_running() =>
                        {
                            End::Gone(state.to_string())
                        }
                        end => end,
                    };
                    return writer.then(ask, end).await;
                }
            }
        }
    };
    Answered::Written(follow.await)
}

fn started(process: &Process, reading: &Reading) -> StartedFacts {
    StartedFacts {
        pid: process.pid(),
        lost: reading.lost,
        at: reading.at,
    }
}

/// Keeps the output of a program that was only started, until whoever follows it has come, or does
/// not.
async fn hold(reading: Reading) {
    let until = Instant::now() + HELD;
    while Instant::now() < until && reading.is_alone() {
        tokio::time::sleep(HELD_LOOK).await;
    }
}

/// Writes the frames that come to a program's input.
async fn pass_input(process: &Process, reader: &mut Reader) -> Result<(), Refusal> {
    loop {
        match reader.next::<()>().await {
            Ok(Some(Frame::Content(_, content))) => process.write(&content).await?,
            Ok(Some(_)) | Ok(None) | Err(_) => return Ok(()),
        }
    }
}

impl Programs {
    /// Waits until a program succeeds.
    pub(crate) async fn wait_ready(
        self: &Arc<Self>,
        living: &Arc<Living>,
        ask: &StartAsk,
        by: &ServedExec,
        within: Duration,
    ) -> Result<(), Refusal> {
        let until = tokio::time::Instant::now() + within;
        loop {
            let started = self.start(living, ask.clone(), by.clone()).await;
            let process = started.map(|(process, _)| process)?;
            let ended = tokio::time::timeout_at(until, process.window.ended()).await;
            if ended.is_err() {
                process.signal(SIGKILL);
                let what = "the program is not ready in time";
                return Err(Refusal::new(Kind::Late, what).advise("look at the ready command"));
            }
            if process.window.over() == Some(End::Exited(0)) {
                return Ok(());
            }
            tokio::time::sleep(READY_LOOK).await;
        }
    }

    /// Starts the interpreter of a sandbox that has one, where nothing answers at its port; returns
    /// whether it answers then.
    pub(super) async fn ready_port(
        self: &Arc<Self>,
        living: &Arc<Living>,
        port: u16,
    ) -> Result<bool, Refusal> {
        if port != INTERPRETER_PORT || !living.spec.is_interpreter {
            return Ok(false);
        }
        let _one_by_one = living.interpreter.lock().await;
        // Whoever came before may have started it.
        if living.files.connect(port).await.is_ok() {
            return Ok(true);
        }
        let ask = StartAsk {
            command: command().into(),
            ..StartAsk::default()
        };
        let (process, _reading) = self.start(living, ask, ServedExec::default()).await?;
        begun(&living.files, &process).await?;
        Ok(true)
    }

    /// Connects to a port, at which the code interpreter may have to begin first, or again.
    pub(super) async fn connect(
        self: &Arc<Self>,
        living: &Arc<Living>,
        port: u16,
    ) -> Result<(TcpStream, OpenedPort), Refusal> {
        match connect(living, port).await {
            Err(refusal) if refusal.kind == Kind::NotFound => {
                match self.ready_port(living, port).await? {
                    true => connect(living, port).await,
                    false => Err(refusal),
                }
            }
            connected => connected,
        }
    }
}

/// Connects to a port. The first time that is decided and recorded, before any byte goes there; a
/// port at which nothing listens is not recorded, so that nobody fills the ledger with others.
async fn connect(living: &Arc<Living>, port: u16) -> Result<(TcpStream, OpenedPort), Refusal> {
    let connected = living.files.connect(port).await?;
    if !living.reached().contains(&port) {
        let sandbox = Arc::clone(&living.sandbox);
        let reached = tokio::task::spawn_blocking(move || sandbox.reach(port)).await;
        let reached = reached.map_err(|error| fault(&error))?;
        reached.map_err(|failure| refusal(&failure))?;
        living.reached().insert(port);
    }
    let host = living.spec.port_host.as_ref();
    let host = host.map(|host| host.replace("${PORT}", &port.to_string()));
    Ok((connected, OpenedPort { host }))
}

impl Programs {
    /// Starts a program, unless a request of this name has.
    pub(super) async fn start_once(
        self: &Arc<Self>,
        living: &Arc<Living>,
        once: &str,
        ask: StartAsk,
        by: ServedExec,
    ) -> Result<(Arc<Process>, Reading), Refusal> {
        // Programs have their sandbox's access token, and are to use up no names of the tenant's.
        if by.caller.is_none() {
            let what = "an Idempotency-Key is for callers with a key";
            return Err(Refusal::new(Kind::Invalid, what).advise("leave it out"));
        }
        let name = (living.spec.id.clone(), once.to_owned());
        let digest = digest(&ask)?;
        let made = Outcome::Started(Arc::default());
        let request = self
            .idempotency
            .named(&living.spec.tenant, &name, &digest, made)?;
        let cell = match request.answer {
            Outcome::Started(cell) => cell,
            Outcome::Created(_) | Outcome::Kept(_) => return Err(another()),
            Outcome::Gone => {
                let what = "the program of this Idempotency-Key has ended with its sandbox's pause";
                return Err(Refusal::new(Kind::Exists, what)
                    .advise("look at what it has done, and start it with a new one"));
            }
        };
        let by = ServedExec {
            once: Some(Box::new(Once {
                tenant: living.spec.tenant.clone(),
                sandbox: living.spec.id.clone(),
                key: name.1.clone(),
                digest,
            })),
            ..by
        };
        let started = async || {
            self.start(living, ask, by)
                .await
                .map(|(process, _)| process)
        };
        let started = cell.get_or_init(started).await.clone();
        if started.is_err() {
            self.idempotency
                .forget_request(&living.spec.tenant, &name, request.number);
        }
        let process = started?;
        let reading = process.window.read(Some(0));
        Ok((process, reading))
    }
}

/// A request of a sandbox that its caller may make, besides what it is.
pub(super) struct Admitted<'a> {
    pub(super) living: &'a Arc<Living>,
    /// The caller, if a key or token tells who that is.
    pub(super) caller: Option<Caller>,
    pub(super) once: Option<String>,
    pub(super) by: ServedExec,
}
