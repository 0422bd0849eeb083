//! What ends an exchange that goes on: its host, or where it leads, is given up, or policies that
//! came meanwhile deny it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use atoll_model::network::{CredentialName, Request as Judged, Target};

use hyper::header::HeaderMap;
use hyper::http::request::Parts;

use super::{Exchange, Outgoing, consent};
use crate::Egress;
use crate::dial::Place;
use crate::inspect::answers::Denial;
use crate::inspect::body::Broken;
use crate::inspect::{Asked, head, header_names};
use crate::limits::{Part, Way};
use crate::policies::{Forbidden, Now, Sent};
use crate::redaction::Redactions;

/// What is asked of a request again, once there are other policies.
#[derive(Debug)]
pub(crate) struct Again {
    method: String,
    target: Target,
    sent: Sent,
    credentials: Vec<CredentialName>,
    /// What goes neither out nor in with it.
    redactions: Redactions,
    /// By which it was decided on.
    policies: u32,
}

impl Again {
    /// Of a request that is about to be sent.
    pub(super) fn of(outgoing: &Outgoing) -> Self {
        Self {
            method: outgoing.parts.method.as_str().to_owned(),
            target: outgoing.head.target.clone(),
            sent: outgoing.head.sent(outgoing.body.is_some()),
            credentials: outgoing.flow.credentials.clone(),
            redactions: outgoing.leave.redactions.clone(),
            policies: outgoing.flow.policies,
        }
    }

    fn may(&self, now: &Now<'_>, asked: &Asked) -> Result<(), Forbidden> {
        let judged = Judged {
            host: &asked.host,
            port: asked.port,
            scheme: asked.scheme,
            method: &self.method,
            target: &self.target,
        };
        let passed = now.request(&judged, self.sent)?;
        consent::still_redacted(&self.redactions, &passed)?;
        now.credentials(&self.credentials).map(drop)
    }

    /// Returns once it may go on no longer: why.
    async fn lost(&self, egress: &Egress, asked: &Asked, place: Place) -> String {
        let may = |now: &Now<'_>| self.may(now, asked);
        let lost = egress.lost(&asked.host, Some(place), self.policies, may);
        lost.await
    }
}

impl Exchange {
    /// What a program is told whose exchange is not carried on.
    pub(crate) fn denial(&self, parts: &Parts, why: &str) -> Denial {
        Denial::of(&self.asked, parts, why.to_owned())
    }

    /// Takes out of headers or trailers what policies say.
    pub(crate) fn redact(&self, way: Way, headers: &mut HeaderMap) {
        self.judged.redactions.take_out(way, headers);
    }

    /// Makes trailers those that go on.
    ///
    /// # Errors
    /// [`Broken::Trailers`], where a server may read those of a request in another way.
    pub(crate) fn trail(&self, way: Way, trailers: &mut HeaderMap) -> Result<(), Broken> {
        self.redact(way, trailers);
        if way == Way::Down {
            return Ok(());
        }
        header_names::unframe(trailers);
        let now = self.egress.policies.now();
        let overridden = head::overridden(&self.egress, &now, &self.asked, trailers);
        let why = overridden.map(str::to_owned);
        match why.or_else(|| header_names::doubt(trailers)) {
            Some(why) => Err(Broken::Trailers(why)),
            None => Ok(()),
        }
    }
}

/// Waits beside a body until its exchange may go on no longer.
pub(crate) struct Rights {
    lost: Pin<Box<dyn Future<Output = String> + Send>>,
    /// Why, from then on.
    why: Option<String>,
}

impl std::fmt::Debug for Rights {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Rights").finish_non_exhaustive()
    }
}

impl Rights {
    /// Those of an exchange.
    pub(crate) fn of(exchange: &Exchange) -> Self {
        let (egress, asked) = (Arc::clone(&exchange.egress), Arc::clone(&exchange.asked));
        let (judged, place) = (Arc::clone(&exchange.judged), exchange.place);
        Self {
            lost: Box::pin(async move { judged.lost(&egress, &asked, place).await }),
            why: None,
        }
    }

    /// Ready once they are lost, and ever after: with what its body ends by.
    pub(crate) fn poll(&mut self, exchange: &Exchange, context: &mut Context<'_>) -> Poll<Broken> {
        let why = match &self.why {
            Some(why) => why.clone(),
            None => {
                let why = ready!(self.lost.as_mut().poll(context));
                exchange.failed(why.clone());
                self.why.insert(why).clone()
            }
        };
        Poll::Ready(Broken::GivenUp(why))
    }
}

impl Exchange {
    /// Returns once its host, or where it leads, was given up, or other policies deny it: why.
    async fn given_up(&self) -> String {
        self.judged
            .lost(&self.egress, &self.asked, self.place)
            .await
    }

    /// Does something for it as long as that is so. Nothing is begun where it is so already.
    ///
    /// # Errors
    /// Why it ends, which is noted.
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
    /// Its part of what its rule allows, where that limits something.
    pub(crate) fn part(&self) -> Option<&Part> {
        self.room.part()
    }

    /// Where what goes on beside is run.
    pub(crate) fn egress(&self) -> &Arc<Egress> {
        &self.egress
    }
}
