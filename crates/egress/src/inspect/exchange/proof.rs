//! Checks before anything is sent with a credential: policies allow its use now, and a signature
//! that is made anew was the program's own.

use atoll_model::network::Flow;

use super::OutgoingRequest;
use super::error::ExchangeError;
use crate::Egress;
use crate::inspect::Origin;
use crate::inspect::body::BodyError;
use crate::inspect::injection::{self, Misuse, VerificationInput};
use crate::inspect::upload::{BufferError, SignedBody};
use crate::policies::{ApprovalNeed, PolicySnapshot};

/// Checks that credentials may be injected, and that the program signed what it sends.
pub(super) async fn check(
    egress: &Egress,
    origin: &Origin,
    outgoing: &mut OutgoingRequest,
) -> Result<(), ExchangeError> {
    may_use(&egress.policies.now(), &outgoing.flow)?;
    let Some(signing) = outgoing.injection.signing() else {
        return Ok(());
    };
    let body = match (signing.needs(), &mut outgoing.body) {
        (VerificationInput::Body, Some(body)) => {
            let read = body.read(egress.bodies.ahead()).await;
            read.map_err(|why| unread(egress, &outgoing.flow, &why))?
        }
        (VerificationInput::Body, None) | (VerificationInput::Nothing, _) => Default::default(),
    };
    let (credentials, parts) = (&egress.credentials, &outgoing.parts);
    let proven = signing.prove(credentials, origin, parts, &outgoing.head, &body);
    proven.map_err(|misuse| misused(egress, &outgoing.flow, misuse))?;
    let Some(mut expected) = signing.expected(credentials) else {
        return Ok(());
    };
    if let SignedBody::Pieces(pieces) = &mut expected {
        let permit = egress.bodies.piece().await;
        pieces.within(permit.map_err(|why| ExchangeError::Broken(why.to_owned()))?);
    }
    let right = match &mut outgoing.body {
        Some(body) => body.expect(expected),
        None => expected.of_nothing(),
    };
    right.map_err(|why| unread(egress, &outgoing.flow, &why.into()))
}

/// Checks that policies allow the use of a request's credentials now, and returns the approval that
/// they require first: a run's right to a credential may not hold at all times.
pub(super) fn may_use(
    now: &PolicySnapshot<'_>,
    flow: &Flow,
) -> Result<Option<ApprovalNeed>, ExchangeError> {
    let granted = now.credentials(&flow.credentials);
    granted.map_err(|forbidden| ExchangeError::refused(forbidden.why, forbidden.shown))
}

/// Returns the reason for refusing a body that could not be read, which may be a placeholder in it.
pub(super) fn unread(egress: &Egress, flow: &Flow, why: &BufferError) -> ExchangeError {
    let misuse = match why {
        BufferError::Broken(BodyError::Found(found)) => {
            injection::misuse_in_body(&egress.credentials, *found)
        }
        BufferError::Broken(BodyError::AnotherBody(misuse)) => Some((**misuse).clone()),
        BufferError::Broken(_) | BufferError::Long | BufferError::Trailers | BufferError::Late => {
            None
        }
    };
    match misuse {
        Some(misuse) => misused(egress, flow, misuse),
        None => ExchangeError::Broken(why.to_string()),
    }
}

fn misused(egress: &Egress, flow: &Flow, misuse: Misuse) -> ExchangeError {
    misuse.record(egress, flow.clone());
    ExchangeError::Misused(Box::new(misuse))
}
