//! Jupyter's kernels beneath `/jupyter`: each is a sandbox of its own, whose code interpreter
//! executes the cells.

mod channels;
mod contents;
mod messages;

use axum::extract::FromRequest;
use axum::extract::ws::WebSocketUpgrade;
use channels::Kernel;

use super::dialect::*;
use super::listed::list_all;

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
pub(super) async fn answer(front: &Arc<Front>, request: Request<Body>) -> Response {
    let caller = Caller::new(front, credential(request.headers(), request.uri()));
    let answered = carry_out(&caller, request).await;
    answered.unwrap_or_else(|refusal| Dialect::Jupyter.refused(&refusal))
}

async fn carry_out(caller: &Caller, request: Request<Body>) -> Answered {
    let path = request.uri().path().to_owned();
    let path = path.strip_prefix(PREFIX).unwrap_or_default();
    let path: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    match (request.method().as_str(), path.as_slice()) {
        ("GET", ["api"]) => ok(&json!({ "version": VERSION })),
        ("GET", ["api", "kernelspecs"]) => {
            signed_in(caller).await?;
            let [first, ..] = &SPECS;
            let described = |spec: &Spec| (spec.name.to_owned(), spec.described());
            let all: Map<String, Value> = SPECS.iter().map(described).collect();
            ok(&json!({ "default": first.name, "kernelspecs": all }))
        }
        ("GET", ["api", "kernelspecs", name]) => {
            signed_in(caller).await?;
            ok(&Spec::named(name)?.described())
        }
        ("GET", ["api", "kernels"]) => {
            let all = list_all(caller, ListAsk::default()).await?;
            ok(&all.iter().filter_map(model).collect::<Vec<_>>())
        }
        ("POST", ["api", "kernels"]) => start(caller, body(request).await?).await,
        (method, ["api", "kernels", id, rest @ ..]) => {
            let (sandbox, facts, spec) = kernel(caller, id).await?;
            match (method, rest) {
                ("GET", []) => return ok(&model(&facts)),
                ("GET", ["channels"]) => return join(request, sandbox, spec, &facts).await,
                ("POST", ["restart"]) => {
                    sandbox.steer(spec.language, "restart").await?;
                    return ok(&model(&facts));
                }
                ("POST", ["interrupt"]) => sandbox.steer(spec.language, "interrupt").await?,
                ("DELETE", []) => sandbox.call(Kill {}).await?,
                _ => return Err(not_offered(&request)),
            }
            Ok(empty(StatusCode::NO_CONTENT))
        }
        _ => Err(not_offered(&request)),
    }
}

/// Returns the key that came with a request: in a header, or in the query, where browsers and Open
/// WebUI put it.
pub(super) fn credential(headers: &HeaderMap, uri: &Uri) -> Credential {
    let of_header = || {
        let (scheme, key) = header_of(headers, "authorization")?.split_once(' ')?;
        let mut known = ["token", "bearer"].into_iter();
        let is_known = known.any(|one| scheme.eq_ignore_ascii_case(one));
        is_known.then(|| key.trim().to_owned())
    };
    let key = of_header().or_else(|| Query::of(uri).one("token"));
    key.map_or(Credential::Nothing, Credential::Key)
}

/// Refuses whoever has no valid key.
async fn signed_in(caller: &Caller) -> Result<(), Refusal> {
    let ask = ListAsk {
        limit: 1,
        ..ListAsk::default()
    };
    caller.call(ListSandboxes(ask)).await.map(drop)
}

impl Spec {
    fn named(name: &str) -> Result<&'static Self, Refusal> {
        let mut all = SPECS.iter();
        let found = all.find(|spec| spec.name == name || spec.language == name);
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

async fn start(caller: &Caller, asked: Start) -> Answered {
    refuse_rest(&asked.rest)?;
    if asked.path.is_some_and(|path| !path.is_empty()) {
        let what = "path: a kernel begins in the home of its sandbox";
        return Err(Refusal::invalid(what).advise("leave it out"));
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
    let sandbox = caller.call(Create(Box::new(ask))).await?.sandbox;
    let mut response = answer_json(StatusCode::CREATED, &model(&sandbox));
    let at = format!("{PREFIX}api/kernels/{}", kernel_id(&sandbox.id));
    if let Ok(at) = HeaderValue::from_str(&at) {
        response.headers_mut().insert(header::LOCATION, at);
    }
    Ok(response)
}

/// Finds the sandbox that a kernel is; any other is like one that is not there.
async fn kernel(
    caller: &Caller,
    id: &str,
) -> Result<(Sandbox, SandboxFacts, &'static Spec), Refusal> {
    let none = || Refusal::new(Kind::NotFound, format!("Kernel does not exist: {id}"));
    let sandbox = caller.sandbox(&id.replace('-', ""));
    if kernel_id(&sandbox.id) != id {
        // Whoever has no key learns nothing about ids.
        signed_in(caller).await?;
        return Err(none());
    }
    let facts = sandbox.call(GetSandbox {}).await;
    let facts = facts.map_err(|refusal| match refusal.kind {
        Kind::NoSandbox => Refusal {
            what: format!("Kernel does not exist: {id}: {}", refusal.what),
            ..refusal
        },
        _ => refusal,
    })?;
    let spec = Spec::named(facts.metadata.get(NOTE).ok_or_else(none)?)?;
    Ok((sandbox, facts, spec))
}

/// Returns the id of a kernel: its sandbox's, in five parts.
fn kernel_id(sandbox: &str) -> String {
    if sandbox.len() != ID_CHARACTERS || !sandbox.is_ascii() {
        return String::new();
    }
    let mut rest = sandbox;
    let parts = ID_PARTS.map(|length| {
        let (part, after) = rest.split_at(length);
        rest = after;
        part
    });
    parts.join("-")
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
    request: Request<Body>,
    sandbox: Sandbox,
    spec: &'static Spec,
    facts: &SandboxFacts,
) -> Answered {
    let kernel = Kernel::new(sandbox, spec)?;
    let upgrade = WebSocketUpgrade::from_request(request, &()).await;
    let upgrade = upgrade.map_err(|error| {
        Refusal::invalid(error.body_text()).advise("ask for a WebSocket by HTTP/1.1")
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
