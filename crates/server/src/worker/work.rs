//! The requests of one sandbox.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use atoll_model::ServedExec;
use atoll_model::network::{Listener, ListensAt};
use tokio::net::TcpStream;

use super::callers::Caller;
use super::files::{self, WRITTEN_WITHIN, Watching};
use super::lifecycle::{Lifecycle, Reason};
use super::living::Living;
use super::recorded;
use super::room::For;
use super::snapshots::{Forked, Source};
use super::{Answer, Answered, Worker, fault, making, name, refusal, unanswered};
use crate::line::{Reader, Writer};
use crate::protocol::{
    CreateAsk, FileAsk, InAsk, Kind, LifeAsk, OpenedPort, PortFacts, Refusal, Watch,
};
use crate::ready::watched;

/// The time between two looks at the room that is left, while a file is written.
const ROOM_LOOK: Duration = Duration::from_millis(500);

/// A request of a sandbox that its caller may make, besides what it is.
pub(super) struct Admitted<'a> {
    pub(super) living: &'a Arc<Living>,
    /// The caller, if a key or token tells who that is.
    pub(super) caller: Option<Caller>,
    pub(super) once: Option<String>,
    pub(super) by: ServedExec,
}

impl Worker {
    /// Carries out a request of a sandbox that the caller may use.
    pub(super) async fn work(
        self: &Arc<Self>,
        request: Admitted<'_>,
        ask: InAsk,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let living = request.living;
        match ask {
            InAsk::Alive(ask) => ask.answer(()),
            InAsk::Measure(ask) => ask.answer(making::measure(living).await?),
            InAsk::ListPorts(ask) => ask.answer(self.ports(living).await?),
            InAsk::OpenPort(ask) => {
                let (port, opened) = self.connect(living, ask.port).await?;
                ask.join(opened, port)
            }
            InAsk::Life(ask) => self.live(request, ask).await,
            InAsk::Process(ask) => self.run(request, ask, reader, writer).await,
            InAsk::File(ask) => self.file(living, ask, reader, writer).await,
        }
    }

    /// Carries out a request about the life of a sandbox.
    async fn live(
        self: &Arc<Self>,
        request: Admitted<'_>,
        ask: LifeAsk,
    ) -> Result<Answered, Refusal> {
        let Admitted {
            living, caller, by, ..
        } = request;
        let unknown = || Refusal::new(Kind::Unauthenticated, "nobody is known to ask this");
        let caller = caller.ok_or_else(unknown)?;
        match ask {
            LifeAsk::GetSandbox(ask) => ask.answer(living.facts()),
            LifeAsk::Connect(ask) => {
                if let Some(seconds) = ask.timeout_s {
                    self.prolong(living, seconds, true)?;
                }
                ask.answer(living.described_to(&caller.scopes))
            }
            LifeAsk::Kill(_) if living.life.is(Lifecycle::is_pause) => {
                let what = format!("sandbox {} is just being paused", living.spec.id);
                Err(Refusal::new(Kind::Exists, what).advise("end it again"))
            }
            LifeAsk::Kill(ask) => {
                self.end(living, Reason::Caller).await;
                ask.answer(())
            }
            LifeAsk::Pause(ask) => ask.answer(self.pause(living, ask.memory, by).await?),
            LifeAsk::Snapshot(ask) => {
                let name = ask.name.clone();
                ask.answer(self.snapshot(Source::Living(living), name).await?)
            }
            LifeAsk::Fork(ask) => {
                let of = CreateAsk {
                    timeout_s: ask.timeout_s.or(living.spec.ask.timeout_s),
                    ..self.record_ask(living)
                };
                let of = Forked::new(&living.spec.shipped, of, ask.count)?;
                ask.answer(self.fork(Source::Living(living), of, &caller).await?)
            }
            LifeAsk::RollBack(ask) => {
                let again = self.roll_back(living, &caller, &ask.snapshot).await?;
                ask.answer(again.described_to(&caller.scopes))
            }
            LifeAsk::SetTimeout(ask) => {
                match ask.timeout_s {
                    0 => drop(living.live_for(Duration::ZERO, ask.extends)),
                    seconds => self.prolong(living, seconds, ask.extends)?,
                }
                ask.answer(())
            }
            LifeAsk::LinkPort(ask) => ask.answer(self.link(living, &ask)?),
            LifeAsk::SetNetwork(ask) => {
                ask.answer(self.set_network(living, ask.0.clone(), by).await?)
            }
            LifeAsk::SetSizes(ask) => ask.answer(self.set_sizes(living, ask.0, by).await?),
            LifeAsk::Decide(ask) => ask.answer(recorded::decide(living, &ask, by).await?),
        }
    }

    /// Carries out a request about files.
    async fn file(
        self: &Arc<Self>,
        living: &Arc<Living>,
        ask: FileAsk,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let files = &living.files;
        match ask {
            FileAsk::Stat(ask) => ask.answer(files.stat(&ask.path).await?),
            FileAsk::ListDirectory(ask) => ask.answer(files.list(&ask.path, ask.depth).await?),
            FileAsk::MakeDirectory(ask) => ask.answer(files.make_directory(&ask.path).await?),
            FileAsk::Move(ask) => ask.answer(files.rename(&ask.from, &ask.to).await?),
            FileAsk::Remove(ask) => ask.answer(files.remove(&ask.path).await?),
            FileAsk::Read(ask) => files.read(&ask, writer).await.map(Answered::Written),
            FileAsk::Write(ask) => {
                self.room.check(For::File)?;
                tokio::select! {
                    written = files.write(&ask, reader, writer) => ask.close(written?),
                    refusal = self.no_more(living) => Err(refusal),
                }
            }
            FileAsk::Watch(ask) => {
                let watch = files.watch(&ask.path, ask.recursive).await?;
                let told = tell_changes(&ask, watch, reader, writer).await;
                Ok(Answered::Written(told))
            }
            FileAsk::MakeWatcher(ask) => {
                let watch = files.watch(&ask.path, ask.recursive).await?;
                let name = name(16)?;
                living.keep_watcher(&name, watch)?;
                ask.answer(name)
            }
            FileAsk::ReadWatcher(ask) => {
                let watch = living.watcher(&ask.watcher)?;
                let changes = files::changes(&watch, None).await;
                ask.answer(changes.map_err(|_| unanswered())?)
            }
            FileAsk::RemoveWatcher(ask) => ask.answer(living.remove_watcher(&ask.watcher)?),
        }
    }

    /// Waits until nothing more may be written to a sandbox's files: the front writes on by itself.
    async fn no_more(&self, living: &Living) -> Refusal {
        loop {
            tokio::select! {
                state = living.life.stopped() => {
                    // What is kept of it is not to be cut short.
                    if state.is_pause() {
                        tokio::time::sleep(WRITTEN_WITHIN).await;
                    }
                    let state = living.life.state();
                    let what = format!("sandbox {} has ended: {state}", living.spec.id);
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
    async fn ports(&self, living: &Arc<Living>) -> Result<Vec<PortFacts>, Refusal> {
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
        Ok(all)
    }
}

impl Worker {
    /// Connects to a port, at which the code interpreter may have to begin first, or again.
    async fn connect(
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

/// Tells of changes in a directory, until the connection is closed.
async fn tell_changes(
    ask: &Watch,
    watch: Watching,
    reader: &mut Reader,
    writer: &mut Writer,
) -> io::Result<()> {
    let events = watched(watch.descriptor().try_clone()?)?;
    let watch = Arc::new(watch);
    writer.reply(ask, ()).await?;
    loop {
        let changes = tokio::select! {
            changes = files::changes(&watch, Some(&events)) => changes?,
            _ = reader.next::<()>() => return Ok(()),
        };
        if !changes.is_empty() {
            writer.then(ask, changes).await?;
        }
    }
}
