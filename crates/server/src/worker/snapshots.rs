//! Snapshots of sandboxes' files, which further sandboxes begin with, and forks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use atoll_engine::sandboxes::{disk_bytes, remove_home};
use atoll_store::Snapshot;
use tokio::sync::SemaphorePermit;
use tokio::task::spawn_blocking;

use super::builds::{DESKTOP, Hold, no_template};
use super::callers::Caller;
use super::identity::Identity;
use super::layered::{Begun, Frozen};
use super::lifecycle::{Reason, Transition};
use super::living::{Living, milliseconds};
use super::paused::{CHANGES, Paused};
use super::room::For;
use super::{Answer, Answered, Worker, fault, name, refusal};
use crate::protocol::{
    CreateAsk, Forks, Kind, MadeSnapshot, Refusal, SnapshotFacts, SnapshotsAsk, TEMPLATES,
};

/// The most sandboxes that one request forks, as E2B has it.
const FORKS_MAX: usize = 100;
/// The longest name of a snapshot, bytes.
const NAME_BYTES_MAX: usize = 128;

impl Worker {
    /// Removes snapshots that were not made to their end, and gives those of an earlier form a layer.
    pub(super) fn find_snapshots(self: &Arc<Self>) {
        let all = self.store.snapshots().unwrap_or_else(|error| {
            eprintln!("atoll serve: {error}");
            Vec::new()
        });
        let old = self.engine.state().join("served/snapshots");
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
        std::fs::create_dir_all(self.layers()).map_err(|error| fault(&error))?;
        for to in self.paths(&begun.home).iter().filter(|to| !to.exists()) {
            std::fs::rename(home, to).map_err(|error| fault(&error))?;
        }
        let layers = serde_json::to_string(&begun).map_err(|error| fault(&error))?;
        let kept = self.store.keep_snapshot(&Snapshot {
            layers,
            ..one.clone()
        });
        kept.map_err(|error| fault(&error))
    }

    /// Removes a snapshot, and those of its layers that nobody else has.
    fn drop_snapshot(self: &Arc<Self>, one: &Snapshot) {
        match self.store.remove_snapshot(&one.id) {
            Ok(_) => {
                let begun = begun_of(one).unwrap_or_default();
                self.release_layers(begun.all().cloned().collect());
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
        self.room.check(For::Sandbox)?;
        if named.as_ref().is_some_and(|name| !is_name(name)) {
            let what = format!(
                "a snapshot's name has up to {NAME_BYTES_MAX} letters, digits, '.', '_', '-', ':'"
            );
            return Err(Refusal::new(Kind::Invalid, what));
        }
        // Counted with those that are being made, one after the other.
        let one_by_one = self.resizing.lock().await;
        let all = self.store.snapshots().map_err(|error| fault(&error))?;
        let (tenant, sandbox, shipped) = of.facts();
        let own = all.iter().filter(|one| one.tenant == *tenant);
        if let Some(named) = &named {
            let is_it = |one: &Snapshot| one.name.as_ref() == Some(named) || one.id == *named;
            self.check_free(tenant, named, own.clone().any(is_it))?;
        }
        let most = self.configuration.quota.snapshots;
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
        let begin = self.store.keep_snapshot(&begun);
        begin.map_err(|error| fault(&error))?;
        drop(one_by_one);
        let hold = self.hold_layers();
        let (worker, of_it, held) = (Arc::clone(self), of.clone_of(), Arc::clone(&hold));
        let _written = of.written().await;
        let made = spawn_blocking(move || {
            let frozen = worker.freeze(&of_it, &held);
            let frozen = frozen.inspect_err(|_| worker.drop_snapshot(&begun))?;
            let whole = Snapshot {
                base: frozen.begun.base,
                bytes: disk_bytes(&worker.paths(&frozen.begun.home)),
                is_whole: true,
                layers: serde_json::to_string(&frozen.begun).map_err(|error| fault(&error))?,
                ..begun
            };
            let kept = worker.store.keep_snapshot(&whole);
            let kept = kept.map(|()| (whole, frozen.filed));
            kept.map_err(|error| fault(&error))
        });
        let (made, filed) = made.await.map_err(|error| fault(&error)).flatten()?;
        if let Source::Living(living) = of {
            self.note_as(living, "checkpointed", "a caller has made a snapshot");
        }
        let facts = facts(made);
        Ok(MadeSnapshot { facts, filed })
    }

    /// Makes layers of what a sandbox has at one moment.
    fn freeze(self: &Arc<Self>, of: &Own, hold: &Arc<Hold>) -> Result<Frozen, Refusal> {
        match of {
            Own::Living(living) => self.freeze_living(living, hold),
            Own::Paused(paused) => self.freeze_paused(paused, hold),
        }
    }

    /// Refuses the name of a snapshot for a template.
    pub(super) fn check_no_snapshot(&self, tenant: &str, named: &str) -> Result<(), Refusal> {
        match self.snapshot_named(tenant, named) {
            Ok(_) => Err(taken("snapshot", named)),
            Err(refusal) if refusal.kind == Kind::NotFound => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Refuses a name for a snapshot that another one has, or a template.
    fn check_free(&self, tenant: &str, named: &str, is_snapshot: bool) -> Result<(), Refusal> {
        let there = match () {
            () if is_snapshot => "snapshot",
            () if TEMPLATES.contains(&named) || named == DESKTOP => "shipped template",
            () if self.template_named(tenant, named)?.is_some() => "template",
            () => return Ok(()),
        };
        Err(taken(there, named))
    }

    fn snapshots_of(&self, tenant: &str) -> Result<Vec<Snapshot>, Refusal> {
        let mut all = self.store.snapshots().map_err(|error| fault(&error))?;
        all.retain(|one| one.tenant == tenant && one.is_whole && !one.layers.is_empty());
        Ok(all)
    }

    /// Finds a snapshot of a tenant, by its id or name.
    pub(super) fn snapshot_named(&self, tenant: &str, named: &str) -> Result<Snapshot, Refusal> {
        let own = self.snapshots_of(tenant)?;
        let is_it = |one: &&Snapshot| one.id == named || one.name.as_deref() == Some(named);
        own.iter()
            .find(is_it)
            .cloned()
            .ok_or_else(|| no_template(named))
    }

    /// Carries out a request about snapshots.
    pub(super) async fn snapshots(
        self: &Arc<Self>,
        caller: &Caller,
        ask: SnapshotsAsk,
    ) -> Result<Answered, Refusal> {
        self.can_make(caller)?;
        match ask {
            SnapshotsAsk::ListSnapshots(ask) => {
                let mut own = self.snapshots_of(&caller.tenant)?;
                own.retain(|one| ask.sandbox.as_ref().is_none_or(|id| one.sandbox == *id));
                ask.answer(own.into_iter().map(facts).collect())
            }
            SnapshotsAsk::RemoveSnapshot(ask) => {
                let one = self.snapshot_named(&caller.tenant, &ask.id)?;
                let worker = Arc::clone(self);
                let dropped = spawn_blocking(move || worker.drop_snapshot(&one)).await;
                ask.answer(dropped.map_err(|error| fault(&error))?)
            }
        }
    }

    /// Ends the programs of a sandbox, which goes on with the files of a snapshot: with its id, its
    /// tokens, sizes and network, until its time.
    pub(super) async fn roll_back(
        self: &Arc<Self>,
        living: &Arc<Living>,
        caller: &Caller,
        named: &str,
    ) -> Result<Arc<Living>, Refusal> {
        let snapshot = self.snapshot_named(&living.spec.tenant, named)?;
        if snapshot.shipped != living.spec.shipped {
            let what = format!("the snapshot {named} is of another template");
            return Err(Refusal::new(Kind::Invalid, what)
                .advise("make a sandbox from it: the snapshot is its template"));
        }
        self.can_make(caller)?;
        let hold = self.hold_layers();
        let begun = begun_of(&snapshot)?;
        hold.add_all(begun.all())?;
        let template = self.template_of(&living.spec.shipped)?;
        let left = living.ends.borrow().duration_since(SystemTime::now());
        let ask = CreateAsk {
            timeout_s: Some(left.unwrap_or_default().as_secs().max(1)),
            ..self.record_ask(living)
        };
        let identity = Identity {
            id: living.spec.id.clone(),
            token: living.spec.token.clone(),
            port_token: living.spec.port_token.clone(),
            shipped: living.spec.shipped.clone(),
            reach: None,
            is_build: false,
            template,
            begun,
            is_kept: false,
        };
        self.end_for(living).await?;
        let maker = Some(living.spec.caller.clone());
        let again = self.create_as(caller, maker, ask, identity).await;
        again.inspect_err(|_| self.note_killed(living, "it could not go back to a snapshot"))
    }

    /// Ends a sandbox that goes on as another one of its id.
    async fn end_for(self: &Arc<Self>, living: &Arc<Living>) -> Result<(), Refusal> {
        let begun = living.life.pass(Transition::Pause { memory: false });
        begun.map_err(|state| state.refusal(&living.spec.id))?;
        // What it had is out of the way at once, and removed while others go on.
        let left = self.kept(&format!("gone{}", name(20)?));
        self.make_kept_homes()?;
        let (of, home) = (Arc::clone(living), left.clone());
        let killed = spawn_blocking(move || of.sandbox.kill_leaving(&home, &changes_beside(&home)));
        let killed = killed.await;
        let _ = std::thread::Builder::new()
            .spawn(move || remove_home(&left).and(remove_home(&changes_beside(&left))));
        let killed = killed.map_err(|error| fault(&error))?;
        if let Err(failure) = killed {
            self.abandon(living, Reason::RolledBack).await;
            return Err(refusal(&failure));
        }
        self.list.remove_living(&living.spec.id);
        let _ = living.life.pass(Transition::Abandon(Reason::RolledBack));
        self.end_requests(living);
        self.release_layers(living.spec.begun.all().cloned().collect());
        Ok(())
    }

    /// Makes further sandboxes that begin with the files of one, as it is at one moment.
    pub(super) async fn fork(
        self: &Arc<Self>,
        of: Source<'_>,
        forked: Forked,
        caller: &Caller,
    ) -> Result<Forks, Refusal> {
        self.room.check(For::Sandbox)?;
        let hold = self.hold_layers();
        let written = of.written().await;
        let (worker, of, held) = (Arc::clone(self), of.clone_of(), Arc::clone(&hold));
        let frozen = spawn_blocking(move || worker.freeze(&of, &held)).await;
        drop(written);
        let frozen = frozen.map_err(|error| fault(&error)).flatten()?;
        let mut forks = Vec::with_capacity(forked.count);
        for _ in 0..forked.count {
            let template = self.template_of(&forked.shipped)?;
            let shipped = forked.shipped.clone();
            let identity = Identity::new(&forked.ask, shipped, frozen.begun.clone());
            let made = match identity {
                Ok(identity) => {
                    let ask = forked.ask.clone();
                    self.create_as(caller, None, ask, identity.on(template))
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

/// Returns the layers of a snapshot; one that is not whole has none.
pub(super) fn begun_of(one: &Snapshot) -> Result<Begun, Refusal> {
    if one.layers.is_empty() {
        return Ok(Begun::default());
    }
    serde_json::from_str(&one.layers).map_err(|error| fault(&error))
}

/// Returns the directory of root's changes of the system beside a home.
pub(super) fn changes_beside(home: &Path) -> PathBuf {
    let mut path = home.as_os_str().to_owned();
    path.push(CHANGES);
    path.into()
}

fn taken(what: &str, named: &str) -> Refusal {
    let what = format!("there is a {what} {named:?} already");
    Refusal::new(Kind::Exists, what).advise("take another name, or delete that first")
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
