//! The sandboxes: listed, ended, and all that is done with one as a whole.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_model::ServedExec;
use atoll_model::network::{Listener, ListensAt};
use tokio::task::spawn_blocking;

use super::answers::AGAIN;
use super::answers::fault;
use super::answers::refusal;
use super::approving::Approvals;
use super::asleep::PausedMemory;
use super::catalogue::Catalogue;
use super::files::WRITTEN_WITHIN;
use super::layered::Layers;
use super::lifecycle::{Lifecycle, Reason, Transition};
use super::list::List;
use super::living::Living;
use super::once::Idempotency;
use super::room::For;
use super::room::{FURTHER, LOOKED};
use super::running::Programs;
use super::server::Server;
use super::sizes::Made;
use super::sizes::{MIB, Sizes, check_sizes};
use super::volumes::Volumes;
use super::warm::Prewarm;
use super::webhooks::Webhooks;
use crate::protocol::{CreateAsk, SizesAsk};
use crate::protocol::{Kind, ListAsk, Listed, PortFacts, Refusal, SandboxFacts};

/// The most attempts to end a sandbox.
const ENDS_MAX: u32 = 5;
/// The most sandboxes in one part of a list.
const LIST_MAX: usize = 100;
/// The time between two looks at the room that is left, while a file is written.
const ROOM_LOOK: Duration = Duration::from_millis(500);

/// The sandboxes of a server.
pub(super) struct Sandboxes {
    pub(super) server: Arc<Server>,
    pub(super) list: Arc<List>,
    pub(super) webhooks: Arc<Webhooks>,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) layers: Arc<Layers>,
    pub(super) volumes: Arc<Volumes>,
    pub(super) approvals: Arc<Approvals>,
    pub(super) idempotency: Arc<Idempotency>,
    pub(super) programs: Arc<Programs>,
    pub(super) prewarm: Arc<Prewarm>,
    pub(super) memory: Arc<PausedMemory>,
    /// Those that each tenant has made of late, and is making.
    pub(super) making: Mutex<Made>,
    /// Held while what one may use is changed, or one is paused: one after the other.
    pub(super) resizing: tokio::sync::Mutex<()>,
    /// Those made and ended since the server's begin.
    pub(super) created: AtomicU64,
    pub(super) ended_all: AtomicU64,
}

impl Sandboxes {
    pub(super) fn new(
        server: &Arc<Server>,
        list: &Arc<List>,
        webhooks: &Arc<Webhooks>,
        layers: &Arc<Layers>,
        volumes: &Arc<Volumes>,
    ) -> Arc<Self> {
        let approvals = Arc::new(Approvals {
            server: Arc::clone(server),
            questions: Mutex::default(),
        });
        let idempotency = Arc::new(Idempotency {
            server: Arc::clone(server),
            list: Arc::clone(list),
            all: Mutex::default(),
        });
        Arc::new(Self {
            programs: Arc::new(Programs {
                server: Arc::clone(server),
                approvals: Arc::clone(&approvals),
                idempotency: Arc::clone(&idempotency),
            }),
            prewarm: Prewarm::new(server, layers),
            memory: Arc::new(PausedMemory {
                server: Arc::clone(server),
                list: Arc::clone(list),
                webhooks: Arc::clone(webhooks),
                volumes: Arc::clone(volumes),
            }),
            approvals,
            idempotency,
            server: Arc::clone(server),
            list: Arc::clone(list),
            webhooks: Arc::clone(webhooks),
            catalogue: Arc::clone(&layers.catalogue),
            layers: Arc::clone(layers),
            volumes: Arc::clone(volumes),
            making: Mutex::default(),
            resizing: tokio::sync::Mutex::default(),
            created: AtomicU64::new(0),
            ended_all: AtomicU64::new(0),
        })
    }

    pub(super) fn list(&self, tenant: &str, ask: &ListAsk) -> Listed {
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
    pub(super) async fn end(self: &Arc<Self>, living: &Arc<Living>, why: Reason) {
        let _ = living.life.pass(Transition::End(why));
        self.ended(living).await;
    }

    /// Ends a sandbox whose pause comes to nothing.
    pub(super) async fn abandon(self: &Arc<Self>, living: &Arc<Living>, why: Reason) {
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
        self.volumes.release(&gone.spec.id);
        self.idempotency.forget_requests(gone);
        self.webhooks.note_killed(gone, &why);
        self.layers
            .release_layers(gone.spec.begun.all().cloned().collect());
    }

    /// Ends all sandboxes.
    pub(super) async fn end_all(self: &Arc<Self>) {
        self.prewarm.end_ahead().await;
        let own = Arc::clone(self);
        let ended = tokio::task::spawn_blocking(move || own.prewarm.end_packages());
        let _ = ended.await;
        let all = self.list.all_living();
        let mut ending = tokio::task::JoinSet::new();
        for living in all {
            let own = Arc::clone(self);
            ending.spawn(async move {
                // What would have been kept at its time is kept now.
                if living.spec.ask.auto_pause {
                    let by = ServedExec::default();
                    if own.pause(&living, false, by).await.is_ok() {
                        return;
                    }
                }
                own.end(&living, Reason::Server).await;
            });
        }
        while ending.join_next().await.is_some() {}
        // One that was just being paused is neither ended nor asleep before it is.
        for living in self.list.all_living() {
            self.list.settled(&living.spec.id).await;
        }
        self.memory.let_all_go().await;
    }

    /// Waits until nothing more may be written to a sandbox's files: the front writes on by itself.
    pub(super) async fn no_more(&self, living: &Living) -> Refusal {
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
                    if let Err(refusal) = self.server.room.check(For::File) {
                        return refusal;
                    }
                }
            }
        }
    }

    /// Sets the life of a sandbox from now on.
    pub(super) fn prolong(
        &self,
        living: &Living,
        seconds: u64,
        extends: bool,
    ) -> Result<(), Refusal> {
        if living.live_for(self.server.life(Some(seconds))?, extends) {
            self.webhooks
                .note_updated(living, "a caller has set its timeout");
        }
        Ok(())
    }

    /// Lists the ports that callers can reach.
    pub(super) async fn ports(&self, living: &Arc<Living>) -> Result<Vec<PortFacts>, Refusal> {
        let sandbox = Arc::clone(&living.sandbox);
        let listening = tokio::task::spawn_blocking(move || sandbox.listeners()).await;
        let listening = listening.map_err(|error| fault(&error))?;
        let listening = listening.map_err(|failure| refusal(&failure))?;
        let facts = |one: Listener| PortFacts {
            port: one.port,
            program: one.program,
            url: self.server.port_url(living, one.port),
        };
        let reached = listening.into_iter();
        let reached = reached.filter(|one| one.at != ListensAt::Elsewhere);
        let mut all: Vec<PortFacts> = reached.map(facts).collect();
        // Once, whatever addresses it listens at.
        all.dedup_by_key(|one| one.port);
        Ok(all)
    }
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

impl Sandboxes {
    /// Ends sandboxes where memory runs out, for as long as the own is there.
    pub(super) async fn keep_room(self: &Arc<Self>) {
        loop {
            tokio::time::sleep(2 * LOOKED).await;
            // Those that stand still hold memory that others need: before anybody is refused.
            if self.server.room.is_short_of_memory(FURTHER)
                && self.memory.let_go_first("memory runs out").await
            {
                continue;
            }
            if !self.server.room.is_short_of_memory(1) {
                continue;
            }
            if let Some(largest) = self.largest().await {
                eprintln!(
                    "atoll serve: memory runs out, so sandbox {} ends",
                    largest.spec.id
                );
                self.end(&largest, Reason::Memory).await;
            }
        }
    }

    /// Returns the living sandbox that holds most memory; the youngest of those that hold as much.
    async fn largest(&self) -> Option<Arc<Living>> {
        let all = self.list.all_living();
        let find = move || {
            let memory = |one: &Arc<Living>| one.sandbox.memory_bytes().unwrap_or(0);
            all.into_iter()
                .filter(|one| one.life.is(Lifecycle::is_running))
                .max_by_key(|one| (memory(one), one.started))
        };
        tokio::task::spawn_blocking(find).await.ok().flatten()
    }
}

impl Sandboxes {
    /// Changes what a living sandbox may use, within the quotas of its tenant.
    pub(super) async fn set_sizes(
        &self,
        living: &Arc<Living>,
        asked: SizesAsk,
        by: ServedExec,
    ) -> Result<(), Refusal> {
        // One after the other: what is counted is what is set.
        let _one_by_one = self.resizing.lock().await;
        let ask = CreateAsk {
            cpus: asked.cpus,
            memory_mib: asked.memory_mib,
            ..CreateAsk::default()
        };
        let wanted = self.server.limits(&ask)?;
        let (mut limits, mut cpus) = living.sizes().clone();
        let before = Sizes::of(&limits, cpus);
        if asked.memory_mib.is_some() {
            limits.memory_mib = wanted.memory_mib;
        }
        cpus = asked.cpus.unwrap_or(cpus);
        let others = self.list.alive(&living.spec.tenant).without(before);
        check_sizes(
            &self.server.configuration.quota,
            others,
            Sizes::of(&limits, cpus),
        )?;
        let sandbox = Arc::clone(&living.sandbox);
        let memory = asked.memory_mib.map(|mebibytes| mebibytes * MIB);
        let processors = asked.cpus.map(|cpus| u64::from(cpus) * 1000);
        let resized = spawn_blocking(move || sandbox.resize(memory, processors, &by));
        let resized = resized.await.map_err(|error| fault(&error))?;
        resized.map_err(|failure| refusal(&failure))?;
        *living.sizes() = (limits, cpus);
        self.webhooks
            .note_updated(living, "a caller has changed its sizes");
        Ok(())
    }
}
