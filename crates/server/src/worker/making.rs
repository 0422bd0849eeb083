//! Making sandboxes: quotas, the words of the network, limits, and the time at which one ends.

use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime};

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::{CreateSandbox, NotMade, Requested, Sandbox, Workspace};
use atoll_model::Once;
use atoll_model::VolumeMount;
use atoll_model::{Served, ServedExec};
use serde_json::json;
use tokio::task::spawn_blocking;

use super::answers::fault;
use super::answers::refusal;
use super::approving::{Question, advised};
use super::begun::Begun;
use super::begun::begun_of;
use super::caller::Caller;
use super::caller::check_maker;
use super::caller::served;
use super::files::Files;
use super::frozen;
use super::identity::{Identity, OfTool};
use super::lifecycle::{Life, Lifecycle, Reason, Transition};
use super::living::{Began, Living, Spec};
use super::once::{Outcome, another, digest};
use super::sandboxes::Sandboxes;
use super::sizes::Tenant;
use super::sizes::{Sizes, check_sizes};
use super::wanted::{Reach, check, inputs, narrowed, wanted};
use super::warm::Fresh;
use crate::configuration::Defaults;
use crate::protocol::{
    CODE_INTERPRETER, CreateAsk, Kind, Measures, NetworkAsk, Refusal, TEMPLATES,
};
use crate::rfc3339::milliseconds;

const MIB: u64 = 1 << 20;

/// A sandbox that is being made counts against the quota for as long as this is kept.
pub(super) struct Making {
    sandboxes: Arc<Sandboxes>,
    tenant: String,
    sizes: Sizes,
}

impl Drop for Making {
    fn drop(&mut self) {
        let mut made = self
            .sandboxes
            .making
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(tenant) = made.of.get_mut(&self.tenant) {
            tenant.making = tenant.making.without(self.sizes);
        }
    }
}

impl Sandboxes {
    /// Makes a sandbox.
    pub(super) async fn create(
        self: &Arc<Self>,
        caller: &Caller,
        ask: CreateAsk,
    ) -> Result<Arc<Living>, Refusal> {
        let built = self.built(&caller.tenant, &ask)?;
        if let Some(template) = built {
            return self.create_from(caller, ask, template).await;
        }
        let (shipped, begun) = match TEMPLATES.contains(&ask.template.as_str()) {
            true => (ask.template.clone(), Begun::default()),
            false => {
                let snapshot = self
                    .catalogue
                    .snapshot_named(&caller.tenant, &ask.template)?;
                let begun = begun_of(&snapshot)?;
                let disk_mib = self.server.limits(&ask)?.disk_mib;
                if snapshot.bytes.div_ceil(MIB) > disk_mib {
                    let what = format!(
                        "the snapshot has {} MiB, more than disk_mib, {disk_mib}",
                        snapshot.bytes.div_ceil(MIB)
                    );
                    return Err(Refusal::new(Kind::Invalid, what).advise("ask for more"));
                }
                (snapshot.shipped, begun)
            }
        };
        let template = self.catalogue.template_of(&shipped)?;
        let identity = Identity::new(&ask, shipped, begun)?.on(template);
        self.create_as(caller, None, ask, identity).await
    }

    /// Makes a sandbox that is this one to its callers.
    pub(super) async fn create_as(
        self: &Arc<Self>,
        caller: &Caller,
        maker: Option<String>,
        ask: CreateAsk,
        mut identity: Identity,
    ) -> Result<Arc<Living>, Refusal> {
        check(&ask)?;
        self.server.can_make(caller)?;
        let life = self.server.life(ask.timeout_s)?;
        let reach = match identity.reach.clone() {
            Some(reach) => reach,
            None => narrowed(self.server.configuration.network(), ask.network.as_ref())?,
        };
        let limits = self.server.limits(&ask)?;
        let cpus = self.server.processors(ask.cpus);
        let making = self.admit(&caller.tenant, Sizes::of(&limits, cpus))?;
        let id = identity.id.clone();
        let (volumes, held) = self
            .volumes
            .mount(&caller.tenant, &id, &ask.volumes)
            .await?;
        let network = reach.name.to_owned();
        let mut of = served(caller, &id, &ask);
        of.volumes.clone_from(&volumes);
        let mut wanted = self.wanted(of, reach, &limits, ask.cpus);
        wanted.requested.inputs = inputs(&ask)?;
        if let Some(tool) = &identity.tool {
            tool.apply(&mut wanted);
        }
        let is_interpreter = self.stand(&caller.tenant, &identity, &mut wanted);
        if is_interpreter && !identity.is_build {
            self.prewarm.install_packages_later();
        }
        let hold = self.layers.hold_layers();
        let template = identity.template.clone();
        template.iter().try_for_each(|one| hold.add(&one.record))?;
        hold.add_all(identity.begun.all())?;
        let is_resumed = identity.is_kept;
        let ahead = self
            .prewarm
            .made_ahead(caller, maker.as_ref(), &ask, &identity, &wanted);
        let fresh = match ahead.await {
            Some(fresh) => fresh,
            None => self.made(caller, &ask, &identity, wanted).await?,
        };
        identity.id.clone_from(&fresh.id);
        let began = Began {
            network,
            limits,
            cpus,
            ends: SystemTime::now() + life,
        };
        let spec = Spec::of(caller, maker, ask, identity, is_interpreter, volumes);
        let living = Living::new(spec, fresh.life, began, fresh.sandbox, fresh.files);
        fresh
            .program
            .iter()
            .for_each(|program| living.keep(program));
        // One that has ended since takes no request, and is taken off the list.
        let _ = living.life.pass(Transition::Start);
        self.list.put_living(&living);
        held.keep();
        drop((hold, making));
        self.take_on(&living, is_resumed);
        if let Some(template) = template {
            self.begin_program(&living, &template.record, caller).await;
        }
        Ok(living)
    }

    /// Returns the boundary of a tool's sandbox, by whose rules its calls are decided.
    pub(super) fn tool_boundary(
        &self,
        caller: &Caller,
        ask: &CreateAsk,
        requested: &Requested,
    ) -> CreateSandbox {
        let tool = OfTool {
            requested: requested.clone(),
            parent: None,
        };
        let limits = &self.server.configuration.defaults;
        let mut wanted = self.wanted(served(caller, "", ask), tool.reach(), limits, None);
        tool.apply(&mut wanted);
        wanted
    }

    /// Has a sandbox stand on its template; returns whether the code interpreter is a part of that.
    fn stand(
        self: &Arc<Self>,
        tenant: &str,
        identity: &Identity,
        wanted: &mut CreateSandbox,
    ) -> bool {
        let template = identity.template.as_ref();
        let is_interpreter = identity.shipped == CODE_INTERPRETER
            || template.is_some_and(|one| one.record.is_interpreter);
        wanted.template = self.server.template_files(is_interpreter);
        if let Some(template) = template {
            wanted.system = Some(self.layers.system_of(template));
            wanted.requested.root = true;
        }
        if let Some(marks) = frozen::Marks::of(tenant, wanted) {
            wanted.frozen = self.prewarm.frozen.file(&marks);
            if !identity.is_build {
                self.prewarm.keep_interpreter_later(marks, wanted);
            }
        }
        is_interpreter
    }

    /// Tells of a sandbox that is on the list now, and watches over it.
    pub(super) fn take_on(self: &Arc<Self>, living: &Arc<Living>, is_resumed: bool) {
        self.created
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match is_resumed {
            true => self
                .webhooks
                .note_begun(living, "resumed", "a caller has it go on"),
            false => self.webhooks.note_created(living),
        }
        let (own, of) = (Arc::clone(self), Arc::clone(living));
        tokio::spawn(async move { own.watch_over(&of).await });
    }

    /// Returns the request to the engine.
    fn wanted(
        &self,
        served: Served,
        reach: Reach,
        limits: &Defaults,
        cpus: Option<u32>,
    ) -> CreateSandbox {
        let asked_about = match reach.is_closed() {
            true => Vec::new(),
            false => self.server.configuration.ask.clone(),
        };
        let mut wanted = wanted(
            served,
            reach,
            asked_about,
            limits,
            cpus.or(self.server.cpus),
        );
        wanted.requested.nesting = self.server.configuration.nesting;
        wanted
    }

    /// Makes the sandbox itself, with its home; a copy that was made for it does not outlive an
    /// attempt that fails.
    async fn made(
        self: &Arc<Self>,
        caller: &Caller,
        ask: &CreateAsk,
        identity: &Identity,
        mut wanted: CreateSandbox,
    ) -> Result<Fresh, Refusal> {
        let made = async {
            let (own, id) = (Arc::clone(self), identity.id.clone());
            let (begun, is_kept) = (identity.begun.clone(), identity.is_kept);
            let begin = spawn_blocking(move || {
                wanted.home = own.layers.begin_home(&id, &begun, is_kept)?;
                wanted.made_at = own.layers.made_at(&id)?;
                if let Some(system) = &mut wanted.system {
                    (system.begins, system.changed) =
                        own.layers.begin_system(&id, &begun, is_kept)?;
                }
                Ok(wanted)
            });
            let wanted = begin.await.map_err(|error| fault(&error)).flatten()?;
            self.make(caller, ask, wanted).await
        };
        let made = made.await;
        if made.is_err() && !identity.is_kept {
            self.layers.drop_kept(&identity.id);
        }
        let (sandbox, life) = made?;
        let sandbox = Arc::new(sandbox);
        Ok(Fresh {
            id: identity.id.clone(),
            files: Files::of(&sandbox, &caller.tenant, &self.server.shares),
            sandbox,
            life,
            program: None,
            made: Instant::now(),
        })
    }

    /// Checks that sandboxes can be made as the configuration says.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check(&self) -> Result<(), Failure> {
        let word = self.server.configuration.network();
        let reach = Reach {
            name: word.name(),
            presets: word.presets(),
            allow: word.allow(),
        };
        let limits = &self.server.configuration.defaults;
        let wanted = self.wanted(Served::default(), reach, limits, None);
        self.server.engine.check(&wanted)
    }

    /// Puts another network, within the server's word, in the place of the one a sandbox has.
    pub(super) async fn set_network(
        &self,
        living: &Arc<Living>,
        asked: NetworkAsk,
        by: ServedExec,
    ) -> Result<(), Refusal> {
        let reach = narrowed(self.server.configuration.network(), Some(&asked))?;
        let name = reach.name.to_owned();
        let sandbox = Arc::clone(&living.sandbox);
        let replaced =
            spawn_blocking(move || sandbox.replace_network(reach.presets, reach.allow, &by));
        let replaced = replaced.await.map_err(|error| fault(&error))?;
        replaced.map_err(|failure| refusal(&failure))?;
        *living.network() = (name, Some(asked));
        self.webhooks
            .note_updated(living, "a caller has replaced its network");
        Ok(())
    }

    /// Ends a sandbox at its time, and takes it off the list once it is gone.
    async fn watch_over(self: &Arc<Self>, living: &Arc<Living>) {
        let mut ends = living.ends.subscribe();
        loop {
            let at = *ends.borrow_and_update();
            let left = at.duration_since(SystemTime::now()).unwrap_or_default();
            tokio::select! {
                () = tokio::time::sleep(left) => {
                    if *ends.borrow() > SystemTime::now() {
                        continue;
                    }
                    if living.spec.ask.auto_pause {
                        let by = ServedExec::default();
                        let with_memory = living.spec.ask.auto_pause_memory != Some(false);
                        match self.pause(living, with_memory, by).await {
                            Ok(_) => return,
                            Err(refusal) => eprintln!(
                                "atoll serve: sandbox {} is not paused: {}",
                                living.spec.id, refusal.what
                            ),
                        }
                    }
                    return self.end(living, Reason::Timeout).await;
                }
                changed = ends.changed() => if changed.is_err() { return; },
                state = living.life.stopped() => {
                    // One that is paused, and goes on, is watched over anew.
                    if let Lifecycle::Ended(why) = state {
                        self.end(living, why).await;
                    }
                    return;
                }
            }
        }
    }

    /// Counts a sandbox that is to be made against the quotas of its tenant.
    pub(super) fn admit(self: &Arc<Self>, tenant: &str, sizes: Sizes) -> Result<Making, Refusal> {
        let quota = &self.server.configuration.quota;
        let alive = self.list.alive(tenant);
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
            sandboxes: Arc::clone(self),
            tenant: tenant.to_owned(),
            sizes,
        })
    }
}

/// Measures a sandbox.
pub(super) async fn measure(living: &Arc<Living>) -> Result<Measures, Refusal> {
    let in_use = living.in_use().await?;
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

impl Sandboxes {
    /// Makes a sandbox, once an approver has agreed where policies ask about it; returns it with its
    /// state.
    pub(super) async fn make(
        self: &Arc<Self>,
        caller: &Caller,
        ask: &CreateAsk,
        mut wanted: CreateSandbox,
    ) -> Result<(Sandbox, Life), Refusal> {
        let asked = match self.server.attempt(&wanted).await? {
            Ok(made) => return Ok(made),
            Err(NotMade::Failed(failure)) => return Err(refusal(&failure)),
            Err(NotMade::NeedsApproval(asked)) => asked,
        };
        let Workspace::Own(served) = &wanted.workspace else {
            return Err(Refusal::new(Kind::Fault, "it is not a served sandbox"));
        };
        let question = Question {
            action: "run",
            sandbox: served.sandbox.clone(),
            run: None,
            caller: served.caller.clone(),
            shown: json!({
                "template": ask.template,
                "metadata": ask.metadata,
                "network": ask.network,
                "inputs": ask.inputs,
                "volumes": served.volumes.iter().map(VolumeMount::stated).collect::<Vec<_>>(),
                "variables": ask.environment.keys().collect::<Vec<_>>(),
            }),
            asked,
        };
        wanted.answer = self
            .approvals
            .ask_approver(&caller.tenant, question)
            .await?;
        self.server.can_make(caller)?;
        let made = self.server.attempt(&wanted).await?;
        made.map_err(|why| advised(&wanted.answer, refusal(&why.failure())))
    }
}

impl Sandboxes {
    /// Makes a sandbox, unless a request of this name has.
    pub(super) async fn create_once(
        self: &Arc<Self>,
        caller: &Caller,
        once: Option<String>,
        ask: &CreateAsk,
    ) -> Result<Arc<Living>, Refusal> {
        // An answer that is given again is for whoever could have it.
        check_maker(caller)?;
        let Some(once) = once else {
            return self.create(caller, ask.clone()).await;
        };
        let name = (String::new(), once);
        let digest = digest(ask)?;
        let made = Outcome::Created(Arc::default());
        let request = self
            .idempotency
            .named(&caller.tenant, &name, &digest, made)?;
        let cell = match request.answer {
            Outcome::Created(cell) => cell,
            Outcome::Kept(id) => return self.idempotency.created_before(&id),
            Outcome::Started(_) | Outcome::Gone => return Err(another()),
        };
        let caller = &Caller {
            once: Some(Box::new(Once {
                tenant: caller.tenant.clone(),
                sandbox: String::new(),
                key: name.1.clone(),
                digest,
            })),
            ..caller.clone()
        };
        let mut own = None;
        let create = async || {
            let created = own.insert(self.create(caller, ask.clone()).await?);
            Ok(created.spec.id.clone())
        };
        let created = cell.get_or_init(create).await.clone();
        if created.is_err() {
            self.idempotency
                .forget_request(&caller.tenant, &name, request.number);
        }
        let id = created?;
        own.map_or_else(|| self.idempotency.created_before(&id), Ok)
    }
}
