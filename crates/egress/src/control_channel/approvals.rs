//! Approvals: requests to a person, and the answers.

use std::sync::atomic::Ordering;

use atoll_model::conduct::HistoryEvent;
use atoll_model::network::{ASKING_MAX, AskedCall, CallDigest, Consent, FlowReport, NoConsent};
use tokio::sync::oneshot;

use super::{ControlChannel, lock};

impl ControlChannel {
    /// Asks a person for an approval. Returns the request's id, and the receiver of the answer.
    ///
    /// # Errors
    /// [`NoConsent`]: too many wait already, or nobody could ask the person any more.
    pub(crate) fn ask(
        &self,
        call: AskedCall,
    ) -> Result<(u64, oneshot::Receiver<(CallDigest, Consent)>), NoConsent> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (says, said) = oneshot::channel();
        {
            let mut asking = lock(&self.asking);
            if asking.len() >= ASKING_MAX {
                return Err(NoConsent::TooMany);
            }
            asking.insert(id, says);
        }
        let call = Box::new(call);
        if self.report(&FlowReport::Ask { id, call }, true).is_err() {
            lock(&self.asking).remove(&id);
            return Err(NoConsent::Ended);
        }
        Ok((id, said))
    }

    /// Withdraws a request for approval: nobody waits for the answer any more.
    pub(crate) fn withdraw(&self, id: u64) {
        if lock(&self.asking).remove(&id).is_some() {
            // Nobody listens: then nobody is asked either.
            let _ = self.report(&FlowReport::Left { id }, true);
        }
    }

    pub(super) fn answered(&self, id: u64, digest: CallDigest, consent: Consent) {
        let no = Consent::Denied {
            why: NoConsent::Person,
        };
        if consent == no {
            lock(&self.conduct).did(HistoryEvent::Refused);
        }
        if let Some(says) = lock(&self.asking).remove(&id) {
            // It may have gone meanwhile.
            let _ = says.send((digest, consent));
        }
    }
}
