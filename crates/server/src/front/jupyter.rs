//! Jupyter's kernels beneath `/jupyter`: each is a sandbox of its own, whose code interpreter
//! executes the cells.

mod channels;
mod contents;
mod messages;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Front;
use super::answers::{body, empty, json as answer_json, refuse_rest, status, with_retry};
use super::control::{not_offered, pairs};
use super::interpreter::Interpreter;
use super::listed::list_all;
use crate::protocol::{
    CODE_INTERPRETER, Create, CreateAsk, Credential, GetSandbox, Kill, Kind, ListAsk,
    ListSandboxes, Refusal, SandboxFacts,
};
use crate::rfc3339::time_of;
use channels::Kernel;

/// The beginning of the paths of this API.
pub(super) const PREFIX: &str = "/jupyter/";
/// The version of Jupyter's server whose API this is.
const VERSION: &str = "2.21.1";
/// The note of a sandbox that is a kernel: the name of its kind.
const NOTE: &str = "jupyter-kernel";
/// The characters of a sandbox's id.
const ID_CHARACTERS: usize = 21;
/// The lengths of the parts in which a kernel's id has them: clients expect four dashes.
const ID_PARTS: [usize; 5] = [5, 4, 4, 4, 4];

/// A kind of kernel.
#[derive(Debug)]
struct Spec {
    name: &'static str,
    title: &'static str,
    /// The language, as the interpreter has it.
    language: &'static str,
    kind: &'static str,
    extension: &'static str,
}

/// The kinds of kernels; the first is the default.
const SPECS: [Spec; 3] = [
    Spec {
        name: "python3",
        title: "Python 3",
        language: "python",
        kind: "text/x-python",
        extension: ".py",
    },
    Spec {
        name: "javascript",
        title: "JavaScript (Node.js)",
        language: "javascript",
        kind: "application/javascript",
        extension: ".js",
    },
    Spec {
        name: "bash",
        title: "Bash",
        language: "bash",
        kind: "text/x-sh",
        extension: ".sh",
    },
];

/// Answers a request of the API.
pub(super) async fn answer(front: Arc<Front>, request: Request<Body>) -> Response {
    let (mut parts, content) = request.into_parts();
    let answered = carry_out(front, &mut parts, content).await;
    answered.unwrap_or_else(|refusal| {
        let body = json!({ "message": refusal.told(), "reason": null });
        with_retry(answer_json(status(refusal.kind), &body), &refusal)
    })
}

async fn carry_out(
    front: Arc<Front>,
    parts: &mut Parts,
    content: Body,
) -> Result<Response, Refusal> {
    let path = parts.uri.path().to_owned();
    let path = path.strip_prefix(PREFIX).unwrap_or_default();
    let path: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    let key = credential(&parts.headers, &parts.uri);
    let ok = |body: &Value| Ok(answer_json(StatusCode::OK, body));
    match (parts.method.as_str(), path.as_slice()) {
        ("GET", ["api"]) => ok(&json!({ "version": VERSION })),
        ("GET", ["api", "kernelspecs"]) => {
            signed_in(&front, key).await?;
            let [first, ..] = &SPECS;
            let all: Map<String, Value> = SPECS
                .iter()
                .map(|spec| (spec.name.to_owned(), spec.described()))
                .collect();
            ok(&json!({ "default": first.name, "kernelspecs": all }))
        }
        ("GET", ["api", "kernelspecs", name]) => {
            signed_in(&front, key).await?;
            ok(&Spec::named(name)?.described())
        }
        ("GET", ["api", "kernels"]) => {
            let all = list_all(&front, &key, ListAsk::default()).await?;
            let kernels: Vec<Value> = all.iter().filter_map(model).collect();
            ok(&json!(kernels))
        }
        ("POST", ["api", "kernels"]) => start(&front, key, body(content).await?).await,
        (method, ["api", "kernels", id, rest @ ..]) => {
            let (sandbox, facts, spec) = kernel(&front, &key, id).await?;
            let interpreter = Interpreter {
                front: &front,
                credential: &key,
                sandbox: &sandbox,
            };
            match (method, rest) {
                ("GET", []) => ok(&json!(model(&facts))),
                ("DELETE", []) => {
                    front.call_in(key, &sandbox, Kill {}).await?;
                    Ok(empty(StatusCode::NO_CONTENT))
                }
                ("POST", ["interrupt"]) => {
                    interpreter.steer(spec.language, "interrupt").await?;
                    Ok(empty(StatusCode::NO_CONTENT))
                }
                ("POST", ["restart"]) => {
                    interpreter.steer(spec.language, "restart").await?;
                    ok(&json!(model(&facts)))
                }
                ("GET", ["channels"]) => {
                    let kernel = Kernel::new(Arc::clone(&front), key, sandbox, spec)?;
                    join(parts, kernel, &facts).await
                }
                _ => Err(not_offered(parts)),
            }
        }
        _ => Err(not_offered(parts)),
    }
}

/// Returns the key that came with a request: in a header, or in the query, where browsers and Open
/// WebUI put it.
pub(super) fn credential(headers: &HeaderMap, uri: &Uri) -> Credential {
    let header = headers.get(header::AUTHORIZATION);
    let header = header.and_then(|value| value.to_str().ok());
    let of_header = header.and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        let is_known = ["token", "bearer"]
            .iter()
            .any(|one| scheme.eq_ignore_ascii_case(one));
        is_known.then(|| key.trim().to_owned())
    });
    let of_query = || {
        let mut all = pairs(uri.query().unwrap_or_default());
        all.find(|(name, _)| name == "token").map(|(_, key)| key)
    };
    match of_header.or_else(of_query) {
        Some(key) => Credential::Key(key),
        None => Credential::Nothing,
    }
}

/// Refuses whoever has no valid key.
async fn signed_in(front: &Front, key: Credential) -> Result<(), Refusal> {
    let ask = ListAsk {
        limit: 1,
        ..ListAsk::default()
    };
    front.call(key, ListSandboxes(ask)).await.map(drop)
}

impl Spec {
    fn named(name: &str) -> Result<&'static Self, Refusal> {
        let found = SPECS
            .iter()
            .find(|spec| spec.name == name || spec.language == name);
        found.ok_or_else(|| {
            let all = SPECS.map(|spec| spec.name).join(", ");
            Refusal::new(Kind::NotFound, format!("there is no kernel {name:?}"))
                .advise(format!("the kernels are {all}"))
        })
    }

    fn described(&self) -> Value {
        json!({
            "name": self.name,
            "spec": {
                "argv": [],
                "env": {},
                "display_name": self.title,
                "language": self.language,
                "interrupt_mode": "message",
                "metadata": {},
            },
            "resources": {},
        })
    }
}

/// The body of a request for a kernel.
#[derive(Deserialize)]
struct Start {
    name: Option<String>,
    path: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

async fn start(front: &Front, key: Credential, asked: Start) -> Result<Response, Refusal> {
    refuse_rest(&asked.rest)?;
    if asked.path.is_some_and(|path| !path.is_empty()) {
        let what = "path: a kernel begins in the home of its sandbox";
        return Err(Refusal::new(Kind::Invalid, what).advise("leave it out"));
    }
    let [first, ..] = &SPECS;
    let spec = match asked.name.filter(|name| !name.is_empty()) {
        Some(name) => Spec::named(&name)?,
        None => first,
    };
    let ask = CreateAsk {
        template: CODE_INTERPRETER.to_owned(),
        metadata: BTreeMap::from([(NOTE.to_owned(), spec.name.to_owned())]),
        environment: asked.env,
        // Whoever only knows its id executes nothing.
        private_ports: true,
        ..CreateAsk::default()
    };
    let sandbox = front.call(key, Create(Box::new(ask))).await?.sandbox;
    let mut response = answer_json(StatusCode::CREATED, &model(&sandbox));
    let at = format!("{PREFIX}api/kernels/{}", kernel_id(&sandbox.id));
    if let Ok(at) = HeaderValue::from_str(&at) {
        response.headers_mut().insert(header::LOCATION, at);
    }
    Ok(response)
}

/// Finds the sandbox that a kernel is; any other is like one that is not there.
async fn kernel(
    front: &Front,
    key: &Credential,
    id: &str,
) -> Result<(String, SandboxFacts, &'static Spec), Refusal> {
    let none = || Refusal::new(Kind::NotFound, format!("Kernel does not exist: {id}"));
    let sandbox: String = id.chars().filter(|one| *one != '-').collect();
    if kernel_id(&sandbox) != id {
        // Whoever has no key learns nothing about ids.
        signed_in(front, key.clone()).await?;
        return Err(none());
    }
    let facts = match front.call_in(key.clone(), &sandbox, GetSandbox {}).await {
        Ok(facts) => facts,
        Err(refusal) if refusal.kind == Kind::NoSandbox => {
            return Err(Refusal {
                what: format!("Kernel does not exist: {id}: {}", refusal.what),
                ..refusal
            });
        }
        Err(refusal) => return Err(refusal),
    };
    let spec = Spec::named(facts.metadata.get(NOTE).ok_or_else(none)?)?;
    Ok((sandbox, facts, spec))
}

/// Returns the id of a kernel: its sandbox's, in five parts.
fn kernel_id(sandbox: &str) -> String {
    if sandbox.len() != ID_CHARACTERS || !sandbox.is_ascii() {
        return String::new();
    }
    let mut rest = sandbox;
    let mut parts = Vec::new();
    for length in ID_PARTS {
        let (part, after) = rest.split_at(length);
        parts.push(part);
        rest = after;
    }
    parts.join("-")
}

fn now_ms() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Returns this time in the form that clients read, which always has a fraction.
fn now() -> String {
    let now = now_ms();
    let seconds = time_of(now / 1000 * 1000);
    format!("{}.{:03}000Z", seconds.trim_end_matches('Z'), now % 1000)
}

/// Describes a kernel; `None` for a sandbox that is none.
fn model(facts: &SandboxFacts) -> Option<Value> {
    let name = facts.metadata.get(NOTE)?;
    Some(json!({
        "id": kernel_id(&facts.id),
        "name": name,
        // The sandbox's own time ends it, and no client has to.
        "last_activity": now(),
        "execution_state": "idle",
        "connections": 0,
    }))
}

/// Joins a client to the channels of a kernel.
async fn join(
    parts: &mut Parts,
    kernel: Kernel,
    facts: &SandboxFacts,
) -> Result<Response, Refusal> {
    let upgrade = WebSocketUpgrade::from_request_parts(parts, &()).await;
    let upgrade = upgrade.map_err(|error| {
        Refusal::new(Kind::Invalid, error.body_text()).advise("ask for a WebSocket by HTTP/1.1")
    })?;
    let life_s = facts.ends_ms.saturating_sub(facts.started_ms) / 1000;
    Ok(upgrade
        .protocols([messages::BINARY])
        .max_message_size(messages::MESSAGE_BYTES_MAX)
        .on_upgrade(move |socket| channels::serve(kernel, life_s, socket)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_kernels_are_those_of_sandboxes() {
        let id = "i0123456789abcdefghij";
        assert_eq!(kernel_id(id), "i0123-4567-89ab-cdef-ghij");
        for odd in ["", "i0123", "i0123456789abcdefghi\u{e9}"] {
            assert_eq!(kernel_id(odd), "", "{odd}");
        }
    }
}
