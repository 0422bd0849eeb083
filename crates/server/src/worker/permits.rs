//! Permits for bodies: the front reads one once its sender is known, and each tenant has places of its
//! own, so that nobody's slow bodies hold up another's.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answers::Answered;
use crate::line::{Reader, Writer};
use crate::protocol::{Kind, Permit, Refusal};

/// The most bodies of one tenant that are read at once; others of it wait.
const BODIES_MAX: usize = 64;
/// The longest time for which one waits, and for which it has its place.
const WAITS_WITHIN: Duration = Duration::from_secs(30);
const READ_WITHIN: Duration = Duration::from_secs(60);

/// The places for bodies that are read, of each tenant that has any.
#[derive(Default)]
pub(super) struct Bodies(Mutex<BTreeMap<String, Arc<Semaphore>>>);

impl Bodies {
    /// Gives a body its place, until the front has read it.
    pub(super) async fn permit(
        &self,
        ask: &Permit,
        tenant: String,
        reader: &mut Reader,
        writer: &mut Writer,
    ) -> Result<Answered, Refusal> {
        let places = {
            let mut bodies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
                let written = writer.reply(ask, ()).await;
                // It says nothing more, and is closed once the body has come.
                let _ = timeout(READ_WITHIN, reader.next::<()>()).await;
                Ok(Answered::Written(written))
            }
        };
        drop(place);
        drop(places);
        let mut bodies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if bodies
            .get(&tenant)
            .is_some_and(|places| Arc::strong_count(places) == 1)
        {
            bodies.remove(&tenant);
        }
        written
    }
}
