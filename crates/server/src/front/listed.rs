//! Lists and descriptions of sandboxes, in the form of E2B's control API.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::dialect::*;

/// The version of E2B's service in a sandbox whose behaviour is kept.
pub(crate) const ENVD_VERSION: &str = "0.6.13";

/// Describes a sandbox in a list.
fn listed(facts: &SandboxFacts) -> Value {
    let mounts = facts.volumes.iter();
    let mounts = mounts.map(|one| json!({ "name": one.name, "path": one.path }));
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
        "volumeMounts": mounts.collect::<Vec<_>>(),
    })
}

/// Describes one sandbox.
pub(crate) fn described(facts: &SandboxFacts) -> Value {
    let asked = facts.asked.as_ref();
    let on_timeout = if facts.auto_pause { "pause" } else { "kill" };
    let lifecycle = json!({ "autoResume": facts.auto_resume, "onTimeout": on_timeout });
    let all = with(listed(facts), "domain", Some(Value::Null));
    let all = with(
        all,
        "allowInternetAccess",
        Some(asked.map(|one| one.internet)),
    );
    let network = asked.map(|one| json!({ "allowOut": one.allow, "denyOut": one.deny }));
    with(with(all, "network", network), "lifecycle", Some(lifecycle))
}

pub(crate) async fn list(caller: &Caller, uri: &Uri, is_v2: bool) -> Answered {
    let mut ask = ListAsk {
        limit: 100,
        // The second version has them where no state is named.
        paused: is_v2,
        ..ListAsk::default()
    };
    for (name, value) in pairs(uri.query().unwrap_or_default()) {
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
                let wrong = |_| Refusal::invalid("limit is no number from 1 to 100");
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
    } = caller.call(ListSandboxes(ask)).await?;
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
pub(crate) async fn list_all(caller: &Caller, ask: ListAsk) -> Result<Vec<SandboxFacts>, Refusal> {
    let mut ask = ListAsk { limit: 100, ..ask };
    let mut all = Vec::new();
    while all.len() < ALL_MAX {
        let part = caller.call(ListSandboxes(ask.clone())).await?;
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
    let notes = pairs(text).map(|(name, value)| (plain(name), plain(value)));
    notes.collect()
}

fn since(text: &str) -> Result<u64, Refusal> {
    let wrong = |_| Refusal::invalid("startedAfter is no time as of RFC 3339");
    let time = OffsetDateTime::parse(text, &Rfc3339).map_err(wrong)?;
    Ok(u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0))
}

/// Turns the answer for a missing sandbox into that for a missing template.
pub(crate) fn no_template(refusal: Refusal) -> Refusal {
    match refusal.kind {
        Kind::NoSandbox => Refusal {
            kind: Kind::NotFound,
            ..refusal
        },
        _ => refusal,
    }
}

pub(crate) fn created(made: &CreatedFacts, status: StatusCode) -> Response {
    let response = answer_json(status, &created_body(made));
    reaches(response, &made.sandbox.network)
}

/// Says in an answer what a sandbox's programs reach, for whoever looks.
pub(crate) fn reaches(mut response: Response, network: &str) -> Response {
    if let Ok(network) = HeaderValue::from_str(network) {
        response.headers_mut().insert("atoll-network", network);
    }
    response
}

/// Describes a sandbox with its tokens.
pub(crate) fn created_body(made: &CreatedFacts) -> Value {
    let CreatedFacts {
        sandbox,
        token,
        port_token,
        code_token,
        ..
    } = made;
    json!({
        "templateID": sandbox.template,
        "sandboxID": sandbox.id,
        "clientID": "atoll",
        "alias": sandbox.template,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": token,
        // The SDK for code sends it alone with some of its requests.
        "trafficAccessToken": code_token.as_ref().or(port_token.as_ref()),
        "domain": null,
    })
}
