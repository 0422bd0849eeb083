//! Why a body does not leave, and what its program is told.

use std::sync::Arc;

use atoll_model::network::{Flow, Place, Request as Judged};
use hyper::body::Incoming;
use hyper::{Response, StatusCode};

use super::super::answers::{self, Denial};
use super::super::body::Received;
use super::super::exchange::{Unrecorded, renewed};
use super::super::injection::{self, Misuse};
use crate::Egress;
use crate::credentials::Credentials;
use crate::secret::Found;

/// Why a body does not leave.
#[derive(Debug)]
pub(crate) enum Untaken {
    /// It carries a placeholder that is not for it. What is left of it.
    Misused(Box<Misuse>, Option<Incoming>),
    /// It would renew a login that is renewed here.
    Renewal(Renewing),
    /// It cannot be read.
    Broken(String),
}

/// A request that would renew a login.
#[derive(Debug)]
pub(in crate::inspect) struct Renewing {
    /// By which of the credentials.
    pub(in crate::inspect) by: usize,
    /// What it has as its client's secret, where that is heard.
    pub(in crate::inspect) published: Option<Vec<u8>>,
    /// What is left of its body.
    pub(in crate::inspect) unread: Option<Incoming>,
}

impl From<Misuse> for Untaken {
    fn from(misuse: Misuse) -> Self {
        Self::Misused(Box::new(misuse), None)
    }
}

impl Untaken {
    /// Because of a placeholder that was found.
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

    /// With what is left of the body.
    pub(super) fn with(self, unread: Option<Incoming>) -> Self {
        match self {
            Self::Misused(misuse, _) => Self::Misused(misuse, unread),
            Self::Renewal(renewing) => Self::Renewal(Renewing { unread, ..renewing }),
            Self::Broken(why) => Self::Broken(why),
        }
    }

    /// With what it has as its client's secret.
    pub(super) fn sending(self, published: Option<Vec<u8>>) -> Self {
        match self {
            Self::Renewal(renewing) => Self::Renewal(Renewing {
                published,
                ..renewing
            }),
            Self::Misused(..) | Self::Broken(_) => self,
        }
    }

    /// Tells of it. The answer to its request.
    pub(in crate::inspect) async fn told(
        self,
        egress: &Arc<Egress>,
        flow: Flow,
        what: Denial,
    ) -> Result<Response<Received>, Unrecorded> {
        Ok(match self {
            Self::Renewal(renewing) => {
                return renewed::answered(egress, renewing, (flow, what)).await;
            }
            Self::Misused(misuse, unread) => {
                misuse.tell(egress, flow);
                answers::denied(StatusCode::FORBIDDEN, &what.because_of(*misuse), unread)
            }
            Self::Broken(why) => {
                egress.line.refuse(flow, why.clone());
                answers::denied(StatusCode::BAD_REQUEST, &what.because(why), None)
            }
        })
    }
}

impl From<&'static str> for Untaken {
    fn from(why: &'static str) -> Self {
        Self::Broken(why.to_owned())
    }
}
