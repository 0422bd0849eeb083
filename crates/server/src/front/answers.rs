//! Answers in the forms of E2B's services.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::permit::{drain, is_short, permitted};
use crate::protocol::{Kind, Refusal};

/// The longest body of JSON, bytes.
const BODY_BYTES_MAX: usize = 4 << 20;
/// The longest time for a body to come.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// The longest time for a short body to come before its sender is known.
const EARLY_WITHIN: Duration = Duration::from_millis(20);

/// Makes an answer of JSON.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let text = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Makes an answer without a body.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Returns the status of a refusal.
pub(crate) fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Invalid => StatusCode::BAD_REQUEST,
        Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NoSandbox | Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Exists => StatusCode::CONFLICT,
        Kind::Quota => StatusCode::TOO_MANY_REQUESTS,
        Kind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        Kind::Late => StatusCode::GATEWAY_TIMEOUT,
        Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Fault => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Makes the answer of the control API for a refusal.
pub(crate) fn refused(refusal: &Refusal) -> Response {
    let status = status(refusal.kind);
    let body = json!({ "code": status.as_u16(), "message": refusal.told() });
    with_retry(json(status, &body), refusal)
}

pub(crate) fn with_retry(mut response: Response, refusal: &Refusal) -> Response {
    if let Some(seconds) = refusal.retry_after_s {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Makes the answer of a sandbox's own services for a refusal.
pub(crate) fn refused_in(sandbox: &str, refusal: &Refusal) -> Response {
    match refusal.kind {
        Kind::NoSandbox => gone(sandbox),
        _ => refused(refusal),
    }
}

/// Makes the answer for a sandbox that is not there.
pub(crate) fn gone(sandbox: &str) -> Response {
    let body = json!({
        "sandboxId": sandbox,
        "message": "The sandbox was not found",
        "code": 502,
    });
    let mut response = json(StatusCode::BAD_GATEWAY, &body);
    let headers = response.headers_mut();
    headers.insert("should-retry", HeaderValue::from_static("false"));
    response
}

/// Returns the code of a refusal in the Connect protocol, with its HTTP status.
pub(crate) fn connect_code(kind: Kind) -> (&'static str, StatusCode) {
    match kind {
        Kind::Invalid => ("invalid_argument", StatusCode::BAD_REQUEST),
        Kind::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED),
        Kind::Forbidden => ("permission_denied", StatusCode::FORBIDDEN),
        Kind::NoSandbox | Kind::NotFound => ("not_found", StatusCode::NOT_FOUND),
        Kind::Exists => ("already_exists", StatusCode::CONFLICT),
        Kind::Quota | Kind::NoSpace => ("resource_exhausted", StatusCode::TOO_MANY_REQUESTS),
        Kind::Late => ("deadline_exceeded", StatusCode::GATEWAY_TIMEOUT),
        Kind::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
        Kind::Fault => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// Makes the body of a refusal in the Connect protocol.
pub(crate) fn connect_error(refusal: &Refusal) -> Value {
    json!({ "code": connect_code(refusal.kind).0, "message": refusal.told() })
}

/// Makes the answer of one request in the Connect protocol.
pub(crate) fn connect(sandbox: &str, answer: Result<Value, Refusal>) -> Response {
    match answer {
        Ok(body) => json(StatusCode::OK, &body),
        Err(refusal) if refusal.kind == Kind::NoSandbox => gone(sandbox),
        Err(refusal) => {
            let status = connect_code(refusal.kind).1;
            with_retry(json(status, &connect_error(&refusal)), &refusal)
        }
    }
}

/// Reads a whole body once its sender is known, in a time that does not depend on who that is. A short
/// one that comes with its head is read at once: whoever is asked next looks at the sender.
pub(crate) async fn whole(body: Body) -> Result<Bytes, Refusal> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let mut body = Limited::new(body, BODY_BYTES_MAX);
    let mut read = BytesMut::new();
    let early = match is_short() {
        true => timeout(EARLY_WITHIN, fill(&mut body, &mut read)).await.ok(),
        false => None,
    };
    if matches!(early, Some(Ok(()))) {
        return Ok(read.freeze());
    }
    let _permit = match permitted().await {
        Ok(permit) => permit,
        Err(refusal) => {
            drain(body).await;
            return Err(refusal);
        }
    };
    let late = |_| Refusal::new(Kind::Late, "the body did not come in time");
    let filled = match early {
        Some(failed) => failed,
        None => {
            let fill = fill(&mut body, &mut read);
            timeout(BODY_WITHIN, fill).await.map_err(late)?
        }
    };
    filled.map(|()| read.freeze())
}

/// Reads a body to its end.
async fn fill(body: &mut Limited<Body>, read: &mut BytesMut) -> Result<(), Refusal> {
    while let Some(frame) = body.frame().await {
        let wrong = |error| Refusal::new(Kind::Invalid, format!("the body: {error}"));
        if let Ok(block) = frame.map_err(wrong)?.into_data() {
            read.extend_from_slice(&block);
        }
    }
    Ok(())
}

/// Reads a body of JSON; an empty one is an empty object.
pub(crate) async fn body<T: DeserializeOwned>(body: Body) -> Result<T, Refusal> {
    let text = whole(body).await?;
    let text = if text.is_empty() { &b"{}"[..] } else { &text };
    understood(text).await
}

/// Reads a body that is a list of JSON.
pub(crate) async fn body_list<T: DeserializeOwned>(body: Body) -> Result<Vec<T>, Refusal> {
    let text = whole(body).await?;
    match of_json(&text) {
        Ok(list) => Ok(list),
        Err(refusal) => {
            drop(permitted().await?);
            Err(refusal)
        }
    }
}

/// Reads the JSON of a whole body; what is wrong with it is said to those alone who may send one.
pub(crate) async fn understood<T: DeserializeOwned>(text: &[u8]) -> Result<T, Refusal> {
    match parsed(text) {
        Ok(understood) => Ok(understood),
        Err(refusal) => {
            drop(permitted().await?);
            Err(refusal)
        }
    }
}

/// Reads an object of JSON: of a list its items would be taken for members, in their order.
pub(crate) fn parsed<T: DeserializeOwned>(text: &[u8]) -> Result<T, Refusal> {
    if text.trim_ascii_start().first() != Some(&b'{') {
        let what = "the body is not understood: it is no JSON object";
        return Err(Refusal::new(Kind::Invalid, what));
    }
    of_json(text)
}

fn of_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(text).map_err(|error| {
        Refusal::new(
            Kind::Invalid,
            format!("the body is not understood: {error}"),
        )
    })
}

/// Refuses the members of a body that this server has no use for, so that none is left out in
/// silence.
pub(crate) fn refuse_rest(rest: &BTreeMap<String, Value>) -> Result<(), Refusal> {
    match rest.iter().find(|(_, value)| !value.is_null()) {
        Some((name, _)) => Err(Refusal::new(
            Kind::Invalid,
            format!("{name}: this server does not offer it"),
        )
        .advise("leave it out")),
        None => Ok(()),
    }
}
