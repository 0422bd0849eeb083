//! E2B's service in a sandbox: which of its parts a request is for, and who asks.

use atoll_model::RESIDENT;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::answers::{empty, json as answer_json, refused_in};
use super::{Front, filesystem, process, transfer};
use crate::protocol::{Alive, Credential, Kind, Measure, Measures, Refusal};

/// Answers a request of a sandbox's service.
pub(crate) async fn answer(front: &Front, sandbox: &str, request: Request<Body>) -> Response {
    let path = request.uri().path().to_owned();
    let get = request.method() == Method::GET;
    if let Some(method) = path.strip_prefix("/process.Process/") {
        return process::answer(front, sandbox, method, request).await;
    }
    if let Some(method) = path.strip_prefix("/filesystem.Filesystem/") {
        return filesystem::answer(front, sandbox, method, request).await;
    }
    let answered = match path.as_str() {
        "/health" if get => {
            let alive = front.call_in(Credential::Nothing, sandbox, Alive {}).await;
            alive.map(|()| empty(StatusCode::NO_CONTENT))
        }
        "/files" => return transfer::answer(front, Some(sandbox), request).await,
        "/metrics" if get => metrics(front, sandbox, request.headers()).await,
        _ => Err(Refusal::new(
            Kind::NotFound,
            format!("{path} is not offered"),
        )),
    };
    answered.unwrap_or_else(|refusal| refused_in(sandbox, &refusal))
}

async fn metrics(front: &Front, sandbox: &str, headers: &HeaderMap) -> Result<Response, Refusal> {
    let measures = front.call_in(token(headers), sandbox, Measure {}).await?;
    Ok(answer_json(StatusCode::OK, &measured(&measures)))
}

fn measured(measures: &Measures) -> serde_json::Value {
    json!({
        "ts": measures.at_s,
        "cpu_count": measures.cpus,
        "cpu_used_pct": measures.cpu_percent,
        "mem_total": measures.memory_bytes_max,
        "mem_used": measures.memory_bytes,
        "mem_cache": 0,
        "disk_total": measures.disk_bytes_max,
        "disk_used": measures.disk_bytes,
    })
}

/// Returns the access token that came with a request.
pub(crate) fn token(headers: &HeaderMap) -> Credential {
    match headers
        .get("x-access-token")
        .and_then(|value| value.to_str().ok())
    {
        Some(token) => Credential::Token(token.to_owned()),
        None => Credential::Nothing,
    }
}

/// Returns the user that a request names: `Authorization: Basic` of the name and no password.
pub(crate) fn asked_user(headers: &HeaderMap) -> Option<String> {
    let basic = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let encoded = basic.and_then(|value| value.strip_prefix("Basic "))?;
    let decoded = BASE64_STANDARD.decode(encoded.trim()).unwrap_or_default();
    let text = String::from_utf8_lossy(&decoded).into_owned();
    let name = text.split(':').next().unwrap_or_default();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Checks the user that a request about files names.
pub(crate) fn check_user(headers: &HeaderMap) -> Result<(), Refusal> {
    asked_user(headers).map_or(Ok(()), |name| named_user(&name))
}

/// Refuses a user that is not there.
pub(crate) fn named_user(name: &str) -> Result<(), Refusal> {
    match name {
        "" => Ok(()),
        name if name == RESIDENT.name => Ok(()),
        name => Err(
            Refusal::new(Kind::Unauthenticated, format!("invalid username: '{name}'")).advise(
                format!("files are reached, and made, for {:?}", RESIDENT.name),
            ),
        ),
    }
}
