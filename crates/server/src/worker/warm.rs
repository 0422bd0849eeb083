//! Sandboxes made ahead of the requests for them, so that a create need not wait: a few of each kind
//! that a tenant has asked for of late. One is given to a caller only where policies give that
//! caller the very same rights, is used by nobody before, and is never taken back.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_engine::sandboxes::{Assignment, CreateSandbox, PriorAnswer, Sandbox, Workspace};
use atoll_model::{Served, ServedExec};
use tokio::task::spawn_blocking;

use super::answers::fault;
use super::answers::name;
use super::answers::refusal;
use super::caller::Caller;
use super::caller::served;
use super::files::Files;
use super::frozen;
use super::identity::Identity;
use super::layered::Layers;
use super::lifecycle::{Life, Lifecycle};
use super::packages;
use super::process::{NotStarted, Process};
use super::room::For;
use super::server::Server;
use super::shares::CROWDED_FROM;
use super::shares::Of;
use super::templates::environment;
use super::templates::programs;
use super::templates::{self, set_variables};
use crate::protocol::{CODE_INTERPRETER, CreateAsk, Kind as Why, Refusal, StartAsk};

/// The most of them, of all tenants together.
const ALL_MAX: usize = 64;
/// The part of the sandboxes that there can be up to which others are made ahead, per cent.
const AHEAD_TO: u64 = 25;
/// The most kinds that are remembered, of all tenants and of one.
const KINDS_MAX: usize = 256;
const KINDS_OF_TENANT_MAX: usize = 4;
/// The time for which a kind is held ready that nobody asks for.
const WANTED_FOR: Duration = Duration::from_secs(10 * 60);
/// The longest time for which one waits.
const WAITS_FOR: Duration = Duration::from_secs(60 * 60);
/// The time after which a kind is tried again that could not be made.
const AGAIN: Duration = Duration::from_secs(60);
/// The time between two looks at those that wait.
const LOOK: Duration = Duration::from_secs(2);
/// The time that the first requests of whoever has just got one have for themselves.
const FIRST_REQUESTS: Duration = Duration::from_millis(200);
/// The time between two looks whether the server ends.
const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// A sandbox that is no caller's yet, or is about to be.
pub(super) struct Fresh {
    pub(super) id: String,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) files: Arc<Files>,
    pub(super) life: Life,
    /// The interpreter that runs in it.
    pub(super) program: Option<Arc<Process>>,
    pub(super) made: Instant,
}

/// The sandboxes made ahead.
#[derive(Default)]
pub(super) struct Pool {
    kinds: Mutex<Vec<Kind>>,
    /// Held while one is made: one after the other.
    turn: tokio::sync::Mutex<()>,
    /// Those that have become a caller's.
    pub(super) assigned: AtomicU64,
}

/// The sandboxes of a tenant that are like each other.
struct Kind {
    tenant: String,
    shipped: String,
    /// The request for one of them.
    wanted: CreateSandbox,
    /// The time at which a caller has asked for one last.
    asked: Instant,
    /// The time before which none is made.
    not_before: Option<Instant>,
    /// The oldest last.
    waiting: Vec<Fresh>,
    /// The number of those that policies are asked about now, for a caller.
    taken: usize,
}

/// The marks of a kind.
#[derive(Clone, Copy)]
struct Marks<'a> {
    tenant: &'a str,
    shipped: &'a str,
    wanted: &'a CreateSandbox,
}

impl Kind {
    fn is(&self, marks: Marks<'_>) -> bool {
        self.tenant == marks.tenant
            && self.shipped == marks.shipped
            && self.wanted.template == marks.wanted.template
            && self.wanted.requested == marks.wanted.requested
    }

    fn add(&mut self, fresh: impl IntoIterator<Item = Fresh>) {
        self.waiting.extend(fresh);
        self.waiting.sort_by_key(|one| Reverse(one.made));
    }
}

impl Pool {
    fn kinds(&self) -> MutexGuard<'_, Vec<Kind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many wait.
    pub(super) fn len(&self) -> usize {
        self.kinds().iter().map(|kind| kind.waiting.len()).sum()
    }

    /// Takes one of a kind out.
    fn take(&self, marks: Marks<'_>) -> Option<Fresh> {
        let mut kinds = self.kinds();
        let kind = kinds.iter_mut().find(|one| one.is(marks))?;
        let fresh = kind.waiting.pop()?;
        kind.taken += 1;
        Some(fresh)
    }

    /// Puts one back that was taken, or forgets it; returns it where its kind is not wanted any more.
    fn settle(&self, marks: Marks<'_>, back: Option<Fresh>) -> Option<Fresh> {
        let mut kinds = self.kinds();
        let Some(kind) = kinds.iter_mut().find(|one| one.is(marks)) else {
            return back;
        };
        kind.taken = kind.taken.saturating_sub(1);
        kind.add(back);
        None
    }

    /// Remembers that one of a kind was asked for; returns those of a kind that is forgotten for it.
    fn remember(&self, marks: Marks<'_>) -> Vec<Fresh> {
        let mut kinds = self.kinds();
        let now = Instant::now();
        if let Some(kind) = kinds.iter_mut().find(|one| one.is(marks)) {
            kind.asked = now;
            return Vec::new();
        }
        let is_own = |kind: &Kind| kind.tenant == marks.tenant;
        let is_full = kinds.iter().filter(|kind| is_own(kind)).count() >= KINDS_OF_TENANT_MAX;
        let mut forgotten = Vec::new();
        if is_full || kinds.len() >= KINDS_MAX {
            let all = kinds.iter().enumerate();
            let all = all.filter(|(_, kind)| !is_full || is_own(kind));
            if let Some((at, _)) = all.min_by_key(|(_, kind)| kind.asked) {
                forgotten = kinds.swap_remove(at).waiting;
            }
        }
        kinds.push(Kind {
            tenant: marks.tenant.to_owned(),
            shipped: marks.shipped.to_owned(),
            wanted: marks.wanted.clone(),
            asked: now,
            not_before: None,
            waiting: Vec::new(),
            taken: 0,
        });
        forgotten
    }

    /// Puts one in; returns it where its kind is not wanted any more.
    fn put(&self, marks: Marks<'_>, fresh: Fresh) -> Option<Fresh> {
        let mut kinds = self.kinds();
        match kinds.iter_mut().find(|one| one.is(marks)) {
            Some(kind) => {
                kind.add([fresh]);
                None
            }
            None => Some(fresh),
        }
    }

    /// Returns the kind that lacks most, of these the one that was asked for last.
    fn lacking(&self, of_each: usize) -> Option<(String, String, CreateSandbox)> {
        let kinds = self.kinds();
        let now = Instant::now();
        let lacks = |kind: &&Kind| {
            kind.waiting.len() + kind.taken < of_each && kind.not_before.is_none_or(|at| at <= now)
        };
        let lacking = kinds.iter().filter(lacks);
        let kind = lacking.max_by_key(|kind| (Reverse(kind.waiting.len()), kind.asked))?;
        Some((
            kind.tenant.clone(),
            kind.shipped.clone(),
            kind.wanted.clone(),
        ))
    }

    fn put_off(&self, marks: Marks<'_>) {
        let mut kinds = self.kinds();
        if let Some(kind) = kinds.iter_mut().find(|one| one.is(marks)) {
            kind.not_before = Some(Instant::now() + AGAIN);
        }
    }

    /// Takes out all that are not to wait any longer, with the kinds that nobody wants.
    fn overdue(&self, is_current: impl Fn(&str, &CreateSandbox) -> bool) -> Vec<Fresh> {
        let mut kinds = self.kinds();
        let is_wanted = |kind: &mut Kind| {
            kind.asked.elapsed() < WANTED_FOR && is_current(&kind.shipped, &kind.wanted)
        };
        let mut out = Vec::new();
        for mut kind in kinds.extract_if(.., |kind| !is_wanted(kind)) {
            out.append(&mut kind.waiting);
        }
        for kind in kinds.iter_mut() {
            let is_over = |one: &mut Fresh| {
                one.made.elapsed() >= WAITS_FOR || !one.life.is(Lifecycle::is_running)
            };
            out.extend(kind.waiting.extract_if(.., is_over));
        }
        out
    }

    fn take_all(&self) -> Vec<Fresh> {
        let mut kinds = self.kinds();
        let all = kinds.iter_mut().flat_map(|kind| kind.waiting.drain(..));
        all.collect()
    }
}

/// All that is made before anybody asks for it: sandboxes, interpreters in files, packages.
pub(super) struct Prewarm {
    pub(super) server: Arc<Server>,
    pub(super) layers: Arc<Layers>,
    pub(super) pool: Pool,
    /// The memory of interpreters, in files.
    pub(super) frozen: frozen::Frozen,
    /// The server's own build of the interpreter's packages.
    pub(super) packages: packages::InBackground,
}

impl Prewarm {
    pub(super) fn new(server: &Arc<Server>, layers: &Arc<Layers>) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(server),
            layers: Arc::clone(layers),
            pool: Pool::default(),
            frozen: frozen::Frozen::default(),
            packages: packages::InBackground::default(),
        })
    }

    /// Returns one that was made ahead, and is this caller's now, if there is one with the rights
    /// that they would get.
    pub(super) async fn made_ahead(
        self: &Arc<Self>,
        caller: &Caller,
        maker: Option<&String>,
        ask: &CreateAsk,
        identity: &Identity,
        wanted: &CreateSandbox,
    ) -> Option<Fresh> {
        if self.server.configuration.warm.sandboxes == 0 || !identity.is_usual(maker, ask) {
            return None;
        }
        let shipped = &*identity.shipped;
        let marks = Marks {
            tenant: &caller.tenant,
            shipped,
            wanted,
        };
        self.retire(self.pool.remember(marks));
        let later = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(FIRST_REQUESTS).await;
            later.fill().await;
        });
        while let Some(fresh) = self.pool.take(marks) {
            let facts = served(caller, &fresh.id, ask);
            let (sandbox, programs) = (Arc::clone(&fresh.sandbox), programs(shipped));
            let is_there = fresh.life.is(Lifecycle::is_running);
            let assigned = match is_there {
                true => spawn_blocking(move || sandbox.assign(facts, &programs)).await,
                false => Ok(Ok(Assignment::Stale)),
            };
            let settle = |back| self.pool.settle(marks, back);
            match assigned {
                Ok(Ok(Assignment::Assigned)) => {
                    settle(None);
                    if fresh.program.is_some() && !ask.environment.is_empty() {
                        let all = environment(&fresh.id, true, ask.environment.clone());
                        if set_variables(&fresh.files, &all).await.is_err() {
                            // It has just ended.
                            self.retire([fresh]);
                            return None;
                        }
                    }
                    self.pool.assigned.fetch_add(1, Ordering::Relaxed);
                    return Some(fresh);
                }
                Ok(Ok(Assignment::Different)) => {
                    self.retire(settle(Some(fresh)));
                    return None;
                }
                // What is wrong is told of the one that is made in its place.
                Ok(Ok(Assignment::Stale) | Err(_)) | Err(_) => {
                    settle(None);
                    self.retire([fresh]);
                }
            }
        }
        None
    }

    /// Makes those that are lacking, one after the other, unless that goes on already.
    async fn fill(self: &Arc<Self>) {
        let Ok(_turn) = self.pool.turn.try_lock() else {
            return;
        };
        while self.has_room_ahead() {
            let of_each = self.server.configuration.warm.sandboxes;
            let Some((tenant, shipped, wanted)) = self.pool.lacking(of_each) else {
                return;
            };
            let marks = Marks {
                tenant: &tenant,
                shipped: &shipped,
                wanted: &wanted,
            };
            let made = tokio::select! {
                made = self.make_ahead(marks) => made,
                () = self.begun_draining() => return,
            };
            match made {
                Ok(Some(fresh)) => {
                    let left = self.pool.put(marks, fresh);
                    self.retire(left);
                }
                // Callers are told of what is wrong when they make one.
                Ok(None) | Err(_) => self.pool.put_off(marks),
            }
        }
    }

    /// Returns whether one more may be made: they take the room of nobody's.
    fn has_room_ahead(&self) -> bool {
        let ahead = self.pool.len();
        !self.server.is_draining()
            && ahead < ALL_MAX
            && !self.server.shares.is_used_beyond(Of::Sandboxes, AHEAD_TO)
            && self.server.room.check(For::Ahead).is_ok()
    }

    async fn begun_draining(&self) {
        while !self.server.is_draining() {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    /// Makes one, with all that runs in it; `None` where policies would treat callers differently.
    async fn make_ahead(self: &Arc<Self>, marks: Marks<'_>) -> Result<Option<Fresh>, Refusal> {
        let shipped = marks.shipped;
        let id = format!("i{}", name(20)?);
        let facts = Served {
            sandbox: id.clone(),
            tenant: marks.tenant.to_owned(),
            template: shipped.to_owned(),
            ..Served::default()
        };
        let mut wanted = marks.wanted.clone();
        wanted.workspace = Workspace::Own(Box::new(facts));
        wanted.made_at = self.layers.made_at(&id)?;
        let (own, asked, programs) = (Arc::clone(self), wanted.clone(), programs(shipped));
        let may = spawn_blocking(move || own.server.engine.may_be_ahead(&asked, &programs)).await;
        let may = may.map_err(|error| fault(&error))?;
        if !may.map_err(|failure| refusal(&failure))? {
            return Ok(None);
        }
        if let Some(marks) = frozen::Marks::of(marks.tenant, &wanted) {
            self.keep_interpreter(&marks, &wanted).await;
            wanted.frozen = self.frozen.file(&marks);
        }
        let made = self.server.attempt(&wanted).await?;
        let (sandbox, life) = made.map_err(|why| refusal(&why.failure()))?;
        let sandbox = Arc::new(sandbox);
        let mut fresh = Retiring::of(Fresh {
            id,
            files: Files::of(&sandbox, marks.tenant, &self.server.shares),
            sandbox,
            life,
            program: None,
            made: Instant::now(),
        });
        if let (Some(one), CODE_INTERPRETER) = (&mut fresh.0, shipped) {
            one.program = Some(self.interpreter_ahead(one, marks.tenant).await?);
        }
        Ok(fresh.0.take())
    }

    /// Starts the interpreter, and has it import what its first cell may want.
    async fn interpreter_ahead(
        self: &Arc<Self>,
        fresh: &Fresh,
        tenant: &str,
    ) -> Result<Arc<Process>, Refusal> {
        let ask = StartAsk {
            command: templates::command().into(),
            environment: environment(&fresh.id, true, BTreeMap::new()),
            ..StartAsk::default()
        };
        let (nobody, place) = (PriorAnswer::Nobody, self.server.place(tenant, &ask)?);
        let by = ServedExec::default();
        let started = Process::start(&fresh.sandbox, ask, by, nobody, place).await;
        let (process, _reading) = started.map_err(|why| match why {
            NotStarted::Refused(refusal) => refusal,
            NotStarted::NeedsApproval(_) => Refusal::new(Why::Forbidden, "policies ask about it"),
        })?;
        templates::begun(&fresh.files, &process).await?;
        templates::import_ahead(&fresh.files).await?;
        Ok(process)
    }

    /// Ends one that nobody gets any more.
    fn retire(&self, fresh: impl IntoIterator<Item = Fresh>) {
        fresh.into_iter().for_each(end);
    }

    /// Ends those that have waited for too long, or whose template has changed, and makes others,
    /// for as long as the own is there.
    pub(super) async fn keep_ahead(self: &Arc<Self>) {
        if self.server.configuration.warm.sandboxes == 0 {
            return;
        }
        loop {
            tokio::time::sleep(LOOK).await;
            let overdue = self.pool.overdue(|shipped, wanted| {
                // What is read for each of them is a directory.
                wanted.template == self.server.template_files(shipped == CODE_INTERPRETER)
            });
            self.retire(overdue);
            let is_short = self.server.room.check(For::Ahead).is_err()
                || self
                    .server
                    .shares
                    .is_used_beyond(Of::Sandboxes, CROWDED_FROM);
            if is_short {
                self.retire(self.pool.take_all());
            }
            self.fill().await;
        }
    }

    /// Ends all of them, and returns once they are gone.
    pub(super) async fn end_ahead(&self) {
        self.server.drain();
        let _none_is_made = self.pool.turn.lock().await;
        let ends: Vec<_> = self.pool.take_all().into_iter().map(ended).collect();
        for end in ends {
            let _ = end.await;
        }
    }
}

/// Ends a sandbox whose making goes no further.
struct Retiring(Option<Fresh>);

impl Retiring {
    fn of(fresh: Fresh) -> Self {
        Self(Some(fresh))
    }
}

impl Drop for Retiring {
    fn drop(&mut self) {
        if let Some(fresh) = self.0.take() {
            end(fresh);
        }
    }
}

fn end(fresh: Fresh) {
    drop(ended(fresh));
}

/// Ends a sandbox, on a thread that may wait for that.
fn ended(fresh: Fresh) -> tokio::task::JoinHandle<()> {
    spawn_blocking(move || {
        if let Err(failure) = fresh.sandbox.kill() {
            eprintln!("atoll serve: {}", refusal(&failure).what);
        }
        drop(fresh);
    })
}
