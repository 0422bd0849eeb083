//! Atoll's own requests for credentials: short, by TLS, each recorded before it is sent, on a
//! connection that carries nothing else.

use std::sync::Arc;
use std::time::Duration;

use atoll_cedar::Follows;
use atoll_model::network::{
    CredentialName, Endpoint, Flow, FlowKind, FlowRequest, Network, Request as Judged, Scheme,
    Target,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::Egress;
use crate::control_channel::{FlowOutcome, OpenFlow};
use crate::dial::Route;
use crate::origin_error::{is_of_tls, why_not, why_unanswered};
use crate::policies::{DenialCause, PolicySnapshot};
use crate::resolve::{ResolveError, addresses_by, given_up};

/// The longest head of a response, bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The longest response, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The user agent.
const WHO: &str = concat!("atoll/", env!("CARGO_PKG_VERSION"));
/// The only media type that is read of responses.
pub(super) const JSON: &str = "application/json";

/// The reason for not sending a request that needs approval: it contains secrets, which nobody is
/// shown. Revoking a token needs no approval: none was needed to obtain it.
const ASKED: &str = "a person is to be asked about it, which is not done for requests of \
                     Atoll's own; `ask` has to leave this address out";

/// A request of Atoll's own.
pub(super) struct OwnRequest<'a> {
    pub(super) kind: FlowKind,
    pub(super) method: Method,
    pub(super) endpoint: &'a Endpoint,
    /// Headers besides those of every such request.
    pub(super) headers: HeaderMap,
    pub(super) body: Zeroizing<Vec<u8>>,
}

/// A response.
pub(super) struct OwnResponse {
    pub(super) status: StatusCode,
    /// Set if its type is JSON.
    pub(super) is_json: bool,
    pub(super) body: Zeroizing<Vec<u8>>,
}

/// A recorded flow, whose end is recorded on drop in any case.
struct RecordedFlow<'a> {
    egress: &'a Egress,
    opened: OpenFlow,
    carried: FlowOutcome,
}

impl Drop for RecordedFlow<'_> {
    fn drop(&mut self) {
        let carried = std::mem::take(&mut self.carried);
        self.egress.control.close(&self.opened, carried);
    }
}

/// Sends a request for a credential, and reads the response, within this time.
///
/// # Errors
/// The reason why there is none, without anything that was sent or received.
pub(super) async fn ask(
    egress: &Arc<Egress>,
    network: &Network,
    name: &CredentialName,
    asking: OwnRequest<'_>,
    patience: Duration,
) -> Result<OwnResponse, String> {
    let host = asking.endpoint.host.to_string();
    let at = |why: String| format!("asking {host}: {why}");
    let asked = timeout(patience, send(egress, network, name, asking)).await;
    let late = |_| format!("it took longer than {} s", patience.as_secs());
    asked.map_err(late).and_then(|asked| asked).map_err(at)
}

/// Checks that policies let Atoll ask. A level of trust requires approval for what comes from the
/// program, and the request contains nothing of that.
fn policed(now: &PolicySnapshot<'_>, kind: FlowKind, judged: &Judged<'_>) -> Result<(), String> {
    let granted = match kind == FlowKind::Revocation {
        true => now.own_request(judged, Follows::Body),
        false => now.request_for_credential(judged, Follows::Body),
    };
    let asks = granted.map_err(|forbidden| match forbidden.by {
        DenialCause::Level => format!(
            "{}, and it is not among endpoints under [trust] of the profile",
            forbidden.shown
        ),
        DenialCause::Policy
        | DenialCause::Purpose
        | DenialCause::Rate
        | DenialCause::GivenUp
        | DenialCause::Token => forbidden.shown,
    })?;
    match kind != FlowKind::Revocation && asks.is_some_and(|asks| !asks.is_of_level) {
        true => Err(ASKED.to_owned()),
        false => Ok(()),
    }
}

async fn send(
    egress: &Arc<Egress>,
    network: &Network,
    name: &CredentialName,
    asking: OwnRequest<'_>,
) -> Result<OwnResponse, String> {
    let endpoint = asking.endpoint;
    let unwritable = |_| "its address cannot be written".to_owned();
    let target = Target::parse(&endpoint.target).map_err(unwritable)?;
    let judged = Judged {
        host: &endpoint.host,
        port: endpoint.port,
        scheme: Scheme::Https,
        method: asking.method.as_str(),
        target: &target,
    };
    let allowed = network.request(&judged);
    allowed.map_err(|unreachable| unreachable.why_inside())?;
    if asking.kind != FlowKind::Revocation && network.asks_of_request(&judged).is_some() {
        return Err(ASKED.to_owned());
    }
    let now = egress.policies.now();
    policed(&now, asking.kind, &judged)?;
    let places = places(egress, network, asking.kind, &judged).await?;
    let flow = Flow {
        kind: asking.kind,
        host: endpoint.host.to_string(),
        address: None,
        via: None,
        port: endpoint.port,
        rule: None,
        request: Some(FlowRequest::of(&judged)),
        login: None,
        limit: None,
        credentials: vec![name.clone()],
        policies: now.version(),
    };
    let mut places = places.into_iter().peekable();
    let mut failure = "DNS lookup failed".to_owned();
    while let Some(place) = places.next() {
        let mut told = record(egress, &flow, place).await?;
        match connect(egress, endpoint, place).await {
            Ok(sender) => {
                let answered = exchange(sender, asking, &mut told.carried).await;
                told.carried.failure = answered.as_ref().err().cloned();
                told.carried.is_unreached = told.carried.failure.is_some();
                return answered;
            }
            Err((why, is_last)) => {
                let is_last = is_last || places.peek().is_none();
                told.carried = FlowOutcome::nothing(why.clone()).at_last(is_last);
                failure = why;
                if is_last {
                    break;
                }
            }
        }
    }
    Err(failure)
}

/// Returns the addresses to ask: none that the run has dropped, except for a revocation.
async fn places(
    egress: &Egress,
    network: &Network,
    kind: FlowKind,
    judged: &Judged<'_>,
) -> Result<Vec<Route>, String> {
    let places = addresses_by(egress, network, judged.host, judged.port, Some(judged)).await;
    let places = places.map_err(|nowhere| match nowhere {
        ResolveError::Refused { shown, .. } => shown,
        ResolveError::Unknown(why) => format!("DNS lookup failed: {why}"),
    })?;
    let denied = places.iter().find_map(|place| given_up(egress, *place));
    match denied.filter(|_| kind != FlowKind::Revocation) {
        Some(why) => Err(why),
        None => Ok(places),
    }
}

/// Records the flow. Unless its end is set later, it is recorded as broken off.
async fn record<'a>(
    egress: &'a Egress,
    flow: &Flow,
    place: Route,
) -> Result<RecordedFlow<'a>, String> {
    let mut flow = flow.clone();
    (flow.address, flow.via) = (place.address(), place.via(egress));
    // When a run ends nobody answers any more, and what is taken back is worth it.
    let waits = flow.kind != FlowKind::Revocation;
    let opened = tokio::select! {
        biased;
        opened = egress.control.open(flow, waits) => opened,
        () = egress.run_ended(), if waits => return Err("the run ends".to_owned()),
    };
    Ok(RecordedFlow {
        egress,
        opened: opened.map_err(|error| format!("nobody records that it is asked: {error}"))?,
        carried: FlowOutcome::nothing("it was broken off".to_owned()).at_last(true),
    })
}

/// Opens a connection for one request.
///
/// # Errors
/// The reason, and whether another address would be no better.
async fn connect(
    egress: &Arc<Egress>,
    endpoint: &Endpoint,
    place: Route,
) -> Result<http1::SendRequest<Full<Bytes>>, (String, bool)> {
    let secured = egress.upstream.secure(egress, endpoint, place).await;
    let stream = secured.map_err(|error| (why_not(&error), is_of_tls(&error)))?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let begun = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = begun.map_err(|error| (why_unanswered(&error), true))?;
    egress
        .upstream
        .tasks
        .spawn(async move { drop(connection.await) });
    Ok(sender)
}

async fn exchange(
    mut sender: http1::SendRequest<Full<Bytes>>,
    asking: OwnRequest<'_>,
    carried: &mut FlowOutcome,
) -> Result<OwnResponse, String> {
    let endpoint = asking.endpoint;
    let sent_bytes = asking.body.len();
    // Overwritten when it is let go of.
    let body = Bytes::from_owner(asking.body);
    let mut request = Request::new(Full::new(body));
    let unwritable = "its address cannot be written";
    *request.method_mut() = asking.method;
    *request.uri_mut() = endpoint.target.parse().map_err(|_| unwritable)?;
    *request.headers_mut() = asking.headers;
    let headers = request.headers_mut();
    let host = HeaderValue::from_str(&endpoint.authority()).map_err(|_| unwritable)?;
    headers.insert(HOST, host);
    headers.insert(USER_AGENT, HeaderValue::from_static(WHO));
    headers
        .entry(ACCEPT)
        .or_insert(HeaderValue::from_static(JSON));
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| why_unanswered(&error))?;
    carried.status = Some(response.status().as_u16());
    let answer = read_response(response).await?;
    if asking.kind == FlowKind::Revocation && !answer.status.is_success() {
        return Err(format!("it answers {}", answer.status.as_u16()));
    }
    carried.bytes = [sent_bytes as u64, answer.body.len() as u64];
    Ok(answer)
}

async fn read_response(response: Response<Incoming>) -> Result<OwnResponse, String> {
    let status = response.status();
    if status.is_redirection() {
        return Err(format!("it leads elsewhere ({})", status.as_u16()));
    }
    if response.headers().contains_key(CONTENT_ENCODING) {
        return Err("its answer is packed, which was not asked for".to_owned());
    }
    let kind = response.headers().get(CONTENT_TYPE);
    let is_json = kind.is_some_and(is_json);
    let mut body = response.into_body();
    let mut whole = Zeroizing::new(Vec::with_capacity(ANSWER_BYTES_MAX));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "its answer broke off".to_owned())?;
        let data = frame.data_ref().map_or(&[][..], |data| data);
        if whole.len() + data.len() > ANSWER_BYTES_MAX {
            return Err(format!("its answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
        whole.extend_from_slice(data);
    }
    Ok(OwnResponse {
        status,
        is_json,
        body: whole,
    })
}

fn is_json(kind: &HeaderValue) -> bool {
    let text = kind.to_str().unwrap_or_default();
    let (media_type, _) = text.split_once(';').unwrap_or((text, ""));
    media_type.trim().eq_ignore_ascii_case(JSON)
}
