//! Pausing sandboxes: with their memory where there is room, or their files alone.

use std::sync::Arc;

use atoll_model::{ServedExec, VolumeMount};
use atoll_store::PausedSandbox;
use tokio::task::spawn_blocking;

use super::answers::fault;
use super::answers::refusal;
use super::lifecycle::{Lifecycle, Reason, Transition};
use super::living::Living;
use super::paused::Asleep;
use super::paused::{Paused, Record};
use super::sandboxes::Sandboxes;
use crate::protocol::{CreateAsk, Kind, MountAsk, Refusal, SandboxFacts};

impl Sandboxes {
    /// Pauses a sandbox. With its memory its processes stand still where they are, if there is room;
    /// otherwise its programs end, and its home is kept, on disk before this returns. Returns whether
    /// its memory is kept.
    pub(super) async fn pause(
        self: &Arc<Self>,
        living: &Arc<Living>,
        with_memory: bool,
        by: ServedExec,
    ) -> Result<bool, Refusal> {
        // Counted with those that are being paused, one after the other.
        let one_by_one = self.resizing.lock().await;
        let (alive, paused) = self.list.of(&living.spec.tenant);
        let pausing = alive.iter().filter(|one| one.life.is(Lifecycle::is_pause));
        let count = paused.len() + pausing.count();
        let most = self.server.configuration.quota.paused;
        if count >= most {
            let what = format!("{most} sandboxes are paused, as many as the tenant may have");
            return Err(Refusal {
                retry_after_s: Some(5),
                ..Refusal::new(Kind::Quota, what)
                    .advise("end one, or raise quota.paused in serve.toml")
            });
        }
        let record = self.paused_record(living);
        let row = PausedSandbox {
            id: living.spec.id.clone(),
            tenant: living.spec.tenant.clone(),
            record: serde_json::to_string(&record).map_err(|error| fault(&error))?,
        };
        let sleeps = with_memory && self.memory.may_sleep(living);
        // From here on it ends in no other way.
        let begun = living.life.pass(Transition::Pause { memory: sleeps });
        drop(one_by_one);
        begun.map_err(|state| state.refusal(&living.spec.id))?;
        let asleep = self.keep(living, row, sleeps, by).await;
        if let Err(refusal) = asleep {
            self.layers.forget_paused(&living.spec.id);
            let why = format!("it could not be paused: {}", refusal.what);
            self.abandon(living, Reason::NotKept(why)).await;
            return Err(refusal);
        }
        let asleep = asleep.ok().flatten();
        let (is_asleep, why) = match &asleep {
            Some(_) => (true, "its memory and its files are kept"),
            None => (false, "its files are kept, its programs are not"),
        };
        if !is_asleep {
            self.volumes.release(&living.spec.id);
            self.idempotency.end_requests(living);
        }
        let (id, tenant) = (living.spec.id.clone(), living.spec.tenant.clone());
        let paused = Paused::of(id, tenant, record, living.life.clone());
        paused.keep_asleep(asleep);
        self.list.put_paused(paused);
        self.webhooks.note_ended_as(living, "paused", why);
        Ok(is_asleep)
    }

    /// Writes down that a sandbox is paused, and keeps what it has: its processes if it sleeps and can,
    /// its files alone otherwise.
    async fn keep(
        self: &Arc<Self>,
        living: &Arc<Living>,
        row: PausedSandbox,
        sleeps: bool,
        by: ServedExec,
    ) -> Result<Option<Asleep>, Refusal> {
        if sleeps {
            // One that is paused is written to no further; one that goes on is again.
            let _written = living.files.written().await;
            if let Some(asleep) = self.memory.put_to_sleep(living, row.clone(), by).await {
                return Ok(Some(asleep));
            }
            let why = Reason::NotKept("its processes do not stand still".to_owned());
            let _ = living.life.pass(Transition::Exit(why));
        }
        living.files.settled().await;
        let (own, of) = (Arc::clone(self), Arc::clone(living));
        let kept = spawn_blocking(move || {
            own.layers.make_kept_homes()?;
            own.server
                .store
                .pause(&row)
                .map_err(|error| fault(&error))?;
            let home = own.layers.kept(&of.spec.id);
            let kept = match of.spec.rooted {
                None => of.sandbox.kill_keeping_home(&home),
                Some(_) => of
                    .sandbox
                    .kill_keeping_all(&home, &own.layers.kept_changes(&of.spec.id)),
            };
            kept.map(|_| None).map_err(|failure| refusal(&failure))
        });
        kept.await.map_err(|error| fault(&error)).flatten()
    }

    fn paused_record(&self, living: &Living) -> Record {
        Record {
            ask: self.record_ask(living),
            caller: living.spec.caller.clone(),
            token: living.spec.token.clone(),
            port_token: living.spec.port_token.clone(),
            base: living.sandbox.home_base(),
            shipped: living.spec.shipped.clone(),
            begun: living.spec.begun.clone(),
            facts: SandboxFacts {
                state: "paused".to_owned(),
                ..living.facts()
            },
        }
    }

    /// Returns the request that makes a sandbox as this one is now.
    pub(super) fn record_ask(&self, living: &Living) -> CreateAsk {
        let (limits, cpus) = living.sizes().clone();
        let (_, network) = living.network().clone();
        let by_default = self.server.processors(None);
        CreateAsk {
            cpus: (living.spec.ask.cpus.is_some() || cpus != by_default).then_some(cpus),
            memory_mib: Some(limits.memory_mib),
            disk_mib: Some(limits.disk_mib),
            processes: Some(limits.processes),
            volumes: by_id(living),
            network,
            ..living.spec.ask.clone()
        }
    }
}

/// Returns the volumes of a sandbox, so that it gets these again, and none that has taken a name.
fn by_id(living: &Living) -> Vec<MountAsk> {
    let mounts = living.spec.volumes.iter();
    let by_id = |mount: &VolumeMount| MountAsk {
        name: mount.id.clone(),
        path: mount.inside.display().to_string(),
        read_only: mount.read_only,
    };
    mounts.map(by_id).collect()
}
