//! The requests of one sandbox.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_engine::sandboxes::PriorAnswer;
use atoll_model::ServedExec;
use atoll_model::network::{Listener, ListensAt};
use serde_json::json;

use super::approving::{Question, advised};
use super::asleep::ASLEEP;
use super::completing::completed;
use super::files::{self, WRITTEN_WITHIN, Watching};

use super::living::Living;
use super::process::{NotStarted, Place, Process, most_kib};
use super::recorded;
use super::room::For;
use super::shares::Of;
use super::window::{Next, Reading};
use super::{Answered, Worker, fault, making, name, refusal, unanswered};

use crate::line::{Frame, Reader, Writer};
use crate::protocol::{End, InAsk, Kind, PortFacts, ProcessFacts, Refusal, Reply, StartAsk};
use crate::ready::watched;

/// The time between two looks at the room that is left, while a file is written.
const ROOM_LOOK: Duration = Duration::from_millis(500);
/// The time for which a program's output waits for the first who reads it.
const HELD: Duration = Duration::from_secs(5);
/// The time in which a limit that has ended a program is told of, and that signal.
const LIMIT_TOLD: Duration = Duration::from_millis(150);
const SIGKILL: u8 = 9;
/// The time between two looks whether somebody does.
const HELD_LOOK: Duration = Duration::from_millis(20);

impl Worker {
    /// Carries out a request of a sandbox that the caller may use.
    pub(super) async fn work(
        self: &Arc<Self>,
        living: &Arc<Living>,
        ask: InAsk,
        once: Option<String>,
        by: ServedExec,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        match ask {
            ask @ (InAsk::SetNetwork(_) | InAsk::SetSizes(_) | InAsk::Decide { .. }) => {
                self.widen(living, ask, by).await.map(Answered::Reply)
            }
            InAsk::Port { port } => self.connect(living, port).await,
            InAsk::Start(ask) => {
                let (process, reading) = self.begin(living, once, *ask, by).await?;
                follow(living, &process, reading, reader, writer).await
            }
            InAsk::Launch(ask) => {
                let (process, reading) = self.begin(living, once, *ask, by).await?;
                let started = started(&process, &reading);
                tokio::spawn(hold(reading));
                Ok(Answered::Reply(started))
            }
            InAsk::Attach { process, from } => {
                let process = living.process(&process)?;
                let reading = process.window.read(from);
                follow(living, &process, reading, reader, writer).await
            }
            InAsk::Input { process } => {
                let passed = pass_input(&*living.process(&process)?, reader).await;
                passed.map(|()| Answered::Reply(Reply::Done))
            }
            ask @ (InAsk::Processes
            | InAsk::CloseInput { .. }
            | InAsk::Signal { .. }
            | InAsk::Resize { .. }) => steer(living, ask).await.map(Answered::Reply),
            InAsk::Read { path, range } => {
                let read = living.files.read(&path, range, writer).await;
                read.map(Answered::Written)
            }
            InAsk::Write { path } => {
                self.room.check(For::File)?;
                tokio::select! {
                    written = living.files.write(&path, reader, writer) => {
                        written.map(Answered::Reply)
                    }
                    refusal = self.no_more(living) => Err(refusal),
                }
            }
            InAsk::Watch { path, recursive } => {
                let told = tell_changes(living, &path, recursive, reader, writer);
                told.await.map(Answered::Written)
            }
            ask @ (InAsk::MakeWatcher { .. }
            | InAsk::Watched { .. }
            | InAsk::RemoveWatcher { .. }) => watch(living, ask).await.map(Answered::Reply),
            ask @ (InAsk::Stat { .. }
            | InAsk::ListDirectory { .. }
            | InAsk::MakeDirectory { .. }
            | InAsk::Move { .. }
            | InAsk::Remove { .. }) => living.files.answer(ask).await.map(Answered::Reply),
            ask => self.live(living, ask, by).await.map(Answered::Reply),
        }
    }

    /// Carries out a request that can let a sandbox do more.
    async fn widen(
        self: &Arc<Self>,
        living: &Arc<Living>,
        ask: InAsk,
        by: ServedExec,
    ) -> Result<Reply, Refusal> {
        match ask {
            InAsk::Decide { approval, decision } => {
                recorded::decide(living, approval, decision, by).await
            }
            InAsk::SetSizes(asked) => {
                self.set_sizes(living, asked, by).await?;
                Ok(Reply::Done)
            }
            InAsk::SetNetwork(asked) => {
                self.set_network(living, asked, by).await?;
                Ok(Reply::Done)
            }
            _ => Ok(Reply::Done),
        }
    }

    /// Waits until nothing more may be written to a sandbox's files: the front writes on by itself.
    async fn no_more(&self, living: &Living) -> Refusal {
        let mut over = living.over.subscribe();
        loop {
            tokio::select! {
                _ = async { drop(over.wait_for(Option::is_some).await) } => {
                    // What is kept of it is not to be cut short.
                    if living.is_pausing() {
                        tokio::time::sleep(WRITTEN_WITHIN).await;
                    }
                    let why = living.over.borrow().clone().unwrap_or_default();
                    let what = format!("sandbox {} has ended: {why}", living.id);
                    return Refusal::new(Kind::NoSandbox, what);
                }
                () = tokio::time::sleep(ROOM_LOOK) => {
                    if let Err(refusal) = self.room.check(For::File) {
                        return refusal;
                    }
                }
            }
        }
    }

    /// Carries out a request about the life of a sandbox.
    async fn live(
        self: &Arc<Self>,
        living: &Arc<Living>,
        ask: InAsk,
        by: ServedExec,
    ) -> Result<Reply, Refusal> {
        Ok(match ask {
            InAsk::Get => Reply::Sandbox(Box::new(living.facts())),
            InAsk::Connect { timeout_s } => {
                if let Some(seconds) = timeout_s {
                    self.prolong(living, seconds, true)?;
                }
                living.created()
            }
            InAsk::Pause { memory } => Reply::Paused(self.pause(living, memory, by).await?),
            InAsk::Snapshot { name } => {
                self.snapshot(super::snapshots::Source::Living(living), name)
                    .await?
            }
            InAsk::Kill if living.is_pausing() => {
                let what = format!("sandbox {} is just being paused", living.id);
                return Err(Refusal::new(Kind::Exists, what).advise("end it again"));
            }
            InAsk::Kill => {
                self.end(living, "a caller has ended it").await;
                Reply::Done
            }
            InAsk::SetTimeout { timeout_s, extends } => {
                match timeout_s {
                    0 => {
                        living.live_for(Duration::ZERO, extends);
                    }
                    seconds => self.prolong(living, seconds, extends)?,
                }
                Reply::Done
            }
            InAsk::Measure => Reply::Measured(making::measure(living).await?),
            InAsk::Link { port, lasts_s } => self.link(living, port, lasts_s)?,
            InAsk::Ports => self.ports(living).await?,
            _ => Reply::Done,
        })
    }

    /// Sets the life of a sandbox from now on.
    fn prolong(&self, living: &Living, seconds: u64, extends: bool) -> Result<(), Refusal> {
        if living.live_for(self.life(Some(seconds))?, extends) {
            self.note_updated(living, "a caller has set its timeout");
        }
        Ok(())
    }
}

impl Worker {
    /// Lists the ports that callers can reach.
    async fn ports(&self, living: &Arc<Living>) -> Result<Reply, Refusal> {
        let sandbox = Arc::clone(&living.sandbox);
        let listening = tokio::task::spawn_blocking(move || sandbox.listeners()).await;
        let listening = listening.map_err(|error| fault(&error))?;
        let listening = listening.map_err(|failure| refusal(&failure))?;
        let facts = |one: Listener| PortFacts {
            port: one.port,
            program: one.program,
            url: self.port_url(living, one.port),
        };
        let reached = listening.into_iter();
        let reached = reached.filter(|one| one.at != ListensAt::Elsewhere);
        let mut all: Vec<PortFacts> = reached.map(facts).collect();
        // Once, whatever addresses it listens at.
        all.dedup_by_key(|one| one.port);
        Ok(Reply::Ports(all))
    }
}

impl Worker {
    /// Connects to a port, at which the code interpreter may have to begin first, or again.
    async fn connect(
        self: &Arc<Self>,
        living: &Arc<Living>,
        port: u16,
    ) -> Result<Answered, Refusal> {
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
async fn connect(living: &Arc<Living>, port: u16) -> Result<Answered, Refusal> {
    let connected = living.files.connect(port).await?;
    if !living.reached().contains(&port) {
        let sandbox = Arc::clone(&living.sandbox);
        let reached = tokio::task::spawn_blocking(move || sandbox.reach(port)).await;
        let reached = reached.map_err(|error| fault(&error))?;
        reached.map_err(|failure| refusal(&failure))?;
        living.reached().insert(port);
    }
    let host = living.port_host.as_ref();
    let host = host.map(|host| host.replace("${PORT}", &port.to_string()));
    Ok(Answered::Connected(connected, host))
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

/// Carries out a request about running programs.
async fn steer(living: &Living, ask: InAsk) -> Result<Reply, Refusal> {
    match ask {
        InAsk::Processes => return Ok(Reply::Processes(processes(living))),
        InAsk::CloseInput { process } => living.process(&process)?.close_input().await?,
        InAsk::Signal { process, number } => {
            let process = living.process(&process)?;
            if process.window.over().is_some() {
                return Err(Refusal::new(Kind::NotFound, "the program has ended"));
            }
            process.signal(number);
        }
        InAsk::Resize { process, terminal } => living.process(&process)?.resize(terminal),
        _ => {}
    }
    Ok(Reply::Done)
}

/// Carries out a request about a watcher.
async fn watch(living: &Living, ask: InAsk) -> Result<Reply, Refusal> {
    match ask {
        InAsk::MakeWatcher { path, recursive } => {
            let watch = living.files.watch(&path, recursive).await?;
            let name = name(16)?;
            living.keep_watcher(&name, watch)?;
            Ok(Reply::Watcher(name))
        }
        InAsk::Watched { watcher } => {
            let watch = living.watcher(&watcher)?;
            let changes = files::changes(&watch, None).await;
            Ok(Reply::Changed(changes.map_err(|_| unanswered())?))
        }
        InAsk::RemoveWatcher { watcher } => {
            living.remove_watcher(&watcher)?;
            Ok(Reply::Done)
        }
        _ => Ok(Reply::Done),
    }
}

impl Worker {
    /// Starts a program, once for each name of a request.
    async fn begin(
        self: &Arc<Self>,
        living: &Arc<Living>,
        once: Option<String>,
        ask: StartAsk,
        by: ServedExec,
    ) -> Result<(Arc<Process>, Reading), Refusal> {
        match once {
            None => self.start(living, ask, by).await,
            Some(once) => self.start_once(living, &once, ask, by).await,
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
        let place = self.place(&living.tenant, &ask)?;
        let nobody = PriorAnswer::Nobody;
        let asked = match Process::start(sandbox, ask.clone(), by.clone(), nobody, place).await {
            Ok((process, reading)) => return Ok(kept(living, process, reading)),
            Err(NotStarted::Refused(refusal)) => return Err(refusal),
            Err(NotStarted::NeedsApproval(asked)) => asked,
        };
        let question = Question {
            action: "exec",
            sandbox: living.id.clone(),
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
        let mut over = living.over.subscribe();
        let answer = tokio::select! {
            answer = self.ask_approver(&living.tenant, question) => answer?,
            _ = over.wait_for(Option::is_some) => {
                let why = living.over.borrow().clone().unwrap_or_default();
                let what = format!("sandbox {} has ended: {why}", living.id);
                return Err(Refusal::new(Kind::NoSandbox, what));
            }
        };
        let place = self.place(&living.tenant, &ask)?;
        match Process::start(sandbox, ask, by, answer.clone(), place).await {
            Ok((process, reading)) => Ok(kept(living, process, reading)),
            Err(NotStarted::Refused(refusal)) => Err(advised(&answer, refusal)),
            Err(NotStarted::NeedsApproval(_)) => Err(unanswered()),
        }
    }

    /// Takes the shares of a program, if its tenant may have one more.
    pub(super) fn place(&self, tenant: &str, ask: &StartAsk) -> Result<Place, Refusal> {
        let mut running = vec![self.shares.take(Of::Programs, tenant, 1)?];
        if ask.terminal.is_some() {
            running.push(self.shares.take(Of::Terminals, tenant, 1)?);
        }
        let kept = self.shares.take(Of::Memory, tenant, most_kib(ask))?;
        Ok(Place { running, kept })
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
    living: &Living,
    process: &Process,
    mut reading: Reading,
    reader: &mut Reader,
    writer: &mut Writer,
) -> Result<Answered, Refusal> {
    let follow = async {
        writer.message(&started(process, &reading)).await?;
        let mut over = living.over.subscribe();
        loop {
            let next = tokio::select! {
                biased;
                next = reading.next() => next,
                // Whoever has asked says nothing more, or is gone.
                _ = reader.next::<()>() => return Ok(()),
                // It writes nothing more for now.
                _ = async { drop(over.wait_for(is_asleep).await) } => {
                    let end = End::Gone(ASLEEP.to_owned());
                    return writer.message(&Reply::Ended(end)).await;
                }
            };
            match next {
                Next::Content(stream, content) => writer.content(stream, &content).await?,
                Next::End(end) => {
                    if end == End::Signalled(SIGKILL) {
                        // A limit ends programs first, and is told of just after that.
                        let mut over = living.over.subscribe();
                        let told = over.wait_for(Option::is_some);
                        let _ = tokio::time::timeout(LIMIT_TOLD, told).await;
                    }
                    let end = match (living.over.borrow().clone(), end) {
                        (Some(why), End::Exited(_) | End::Signalled(_) | End::Gone(_)) => {
                            End::Gone(why)
                        }
                        (_, end) => end,
                    };
                    return writer.message(&Reply::Ended(end)).await;
                }
            }
        }
    };
    Ok(Answered::Written(follow.await))
}

#[expect(clippy::ref_option, reason = "that is how it is kept")]
fn is_asleep(over: &Option<String>) -> bool {
    over.as_deref() == Some(ASLEEP)
}

fn started(process: &Process, reading: &Reading) -> Reply {
    Reply::Started {
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

/// Tells of changes in a directory, until the connection is closed.
async fn tell_changes(
    living: &Living,
    path: &str,
    recursive: bool,
    reader: &mut Reader,
    writer: &mut Writer,
) -> Result<io::Result<()>, Refusal> {
    let watch = living.files.watch(path, recursive).await?;
    Ok(told(watch, reader, writer).await)
}

async fn told(watch: Watching, reader: &mut Reader, writer: &mut Writer) -> io::Result<()> {
    let events = watched(watch.descriptor().try_clone()?)?;
    let watch = Arc::new(watch);
    writer.message(&Reply::Done).await?;
    loop {
        let changes = tokio::select! {
            changes = files::changes(&watch, Some(&events)) => changes?,
            _ = reader.next::<()>() => return Ok(()),
        };
        if !changes.is_empty() {
            writer.message(&Reply::Changed(changes)).await?;
        }
    }
}
