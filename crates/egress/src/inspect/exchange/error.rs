//! Reasons why a request gets no response from the server.

use std::io;

use atoll_model::network::Flow;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::{OutgoingRequest, flow};
use crate::Egress;
use crate::destination;
use crate::inspect::Origin;
use crate::inspect::body::ResponseBody;
use crate::inspect::denial::{self, Denial, unread_of};
use crate::inspect::head::Fault;
use crate::inspect::injection::Misuse;
use crate::inspect::upload::Upload;

/// Recording has failed, so nothing is forwarded.
#[derive(Debug, thiserror::Error)]
#[error("nobody records what is carried: {0}")]
pub(crate) struct RecordError(#[from] io::Error);

/// Refuses a request whose head can be read in more than one way.
pub(super) async fn unclear(
    egress: &Egress,
    origin: &Origin,
    policies: u32,
    fault: Fault,
    parts: &Parts,
    body: Incoming,
) -> Response<ResponseBody> {
    let denial = Denial::of(origin, parts, fault.why.clone());
    let flow = Flow {
        policies,
        ..flow(origin, parts, None)
    };
    destination::refuse_another(egress, flow, fault.why);
    denial::refused(fault.status, denial, parts, body).await
}

/// The reason why a request gets no response from the server.
pub(super) enum ExchangeError {
    /// Recording it failed.
    Unrecorded(RecordError),
    /// A refusal: its name leads to a forbidden address, say, or the requested release is too new.
    Refused(Refusal),
    /// A failure on the way to the server.
    Failed(String),
    /// Its body cannot be read.
    Broken(String),
    /// A misplaced placeholder in it, which was reported.
    Misused(Box<Misuse>),
}

/// The reason for a refusal.
pub(super) struct Refusal {
    /// The reason for the record.
    pub(super) why: String,
    /// The reason for the program.
    pub(super) shown: String,
    /// The advice on how to ask for it, if known.
    pub(super) how_to_ask: Option<String>,
}

impl ExchangeError {
    /// Builds a refusal without further advice.
    pub(super) fn refused(why: String, shown: String) -> Self {
        Self::Refused(Refusal {
            why,
            shown,
            how_to_ask: None,
        })
    }

    /// Reports the refusal where needed, and returns the response to the request.
    pub(super) fn respond(
        self,
        egress: &Egress,
        flow: Flow,
        what: Denial,
        unread: Option<Incoming>,
    ) -> Result<Response<ResponseBody>, RecordError> {
        Ok(match self {
            Self::Unrecorded(unrecorded) => return Err(unrecorded),
            Self::Refused(refusal) => {
                egress.control.refuse(flow, refusal.why);
                let denial = what.refused(refusal.shown, refusal.how_to_ask);
                denial::denied(StatusCode::FORBIDDEN, &denial, unread)
            }
            Self::Failed(why) => denial::failed(&what.because(why), unread),
            Self::Misused(misuse) => {
                denial::denied(StatusCode::FORBIDDEN, &what.because_of(*misuse), unread)
            }
            Self::Broken(why) => {
                denial::denied(StatusCode::BAD_REQUEST, &what.because(why), unread)
            }
        })
    }

    /// Returns the reason for a program.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Unrecorded(unrecorded) => unrecorded.to_string(),
            Self::Refused(refusal) => refusal.shown.clone(),
            Self::Failed(why) | Self::Broken(why) => why.clone(),
            Self::Misused(misuse) => misuse.why.clone(),
        }
    }
}

/// Reports why there is no response, with the policies that decided last.
pub(super) async fn respond(
    egress: &Egress,
    unanswered: ExchangeError,
    mut outgoing: OutgoingRequest,
    flow: Flow,
    what: Denial,
) -> Result<Response<ResponseBody>, RecordError> {
    let unread = outgoing.body.take().and_then(Upload::into_rest);
    let unread = unread_of(&outgoing.parts, unread).await;
    if let Some(excess) = outgoing.permit.excess() {
        return Ok(denial::beyond(excess, what, unread));
    }
    let policies = outgoing.flow.policies;
    unanswered.respond(egress, Flow { policies, ..flow }, what, unread)
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> Self {
        Self::Unrecorded(error.into())
    }
}
