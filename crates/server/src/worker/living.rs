//! A living sandbox, as the worker keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use atoll_engine::sandboxes::{InUse, Sandbox};
use atoll_model::VolumeMount;
use atoll_store::{Scope, Scopes};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::answers::fault;
use super::begun::Begun;
use super::caller::Caller;
use super::files::{Files, Watching};
use super::identity::Identity;
use super::lifecycle::Life;
use super::process::Process;
use super::template::Rooted;
use super::template::Template;
use super::template::variables;
use super::templates::environment;
use super::tokens::code_token;
use super::tokens::is_equal;
use super::tokens::opens_services;
use crate::configuration::Defaults;
use crate::protocol::{
    CreateAsk, CreatedFacts, Kind, MountAsk, NetworkAsk, Refusal, SandboxFacts, Selector,
};
use crate::rfc3339::milliseconds;

/// The most watchers of one sandbox.
const WATCHERS_MAX: usize = 64;
/// The shortest time between two changes of a sandbox that are noted.
const UPDATED_EVERY: Duration = Duration::from_secs(1);
/// The time for which a program that has ended can still be named.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(30);

/// All that a sandbox was made by, and what its callers know it by.
pub(crate) struct Spec {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) template: String,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) session: Option<String>,
    /// The shipped template that it stands on.
    pub(crate) shipped: String,
    /// Set where its programs are root, or become other users.
    pub(crate) rooted: Option<Rooted>,
    /// The layers of its template, and those that it began with.
    pub(crate) layers: Vec<String>,
    pub(super) begun: Begun,
    /// True if the code interpreter is a part of its template.
    pub(crate) is_interpreter: bool,
    /// True if a template is built in it, which nobody else works in.
    pub(crate) is_build: bool,
    /// True for one that tools of a session run in.
    pub(crate) is_tool: bool,
    /// The volumes that are mounted in it.
    pub(crate) volumes: Vec<VolumeMount>,
    /// The request that made it, and the name of whoever made that.
    pub(crate) ask: CreateAsk,
    pub(crate) caller: String,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) token: String,
    /// The token for its ports; without one everybody who knows its name reaches them.
    pub(crate) port_token: Option<String>,
    pub(crate) port_host: Option<String>,
}

/// A sandbox whose processes are there.
pub(crate) struct Living {
    pub(crate) spec: Spec,
    pub(crate) life: Life,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) files: Arc<Files>,
    pub(crate) started: SystemTime,
    /// The time at which it is to end; told when that changes.
    pub(crate) ends: watch::Sender<SystemTime>,
    /// Locked while the code interpreter is started.
    pub(crate) interpreter: tokio::sync::Mutex<()>,
    /// Its network, in the words of `serve.toml`, and what the caller asked for.
    network: Mutex<(String, Option<NetworkAsk>)>,
    /// The resources that it may use, and its processors.
    sizes: Mutex<(Defaults, u32)>,
    /// The time at which a change of it was noted last.
    updated: Mutex<Option<Instant>>,
    processes: Mutex<Vec<Arc<Process>>>,
    watchers: Mutex<BTreeMap<String, Arc<Watching>>>,
    /// The ports that were reached.
    reached: Mutex<BTreeSet<u16>>,
    /// The processor time at the last measurement, microseconds.
    measured: Mutex<(Instant, u64)>,
    /// The last measure of its use, and the time until which it is new enough.
    in_use: Arc<tokio::sync::Mutex<Option<(Instant, InUse)>>>,
}

/// The parts of a sandbox's state that it begins with.
pub(crate) struct Began {
    pub(crate) network: String,
    pub(crate) limits: Defaults,
    pub(crate) cpus: u32,
    pub(crate) ends: SystemTime,
}

impl Spec {
    /// Returns what a request says of it.
    pub(super) fn of(
        caller: &Caller,
        maker: Option<String>,
        ask: CreateAsk,
        identity: Identity,
        is_interpreter: bool,
        volumes: Vec<VolumeMount>,
    ) -> Self {
        let template = identity.template.as_ref();
        let variables = variables(template, &ask);
        Self {
            tenant: caller.tenant.clone(),
            template: ask.template.clone(),
            metadata: ask.metadata.clone(),
            session: ask.session.clone(),
            environment: environment(&identity.id, is_interpreter, variables),
            rooted: template.map(Template::rooted),
            layers: {
                let of_template = template.iter().flat_map(|one| one.files());
                of_template.chain(identity.begun.all().cloned()).collect()
            },
            // On an ordinary user's server it has copies of its own.
            begun: match identity.begun.base {
                Some(_) => identity.begun,
                None => Begun::default(),
            },
            is_interpreter,
            is_build: identity.is_build,
            is_tool: identity.tool.is_some(),
            id: identity.id,
            shipped: identity.shipped,
            token: identity.token,
            port_token: identity.port_token,
            port_host: ask.port_host.clone(),
            ask,
            caller: maker.unwrap_or_else(|| caller.name.clone()),
            volumes,
        }
    }
}

impl Living {
    pub(crate) fn new(
        spec: Spec,
        life: Life,
        began: Began,
        sandbox: Arc<Sandbox>,
        files: Arc<Files>,
    ) -> Arc<Self> {
        Arc::new(Self {
            network: Mutex::new((began.network, spec.ask.network.clone())),
            sizes: Mutex::new((began.limits, began.cpus)),
            spec,
            life,
            sandbox,
            files,
            started: SystemTime::now(),
            ends: watch::channel(began.ends).0,
            interpreter: tokio::sync::Mutex::new(()),
            updated: Mutex::new(None),
            processes: Mutex::new(Vec::new()),
            watchers: Mutex::new(BTreeMap::new()),
            reached: Mutex::new(BTreeSet::new()),
            measured: Mutex::new((Instant::now(), 0)),
            in_use: Arc::default(),
        })
    }

    /// Describes it for a caller.
    pub(crate) fn facts(&self) -> SandboxFacts {
        let (network, asked) = self.network().clone();
        let (limits, cpus) = self.sizes().clone();
        SandboxFacts {
            id: self.spec.id.clone(),
            run: self.sandbox.run().to_string(),
            template: self.spec.template.clone(),
            state: "running".to_owned(),
            auto_pause: self.spec.ask.auto_pause,
            auto_resume: self.spec.ask.auto_resume,
            started_ms: milliseconds(self.started),
            ends_ms: milliseconds(*self.ends.borrow()),
            session: self.spec.session.clone(),
            metadata: self.spec.metadata.clone(),
            cpus,
            memory_mib: limits.memory_mib,
            disk_mib: limits.disk_mib,
            processes: limits.processes,
            volumes: self.spec.volumes.iter().map(mounted).collect(),
            network,
            asked,
            memory_kept: false,
        }
    }

    /// Describes it with its tokens, but those that would do more than the scopes of who gets them:
    /// the access token runs programs and reaches files.
    pub(crate) fn described_to(&self, scopes: &Scopes) -> CreatedFacts {
        let is_for_access = scopes.has(Scope::Exec) && scopes.has(Scope::Files);
        let is_for_code = is_for_access && self.spec.is_interpreter;
        let port_token = self.spec.port_token.clone();
        CreatedFacts {
            sandbox: self.facts(),
            token: match is_for_access {
                true => self.spec.token.clone(),
                false => String::new(),
            },
            port_token: port_token.filter(|_| scopes.has(Scope::Ports)),
            code_token: is_for_code.then(|| code_token(&self.spec.token)),
            resumed: false,
        }
    }

    /// Returns whether this is its access token; takes the same time whatever it is.
    pub(crate) fn is_token(&self, token: &str) -> bool {
        is_equal(token, &self.spec.token)
    }

    /// Returns whether a port of a program is reached with this token, or without one.
    pub(crate) fn opens_ports(&self, token: Option<&str>) -> bool {
        match (&self.spec.port_token, token) {
            (None, _) => true,
            (Some(own), Some(token)) => {
                is_equal(token, own) || opens_services(&self.spec.token, token)
            }
            (Some(_), None) => false,
        }
    }

    /// Measures what it uses, one at a time, and at most a tenth of the time: its files are counted,
    /// of which a program can make many.
    pub(super) async fn in_use(&self) -> Result<InUse, Refusal> {
        let mut last = Arc::clone(&self.in_use).lock_owned().await;
        if let Some((_, in_use)) = last.filter(|(until, _)| Instant::now() < *until) {
            return Ok(in_use);
        }
        let sandbox = Arc::clone(&self.sandbox);
        // It goes on where whoever asked is gone, and others wait for it.
        let measured = spawn_blocking(move || {
            let begun = Instant::now();
            let in_use = sandbox.in_use();
            *last = Some((Instant::now() + begun.elapsed() * 9, in_use));
            in_use
        });
        measured.await.map_err(|error| fault(&error))
    }

    /// Takes a measurement of the processor time; returns the share of one processor since the
    /// last, percent.
    pub(crate) fn cpu_percent(&self, cpu_us: u64) -> f64 {
        let now = Instant::now();
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, before) = std::mem::replace(&mut *measured, (now, cpu_us));
        let elapsed = now.duration_since(at).as_secs_f64().max(0.001);
        cpu_us.saturating_sub(before) as f64 / 1e6 / elapsed * 100.0
    }

    pub(crate) fn network(&self) -> MutexGuard<'_, (String, Option<NetworkAsk>)> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sizes(&self) -> MutexGuard<'_, (Defaults, u32)> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reached(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time at which it is to end; returns whether that changes.
    pub(crate) fn live_for(&self, time: Duration, extends: bool) -> bool {
        let at = SystemTime::now() + time;
        self.ends.send_if_modified(|ends| {
            let changes = !extends || at > *ends;
            if changes {
                *ends = at;
            }
            changes
        })
    }

    /// Returns whether a change of it is to be noted: one in a while.
    pub(crate) fn notes_update(&self) -> bool {
        let mut updated = self.updated.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = updated.is_none_or(|at| at.elapsed() >= UPDATED_EVERY);
        if is_due {
            *updated = Some(Instant::now());
        }
        is_due
    }

    pub(crate) fn processes(&self) -> MutexGuard<'_, Vec<Arc<Process>>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a program.
    pub(crate) fn process(&self, of: &Selector) -> Result<Arc<Process>, Refusal> {
        let is_it = |process: &&Arc<Process>| match of {
            Selector::Pid(pid) => process.pid() == *pid,
            Selector::Tag(tag) => process.asked.tag.as_ref() == Some(tag),
        };
        let processes = self.processes();
        // The latest, where a number was used again.
        let found = processes.iter().rev().find(is_it).cloned();
        found.ok_or_else(|| {
            let named = match of {
                Selector::Pid(pid) => format!("process {pid}"),
                Selector::Tag(tag) => format!("process {tag:?}"),
            };
            Refusal::new(
                Kind::NotFound,
                format!("there is no {named} in the sandbox"),
            )
        })
    }

    /// Keeps a program on its list, until a while after its end.
    pub(crate) fn keep(self: &Arc<Self>, process: &Arc<Process>) {
        self.processes().push(Arc::clone(process));
        let (kept, of) = (Arc::clone(process), Arc::clone(self));
        tokio::spawn(async move {
            kept.window.ended().await;
            tokio::time::sleep(REMEMBERED).await;
            of.forget(&kept);
        });
    }

    /// Forgets a program.
    pub(crate) fn forget(&self, process: &Arc<Process>) {
        self.processes().retain(|one| !Arc::ptr_eq(one, process));
    }

    fn watchers(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Watching>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a watcher, under a name.
    pub(crate) fn keep_watcher(&self, name: &str, watch: Watching) -> Result<(), Refusal> {
        let mut watchers = self.watchers();
        if watchers.len() >= WATCHERS_MAX {
            let what = format!("the sandbox has {WATCHERS_MAX} watchers already");
            return Err(Refusal::new(Kind::Quota, what).advise("remove one"));
        }
        watchers.insert(name.to_owned(), Arc::new(watch));
        Ok(())
    }

    /// Finds a watcher.
    pub(crate) fn watcher(&self, name: &str) -> Result<Arc<Watching>, Refusal> {
        self.watchers()
            .get(name)
            .cloned()
            .ok_or_else(|| no_watcher(name))
    }

    /// Ends a watcher.
    pub(crate) fn remove_watcher(&self, name: &str) -> Result<(), Refusal> {
        let removed = self.watchers().remove(name);
        removed.map(drop).ok_or_else(|| no_watcher(name))
    }
}

/// Describes a volume that is mounted.
fn mounted(mount: &VolumeMount) -> MountAsk {
    MountAsk {
        name: mount.name.clone(),
        path: mount.inside.display().to_string(),
        read_only: mount.read_only,
    }
}

fn no_watcher(name: &str) -> Refusal {
    Refusal::new(Kind::NotFound, format!("there is no watcher {name:?}"))
}
