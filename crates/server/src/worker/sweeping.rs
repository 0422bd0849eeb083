//! The sweep of all that is kept, at intervals: by the rules of `retention.toml`, each time as they are
//! then.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use atoll_data::retention::{Place, Rules, ServedRemoval, Swept, sweep};
use atoll_engine::artifacts::kept_by;
use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::sandboxes::remove_home;
use atoll_ledger::StateDir;
use atoll_store::{SandboxStore as _, ServedStore, home_name};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::begun::changes_beside;
use super::layered::HOMES;
use super::sandboxes::Sandboxes;
use super::server::Server;
use super::snapshots::Snapshots;

/// The time between two sweeps.
const EVERY: Duration = Duration::from_secs(3_600);
const FAILED: &str = "it cannot be removed";

/// The sweep of a server that runs.
pub(super) struct Sweeping {
    server: Arc<Server>,
    sandboxes: Arc<Sandboxes>,
    snapshots: Arc<Snapshots>,
}

impl Sweeping {
    pub(super) fn new(snapshots: &Arc<Snapshots>) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(&snapshots.server),
            sandboxes: Arc::clone(&snapshots.sandboxes),
            snapshots: Arc::clone(snapshots),
        })
    }

    /// Sweeps at once, and then again and again.
    pub(super) async fn sweep_now_and_then(self: &Arc<Self>) {
        loop {
            let own = Arc::clone(self);
            match spawn_blocking(move || own.sweep()).await {
                Ok(Ok(swept)) => {
                    for (what, why) in swept.left {
                        eprintln!("atoll serve: {what} was not removed: {why}");
                    }
                }
                Ok(Err(failure)) => {
                    let why = failure.why.unwrap_or(failure.what);
                    eprintln!("atoll serve: nothing more is swept: {why}");
                }
                Err(error) => eprintln!("atoll serve: nothing more is swept: {error}"),
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    fn sweep(&self) -> Result<Swept, Failure> {
        let rules = Rules::read(&Places::read()?)?;
        let (state, ledger) = kept_by(&self.server.engine);
        let store = Some(&*self.server.store);
        let place = Place {
            state,
            ledger,
            store,
        };
        sweep(&place, &rules, Some(self), SystemTime::now())
    }
}

impl ServedRemoval for Sweeping {
    fn end_paused(&self, id: &str) -> Result<(), Failure> {
        let paused = self.sandboxes.list.paused(id).ok_or_else(|| {
            Failure::new(FAILED).because("it goes on, or is of another version of Atoll")
        })?;
        let why = "it was paused for longer than is kept";
        let ended = Handle::current().block_on(self.sandboxes.end_paused(&paused, why));
        ended.map_err(|refusal| Failure::new(FAILED).because(refusal.what))
    }

    fn remove_snapshot(&self, id: &str) -> Result<(), Failure> {
        let all = self.server.store.snapshots().doing(FAILED)?;
        if let Some(one) = all.iter().find(|one| one.id == id) {
            self.snapshots.drop_snapshot(one);
        }
        Ok(())
    }
}

/// The sweep of the store of a server that does not run, which is this process's alone.
pub struct Offline<'a> {
    /// The state directory.
    pub state: &'a StateDir,
    /// The store.
    pub store: &'a ServedStore,
}

impl ServedRemoval for Offline<'_> {
    fn end_paused(&self, id: &str) -> Result<(), Failure> {
        self.store.unpause(id).doing(FAILED)?;
        self.store.settle_paused().doing(FAILED)?;
        let home = self.state.path().join(HOMES).join(home_name(id));
        remove_home(&changes_beside(&home))?;
        remove_home(&home)
    }

    fn remove_snapshot(&self, id: &str) -> Result<(), Failure> {
        // The next server removes layers that nobody has any more.
        self.store.remove_snapshot(id).doing(FAILED).map(drop)
    }
}
