//! Rights of an exchange in progress: it ends once its host or destination is dropped, or new
//! policies deny it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use atoll_model::network::{CredentialName, Request as Judged, Target};

use hyper::header::HeaderMap;
use hyper::http::request::Parts;

use super::{Exchange, OutgoingRequest, consent};
use crate::Egress;
use crate::dial::Route;
use crate::inspect::body::BodyError;
use crate::inspect::denial::Denial;
use crate::inspect::{Origin, head, header_names};
use crate::limits::{BudgetShare, Direction};
use crate::policies::{Forbidden, PolicySnapshot, RequestFacts};
use crate::redaction::Redactions;

/// The facts by which a request is judged again when the policies change.
#[derive(Debug)]
pub(crate) struct JudgedRequest {
    method: String,
    target: Target,
    sent: RequestFacts,
    credentials: Vec<CredentialName>,
    /// The redactions of the request and of its response.
    redactions: Redactions,
    /// The version of the policies that decided last.
    policies: u32,
}

impl JudgedRequest {
    /// Takes the facts of a request that is about to be sent.
    pub(super) fn of(outgoing: &OutgoingRequest) -> Self {
        Self {
            method: outgoing.parts.method.as_str().to_owned(),
            target: outgoing.head.target.clone(),
            sent: outgoing.head.sent(outgoing.body.is_some()),
            credentials: outgoing.flow.credentials.clone(),
            redactions: outgoing.leave.redactions.clone(),
            policies: outgoing.flow.policies,
        }
    }

    fn may(&self, now: &PolicySnapshot<'_>, origin: &Origin) -> Result<(), Forbidden> {
        let judged = Judged {
            host: &origin.host,
            port: origin.port,
            scheme: origin.scheme,
            method: &self.method,
            target: &self.target,
        };
        let passed = now.request(&judged, self.sent)?;
        consent::still_redacted(&self.redactions, &passed)?;
        now.credentials(&self.credentials).map(drop)
    }

    /// Resolves with the reason once it may go on no longer.
    async fn lost(&self, egress: &Egress, origin: &Origin, place: Route) -> String {
        let may = |now: &PolicySnapshot<'_>| self.may(now, origin);
        let lost = egress.lost(&origin.host, Some(place), self.policies, may);
        lost.await
    }
}

impl Exchange {
    /// Returns the denial for a program whose exchange is not carried on.
    pub(crate) fn denial(&self, parts: &Parts, why: &str) -> Denial {
        Denial::of(&self.origin, parts, why.to_owned())
    }

    /// Redacts headers or trailers as policies say.
    pub(crate) fn redact(&self, way: Direction, headers: &mut HeaderMap) {
        self.judged.redactions.take_out(way, headers);
    }

    /// Prepares trailers for forwarding.
    ///
    /// # Errors
    /// [`BodyError::Trailers`], where a server may read those of a request in another way.
    pub(crate) fn trail(&self, way: Direction, trailers: &mut HeaderMap) -> Result<(), BodyError> {
        self.redact(way, trailers);
        if way == Direction::Down {
            return Ok(());
        }
        header_names::unframe(trailers);
        let now = self.egress.policies.now();
        let overridden = head::overridden(&self.egress, &now, &self.origin, trailers);
        let why = overridden.map(str::to_owned);
        match why.or_else(|| header_names::doubt(trailers)) {
            Some(why) => Err(BodyError::Trailers(why)),
            None => Ok(()),
        }
    }
}

/// Watches, beside a body, the rights of its exchange.
pub(crate) struct RightsWatch {
    lost: Pin<Box<dyn Future<Output = String> + Send>>,
    /// The reason, once they are lost.
    why: Option<String>,
}

impl std::fmt::Debug for RightsWatch {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("RightsWatch").finish_non_exhaustive()
    }
}

impl RightsWatch {
    /// Watches the rights of this exchange.
    pub(crate) fn of(exchange: &Exchange) -> Self {
        let (egress, asked) = (Arc::clone(&exchange.egress), Arc::clone(&exchange.origin));
        let (judged, place) = (Arc::clone(&exchange.judged), exchange.place);
        Self {
            lost: Box::pin(async move { judged.lost(&egress, &asked, place).await }),
            why: None,
        }
    }

    /// Ready once the rights are lost, and ever after, with the error that ends the body.
    pub(crate) fn poll(
        &mut self,
        exchange: &Exchange,
        context: &mut Context<'_>,
    ) -> Poll<BodyError> {
        let why = match &self.why {
            Some(why) => why.clone(),
            None => {
                let why = ready!(self.lost.as_mut().poll(context));
                exchange.failed(why.clone());
                self.why.insert(why).clone()
            }
        };
        Poll::Ready(BodyError::GivenUp(why))
    }
}

impl Exchange {
    /// Resolves with the reason once its host or destination was dropped, or other policies deny
    /// it.
    async fn given_up(&self) -> String {
        self.judged
            .lost(&self.egress, &self.origin, self.place)
            .await
    }

    /// Runs this work for as long as the rights hold. Nothing is begun if they are lost already.
    ///
    /// # Errors
    /// The reason why it ended, which is noted.
    pub(crate) async fn unless_given_up<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, String> {
        tokio::select! {
            biased;
            why = self.given_up() => {
                self.failed(why.clone());
                Err(why)
            }
            done = work => Ok(done),
        }
    }
}

impl Exchange {
    /// Returns its part of its rule's limits, if the rule has any.
    pub(crate) fn part(&self) -> Option<&BudgetShare> {
        self.permit.part()
    }

    /// Returns the egress process's state, for tasks that run beside it.
    pub(crate) fn egress(&self) -> &Arc<Egress> {
        &self.egress
    }
}
