//! Responses that Atoll gives in place of a server: what the program requested, why it was refused,
//! and how to ask for it.

use std::time::Duration;

use atoll_model::network::{Limit, NetworkRule, Request as Judged, Unreachable};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use tokio::time::timeout;

use super::Origin;
use super::body::ResponseBody;
use super::expectation;
use super::injection::Misuse;
use super::request_permit::NoPermit;
use crate::Egress;
use crate::denial_body::{DenialBody, HOW_TO_ASK};
use crate::limits::Excess;
use crate::policies::{DenialCause, Forbidden, PolicySnapshot, RequestFacts};

/// The advice for a refusal that no option can lift.
const HOW_TO_ASK_POLICY: &str = "Ask the person who started this: a policy decides, and `atoll why last` shows where it is written. Trying again changes nothing.";
/// The advice for a refusal by a rate limit.
const HOW_TO_ASK_RATE: &str = "A policy says how often: wait as long as it says, and try again. No option of the run allows it sooner.";
/// The advice for a refusal by the run's level of trust.
const HOW_TO_ASK_LEVEL: &str = "Ask the person who started this: how far this run is trusted decides, and `atoll why last` shows who said so. Trying again changes nothing.";
/// The advice for a refusal by the run's purpose.
const HOW_TO_ASK_PURPOSE: &str = "Ask the person who started this: it does not belong to what this run is for, and only a person starts one for another purpose. Trying again changes nothing.";
/// The advice for a refusal by a right that the run's token does not carry.
const HOW_TO_ASK_TOKEN: &str = "Whoever has issued the token can issue one that carries it, for another run. Trying again changes nothing.";
/// The advice for a refusal by a right that was dropped.
const HOW_TO_ASK_GIVEN_UP: &str = "Nobody gives it back while this run, or its session, goes on: a person can start another one. Trying again changes nothing.";
/// The most bytes read and discarded of a request body that is not forwarded.
const UNREAD_BYTES: usize = 1024 * 1024;
/// The longest time for reading and discarding it.
const UNREAD_PATIENCE: Duration = Duration::from_secs(2);
/// The longest target that is repeated to the program, characters.
const TARGET_MAX: usize = 512;

/// The reason why Atoll, not a server, answers a request.
#[derive(Debug)]
pub(crate) struct Denial {
    /// The request: method, scheme, authority and path.
    what: String,
    why: String,
    /// The rule that decided, if any.
    rule: Option<String>,
    /// The advice on how to ask for it, if known.
    how_to_ask: Option<String>,
    /// Set for a HEAD request, whose response has no body (RFC 9110, 9.3.2).
    is_head: bool,
}

impl Denial {
    /// Builds a denial for this reason.
    pub(crate) fn of(origin: &Origin, parts: &Parts, why: String) -> Self {
        let target = parts.uri.path().chars().take(TARGET_MAX);
        let target: String = target.collect();
        let what = format!(
            "{} {}://{}{target}",
            parts.method,
            origin.scheme_text(),
            origin.authority
        );
        Self {
            what,
            why,
            rule: None,
            how_to_ask: None,
            is_head: parts.method == Method::HEAD,
        }
    }

    /// Builds a denial by the network rules.
    pub(crate) fn by(
        origin: &Origin,
        parts: &Parts,
        judged: &Judged<'_>,
        unreachable: &Unreachable<'_>,
    ) -> Self {
        let rule = match unreachable {
            Unreachable::Denied(rule) => Some(rule.denying().to_string()),
            Unreachable::Untold(rule) | Unreachable::Asked(rule) => Some(rule.to_string()),
            Unreachable::NoRule
            | Unreachable::Unnamed
            | Unreachable::Special(_)
            | Unreachable::Unclear(_) => None,
        };
        let denial = Self::of(origin, parts, unreachable.why_inside());
        Self {
            rule,
            how_to_ask: Some(unreachable.how_to_ask(judged)),
            ..denial
        }
    }

    /// Returns this denial with the reason and the advice of a policy that forbids the request.
    pub(crate) fn forbidden(self, forbidden: &Forbidden) -> Self {
        let how_to_ask = match forbidden.by {
            DenialCause::Level => HOW_TO_ASK_LEVEL,
            DenialCause::Purpose => HOW_TO_ASK_PURPOSE,
            DenialCause::Policy => HOW_TO_ASK_POLICY,
            DenialCause::Rate => HOW_TO_ASK_RATE,
            DenialCause::GivenUp => HOW_TO_ASK_GIVEN_UP,
            DenialCause::Token => HOW_TO_ASK_TOKEN,
        };
        Self {
            why: forbidden.shown.clone(),
            rule: forbidden.policy.clone(),
            how_to_ask: Some(how_to_ask.to_owned()),
            ..self
        }
    }

    /// Returns this denial with this reason and advice.
    pub(crate) fn refused(self, why: String, how_to_ask: Option<String>) -> Self {
        Self {
            why,
            how_to_ask,
            ..self
        }
    }

    /// Builds a denial for a credential's placeholder outside the place that it is bound to.
    pub(crate) fn misused(origin: &Origin, parts: &Parts, misuse: Misuse) -> Self {
        Self::of(origin, parts, String::new()).because_of(misuse)
    }

    /// Returns this denial with such a placeholder as its reason.
    pub(crate) fn because_of(self, misuse: Misuse) -> Self {
        Self {
            why: misuse.why,
            how_to_ask: Some(misuse.instead),
            ..self
        }
    }

    /// Returns this denial with this reason.
    pub(crate) fn because(self, why: String) -> Self {
        Self { why, ..self }
    }
}

/// Returns the rule that allows a request, if no policy forbids it.
///
/// # Errors
/// The reason for the record, and the denial for the program.
pub(crate) fn allowing<'a>(
    egress: &'a Egress,
    origin: &Origin,
    parts: &Parts,
    judged: &Judged<'_>,
    now: &PolicySnapshot<'_>,
    sent: RequestFacts,
) -> Result<&'a NetworkRule, Box<(String, Denial)>> {
    let found = egress.network().request(judged);
    let rule = found.map_err(|unreachable| {
        let denial = Denial::by(origin, parts, judged, &unreachable);
        Box::new((unreachable.why(), denial))
    })?;
    let granted = now.request(judged, sent);
    // A person is asked once all of it is there.
    granted.map_err(|forbidden| {
        let denial = Denial::of(origin, parts, String::new()).forbidden(&forbidden);
        Box::new((forbidden.why, denial))
    })?;
    Ok(rule)
}

/// Returns the response to a request that no proxy can fulfil.
pub(crate) fn unclear(what: &str, why: &str) -> Response<ResponseBody> {
    let denial = Denial {
        what: what.to_owned(),
        why: why.to_owned(),
        rule: None,
        how_to_ask: None,
        is_head: false,
    };
    response(StatusCode::BAD_REQUEST, &denial, None, None)
}

/// Returns the response to a request that is not forwarded. An unreadable request gets no advice:
/// nobody can allow it.
pub(crate) fn denied(
    status: StatusCode,
    denial: &Denial,
    unread: Option<Incoming>,
) -> Response<ResponseBody> {
    let how_to_ask = denial.how_to_ask.as_deref().unwrap_or(HOW_TO_ASK);
    let how_to_ask = (status == StatusCode::FORBIDDEN).then_some(how_to_ask);
    response(status, denial, how_to_ask, unread)
}

/// Returns the response to a request that is refused before anything of it is sent, after reading a
/// small body.
pub(crate) async fn refused(
    status: StatusCode,
    denial: Denial,
    parts: &Parts,
    body: Incoming,
) -> Response<ResponseBody> {
    let unread = unread_of(parts, Some(body)).await;
    denied(status, &denial, unread)
}

/// Returns the response to a forwarded request that no server answered.
pub(crate) fn failed(denial: &Denial, unread: Option<Incoming>) -> Response<ResponseBody> {
    response(StatusCode::BAD_GATEWAY, denial, None, unread)
}

/// Returns the response to a request for which there is no permit.
pub(crate) async fn full(
    full: &NoPermit,
    what: Denial,
    parts: &Parts,
    body: Incoming,
) -> Response<ResponseBody> {
    match full {
        NoPermit::All(why) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            denied(status, &what.because((*why).to_owned()), None)
        }
        NoPermit::Rule(excess) => beyond(excess, what, unread_of(parts, Some(body)).await),
    }
}

/// Returns the response to a request beyond its rule's limits.
pub(crate) fn beyond(
    excess: &Excess,
    what: Denial,
    unread: Option<Incoming>,
) -> Response<ResponseBody> {
    let (status, how_to_ask) = match excess.limit {
        Limit::Requests => (
            StatusCode::TOO_MANY_REQUESTS,
            "wait as long as Retry-After says, and send fewer",
        ),
        Limit::Connections | Limit::RunConnections => (
            StatusCode::TOO_MANY_REQUESTS,
            "try again once another one has ended, and send fewer at once",
        ),
        Limit::Upload | Limit::Download | Limit::NetworkBytes => (
            StatusCode::FORBIDDEN,
            "do with less: trying again changes nothing in this run",
        ),
        Limit::Body => (StatusCode::PAYLOAD_TOO_LARGE, "send less at once"),
        Limit::Duration => (
            StatusCode::GATEWAY_TIMEOUT,
            "ask for less at once, so that it takes less time",
        ),
    };
    let place = match excess.limit {
        Limit::NetworkBytes | Limit::RunConnections => "is the run's",
        _ => "stands in the rule",
    };
    let how_to_ask =
        format!("{how_to_ask}; or ask the person who started this for more: the limit {place}");
    let denial = Denial {
        rule: Some(excess.rule.clone()),
        ..what.because(excess.why())
    };
    let mut response = response(status, &denial, Some(&how_to_ask), unread);
    if let Some(again) = excess.again {
        // Whole seconds, and never too few (RFC 9110, 10.2.3).
        let seconds = again.as_secs() + u64::from(again.subsec_nanos() > 0);
        let seconds = HeaderValue::from(seconds.max(1));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

/// Reads a body that is not forwarded, up to [`UNREAD_BYTES`], and returns what is left unread:
/// many programs send all of a body before they look at the response.
pub(super) async fn unread_of(parts: &Parts, body: Option<Incoming>) -> Option<Incoming> {
    let mut body = body.filter(|_| !expectation::is_asked(&parts.headers))?;
    let mut left = UNREAD_BYTES;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            left = left.checked_sub(bytes)?;
        }
        Some(())
    };
    let _ = timeout(UNREAD_PATIENCE, reading).await;
    Some(body)
}

fn response(
    status: StatusCode,
    denial: &Denial,
    how_to_ask: Option<&str>,
    unread: Option<Incoming>,
) -> Response<ResponseBody> {
    let told = DenialBody {
        what: &denial.what,
        why: &denial.why,
        rule: denial.rule.as_deref(),
        how_to_ask,
    };
    let body = match denial.is_head {
        true => ResponseBody::empty(),
        false => ResponseBody::told(Bytes::from(told.text()), unread),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
