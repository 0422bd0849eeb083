//! Paused sandboxes: their homes are kept, their programs are not. They go on as new sandboxes of
//! the same id, with the same tokens.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use atoll_engine::sandboxes::Still;
use atoll_store::PausedSandbox;
use serde::{Deserialize, Serialize};
use tokio::sync::MutexGuard;

use super::answers::fault;
use super::begun::Begun;
use super::lifecycle::{Life, Lifecycle, Transition};
use super::living::Living;
use super::rights::is_of_control;
use super::tokens::is_equal;
use super::tokens::opens_services;
use crate::protocol::{CreateAsk, Credential, InAsk, Kind, Refusal, SandboxFacts, is_service};

/// A paused sandbox.
pub(super) struct Paused {
    pub(super) id: String,
    pub(super) tenant: String,
    pub(super) record: Record,
    /// The layers that it begins with.
    begun: Mutex<Begun>,
    /// Its processes, while its memory is kept.
    pub(super) asleep: Mutex<Option<Asleep>>,
    pub(super) life: Life,
    /// Locked while it goes on, ends or is copied.
    pub(super) turn: tokio::sync::Mutex<()>,
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

/// Returns the refusal of whatever needs a sandbox that runs.
fn gone(id: &str) -> Refusal {
    Refusal::new(Kind::NoSandbox, format!("sandbox {id} is paused"))
        .advise("connect to it, or atoll sandbox resume: it goes on then")
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
    pub(super) async fn stays(&self) -> Result<MutexGuard<'_, ()>, Refusal> {
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

/// A paused sandbox that is being made to go on, for as long as this is kept; it stays paused where
/// it has not gone on by then.
pub(super) struct Resuming<'a>(&'a Life);

impl<'a> Resuming<'a> {
    /// Begins, if it is paused.
    pub(super) fn begin(paused: &'a Paused) -> Option<Self> {
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
    pub(super) fn kept_by(&self, refusal: Refusal) -> Refusal {
        match refusal.kind {
            Kind::NotFound => {
                let what = format!("sandbox {} stays paused: {}", self.id, refusal.what);
                Refusal::new(Kind::Exists, what)
                    .advise("end it: without the volume it does not go on")
            }
            _ => refusal,
        }
    }

    pub(super) fn gone(&self) -> Refusal {
        gone(&self.id)
    }

    /// Returns whether a credential is one that lets its holder make this request.
    pub(super) fn is_proof(&self, credential: &Credential, ask: &InAsk) -> bool {
        matches!(credential, Credential::Token(token) if self.admits(token, ask))
    }

    /// Returns whether a token lets its holder make this request.
    pub(super) fn admits(&self, token: &str, ask: &InAsk) -> bool {
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

/// The processes of a paused sandbox.
pub(super) struct Asleep {
    pub(super) living: Arc<Living>,
    pub(super) still: Arc<Still>,
    pub(super) since: Instant,
}

impl Paused {
    /// Keeps its processes.
    pub(super) fn keep_asleep(&self, asleep: Option<Asleep>) {
        *self.asleep() = asleep;
    }

    pub(super) fn asleep(&self) -> std::sync::MutexGuard<'_, Option<Asleep>> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.asleep().is_some()
    }

    /// Returns it as it stands still, if it does.
    pub(super) fn sleeper(&self) -> Option<Arc<Living>> {
        self.asleep().as_ref().map(|one| Arc::clone(&one.living))
    }

    pub(super) fn since(&self) -> Option<Instant> {
        self.asleep().as_ref().map(|one| one.since)
    }
}
