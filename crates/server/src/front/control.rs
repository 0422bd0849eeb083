//! E2B's control API: the life of sandboxes.

use super::dialect::*;
use super::listed::{created, described, list, no_template};
use super::logs::logs;
use super::methods::not_allowed;
use super::observed::{metrics, metrics_of_many, prometheus, ready};
use super::senders::{credential, once};
use super::{events, kept, templates, volumes};

/// The time by which a sandbox lives longer where none is named, seconds.
const REFRESH_S: u64 = 15;
/// The template where none is named.
const TEMPLATE: &str = "base";

/// Answers a request of the control API.
pub(crate) async fn answer(front: &Arc<Front>, request: Request<Body>) -> Response {
    let caller = Caller::new(front, credential(request.headers()));
    let answered = carry_out(&caller, request).await;
    answered.unwrap_or_else(|refusal| Dialect::E2b.refused(&refusal))
}

async fn carry_out(caller: &Caller, request: Request<Body>) -> Answered {
    let path = request.uri().path().to_owned();
    let path: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (path, is_v2) = match path.as_slice() {
        ["v2", path @ ..] => (path, true),
        path => (path, false),
    };
    if let Some(response) = not_allowed(path, request.method()) {
        return Ok(response);
    }
    let query = Query::of(request.uri());
    match (request.method().as_str(), path) {
        ("GET", ["health"]) => Ok(empty(StatusCode::NO_CONTENT)),
        ("GET", ["ready"]) => ready(caller).await,
        ("GET", ["metrics"]) => prometheus(caller).await,
        ("POST", ["sandboxes"]) => {
            let once = once(request.headers());
            create(caller, once, body(request).await?).await
        }
        ("GET", ["sandboxes"]) => list(caller, request.uri(), is_v2).await,
        ("GET", ["sandboxes", "metrics"]) => metrics_of_many(caller, &query).await,
        ("GET", ["sandboxes", id, "logs"]) => logs(caller, &plain_id(id), &query, is_v2).await,
        (_, ["sandboxes", id, rest @ ..]) => {
            of_sandbox(&caller.sandbox(&plain_id(id)), rest, request).await
        }
        (_, ["events", rest @ ..]) => events::answer(caller, rest, request).await,
        ("GET", ["snapshots"]) => kept::snapshots(caller, &query).await,
        (_, ["templates", rest @ ..] | ["v3", "templates", rest @ ..]) => {
            templates::answer(caller, rest, request).await
        }
        (_, ["volumes", rest @ ..]) => volumes::answer(caller, rest, request).await,
        (_, ["volumecontent", volume, what]) => {
            volumes::content(caller, volume, what, request).await
        }
        (_, [.., "secrets"] | ["secrets", ..]) => Err(refused_field("secrets")),
        _ => Err(not_offered(&request)),
    }
}

/// Carries out a request about one sandbox.
async fn of_sandbox(sandbox: &Sandbox, rest: &[&str], request: Request<Body>) -> Answered {
    let set_timeout = async |timeout_s, extends| {
        let ask = SetTimeout { timeout_s, extends };
        done(StatusCode::NO_CONTENT, sandbox.call(ask).await)
    };
    match (request.method().as_str(), rest) {
        ("GET", []) => ok(&described(&sandbox.call(GetSandbox {}).await?)),
        ("DELETE", []) => done(StatusCode::NO_CONTENT, sandbox.call(Kill {}).await),
        ("POST", ["timeout"]) => {
            let asked: Life = body(request).await?;
            set_timeout(seconds(asked.timeout)?.unwrap_or(0), false).await
        }
        ("POST", ["refreshes"]) => {
            let asked: Life = body(request).await?;
            set_timeout(seconds(asked.duration)?.unwrap_or(REFRESH_S), true).await
        }
        ("POST", [what @ ("connect" | "pause" | "resume" | "fork" | "snapshots")]) => {
            kept::answer(sandbox, what, request).await
        }
        ("PUT", ["network"]) => {
            let asked: Replaced = body(request).await?;
            asked.network.check()?;
            let ask = SetNetwork(asked.network.ask(asked.internet));
            done(StatusCode::NO_CONTENT, sandbox.call(ask).await)
        }
        ("GET", ["metrics"]) => metrics(sandbox, &Query::of(request.uri())).await,
        _ => Err(not_offered(&request)),
    }
}

/// The body of a change of a sandbox's life.
#[derive(Deserialize)]
struct Life {
    timeout: Option<i64>,
    duration: Option<i64>,
}

fn seconds(number: Option<i64>) -> Result<Option<u64>, Refusal> {
    let negative = |_| Refusal::invalid("timeout is negative");
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
    dns_servers: Option<Value>,
    allow_public_traffic: Option<bool>,
    mask_request_host: Option<String>,
}

impl Network {
    fn check(&self) -> Result<(), Refusal> {
        refuse_set(&[
            ("network.rules", &self.rules),
            ("network.egressProxy", &self.egress_proxy),
            ("network.dnsServers", &self.dns_servers),
        ])
    }

    fn ask(self, internet: Option<bool>) -> NetworkAsk {
        NetworkAsk {
            internet,
            allow: self.allow_out.unwrap_or_default(),
            deny: self.deny_out.unwrap_or_default(),
        }
    }
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

/// Refuses what is asked for and not offered: nothing is left out silently.
fn refuse_set(fields: &[(&str, &Option<Value>)]) -> Result<(), Refusal> {
    let is_set = |value: &Value| match value {
        Value::Null => false,
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    let mut fields = fields.iter();
    let set = fields.find(|(_, value)| value.as_ref().is_some_and(is_set));
    set.map_or(Ok(()), |(name, _)| Err(refused_field(name)))
}

fn refused_field(name: &str) -> Refusal {
    let what = format!("{name}: this server does not offer it");
    Refusal::new(Kind::Forbidden, what).advise("leave it out; no setting of serve.toml allows it")
}

async fn create(caller: &Caller, once: Option<String>, create: Create) -> Answered {
    let mut network = create.network.unwrap_or_default();
    network.check()?;
    refuse_set(&[("mcp", &create.mcp), ("iam", &create.iam)])?;
    let ask = CreateAsk {
        template: create.template.unwrap_or_else(|| TEMPLATE.to_owned()),
        timeout_s: seconds(create.timeout)?,
        metadata: create.metadata.unwrap_or_default(),
        environment: create.env_vars.unwrap_or_default(),
        private_ports: network.allow_public_traffic == Some(false),
        port_host: network.mask_request_host.take(),
        network: Some(network.ask(create.internet)).filter(|asked| *asked != NetworkAsk::default()),
        auto_pause: create.auto_pause == Some(true),
        auto_pause_memory: create.auto_pause_memory,
        auto_resume: create.auto_resume.is_some_and(|resume| resume.enabled),
        volumes: volume_mounts(create.volume_mounts),
        ..CreateAsk::default()
    };
    let ask = protocol::Create(Box::new(ask));
    let mut line = caller.begin_once(once, ask).await?;
    let made = line.reply().await.map_err(no_template)?;
    Ok(created(&made, StatusCode::CREATED))
}
