//! Pausing sandboxes: with their memory where there is room, or their files alone.

use std::sync::Arc;

use atoll_model::{ServedExec, VolumeMount};
use atoll_store::PausedSandbox;
use tokio::task::spawn_blocking;

use super::asleep::{ASLEEP, Asleep};
use super::living::Living;
use super::paused::{Paused, Record};
use super::{Worker, fault, refusal};
use crate::protocol::{CreateAsk, Kind, MountAsk, Refusal, SandboxFacts};

/// The reason for the end of one that is paused.
const PAUSED: &str = "it is paused";

impl Worker {
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
        let is_own = |one: &&Arc<Paused>| one.tenant == living.tenant;
        let pausing = |one: &&Arc<Living>| one.tenant == living.tenant && one.is_pausing();
        // Never both lists at once: others take them the other way round.
        let paused = self.paused().values().filter(is_own).count();
        let pausing = self.living().values().filter(pausing).count();
        let count = paused + pausing;
        let most = self.configuration.quota.paused;
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
            id: living.id.clone(),
            tenant: living.tenant.clone(),
            record: serde_json::to_string(&record).map_err(|error| fault(&error))?,
        };
        let sleeps = with_memory && self.may_sleep(living);
        // From here on it ends in no other way.
        let is_first = living.over.send_if_modified(|over| {
            let is_first = over.is_none();
            if is_first {
                living.begin_pausing();
                *over = Some(if sleeps { ASLEEP } else { PAUSED }.to_owned());
            }
            is_first
        });
        drop(one_by_one);
        if !is_first {
            let why = living.over.borrow().clone().unwrap_or_default();
            let what = format!("sandbox {} is ending: {why}", living.id);
            return Err(Refusal::new(Kind::NoSandbox, what));
        }
        let asleep = self.keep(living, row, sleeps, by).await;
        if let Err(refusal) = asleep {
            self.forget_paused(&living.id);
            living.end_pausing(&format!("it could not be paused: {}", refusal.what));
            let why = living.over.borrow().clone().unwrap_or_default();
            self.end(living, &why).await;
            return Err(refusal);
        }
        let asleep = asleep.ok().flatten();
        let (is_asleep, why) = match &asleep {
            Some(_) => (true, "its memory and its files are kept"),
            None => (false, "its files are kept, its programs are not"),
        };
        if !is_asleep {
            self.release(&living.id);
            self.end_requests(living);
        }
        let paused = Paused::of(living.id.clone(), living.tenant.clone(), record, asleep);
        self.paused().insert(living.id.clone(), paused);
        self.living().remove(&living.id);
        self.note_ended_as(living, "paused", why);
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
            if let Some(asleep) = self.put_to_sleep(living, row.clone(), by).await {
                return Ok(Some(asleep));
            }
            living.over.send_replace(Some(PAUSED.to_owned()));
        }
        living.files.settled().await;
        let (worker, of) = (Arc::clone(self), Arc::clone(living));
        let kept = spawn_blocking(move || {
            worker.make_kept_homes()?;
            worker.store.pause(&row).map_err(|error| fault(&error))?;
            let home = worker.kept(&of.id);
            let kept = match of.rooted {
                None => of.sandbox.kill_keeping_home(&home),
                Some(_) => of
                    .sandbox
                    .kill_keeping_all(&home, &worker.kept_changes(&of.id)),
            };
            kept.map(|_| None).map_err(|failure| refusal(&failure))
        });
        kept.await.map_err(|error| fault(&error)).flatten()
    }

    fn paused_record(&self, living: &Living) -> Record {
        Record {
            ask: self.record_ask(living),
            caller: living.caller.clone(),
            token: living.token.clone(),
            port_token: living.port_token.clone(),
            base: living.sandbox.home_base(),
            shipped: living.shipped.clone(),
            begun: living.begun.clone(),
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
        let by_default = self.processors(None);
        CreateAsk {
            cpus: (living.ask.cpus.is_some() || cpus != by_default).then_some(cpus),
            memory_mib: Some(limits.memory_mib),
            disk_mib: Some(limits.disk_mib),
            processes: Some(limits.processes),
            volumes: by_id(living),
            network,
            ..living.ask.clone()
        }
    }
}

/// Returns the volumes of a sandbox, so that it gets these again, and none that has taken a name.
fn by_id(living: &Living) -> Vec<MountAsk> {
    let mounts = living.volumes.iter();
    let by_id = |mount: &VolumeMount| MountAsk {
        name: mount.id.clone(),
        path: mount.inside.display().to_string(),
        read_only: mount.read_only,
    };
    mounts.map(by_id).collect()
}
