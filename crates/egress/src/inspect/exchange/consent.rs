//! Requests that a person is asked about: all of one is there when they are.

use atoll_model::network::Flow;

use super::unanswered::{Refusal, Unanswered};
use super::{Outgoing, judged, proof};
use crate::Egress;
use crate::inspect::upload::Unheld;
use crate::inspect::{Asked, asking};
use crate::policies::{Asks, Forbidden};

/// Waits for a person's word about a request, where rules or policies ask for that.
pub(super) async fn wait(
    egress: &Egress,
    asked: &Asked,
    outgoing: &mut Outgoing,
) -> Result<(), Unanswered> {
    let follows = outgoing.head.follows(outgoing.body.is_some());
    let rule = {
        let request = judged(asked, &outgoing.parts, &outgoing.head);
        let rule = egress.network.asks_of_request(&request);
        let asks = egress.policies.request(&request, follows);
        Asks::beside(rule, asks.map_err(forbidden)?)
    };
    let Some(rule) = rule else {
        return Ok(());
    };
    let body = match &mut outgoing.body {
        Some(body) => {
            let read = body.read(egress.bodies.ahead()).await;
            let read = read.map_err(|why| unread(egress, &outgoing.flow, &why))?;
            // What is put in is a secret: its name is shown, and what stands for it.
            Some(body.before().cloned().unwrap_or(read))
        }
        None => None,
    };
    let call = asking::request(outgoing, rule, body.as_ref());
    let approval = asking::consent(egress, call).await;
    outgoing.approval = Some(approval.map_err(|why| {
        Unanswered::Refused(Refusal {
            why: why.why().to_owned(),
            inside: why.why().to_owned(),
            how_to_ask: Some(why.how_to_ask().to_owned()),
        })
    })?);
    // While a person was waited for it has become another time.
    let request = judged(asked, &outgoing.parts, &outgoing.head);
    let granted = egress.policies.request(&request, follows);
    granted.map_err(forbidden)?;
    proof::may_use(egress, &outgoing.flow)
}

fn forbidden(forbidden: Forbidden) -> Unanswered {
    Unanswered::refused(forbidden.why, forbidden.inside)
}

/// A person sees all of what is sent, or nothing is.
fn unread(egress: &Egress, flow: &Flow, why: &Unheld) -> Unanswered {
    let why = match why {
        Unheld::Long => "a person is asked about it, and its body has more than 16 MiB".to_owned(),
        Unheld::Trailers => "a person is asked about it, and its body has trailers".to_owned(),
        Unheld::Broken(_) | Unheld::Late => return proof::unread(egress, flow, why),
    };
    Unanswered::Broken(why)
}
