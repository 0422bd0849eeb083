//! Making sandboxes: quotas, the words of the network, limits, and the time at which one ends.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::{
    CreateSandbox, KeptHome, NotMade, PriorAnswer, Requested, Sandbox, Workspace, remove_home,
};
use atoll_model::{Ending, LimitHit, LimitKey, Served, ServedExec};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::callers::Caller;
use super::living::{Beginning, Living, milliseconds};
use super::recorded::check_session;
use super::room::For;
use super::sizes::{Sizes, check_sizes};
use super::{Worker, fault, name, refusal};
use crate::configuration::{Defaults, NetworkWord};
use crate::protocol::{CreateAsk, Kind, Measures, NetworkAsk, Refusal, Reply, TEMPLATES};
use atoll_store::Role;

/// The most notes of a sandbox, and variables.
const NOTES_MAX: usize = 64;
/// The longest note or variable, bytes.
const NOTE_BYTES_MAX: usize = 4096;
const MIB: u64 = 1 << 20;

/// The sandboxes that each tenant has made of late, and is making.
#[derive(Debug, Default)]
pub(super) struct Made {
    of: BTreeMap<String, Tenant>,
}

#[derive(Debug)]
struct Tenant {
    /// The creates that are left now.
    left: f64,
    at: Instant,
    /// What is being made, and not on the list yet.
    making: Sizes,
}

/// What makes a sandbox this one to its callers, and what its home begins with.
pub(super) struct Identity {
    pub(super) id: String,
    pub(super) token: String,
    pub(super) port_token: Option<String>,
    pub(super) origin: Origin,
}

/// What a home begins with.
pub(super) enum Origin {
    /// Nothing.
    Empty,
    /// A copy of this one.
    Copied(KeptHome),
    /// This one.
    Kept(KeptHome),
}

impl Identity {
    /// Makes one that no sandbox has had.
    pub(super) fn new(ask: &CreateAsk, origin: Origin) -> Result<Self, Refusal> {
        Ok(Self {
            id: format!("i{}", name(20)?),
            token: name(40)?,
            port_token: ask.private_ports.then(|| name(40)).transpose()?,
            origin,
        })
    }
}

/// The reason for a sandbox's end, once it has ended.
pub(super) type Over = watch::Sender<Option<String>>;

/// A sandbox that is being made counts against the quota for as long as this is kept.
struct Making {
    worker: Arc<Worker>,
    tenant: String,
    sizes: Sizes,
}

impl Drop for Making {
    fn drop(&mut self) {
        let mut made = self
            .worker
            .making
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(tenant) = made.of.get_mut(&self.tenant) {
            tenant.making = tenant.making.without(self.sizes);
        }
    }
}

impl Worker {
    /// Makes a sandbox.
    pub(super) async fn create(
        self: &Arc<Self>,
        caller: &Caller,
        ask: CreateAsk,
    ) -> Result<Reply, Refusal> {
        let origin = match TEMPLATES.contains(&ask.template.as_str()) {
            true => Origin::Empty,
            false => {
                let snapshot = self.snapshot_named(&caller.tenant, &ask.template)?;
                Origin::Copied(self.snapshot_home(&snapshot))
            }
        };
        let identity = Identity::new(&ask, origin)?;
        let living = self.create_as(caller, None, ask, identity).await?;
        Ok(living.created())
    }

    /// Makes a sandbox that is this one to its callers.
    pub(super) async fn create_as(
        self: &Arc<Self>,
        caller: &Caller,
        maker: Option<String>,
        ask: CreateAsk,
        identity: Identity,
    ) -> Result<Arc<Living>, Refusal> {
        check(&ask)?;
        self.can_make(caller)?;
        let life = self.life(ask.timeout_s)?;
        let reach = narrowed(self.configuration.network, ask.network.as_ref())?;
        let limits = self.limits(&ask)?;
        let cpus = self.processors(ask.cpus);
        let making = self.admit(&caller.tenant, Sizes::of(&limits, cpus))?;
        let id = identity.id;
        let served = Served {
            sandbox: id.clone(),
            tenant: caller.tenant.clone(),
            caller: Some(caller.name.clone()),
            template: ask.template.clone(),
            metadata: ask.metadata.clone(),
            session: ask.session.clone(),
            trace: caller.trace.clone(),
        };
        let network = reach.name.to_owned();
        let asked_about = match reach.is_closed() {
            true => Vec::new(),
            false => self.configuration.ask.clone(),
        };
        let held_to = ask.cpus.or(self.cpus);
        let mut wanted = wanted(served, reach, asked_about, &limits, held_to);
        wanted.requested.nesting = self.configuration.nesting;
        let is_resumed = matches!(identity.origin, Origin::Kept(_));
        let is_copied = matches!(identity.origin, Origin::Copied(_));
        wanted.home = self.home_of(&id, identity.origin).await?;
        let home = wanted.home.clone().filter(|_| is_copied);
        let made = self.make(caller, &ask, wanted).await;
        if let (Err(_), Some(home)) = (&made, home) {
            let _ = spawn_blocking(move || remove_home(&home.path)).await;
        }
        let (sandbox, over) = made?;
        let mut is_over = over.subscribe();
        if over.borrow().is_some() {
            // It has ended before anybody looked.
            is_over.mark_changed();
        }
        let beginning = Beginning {
            id: id.clone(),
            tenant: caller.tenant.clone(),
            template: ask.template.clone(),
            metadata: ask.metadata.clone(),
            session: ask.session.clone(),
            environment: environment(&id, ask.environment.clone()),
            network,
            asked: ask.network.clone(),
            limits,
            cpus,
            token: identity.token,
            port_token: identity.port_token,
            port_host: ask.port_host.clone(),
            ask,
            caller: maker.unwrap_or_else(|| caller.name.clone()),
            ends: SystemTime::now() + life,
            over,
        };
        let living = Living::begin(beginning, sandbox);
        self.living().insert(id, Arc::clone(&living));
        drop(making);
        self.created
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match is_resumed {
            true => self.note_begun(&living, "resumed", "a caller has it go on"),
            false => self.note_created(&living),
        }
        let (worker, of) = (Arc::clone(self), Arc::clone(&living));
        tokio::spawn(async move { worker.watch_over(&of, is_over).await });
        Ok(living)
    }

    /// Returns the home that a sandbox begins with: a copy of its own where it is somebody else's.
    async fn home_of(
        self: &Arc<Self>,
        id: &str,
        origin: Origin,
    ) -> Result<Option<KeptHome>, Refusal> {
        let from = match origin {
            Origin::Empty => return Ok(None),
            Origin::Kept(home) => return Ok(Some(home)),
            Origin::Copied(from) => from,
        };
        self.make_kept_homes()?;
        let (worker, to) = (Arc::clone(self), self.kept(id));
        let copied = spawn_blocking(move || worker.engine.copy_home(&from, &to)).await;
        let copied = copied.map_err(|error| fault(&error))?;
        copied.map(Some).map_err(|failure| refusal(&failure))
    }

    /// Makes a sandbox, once; returns it with the reason for its end, once it has one.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        wanted: &CreateSandbox,
    ) -> Result<Result<(Sandbox, Over), NotMade>, Refusal> {
        let over = Over::default();
        let (worker, ended, wanted) = (Arc::clone(self), over.clone(), wanted.clone());
        let made = spawn_blocking(move || {
            worker.engine.create_watched(&wanted, move |outcome| {
                ended.send_if_modified(|over| {
                    let is_first = over.is_none();
                    over.get_or_insert_with(|| match outcome {
                        Ok(ending) => ended_by_itself(ending),
                        Err(error) => error.to_string(),
                    });
                    is_first
                });
            })
        });
        let made = made.await.map_err(|error| fault(&error))?;
        Ok(made.map(|sandbox| (sandbox, over)))
    }

    /// Checks that sandboxes can be made as the configuration says.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check(&self) -> Result<(), Failure> {
        let word = self.configuration.network;
        let reach = Reach {
            name: word.name(),
            presets: word.presets(),
            allow: word.allow(),
        };
        let asked_about = self.configuration.ask.clone();
        let limits = &self.configuration.defaults;
        let mut wanted = wanted(Served::default(), reach, asked_about, limits, self.cpus);
        wanted.requested.nesting = self.configuration.nesting;
        self.engine.check(&wanted)
    }

    /// Refuses whoever makes no sandbox, or none now.
    pub(super) fn can_make(&self, caller: &Caller) -> Result<(), Refusal> {
        if !matches!(caller.role, Role::Administrator | Role::User) {
            let what = format!("a key of the role {} makes no sandbox", caller.role.name());
            return Err(Refusal::new(Kind::Forbidden, what));
        }
        if self.is_draining() {
            let what = "the server ends, and makes no sandbox any more";
            return Err(Refusal {
                retry_after_s: Some(5),
                ..Refusal::new(Kind::Unavailable, what).advise("ask the one that follows it")
            });
        }
        if self.living().len() >= self.sandboxes_max {
            let what = "as many sandboxes are alive as this server has descriptors for";
            return Err(Refusal {
                retry_after_s: Some(5),
                ..Refusal::new(Kind::Quota, what)
                    .advise("end one, or raise its limit of open files (LimitNOFILE)")
            });
        }
        self.room.check(For::Sandbox)
    }

    /// Puts another network, within the server's word, in the place of the one a sandbox has.
    pub(super) async fn set_network(
        &self,
        living: &Arc<Living>,
        asked: NetworkAsk,
        by: ServedExec,
    ) -> Result<(), Refusal> {
        let reach = narrowed(self.configuration.network, Some(&asked))?;
        let name = reach.name.to_owned();
        let sandbox = Arc::clone(&living.sandbox);
        let replaced =
            spawn_blocking(move || sandbox.replace_network(reach.presets, reach.allow, &by));
        let replaced = replaced.await.map_err(|error| fault(&error))?;
        replaced.map_err(|failure| refusal(&failure))?;
        *living.network() = (name, Some(asked));
        self.note_updated(living, "a caller has replaced its network");
        Ok(())
    }

    /// Ends a sandbox at its time, and takes it off the list once it is gone.
    async fn watch_over(
        self: &Arc<Self>,
        living: &Arc<Living>,
        mut is_over: watch::Receiver<Option<String>>,
    ) {
        let mut ends = living.ends.subscribe();
        loop {
            let at = *ends.borrow_and_update();
            let left = at.duration_since(SystemTime::now()).unwrap_or_default();
            tokio::select! {
                () = tokio::time::sleep(left) => {
                    if *ends.borrow() > SystemTime::now() {
                        continue;
                    }
                    if living.ask.auto_pause && self.pause(living).await.is_ok() {
                        return;
                    }
                    return self.end(living, "its time was over").await;
                }
                changed = ends.changed() => if changed.is_err() { return; },
                _ = is_over.changed() => {
                    let why = is_over.borrow().clone().unwrap_or_default();
                    return self.end(living, &why).await;
                }
            }
        }
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

    /// Counts a sandbox that is to be made against the quotas of its tenant.
    fn admit(self: &Arc<Self>, tenant: &str, sizes: Sizes) -> Result<Making, Refusal> {
        let quota = &self.configuration.quota;
        let alive = self.alive(tenant);
        let mut made = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let a_minute = f64::from(quota.creates_a_minute);
        let now = Instant::now();
        let of = made.of.entry(tenant.to_owned()).or_insert(Tenant {
            left: a_minute,
            at: now,
            making: Sizes::default(),
        });
        let gained = now.duration_since(of.at).as_secs_f64() / 60.0 * a_minute;
        (of.left, of.at) = ((of.left + gained).min(a_minute), now);
        check_sizes(quota, alive.with(of.making), sizes)?;
        if of.left < 1.0 {
            let wait = ((1.0 - of.left) * 60.0 / a_minute).ceil();
            let what = format!(
                "{} sandboxes were made within a minute, as many as the tenant may make",
                quota.creates_a_minute
            );
            return Err(Refusal {
                retry_after_s: Some(wait as u64),
                ..Refusal::new(Kind::Quota, what)
                    .advise("try again later, or raise quota.creates_a_minute in serve.toml")
            });
        }
        of.left -= 1.0;
        of.making = of.making.with(sizes);
        Ok(Making {
            worker: Arc::clone(self),
            tenant: tenant.to_owned(),
            sizes,
        })
    }
}

/// Tells why a sandbox has ended that no caller has.
fn ended_by_itself(ending: &Ending) -> String {
    match ending {
        Ending::Limited { limit } => format!("a limit has ended it: {}", limit_name(*limit)),
        Ending::Exited { .. } => "it was stopped on the server's machine (atoll stop)".to_owned(),
        Ending::Signalled { .. } => "its first process was ended".to_owned(),
        Ending::NotFound | Ending::NotExecutable | Ending::Interrupted => {
            "it did not come to its end".to_owned()
        }
    }
}

/// Returns the name of a limit, as `--limit` has it.
pub(super) fn limit_name(limit: LimitHit) -> String {
    serde_json::to_value(limit)
        .ok()
        .and_then(|name| name.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// Returns the request to the engine.
fn wanted(
    served: Served,
    reach: Reach,
    ask: Vec<String>,
    limits: &Defaults,
    cpus: Option<u32>,
) -> CreateSandbox {
    let cpus = cpus.map(|cpus| (LimitKey::Cpu, cpus.to_string()));
    let of_memory = |mebibytes: u64| format!("{mebibytes}MiB");
    CreateSandbox {
        workspace: Workspace::Own(Box::new(served)),
        requested: Requested {
            presets: reach.presets,
            allow: reach.allow,
            ask,
            limits: [
                (LimitKey::Memory, of_memory(limits.memory_mib)),
                // In memory; what callers write there no process is charged for.
                (LimitKey::Tmp, of_memory((limits.memory_mib / 2).max(1))),
                (LimitKey::Disk, of_memory(limits.disk_mib)),
                (LimitKey::Processes, limits.processes.to_string()),
            ]
            .into_iter()
            .chain(cpus)
            .collect(),
            ..Requested::default()
        },
        discard: true,
        // Whatever policies ask about is decided over the server too.
        is_attended: true,
        home: None,
        answer: PriorAnswer::Nobody,
    }
}

/// Checks what no type holds.
fn check(ask: &CreateAsk) -> Result<(), Refusal> {
    if ask.port_host.as_ref().is_some_and(|host| !is_host(host)) {
        let what = "maskRequestHost is no host: letters, digits, . - : and ${PORT}";
        return Err(Refusal::new(Kind::Invalid, what));
    }
    if let Some(session) = &ask.session {
        check_session(session)?;
    }
    for (what, list) in [("metadata", &ask.metadata), ("envVars", &ask.environment)] {
        let is_long = |(name, value): (&String, &String)| {
            name.len() > NOTE_BYTES_MAX || value.len() > NOTE_BYTES_MAX
        };
        if list.len() > NOTES_MAX || list.iter().any(is_long) {
            let what = format!("{what} has {NOTES_MAX} entries of {NOTE_BYTES_MAX} bytes at most");
            return Err(Refusal::new(Kind::Invalid, what));
        }
        let is_odd = |name: &String| name.is_empty() || name.contains(['=', '\0']);
        if what == "envVars" && list.keys().any(is_odd)
            || list.values().any(|value| value.contains('\0'))
        {
            return Err(Refusal::new(
                Kind::Invalid,
                format!("{what} has a name that none can have"),
            ));
        }
    }
    Ok(())
}

/// Returns whether a text can be the host of a request, once the port is in it.
fn is_host(text: &str) -> bool {
    let text = text.replace("${PORT}", "0");
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    !text.is_empty() && text.len() <= NOTE_BYTES_MAX && text.bytes().all(fits)
}

/// The network of one sandbox.
struct Reach {
    /// The word for it.
    name: &'static str,
    presets: Vec<String>,
    allow: Vec<String>,
}

impl Reach {
    fn is_closed(&self) -> bool {
        self.name == NetworkWord::Closed.name()
    }
}

/// All addresses, as E2B's SDKs write them.
const EVERYWHERE: &str = "0.0.0.0/0";

/// Returns the network of a sandbox: the server's, or less if the caller asks for less.
fn narrowed(word: NetworkWord, asked: Option<&NetworkAsk>) -> Result<Reach, Refusal> {
    let whole = Reach {
        name: word.name(),
        presets: word.presets(),
        allow: word.allow(),
    };
    let Some(asked) = asked else {
        return Ok(whole);
    };
    let refused =
        |what: &str, advice: &str| Err(Refusal::new(Kind::Forbidden, what).advise(advice));
    if asked.deny.iter().any(|one| one != EVERYWHERE) {
        return refused(
            "denyOut names single addresses, and this server closes all or none",
            "denyOut: [\"0.0.0.0/0\"] with allowOut names what is reached instead",
        );
    }
    let closes = asked.internet == Some(false) || !asked.deny.is_empty();
    match (word, asked.allow.as_slice()) {
        (_, []) if closes => Ok(Reach {
            name: NetworkWord::Closed.name(),
            presets: Vec::new(),
            allow: Vec::new(),
        }),
        (_, []) => Ok(whole),
        (NetworkWord::Closed | NetworkWord::Registries, _) => refused(
            &format!(
                "allowOut: this server's sandboxes have the network \"{}\"",
                word.name()
            ),
            "network = \"internet\" in serve.toml lets callers name destinations",
        ),
        (NetworkWord::Internet, _) if !closes => Err(Refusal::new(
            Kind::Invalid,
            "allowOut without denyOut: [\"0.0.0.0/0\"] changes nothing",
        )),
        (NetworkWord::Internet, named) => Ok(Reach {
            name: "named",
            presets: Vec::new(),
            allow: named.to_vec(),
        }),
    }
}

/// Returns the variables of all programs of a sandbox.
fn environment(id: &str, asked: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = asked;
    all.insert("E2B_SANDBOX".to_owned(), "true".to_owned());
    all.insert("E2B_SANDBOX_ID".to_owned(), id.to_owned());
    all
}

/// Measures a sandbox.
pub(super) async fn measure(living: &Arc<Living>) -> Result<Measures, Refusal> {
    let sandbox = Arc::clone(&living.sandbox);
    let measured = spawn_blocking(move || sandbox.in_use()).await;
    let in_use = measured.map_err(|error| fault(&error))?;
    let (limits, cpus) = living.sizes().clone();
    Ok(Measures {
        at_s: milliseconds(SystemTime::now()) / 1000,
        cpus,
        cpu_percent: in_use
            .cpu_us
            .map_or(0.0, |cpu_us| living.cpu_percent(cpu_us)),
        memory_bytes: in_use.memory_bytes.unwrap_or(0),
        memory_bytes_max: limits.memory_mib * MIB,
        disk_bytes: in_use.disk_bytes,
        disk_bytes_max: limits.disk_mib * MIB,
    })
}
