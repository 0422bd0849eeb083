//! The beginning of a request that is allowed: its record, then the credentials that are
//! put into it. The same of its answer: what it is labelled with.

use std::io;
use std::sync::Arc;

use hyper::Response;

use super::unanswered::Unanswered;
use super::{Exchange, Outgoing};
use crate::Egress;
use crate::dial::Place;
use crate::inspect::answers;
use crate::inspect::body::Received;
use crate::limits::Way;
use crate::line::{Carried, Opened};

/// Has a request recorded: what changes something is on disk then.
async fn open(egress: &Egress, outgoing: &Outgoing, place: Place) -> io::Result<Opened> {
    let mut flow = outgoing.flow.clone();
    (flow.address, flow.via) = (place.address(), place.via(egress));
    let waits = !outgoing.is_safe
        || outgoing.head.is_web_socket
        || outgoing.body.is_some()
        || outgoing.leave.approval.is_some()
        || outgoing.injection.is_fetched(&egress.credentials);
    egress
        .line
        .open_by(flow, waits, outgoing.leave.approval)
        .await
}

/// The same, and then has the credentials there that are put into it.
pub(super) async fn begin(
    egress: &Arc<Egress>,
    outgoing: &mut Outgoing,
    place: Place,
) -> Result<Opened, Unanswered> {
    egress.touch(&outgoing.flow).await?;
    let opened = open(egress, outgoing, place).await?;
    if let Err(unfetched) = outgoing.injection.fetch(egress).await {
        let failure = Carried::nothing(unfetched.recorded()).at_last(true);
        egress.line.close(&opened, failure);
        return Err(Unanswered::Failed(unfetched.why));
    }
    Ok(opened)
}

/// Has the label recorded that a host's answer gives. What the program gets instead of the answer
/// where that cannot be.
pub(super) async fn unheard(
    exchange: &Exchange,
    outgoing: &Outgoing,
) -> Option<Response<Received>> {
    let heard = exchange.egress.hear_from(&exchange.asked.host).await;
    heard.err()?;
    let why = "what it has touched could not be recorded";
    exchange.fail(Way::Down, &why);
    Some(answers::failed(
        &exchange.denial(&outgoing.parts, why),
        None,
    ))
}
