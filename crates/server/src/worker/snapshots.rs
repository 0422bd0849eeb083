//! Snapshots of sandboxes' files, which further sandboxes begin with, and forks.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use atoll_engine::sandboxes::{disk_bytes, remove_home};
use atoll_store::Snapshot;
use tokio::sync::SemaphorePermit;
use tokio::task::spawn_blocking;

use super::answers::Answer;
use super::answers::Answered;
use super::answers::fault;
use super::answers::name;
use super::begun::Begun;
use super::begun::begun_of;
use super::caller::Caller;
use super::catalogue::Catalogue;
use super::holding::Hold;
use super::identity::Identity;
use super::layered::Frozen;
use super::layered::Layers;
use super::living::Living;
use super::paused::Paused;
use super::room::For;
use super::sandboxes::Sandboxes;
use super::server::Server;
use super::webhooks::Webhooks;
use crate::protocol::{CreateAsk, Forks, Kind, MadeSnapshot, Refusal, SnapshotFacts, SnapshotsAsk};
use crate::rfc3339::milliseconds;

/// The most sandboxes that one request forks, as E2B has it.
const FORKS_MAX: usize = 100;
/// The longest name of a snapshot, bytes.
const NAME_BYTES_MAX: usize = 128;

/// The snapshots of sandboxes.
pub(super) struct Snapshots {
    pub(super) server: Arc<Server>,
    pub(super) webhooks: Arc<Webhooks>,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) layers: Arc<Layers>,
    pub(super) sandboxes: Arc<Sandboxes>,
    /// Held while they are counted, and one is begun.
    pub(super) making: tokio::sync::Mutex<()>,
}

impl Snapshots {
    pub(super) fn new(sandboxes: &Arc<Sandboxes>) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(&sandboxes.server),
            webhooks: Arc::clone(&sandboxes.webhooks),
            catalogue: Arc::clone(&sandboxes.catalogue),
            layers: Arc::clone(&sandboxes.layers),
            sandboxes: Arc::clone(sandboxes),
            making: tokio::sync::Mutex::default(),
        })
    }

    /// Removes snapshots that were not made to their end, and gives those of an earlier form a layer.
    pub(super) fn find_snapshots(self: &Arc<Self>) {
        let all = self.server.store.snapshots().unwrap_or_else(|error| {
            eprintln!("atoll serve: {error}");
            Vec::new()
        });
        let old = self.server.engine.state().join("served/snapshots");
        let mut are_moved = true;
        for one in all {
            if !one.is_whole {
                self.drop_snapshot(&one);
            } else if one.layers.is_empty()
                && let Err(refusal) = self.give_layer(&one, &old.join(&one.id))
            {
                eprintln!("atoll serve: snapshot {}: {}", one.id, refusal.what);
                are_moved = false;
            }
        }
        // Root's changes stand on templates that are no more.
        if are_moved {
            let _ = remove_home(&old);
        }
    }

    /// Makes a layer of the home of a snapshot of an earlier form. Again and again it comes to the
    /// same: the server can end in between.
    fn give_layer(&self, one: &Snapshot, home: &Path) -> Result<(), Refusal> {
        let begun = Begun {
            home: vec![format!("layer{}", one.id)],
            system: Vec::new(),
            base: one.base,
        };
        std::fs::create_dir_all(self.layers.layers()).map_err(|error| fault(&error))?;
        for to in self
            .layers
            .paths(&begun.home)
            .iter()
            .filter(|to| !to.exists())
        {
            std::fs::rename(home, to).map_err(|error| fault(&error))?;
        }
        let layers = serde_json::to_string(&begun).map_err(|error| fault(&error))?;
        let kept = self.server.store.keep_snapshot(&Snapshot {
            layers,
            ..one.clone()
        });
        kept.map_err(|error| fault(&error))
    }

    /// Removes a snapshot, and those of its layers that nobody else has.
    pub(super) fn drop_snapshot(self: &Arc<Self>, one: &Snapshot) {
        match self.server.store.remove_snapshot(&one.id) {
            Ok(_) => {
                let begun = begun_of(one).unwrap_or_default();
                self.layers.release_layers(begun.all().cloned().collect());
            }
            Err(error) => eprintln!("atoll serve: {error}"),
        }
    }

    /// Makes a snapshot of a sandbox, which stands still meanwhile.
    pub(super) async fn snapshot(
        self: &Arc<Self>,
        of: Source<'_>,
        named: Option<String>,
    ) -> Result<MadeSnapshot, Refusal> {
        self.server.room.check(For::Sandbox)?;
        if named.as_ref().is_some_and(|name| !is_name(name)) {
            let what = format!(
                "a snapshot's name has up to {NAME_BYTES_MAX} letters, digits, '.', '_', '-', ':'"
            );
            return Err(Refusal::new(Kind::Invalid, what));
        }
        // Counted with those that are being made, one after the other.
        let one_by_one = self.making.lock().await;
        let all = self.server.store.snapshots();
        let all = all.map_err(|error| fault(&error))?;
        let (tenant, sandbox, shipped) = of.facts();
        let own = all.iter().filter(|one| one.tenant == *tenant);
        if let Some(named) = &named {
            let is_it = |one: &Snapshot| one.name.as_ref() == Some(named) || one.id == *named;
            self.catalogue
                .check_free(tenant, named, own.clone().any(is_it))?;
        }
        let most = self.server.configuration.quota.snapshots;
        if own.count() >= most {
            let what = format!("the tenant has {most} snapshots, as many as it may");
            return Err(Refusal::new(Kind::Quota, what)
                .advise("delete one, or raise quota.snapshots in serve.toml"));
        }
        let begun = Snapshot {
            id: format!("snap{}", name(20)?),
            tenant: tenant.clone(),
            name: named,
            sandbox: sandbox.clone(),
            shipped: shipped.to_owned(),
            created_ms: milliseconds(SystemTime::now()),
            base: None,
            bytes: 0,
            is_whole: false,
            layers: String::new(),
        };
        let begin = self.server.store.keep_snapshot(&begun);
        begin.map_err(|error| fault(&error))?;
        drop(one_by_one);
        let hold = self.layers.hold_layers();
        let (own, of_it, held) = (Arc::clone(self), of.clone_of(), Arc::clone(&hold));
        let _written = of.written().await;
        let made = spawn_blocking(move || {
            let frozen = own.freeze(&of_it, &held);
            let frozen = frozen.inspect_err(|_| own.drop_snapshot(&begun))?;
            let whole = Snapshot {
                base: frozen.begun.base,
                bytes: disk_bytes(&own.layers.paths(&frozen.begun.home)),
                is_whole: true,
                layers: serde_json::to_string(&frozen.begun).map_err(|error| fault(&error))?,
                ..begun
            };
            let kept = own.server.store.keep_snapshot(&whole);
            let kept = kept.map(|()| (whole, frozen.filed));
            kept.map_err(|error| fault(&error))
        });
        let (made, filed) = made.await.map_err(|error| fault(&error)).flatten()?;
        if let Source::Living(living) = of {
            self.webhooks
                .note_as(living, "checkpointed", "a caller has made a snapshot");
        }
        let facts = facts(made);
        Ok(MadeSnapshot { facts, filed })
    }

    /// Makes layers of what a sandbox has at one moment.
    fn freeze(self: &Arc<Self>, of: &Own, hold: &Arc<Hold>) -> Result<Frozen, Refusal> {
        match of {
            Own::Living(living) => self.layers.freeze_living(living, hold),
            Own::Paused(paused) => self.layers.freeze_paused(paused, hold),
        }
    }

    /// Carries out a request about snapshots.
    pub(super) async fn snapshots(
        self: &Arc<Self>,
        caller: &Caller,
        ask: SnapshotsAsk,
    ) -> Result<Answered, Refusal> {
        self.server.can_make(caller)?;
        match ask {
            SnapshotsAsk::ListSnapshots(ask) => {
                let mut own = self.catalogue.snapshots_of(&caller.tenant)?;
                own.retain(|one| ask.sandbox.as_ref().is_none_or(|id| one.sandbox == *id));
                ask.answer(own.into_iter().map(facts).collect())
            }
            SnapshotsAsk::RemoveSnapshot(ask) => {
                let one = self.catalogue.snapshot_named(&caller.tenant, &ask.id)?;
                let own = Arc::clone(self);
                let dropped = spawn_blocking(move || own.drop_snapshot(&one)).await;
                ask.answer(dropped.map_err(|error| fault(&error))?)
            }
        }
    }

    /// Makes further sandboxes that begin with the files of one, as it is at one moment.
    pub(super) async fn fork(
        self: &Arc<Self>,
        of: Source<'_>,
        forked: Forked,
        caller: &Caller,
    ) -> Result<Forks, Refusal> {
        self.server.room.check(For::Sandbox)?;
        let hold = self.layers.hold_layers();
        let written = of.written().await;
        let (own, of, held) = (Arc::clone(self), of.clone_of(), Arc::clone(&hold));
        let frozen = spawn_blocking(move || own.freeze(&of, &held)).await;
        drop(written);
        let frozen = frozen.map_err(|error| fault(&error)).flatten()?;
        let mut forks = Vec::with_capacity(forked.count);
        for _ in 0..forked.count {
            let template = self.catalogue.template_of(&forked.shipped)?;
            let shipped = forked.shipped.clone();
            let identity = Identity::new(&forked.ask, shipped, frozen.begun.clone());
            let made = match identity {
                Ok(identity) => {
                    let ask = forked.ask.clone();
                    self.sandboxes
                        .create_as(caller, None, ask, identity.on(template))
                        .await
                }
                Err(refusal) => Err(refusal),
            };
            forks.push(made.map(|living| living.described_to(&caller.scopes)));
        }
        drop(hold);
        let filed = frozen.filed;
        Ok(Forks { forks, filed })
    }
}

/// A sandbox that others are to begin as.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Living(&'a Arc<Living>),
    Paused(&'a Arc<Paused>),
}

/// One for another thread.
enum Own {
    Living(Arc<Living>),
    Paused(Arc<Paused>),
}

impl Source<'_> {
    fn clone_of(self) -> Own {
        match self {
            Self::Living(living) => Own::Living(Arc::clone(living)),
            Self::Paused(paused) => Own::Paused(Arc::clone(paused)),
        }
    }

    /// Waits until the files of one that lives are written that are being written.
    async fn written(&self) -> Option<SemaphorePermit<'_>> {
        match self {
            Self::Living(living) => living.files.written().await,
            Self::Paused(_) => None,
        }
    }

    /// Returns its tenant, its id, and the template that it stands on.
    fn facts(&self) -> (&String, &String, &str) {
        match self {
            Self::Living(living) => (&living.spec.tenant, &living.spec.id, &living.spec.shipped),
            Self::Paused(paused) => (&paused.tenant, &paused.id, paused.shipped()),
        }
    }
}

/// A request for forks.
pub(super) struct Forked {
    shipped: String,
    ask: CreateAsk,
    count: usize,
}

impl Forked {
    pub(super) fn new(shipped: &str, ask: CreateAsk, count: usize) -> Result<Self, Refusal> {
        if !(1..=FORKS_MAX).contains(&count) {
            let what = format!("count is {count}, and it is 1 to {FORKS_MAX}");
            return Err(Refusal::new(Kind::Invalid, what));
        }
        Ok(Self {
            shipped: shipped.to_owned(),
            ask,
            count,
        })
    }
}

fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

fn facts(one: Snapshot) -> SnapshotFacts {
    SnapshotFacts {
        id: one.id,
        name: one.name,
        sandbox: one.sandbox,
        created_ms: one.created_ms,
    }
}
