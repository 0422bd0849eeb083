//! Reasons why a body is not forwarded, and the responses to its program.

use std::sync::Arc;

use atoll_model::network::{Flow, Place, Request as Judged};
use hyper::body::Incoming;
use hyper::{Response, StatusCode};

use super::super::body::ResponseBody;
use super::super::denial::{self, Denial};
use super::super::exchange::{RecordError, renewal};
use super::super::injection::{self, Misuse};
use crate::Egress;
use crate::credentials::Credentials;
use crate::secret::Found;

/// The reason why a body is not forwarded.
#[derive(Debug)]
pub(crate) enum BodyRejection {
    /// A placeholder in it that does not belong there; with the unread rest of the body.
    Misused(Box<Misuse>, Option<Incoming>),
    /// A refresh of a login that Atoll refreshes itself.
    Renewal(Renewing),
    /// A read error.
    Broken(String),
}

/// A request that would refresh a login.
#[derive(Debug)]
pub(in crate::inspect) struct Renewing {
    /// The index of the credential whose placeholder it carries.
    pub(in crate::inspect) by: usize,
    /// The client secret that it sends, where Atoll takes note of that.
    pub(in crate::inspect) published: Option<Vec<u8>>,
    /// The unread rest of its body.
    pub(in crate::inspect) unread: Option<Incoming>,
}

impl From<Misuse> for BodyRejection {
    fn from(misuse: Misuse) -> Self {
        Self::Misused(Box::new(misuse), None)
    }
}

impl BodyRejection {
    /// Builds the reason from a placeholder that was found.
    pub(super) fn found(credentials: &Credentials, judged: &Judged<'_>, found: Found) -> Self {
        if let Some(held) = credentials.get(found.number) {
            match (&held.binding.place, held.binding.holds(judged)) {
                (Place::Refresh(_), true) => {
                    return match credentials.renewed_by(held.name()) {
                        Some(_) => Self::Renewal(Renewing {
                            by: found.number,
                            published: None,
                            unread: None,
                        }),
                        None => injection::renewal(held).into(),
                    };
                }
                (Place::Body(_) | Place::Refresh(_), false) => {
                    return injection::misuse_of_request(held, judged).into();
                }
                (Place::Body(_), true)
                | (
                    Place::Header { .. }
                    | Place::Basic(_)
                    | Place::Query(_)
                    | Place::SigV4(_)
                    | Place::Postgres(_),
                    _,
                ) => {}
            }
        }
        let misuse = injection::misuse_in_body(credentials, found);
        misuse.map_or_else(|| Self::Broken(found.to_string()), Self::from)
    }

    /// Returns it with the unread rest of the body.
    pub(super) fn with(self, unread: Option<Incoming>) -> Self {
        match self {
            Self::Misused(misuse, _) => Self::Misused(misuse, unread),
            Self::Renewal(renewing) => Self::Renewal(Renewing { unread, ..renewing }),
            Self::Broken(why) => Self::Broken(why),
        }
    }

    /// Returns it with the client secret that the request sends.
    pub(super) fn sending(self, published: Option<Vec<u8>>) -> Self {
        match self {
            Self::Renewal(renewing) => Self::Renewal(Renewing {
                published,
                ..renewing
            }),
            Self::Misused(..) | Self::Broken(_) => self,
        }
    }

    /// Records the refusal, and returns the response to the request.
    pub(in crate::inspect) async fn told(
        self,
        egress: &Arc<Egress>,
        flow: Flow,
        what: Denial,
    ) -> Result<Response<ResponseBody>, RecordError> {
        Ok(match self {
            Self::Renewal(renewing) => {
                return renewal::answer(egress, renewing, flow, what).await;
            }
            Self::Misused(misuse, unread) => {
                misuse.record(egress, flow);
                denial::denied(StatusCode::FORBIDDEN, &what.because_of(*misuse), unread)
            }
            Self::Broken(why) => {
                egress.control.refuse(flow, why.clone());
                denial::denied(StatusCode::BAD_REQUEST, &what.because(why), None)
            }
        })
    }
}

impl From<&'static str> for BodyRejection {
    fn from(why: &'static str) -> Self {
        Self::Broken(why.to_owned())
    }
}
