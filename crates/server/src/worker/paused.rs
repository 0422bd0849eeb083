//! Paused sandboxes: their homes are kept, their programs are not. They go on as new sandboxes of
//! the same id, with the same tokens.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_engine::sandboxes::{Sandbox, remove_home};
use atoll_store::{PausedSandbox, Role, Scope, Scopes};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::MutexGuard;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::asleep::Asleep;
use super::callers::{Caller, is_of_control, may, scopes_in};
use super::identity::Identity;
use super::layered::Begun;
use super::lifecycle::{Life, Lifecycle, Reason, Transition};
use super::living::{Living, is_equal, opens_services};
use super::snapshots::{Forked, Source, changes_beside};
use super::{Answer, Answered, Worker, fault};
use crate::protocol::{
    CreateAsk, CreatedFacts, Credential, Fork, Forks, InAsk, Kind, LifeAsk, MadeSnapshot, Refusal,
    SandboxFacts, is_service,
};

/// The longest time for which a request waits while its sandbox is being paused.
const PAUSED_WITHIN: Duration = Duration::from_secs(30);

/// The end of the name of the directory with root's changes of the system, beside the home.
pub(super) const CHANGES: &str = ".system";

/// A paused sandbox.
pub(super) struct Paused {
    pub(super) id: String,
    pub(super) tenant: String,
    record: Record,
    /// The layers that it begins with.
    begun: Mutex<Begun>,
    /// Its processes, while its memory is kept.
    pub(super) asleep: Mutex<Option<Asleep>>,
    pub(super) life: Life,
    /// Locked while it goes on, ends or is copied.
    turn: tokio::sync::Mutex<()>,
}

/// All that one is made again by, besides its home.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) ask: CreateAsk,
    /// The name of whoever made it.
    pub(super) caller: String,
    pub(super) token: String,
    pub(super) port_token: Option<String>,
    pub(super) base: Option<u32>,
    pub(super) shipped: String,
    /// The layers that it begins with, beneath what is kept for it alone.
    #[serde(default)]
    pub(super) begun: Begun,
    /// Its description.
    pub(super) facts: SandboxFacts,
}

/// Returns what is told of a request that was refused: where it met a sandbox that was just being
/// paused, that it is.
pub(super) fn told(living: &Living, refusal: Refusal) -> Refusal {
    match living.life.is(Lifecycle::is_pause) {
        true => gone(&living.spec.id),
        false => refusal,
    }
}

/// Returns what others begin with: of one that stands still as it is, with a copy.
fn source<'a>(paused: &'a Arc<Paused>, asleep: Option<&'a Arc<Living>>) -> Source<'a> {
    asleep.map_or(Source::Paused(paused), Source::Living)
}

/// Returns the refusal of whatever needs a sandbox that runs.
fn gone(id: &str) -> Refusal {
    Refusal::new(Kind::NoSandbox, format!("sandbox {id} is paused"))
        .advise("connect to it, or atoll sandbox resume: it goes on then")
}

/// The result of a request of a paused sandbox.
pub(super) enum OfPaused {
    /// An answer.
    Answered(Answered),
    /// None: the sandbox has gone on, and the request is one of a living sandbox.
    GoesOn,
}

impl Paused {
    /// Returns the template that it stands on.
    pub(super) fn shipped(&self) -> &str {
        &self.record.shipped
    }

    pub(super) fn facts(&self) -> SandboxFacts {
        SandboxFacts {
            memory_kept: self.is_asleep(),
            ..self.record.facts.clone()
        }
    }

    /// Has nothing else happen to it for as long as the guard is kept; `None` if something does now.
    pub(super) fn stays_now(&self) -> Option<MutexGuard<'_, ()>> {
        self.turn.try_lock().ok()
    }

    /// Has it stay paused for as long as the guard is kept.
    async fn stays(&self) -> Result<MutexGuard<'_, ()>, Refusal> {
        let turn = self.turn.lock().await;
        match self
            .life
            .is(|state| matches!(state, Lifecycle::Paused { .. }))
        {
            true => Ok(turn),
            false => {
                let what = format!("sandbox {} has just gone on, or ended", self.id);
                Err(Refusal::new(Kind::NoSandbox, what).advise("ask again"))
            }
        }
    }

    pub(super) fn begun(&self) -> Begun {
        self.begun
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns what is written of it where it begins with these layers.
    pub(super) fn row_with(&self, begun: &Begun) -> Result<PausedSandbox, Refusal> {
        let record = Record {
            begun: begun.clone(),
            ..self.record.clone()
        };
        Ok(PausedSandbox {
            id: self.id.clone(),
            tenant: self.tenant.clone(),
            record: serde_json::to_string(&record).map_err(|error| fault(&error))?,
        })
    }

    pub(super) fn set_begun(&self, begun: &Begun) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = begun.clone();
    }

    /// Returns one that is paused, with all that it is made again by.
    pub(super) fn of(id: String, tenant: String, record: Record, life: Life) -> Arc<Self> {
        let begun = Begun {
            base: record.base,
            ..record.begun.clone()
        };
        Arc::new(Self {
            id,
            tenant,
            record,
            begun: Mutex::new(begun),
            asleep: Mutex::new(None),
            life,
            turn: tokio::sync::Mutex::new(()),
        })
    }
}

/// Returns the name of the directory of a sandbox's home. Every user of the host sees it among the
/// mounts of its programs (proc(5)), and no id of a sandbox can be told from it.
pub(super) fn home_name(id: &str) -> String {
    let digest = Sha256::digest(format!("home\0{id}"));
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl Worker {
    /// Returns the directory of a home that is kept.
    pub(super) fn kept(&self, id: &str) -> PathBuf {
        self.kept_homes().join(home_name(id))
    }

    /// Returns the directory of root's changes of a system that are kept.
    pub(super) fn kept_changes(&self, id: &str) -> PathBuf {
        changes_beside(&self.kept(id))
    }

    /// Removes what a sandbox that is gone has begun with, where something of it is left.
    pub(super) fn drop_kept(&self, id: &str) {
        let (home, changes) = (self.kept(id), self.kept_changes(id));
        if home.exists() || changes.exists() {
            // What is left of them is removed at the next start.
            let remove = move || remove_home(&home).and(remove_home(&changes));
            let _ = std::thread::Builder::new().spawn(remove);
        }
    }

    pub(super) fn kept_homes(&self) -> PathBuf {
        self.engine.state().join("served/homes")
    }

    pub(super) fn forget_paused(&self, id: &str) {
        if let Err(error) = self.store.unpause(id) {
            eprintln!("atoll serve: {error}");
        }
    }

    /// Waits while a sandbox is just being paused: it is neither living nor paused then.
    pub(super) async fn wait_paused(&self, id: &str) {
        if let Some(living) = self.list.living(id) {
            let is_left = |state: &Lifecycle| !matches!(state, Lifecycle::Pausing { .. });
            let _ = timeout(PAUSED_WITHIN, living.life.wait(is_left)).await;
        }
    }

    /// Carries out a request of a paused sandbox.
    pub(super) async fn of_paused(
        self: &Arc<Self>,
        paused: &Arc<Paused>,
        credential: &Credential,
        ask: &InAsk,
        trace: Option<&String>,
    ) -> Result<OfPaused, Refusal> {
        let caller = self.waking(paused, credential, ask).await?;
        let caller = Caller {
            trace: trace.cloned(),
            ..caller
        };
        let answered = match ask {
            InAsk::Life(LifeAsk::GetSandbox(ask)) => ask.answer(paused.facts()),
            InAsk::Life(LifeAsk::Kill(ask)) => ask.answer(self.end_paused(paused).await?),
            InAsk::Life(LifeAsk::Pause(_)) => {
                let what = format!("sandbox {} is paused already", paused.id);
                Err(Refusal::new(Kind::Exists, what))
            }
            InAsk::Life(LifeAsk::Connect(ask)) => {
                let living = self.resume(paused, &caller, ask.timeout_s).await?;
                ask.answer(CreatedFacts {
                    resumed: true,
                    ..living.described_to(&caller.scopes)
                })
            }
            InAsk::Life(LifeAsk::Fork(ask)) => ask.answer(fork(self, paused, &caller, ask).await?),
            InAsk::Life(LifeAsk::Snapshot(ask)) => {
                ask.answer(snapshot(self, paused, ask.name.clone()).await?)
            }
            InAsk::Alive(_) => Err(paused.gone()),
            InAsk::Life(
                LifeAsk::RollBack(_)
                | LifeAsk::SetTimeout(_)
                | LifeAsk::LinkPort(_)
                | LifeAsk::SetNetwork(_)
                | LifeAsk::SetSizes(_)
                | LifeAsk::Decide(_),
            )
            | InAsk::Measure(_)
            | InAsk::ListPorts(_)
            | InAsk::OpenPort(_)
            | InAsk::Process(_)
            | InAsk::File(_) => {
                if !(paused.record.ask.auto_resume && caller.scopes.has(Scope::Create)) {
                    return Err(paused.gone());
                }
                self.resume(paused, &caller, None).await?;
                return Ok(OfPaused::GoesOn);
            }
        };
        answered.map(OfPaused::Answered)
    }

    /// Finds who asks something of a paused sandbox. Whoever holds no token of it wakes nothing.
    pub(super) async fn waking(
        &self,
        paused: &Paused,
        credential: &Credential,
        ask: &InAsk,
    ) -> Result<Caller, Refusal> {
        match credential {
            Credential::Key(_) => {
                let caller = self.caller(credential, scopes_in(ask)).await?;
                match caller.tenant == paused.tenant && may(caller.role, ask) {
                    true => Ok(caller),
                    false => {
                        let what = format!("there is no sandbox {}", paused.id);
                        Err(Refusal::new(Kind::NoSandbox, what))
                    }
                }
            }
            Credential::Token(token) if paused.admits(token, ask) => Ok(Caller {
                tenant: paused.tenant.clone(),
                name: paused.record.caller.clone(),
                role: Role::User,
                scopes: Scopes::All,
                trace: None,
                once: None,
            }),
            _ => Err(paused.gone()),
        }
    }

    /// Has a paused sandbox go on; whoever comes meanwhile gets the same one.
    async fn resume(
        self: &Arc<Self>,
        paused: &Arc<Paused>,
        caller: &Caller,
        timeout_s: Option<u64>,
    ) -> Result<Arc<Living>, Refusal> {
        let _turn = paused.turn.lock().await;
        let Some(_resuming) = Resuming::begin(paused) else {
            let ended = || {
                let what = format!("there is no sandbox {} any more", paused.id);
                Refusal::new(Kind::NoSandbox, what)
            };
            return self.list.living(&paused.id).ok_or_else(ended);
        };
        if let Some(living) = self.awaken(paused, caller, timeout_s).await? {
            self.list.remove_paused(&paused.id);
            self.forget_paused(&paused.id);
            return Ok(living);
        }
        let record = paused.record.clone();
        let ask = CreateAsk {
            timeout_s: timeout_s.or(record.ask.timeout_s),
            ..record.ask
        };
        let identity = Identity {
            id: paused.id.clone(),
            token: record.token,
            port_token: record.port_token,
            template: self.template_of(&record.shipped)?,
            reach: None,
            is_build: false,
            shipped: record.shipped,
            begun: paused.begun(),
            is_kept: true,
        };
        // Who wakes one does not become its maker.
        let maker = record.caller;
        let made = self.create_as(caller, Some(maker), ask, identity).await;
        let living = made.map_err(|refusal| paused.kept_by(refusal))?;
        // It is answered for before its tree is made: what is kept is, until it is there.
        living.files.stat("/").await?;
        let _ = paused.life.pass(Transition::Abandon(Reason::Resumed));
        self.list.remove_paused(&paused.id);
        self.forget_paused(&paused.id);
        Ok(living)
    }

    /// Ends a paused sandbox: its home is removed.
    async fn end_paused(self: &Arc<Self>, paused: &Arc<Paused>) -> Result<(), Refusal> {
        let _turn = paused.stays().await?;
        if paused.is_asleep() && !self.end_asleep(paused, Sandbox::kill).await {
            let what = format!("sandbox {} cannot be ended now", paused.id);
            return Err(Refusal::new(Kind::Unavailable, what).advise("end it again"));
        }
        let _ = paused.life.pass(Transition::End(Reason::Caller));
        self.list.remove_paused(&paused.id);
        self.forget_paused(&paused.id);
        let facts = json!({ "why": "a caller has ended it while it was paused" });
        self.note(&paused.tenant, &paused.id, "killed", &facts);
        let (home, changes) = (self.kept(&paused.id), self.kept_changes(&paused.id));
        // One that cannot be removed now is at the next start.
        let removed = spawn_blocking(move || remove_home(&home).and(remove_home(&changes)));
        let _ = removed.await;
        self.release_layers(paused.begun().all().cloned().collect());
        Ok(())
    }
}

/// Makes others that begin with the files of a paused sandbox, which stays so.
async fn fork(
    worker: &Arc<Worker>,
    paused: &Arc<Paused>,
    caller: &Caller,
    ask: &Fork,
) -> Result<Forks, Refusal> {
    let _turn = paused.stays().await?;
    let asleep = paused.sleeper();
    let of = CreateAsk {
        timeout_s: ask.timeout_s.or(paused.record.ask.timeout_s),
        ..paused.record.ask.clone()
    };
    let forked = Forked::new(paused.shipped(), of, ask.count)?;
    worker
        .fork(source(paused, asleep.as_ref()), forked, caller)
        .await
}

/// Copies the files of a paused sandbox, which stays so.
async fn snapshot(
    worker: &Arc<Worker>,
    paused: &Arc<Paused>,
    name: Option<String>,
) -> Result<MadeSnapshot, Refusal> {
    let _turn = paused.stays().await?;
    let asleep = paused.sleeper();
    let made = worker
        .snapshot(source(paused, asleep.as_ref()), name)
        .await?;
    let facts = json!({ "why": "a caller has made a snapshot" });
    worker.note(&paused.tenant, &paused.id, "checkpointed", &facts);
    Ok(made)
}

/// A paused sandbox that is being made to go on, for as long as this is kept; it stays paused where
/// it has not gone on by then.
struct Resuming<'a>(&'a Life);

impl<'a> Resuming<'a> {
    /// Begins, if it is paused.
    fn begin(paused: &'a Paused) -> Option<Self> {
        let begun = paused.life.pass(Transition::Resume);
        begun.is_ok().then_some(Self(&paused.life))
    }
}

impl Drop for Resuming<'_> {
    fn drop(&mut self) {
        // There is none once it goes on.
        let _ = self.0.pass(Transition::Stay);
    }
}

impl Paused {
    /// Returns the refusal where a volume of it is gone: it is there itself, and stays paused.
    fn kept_by(&self, refusal: Refusal) -> Refusal {
        match refusal.kind {
            Kind::NotFound => {
                let what = format!("sandbox {} stays paused: {}", self.id, refusal.what);
                Refusal::new(Kind::Exists, what)
                    .advise("end it: without the volume it does not go on")
            }
            _ => refusal,
        }
    }

    fn gone(&self) -> Refusal {
        gone(&self.id)
    }

    /// Returns whether a credential is one that lets its holder make this request.
    pub(super) fn is_proof(&self, credential: &Credential, ask: &InAsk) -> bool {
        matches!(credential, Credential::Token(token) if self.admits(token, ask))
    }

    /// Returns whether a token lets its holder make this request.
    fn admits(&self, token: &str, ask: &InAsk) -> bool {
        let Record {
            token: access,
            port_token,
            ..
        } = &self.record;
        let is_for_ports = || port_token.as_ref().is_some_and(|own| is_equal(token, own));
        match ask {
            InAsk::OpenPort(ask) => {
                opens_services(access, token) || !is_service(ask.port) && is_for_ports()
            }
            ask => is_equal(token, access) && !is_of_control(ask),
        }
    }
}
