//! The API that programs in the sandbox reach at a name that leads nowhere else: to give up rights
//! for good. It grants nothing.
//!
//! `POST http://atoll.internal/restrict` with JSON gives up rights, `GET` of the same lists those
//! that were.

use std::sync::Arc;
use std::time::Duration;

use atoll_model::network::{
    GivenUp, GivenUpBy, GivingUp, InvalidGivingUp, Restriction, TooMuchGivenUp,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::Egress;
use crate::dropped_rights::now_s;
use crate::inspect::{self, Answer, RecordError};
use crate::names::SANDBOX_API_NAME;
use crate::program_stream::ProgramStream;

/// Its only path.
const PATH: &str = "/restrict";
/// The longest request body, bytes.
const QUESTION_BYTES_MAX: usize = 16 * 1024;
/// The longest time a request body may take.
const QUESTION_PATIENCE: Duration = Duration::from_secs(10);

/// The usage, in short.
const HOW: &str = "POST http://atoll.internal/restrict with Content-Type: application/json and, for \
                   example, {\"deny-hosts\": [\"*.example.com\"]}, {\"network\": \"none\"}, \
                   {\"no-credentials\": [\"NAME\"]} or {\"until-seconds\": 600}";

/// Answers the requests of one connection.
pub(crate) async fn serve(egress: &Arc<Egress>, program: ProgramStream) {
    let answer = |request| answer(Arc::clone(egress), request);
    tokio::select! {
        // What was no request hyper has told the program.
        _ = inspect::serve_1(program, answer) => {}
        () = egress.run_ended() => {}
    }
}

/// A refused request: the status and the reason.
struct ApiError {
    status: StatusCode,
    why: String,
}

fn api_error(status: StatusCode, why: impl ToString) -> ApiError {
    let why = why.to_string();
    ApiError { status, why }
}

/// Answers one request.
pub(crate) async fn answer(
    egress: Arc<Egress>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, RecordError> {
    let is_ours = request.uri().path() == PATH;
    let told = match *request.method() {
        _ if !is_ours => Err(api_error(
            StatusCode::NOT_FOUND,
            "there is nothing of that name",
        )),
        Method::GET => Ok(None),
        Method::POST => give_up(&egress, request).await.map(Some),
        _ => Err(api_error(
            StatusCode::METHOD_NOT_ALLOWED,
            "it is asked by POST or GET",
        )),
    };
    let (status, text) = match told {
        Ok(new) => {
            let all = egress.policies.dropped.all();
            let all: Vec<Value> = all.iter().map(described).collect();
            let text = match new {
                Some(new) => {
                    let new: Vec<Value> = new.iter().map(described).collect();
                    json!({ "given_up": all, "new": new })
                }
                None => json!({ "given_up": all }),
            };
            (StatusCode::OK, text)
        }
        Err(ApiError { status, why }) => {
            let what = format!("{PATH} of {SANDBOX_API_NAME}");
            (
                status,
                json!({ "what": what, "why": why, "how_to_ask": HOW }),
            )
        }
    };
    let mut response = Response::new(Answer::told(Bytes::from(format!("{text}\n")), None));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, POST"));
    }
    Ok(response)
}

/// Describes a right that was given up, for a program: its kind and value, who gave it up, since
/// when, and the same as a sentence.
fn described(given: &GivenUp) -> Value {
    let (kind, value) = match &given.what {
        Restriction::Network {} => ("network", Value::Bool(true)),
        Restriction::Host(host) => ("hosts", json!([String::from(host.clone())])),
        Restriction::Credential(name) => ("credentials", json!([name.as_str()])),
        Restriction::After { time_s } => ("until", json!(time_s)),
    };
    let by = match given.by {
        GivenUpBy::Program {} => "program",
        GivenUpBy::Person { .. } => "person",
        GivenUpBy::TokenEnd {} | GivenUpBy::TokenRevoked {} => "token",
    };
    json!({
        "kind": kind,
        (kind): value,
        "at": given.at_s,
        "by": by,
        "what": given.what.to_string(),
        "why": given.why(),
    })
}

/// Gives up the rights that a program names: they are gone at once, and the answer follows once
/// that is on disk. Returns those that were not given up before.
async fn give_up(egress: &Egress, request: Request<Incoming>) -> Result<Vec<GivenUp>, ApiError> {
    // A page in a browser inside cannot send this to another origin unasked.
    let kind = request.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(api_error(
            status,
            "its Content-Type is not application/json",
        ));
    }
    let body = Limited::new(request.into_body(), QUESTION_BYTES_MAX).collect();
    let body = match timeout(QUESTION_PATIENCE, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let why = format!("more than {QUESTION_BYTES_MAX} bytes, or broken off");
            return Err(api_error(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        Err(_) => return Err(api_error(StatusCode::REQUEST_TIMEOUT, "it came too slowly")),
    };
    let given = read(&body)?;
    let added = egress.policies.dropped.add(given.clone());
    // All of it is told: so what had room is recorded too, and what another one has given up just
    // now is on disk.
    let recorded = egress.control.give_up(given).await;
    recorded.map_err(|_| api_error(StatusCode::SERVICE_UNAVAILABLE, "the run ends"))?;
    let full = |error: TooMuchGivenUp| api_error(StatusCode::TOO_MANY_REQUESTS, error);
    added.map_err(full)
}

/// Parses a request to give up rights.
fn read(text: &[u8]) -> Result<Vec<GivenUp>, ApiError> {
    let unread = |error: serde_json::Error| {
        let why = format!("it is not understood: {error}");
        api_error(StatusCode::BAD_REQUEST, why)
    };
    let said: GivingUp = serde_json::from_slice(text).map_err(unread)?;
    let now_s = now_s();
    let named = said.restrictions(now_s);
    let named =
        named.map_err(|error: InvalidGivingUp| api_error(StatusCode::BAD_REQUEST, error))?;
    let one = |what| GivenUp {
        at_s: now_s,
        by: GivenUpBy::Program {},
        what,
    };
    Ok(named.into_iter().map(one).collect())
}
