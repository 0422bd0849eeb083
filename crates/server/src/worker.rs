//! The worker: it holds every right, checks who calls, and keeps the sandboxes.
//!
//! Start reading at [`serve`], then at `answer` for one request.

mod approving;
mod asleep;
mod builds;
mod callers;
mod completing;
mod content;
mod events;
mod files;
mod found;
mod frozen;
mod held;
mod identity;
mod issuers;
mod join;
mod layered;
mod lifecycle;
mod list;
mod living;
mod making;
mod once;
pub mod packages;
mod paused;
mod pausing;
mod permits;
mod process;
mod recorded;
mod room;
mod running;
mod shares;
mod sizes;
mod snapshots;
pub mod templates;
mod volumes;
mod wanted;
mod warm;
mod webhooks;
mod window;
mod work;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atoll_engine::failure::{Failure, Hint};
use atoll_engine::sandboxes::Engine;
use atoll_ledger::random;
use atoll_model::{LimitKey, ServedExec};
use atoll_store::Store;
use atoll_sys::{descriptor, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tokio::io::unix::AsyncFd;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::configuration::Configuration;
use crate::line::{self, Frame, Reader, Writer};
use crate::protocol::{
    Ask, Counts, Credential, Hello, In, InAsk, Kind, LifeAsk, ListAsk, Listed, OfVolume, Refusal,
    Request, SandboxFacts, VERSION,
};
use crate::ready::watched;
use crate::started::{Front, Handed};
use crate::tls::Identity;

use callers::{Caller, is_of_control, scopes_for};
use held::Held;
pub use issuers::check_key_files;
use lifecycle::{Lifecycle, Reason, Transition};
use list::List;
use living::Living;
use paused::OfPaused;
use shares::{Of, Shares};

/// The processors of a sandbox where nothing else is said.
const CPUS: u32 = 2;
/// The longest time for a request to come.
const ASKED_WITHIN: Duration = Duration::from_secs(10);
/// The most requests at once of which it is not known whose they are.
const STRANGERS_MAX: usize = 1_024;
/// The most readers of the ledger at once.
const READERS_MAX: usize = 2;
/// The time between two starts of a front that ends at once.
const FRONT_PAUSE: Duration = Duration::from_millis(200);
/// The time between two signatures of the ledger.
const SIGNED_EVERY: Duration = Duration::from_secs(10);
/// The time between two looks whether sandboxes are left.
const DRAIN_LOOK: Duration = Duration::from_millis(100);
/// The length of a message about a signal, bytes (signalfd(2)).
const SIGNAL_BYTES: usize = 128;
/// The time between two attempts at what should not fail.
const AGAIN: Duration = Duration::from_secs(1);
/// The threads for work that waits for the kernel or a sandbox, never for a caller.
const BLOCKING_THREADS_MAX: usize = 1_024;
/// The longest time at its end for work that waits for the kernel.
const LEFT_AFTER: Duration = Duration::from_secs(5);
/// The most attempts to end a sandbox.
const ENDS_MAX: u32 = 5;
/// The most sandboxes in one part of a list.
const LIST_MAX: usize = 100;

/// The worker of one server.
pub struct Worker {
    engine: Engine,
    store: Box<dyn Store>,
    configuration: Configuration,
    issuers: issuers::Issuers,
    /// The message that each front begins with.
    handed: Handed,
    /// The scheme, and the name and port below which those of sandboxes are.
    origin: (&'static str, String),
    /// The processors of a sandbox, if it is held to them.
    cpus: Option<u32>,
    list: List,
    making: Mutex<making::Made>,
    questions: Mutex<approving::Questions>,
    scans: Mutex<callers::Scans>,
    once: Mutex<once::AllRequests>,
    room: room::Room,
    /// The users of volumes.
    uses: Mutex<volumes::Uses>,
    counted: Mutex<content::AllCounted>,
    resizing: tokio::sync::Mutex<()>,
    webhooks: webhooks::Webhooks,
    builds: builds::Builds,
    held: builds::Held,
    /// The sandboxes made ahead.
    pool: warm::Pool,
    /// The memory of interpreters, in files.
    frozen: frozen::Frozen,
    /// The server's own build of the interpreter's packages.
    packages: packages::InBackground,
    /// True once the server is to end, and makes no sandbox any more.
    is_draining: AtomicBool,
    shares: Arc<Shares>,
    strangers: Arc<tokio::sync::Semaphore>,
    readers: Arc<tokio::sync::Semaphore>,
    /// The readers of the ledger of each tenant, those that wait included.
    waiting: Mutex<BTreeMap<String, usize>>,
    /// The places for bodies that are read, of each tenant that has any.
    bodies: Mutex<permits::Bodies>,
    /// The sandboxes made and ended, and the requests, since its begin.
    created: AtomicU64,
    ended_all: AtomicU64,
    asked: AtomicU64,
}

/// A server that does not begin, or goes no further.
#[derive(Debug, thiserror::Error)]
#[error("the server cannot go on: {0}")]
pub struct ServeError(#[from] io::Error);

impl Worker {
    /// Prepares a worker.
    #[must_use]
    pub fn new(
        engine: Engine,
        store: impl Store + 'static,
        configuration: Configuration,
        identity: Option<Identity>,
        port: u16,
    ) -> Arc<Self> {
        let origin = match &configuration.tls {
            Some(tls) => ("https", format!("{}:{port}", tls.domain)),
            None => ("http", format!("localhost:{port}")),
        };
        if let Err(error) = allow_descriptors() {
            eprintln!("atoll serve: the limit of descriptors cannot be raised: {error}");
        }
        let shares = Arc::new(Shares::new());
        let cpus = configuration.defaults.cpus;
        let by_default = || engine.enforces(LimitKey::Cpu).then_some(CPUS);
        let cpus = cpus.or_else(by_default);
        let is_logged = configuration.log.unwrap_or(!io::stderr().is_terminal());
        let handed = Handed {
            identity,
            is_logged,
        };
        templates::prepare(engine.state());
        let room = room::Room::new(engine.state(), configuration.reserve.clone());
        let webhooks = webhooks::Webhooks::new(&configuration.webhooks);
        Arc::new(Self {
            engine,
            store: Box::new(store),
            issuers: issuers::Issuers::new(&configuration.issuers),
            configuration,
            handed,
            origin,
            cpus,
            list: List::default(),
            making: Mutex::default(),
            questions: Mutex::default(),
            scans: Mutex::default(),
            once: Mutex::default(),
            room,
            uses: Mutex::default(),
            counted: Mutex::default(),
            resizing: tokio::sync::Mutex::default(),
            webhooks,
            builds: builds::Builds::default(),
            held: builds::Held::default(),
            pool: warm::Pool::default(),
            frozen: frozen::Frozen::default(),
            packages: packages::InBackground::default(),
            is_draining: AtomicBool::new(false),
            strangers: Arc::new(tokio::sync::Semaphore::new(shares.strangers(STRANGERS_MAX))),
            shares,
            readers: Arc::new(tokio::sync::Semaphore::new(READERS_MAX)),
            waiting: Mutex::default(),
            bodies: Mutex::default(),
            created: AtomicU64::new(0),
            ended_all: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        })
    }
}

/// Serves requests at this address until `stop` becomes readable, then ends every sandbox.
///
/// # Errors
/// [`ServeError`].
pub fn serve(
    worker: &Arc<Worker>,
    listener: &TcpListener,
    stop: OwnedFd,
) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let stop = watched(stop)?;
        worker.find_paused();
        worker.find_snapshots();
        worker.find_layers();
        worker.find_frozen();
        worker.find_volumes();
        worker.find_requests();
        worker.note_lost();
        let (own, listener) = (Arc::clone(worker), listener.try_clone()?);
        // On a thread of the others': what comes in is handed on within it.
        let mut fronts = tokio::spawn(async move { own.serve_fronts(&listener).await });
        let keeper = Arc::clone(worker);
        tokio::spawn(async move { keeper.keep_room().await });
        let asleep = Arc::clone(worker);
        tokio::spawn(async move { asleep.keep_asleep().await });
        let ahead = Arc::clone(worker);
        tokio::spawn(async move { ahead.keep_ahead().await });
        let signer = Arc::clone(worker);
        tokio::spawn(async move { signer.sign_now_and_then().await });
        let sender = Arc::clone(worker);
        tokio::spawn(async move { sender.deliver_webhooks().await });
        let served = tokio::select! {
            served = &mut fronts => return served.map_err(io::Error::other).flatten(),
            ready = stop.readable() => ready.map(|mut ready| {
                // A further signal is told anew.
                let _ = rustix::io::read(&stop, &mut [0; SIGNAL_BYTES]);
                ready.clear_ready();
            }),
        };
        tokio::select! {
            () = worker.drain() => {}
            _ = stop.readable() => {}
        }
        fronts.abort();
        served
    });
    runtime.block_on(async {
        worker.end_all().await;
        worker.settle_webhooks().await;
    });
    // Before the first sandbox there is nothing to sign.
    if worker.asked.load(Ordering::Relaxed) > 0 {
        worker.sign();
    }
    // A name that is still looked up for a webhook is not waited for.
    runtime.shutdown_timeout(LEFT_AFTER);
    served.map_err(ServeError)
}

impl Worker {
    /// Waits until no sandbox is left, and makes no further ones; as long as the configuration says.
    async fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        let (alive, drain_s) = (self.list.len(), self.configuration.drain_s);
        if alive > 0 && drain_s > 0 {
            eprintln!(
                "atoll serve: ends once {alive} sandboxes are gone, within {drain_s} s; \
                 Ctrl-C again ends them now"
            );
        }
        // A time that no clock reaches is none.
        let until = Instant::now().checked_add(Duration::from_secs(drain_s));
        while until.is_none_or(|until| Instant::now() < until) && self.list.len() > 0 {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }
}

/// Raises the limit of descriptors to what this process may have.
fn allow_descriptors() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    // Root may have as many as the kernel counts.
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
    let most = most.and_then(|text| text.trim().parse().ok());
    let raised = Rlimit {
        current: most,
        maximum: most,
    };
    if most > limit.maximum && setrlimit(Resource::Nofile, raised).is_ok() {
        return Ok(());
    }
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    Ok(setrlimit(Resource::Nofile, most)?)
}

impl Worker {
    /// Signs the ledger now and then, while there is something new: what is signed cannot be cut off
    /// unseen.
    async fn sign_now_and_then(self: &Arc<Self>) {
        let mut signed = 0;
        loop {
            tokio::time::sleep(SIGNED_EVERY).await;
            let asked = self.asked.load(Ordering::Relaxed);
            if std::mem::replace(&mut signed, asked) != asked {
                let worker = Arc::clone(self);
                let _ = tokio::task::spawn_blocking(move || worker.sign()).await;
            }
        }
    }

    fn sign(&self) {
        if let Err(failure) = self.engine.checkpoint() {
            eprintln!("atoll serve: {}", refusal(&failure).what);
        }
    }

    /// Serves one front after the other: each begins when the one before is gone.
    async fn serve_fronts(self: &Arc<Self>, listener: &TcpListener) -> io::Result<()> {
        loop {
            let front = match Front::start(listener, &self.handed) {
                Ok(front) => front,
                Err(error) => {
                    eprintln!("atoll serve: no front can be started: {error}");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            descriptor::never_block(front.dial.as_fd())?;
            let dial = watched(front.dial.try_clone()?)?;
            self.serve_front(&dial).await;
            drop(dial);
            tokio::time::sleep(FRONT_PAUSE).await;
            tokio::task::spawn_blocking(move || front.end()).await?;
        }
    }

    /// Takes the requests of a front until it is gone. They wait there until it is known of others
    /// whose they are.
    async fn serve_front(self: &Arc<Self>, dial: &AsyncFd<OwnedFd>) {
        loop {
            let Ok(place) = Arc::clone(&self.strangers).acquire_owned().await else {
                return;
            };
            let Ok(mut ready) = dial.readable().await else {
                return;
            };
            let mut message = [0; 1];
            match socket::receive(dial.get_ref().as_fd(), &mut message) {
                Ok((1.., descriptors)) => {
                    if let Some(socket) = descriptors.into_iter().next() {
                        self.take(socket, place);
                    }
                }
                Ok(_) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                // Without a descriptor free the request is lost, and its caller told so.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(_) => return,
            }
        }
    }

    /// Answers a request in a task of its own.
    fn take(self: &Arc<Self>, socket: OwnedFd, place: OwnedSemaphorePermit) {
        let held = Held::new(place, self.shares.is_of_reserve(socket.as_fd()));
        let worker = Arc::clone(self);
        self.asked.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            // A front that is gone has nobody to answer to.
            let _ = worker.answer(UnixStream::from(socket), held).await;
        });
    }

    /// Answers one request.
    async fn answer(self: &Arc<Self>, socket: UnixStream, mut held: Held) -> io::Result<()> {
        let (mut reader, mut writer) = line::split(socket)?;
        let hello = timeout(ASKED_WITHIN, reader.next::<Hello>()).await??;
        let Some(Frame::Message(hello)) = hello else {
            return Ok(());
        };
        let carried = async {
            if hello.version != VERSION {
                let what = format!("the worker speaks version {VERSION} of the protocol");
                return Err(Refusal::new(Kind::Fault, what));
            }
            held.check(&hello.ask)?;
            let carried = self.carry_out(hello, &mut held, &mut reader, &mut writer);
            carried.await
        };
        match carried.await {
            Ok(Answered::Message(message)) => writer.encoded(&message).await,
            Ok(Answered::Written(written)) => written,
            Ok(Answered::Connected(answer, port)) => {
                writer.encoded(&answer).await?;
                let asked = line::raw(reader, writer)?;
                join::join(asked, port).await
            }
            Err(refusal) => writer.message(&Err::<(), _>(refusal)).await,
        }
    }

    async fn carry_out(
        self: &Arc<Self>,
        hello: Hello,
        held: &mut Held,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let Hello {
            credential,
            once,
            trace,
            ask,
            ..
        } = hello;
        let needs = scopes_for(&ask);
        let of = held::shares_of(&ask);
        let mut caller = async || {
            let caller = self.known(&credential, needs, of, held).await?;
            let trace = trace.clone();
            Ok::<_, Refusal>(Caller { trace, ..caller })
        };
        match ask {
            Ask::Create(ask) => {
                let caller = caller().await?;
                let created = self.create_once(&caller, once, &ask.0).await?;
                ask.answer(created.described_to(&caller.scopes))
            }
            Ask::ListSandboxes(ask) => ask.answer(self.list(&caller().await?.tenant, &ask.0)),
            Ask::ListLifecycleEvents(ask) => {
                ask.answer(self.lifecycle_events(&caller().await?.tenant, &ask)?)
            }
            Ask::Count(ask) => ask.answer(self.counts()),
            Ask::Permit(ask) => self.permit(ask, credential, held, reader, writer).await,
            Ask::Upload(ask) => ask.answer(self.take_upload(&ask, held, reader).await?),
            Ask::Keys(ask) => self.keys(&caller().await?, ask),
            Ask::Webhooks(ask) => self.webhooks(&caller().await?, ask).await,
            Ask::Ledger(ask) => self.look_up(&caller().await?, ask).await,
            Ask::Snapshots(ask) => self.snapshots(&caller().await?, ask).await,
            Ask::Templates(ask) => self.templates(&caller().await?, ask).await,
            Ask::Volumes(ask) => self.volumes(&caller().await?, ask).await,
            Ask::Content(OfVolume { volume, ask }) => {
                let asked = content::Asked::new(credential, volume, trace);
                self.content(asked, ask, held, reader, writer).await
            }
            // The sandbox may not be there yet.
            Ask::In(In {
                sandbox: Some(sandbox),
                ask: InAsk::Life(LifeAsk::Decide(ask)),
            }) if approving::is_one(ask.approval) => {
                let caller = caller().await?;
                ask.answer(self.decide_question(&caller, &sandbox, &ask).await?)
            }
            Ask::In(In { sandbox, ask }) => {
                let request = Inside {
                    credential,
                    sandbox,
                    once,
                    trace,
                };
                self.inside(request, ask, held, reader, writer).await
            }
        }
    }

    /// Carries out a request of one sandbox.
    async fn inside(
        self: &Arc<Self>,
        request: Inside,
        ask: InAsk,
        held: &mut Held,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let Inside {
            credential,
            sandbox,
            once,
            trace,
        } = request;
        let id = sandbox.as_deref().unwrap_or_default();
        self.charge_early(held, &credential, id, &ask).await?;
        self.wait_paused(id).await;
        if let Some(paused) = self.list.paused(id) {
            let of = self.of_paused(&paused, &credential, &ask, trace.as_ref());
            if let OfPaused::Answered(answered) = of.await? {
                return Ok(answered);
            }
        }
        let admitted = self.admitted(&credential, sandbox.as_deref(), &ask);
        let (living, caller) = admitted.await?;
        self.charge(held, &living.spec.tenant, is_of_control(&ask))?;
        let is_for_builds = matches!(
            ask,
            InAsk::Alive(_) | InAsk::Life(LifeAsk::GetSandbox(_) | LifeAsk::Kill(_))
        );
        if living.spec.is_build && !is_for_builds {
            let what = format!("sandbox {} is that of a build", living.spec.id);
            return Err(Refusal::new(Kind::Forbidden, what)
                .advise("make one from the template, once it is built"));
        }
        let by = ServedExec {
            caller: caller.as_ref().map(|caller| caller.name.clone()),
            trace: trace.clone(),
            ..ServedExec::default()
        };
        let caller = caller.map(|caller| Caller { trace, ..caller });
        // What becomes of a sandbox that goes back is told as it is.
        let is_over = matches!(ask, InAsk::Life(LifeAsk::Fork(_) | LifeAsk::RollBack(_)));
        let request = work::Admitted {
            living: &living,
            caller,
            once,
            by,
        };
        let answered = self.work(request, ask, reader, writer).await;
        answered.map_err(|refusal| match is_over {
            true => refusal,
            false => paused::told(&living, refusal),
        })
    }

    fn list(&self, tenant: &str, ask: &ListAsk) -> Listed {
        let (living, paused) = self.list.of(tenant);
        let running = living
            .iter()
            .filter(|one| one.life.is(Lifecycle::is_running));
        let mut all: Vec<SandboxFacts> = running.map(|one| one.facts()).collect();
        let running = all.len();
        if ask.only_paused {
            all.clear();
        }
        if ask.paused {
            all.extend(paused.iter().map(|one| one.facts()));
        }
        all.retain(|one| {
            let has = |(name, value): (&String, &String)| one.metadata.get(name) == Some(value);
            ask.metadata.iter().all(has)
                && ask
                    .template
                    .as_ref()
                    .is_none_or(|template| one.template == *template)
                && ask.since_ms.is_none_or(|since| one.started_ms >= since)
        });
        all.sort_by_cached_key(|one| (one.started_ms, one.id.clone()));
        if !ask.oldest_first {
            all.reverse();
        }
        let limit = ask.limit.clamp(1, LIST_MAX);
        let begin = match &ask.cursor {
            None => 0,
            Some(cursor) => after(&all, cursor, ask.oldest_first),
        };
        let rest = all.get(begin..).unwrap_or_default();
        let part = rest.get(..limit.min(rest.len())).unwrap_or_default();
        let last = part.last().filter(|_| rest.len() > limit);
        Listed {
            sandboxes: part.to_vec(),
            cursor: last.map(|one| format!("{}-{}", one.started_ms, one.id)),
            running,
        }
    }

    /// Ends a sandbox and waits until it is gone.
    async fn end(self: &Arc<Self>, living: &Arc<Living>, why: Reason) {
        let _ = living.life.pass(Transition::End(why));
        self.ended(living).await;
    }

    /// Ends a sandbox whose pause comes to nothing.
    async fn abandon(self: &Arc<Self>, living: &Arc<Living>, why: Reason) {
        let _ = living.life.pass(Transition::Abandon(why));
        self.ended(living).await;
    }

    /// Waits until a sandbox that is to end is gone; one that is being paused is left alone.
    async fn ended(self: &Arc<Self>, living: &Arc<Living>) {
        if !living.life.is(|state| matches!(state, Lifecycle::Ended(_))) {
            return;
        }
        // Whoever comes meanwhile waits for the same end.
        for _ in 0..ENDS_MAX {
            let sandbox = Arc::clone(&living.sandbox);
            match tokio::task::spawn_blocking(move || sandbox.kill()).await {
                Ok(Ok(())) => return self.forget(living),
                Ok(Err(failure)) => eprintln!("atoll serve: {}", refusal(&failure).what),
                Err(error) => eprintln!("atoll serve: {error}"),
            }
            if living.sandbox.has_ended() {
                return self.forget(living);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Takes a sandbox that is gone off the list.
    fn forget(self: &Arc<Self>, gone: &Arc<Living>) {
        let Some(why) = self.list.end(gone) else {
            return;
        };
        self.ended_all.fetch_add(1, Ordering::Relaxed);
        self.release(&gone.spec.id);
        self.forget_requests(gone);
        self.note_killed(gone, &why);
        self.release_layers(gone.spec.begun.all().cloned().collect());
    }

    /// Ends all sandboxes.
    async fn end_all(self: &Arc<Self>) {
        self.end_ahead().await;
        let worker = Arc::clone(self);
        let ended = tokio::task::spawn_blocking(move || worker.end_packages());
        let _ = ended.await;
        let all = self.list.all_living();
        let mut ending = tokio::task::JoinSet::new();
        for living in all {
            let worker = Arc::clone(self);
            ending.spawn(async move {
                // What would have been kept at its time is kept now.
                if living.spec.ask.auto_pause {
                    let by = ServedExec::default();
                    if worker.pause(&living, false, by).await.is_ok() {
                        return;
                    }
                }
                worker.end(&living, Reason::Server).await;
            });
        }
        while ending.join_next().await.is_some() {}
        // One that was just being paused is neither ended nor asleep before it is.
        for living in self.list.all_living() {
            self.wait_paused(&living.spec.id).await;
        }
        self.let_all_go().await;
    }

    /// Returns the processors that a sandbox has which asks for so many.
    fn processors(&self, asked: Option<u32>) -> u32 {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        let cpus = asked.or(self.cpus);
        let cpus = cpus.map(Ok).unwrap_or_else(|| u32::try_from(all()));
        cpus.unwrap_or(u32::MAX)
    }

    /// Returns its numbers.
    fn counts(&self) -> Counts {
        let running = self.shares.used(Of::Programs);
        let counted = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Counts {
            sandboxes: self.list.len(),
            programs: usize::try_from(running).unwrap_or(usize::MAX),
            warm: self.pool.len(),
            assigned: counted(&self.pool.assigned),
            created: counted(&self.created),
            ended: counted(&self.ended_all),
            requests: counted(&self.asked),
            webhooks_delivered: counted(&self.webhooks.delivered),
            webhooks_given_up: counted(&self.webhooks.given_up),
            webhooks_dropped: counted(&self.webhooks.dropped),
            draining: self.is_draining(),
            makes: self.engine.makes(),
        }
    }
}

/// A request of one sandbox, besides what is asked.
struct Inside {
    credential: Credential,
    sandbox: Option<String>,
    once: Option<String>,
    trace: Option<String>,
}

/// The state of a request that was carried out.
enum Answered {
    /// One message, still to be written.
    Message(Vec<u8>),
    /// Everything is written.
    Written(io::Result<()>),
    /// A port is connected, whose bytes are to follow the answer.
    Connected(Vec<u8>, tokio::net::TcpStream),
}

/// Answers a request by what its type says.
trait Answer: Request {
    fn answer(&self, reply: Self::Reply) -> Result<Answered, Refusal> {
        encoded(&reply).map(Answered::Message)
    }

    /// Ends an answer of several messages.
    fn close(&self, message: Self::Then) -> Result<Answered, Refusal> {
        encoded(&message).map(Answered::Message)
    }

    /// Answers with what a connected port sends.
    fn join(&self, reply: Self::Reply, port: tokio::net::TcpStream) -> Result<Answered, Refusal> {
        encoded(&reply).map(|answer| Answered::Connected(answer, port))
    }
}

impl<R: Request> Answer for R {}

fn encoded(message: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(&Ok::<_, Refusal>(message)).map_err(|error| fault(&error))
}

/// Returns where the part of a list begins that follows a cursor.
fn after(all: &[SandboxFacts], cursor: &str, oldest_first: bool) -> usize {
    let (at, id) = cursor.split_once('-').unwrap_or(("0", ""));
    let last = (at.parse::<u64>().unwrap_or(0), id);
    all.partition_point(|one| {
        let key = (one.started_ms, one.id.as_str());
        match oldest_first {
            true => key <= last,
            false => key >= last,
        }
    })
}

/// Makes a random name of so many lower-case letters and digits.
fn name(length: usize) -> Result<String, Refusal> {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghijkmnpqrstuvwx";
    let mut bytes = vec![0; length];
    random::fill(&mut bytes)
        .map_err(|_| Refusal::new(Kind::Fault, "the kernel gives no random bytes"))?;
    let letter = |byte: &u8| LETTERS.get(usize::from(byte % 32)).copied().unwrap_or(b'0');
    Ok(bytes.iter().map(letter).map(char::from).collect())
}

/// Returns the refusal that a failure of the engine means for a caller.
fn refusal(failure: &Failure) -> Refusal {
    let what = match &failure.why {
        Some(why) => format!("{}: {why}", failure.what),
        None => failure.what.clone(),
    };
    let reasons = failure.reasons.iter();
    let reasons: Vec<String> = reasons
        .map(|one| format!("{}: {} ({})", one.what, one.why, one.rule))
        .collect();
    let advice = failure.hints.iter().find_map(|hint| match hint {
        Hint::Room => Some(atoll_engine::room::advice()),
        Hint::Text(text) => Some(text.clone()),
        _ => None,
    });
    Refusal {
        kind: match failure.kind {
            atoll_engine::failure::Kind::Denied => Kind::Forbidden,
            atoll_engine::failure::Kind::Failed | atoll_engine::failure::Kind::Unproven => {
                Kind::Unavailable
            }
        },
        what: match reasons.is_empty() {
            true => what,
            false => reasons.join("; "),
        },
        advice,
        retry_after_s: None,
    }
}

fn unanswered() -> Refusal {
    Refusal::new(Kind::Unavailable, "the sandbox does not answer")
}

fn fault(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(Kind::Fault, error.to_string())
}
