//! The beginning of a request that is allowed: its record, then the credentials that are
//! put into it.

use std::io;
use std::sync::Arc;

use super::Outgoing;
use super::unanswered::Unanswered;
use crate::Egress;
use crate::dial::Place;
use crate::line::{Carried, Opened};

/// Has a request recorded: what changes something is on disk then.
async fn open(egress: &Egress, outgoing: &Outgoing, place: Place) -> io::Result<Opened> {
    let mut flow = outgoing.flow.clone();
    (flow.address, flow.via) = (place.address(), place.via(egress));
    let waits = !outgoing.is_safe
        || outgoing.head.is_web_socket
        || outgoing.body.is_some()
        || outgoing.approval.is_some()
        || outgoing.injection.is_fetched(&egress.credentials);
    egress.line.open_by(flow, waits, outgoing.approval).await
}

/// The same, and then has the credentials there that are put into it.
pub(super) async fn begin(
    egress: &Arc<Egress>,
    outgoing: &mut Outgoing,
    place: Place,
) -> Result<Opened, Unanswered> {
    let opened = open(egress, outgoing, place).await?;
    if let Err(unfetched) = outgoing.injection.fetch(egress).await {
        let failure = Carried::nothing(unfetched.recorded()).at_last(true);
        egress.line.close(&opened, failure);
        return Err(Unanswered::Failed(unfetched.why));
    }
    Ok(opened)
}
