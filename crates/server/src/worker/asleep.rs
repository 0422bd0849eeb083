//! Paused sandboxes whose memory is kept: their processes stand still where they are, for a time, and
//! for as long as there is room. After that they are kept as files alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::Sandbox;
use atoll_model::ServedExec;
use atoll_store::PausedSandbox;
use serde_json::json;
use tokio::task::spawn_blocking;

use super::answers::fault;
use super::answers::refusal;
use super::lifecycle::{Reason, Transition};
use super::list::List;
use super::living::Living;
use super::paused::Asleep;
use super::paused::Paused;
use super::room::For;
use super::server::Server;
use super::shares::CROWDED_FROM;
use super::shares::Of;
use super::sizes::{Sizes, check_sizes};
use super::volumes::Volumes;
use super::webhooks::Webhooks;

/// The time between two looks whether they stand still.
const LOOK: Duration = Duration::from_secs(5);
/// The longest time in which it is let go once the server ends, and the time between two attempts.
const LEFT_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The memory of paused sandboxes.
pub(super) struct PausedMemory {
    pub(super) server: Arc<Server>,
    pub(super) list: Arc<List>,
    pub(super) webhooks: Arc<Webhooks>,
    pub(super) volumes: Arc<Volumes>,
}

impl PausedMemory {
    /// Returns whether memory of this one can be kept: with those that are alive its tenant has no more
    /// than it may, and there is room.
    pub(super) fn may_sleep(&self, living: &Living) -> bool {
        let own = Sizes::of_living(living);
        let others = self.list.alive(&living.spec.tenant).without(own);
        let all = others.with(self.asleep_sizes(&living.spec.tenant));
        self.server.configuration.pause.memory_s > 0
            && check_sizes(&self.server.configuration.quota, all, own).is_ok()
            && !self.is_crowded()
            && self.server.room.check(For::Ahead).is_ok()
            && !self.server.is_draining()
    }

    /// Returns whether so many processes are supervised that further sandboxes would be refused soon.
    fn is_crowded(&self) -> bool {
        self.server
            .shares
            .is_used_beyond(Of::Sandboxes, CROWDED_FROM)
    }

    /// Returns what the sandboxes of a tenant whose memory is kept may use together.
    pub(super) fn asleep_sizes(&self, tenant: &str) -> Sizes {
        let (_, own) = self.list.of(tenant);
        let own = own.iter().filter_map(|one| one.sleeper());
        own.fold(Sizes::default(), |all, one| {
            all.with(Sizes::of_living(&one))
        })
    }

    /// Has a sandbox stand still, which is being paused. Where it cannot, it goes on.
    pub(super) async fn put_to_sleep(
        self: &Arc<Self>,
        living: &Arc<Living>,
        row: PausedSandbox,
        by: ServedExec,
    ) -> Option<Asleep> {
        let (own, of) = (Arc::clone(self), Arc::clone(living));
        let still = spawn_blocking(move || {
            let written = own.server.store.pause_at_once(&row);
            written.map_err(|error| fault(&error))?;
            let still = of.sandbox.stand_still(&by);
            still.map_err(|failure| refusal(&failure))
        });
        let still = still.await.map_err(|error| fault(&error)).flatten();
        match still {
            Ok(still) => {
                // Nobody waits for the disk: while the machine goes on, what was written is there.
                let (own, of) = (Arc::clone(self), Arc::clone(living));
                drop(spawn_blocking(move || {
                    let _ = of.sandbox.settle_home();
                    let _ = own.server.store.settle_paused();
                }));
                Some(Asleep {
                    living: Arc::clone(living),
                    still: Arc::new(still),
                    since: Instant::now(),
                })
            }
            Err(refusal) => {
                eprintln!(
                    "atoll serve: memory of sandbox {} is not kept: {}",
                    living.spec.id, refusal.what
                );
                None
            }
        }
    }

    /// Ends the processes of a paused sandbox, whose files are kept, on disk before this returns; returns
    /// whether it did. One that something is done with is left alone.
    async fn let_go(&self, paused: &Arc<Paused>, why: &str) -> bool {
        match paused.stays_now() {
            Some(_stays) => self.let_go_now(paused, why).await,
            None => false,
        }
    }

    async fn let_go_now(&self, paused: &Arc<Paused>, why: &str) -> bool {
        let has_gone = self.end_asleep(paused, Sandbox::end_still).await;
        if has_gone {
            let facts = json!({ "why": format!("{why}: its files are kept, its memory is not") });
            self.webhooks
                .note(&paused.tenant, &paused.id, "updated", &facts);
        }
        has_gone
    }

    /// Ends the processes of a paused sandbox, of which nothing else is asked meanwhile; returns whether
    /// it had any, and they are gone.
    pub(super) async fn end_asleep(
        &self,
        paused: &Arc<Paused>,
        end: fn(&Sandbox) -> Result<(), Failure>,
    ) -> bool {
        let Some(asleep) = paused.asleep().take() else {
            return false;
        };
        let living = Arc::clone(&asleep.living);
        let ended = spawn_blocking(move || end(&living.sandbox)).await;
        let ended = ended.map_err(|error| fault(&error));
        let ended = ended.and_then(|done| done.map_err(|failure| refusal(&failure)));
        if let Err(refusal) = ended {
            eprintln!("atoll serve: sandbox {}: {}", paused.id, refusal.what);
            if !asleep.living.sandbox.has_ended() {
                // It stands still as before, and is asked again.
                *paused.asleep() = Some(asleep);
                return false;
            }
        }
        let why = Reason::Exited("its memory was let go".to_owned());
        let _ = paused.life.pass(Transition::Exit(why));
        self.volumes.release(&paused.id);
        true
    }

    /// Lets memory go that was kept for long enough, that is needed, or whose processes do not stand
    /// still; for as long as the own is there.
    pub(super) async fn keep_asleep(self: &Arc<Self>) {
        let longest = Duration::from_secs(self.server.configuration.pause.memory_s);
        loop {
            tokio::time::sleep(LOOK).await;
            let sleepers = sleepers(&self.list);
            for paused in sleepers {
                let is_late = paused
                    .since()
                    .is_some_and(|since| since.elapsed() >= longest);
                match is_late {
                    true => drop(self.let_go(&paused, "its time was over").await),
                    false => self.check_still(&paused).await,
                }
            }
            while self.is_crowded() && self.let_go_first("others need the room").await {}
        }
    }

    /// Lets the memory go that is kept for longest, of the tenant that has most; returns whether there
    /// was one.
    pub(super) async fn let_go_first(&self, why: &str) -> bool {
        let mut sleepers = sleepers(&self.list);
        let mut counts = BTreeMap::<String, usize>::new();
        for one in &sleepers {
            *counts.entry(one.tenant.clone()).or_default() += 1;
        }
        sleepers.sort_by_key(|one| (Reverse(counts.get(&one.tenant).copied()), one.since()));
        for one in sleepers {
            if self.let_go(&one, why).await {
                return true;
            }
        }
        false
    }

    /// Lets all memory go.
    pub(super) async fn let_all_go(self: &Arc<Self>) {
        let mut going = tokio::task::JoinSet::new();
        for paused in sleepers(&self.list) {
            let own = Arc::clone(self);
            going.spawn(async move {
                let until = Instant::now() + LEFT_WITHIN;
                // What something is done with keeps its files all the same.
                while !own.let_go(&paused, "the server has ended").await
                    && paused.is_asleep()
                    && Instant::now() < until
                {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            });
        }
        while going.join_next().await.is_some() {}
    }

    /// Returns whether no thread of a paused sandbox has run, or ended, since it stands still.
    pub(super) async fn has_held(&self, paused: &Arc<Paused>) -> bool {
        let still = paused.asleep().as_ref().map(|one| Arc::clone(&one.still));
        let Some(still) = still else {
            return true;
        };
        let has_held = spawn_blocking(move || still.has_held()).await;
        has_held.unwrap_or(false)
    }

    async fn check_still(&self, paused: &Arc<Paused>) {
        // Nobody has it go on meanwhile: it would stand still until this is known.
        let Some(_stays) = paused.stays_now() else {
            return;
        };
        if !self.has_held(paused).await {
            self.let_go_now(paused, "a program of it went on by itself")
                .await;
        }
    }
}

fn sleepers(list: &List) -> Vec<Arc<Paused>> {
    let mut all = list.all_paused();
    all.retain(|one| one.is_asleep());
    all
}
