//! Answers, and the bodies of requests, as all dialects have them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use super::permit::{drain, is_short, permitted};
use crate::protocol::{Kind, Refusal};

/// The longest body of JSON, bytes.
const BODY_BYTES_MAX: usize = 4 << 20;
/// The longest time for a body to come.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// The longest time for a short body to come before its sender is known.
const EARLY_WITHIN: Duration = Duration::from_millis(20);

/// The answer to a request.
pub(crate) type Answered = Result<Response, Refusal>;

/// Makes an answer of JSON.
pub(crate) fn answer_json(status: StatusCode, body: &impl Serialize) -> Response {
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

/// Makes an answer of JSON to what succeeded.
pub(crate) fn ok(body: &impl Serialize) -> Answered {
    Ok(answer_json(StatusCode::OK, body))
}

/// Makes an answer of JSON that is a list.
pub(crate) fn each<'a, T: 'a>(
    all: impl IntoIterator<Item = &'a T>,
    described: impl Fn(&T) -> Value,
) -> Answered {
    ok(&all.into_iter().map(described).collect::<Vec<_>>())
}

/// Makes an answer without a body to what succeeded.
pub(crate) fn done<T>(status: StatusCode, result: Result<T, Refusal>) -> Answered {
    result.map(|_| empty(status))
}

/// Makes an answer of text.
pub(crate) fn text(kind: &'static str, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Adds a member to an object of JSON, where there is one.
pub(crate) fn with(mut object: Value, name: &str, member: Option<impl Serialize>) -> Value {
    if let (Some(members), Some(member)) = (object.as_object_mut(), member) {
        members.insert(name.to_owned(), serde_json::json!(member));
    }
    object
}

/// Returns the refusal of a request for which there is nothing.
pub(crate) fn not_offered(request: &Request<Body>) -> Refusal {
    let what = format!(
        "{} {} is not offered",
        request.method(),
        request.uri().path()
    );
    Refusal::new(Kind::NotFound, what)
}

/// Returns a header, if it is text.
pub(crate) fn header_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
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
        let wrong = |error| Refusal::invalid(format!("the body: {error}"));
        if let Ok(block) = frame.map_err(wrong)?.into_data() {
            read.extend_from_slice(&block);
        }
    }
    Ok(())
}

/// Reads a body of JSON; an empty one is an empty object.
pub(crate) async fn body<T: DeserializeOwned>(request: Request<Body>) -> Result<T, Refusal> {
    let text = whole(request.into_body()).await?;
    let text = if text.is_empty() { &b"{}"[..] } else { &text };
    understood(text).await
}

/// Reads a body that is a list of JSON.
pub(crate) async fn body_list<T: DeserializeOwned>(
    request: Request<Body>,
) -> Result<Vec<T>, Refusal> {
    let text = whole(request.into_body()).await?;
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
        return Err(Refusal::invalid(what));
    }
    of_json(text)
}

fn of_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(text)
        .map_err(|error| Refusal::invalid(format!("the body is not understood: {error}")))
}

/// Refuses the members of a body that this server has no use for, so that none is left out in
/// silence.
pub(crate) fn refuse_rest(rest: &BTreeMap<String, Value>) -> Result<(), Refusal> {
    match rest.iter().find(|(_, value)| !value.is_null()) {
        Some((name, _)) => {
            let what = format!("{name}: this server does not offer it");
            Err(Refusal::invalid(what).advise("leave it out"))
        }
        None => Ok(()),
    }
}
