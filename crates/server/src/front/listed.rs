//! Lists and descriptions of sandboxes, in the form of E2B's control API.

use std::collections::BTreeMap;

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Front;
use super::answers::json as answer_json;
use super::control::{ENVD_VERSION, pairs};
use crate::protocol::{Credential, Kind, ListAsk, ListSandboxes, Listed, Refusal, SandboxFacts};
use crate::rfc3339::time_of;

/// Describes the volumes of a sandbox.
fn mounts(facts: &SandboxFacts) -> Vec<Value> {
    let mounts = facts.volumes.iter();
    mounts
        .map(|one| json!({ "name": one.name, "path": one.path }))
        .collect()
}

/// Describes a sandbox in a list.
fn listed(facts: &SandboxFacts) -> Value {
    json!({
        "templateID": facts.template,
        "alias": facts.template,
        "sandboxID": facts.id,
        "clientID": "atoll",
        "startedAt": time_of(facts.started_ms),
        "endAt": time_of(facts.ends_ms),
        "cpuCount": facts.cpus,
        "memoryMB": facts.memory_mib,
        "diskSizeMB": facts.disk_mib,
        "metadata": facts.metadata,
        "state": facts.state,
        "envdVersion": ENVD_VERSION,
        "volumeMounts": mounts(facts),
    })
}

/// Describes one sandbox.
pub(crate) fn described(facts: &SandboxFacts) -> Value {
    let mut all = listed(facts);
    if let Some(fields) = all.as_object_mut() {
        let asked = facts.asked.as_ref();
        let network = asked.map(|one| json!({ "allowOut": one.allow, "denyOut": one.deny }));
        fields.insert("domain".to_owned(), Value::Null);
        let internet = json!(asked.and_then(|one| one.internet));
        fields.insert("allowInternetAccess".to_owned(), internet);
        if let Some(network) = network {
            fields.insert("network".to_owned(), network);
        }
        fields.insert(
            "lifecycle".to_owned(),
            json!({
                "autoResume": facts.auto_resume,
                "onTimeout": if facts.auto_pause { "pause" } else { "kill" },
            }),
        );
    }
    all
}

pub(crate) async fn list(
    front: &Front,
    key: Credential,
    query: &str,
    is_v2: bool,
) -> Result<Response, Refusal> {
    let mut ask = ListAsk {
        limit: 100,
        // The second version has them where no state is named.
        paused: is_v2,
        ..ListAsk::default()
    };
    for (name, value) in pairs(query) {
        match name.as_str() {
            "metadata" => ask.metadata = notes(&value),
            "state" => {
                let has = |wanted: &str| value.split(',').any(|state| state == wanted);
                (ask.paused, ask.only_paused) = (has("paused"), !has("running"));
            }
            "order" => ask.oldest_first = value == "asc",
            "template" => ask.template = Some(value),
            "startedAfter" => ask.since_ms = Some(since(&value)?),
            "limit" => {
                let wrong = |_| Refusal::new(Kind::Invalid, "limit is no number from 1 to 100");
                ask.limit = value.parse().map_err(wrong)?;
            }
            "nextToken" => ask.cursor = Some(value),
            _ => {}
        }
    }
    let Listed {
        sandboxes,
        cursor,
        running: count,
    } = front.call(key, ListSandboxes(ask)).await?;
    let all: Vec<Value> = sandboxes.iter().map(listed).collect();
    let mut response = answer_json(StatusCode::OK, &all);
    if is_v2 {
        let headers = response.headers_mut();
        headers.insert("x-total-running", HeaderValue::from(count));
        let next = cursor.and_then(|cursor| HeaderValue::from_str(&cursor).ok());
        if let Some(next) = next {
            headers.insert("x-next-token", next);
        }
    }
    Ok(response)
}

/// The most sandboxes that are looked through.
const ALL_MAX: usize = 10_000;

/// Returns all sandboxes of a tenant that a request names, part by part.
pub(crate) async fn list_all(
    front: &Front,
    key: &Credential,
    ask: ListAsk,
) -> Result<Vec<SandboxFacts>, Refusal> {
    let mut ask = ListAsk { limit: 100, ..ask };
    let mut all = Vec::new();
    while all.len() < ALL_MAX {
        let part = ListSandboxes(ask.clone());
        let part = front.call(key.clone(), part).await?;
        all.extend(part.sandboxes);
        match part.cursor {
            Some(cursor) => ask.cursor = Some(cursor),
            None => break,
        }
    }
    Ok(all)
}

/// Reads the notes of a filter: pairs, each part of which is encoded once more.
fn notes(text: &str) -> BTreeMap<String, String> {
    let plain = |text: String| {
        percent_encoding::percent_decode_str(&text)
            .decode_utf8_lossy()
            .into_owned()
    };
    pairs(text)
        .map(|(name, value)| (plain(name), plain(value)))
        .collect()
}

fn since(text: &str) -> Result<u64, Refusal> {
    let wrong = |_| Refusal::new(Kind::Invalid, "startedAfter is no time as of RFC 3339");
    let time = OffsetDateTime::parse(text, &Rfc3339).map_err(wrong)?;
    Ok(u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0))
}
