//! Measurements of sandboxes and the events of their lives, in the form of E2B's control API.

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::Front;
use super::answers::json as answer_json;
use super::ask::strange;
use super::control::{pairs, time_of};
use crate::protocol::{Ask, Credential, InAsk, Refusal, Reply};

/// Measures a sandbox now; what it used before is not kept.
pub(crate) async fn metrics(
    front: &Front,
    key: Credential,
    id: &str,
    query: &str,
) -> Result<Response, Refusal> {
    let Reply::Measured(measures) = front.ask_in(key, id, InAsk::Measure).await? else {
        return Err(strange());
    };
    let bound = |wanted: &str| {
        let found = pairs(query).find(|(name, _)| name == wanted);
        found.and_then(|(_, value)| value.parse::<u64>().ok())
    };
    let is_before = bound("start").is_some_and(|start| measures.at_s < start);
    let is_after = bound("end").is_some_and(|end| measures.at_s > end);
    let one = json!({
        "timestamp": time_of(measures.at_s * 1000),
        "timestampUnix": measures.at_s,
        "cpuCount": measures.cpus,
        "cpuUsedPct": measures.cpu_percent,
        "memUsed": measures.memory_bytes,
        "memTotal": measures.memory_bytes_max,
        "memCache": 0,
        "diskUsed": measures.disk_bytes,
        "diskTotal": measures.disk_bytes_max,
    });
    let all = if is_before || is_after {
        vec![]
    } else {
        vec![one]
    };
    Ok(answer_json(StatusCode::OK, &all))
}

pub(crate) async fn events(
    front: &Front,
    key: Credential,
    sandbox: Option<String>,
    query: &str,
) -> Result<Response, Refusal> {
    let (mut offset, mut limit, mut oldest_first) = (0, 10, false);
    let mut kinds = Vec::new();
    for (name, value) in pairs(query) {
        match name.as_str() {
            "offset" => offset = value.parse().unwrap_or(0),
            "limit" => limit = value.parse::<u64>().unwrap_or(10).clamp(1, 100),
            "orderAsc" => oldest_first = value == "true",
            "types" => kinds.push(value),
            _ => {}
        }
    }
    let ask = Ask::LifecycleEvents {
        sandbox,
        offset,
        limit,
        oldest_first,
    };
    let Reply::LifecycleEvents(all) = front.ask(key, ask).await? else {
        return Err(strange());
    };
    let told = all.into_iter().map(|one| {
        json!({
            "version": "v2",
            "id": one.id,
            "type": format!("sandbox.lifecycle.{}", one.kind),
            "sandboxId": one.sandbox,
            "timestamp": time_of(one.at_ms),
            "eventData": one.facts,
        })
    });
    let is_wanted = |one: &Value| {
        kinds.is_empty()
            || kinds
                .iter()
                .any(|kind| one.get("type") == Some(&json!(kind)))
    };
    let told: Vec<Value> = told.filter(is_wanted).collect();
    Ok(answer_json(StatusCode::OK, &told))
}
