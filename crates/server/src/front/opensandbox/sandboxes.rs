//! OpenSandbox' lifecycle API: sandboxes, their endpoints and snapshots.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::network::{self, Policy};
use super::{PREFIX, TOKEN, key, named, number};
use crate::front::answers::{body, empty, json as answer_json, refuse_rest};
use crate::front::control::{no_template, not_offered, pairs};
use crate::front::interpreter::Interpreter;
use crate::front::listed::list_all;
use crate::front::{Front, authority};
use crate::protocol::{
    self, CODE_INTERPRETER, Connect, CreateAsk, CreatedFacts, Credential, GetSandbox,
    INTERPRETER_PORT, Kill, Kind, ListAsk, ListSnapshots, Pause, Refusal, RemoveSnapshot,
    SandboxFacts, SetTimeout, Snapshot, SnapshotFacts, is_service,
};
use crate::rfc3339::time_of;

/// The port at which clients look for the service in a sandbox.
const EXECD_PORT: u16 = 44772;
/// The images that clients name, and the shipped templates that stand for them; any other is the name
/// of a template or snapshot.
const IMAGES: [(&str, &str); 1] = [("opensandbox/code-interpreter", CODE_INTERPRETER)];
/// The variable with the port of the interpreter, as programs in the sandbox look for it.
const PORT_VARIABLE: &str = "JUPYTER_PORT";
/// The programs that clients name only to keep a container alive: nothing has to run here for that.
const ENTRYPOINTS: [&[&str]; 3] = [
    &["tail", "-f", "/dev/null"],
    &["/opt/code-interpreter/code-interpreter.sh"],
    &["/opt/opensandbox/code-interpreter.sh"],
];
/// The sandboxes in one part of a list, unless the caller says otherwise, and the most.
const PAGE: u64 = 20;
const PAGE_MAX: u64 = 200;

/// Answers a request of the API.
pub(super) async fn answer(
    front: &Front,
    parts: &Parts,
    path: &[&str],
    content: Body,
) -> Result<Response, Refusal> {
    let key = key(&parts.headers);
    match (parts.method.as_str(), path) {
        ("POST", ["sandboxes"]) => create(front, key, body(content).await?).await,
        ("GET", ["sandboxes"]) => list(front, key, parts).await,
        ("GET", ["sandboxes", id]) => {
            let facts = front.call_in(key, id, GetSandbox {}).await?;
            Ok(answer_json(StatusCode::OK, &described(&facts)))
        }
        ("DELETE", ["sandboxes", id]) => {
            front.call_in(key, id, Kill {}).await?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        ("POST", ["sandboxes", id, "pause"]) => {
            front.call_in(key, id, Pause { memory: true }).await?;
            Ok(empty(StatusCode::ACCEPTED))
        }
        ("POST", ["sandboxes", id, "resume"]) => {
            let ask = Connect { timeout_s: None };
            front.call_in(key, id, ask).await?;
            Ok(empty(StatusCode::ACCEPTED))
        }
        ("POST", ["sandboxes", id, "renew-expiration"]) => {
            renew(front, key, id, body(content).await?).await
        }
        ("GET", ["sandboxes", id, "endpoints", port]) => {
            endpoint(front, key, id, port, parts).await
        }
        ("POST", ["sandboxes", id, "snapshots"]) => {
            let Named { name } = body(content).await?;
            let made = front.call_in(key, id, Snapshot { name }).await?;
            Ok(answer_json(StatusCode::ACCEPTED, &kept(&made.facts)))
        }
        (_, ["sandboxes", id, "networkpolicy"]) => {
            network::answer(front, key, parts, id, content).await
        }
        (_, ["snapshots", ..]) => snapshots(front, key, parts, path).await,
        _ => Err(not_offered(parts)),
    }
}

/// The body of a create.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Create {
    image: Option<Image>,
    template_id: Option<String>,
    snapshot_id: Option<String>,
    timeout: Option<u64>,
    #[serde(default)]
    resource_limits: BTreeMap<String, String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    entrypoint: Option<Vec<String>>,
    network_policy: Option<Policy>,
    #[serde(default)]
    secure_access: bool,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Image {
    uri: String,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Named {
    name: Option<String>,
}

impl Create {
    fn template(&self) -> Result<String, Refusal> {
        match (&self.image, &self.template_id, &self.snapshot_id) {
            (Some(image), None, None) => {
                refuse_rest(&image.rest)?;
                let name = image.uri.split(':').next().unwrap_or_default();
                let shipped = IMAGES.iter().find(|(one, _)| *one == name);
                Ok(shipped
                    .map_or_else(|| image.uri.clone(), |(_, template)| (*template).to_owned()))
            }
            (None, Some(id), None) | (None, None, Some(id)) => Ok(id.clone()),
            _ => Err(Refusal::new(
                Kind::Invalid,
                "a sandbox begins with one of image, templateId and snapshotId",
            )),
        }
    }

    fn ask(self) -> Result<CreateAsk, Refusal> {
        refuse_rest(&self.rest)?;
        if let Some(entrypoint) = &self.entrypoint
            && !ENTRYPOINTS.iter().any(|known| entrypoint == known)
        {
            let what = "entrypoint: nothing has to run for a sandbox to live";
            return Err(Refusal::new(Kind::Invalid, what)
                .advise("leave it out, and run the program as a command in the background"));
        }
        let no_end = || {
            Refusal::new(
                Kind::Invalid,
                "timeout: every sandbox has an end on this server",
            )
            .advise("set a timeout, and renew it")
        };
        let mut ask = CreateAsk {
            template: self.template()?,
            timeout_s: Some(self.timeout.ok_or_else(no_end)?),
            metadata: self.metadata,
            environment: self.env,
            private_ports: self.secure_access,
            network: self.network_policy.map(Policy::ask).transpose()?,
            ..CreateAsk::default()
        };
        for (name, value) in &self.resource_limits {
            let wrong = || Refusal::new(Kind::Invalid, format!("resourceLimits: {name}={value:?}"));
            match name.as_str() {
                "cpu" => ask.cpus = Some(processors(value).ok_or_else(wrong)?),
                "memory" => ask.memory_mib = Some(mebibytes(value).ok_or_else(wrong)?),
                _ => return Err(wrong().advise("cpu and memory can be set")),
            }
        }
        Ok(ask)
    }
}

/// Reads processors as Kubernetes writes them; parts of one are rounded up.
fn processors(text: &str) -> Option<u32> {
    match text.strip_suffix('m') {
        Some(thousandths) => Some(thousandths.parse::<u32>().ok()?.div_ceil(1000)),
        None => text.parse().ok(),
    }
}

/// Reads an amount of memory as Kubernetes writes it, in MiB.
fn mebibytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|one: char| one.is_ascii_alphabetic());
    let unit = match text.strip_prefix(digits)? {
        "" => 1,
        "K" | "k" => 1000,
        "Ki" => 1 << 10,
        "M" => 1_000_000,
        "Mi" => 1 << 20,
        "G" => 1_000_000_000,
        "Gi" => 1 << 30,
        _ => return None,
    };
    Some(digits.parse::<u64>().ok()?.checked_mul(unit)? >> 20)
}

async fn create(front: &Front, key: Credential, asked: Create) -> Result<Response, Refusal> {
    let mut ask = asked.ask()?;
    if ask.template == CODE_INTERPRETER {
        // Its SDK looks inside, by a command, whether something listens there.
        let port = INTERPRETER_PORT.to_string();
        ask.environment.insert(PORT_VARIABLE.to_owned(), port);
    }
    let ask = protocol::Create(Box::new(ask));
    let made = front.call(key.clone(), ask).await.map_err(no_template)?;
    let sandbox = made.sandbox;
    if sandbox.template == CODE_INTERPRETER {
        // The first request starts it; one that fails is told when code is to run.
        let interpreter = Interpreter {
            front,
            credential: &key,
            sandbox: &sandbox.id,
        };
        let _ = interpreter.contexts().await;
    }
    Ok(answer_json(StatusCode::ACCEPTED, &described(&sandbox)))
}

fn state(facts: &SandboxFacts) -> &'static str {
    match facts.state.as_str() {
        "paused" => "Paused",
        _ => "Running",
    }
}

fn described(facts: &SandboxFacts) -> Value {
    json!({
        "id": facts.id,
        "status": { "state": state(facts) },
        "image": { "uri": facts.template },
        "metadata": facts.metadata,
        "entrypoint": ENTRYPOINTS.first(),
        "createdAt": time_of(facts.started_ms),
        "expiresAt": time_of(facts.ends_ms),
    })
}

/// Lists a tenant's sandboxes by pages.
async fn list(front: &Front, key: Credential, parts: &Parts) -> Result<Response, Refusal> {
    let notes = named(parts, "metadata").next().unwrap_or_default();
    let states: Vec<String> = named(parts, "state").collect();
    let ask = ListAsk {
        metadata: pairs(&notes).collect(),
        paused: true,
        ..ListAsk::default()
    };
    let mut all = list_all(front, &key, ask).await?;
    all.retain(|one| {
        let is_it = |wanted: &String| wanted.eq_ignore_ascii_case(state(one));
        states.is_empty() || states.iter().any(is_it)
    });
    let described: Vec<Value> = all.iter().map(described).collect();
    paged(parts, &described)
}

/// Answers with one page of a list.
fn paged(parts: &Parts, all: &[Value]) -> Result<Response, Refusal> {
    let page = number(parts, "page")?.unwrap_or(1).max(1);
    let size = number(parts, "pageSize")?
        .unwrap_or(PAGE)
        .clamp(1, PAGE_MAX);
    let total = all.len() as u64;
    let pages = total.div_ceil(size);
    let begin = usize::try_from((page - 1).saturating_mul(size)).unwrap_or(usize::MAX);
    let most = usize::try_from(size).unwrap_or(usize::MAX);
    let items: Vec<&Value> = all.iter().skip(begin).take(most).collect();
    let body = json!({
        "items": items,
        "pagination": {
            "page": page,
            "pageSize": size,
            "totalItems": total,
            "totalPages": pages,
            "hasNextPage": page < pages,
        },
    });
    Ok(answer_json(StatusCode::OK, &body))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Renew {
    expires_at: String,
}

async fn renew(
    front: &Front,
    key: Credential,
    id: &str,
    asked: Renew,
) -> Result<Response, Refusal> {
    let wrong = |_| Refusal::new(Kind::Invalid, "expiresAt is no time as of RFC 3339");
    let end = OffsetDateTime::parse(&asked.expires_at, &Rfc3339).map_err(wrong)?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let left_ms =
        end.unix_timestamp_nanos() / 1_000_000 - i128::try_from(now.as_millis()).unwrap_or(0);
    let left_ms = u64::try_from(left_ms).map_err(|_| {
        Refusal::new(Kind::Invalid, "expiresAt is over").advise("delete the sandbox to end it")
    })?;
    let ask = SetTimeout {
        timeout_s: left_ms.div_ceil(1000).max(1),
        extends: false,
    };
    front.call_in(key.clone(), id, ask).await?;
    let facts = front.call_in(key, id, GetSandbox {}).await?;
    let body = json!({ "expiresAt": time_of(facts.ends_ms) });
    Ok(answer_json(StatusCode::OK, &body))
}

/// Tells where a port is reached, and by which headers.
async fn endpoint(
    front: &Front,
    key: Credential,
    id: &str,
    port: &str,
    parts: &Parts,
) -> Result<Response, Refusal> {
    let no_port = |_| Refusal::new(Kind::Invalid, format!("{port} is no port"));
    let port: u16 = port.parse().map_err(no_port)?;
    if named(parts, "expires").next().is_some() {
        let what = "expires: endpoints are not signed here";
        return Err(Refusal::new(Kind::Invalid, what)
            .advise("POST /v1/sandboxes/ID/ports/PORT/link makes a link that is"));
    }
    // Whoever only asks wakes nobody.
    let facts = front.call_in(key.clone(), id, GetSandbox {}).await?;
    if facts.state != "running" {
        let what = format!("sandbox {id} is paused");
        return Err(Refusal::new(Kind::Exists, what).advise("resume it first"));
    }
    let ask = Connect { timeout_s: None };
    let CreatedFacts {
        token, port_token, ..
    } = front.call_in(key, id, ask).await?;
    let host = authority(&parts.headers, &parts.uri).unwrap_or_default();
    let body = match port {
        EXECD_PORT if token.is_empty() => {
            let what = "the key lacks a scope: the service in a sandbox takes exec and files";
            return Err(Refusal::new(Kind::Forbidden, what));
        }
        EXECD_PORT => json!({
            "endpoint": format!("{host}{PREFIX}execd/{id}"),
            "headers": { TOKEN: token },
        }),
        port => {
            let mut headers = json!({ "e2b-sandbox-id": id, "e2b-sandbox-port": port.to_string() });
            let token = match is_service(port) {
                true => Some(("x-access-token", token)).filter(|(_, token)| !token.is_empty()),
                false => port_token.map(|token| ("e2b-traffic-access-token", token)),
            };
            if let (Some(headers), Some((name, token))) = (headers.as_object_mut(), token) {
                headers.insert(name.to_owned(), json!(token));
            }
            json!({ "endpoint": host, "headers": headers })
        }
    };
    let mut response = answer_json(StatusCode::OK, &body);
    // The client then asks this API, and no service in the sandbox, about its network.
    let origin = HeaderValue::from_static("template");
    response.headers_mut().insert("open-sandbox-origin", origin);
    Ok(response)
}

async fn snapshots(
    front: &Front,
    key: Credential,
    parts: &Parts,
    path: &[&str],
) -> Result<Response, Refusal> {
    if let ("DELETE", [_, id]) = (parts.method.as_str(), path) {
        let id = (*id).to_owned();
        front.call(key, RemoveSnapshot { id }).await?;
        return Ok(empty(StatusCode::NO_CONTENT));
    }
    let sandbox = named(parts, "sandboxId").next();
    let name = named(parts, "name").next();
    let all = front.call(key, ListSnapshots { sandbox }).await?;
    match (parts.method.as_str(), path) {
        ("GET", [_]) => {
            let own = all.iter().filter(|one| name.is_none() || one.name == name);
            let all: Vec<Value> = own.map(kept).collect();
            paged(parts, &all)
        }
        ("GET", [_, id]) => {
            let none = || Refusal::new(Kind::NotFound, format!("there is no snapshot {id:?}"));
            let one = all.iter().find(|one| one.id == *id).ok_or_else(none)?;
            Ok(answer_json(StatusCode::OK, &kept(one)))
        }
        _ => Err(not_offered(parts)),
    }
}

fn kept(facts: &SnapshotFacts) -> Value {
    let mut told = json!({
        "id": facts.id,
        "sandboxId": facts.sandbox,
        "status": { "state": "Ready" },
        "createdAt": time_of(facts.created_ms),
    });
    if let (Some(fields), Some(name)) = (told.as_object_mut(), &facts.name) {
        fields.insert("name".to_owned(), json!(name));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [
            ("1", Some(1)),
            ("500m", Some(1)),
            ("2500m", Some(3)),
            ("x", None),
        ] {
            assert_eq!(processors(text), expected, "{text}");
        }
        let cases = [
            ("2Gi", Some(2048)),
            ("512Mi", Some(512)),
            ("1048576", Some(1)),
            ("1G", Some(953)),
            ("1.5Gi", None),
            ("Mi", None),
            ("99999999999999999999Gi", None),
            ("99999999999Gi", None),
        ];
        for (text, expected) in cases {
            assert_eq!(mebibytes(text), expected, "{text}");
        }
    }
}
