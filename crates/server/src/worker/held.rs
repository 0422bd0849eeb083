//! Requests under way: each first has a place among those of which it is not known whose they are,
//! then a part of what its tenant may use.

use atoll_store::Scope;
use tokio::sync::OwnedSemaphorePermit;

use super::Worker;
use super::callers::{Caller, is_of_control, scopes_in};
use super::shares::{Of, Share};
use crate::protocol::{Ask, Credential, InAsk, Kind, Refusal};

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
            Ask::In {
                ask: InAsk::Kill | InAsk::Signal { .. },
                ..
            }
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

impl Worker {
    /// Finds who calls, and counts the request.
    pub(super) async fn known(
        &self,
        credential: &Credential,
        needs: &[Scope],
        held: &mut Held,
    ) -> Result<Caller, Refusal> {
        let caller = self.caller(credential, needs).await?;
        self.charge(held, &caller.tenant, true)?;
        Ok(caller)
    }

    /// Counts a request of a sandbox, before anything that can take a while: against the tenant of
    /// its key, or else that of the sandbox.
    pub(super) async fn charge_early(
        &self,
        held: &mut Held,
        credential: &Credential,
        id: &str,
        ask: &InAsk,
    ) -> Result<(), Refusal> {
        let tenant = match credential {
            Credential::Key(_) => Some(self.caller(credential, scopes_in(ask)).await?.tenant),
            Credential::Nothing
            | Credential::Token(_)
            | Credential::Signature { .. }
            | Credential::Link(..) => {
                let living = self.living().get(id).map(|one| one.tenant.clone());
                living.or_else(|| self.paused().get(id).map(|one| one.tenant.clone()))
            }
        };
        match tenant {
            Some(tenant) => self.charge(held, &tenant, is_of_control(ask)),
            None => Ok(()),
        }
    }

    /// Counts a request against the shares of its tenant, once it is known whose it is.
    pub(super) fn charge(
        &self,
        held: &mut Held,
        tenant: &str,
        needs_thread: bool,
    ) -> Result<(), Refusal> {
        if held.stranger.take().is_none() {
            return Ok(());
        }
        held.shares.push(self.shares.take(Of::Requests, tenant, 1)?);
        if needs_thread {
            held.shares.push(self.shares.take(Of::Threads, tenant, 1)?);
        }
        Ok(())
    }
}
