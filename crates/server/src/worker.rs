//! The worker: it holds every right, checks who calls, and keeps the sandboxes.
//!
//! Start reading at [`serve`], then at `answer` for one request.

mod answers;
mod approving;
mod artifacts;
mod asleep;
mod beginning;
mod begun;
mod builds;
mod caller;
mod callers;
mod catalogue;
mod completing;
mod content;
mod events;
mod files;
mod found;
mod frozen;
mod held;
mod holding;
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
mod resuming;
mod rights;
mod rolling;
mod room;
mod running;
mod sandboxes;
mod server;
mod shares;
mod sizes;
mod snapshots;
mod sweeping;
mod template;
pub mod templates;
mod tokens;
mod tools;
mod volumes;
mod wanted;
mod warm;
mod webhooks;
mod window;
mod work;

use std::io::{self, IsTerminal};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::Engine;
use atoll_model::ServedExec;
use atoll_store::Store;
use atoll_sys::{descriptor, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::unix::AsyncFd;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::configuration::Configuration;
use crate::line::{self, Frame, Reader, Writer};
use crate::protocol::{
    Ask, Counts, Credential, Hello, In, InAsk, Kind, LifeAsk, OfVolume, Refusal, VERSION,
};
use crate::ready::watched;
use crate::started::{Front, Handed, McpAccess};
use crate::tls::Identity;

use answers::AGAIN;
use answers::Answer;
use answers::Answered;
use artifacts::Artifacts;
use builds::Templates;
use caller::Caller;
use callers::Callers;
use held::Held;
pub use issuers::check_key_files;
use layered::Layers;
use list::List;
use recorded::Records;
use rights::is_of_control;
use rights::scopes_for;
use running::Admitted;
use sandboxes::Sandboxes;
use server::Server;
use shares::BLOCKING_THREADS_MAX;
use shares::Of;
use snapshots::Snapshots;
pub use sweeping::Offline;
use sweeping::Sweeping;
use tools::Tools;
use volumes::Volumes;
use webhooks::Webhooks;

/// The longest time for a request to come.
const ASKED_WITHIN: Duration = Duration::from_secs(10);
/// The most requests at once of which it is not known whose they are.
const STRANGERS_MAX: usize = 1_024;
/// The time between two starts of a front that ends at once.
const FRONT_PAUSE: Duration = Duration::from_millis(200);
/// The time between two signatures of the ledger.
const SIGNED_EVERY: Duration = Duration::from_secs(10);
/// The time between two looks whether sandboxes are left.
const DRAIN_LOOK: Duration = Duration::from_millis(100);
/// The length of a message about a signal, bytes (signalfd(2)).
const SIGNAL_BYTES: usize = 128;

/// The longest time at its end for work that waits for the kernel.
const LEFT_AFTER: Duration = Duration::from_secs(5);

/// The worker of one server: its services, and the way of each request to one of them.
pub struct Worker {
    server: Arc<Server>,
    list: Arc<List>,
    callers: Arc<Callers>,
    webhooks: Arc<Webhooks>,
    volumes: Arc<Volumes>,
    sandboxes: Arc<Sandboxes>,
    snapshots: Arc<Snapshots>,
    templates: Arc<Templates>,
    tools: Arc<Tools>,
    records: Arc<Records>,
    artifacts: Arc<Artifacts>,
    bodies: permits::Bodies,
    /// The message that each front begins with.
    handed: Handed,
    strangers: Arc<Semaphore>,
    /// The requests since its begin.
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
        if let Err(error) = allow_descriptors() {
            eprintln!("atoll serve: the limit of descriptors cannot be raised: {error}");
        }
        let mcp = access(&configuration);
        let is_logged = configuration.log.unwrap_or(!io::stderr().is_terminal());
        templates::prepare(engine.state());
        let server = Server::new(engine, Box::new(store), configuration, port);
        let list = Arc::new(List::default());
        let webhooks = Arc::new(Webhooks::new(Arc::clone(&server), Arc::clone(&list)));
        let callers = Callers::new(Arc::clone(&server), Arc::clone(&list));
        let layers = Layers::new(&server, &list);
        let volumes = Volumes::new(&server, &list, &callers);
        let sandboxes = Sandboxes::new(&server, &list, &webhooks, &layers, &volumes);
        let strangers = server.shares.strangers(STRANGERS_MAX);
        Arc::new(Self {
            snapshots: Snapshots::new(&sandboxes),
            templates: Templates::new(&sandboxes),
            tools: Tools::new(&server, &sandboxes),
            records: Records::new(&server, &list, &sandboxes.approvals),
            artifacts: Artifacts::new(&server),
            server,
            list,
            callers,
            webhooks,
            volumes,
            sandboxes,
            bodies: permits::Bodies::default(),
            handed: Handed {
                identity,
                is_logged,
                mcp,
            },
            strangers: Arc::new(Semaphore::new(strangers)),
            asked: AtomicU64::new(0),
        })
    }

    /// Checks that sandboxes can be made as the configuration says.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check(&self) -> Result<(), Failure> {
        self.sandboxes.check()
    }
}

/// Returns the access to the MCP endpoint: by the loopback's names, and those that are configured.
fn access(configuration: &Configuration) -> McpAccess {
    let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let listen = configuration.listen.ip();
    let listen = (!listen.is_unspecified() && !listen.is_loopback()).then(|| listen.to_string());
    let domain = configuration.tls.as_ref().map(|tls| tls.domain.clone());
    McpAccess {
        hosts: loopback.into_iter().chain(listen).chain(domain).collect(),
        issuers: configuration
            .issuers
            .iter()
            .map(|one| one.url.clone())
            .collect(),
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
        let sandboxes = Arc::clone(&worker.sandboxes);
        sandboxes.layers.find_paused();
        worker.snapshots.find_snapshots();
        worker.templates.clear_uploads();
        sandboxes.layers.find_layers();
        sandboxes.prewarm.find_frozen();
        worker.volumes.find_volumes();
        sandboxes.idempotency.find_requests();
        worker.webhooks.note_lost();
        let (own, listener) = (Arc::clone(worker), listener.try_clone()?);
        // On a thread of the others': what comes in is handed on within it.
        let mut fronts = tokio::spawn(async move { own.serve_fronts(&listener).await });
        let memory = Arc::clone(&sandboxes.memory);
        tokio::spawn(async move { memory.keep_asleep().await });
        let prewarm = Arc::clone(&sandboxes.prewarm);
        tokio::spawn(async move { prewarm.keep_ahead().await });
        tokio::spawn(async move { sandboxes.keep_room().await });
        let tools = Arc::clone(&worker.tools);
        tokio::spawn(async move { tools.end_idle().await });
        let signer = Arc::clone(worker);
        tokio::spawn(async move { signer.sign_now_and_then().await });
        let webhooks = Arc::clone(&worker.webhooks);
        tokio::spawn(async move { webhooks.deliver_webhooks().await });
        let artifacts = Arc::clone(&worker.artifacts);
        tokio::spawn(async move { artifacts.attend_now_and_then().await });
        let sweeping = Sweeping::new(&worker.snapshots);
        tokio::spawn(async move { sweeping.sweep_now_and_then().await });
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
        worker.sandboxes.end_all().await;
        worker.webhooks.settle_webhooks().await;
    });
    // Before the first sandbox there is nothing to sign.
    if worker.asked.load(Ordering::Relaxed) > 0 {
        worker.server.sign();
    }
    // A name that is still looked up for a webhook is not waited for.
    runtime.shutdown_timeout(LEFT_AFTER);
    served.map_err(ServeError)
}

impl Worker {
    /// Waits until no sandbox is left, and makes no further ones; as long as the configuration says.
    async fn drain(&self) {
        self.server.drain();
        let (alive, drain_s) = (self.list.len(), self.server.configuration.drain_s);
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
                let _ = tokio::task::spawn_blocking(move || worker.server.sign()).await;
            }
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
        let held = Held::new(place, self.server.shares.is_of_reserve(socket.as_fd()));
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
            let caller = self.callers.known(&credential, needs, of, held).await?;
            let trace = trace.clone();
            Ok::<_, Refusal>(Caller { trace, ..caller })
        };
        match ask {
            Ask::Create(ask) => {
                let caller = caller().await?;
                let created = self.sandboxes.create_once(&caller, once, &ask.0).await?;
                ask.answer(created.described_to(&caller.scopes))
            }
            Ask::ListSandboxes(ask) => {
                ask.answer(self.sandboxes.list(&caller().await?.tenant, &ask.0))
            }
            Ask::ListLifecycleEvents(ask) => self.webhooks.events_of(&caller().await?, ask),
            Ask::Identify(ask) => ask.answer(caller().await?.facts()),
            Ask::Count(ask) => ask.answer(self.counts()),
            Ask::Permit(ask) => {
                let tenant = self.callers.sender(&ask, credential, &self.volumes).await?;
                held.charge(&self.server.shares, &tenant, false)?;
                self.bodies.permit(&ask, tenant, reader, writer).await
            }
            Ask::Upload(ask) => ask.answer(self.templates.take_upload(&ask, held, reader).await?),
            Ask::Artifacts(ask) => self.artifacts.run(&caller().await?, ask, writer).await,
            Ask::Keys(ask) => self.callers.keys(&caller().await?, ask),
            Ask::Webhooks(ask) => self.webhooks.webhooks(&caller().await?, ask).await,
            Ask::Ledger(ask) => self.records.look_up(&caller().await?, ask).await,
            Ask::Snapshots(ask) => self.snapshots.snapshots(&caller().await?, ask).await,
            Ask::Templates(ask) => self.templates.templates(&caller().await?, ask).await,
            Ask::Tools(ask) => self.tools.run(&caller().await?, ask, reader, writer).await,
            Ask::Volumes(ask) => self.volumes.volumes(&caller().await?, ask).await,
            Ask::Content(OfVolume { volume, ask }) => {
                let asked = content::Asked::new(credential, volume, trace);
                self.volumes.content(asked, ask, held, reader, writer).await
            }
            // The sandbox may not be there yet.
            Ask::In(In {
                sandbox: Some(sandbox),
                ask: InAsk::Life(LifeAsk::Decide(ask)),
            }) if approving::is_one(ask.approval) => {
                let caller = caller().await?;
                let approvals = &self.sandboxes.approvals;
                ask.answer(approvals.decide_question(&caller, &sandbox, &ask).await?)
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
        self.callers
            .charge_early(held, &credential, id, &ask)
            .await?;
        self.list.settled(id).await;
        if let Some(paused) = self.list.paused(id) {
            let of = self.of_paused(&paused, &credential, &ask, trace.as_ref());
            if let Some(answered) = of.await? {
                return Ok(answered);
            }
        }
        let admitted = self.callers.admitted(&credential, sandbox.as_deref(), &ask);
        let (living, caller) = admitted.await?;
        held.charge(
            &self.server.shares,
            &living.spec.tenant,
            is_of_control(&ask),
        )?;
        let is_for_builds = matches!(
            ask,
            InAsk::Alive(_) | InAsk::Life(LifeAsk::GetSandbox(_) | LifeAsk::Kill(_))
        );
        let is_answer = matches!(ask, InAsk::Life(LifeAsk::Decide(_)));
        if living.spec.is_tool && !is_for_builds && !is_answer {
            let what = format!("sandbox {} is that of a tool", living.spec.id);
            return Err(Refusal::new(Kind::Forbidden, what)
                .advise("call the tool: its calls alone are decided as such"));
        }
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
        let request = Admitted {
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

    /// Returns its numbers.
    fn counts(&self) -> Counts {
        let running = self.server.shares.used(Of::Programs);
        let counted = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Counts {
            sandboxes: self.list.len(),
            programs: usize::try_from(running).unwrap_or(usize::MAX),
            warm: self.sandboxes.prewarm.pool.len(),
            assigned: counted(&self.sandboxes.prewarm.pool.assigned),
            created: counted(&self.sandboxes.created),
            ended: counted(&self.sandboxes.ended_all),
            requests: counted(&self.asked),
            webhooks_delivered: counted(&self.webhooks.delivered),
            webhooks_given_up: counted(&self.webhooks.given_up),
            webhooks_dropped: counted(&self.webhooks.dropped),
            draining: self.server.is_draining(),
            makes: self.server.engine.makes(),
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
