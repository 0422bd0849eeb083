//! The sandboxes: listed, ended, and all that is done with one as a whole.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_model::ServedExec;
use atoll_model::network::{Listener, ListensAt};

use super::approving::Approvals;
use super::asleep::PausedMemory;
use super::catalogue::Catalogue;
use super::common::Common;
use super::files::WRITTEN_WITHIN;
use super::layered::Layers;
use super::lifecycle::{Lifecycle, Reason, Transition};
use super::list::List;
use super::living::Living;
use super::making::Made;
use super::once::Idempotency;
use super::room::For;
use super::running::Programs;
use super::volumes::Volumes;
use super::warm::Prewarm;
use super::webhooks::Webhooks;
use super::{AGAIN, fault, refusal};
use crate::protocol::{Kind, ListAsk, Listed, PortFacts, Refusal, SandboxFacts};

/// The most attempts to end a sandbox.
const ENDS_MAX: u32 = 5;
/// The most sandboxes in one part of a list.
const LIST_MAX: usize = 100;
/// The time between two looks at the room that is left, while a file is written.
const ROOM_LOOK: Duration = Duration::from_millis(500);

/// The sandboxes of a server.
pub(super) struct Sandboxes {
    pub(super) common: Arc<Common>,
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
        common: &Arc<Common>,
        list: &Arc<List>,
        webhooks: &Arc<Webhooks>,
        layers: &Arc<Layers>,
        volumes: &Arc<Volumes>,
    ) -> Arc<Self> {
        let approvals = Arc::new(Approvals {
            common: Arc::clone(common),
            questions: Mutex::default(),
        });
        let idempotency = Arc::new(Idempotency {
            common: Arc::clone(common),
            list: Arc::clone(list),
            all: Mutex::default(),
        });
        Arc::new(Self {
            programs: Arc::new(Programs {
                common: Arc::clone(common),
                approvals: Arc::clone(&approvals),
                idempotency: Arc::clone(&idempotency),
            }),
            prewarm: Prewarm::new(common, layers),
            memory: Arc::new(PausedMemory {
                common: Arc::clone(common),
                list: Arc::clone(list),
                webhooks: Arc::clone(webhooks),
                volumes: Arc::clone(volumes),
            }),
            approvals,
            idempotency,
            common: Arc::clone(common),
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
                    if let Err(refusal) = self.common.room.check(For::File) {
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
        if living.live_for(self.common.life(Some(seconds))?, extends) {
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
            url: self.common.port_url(living, one.port),
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
