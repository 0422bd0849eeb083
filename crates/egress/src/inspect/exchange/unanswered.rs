//! Why a request has no answer by the server.

use std::io;

use atoll_model::network::Flow;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::{Outgoing, flow};
use crate::Egress;
use crate::inspect::Asked;
use crate::inspect::answers::{self, Denial, unread_of};
use crate::inspect::body::Received;
use crate::inspect::head::Fault;
use crate::inspect::injection::Misuse;
use crate::inspect::upload::Upload;
use crate::tunnel;

/// Nobody records any more, so nothing is carried.
#[derive(Debug, thiserror::Error)]
#[error("nobody records what is carried: {0}")]
pub(crate) struct Unrecorded(#[from] io::Error);

/// Refuses a request whose head cannot be read in one way alone.
pub(super) async fn unclear(
    egress: &Egress,
    (asked, policies): (&Asked, u32),
    fault: Fault,
    parts: &Parts,
    body: Incoming,
) -> Response<Received> {
    let denial = Denial::of(asked, parts, fault.why.clone());
    let flow = Flow {
        policies,
        ..flow(asked, parts, None)
    };
    tunnel::refuse_another(egress, flow, fault.why);
    answers::refused(fault.status, denial, parts, body).await
}

/// Why a request has no answer by the server.
pub(super) enum Unanswered {
    /// Not recorded.
    Unrecorded(Unrecorded),
    /// It may not go where its name leads, or what it is for is not old enough.
    Refused(Refusal),
    /// It did not get there.
    Failed(String),
    /// Its body cannot be read.
    Broken(String),
    /// It carries a placeholder where that may not stand, of which was told.
    Misused(Box<Misuse>),
}

/// Why it may not.
pub(super) struct Refusal {
    /// For the record.
    pub(super) why: String,
    /// For the program.
    pub(super) inside: String,
    /// What can be asked for, where that is known.
    pub(super) how_to_ask: Option<String>,
}

impl Unanswered {
    /// Refused, where no more can be said.
    pub(super) fn refused(why: String, inside: String) -> Self {
        Self::Refused(Refusal {
            why,
            inside,
            how_to_ask: None,
        })
    }

    /// Tells of it where that is to be told. The answer to its request.
    pub(super) fn told(
        self,
        egress: &Egress,
        flow: Flow,
        what: Denial,
        unread: Option<Incoming>,
    ) -> Result<Response<Received>, Unrecorded> {
        Ok(match self {
            Self::Unrecorded(unrecorded) => return Err(unrecorded),
            Self::Refused(refusal) => {
                egress.line.refuse(flow, refusal.why);
                let denial = what.refused(refusal.inside, refusal.how_to_ask);
                answers::denied(StatusCode::FORBIDDEN, &denial, unread)
            }
            Self::Failed(why) => answers::failed(&what.because(why), unread),
            Self::Misused(misuse) => {
                answers::denied(StatusCode::FORBIDDEN, &what.because_of(*misuse), unread)
            }
            Self::Broken(why) => {
                answers::denied(StatusCode::BAD_REQUEST, &what.because(why), unread)
            }
        })
    }

    /// Why, for a program.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Unrecorded(unrecorded) => unrecorded.to_string(),
            Self::Refused(refusal) => refusal.inside.clone(),
            Self::Failed(why) | Self::Broken(why) => why.clone(),
            Self::Misused(misuse) => misuse.why.clone(),
        }
    }
}

/// Tells why there is no answer, by the policies that decided last.
pub(super) async fn told(
    egress: &Egress,
    unanswered: Unanswered,
    mut outgoing: Outgoing,
    (flow, what): (Flow, Denial),
) -> Result<Response<Received>, Unrecorded> {
    let unread = outgoing.body.take().and_then(Upload::into_rest);
    let unread = unread_of(&outgoing.parts, unread).await;
    if let Some(excess) = outgoing.room.excess() {
        return Ok(answers::beyond(excess, what, unread));
    }
    let policies = outgoing.flow.policies;
    unanswered.told(egress, Flow { policies, ..flow }, what, unread)
}

impl From<io::Error> for Unanswered {
    fn from(error: io::Error) -> Self {
        Self::Unrecorded(error.into())
    }
}
