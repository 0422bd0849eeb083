//! E2B's control API: the life of sandboxes.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answers::{body, empty, json as answer_json, refused};
use super::listed::{described, list};
use super::logs::logs;
use super::methods::not_allowed;
use super::observed::{metrics, metrics_of_many, prometheus, ready};
use super::{Front, events, kept, plain_id, templates, volumes};
use crate::protocol::{
    self, CreateAsk, CreatedFacts, Credential, GetSandbox, Kill, Kind, LifeAsk, MountAsk,
    NetworkAsk, Refusal, SetNetwork, SetTimeout, object,
};

/// The version of E2B's service in a sandbox whose behaviour is kept.
pub(crate) const ENVD_VERSION: &str = "0.6.13";
/// The time by which a sandbox lives longer where none is named, seconds.
const REFRESH_S: u64 = 15;
/// The template where none is named.
const TEMPLATE: &str = "base";

/// Answers a request of the control API.
pub(crate) async fn answer(front: &Front, request: Request<Body>) -> Response {
    let (parts, content) = request.into_parts();
    match carry_out(front, &parts, content).await {
        Ok(response) => response,
        Err(refusal) => refused(&refusal),
    }
}

async fn carry_out(front: &Front, parts: &Parts, content: Body) -> Result<Response, Refusal> {
    let path: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
    let key = credential(&parts.headers);
    let is_v2 = path.first() == Some(&"v2");
    let path = if is_v2 {
        path.get(1..).unwrap_or_default()
    } else {
        &path
    };
    if let Some(response) = not_allowed(path, &parts.method) {
        return Ok(response);
    }
    let get = parts.method == Method::GET;
    let post = parts.method == Method::POST;
    match path {
        ["health"] if get => Ok(empty(StatusCode::NO_CONTENT)),
        ["ready"] if get => ready(front).await,
        ["metrics"] if get => prometheus(front).await,
        ["sandboxes"] if post => {
            let once = once(&parts.headers);
            create(front, key, once, body(content).await?).await
        }
        ["sandboxes"] if get => {
            list(front, key, parts.uri.query().unwrap_or_default(), is_v2).await
        }
        ["sandboxes", "metrics"] if get => {
            metrics_of_many(front, key, parts.uri.query().unwrap_or_default()).await
        }
        ["sandboxes", id, "logs"] if get => {
            let query = parts.uri.query().unwrap_or_default();
            logs(front, key, &plain_id(id), query, is_v2).await
        }
        ["sandboxes", id, rest @ ..] => of_sandbox(front, parts, id, rest, content).await,
        ["events", rest @ ..] => events::answer(front, parts, rest, content).await,
        ["snapshots"] if get => kept::snapshots(front, parts).await,
        ["templates", rest @ ..] | ["v3", "templates", rest @ ..] => {
            templates::answer(front, parts, rest, content).await
        }
        ["volumes", rest @ ..] => volumes::answer(front, parts, rest, content).await,
        ["volumecontent", volume, what] => {
            volumes::content(front, parts, volume, what, content).await
        }
        [.., "secrets"] | ["secrets", ..] => Err(refused_field("secrets")),
        _ => Err(not_offered(parts)),
    }
}

/// Carries out a request about one sandbox.
async fn of_sandbox(
    front: &Front,
    parts: &Parts,
    id: &str,
    rest: &[&str],
    content: Body,
) -> Result<Response, Refusal> {
    let key = credential(&parts.headers);
    let get = parts.method == Method::GET;
    let post = parts.method == Method::POST;
    match rest {
        [] if get => {
            let facts = front.call_in(key, &plain_id(id), GetSandbox {}).await?;
            Ok(answer_json(StatusCode::OK, &described(&facts)))
        }
        [] if parts.method == Method::DELETE => done(front, key, id, Kill {}).await,
        ["timeout"] if post => {
            let asked: Timeout = body(content).await?;
            let ask = SetTimeout {
                timeout_s: seconds(asked.timeout)?.unwrap_or(0),
                extends: false,
            };
            done(front, key, id, ask).await
        }
        ["refreshes"] if post => {
            let asked: Refresh = body(content).await?;
            let ask = SetTimeout {
                timeout_s: seconds(asked.duration)?.unwrap_or(REFRESH_S),
                extends: true,
            };
            done(front, key, id, ask).await
        }
        [what @ ("connect" | "pause" | "resume" | "fork" | "snapshots")] if post => {
            kept::answer(front, parts, id, what, content).await
        }
        ["network"] if parts.method == Method::PUT => {
            let asked: Replaced = body(content).await?;
            check_network(&asked.network)?;
            let ask = SetNetwork(NetworkAsk {
                internet: asked.internet,
                allow: asked.network.allow_out.unwrap_or_default(),
                deny: asked.network.deny_out.unwrap_or_default(),
            });
            done(front, key, id, ask).await
        }
        ["metrics"] if get => {
            let query = parts.uri.query().unwrap_or_default();
            metrics(front, key, &plain_id(id), query).await
        }
        _ => Err(not_offered(parts)),
    }
}

pub(crate) fn not_offered(parts: &Parts) -> Refusal {
    let what = format!("{} {} is not offered", parts.method, parts.uri.path());
    Refusal::new(Kind::NotFound, what)
}

/// Returns the key that came with a request.
pub(crate) fn credential(headers: &HeaderMap) -> Credential {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| value.strip_prefix("Bearer "));
    match text("x-api-key").or(bearer) {
        Some(key) => Credential::Key(key.to_owned()),
        None => Credential::Nothing,
    }
}

/// Returns the name that a request is carried out once by.
pub(crate) fn once(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("idempotency-key")?.to_str().ok()?;
    Some(value.to_owned())
}

#[derive(Deserialize)]
struct Timeout {
    timeout: Option<i64>,
}

#[derive(Deserialize)]
struct Refresh {
    duration: Option<i64>,
}

fn seconds(number: Option<i64>) -> Result<Option<u64>, Refusal> {
    let negative = |_| Refusal::new(Kind::Invalid, "timeout is negative");
    number.map(u64::try_from).transpose().map_err(negative)
}

/// The body of a create. A field that is not there is not set.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Create {
    #[serde(rename = "templateID")]
    template: Option<String>,
    timeout: Option<i64>,
    auto_pause: Option<bool>,
    auto_pause_memory: Option<bool>,
    #[serde(deserialize_with = "object")]
    auto_resume: Option<AutoResume>,
    #[serde(rename = "allow_internet_access")]
    internet: Option<bool>,
    #[serde(deserialize_with = "object")]
    network: Option<Network>,
    metadata: Option<BTreeMap<String, String>>,
    env_vars: Option<BTreeMap<String, String>>,
    mcp: Option<Value>,
    iam: Option<Value>,
    volume_mounts: Option<Vec<Mount>>,
}

/// A volume to mount: for writing, unless it is a snapshot.
#[derive(Deserialize)]
struct Mount {
    name: String,
    path: String,
}

fn volume_mounts(asked: Option<Vec<Mount>>) -> Vec<MountAsk> {
    let mount = |Mount { name, path }| MountAsk {
        name,
        path,
        read_only: false,
    };
    asked.unwrap_or_default().into_iter().map(mount).collect()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AutoResume {
    enabled: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Network {
    allow_out: Option<Vec<String>>,
    deny_out: Option<Vec<String>>,
    rules: Option<Value>,
    egress_proxy: Option<Value>,
    dns_servers: Option<Vec<Value>>,
    allow_public_traffic: Option<bool>,
    mask_request_host: Option<String>,
}

/// The network that takes the place of the one that a sandbox has.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Replaced {
    #[serde(rename = "allow_internet_access")]
    internet: Option<bool>,
    #[serde(flatten)]
    network: Network,
}

/// Returns whether a field says something.
fn is_set(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    }
}

/// Refuses what is asked for and not offered: nothing is left out silently.
fn check(create: &Create) -> Result<(), Refusal> {
    if let Some(network) = &create.network {
        check_network(network)?;
    }
    let fields = [
        ("mcp", is_set(create.mcp.as_ref())),
        ("iam", is_set(create.iam.as_ref())),
    ];
    refuse_first(&fields)
}

fn check_network(network: &Network) -> Result<(), Refusal> {
    let servers = network.dns_servers.as_ref();
    refuse_first(&[
        ("network.rules", is_set(network.rules.as_ref())),
        ("network.egressProxy", is_set(network.egress_proxy.as_ref())),
        (
            "network.dnsServers",
            servers.is_some_and(|list| !list.is_empty()),
        ),
    ])
}

/// Refuses the first field that is set.
fn refuse_first(fields: &[(&str, bool)]) -> Result<(), Refusal> {
    match fields.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(refused_field(name)),
        None => Ok(()),
    }
}

fn refused_field(name: &str) -> Refusal {
    Refusal::new(
        Kind::Forbidden,
        format!("{name}: this server does not offer it"),
    )
    .advise("leave it out; no setting of serve.toml allows it")
}

async fn create(
    front: &Front,
    key: Credential,
    once: Option<String>,
    create: Create,
) -> Result<Response, Refusal> {
    check(&create)?;
    let resumes = create.auto_resume.as_ref();
    let auto_resume = resumes.is_some_and(|resume| resume.enabled);
    let network = create.network.unwrap_or_default();
    let asked = NetworkAsk {
        internet: create.internet,
        allow: network.allow_out.unwrap_or_default(),
        deny: network.deny_out.unwrap_or_default(),
    };
    let ask = CreateAsk {
        template: create.template.unwrap_or_else(|| TEMPLATE.to_owned()),
        timeout_s: seconds(create.timeout)?,
        metadata: create.metadata.unwrap_or_default(),
        environment: create.env_vars.unwrap_or_default(),
        network: (asked != NetworkAsk::default()).then_some(asked),
        private_ports: network.allow_public_traffic == Some(false),
        auto_pause: create.auto_pause == Some(true),
        auto_pause_memory: create.auto_pause_memory,
        auto_resume,
        port_host: network.mask_request_host,
        volumes: volume_mounts(create.volume_mounts),
        ..CreateAsk::default()
    };
    let mut line = front
        .begin_once(key, once, protocol::Create(Box::new(ask)))
        .await?;
    let made = line.reply().await.map_err(no_template)?;
    Ok(created(&made, StatusCode::CREATED))
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

async fn done<R>(front: &Front, key: Credential, id: &str, ask: R) -> Result<Response, Refusal>
where
    R: protocol::Request<Of = LifeAsk, Reply = ()>,
{
    front.call_in(key, &plain_id(id), ask).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Reads the pairs of a query.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    form_urlencoded::parse(query.as_bytes()).into_owned()
}
