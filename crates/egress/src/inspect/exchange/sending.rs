//! Sending of an allowed request: the choice of a connection, and the outcome.

use std::sync::Arc;

use atoll_model::network::Scheme;
use hyper::{Request, Response, Version};

use super::error::ExchangeError;
use super::opening::begin;
use super::{Exchange, OutgoingRequest, answered, judged, masked};
use crate::Egress;
use crate::control_channel::{FlowOutcome, OpenFlow};
use crate::inspect::Origin;
use crate::inspect::body::{RequestBody, ResponseBody};
use crate::inspect::expectation::{ENDLESS, InterimResponses};
use crate::inspect::upstream::Server;
use crate::origin_error::{is_of_tls, why_not, why_unanswered};
use crate::resolve::{ResolveError, addresses, given_up, may};

/// The reason for requesting the whole after a range.
const NOT_THAT_PART: &str = "what came is not the part that was asked for, so all is asked for";

/// The reason for no answer by HTTP/2 without TLS, which a server cannot refuse in words.
const NOT_BY_2: &str = "the host gives no answer by HTTP/2 without TLS, by which the program asks: \
                        many servers speak HTTP/1.1 alone there. To reach it, have the program \
                        ask by HTTP/1.1, or by https";

/// Sends an allowed request on a kept connection, or on a new one.
pub(super) async fn carry(
    egress: &Arc<Egress>,
    origin: &Arc<Origin>,
    outgoing: &mut OutgoingRequest,
) -> Result<Response<ResponseBody>, ExchangeError> {
    let key = origin.key(outgoing.is_2);
    // A connection that becomes a WebSocket is nobody else's.
    while let Some(server) = egress.upstream.kept(key).await {
        // What may be dialled for another request may not for this one.
        let judged = judged(origin, &outgoing.parts, &outgoing.head);
        let may = may(
            egress,
            &origin.host,
            server.place,
            origin.port,
            Some(&judged),
        );
        let is_denied = may.is_err() || given_up(egress, server.place).is_some();
        if outgoing.head.is_web_socket && server.is_2() || is_denied {
            break;
        }
        match attempt(egress, origin, server, outgoing).await? {
            AttemptOutcome::Answered(response) => return Ok(response),
            AttemptOutcome::Unsent(_) => {}
            AttemptOutcome::Failed(unanswered) => return Err(unanswered),
        }
        // It would be taken again and again.
        egress.upstream.part(key);
    }
    let judged = judged(origin, &outgoing.parts, &outgoing.head);
    let resolved = match addresses(egress, &origin.host, origin.port, Some(&judged)).await {
        Ok(resolved) => resolved,
        Err(ResolveError::Refused { why, shown }) => {
            return Err(ExchangeError::refused(why, shown));
        }
        Err(ResolveError::Unknown(why)) => {
            // It was allowed, and somebody was asked for its name.
            let why = format!("DNS lookup failed: {why}");
            let opened = egress.control.open(outgoing.flow.clone(), false).await?;
            let failure = FlowOutcome::nothing(why.clone()).at_last(true);
            egress.control.close(&opened, failure);
            return Err(ExchangeError::Failed(why));
        }
    };
    let mut failure = "DNS lookup failed".to_owned();
    let mut places = resolved.into_iter().peekable();
    while let Some(place) = places.next() {
        let opened = begin(egress, outgoing, place).await?;
        let dialled = egress.upstream.dial(egress, origin, place, outgoing.is_2);
        match dialled.await {
            Ok(server) => {
                egress.upstream.share(key, &server);
                return match send(egress, origin, server, opened, outgoing).await {
                    AttemptOutcome::Answered(response) => Ok(response),
                    AttemptOutcome::Unsent(why) => Err(ExchangeError::Failed(why)),
                    AttemptOutcome::Failed(unanswered) => Err(unanswered),
                };
            }
            Err(error) => {
                failure = why_not(&error);
                // Who is there and is not who was asked for is elsewhere no other.
                let is_last = is_of_tls(&error) || places.peek().is_none();
                let carried = FlowOutcome::nothing(failure.clone()).at_last(is_last);
                egress.control.close(&opened, carried);
                if is_last {
                    break;
                }
            }
        }
    }
    Err(ExchangeError::Failed(failure))
}

/// The outcome of a request on one connection.
enum AttemptOutcome {
    Answered(Response<ResponseBody>),
    /// No response, and no effect, so the request may be sent again; with the reason.
    Unsent(String),
    Failed(ExchangeError),
}

async fn attempt(
    egress: &Arc<Egress>,
    origin: &Arc<Origin>,
    server: Server,
    outgoing: &mut OutgoingRequest,
) -> Result<AttemptOutcome, ExchangeError> {
    let opened = begin(egress, outgoing, server.place).await?;
    Ok(send(egress, origin, server, opened, outgoing).await)
}

/// Sends a recorded request.
async fn send(
    egress: &Arc<Egress>,
    origin: &Arc<Origin>,
    mut server: Server,
    opened: OpenFlow,
    outgoing: &mut OutgoingRequest,
) -> AttemptOutcome {
    outgoing.find_range(&egress.credentials);
    let exchange = Exchange::new(egress, origin, opened, server.place, outgoing);
    let Some((uri, headers)) = outgoing.written(egress, origin, server.is_2()) else {
        let why = "it cannot be written".to_owned();
        return AttemptOutcome::Failed(ExchangeError::Broken(why));
    };
    let body = RequestBody::new(outgoing.body.take(), Arc::clone(&exchange));
    let may_repeat = outgoing.is_safe && http_body::Body::is_end_stream(&body);
    let mut request = Request::new(body);
    *request.method_mut() = outgoing.parts.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    if server.is_2() {
        *request.version_mut() = Version::HTTP_2;
    }
    let early = InterimResponses::observe(&mut request, exchange.gate().cloned());
    let sent = early.unless_endless(server.send(request));
    let sent = exchange.unless_given_up(sent).await;
    let mut error = match sent.and_then(|sent| sent.ok_or_else(|| ENDLESS.to_owned())) {
        Ok(Ok(response))
            if may_repeat && masked::is_unfit(&exchange, response.status(), response.headers()) =>
        {
            outgoing.injection.asks_all = true;
            exchange.answered(response.status(), None);
            exchange.failed(NOT_THAT_PART.to_owned());
            return AttemptOutcome::Failed(ExchangeError::Failed(NOT_THAT_PART.to_owned()));
        }
        Ok(Ok(response)) => {
            let answered = answered(exchange, server, response, outgoing).await;
            return AttemptOutcome::Answered(answered);
        }
        Ok(Err(error)) => error,
        Err(why) => {
            exchange.failed(why.clone());
            outgoing.body = exchange.give_back(&mut outgoing.parts);
            return AttemptOutcome::Failed(ExchangeError::Failed(why));
        }
    };
    let unsent = error.take_message().map(Request::into_body);
    let broken = exchange.failure();
    let error = error.into_error();
    let is_answered = error.is_parse();
    let why = match server.is_2() && origin.scheme == Scheme::Http {
        true => format!("{NOT_BY_2} ({})", why_unanswered(&error)),
        false => why_unanswered(&error),
    };
    exchange.failed(why.clone());
    let is_unsent = unsent.is_some();
    outgoing.body = match unsent {
        Some(body) => body.into_upload(),
        None => exchange.give_back(&mut outgoing.parts),
    };
    if let Some(misuse) = exchange.misuse() {
        AttemptOutcome::Failed(ExchangeError::Misused(Box::new(misuse)))
    } else if let Some(broken) = broken {
        AttemptOutcome::Failed(ExchangeError::Broken(broken))
    } else if is_unsent || may_repeat && !is_answered {
        AttemptOutcome::Unsent(why)
    } else {
        AttemptOutcome::Failed(ExchangeError::Failed(why))
    }
}
