//! OpenSandbox' API: its lifecycle API beneath `/opensandbox/v1`, and the service in a sandbox, which
//! it calls execd, beneath `/opensandbox/execd/ID`.

mod code;
mod commands;
mod files;
mod network;
mod sandboxes;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use serde_json::json;

use super::Front;
use super::answers::{empty, json as answer_json, status, with_retry};
use super::ask::{Line, within};
use super::control::{not_offered, pairs};
use crate::protocol::{
    self, Alive, Credential, End, InAsk, Kind, Measure, Refusal, Start, StartAsk, StartedFacts,
};

/// The beginning of the paths of this API.
pub(super) const PREFIX: &str = "/opensandbox/";
/// The header of a caller's key.
const KEY: &str = "open-sandbox-api-key";
/// The header of a sandbox's access token.
const TOKEN: &str = "x-execd-access-token";

/// Answers a request of the API.
pub(super) async fn answer(front: &Front, request: Request<Body>) -> Response {
    let (parts, content) = request.into_parts();
    let answered = match target(parts.uri.path()) {
        Some(Target::Lifecycle(path)) => sandboxes::answer(front, &parts, &path, content).await,
        Some(Target::Execd(sandbox, path)) => execd(front, &parts, sandbox, &path, content).await,
        None => Err(not_offered(&parts)),
    };
    answered.unwrap_or_else(|refusal| refused(&refusal))
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
    front: &Front,
    parts: &Parts,
    sandbox: &str,
    path: &[&str],
    content: Body,
) -> Result<Response, Refusal> {
    let inside = Inside {
        front,
        sandbox,
        credential: credential(&parts.headers)?,
    };
    match (parts.method.as_str(), path) {
        ("GET", ["ping"]) => {
            inside.call(Alive {}).await?;
            Ok(empty(StatusCode::OK))
        }
        ("GET", ["metrics"]) => metrics(&inside).await,
        (_, ["code", ..]) => code::answer(&inside, parts, path, content).await,
        (_, ["command", ..]) => commands::answer(&inside, parts, path, content).await,
        (_, ["files" | "directories", ..]) => files::answer(&inside, parts, path, content).await,
        _ => Err(not_offered(parts)),
    }
}

/// A sandbox that a request is for, and the credential that came with it.
struct Inside<'a> {
    front: &'a Front,
    sandbox: &'a str,
    credential: Credential,
}

impl Inside<'_> {
    async fn call<R: protocol::Request<Of: Into<InAsk>>>(
        &self,
        ask: R,
    ) -> Result<R::Reply, Refusal> {
        let credential = self.credential.clone();
        self.front.call_in(credential, self.sandbox, ask).await
    }

    /// Starts a program; returns what follows it, and its number in the sandbox.
    async fn start(&self, ask: StartAsk) -> Result<(Line<StartedFacts, End>, u32), Refusal> {
        let ask = within(self.sandbox, Start(Box::new(ask)));
        let mut line = self.front.begin(self.credential.clone(), ask).await?;
        let pid = line.reply().await?.pid;
        Ok((line, pid))
    }
}

/// Returns the key that came with a request of the lifecycle API.
fn key(headers: &HeaderMap) -> Credential {
    match headers.get(KEY).and_then(|value| value.to_str().ok()) {
        Some(key) => Credential::Key(key.to_owned()),
        None => Credential::Nothing,
    }
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
    match (
        headers.get(TOKEN).and_then(|value| value.to_str().ok()),
        key(headers),
    ) {
        (Some(token), _) => Ok(Credential::Token(token.to_owned())),
        (None, key @ Credential::Key(_)) => Ok(key),
        (None, _) => Err(Refusal::new(
            Kind::Unauthenticated,
            "the request has no X-EXECD-ACCESS-TOKEN",
        )
        .advise("send the headers that the endpoint of port 44772 came with")),
    }
}

async fn metrics(inside: &Inside<'_>) -> Result<Response, Refusal> {
    let measures = inside.call(Measure {}).await?;
    #[allow(clippy::cast_precision_loss, reason = "a measurement for people")]
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let body = json!({
        "cpu_count": measures.cpus,
        "cpu_used_pct": measures.cpu_percent,
        "mem_total_mib": mebibytes(measures.memory_bytes_max),
        "mem_used_mib": mebibytes(measures.memory_bytes),
        "timestamp": measures.at_s * 1000,
    });
    Ok(answer_json(StatusCode::OK, &body))
}

/// Makes the answer for a refusal.
fn refused(refusal: &Refusal) -> Response {
    let code = match refusal.kind {
        Kind::Invalid => "INVALID_REQUEST",
        Kind::Unauthenticated => "UNAUTHORIZED",
        Kind::Forbidden => "FORBIDDEN",
        Kind::NoSandbox => "SANDBOX_NOT_FOUND",
        Kind::NotFound => "NOT_FOUND",
        Kind::Exists => "CONFLICT",
        Kind::Quota => "QUOTA_EXCEEDED",
        Kind::NoSpace => "NO_SPACE",
        Kind::Late => "TIMEOUT",
        Kind::Unavailable => "UNAVAILABLE",
        Kind::Fault => "INTERNAL_ERROR",
    };
    let body = json!({ "code": code, "message": refusal.told() });
    with_retry(answer_json(status(refusal.kind), &body), refusal)
}

/// Returns the values of one name in a query.
fn named<'a>(parts: &'a Parts, wanted: &'a str) -> impl Iterator<Item = String> + 'a {
    let all = pairs(parts.uri.query().unwrap_or_default());
    all.filter(move |(name, _)| name == wanted)
        .map(|(_, value)| value)
}

/// Reads a number of a query.
fn number(parts: &Parts, name: &str) -> Result<Option<u64>, Refusal> {
    let wrong = |_| Refusal::new(Kind::Invalid, format!("{name} is no number"));
    named(parts, name)
        .next()
        .map(|text| text.parse().map_err(wrong))
        .transpose()
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
