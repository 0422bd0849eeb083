//! Requests under way: each first has a place among those of which it is not known whose they are,
//! then a part of what its tenant may use.

use atoll_store::Scope;
use atoll_store::{Role, Scopes};
use tokio::sync::OwnedSemaphorePermit;

use super::caller::Caller;
use super::callers::Callers;
use super::content;
use super::list::Found;
use super::paused::Paused;
use super::rights::is_of_control;
use super::rights::may;
use super::rights::scopes_in;
use super::shares::Shares;
use super::shares::{Of, Share};
use super::volumes::Volumes;
use crate::protocol::{Ask, Credential, In, InAsk, Kind, LifeAsk, ProcessAsk, Refusal};
use crate::protocol::{ListProcesses, Permit, Request as _, ToolsAsk, Write};

/// The shares of a request that takes a thread.
const WITH_THREAD: &[Of] = &[Of::Requests, Of::Threads];
/// Those of one that looks at sandboxes or ends one: it goes on where all others have to wait.
const CONTROL: &[Of] = &[Of::Control];

/// Returns the shares of a request that is not about one sandbox.
pub(super) fn shares_of(ask: &Ask) -> &'static [Of] {
    match ask {
        Ask::ListSandboxes(_) => CONTROL,
        Ask::Tools(ToolsAsk::WatchTools(_)) => &[Of::Watchers],
        _ => WITH_THREAD,
    }
}

/// The places of a request, for as long as it is under way.
pub(super) struct Held {
    /// True if it came with one of the last descriptors.
    is_last: bool,
    /// Its place among those of which it is not known whose they are.
    stranger: Option<OwnedSemaphorePermit>,
    /// Its part of what its tenant may use.
    shares: Vec<Share>,
}

impl Held {
    /// Begins with a place among those of which it is not known whose they are.
    pub(super) fn new(place: OwnedSemaphorePermit, is_last: bool) -> Self {
        Self {
            is_last,
            stranger: Some(place),
            shares: Vec::new(),
        }
    }

    /// Refuses what the worker has no descriptors for but those of its own; what ends something
    /// gives some back.
    pub(super) fn check(&self, ask: &Ask) -> Result<(), Refusal> {
        let ends = matches!(
            ask,
            Ask::In(In {
                ask: InAsk::Life(LifeAsk::Kill(_)) | InAsk::Process(ProcessAsk::Signal(_)),
                ..
            })
        );
        match self.is_last && !ends {
            true => Err(Refusal {
                retry_after_s: Some(1),
                ..Refusal::new(Kind::Unavailable, "the server's descriptors are used up")
                    .advise("try again, or raise its limit of open files (LimitNOFILE)")
            }),
            false => Ok(()),
        }
    }
}

impl Callers {
    /// Finds who calls, and counts the request against these.
    pub(super) async fn known(
        &self,
        credential: &Credential,
        needs: &[Scope],
        of: &[Of],
        held: &mut Held,
    ) -> Result<Caller, Refusal> {
        let caller = self.caller(credential, needs).await?;
        held.charge_to(&self.server.shares, &caller.tenant, of)?;
        Ok(caller)
    }

    /// Counts a request of a sandbox, before anything that can take a while: against the tenant of
    /// its key, or else that of the sandbox. Whoever proves nothing takes no place of those who do.
    pub(super) async fn charge_early(
        &self,
        held: &mut Held,
        credential: &Credential,
        id: &str,
        ask: &InAsk,
    ) -> Result<(), Refusal> {
        let (tenant, is_proven) = match credential {
            Credential::Key(_) => (self.caller(credential, scopes_in(ask)).await?.tenant, true),
            Credential::Nothing
            | Credential::Token(_)
            | Credential::Signature { .. }
            | Credential::Link(..) => match self.list.find(id) {
                Some(Found::Living(one)) => {
                    (one.spec.tenant.clone(), one.is_proof(credential, ask))
                }
                Some(Found::Paused(one)) => (one.tenant.clone(), one.is_proof(credential, ask)),
                None => return Ok(()),
            },
        };
        match is_proven {
            false => held.charge_to(&self.server.shares, &tenant, &[Of::Visitors]),
            true if matches!(ask, InAsk::Life(LifeAsk::GetSandbox(_) | LifeAsk::Kill(_))) => {
                held.charge_to(&self.server.shares, &tenant, CONTROL)
            }
            true => held.charge(&self.server.shares, &tenant, is_of_control(ask)),
        }
    }
}

impl Held {
    /// Counts the request against the shares of its tenant, once it is known whose it is.
    pub(super) fn charge(
        &mut self,
        shares: &Shares,
        tenant: &str,
        needs_thread: bool,
    ) -> Result<(), Refusal> {
        let of = match needs_thread {
            true => WITH_THREAD,
            false => &[Of::Requests],
        };
        self.charge_to(shares, tenant, of)
    }

    fn charge_to(&mut self, shares: &Shares, tenant: &str, of: &[Of]) -> Result<(), Refusal> {
        if self.stranger.take().is_none() {
            return Ok(());
        }
        for of in of {
            self.shares.push(shares.take(*of, tenant, 1)?);
        }
        Ok(())
    }
}

impl Callers {
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

    /// Returns the tenant of whoever sends a body; what exactly they may is found out with what it
    /// says.
    pub(super) async fn sender(
        &self,
        ask: &Permit,
        credential: Credential,
        volumes: &Volumes,
    ) -> Result<String, Refusal> {
        let Permit { sandbox, volume } = ask;
        if let Some(volume) = volume {
            let asked = content::Asked::new(credential, volume.clone(), None);
            return Ok(volumes.reached(&asked).await?.0.tenant);
        }
        let ask = match &credential {
            Credential::Key(_) => {
                return Ok(self.caller(&credential, &Scope::ALL).await?.tenant);
            }
            Credential::Nothing if sandbox.is_none() => {
                return Ok(self.caller(&credential, &Scope::ALL).await?.tenant);
            }
            Credential::Signature { path, .. } => {
                let path = path.clone();
                InAsk::from(Write { path }.wrap())
            }
            Credential::Nothing | Credential::Token(_) | Credential::Link(..) => {
                InAsk::from(ListProcesses {}.wrap())
            }
        };
        let id = sandbox.as_deref().unwrap_or_default();
        self.list.settled(id).await;
        if let Some(paused) = self.list.paused(id) {
            return Ok(self.waking(&paused, &credential, &ask).await?.tenant);
        }
        let (living, _) = self.admitted(&credential, sandbox.as_deref(), &ask).await?;
        Ok(living.spec.tenant.clone())
    }
}
