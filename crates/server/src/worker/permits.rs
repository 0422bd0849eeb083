//! Permits for bodies: the front reads one once its sender is known, and each tenant has places of its
//! own, so that nobody's slow bodies hold up another's.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use atoll_store::Scope;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::held::Held;
use super::{Answered, Worker, content};
use crate::line::{Reader, Writer};
use crate::protocol::{Credential, InAsk, Kind, ListProcesses, Permit, Refusal, Request, Write};

/// The most bodies of one tenant that are read at once; others of it wait.
const BODIES_MAX: usize = 64;
/// The longest time for which one waits, and for which it has its place.
const WAITS_WITHIN: Duration = Duration::from_secs(30);
const READ_WITHIN: Duration = Duration::from_secs(60);

/// The places of each tenant.
pub(super) type Bodies = BTreeMap<String, Arc<Semaphore>>;

impl Worker {
    /// Gives a body its place, until the front has read it.
    pub(super) async fn permit(
        self: &Arc<Self>,
        ask: Permit,
        credential: Credential,
        held: &mut Held,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let tenant = self.sender(&ask, credential).await?;
        self.charge(held, &tenant, false)?;
        let places = {
            let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
            let places = bodies.entry(tenant.clone());
            Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(BODIES_MAX))))
        };
        let place = timeout(WAITS_WITHIN, places.acquire()).await;
        let written = match &place {
            Err(_) => Err(Refusal {
                retry_after_s: Some(1),
                ..Refusal::new(
                    Kind::Quota,
                    "too many bodies of this tenant are still to come",
                )
            }),
            Ok(_) => {
                let written = writer.reply(&ask, ()).await;
                // It says nothing more, and is closed once the body has come.
                let _ = timeout(READ_WITHIN, reader.next::<()>()).await;
                Ok(Answered::Written(written))
            }
        };
        drop(place);
        drop(places);
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        if bodies
            .get(&tenant)
            .is_some_and(|places| Arc::strong_count(places) == 1)
        {
            bodies.remove(&tenant);
        }
        written
    }

    /// Returns the tenant of whoever sends a body; what exactly they may is found out with what it
    /// says.
    async fn sender(&self, ask: &Permit, credential: Credential) -> Result<String, Refusal> {
        let Permit { sandbox, volume } = ask;
        if let Some(volume) = volume {
            let asked = content::Asked::new(credential, volume.clone(), None);
            return Ok(self.reached(&asked).await?.0.tenant);
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
        self.wait_paused(id).await;
        if let Some(paused) = self.list.paused(id) {
            return Ok(self.waking(&paused, &credential, &ask).await?.tenant);
        }
        let (living, _) = self.admitted(&credential, sandbox.as_deref(), &ask).await?;
        Ok(living.spec.tenant.clone())
    }
}
