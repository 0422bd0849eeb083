//! Snapshots of sandboxes' homes, which further sandboxes begin with, and forks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::{KeptHome, remove_home};
use atoll_store::Snapshot;
use tokio::task::spawn_blocking;

use super::callers::Caller;
use super::identity::{Identity, Origin};
use super::living::{Living, milliseconds};
use super::paused::CHANGES;
use super::room::For;
use super::{Worker, fault, name, refusal};
use crate::protocol::{CreateAsk, Kind, Refusal, Reply, SnapshotFacts, SnapshotsAsk};

/// The most sandboxes that one request forks, as E2B has it.
const FORKS_MAX: usize = 100;
/// The longest name of a snapshot, bytes.
const NAME_BYTES_MAX: usize = 128;

impl Worker {
    fn snapshot_place(&self, id: &str) -> PathBuf {
        self.engine.state().join("served/snapshots").join(id)
    }

    /// Returns the directory of root's changes of the system in a snapshot.
    fn snapshot_changes(&self, id: &str) -> PathBuf {
        changes_beside(&self.snapshot_place(id))
    }

    /// Removes snapshots that were not copied to their end.
    pub(super) fn find_snapshots(&self) {
        let all = self.store.snapshots().unwrap_or_else(|error| {
            eprintln!("atoll serve: {error}");
            Vec::new()
        });
        for one in all.iter().filter(|one| !one.is_whole) {
            self.drop_snapshot(&one.id);
        }
    }

    /// Removes a snapshot that is not whole: its files first, so that it is found until they are gone.
    fn drop_snapshot(&self, id: &str) {
        let removed = remove_home(&self.snapshot_place(id));
        match removed.and_then(|()| remove_home(&self.snapshot_changes(id))) {
            Ok(()) => {
                let _ = self.store.remove_snapshot(id);
            }
            Err(failure) => eprintln!("atoll serve: {}", refusal(&failure).what),
        }
    }

    /// Copies a sandbox's home, which stands still meanwhile.
    pub(super) async fn snapshot(
        self: &Arc<Self>,
        living: &Arc<Living>,
        named: Option<String>,
    ) -> Result<Reply, Refusal> {
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
        let own = all.iter().filter(|one| one.tenant == living.tenant);
        let most = self.configuration.quota.snapshots;
        if own.count() >= most {
            let what = format!("the tenant has {most} snapshots, as many as it may");
            return Err(Refusal::new(Kind::Quota, what)
                .advise("delete one, or raise quota.snapshots in serve.toml"));
        }
        let begun = Snapshot {
            id: format!("snap{}", name(20)?),
            tenant: living.tenant.clone(),
            name: named,
            sandbox: living.id.clone(),
            shipped: living.shipped.clone(),
            created_ms: milliseconds(SystemTime::now()),
            base: None,
            bytes: 0,
            is_whole: false,
        };
        let begin = self.store.keep_snapshot(&begun);
        begin.map_err(|error| fault(&error))?;
        drop(one_by_one);
        let place = self.snapshot_place(&begun.id);
        let (worker, of) = (Arc::clone(self), Arc::clone(living));
        let made = spawn_blocking(move || {
            let directory = place.parent().unwrap_or(&place);
            fs::create_dir_all(directory).map_err(|error| fault(&error))?;
            let copied = copy_of(&of, &place);
            let copied = copied
                .map_err(|failure| refusal(&failure))
                .inspect_err(|_| {
                    worker.drop_snapshot(&begun.id);
                })?;
            let whole = Snapshot {
                base: copied.base,
                bytes: of.sandbox.in_use().disk_bytes,
                is_whole: true,
                ..begun
            };
            let kept = worker.store.keep_snapshot(&whole);
            kept.map(|()| whole).map_err(|error| fault(&error))
        });
        let made: Snapshot = made.await.map_err(|error| fault(&error)).flatten()?;
        self.note_as(living, "checkpointed", "a caller has made a snapshot");
        Ok(Reply::Snapshot(facts(made)))
    }

    fn snapshots_of(&self, tenant: &str) -> Result<Vec<Snapshot>, Refusal> {
        let mut all = self.store.snapshots().map_err(|error| fault(&error))?;
        all.retain(|one| one.tenant == tenant && one.is_whole);
        Ok(all)
    }

    /// Finds a snapshot of a tenant, by its id or the latest of this name.
    pub(super) fn snapshot_named(&self, tenant: &str, named: &str) -> Result<Snapshot, Refusal> {
        let own = self.snapshots_of(tenant)?;
        let is_it = |one: &&Snapshot| one.id == named || one.name.as_deref() == Some(named);
        own.iter().find(is_it).cloned().ok_or_else(|| {
            let what = format!("there is no template {named:?}");
            Refusal::new(Kind::NotFound, what)
                .advise("\"base\" and \"code-interpreter-v1\" are shipped; others are templates and snapshots of the tenant's own")
        })
    }

    /// Returns the home of a snapshot.
    pub(super) fn snapshot_home(&self, one: &Snapshot) -> KeptHome {
        KeptHome {
            path: self.snapshot_place(&one.id),
            base: one.base,
        }
    }

    /// Carries out a request about snapshots.
    pub(super) async fn snapshots(
        self: &Arc<Self>,
        caller: &Caller,
        ask: SnapshotsAsk,
    ) -> Result<Reply, Refusal> {
        self.can_make(caller)?;
        match ask {
            SnapshotsAsk::List { sandbox } => {
                let mut own = self.snapshots_of(&caller.tenant)?;
                own.retain(|one| sandbox.as_ref().is_none_or(|id| one.sandbox == *id));
                Ok(Reply::Snapshots(own.into_iter().map(facts).collect()))
            }
            SnapshotsAsk::Remove { id } => {
                let one = self.snapshot_named(&caller.tenant, &id)?;
                let gone = Snapshot {
                    is_whole: false,
                    ..one
                };
                let marked = self.store.keep_snapshot(&gone);
                marked.map_err(|error| fault(&error))?;
                let worker = Arc::clone(self);
                let dropped = spawn_blocking(move || worker.drop_snapshot(&gone.id)).await;
                dropped.map(|()| Reply::Done).map_err(|error| fault(&error))
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
    ) -> Result<Reply, Refusal> {
        let snapshot = self.snapshot_named(&living.tenant, named)?;
        if snapshot.shipped != living.shipped {
            let what = format!("the snapshot {named} is of another template");
            return Err(Refusal::new(Kind::Invalid, what)
                .advise("make a sandbox from it: the snapshot is its template"));
        }
        self.can_make(caller)?;
        let home = self.snapshot_home(&snapshot);
        let template = self.template_of(&living.shipped)?;
        let left = living.ends.borrow().duration_since(SystemTime::now());
        let ask = CreateAsk {
            timeout_s: Some(left.unwrap_or_default().as_secs().max(1)),
            ..self.record_ask(living)
        };
        let identity = Identity {
            id: living.id.clone(),
            token: living.token.clone(),
            port_token: living.port_token.clone(),
            shipped: living.shipped.clone(),
            reach: None,
            is_build: false,
            changes: None,
            changed: template.as_ref().map(|_| changes_beside(&home.path)),
            template,
            origin: Origin::Copied(home),
        };
        self.end_for(living, "it goes back to a snapshot").await?;
        let maker = Some(living.caller.clone());
        match self.create_as(caller, maker, ask, identity).await {
            Ok(again) => Ok(again.created()),
            Err(refusal) => {
                self.note_killed(living, "it could not go back to a snapshot");
                Err(refusal)
            }
        }
    }

    /// Ends a sandbox that goes on as another one of its id.
    async fn end_for(self: &Arc<Self>, living: &Arc<Living>, why: &str) -> Result<(), Refusal> {
        let is_first = living.over.send_if_modified(|over| {
            let is_first = over.is_none();
            if is_first {
                living.begin_pausing();
                *over = Some(why.to_owned());
            }
            is_first
        });
        if !is_first {
            let why = living.over.borrow().clone().unwrap_or_default();
            let what = format!("sandbox {} is ending: {why}", living.id);
            return Err(Refusal::new(Kind::NoSandbox, what));
        }
        let of = Arc::clone(living);
        let killed = spawn_blocking(move || of.sandbox.kill()).await;
        let killed = killed.map_err(|error| fault(&error))?;
        if let Err(failure) = killed {
            living.end_pausing(why);
            self.end(living, why).await;
            return Err(refusal(&failure));
        }
        self.living().remove(&living.id);
        self.forget_requests(&living.id);
        Ok(())
    }

    /// Makes further sandboxes that begin with the home of one, as it is at one moment.
    pub(super) async fn fork(
        self: &Arc<Self>,
        living: &Arc<Living>,
        caller: &Caller,
        count: usize,
        timeout_s: Option<u64>,
    ) -> Result<Reply, Refusal> {
        if !(1..=FORKS_MAX).contains(&count) {
            let what = format!("count is {count}, and it is 1 to {FORKS_MAX}");
            return Err(Refusal::new(Kind::Invalid, what));
        }
        self.room.check(For::Sandbox)?;
        self.make_kept_homes()?;
        let first = self.kept(&format!("fork{}", name(20)?));
        let of = Arc::clone(living);
        let place = first.clone();
        let copied = spawn_blocking(move || copy_of(&of, &place)).await;
        let copied = copied.map_err(|error| fault(&error))?;
        let home = copied.map_err(|failure| refusal(&failure))?;
        let mut forks = Vec::with_capacity(count);
        for _ in 0..count {
            let ask = CreateAsk {
                timeout_s: timeout_s.or(living.ask.timeout_s),
                ..self.record_ask(living)
            };
            let template = self.template_of(&living.shipped)?;
            let identity =
                Identity::new(&ask, living.shipped.clone(), Origin::Copied(home.clone()));
            let made = match identity {
                Ok(identity) => {
                    let identity = Identity {
                        changed: template.as_ref().map(|_| changes_beside(&first)),
                        ..identity.on(template)
                    };
                    self.create_as(caller, None, ask, identity).await
                }
                Err(refusal) => Err(refusal),
            };
            forks.push(made.map(|living| Box::new(living.created())));
        }
        let removed =
            spawn_blocking(move || remove_home(&first).and(remove_home(&changes_beside(&first))));
        let _ = removed.await;
        Ok(Reply::Forks(forks))
    }
}

/// Copies a sandbox's home, and beside it root's changes of the system if it has any.
fn copy_of(living: &Living, to: &Path) -> Result<KeptHome, Failure> {
    match living.rooted {
        None => living.sandbox.copy_home(to),
        Some(_) => living.sandbox.copy_all(to, &changes_beside(to)),
    }
}

/// Returns the directory of root's changes of the system beside a home.
pub(super) fn changes_beside(home: &Path) -> PathBuf {
    let mut path = home.as_os_str().to_owned();
    path.push(CHANGES);
    path.into()
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
