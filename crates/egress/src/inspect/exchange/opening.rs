//! Start of an allowed request: its record, then the credentials injected into it. Start of its
//! response: the label that it gives the run.

use std::io;
use std::sync::Arc;

use hyper::Response;

use super::error::ExchangeError;
use super::{Exchange, OutgoingRequest};
use crate::Egress;
use crate::control_channel::{FlowOutcome, OpenFlow};
use crate::dial::Route;
use crate::inspect::body::ResponseBody;
use crate::inspect::denial;
use crate::limits::Direction;

/// Records a request; one that can change something is on disk before this returns.
async fn open(egress: &Egress, outgoing: &OutgoingRequest, place: Route) -> io::Result<OpenFlow> {
    let mut flow = outgoing.flow.clone();
    (flow.address, flow.via) = (place.address(), place.via(egress));
    let waits = !outgoing.is_safe
        || outgoing.head.is_web_socket
        || outgoing.body.is_some()
        || outgoing.leave.approval.is_some()
        || outgoing.injection.is_fetched(&egress.credentials);
    egress
        .control
        .open_by(flow, waits, outgoing.leave.approval)
        .await
}

/// Records a request, then fetches the credentials that are injected into it.
pub(super) async fn begin(
    egress: &Arc<Egress>,
    outgoing: &mut OutgoingRequest,
    place: Route,
) -> Result<OpenFlow, ExchangeError> {
    egress.touch(&outgoing.flow).await?;
    let opened = open(egress, outgoing, place).await?;
    if let Err(unfetched) = outgoing.injection.fetch(egress).await {
        let failure = FlowOutcome::nothing(unfetched.recorded()).at_last(true);
        egress.control.close(&opened, failure);
        return Err(ExchangeError::Failed(unfetched.why));
    }
    Ok(opened)
}

/// Records the label that a host's response gives. Returns the response for the program in place of
/// the server's, if that fails.
pub(super) async fn unheard(
    exchange: &Exchange,
    outgoing: &OutgoingRequest,
) -> Option<Response<ResponseBody>> {
    let heard = exchange
        .egress
        .add_answer_label(&exchange.origin.host)
        .await;
    heard.err()?;
    let why = "what it has touched could not be recorded";
    exchange.fail(Direction::Down, &why);
    Some(denial::failed(&exchange.denial(&outgoing.parts, why), None))
}
