//! OpenSandbox' API: its lifecycle API beneath `/opensandbox/v1`, and the service in a sandbox, which
//! it calls execd, beneath `/opensandbox/execd/ID`.

mod code;
mod commands;
mod files;
mod network;
mod sandboxes;

use super::dialect::*;

/// The beginning of the paths of this API.
pub(super) const PREFIX: &str = "/opensandbox/";
/// The header of a caller's key.
const KEY: &str = "open-sandbox-api-key";
/// The header of a sandbox's access token.
const TOKEN: &str = "x-execd-access-token";

/// Answers a request of the API.
pub(super) async fn answer(front: &Arc<Front>, request: Request<Body>) -> Response {
    let path = request.uri().path().to_owned();
    let answered = match target(&path) {
        Some(Target::Lifecycle(path)) => {
            let caller = Caller::new(front, key(request.headers()));
            sandboxes::answer(&caller, &path, request).await
        }
        Some(Target::Execd(sandbox, path)) => execd(front, sandbox, &path, request).await,
        None => Err(not_offered(&request)),
    };
    answered.unwrap_or_else(|refusal| Dialect::OpenSandbox.refused(&refusal))
}

/// The part of the API that a path is of.
#[derive(Debug, PartialEq, Eq)]
enum Target<'a> {
    Lifecycle(Vec<&'a str>),
    Execd(&'a str, Vec<&'a str>),
}

fn target(path: &str) -> Option<Target<'_>> {
    let path = path.strip_prefix(PREFIX)?;
    let mut names = path.trim_end_matches('/').split('/');
    match (names.next()?, names.next()) {
        ("v1", Some(first)) => Some(Target::Lifecycle(
            std::iter::once(first).chain(names).collect(),
        )),
        ("execd", Some(sandbox)) => Some(Target::Execd(sandbox, names.collect())),
        _ => None,
    }
}

/// Answers a request of a sandbox's service.
async fn execd(
    front: &Arc<Front>,
    sandbox: &str,
    path: &[&str],
    request: Request<Body>,
) -> Answered {
    let sandbox = Caller::new(front, credential(request.headers())?).sandbox(sandbox);
    match (request.method().as_str(), path) {
        ("GET", ["ping"]) => done(StatusCode::OK, sandbox.call(Alive {}).await),
        ("GET", ["metrics"]) => metrics(&sandbox).await,
        (_, ["code", ..]) => code::answer(&sandbox, path, request).await,
        (_, ["command", ..]) => commands::answer(&sandbox, path, request).await,
        (_, ["files" | "directories", ..]) => files::answer(&sandbox, path, request).await,
        _ => Err(not_offered(&request)),
    }
}

/// Returns the key that came with a request of the lifecycle API.
fn key(headers: &HeaderMap) -> Credential {
    let key = header_of(headers, KEY).map(str::to_owned);
    key.map_or(Credential::Nothing, Credential::Key)
}

/// Returns who sends a request, and the sandbox whose service it is for.
pub(super) fn sender(headers: &HeaderMap, path: &str) -> (Credential, Option<String>) {
    match target(path) {
        Some(Target::Execd(sandbox, _)) => {
            let credential = credential(headers).unwrap_or(Credential::Nothing);
            (credential, Some(sandbox.to_owned()))
        }
        Some(Target::Lifecycle(_)) | None => (key(headers), None),
    }
}

/// Returns the credential for a sandbox's service: its token, or a key as in the lifecycle API.
fn credential(headers: &HeaderMap) -> Result<Credential, Refusal> {
    match (header_of(headers, TOKEN), key(headers)) {
        (Some(token), _) => Ok(Credential::Token(token.to_owned())),
        (None, key @ Credential::Key(_)) => Ok(key),
        (None, _) => {
            let what = "the request has no X-EXECD-ACCESS-TOKEN";
            Err(Refusal::new(Kind::Unauthenticated, what)
                .advise("send the headers that the endpoint of port 44772 came with"))
        }
    }
}

async fn metrics(sandbox: &Sandbox) -> Answered {
    let measures = sandbox.call(Measure {}).await?;
    #[allow(clippy::cast_precision_loss, reason = "a measurement for people")]
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    ok(&json!({
        "cpu_count": measures.cpus,
        "cpu_used_pct": measures.cpu_percent,
        "mem_total_mib": mebibytes(measures.memory_bytes_max),
        "mem_used_mib": mebibytes(measures.memory_bytes),
        "timestamp": measures.at_s * 1000,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_of_the_server_or_of_a_sandbox() {
        let cases = [
            (
                "/opensandbox/v1/sandboxes",
                Some(Target::Lifecycle(vec!["sandboxes"])),
            ),
            (
                "/opensandbox/execd/i1/ping",
                Some(Target::Execd("i1", vec!["ping"])),
            ),
            (
                "/opensandbox/execd/i1/files/mv/",
                Some(Target::Execd("i1", vec!["files", "mv"])),
            ),
            ("/opensandbox/v1", None),
            ("/opensandbox/execd", None),
            ("/opensandbox/v2/sandboxes", None),
        ];
        for (path, expected) in cases {
            assert_eq!(target(path), expected, "{path}");
        }
    }
}
