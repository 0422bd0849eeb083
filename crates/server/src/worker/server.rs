//! The parts of a server that all of its services use.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atoll_engine::sandboxes::{CreateSandbox, Engine, NotMade, Sandbox, Workspace};
use atoll_model::LimitKey;
use atoll_store::Store;
use tokio::task::spawn_blocking;

use super::answers::fault;
use super::answers::refusal;
use super::caller::Caller;
use super::caller::check_maker;
use super::lifecycle::{Life, Lifecycle, Reason, Transition};
use super::living::Living;
use super::process::{Place, most_kib};
use super::room::{For, Room};
use super::shares::{Of, Shares};
use super::sizes::{MEMORY, MEMORY_MIB_MIN, MIB_MAX, PROCESSES_MAX, is_too_small};
use super::templates::{SERVER, directory};
use super::wanted::ended_by_itself;
use crate::configuration::{Configuration, Defaults};
use crate::protocol::{CreateAsk, Kind, Refusal, StartAsk};

/// The processors of a sandbox where nothing else is said.
const CPUS: u32 = 2;

/// The engine, the store and the configuration, with what all sandboxes share.
pub(super) struct Server {
    pub(super) engine: Engine,
    pub(super) store: Box<dyn Store>,
    pub(super) configuration: Configuration,
    pub(super) shares: Arc<Shares>,
    pub(super) room: Room,
    /// The scheme, and the name and port below which those of sandboxes are.
    origin: (&'static str, String),
    /// The processors of a sandbox, if it is held to them.
    pub(super) cpus: Option<u32>,
    /// True once the server is to end, and makes no sandbox any more.
    is_draining: AtomicBool,
}

impl Server {
    pub(super) fn new(
        engine: Engine,
        store: Box<dyn Store>,
        configuration: Configuration,
        port: u16,
    ) -> Arc<Self> {
        let origin = match &configuration.tls {
            Some(tls) => ("https", format!("{}:{port}", tls.domain)),
            None => ("http", format!("localhost:{port}")),
        };
        let by_default = || engine.enforces(LimitKey::Cpu).then_some(CPUS);
        let cpus = configuration.defaults.cpus.or_else(by_default);
        let room = Room::new(engine.state(), configuration.reserve.clone());
        Arc::new(Self {
            engine,
            store,
            configuration,
            shares: Arc::new(Shares::new()),
            room,
            origin,
            cpus,
            is_draining: AtomicBool::new(false),
        })
    }

    /// Has no sandbox made from now on.
    pub(super) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }
}

impl Server {
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    pub(super) fn sign(&self) {
        if let Err(failure) = self.engine.checkpoint() {
            eprintln!("atoll serve: {}", refusal(&failure).what);
        }
    }

    /// Returns the processors that a sandbox has which asks for so many.
    pub(super) fn processors(&self, asked: Option<u32>) -> u32 {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        let cpus = asked.or(self.cpus);
        let cpus = cpus.map(Ok).unwrap_or_else(|| u32::try_from(all()));
        cpus.unwrap_or(u32::MAX)
    }

    /// Returns the address of a port.
    pub(super) fn port_url(&self, living: &Living, port: u16) -> String {
        let (scheme, below) = &self.origin;
        format!("{scheme}://{port}-{}.{below}/", living.spec.id)
    }

    /// Makes a sandbox, once, if its tenant may have one more; returns it with its state.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        wanted: &CreateSandbox,
    ) -> Result<Result<(Sandbox, Life), NotMade>, Refusal> {
        let life = Life::new(Lifecycle::Creating);
        let (own, of, wanted) = (Arc::clone(self), life.clone(), wanted.clone());
        let share = self.shares.take(Of::Sandboxes, tenant_of(&wanted), 1)?;
        let made = spawn_blocking(move || {
            own.engine.create_watched(&wanted, move |outcome| {
                // Whatever comes of it.
                drop(share);
                let why = match outcome {
                    Ok(ending) => ended_by_itself(ending),
                    Err(error) => error.to_string(),
                };
                // The first reason for an end stays.
                let _ = of.pass(Transition::Exit(Reason::Exited(why)));
            })
        });
        let made = made.await.map_err(|error| fault(&error))?;
        Ok(made.map(|sandbox| (sandbox, life)))
    }

    /// Refuses whoever makes no sandbox, or none now.
    pub(super) fn can_make(&self, caller: &Caller) -> Result<(), Refusal> {
        check_maker(caller)?;
        if self.is_draining() {
            let what = "the server ends, and makes no sandbox any more";
            return Err(Refusal {
                retry_after_s: Some(5),
                ..Refusal::new(Kind::Unavailable, what).advise("ask the one that follows it")
            });
        }
        self.room.check(For::Sandbox)
    }

    /// Returns the life that is asked for, within the quota.
    pub(super) fn life(&self, timeout_s: Option<u64>) -> Result<Duration, Refusal> {
        let seconds = timeout_s.unwrap_or(self.configuration.defaults.timeout_s);
        let most = self.configuration.quota.timeout_s;
        match seconds {
            0 => Err(Refusal::new(
                Kind::Invalid,
                "timeout must be at least 1 second",
            )),
            _ if seconds > most => Err(Refusal::new(
                Kind::Invalid,
                format!("timeout is {seconds} s, and {most} s at most here"),
            )
            .advise("quota.timeout_s in serve.toml is the longest")),
            _ => Ok(Duration::from_secs(seconds)),
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

    /// Returns the limits of a sandbox: those that are asked for, else the server's.
    pub(super) fn limits(&self, ask: &CreateAsk) -> Result<Defaults, Refusal> {
        let own = &self.configuration.defaults;
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let one_of = |name: &str, asked: Option<u64>, own: u64, most: u64| match asked {
            None => Ok(own),
            Some(asked) if (1..=most).contains(&asked) && !is_too_small(name, asked) => Ok(asked),
            Some(asked) => {
                let least = if name == MEMORY { MEMORY_MIB_MIN } else { 1 };
                let what = format!("{name} is {asked}, and it is {least} to {most} here");
                Err(Refusal::new(Kind::Invalid, what))
            }
        };
        one_of("cpus", ask.cpus.map(u64::from), 1, processors)?;
        Ok(Defaults {
            memory_mib: one_of(MEMORY, ask.memory_mib, own.memory_mib, MIB_MAX)?,
            disk_mib: one_of("disk_mib", ask.disk_mib, own.disk_mib, MIB_MAX)?,
            processes: one_of("processes", ask.processes, own.processes, PROCESSES_MAX)?,
            ..own.clone()
        })
    }

    /// Returns the files of the interpreter, for a sandbox that has one.
    pub(super) fn template_files(&self, is_interpreter: bool) -> Option<PathBuf> {
        let files = is_interpreter.then(|| directory(self.engine.state()))?;
        files.join(SERVER).is_file().then_some(files)
    }
}

/// Returns the tenant of a sandbox that is wanted.
pub(super) fn tenant_of(wanted: &CreateSandbox) -> &str {
    match &wanted.workspace {
        Workspace::Own(served) => &served.tenant,
        Workspace::Directory(_) => "",
    }
}
