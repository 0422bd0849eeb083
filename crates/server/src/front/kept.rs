//! Pauses, snapshots and forks, in the form of E2B's control API.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answers::{body, empty, json as answer_json, status as status_of};
use super::control::{created, created_body, credential, pairs};
use super::{Front, plain_id};
use crate::protocol::{
    self, Connect, CreatedFacts, Filed, Fork, ListSnapshots, Refusal, RemoveSnapshot, Snapshot,
    SnapshotFacts,
};
use crate::rfc3339::time_of;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Life {
    timeout: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pause {
    memory: Option<bool>,
}

#[derive(Deserialize)]
#[serde(default)]
struct Forks {
    timeout: Option<u64>,
    count: usize,
}

impl Default for Forks {
    fn default() -> Self {
        Self {
            timeout: None,
            count: 1,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: Option<String>,
}

/// Carries out a request that keeps a sandbox, or what it has.
pub(crate) async fn answer(
    front: &Front,
    parts: &Parts,
    id: &str,
    what: &str,
    content: Body,
) -> Result<Response, Refusal> {
    let key = credential(&parts.headers);
    let id = plain_id(id);
    match what {
        "pause" => {
            let Pause { memory } = body(content).await?;
            let ask = protocol::Pause {
                memory: memory != Some(false),
            };
            let memory = front.call_in(key, &id, ask).await?;
            Ok(keeps(empty(StatusCode::NO_CONTENT), memory))
        }
        "connect" | "resume" => {
            let Life { timeout } = body(content).await?;
            let ask = Connect { timeout_s: timeout };
            let made = front.call_in(key, &id, ask).await?;
            let status = match made.resumed || what == "resume" {
                true => StatusCode::CREATED,
                false => StatusCode::OK,
            };
            Ok(created(&made, status))
        }
        "fork" => {
            let Forks { timeout, count } = body(content).await?;
            let ask = Fork {
                count,
                timeout_s: timeout,
            };
            let made = front.call_in(key, &id, ask).await?;
            let all: Vec<Value> = made.forks.iter().map(fork).collect();
            Ok(filed(answer_json(StatusCode::CREATED, &all), made.filed))
        }
        _ => {
            let Named { name } = body(content).await?;
            let made = front.call_in(key, &id, Snapshot { name }).await?;
            let response = answer_json(StatusCode::CREATED, &told(&made.facts));
            Ok(filed(keeps(response, false), made.filed))
        }
    }
}

/// Says in an answer whether memory is kept, or files alone.
pub(crate) fn keeps(mut response: Response, memory: bool) -> Response {
    let kept = HeaderValue::from_static(if memory { "memory" } else { "files" });
    response.headers_mut().insert("atoll-kept", kept);
    response
}

/// Says in an answer whether files were copied.
pub(crate) fn filed(mut response: Response, how: Filed) -> Response {
    let how = HeaderValue::from_static(how.name());
    response.headers_mut().insert("atoll-files", how);
    response
}

fn fork(made: &Result<CreatedFacts, Refusal>) -> Value {
    match made {
        Ok(made) => json!({ "sandbox": created_body(made) }),
        Err(refusal) => {
            let code = status_of(refusal.kind).as_u16();
            json!({ "error": { "code": code, "message": refusal.told() } })
        }
    }
}

fn told(facts: &SnapshotFacts) -> Value {
    let names: Vec<&String> = facts.name.iter().collect();
    json!({
        "snapshotID": facts.id,
        "names": names,
        "sandboxID": facts.sandbox,
        "createdAt": time_of(facts.created_ms),
    })
}

/// Lists the snapshots of a tenant: all in one part.
pub(crate) async fn snapshots(front: &Front, parts: &Parts) -> Result<Response, Refusal> {
    let query = parts.uri.query().unwrap_or_default();
    let of = |wanted: &str| pairs(query).find(|(name, _)| name == wanted);
    let of = |wanted: &str| of(wanted).map(|(_, value)| value);
    let (sandbox, name) = (of("sandboxID"), of("name"));
    let ask = ListSnapshots { sandbox };
    let all = front.call(credential(&parts.headers), ask).await?;
    let own = all.iter();
    let own = own.filter(|one| name.is_none() || one.name == name);
    let all: Vec<Value> = own.map(told).collect();
    Ok(answer_json(StatusCode::OK, &all))
}

/// Removes a snapshot.
pub(crate) async fn remove(front: &Front, parts: &Parts, id: &str) -> Result<Response, Refusal> {
    let ask = RemoveSnapshot { id: id.to_owned() };
    front.call(credential(&parts.headers), ask).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
