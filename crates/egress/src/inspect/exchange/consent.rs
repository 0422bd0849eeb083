//! Requests that need approval: the whole request is read before a person is asked.

use atoll_model::network::Flow;

use super::error::{ExchangeError, Refusal};
use super::{OutgoingRequest, judged, proof};
use crate::Egress;
use crate::inspect::upload::BufferError;
use crate::inspect::{Origin, approval, head};
use crate::policies::{ApprovalNeed, Forbidden, PolicySnapshot, SendConditions, bounded};
use crate::redaction::Redactions;

/// The permission by which a request is sent.
#[derive(Debug, Default)]
pub(crate) struct SendPermission {
    /// The approval's number, if a person was asked.
    pub(crate) approval: Option<u32>,
    /// The redactions that policies apply to it and to its response.
    pub(crate) redactions: Redactions,
}

/// Waits for a person's decision about a request, where rules or policies require it.
pub(super) async fn wait(
    egress: &Egress,
    origin: &Origin,
    outgoing: &mut OutgoingRequest,
) -> Result<(), ExchangeError> {
    let sent = outgoing.head.sent(outgoing.body.is_some());
    let rule = {
        let now = decided_by(egress, origin, outgoing)?;
        let request = judged(origin, &outgoing.parts, &outgoing.head);
        let rule = egress.network().asks_of_request(&request);
        let passed = now.begin_request(&request, sent).map_err(forbidden)?;
        redact(egress, outgoing, passed.redactions).map_err(forbidden)?;
        let uses = proof::may_use(&now, &outgoing.flow)?;
        ApprovalNeed::beside(rule, ApprovalNeed::and(passed.asks, uses))
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
    let call = approval::request(outgoing, rule.clone(), body.as_ref());
    let approval = approval::consent(egress, call).await;
    outgoing.leave.approval = Some(approval.map_err(|why| {
        ExchangeError::Refused(Refusal {
            why: why.why().to_owned(),
            shown: why.why().to_owned(),
            how_to_ask: Some(why.how_to_ask().to_owned()),
        })
    })?);
    // While a person was waited for it has become another time, and labels or other policies may
    // have come.
    let now = decided_by(egress, origin, outgoing)?;
    let request = judged(origin, &outgoing.parts, &outgoing.head);
    let passed = now.request(&request, sent).map_err(forbidden)?;
    still_redacted(&outgoing.leave.redactions, &passed).map_err(forbidden)?;
    let asks = ApprovalNeed::and(passed.asks, proof::may_use(&now, &outgoing.flow)?);
    let still = ApprovalNeed::still(&rule, egress.network().asks_of_request(&request), asks);
    still.map_err(forbidden)
}

/// Redacts a request as policies say and records that; no credential is injected into a redacted
/// header. A request whose signature covers a redacted header is refused.
fn redact(
    egress: &Egress,
    outgoing: &mut OutgoingRequest,
    redactions: Redactions,
) -> Result<(), Forbidden> {
    if let Some(name) = outgoing.injection.is_of_redacted(&redactions) {
        return Err(Forbidden::signed_with(name));
    }
    if let Some(request) = &mut outgoing.flow.request {
        request.redacted = redactions.told().map(bounded);
    }
    let credentials = &egress.credentials;
    outgoing.injection.leave_out(credentials, &redactions);
    outgoing.flow = outgoing.injection.flow(credentials, &outgoing.flow);
    outgoing.leave.redactions = redactions;
    Ok(())
}

/// Checks that policies require no more redaction than was done: an approver saw the request with
/// only that redacted.
pub(super) fn still_redacted(done: &Redactions, passed: &SendConditions) -> Result<(), Forbidden> {
    match passed
        .redactions
        .told()
        .filter(|_| !done.cover(&passed.redactions))
    {
        None => Ok(()),
        Some(all) => Err(Forbidden::unredacted(&all)),
    }
}

/// Returns the policies that decide from here on, once they allow the use of the request's
/// credentials.
fn decided_by<'a>(
    egress: &'a Egress,
    origin: &Origin,
    outgoing: &mut OutgoingRequest,
) -> Result<PolicySnapshot<'a>, ExchangeError> {
    let now = egress.policies.now();
    // Its head was read under others.
    if now.version() != outgoing.flow.policies
        && let Some(why) = head::overridden(egress, &now, origin, &outgoing.parts.headers)
    {
        return Err(ExchangeError::refused(why.to_owned(), why.to_owned()));
    }
    outgoing.flow.policies = now.version();
    proof::may_use(&now, &outgoing.flow)?;
    Ok(now)
}

fn forbidden(forbidden: Forbidden) -> ExchangeError {
    ExchangeError::refused(forbidden.why, forbidden.shown)
}

/// Refuses a request whose body cannot be read whole: the approver sees all of it, or nothing is
/// sent.
fn unread(egress: &Egress, flow: &Flow, why: &BufferError) -> ExchangeError {
    let why = match why {
        BufferError::Long => {
            "a person is asked about it, and its body has more than 16 MiB".to_owned()
        }
        BufferError::Trailers => "a person is asked about it, and its body has trailers".to_owned(),
        BufferError::Broken(_) | BufferError::Late => return proof::unread(egress, flow, why),
    };
    ExchangeError::Broken(why)
}
