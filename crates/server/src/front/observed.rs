//! Measurements of sandboxes, in the form of E2B's control API, and of the server.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::answers::{empty, json as answer_json};
use super::control::pairs;
use super::{Front, plain_id};
use crate::protocol::{Count, Credential, Kind, Measure, Measures, Refusal};
use crate::rfc3339::time_of;

/// The most sandboxes that are measured by one request, as E2B has it.
const MEASURED_MAX: usize = 100;

/// Measures a sandbox now; what it used before is not kept.
pub(crate) async fn metrics(
    front: &Front,
    key: Credential,
    id: &str,
    query: &str,
) -> Result<Response, Refusal> {
    let measures = front.call_in(key, id, Measure {}).await?;
    let bound = |wanted: &str| {
        let found = pairs(query).find(|(name, _)| name == wanted);
        found.and_then(|(_, value)| value.parse::<u64>().ok())
    };
    let is_before = bound("start").is_some_and(|start| measures.at_s < start);
    let is_after = bound("end").is_some_and(|end| measures.at_s > end);
    let all = match is_before || is_after {
        true => vec![],
        false => vec![measured(&measures)],
    };
    Ok(answer_json(StatusCode::OK, &all))
}

fn measured(measures: &Measures) -> Value {
    json!({
        "timestamp": time_of(measures.at_s * 1000),
        "timestampUnix": measures.at_s,
        "cpuCount": measures.cpus,
        "cpuUsedPct": measures.cpu_percent,
        "memUsed": measures.memory_bytes,
        "memTotal": measures.memory_bytes_max,
        "memCache": 0,
        "diskUsed": measures.disk_bytes,
        "diskTotal": measures.disk_bytes_max,
    })
}

/// Measures the sandboxes that `sandbox_ids` names; those that are not there are left out.
pub(crate) async fn metrics_of_many(
    front: &Front,
    key: Credential,
    query: &str,
) -> Result<Response, Refusal> {
    let named = pairs(query).filter(|(name, _)| name == "sandbox_ids");
    let named: Vec<String> = named.map(|(_, value)| value).collect();
    let ids: Vec<&str> = named.iter().flat_map(|value| value.split(',')).collect();
    if ids.len() > MEASURED_MAX {
        let what = format!(
            "sandbox_ids names {} sandboxes, and {MEASURED_MAX} is the most",
            ids.len()
        );
        return Err(Refusal::new(Kind::Invalid, what));
    }
    let mut all = Map::new();
    for id in ids {
        let id = plain_id(id);
        match front.call_in(key.clone(), &id, Measure {}).await {
            Ok(measures) => {
                all.insert(id, measured(&measures));
            }
            Err(refusal) if refusal.kind == Kind::NoSandbox => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(answer_json(StatusCode::OK, &json!({ "sandboxes": all })))
}

/// Says whether the worker makes sandboxes.
pub(crate) async fn ready(front: &Front) -> Result<Response, Refusal> {
    let counts = front.call(Credential::Nothing, Count {}).await?;
    let status = match counts.makes && !counts.draining {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok(empty(status))
}

/// Writes the worker's numbers in Prometheus' text format.
pub(crate) async fn prometheus(front: &Front) -> Result<Response, Refusal> {
    let counts = front.call(Credential::Nothing, Count {}).await?;
    let all = [
        (
            "atoll_sandboxes",
            "gauge",
            "Sandboxes that are alive.",
            counts.sandboxes as u64,
        ),
        (
            "atoll_programs",
            "gauge",
            "Programs that run in them.",
            counts.programs as u64,
        ),
        (
            "atoll_sandboxes_warm",
            "gauge",
            "Sandboxes made ahead, that wait for whoever asks for one.",
            counts.warm as u64,
        ),
        (
            "atoll_sandboxes_assigned_total",
            "counter",
            "Sandboxes made ahead that have become a caller's.",
            counts.assigned,
        ),
        (
            "atoll_sandboxes_created_total",
            "counter",
            "Sandboxes made.",
            counts.created,
        ),
        (
            "atoll_sandboxes_ended_total",
            "counter",
            "Sandboxes ended.",
            counts.ended,
        ),
        (
            "atoll_requests_total",
            "counter",
            "Requests to the worker.",
            counts.requests,
        ),
    ];
    let mut text: String = all
        .into_iter()
        .map(|(name, kind, help, number)| {
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {number}\n")
        })
        .collect();
    let name = "atoll_webhook_deliveries_total";
    text += &format!("# HELP {name} Deliveries to webhooks.\n# TYPE {name} counter\n");
    for (outcome, number) in [
        ("delivered", counts.webhooks_delivered),
        ("given_up", counts.webhooks_given_up),
        ("dropped", counts.webhooks_dropped),
    ] {
        text += &format!("{name}{{outcome=\"{outcome}\"}} {number}\n");
    }
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
