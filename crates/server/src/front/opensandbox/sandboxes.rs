//! OpenSandbox' lifecycle API: sandboxes, their endpoints and snapshots.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::network::{self, Policy};
use super::{PREFIX, TOKEN};
use crate::front::dialect::*;
use crate::front::listed::{list_all, no_template};

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
pub(super) async fn answer(caller: &Caller, path: &[&str], request: Request<Body>) -> Answered {
    match (request.method().as_str(), path) {
        ("POST", ["sandboxes"]) => create(caller, body(request).await?).await,
        ("GET", ["sandboxes"]) => list(caller, &Query::of(request.uri())).await,
        (_, ["sandboxes", id, rest @ ..]) => of_sandbox(&caller.sandbox(id), rest, request).await,
        (_, ["snapshots", ..]) => snapshots(caller, path, request).await,
        _ => Err(not_offered(&request)),
    }
}

async fn of_sandbox(sandbox: &Sandbox, rest: &[&str], request: Request<Body>) -> Answered {
    match (request.method().as_str(), rest) {
        ("GET", []) => ok(&described(&sandbox.call(GetSandbox {}).await?)),
        ("DELETE", []) => done(StatusCode::NO_CONTENT, sandbox.call(Kill {}).await),
        ("POST", ["pause"]) => done(
            StatusCode::ACCEPTED,
            sandbox.call(Pause { memory: true }).await,
        ),
        ("POST", ["resume"]) => done(
            StatusCode::ACCEPTED,
            sandbox.call(Connect { timeout_s: None }).await,
        ),
        ("POST", ["renew-expiration"]) => renew(sandbox, body(request).await?).await,
        ("GET", ["endpoints", port]) => endpoint(sandbox, port, request).await,
        ("POST", ["snapshots"]) => {
            let Named { name } = body(request).await?;
            let made = sandbox.call(Snapshot { name }).await?;
            Ok(answer_json(StatusCode::ACCEPTED, &kept(&made.facts)))
        }
        (_, ["networkpolicy"]) => network::answer(sandbox, request).await,
        _ => Err(not_offered(&request)),
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
                let template = shipped.map_or(&*image.uri, |(_, template)| template);
                Ok(template.to_owned())
            }
            (None, Some(id), None) | (None, None, Some(id)) => Ok(id.clone()),
            _ => Err(Refusal::invalid(
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
            return Err(Refusal::invalid(what)
                .advise("leave it out, and run the program as a command in the background"));
        }
        let no_end = "timeout: every sandbox has an end on this server";
        let no_end = || Refusal::invalid(no_end).advise("set a timeout, and renew it");
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
            let wrong = || Refusal::invalid(format!("resourceLimits: {name}={value:?}"));
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

async fn create(caller: &Caller, asked: Create) -> Answered {
    let mut ask = asked.ask()?;
    if ask.template == CODE_INTERPRETER {
        // Its SDK looks inside, by a command, whether something listens there.
        let port = INTERPRETER_PORT.to_string();
        ask.environment.insert(PORT_VARIABLE.to_owned(), port);
    }
    let made = caller.call(protocol::Create(Box::new(ask))).await;
    let sandbox = made.map_err(no_template)?.sandbox;
    if sandbox.template == CODE_INTERPRETER {
        // The first request starts it; one that fails is told when code is to run.
        let _ = caller.sandbox(&sandbox.id).contexts().await;
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
async fn list(caller: &Caller, query: &Query) -> Answered {
    let notes = query.one("metadata").unwrap_or_default();
    let states: Vec<&String> = query.all("state").collect();
    let ask = ListAsk {
        metadata: pairs(&notes).collect(),
        paused: true,
        ..ListAsk::default()
    };
    let mut all = list_all(caller, ask).await?;
    all.retain(|one| {
        let is_it = |wanted: &&String| wanted.eq_ignore_ascii_case(state(one));
        states.is_empty() || states.iter().any(is_it)
    });
    paged(query, &all.iter().map(described).collect::<Vec<_>>())
}

/// Answers with one page of a list.
fn paged(query: &Query, all: &[Value]) -> Answered {
    let page = query.checked_number("page")?.unwrap_or(1_u64).max(1);
    let size: u64 = query.checked_number("pageSize")?.unwrap_or(PAGE);
    let size = size.clamp(1, PAGE_MAX);
    let total = all.len() as u64;
    let pages = total.div_ceil(size);
    let begin = usize::try_from((page - 1).saturating_mul(size)).unwrap_or(usize::MAX);
    let most = usize::try_from(size).unwrap_or(usize::MAX);
    ok(&json!({
        "items": all.iter().skip(begin).take(most).collect::<Vec<_>>(),
        "pagination": {
            "page": page,
            "pageSize": size,
            "totalItems": total,
            "totalPages": pages,
            "hasNextPage": page < pages,
        },
    }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Renew {
    expires_at: String,
}

async fn renew(sandbox: &Sandbox, asked: Renew) -> Answered {
    let wrong = |_| Refusal::invalid("expiresAt is no time as of RFC 3339");
    let end = OffsetDateTime::parse(&asked.expires_at, &Rfc3339).map_err(wrong)?;
    let left_ms = end.unix_timestamp_nanos() / 1_000_000 - i128::from(now_ms());
    let left_ms = u64::try_from(left_ms).map_err(|_| {
        Refusal::invalid("expiresAt is over").advise("delete the sandbox to end it")
    })?;
    let ask = SetTimeout {
        timeout_s: left_ms.div_ceil(1000).max(1),
        extends: false,
    };
    sandbox.call(ask).await?;
    let facts = sandbox.call(GetSandbox {}).await?;
    ok(&json!({ "expiresAt": time_of(facts.ends_ms) }))
}

/// Tells where a port is reached, and by which headers.
async fn endpoint(sandbox: &Sandbox, port: &str, request: Request<Body>) -> Answered {
    let id = &sandbox.id;
    let no_port = |_| Refusal::invalid(format!("{port} is no port"));
    let port: u16 = port.parse().map_err(no_port)?;
    if Query::of(request.uri()).one("expires").is_some() {
        let what = "expires: endpoints are not signed here";
        return Err(Refusal::invalid(what)
            .advise("POST /v1/sandboxes/ID/ports/PORT/link makes a link that is"));
    }
    // Whoever only asks wakes nobody.
    if sandbox.call(GetSandbox {}).await?.state != "running" {
        let what = format!("sandbox {id} is paused");
        return Err(Refusal::new(Kind::Exists, what).advise("resume it first"));
    }
    let connected = sandbox.call(Connect { timeout_s: None }).await?;
    let CreatedFacts {
        token, port_token, ..
    } = connected;
    let host = authority(request.headers(), request.uri()).unwrap_or_default();
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
            let (name, token) = match is_service(port) {
                true => (
                    "x-access-token",
                    Some(token).filter(|token| !token.is_empty()),
                ),
                false => ("e2b-traffic-access-token", port_token),
            };
            let headers = json!({ "e2b-sandbox-id": id, "e2b-sandbox-port": port.to_string() });
            let headers = with(headers, name, token);
            json!({ "endpoint": host, "headers": headers })
        }
    };
    let mut response = answer_json(StatusCode::OK, &body);
    // The client then asks this API, and no service in the sandbox, about its network.
    let origin = HeaderValue::from_static("template");
    response.headers_mut().insert("open-sandbox-origin", origin);
    Ok(response)
}

async fn snapshots(caller: &Caller, path: &[&str], request: Request<Body>) -> Answered {
    if let ("DELETE", [_, id]) = (request.method().as_str(), path) {
        let id = (*id).to_owned();
        return done(
            StatusCode::NO_CONTENT,
            caller.call(RemoveSnapshot { id }).await,
        );
    }
    let query = Query::of(request.uri());
    let (sandbox, name) = (query.one("sandboxId"), query.one("name"));
    let all = caller.call(ListSnapshots { sandbox }).await?;
    match (request.method().as_str(), path) {
        ("GET", [_]) => {
            let own = all.iter().filter(|one| name.is_none() || one.name == name);
            paged(&query, &own.map(kept).collect::<Vec<_>>())
        }
        ("GET", [_, id]) => {
            let none = || Refusal::new(Kind::NotFound, format!("there is no snapshot {id:?}"));
            ok(&kept(
                all.iter().find(|one| one.id == *id).ok_or_else(none)?,
            ))
        }
        _ => Err(not_offered(&request)),
    }
}

fn kept(facts: &SnapshotFacts) -> Value {
    let described = json!({
        "id": facts.id,
        "sandboxId": facts.sandbox,
        "status": { "state": "Ready" },
        "createdAt": time_of(facts.created_ms),
    });
    with(described, "name", facts.name.as_ref())
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
