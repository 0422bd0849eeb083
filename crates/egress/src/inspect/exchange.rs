//! One request and its response: judged, recorded, forwarded, returned.

mod broken_body;
mod consent;
mod dates;
mod error;
mod issuance;
mod masked;
mod opening;
mod proof;
mod releases;
pub(super) mod renewal;
mod rights;
mod sending;

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use atoll_model::network::{Flow, FlowKind, FlowRequest, Request as Judged};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode, Version};

use super::Origin;
use super::bodies;
use super::body::ResponseBody;
use super::denial::{self, Denial};
use super::expectation::{self, BodyGate};
use super::head::{self, Head};
use super::injection::{self, Injection, Misuse, OutgoingRequest};
use super::ranges::PaddedRange;
use super::request_permit::RequestPermit;
use super::upload::Upload;
use super::upstream::Server;
use super::web_socket;
use crate::Egress;
use crate::control_channel::{FlowOutcome, OpenFlow};
use crate::dial::Route;
use crate::limits::Direction;
use crate::secret::{MaskedNumbers, Placeholders};
pub(crate) use consent::SendPermission;
pub(crate) use error::RecordError;
use error::{ExchangeError, unclear};
pub(crate) use releases::Releases;
pub(crate) use rights::{JudgedRequest, RightsWatch};
use sending::carry;

/// An exchange between a program and a server. When it is dropped both bodies have ended.
pub(crate) struct Exchange {
    egress: Arc<Egress>,
    origin: Arc<Origin>,
    /// The facts by which it is judged again when the policies change.
    judged: Arc<JudgedRequest>,
    opened: OpenFlow,
    /// The address that it goes to, and the route there.
    place: Route,
    /// Set if the program speaks HTTP/2.
    is_2: bool,
    /// The gate that holds the request's body back, where the program has asked for that.
    gate: Option<Arc<BodyGate>>,
    /// The flow to report for a misplaced placeholder, and the placeholders that the body must not
    /// carry; `None` where the body is not searched.
    searched: Option<(Flow, Placeholders)>,
    /// The record of placeholders that were masked in its body.
    masked: Option<Arc<MaskedNumbers>>,
    up: AtomicU64,
    down: AtomicU64,
    is_sent: AtomicBool,
    is_received: AtomicBool,
    status: AtomicU16,
    state: Mutex<State>,
    permit: Arc<RequestPermit>,
    /// The range that was requested of the answer.
    ranged: Option<PaddedRange>,
}

#[derive(Debug, Default)]
struct State {
    failure: Option<String>,
    /// Set if the program broke off.
    is_left: bool,
    /// The connection, kept for the next request.
    server: Option<Server>,
    /// The unread rest of the request's body.
    unread: Option<Incoming>,
    /// The placeholder that its body carries.
    misuse: Option<Misuse>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Exchange").finish_non_exhaustive()
    }
}

impl Exchange {
    fn new(
        egress: &Arc<Egress>,
        origin: &Arc<Origin>,
        opened: OpenFlow,
        place: Route,
        outgoing: &OutgoingRequest,
    ) -> Arc<Self> {
        let is_asked = outgoing.body.is_some() && expectation::is_asked(&outgoing.parts.headers);
        Arc::new(Self {
            gate: is_asked.then(Arc::default),
            searched: outgoing
                .injection
                .unfit(&egress.credentials)
                .map(|all| (outgoing.flow.clone(), all)),
            masked: outgoing.injection.masked().map(Arc::clone),
            egress: Arc::clone(egress),
            origin: Arc::clone(origin),
            judged: Arc::new(JudgedRequest::of(outgoing)),
            opened,
            place,
            is_2: outgoing.is_2,
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            is_sent: AtomicBool::new(false),
            is_received: AtomicBool::new(false),
            status: AtomicU16::new(0),
            state: Mutex::default(),
            permit: Arc::clone(&outgoing.permit),
            ranged: outgoing.injection.ranged,
        })
    }

    /// Counts bytes in flight.
    pub(crate) fn count(&self, way: Direction, bytes: usize) {
        let counter = match way {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that all of one direction has passed.
    pub(crate) fn is_over(&self, way: Direction) {
        let flag = match way {
            Direction::Up => &self.is_sent,
            Direction::Down => &self.is_received,
        };
        flag.store(true, Ordering::Relaxed);
    }

    /// Notes that one side broke off.
    pub(crate) fn fail(&self, way: Direction, error: &dyn std::fmt::Display) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failure.is_none() {
            state.is_left = way == Direction::Up;
            let who = if state.is_left { "program" } else { "host" };
            state.failure = Some(format!("the {who} broke off: {error}"));
        }
    }

    fn failed(&self, why: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failure.get_or_insert(why);
    }

    /// Returns the gate that holds the request's body back.
    pub(crate) fn gate(&self) -> Option<&Arc<BodyGate>> {
        self.gate.as_ref()
    }

    fn answered(&self, status: StatusCode, server: Option<Server>) {
        if let Some(gate) = &self.gate {
            gate.answered();
        }
        self.status.store(status.as_u16(), Ordering::Relaxed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.server = server;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        let status = match *self.status.get_mut() {
            0 => None,
            status => Some(status),
        };
        let is_whole = *self.is_sent.get_mut() && *self.is_received.get_mut();
        let mut failure = state.failure;
        if failure.is_none() && status.is_some() && !*self.is_received.get_mut() {
            failure = Some("it ended before its answer was whole".to_owned());
        }
        if let Some(server) = state.server.filter(|_| is_whole && failure.is_none()) {
            self.egress
                .upstream
                .keep(self.origin.key(self.is_2), server);
        }
        let carried = FlowOutcome {
            bytes: [*self.up.get_mut(), *self.down.get_mut()],
            status,
            is_unreached: status.is_none() && failure.is_some() && !state.is_left,
            failure,
            limit: None,
            masked: self.masked_names(),
        };
        let carried = carried.ended_by(self.permit.excess());
        self.egress.control.close(&self.opened, carried);
    }
}

/// Answers a request of a program that has connected to a host.
pub(crate) async fn answer(
    egress: Arc<Egress>,
    origin: Arc<Origin>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, RecordError> {
    let (mut parts, body) = request.into_parts();
    let now = egress.policies.now();
    let head = match head::read(&egress, &now, &origin, &parts) {
        Ok(head) => head,
        Err(fault) => {
            return Ok(unclear(&egress, &origin, now.version(), fault, &parts, body).await);
        }
    };
    head::write_length(&mut parts.headers);
    let mut flow = flow(&origin, &parts, Some(&head));
    flow.policies = now.version();
    let judged = judged(&origin, &parts, &head);
    let mut injection = match Injection::of(&egress.credentials, &judged, &parts) {
        Ok(injection) => injection,
        Err(misuse) => {
            let denial = misuse.record_and_deny(&egress, &origin, &parts, flow);
            return Ok(denial::refused(StatusCode::FORBIDDEN, denial, &parts, body).await);
        }
    };
    let sent = head.sent(!body.is_end_stream());
    let rule = match denial::allowing(&egress, &origin, &parts, &judged, &now, sent) {
        Ok(rule) => rule,
        Err(refused) => {
            let (why, denial) = *refused;
            egress.control.refuse(flow, why);
            return Ok(denial::refused(StatusCode::FORBIDDEN, denial, &parts, body).await);
        }
    };
    drop(now);
    flow.rule = Some(rule.told());
    let what = Denial::of(&origin, &parts, String::new());
    let permit = match RequestPermit::take(&egress, rule, &flow, &parts, &body) {
        Ok(permit) => permit,
        Err(full) => return Ok(denial::full(&full, what, &parts, body).await),
    };
    let taken = bodies::take(&egress, &judged, &parts.headers, &mut injection, body);
    let body = match permit.within(taken).await {
        Ok(Ok(body)) => body,
        Ok(Err(untaken)) => return untaken.told(&egress, flow, what).await,
        Err(excess) => return Ok(denial::beyond(&excess, what, None)),
    };
    let issue = match issuance::admitted(&egress, &judged, &parts, &head) {
        Ok(issue) => issue,
        Err(why) => return Ok(issuance::refuse(&egress, flow, what, why, &parts, body).await),
    };
    let mut outgoing = OutgoingRequest {
        issue: issuance::prepare_headers(issue, body.as_ref(), &mut parts.headers),
        permit: Arc::new(permit),
        is_safe: head::is_safe(&parts),
        is_2: parts.version == Version::HTTP_2,
        body: body.map(Upload::from),
        parts,
        head,
        flow: injection.flow(&egress.credentials, &flow),
        injection,
        leave: SendPermission::default(),
    };
    let permit = Arc::clone(&outgoing.permit);
    let sending = send_on(&egress, &origin, &mut outgoing);
    let answered = permit.within(sending).await;
    match answered.unwrap_or_else(|excess| Err(ExchangeError::Failed(excess.why()))) {
        Ok(response) => Ok(response),
        Err(unanswered) => error::respond(&egress, unanswered, outgoing, flow, what).await,
    }
}

/// Returns a request as rules see it.
fn judged<'a>(origin: &'a Origin, parts: &'a Parts, head: &'a Head) -> Judged<'a> {
    Judged {
        host: &origin.host,
        port: origin.port,
        scheme: origin.scheme,
        method: parts.method.as_str(),
        target: &head.target,
    }
}

fn flow(origin: &Origin, parts: &Parts, head: Option<&Head>) -> Flow {
    let request = head.map(|head| FlowRequest {
        confidence: head.confidence,
        ..FlowRequest::of(&judged(origin, parts, head))
    });
    Flow {
        request,
        ..Flow::to(FlowKind::Request, origin.host.to_string(), origin.port)
    }
}

/// Forwards a request once all checks allow it.
async fn send_on(
    egress: &Arc<Egress>,
    origin: &Arc<Origin>,
    outgoing: &mut OutgoingRequest,
) -> Result<Response<ResponseBody>, ExchangeError> {
    proof::check(egress, origin, outgoing).await?;
    consent::wait(egress, origin, outgoing).await?;
    releases::check(egress, origin, outgoing, SystemTime::now).await?;
    let answered = carry(egress, origin, outgoing).await;
    // Once: what is asked for now is not a part.
    match answered {
        Err(ExchangeError::Failed(_)) if outgoing.injection.asks_all => {
            carry(egress, origin, outgoing).await
        }
        answered => answered,
    }
}

/// Turns a server's response into the program's.
async fn answered(
    exchange: Arc<Exchange>,
    server: Server,
    mut response: Response<Incoming>,
    outgoing: &mut OutgoingRequest,
) -> Response<ResponseBody> {
    let status = response.status();
    if let Some(unrecorded) = opening::unheard(&exchange, outgoing).await {
        return unrecorded;
    }
    injection::mask(&exchange.egress.credentials, response.headers_mut());
    if status == StatusCode::UNAUTHORIZED {
        outgoing.injection.doubt(&exchange.egress.credentials);
    }
    if status == StatusCode::SWITCHING_PROTOCOLS && outgoing.issue.is_none() {
        exchange.answered(status, None);
        return web_socket::begin(exchange, response, outgoing);
    }
    // Where both tell a length, chunks do; such a server is not asked again (RFC 9112, 6.3).
    let is_chunked = response.headers().contains_key(TRANSFER_ENCODING);
    let is_doubtful = is_chunked && response.headers_mut().remove(CONTENT_LENGTH).is_some();
    let kept = Some(server).filter(|server| !server.is_2() && !is_doubtful);
    exchange.answered(status, kept);
    head::strip(response.headers_mut());
    head::write_length(response.headers_mut());
    *response.version_mut() = Version::default();
    let (mut parts, body) = response.into_parts();
    // What the client library noted there is about its own connection.
    parts.extensions.clear();
    let body = ResponseBody::new(body, Arc::clone(&exchange));
    match issuance::response_body(&exchange, outgoing.issue.as_deref(), &mut parts, body).await {
        Ok(body) => {
            // At last: what is to be masked is read by the whole head.
            exchange.redact(Direction::Down, &mut parts.headers);
            Response::from_parts(parts, body)
        }
        Err(why) => {
            exchange.fail(Direction::Down, &why);
            denial::failed(&exchange.denial(&outgoing.parts, &why), None)
        }
    }
}
