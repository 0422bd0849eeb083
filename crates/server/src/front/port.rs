//! Ports of sandboxes: a request is passed on to whatever listens there, and its answer back.

use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri, Version, header};
use axum::response::Response;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::UnixStream;

use super::answers::{answer_json, empty, header_of};
use super::ask::Front;
use super::caller::{Caller, Sandbox};
use super::query::authority;
use super::refusals::{Dialect, gone};
use super::senders::token;
use crate::line;
use crate::protocol::{
    Credential, Kind, LINK, LINK_LASTS_S_MAX, OpenPort, OpenedPort, Refusal, is_service,
};

/// The header of the token for ports.
const PORT_TOKEN: &str = "e2b-traffic-access-token";
/// The headers that are for the front alone: a program gets none of them.
const OWN: [&str; 5] = [
    "e2b-sandbox-id",
    "e2b-sandbox-port",
    "x-access-token",
    "x-api-key",
    PORT_TOKEN,
];

/// Passes a request on to a port of a sandbox.
pub(crate) async fn answer(
    front: &Arc<Front>,
    sandbox: &str,
    port: u16,
    mut request: Request<Body>,
) -> Response {
    if let Some(response) = entered(&request, front.is_secure) {
        return response;
    }
    let link = take_link(request.headers_mut());
    let credential = match credential(request.headers(), port) {
        Credential::Nothing => link.unwrap_or(Credential::Nothing),
        other => other,
    };
    let opened = open(&Caller::new(front, credential).sandbox(sandbox), port).await;
    let (stream, host) = match opened {
        Ok(opened) => opened,
        Err(refusal) => return not_open(sandbox, port, &refusal),
    };
    let asked = || authority(request.headers(), request.uri()).map(str::to_owned);
    let host = host.or_else(asked);
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(&host).ok()) {
        request.headers_mut().insert(header::HOST, host);
    }
    let passed = pass_on(TokioIo::new(stream), request).await;
    passed.unwrap_or_else(|error| not_open(sandbox, port, &closed(&error)))
}

/// Connects to a port of a sandbox; returns with it the host that requests are to name.
pub(crate) async fn open(
    sandbox: &Sandbox,
    port: u16,
) -> Result<(UnixStream, Option<String>), Refusal> {
    let mut line = sandbox.begin(OpenPort { port }).await?;
    let OpenedPort { host } = line.reply().await?;
    let stream = line::raw(line.reader, line.writer).map_err(|error| closed(&error))?;
    Ok((stream, host))
}

/// Answers a request that comes by a link: a browser keeps it as a cookie of this port, and asks
/// again without it, so that no page tells it on.
fn entered(request: &Request<Body>, is_secure: bool) -> Option<Response> {
    let query = request.uri().query()?;
    let is_link = |one: &&str| {
        one.strip_prefix(LINK)
            .is_some_and(|rest| rest.starts_with('='))
    };
    let link = query.split('&').find(is_link)?;
    let (until_s, _) = parsed(link.strip_prefix(LINK)?.strip_prefix('=')?)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let lasts_s = until_s.saturating_sub(now.unwrap_or_default().as_secs());
    if lasts_s == 0 || lasts_s > LINK_LASTS_S_MAX {
        let expired = Refusal::new(Kind::Forbidden, "the link has expired");
        return Some(Dialect::E2b.refused(&expired.advise("ask whoever gave it for another")));
    }
    let rest: Vec<&str> = query.split('&').filter(|one| !is_link(one)).collect();
    // Two slashes would be another host (RFC 3986, 4.2).
    let mut to = format!("/{}", request.uri().path().trim_start_matches('/'));
    if !rest.is_empty() {
        to = format!("{to}?{}", rest.join("&"));
    }
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie = format!("{link}; Path=/; Max-Age={lasts_s}; HttpOnly; SameSite=Lax{secure}");
    let mut response = empty(StatusCode::SEE_OTHER);
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, HeaderValue::from_str(&to).ok()?);
    headers.insert(header::SET_COOKIE, HeaderValue::from_str(&cookie).ok()?);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let hidden = HeaderValue::from_static("no-referrer");
    headers.insert(header::REFERRER_POLICY, hidden);
    Some(response)
}

/// Reads a link: its end, seconds since 1970, and its signature.
fn parsed(text: &str) -> Option<(u64, String)> {
    let (until_s, signature) = text.split_once('.')?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_one = signature.bytes().all(fits);
    Some((until_s.parse().ok()?, signature.to_owned())).filter(|_| is_one)
}

/// Takes the link out of the cookies, of which it is none of the program's.
fn take_link(headers: &mut HeaderMap) -> Option<Credential> {
    let mut link = None;
    let mut kept = Vec::new();
    for value in headers.get_all(header::COOKIE) {
        for cookie in value.to_str().ok()?.split(';').map(str::trim) {
            match cookie.split_once('=') {
                Some((LINK, text)) => link = parsed(text).or(link),
                _ => kept.push(cookie.to_owned()),
            }
        }
    }
    let (until_s, signature) = link?;
    headers.remove(header::COOKIE);
    if let (false, Ok(kept)) = (kept.is_empty(), HeaderValue::from_str(&kept.join("; "))) {
        headers.insert(header::COOKIE, kept);
    }
    Some(Credential::Link(until_s, signature))
}

fn credential(headers: &HeaderMap, port: u16) -> Credential {
    let credential = match header_of(headers, PORT_TOKEN) {
        Some(token) => Credential::Token(token.to_owned()),
        None => token(headers),
    };
    match (credential, header_of(headers, "x-api-key")) {
        // Of a program's port it says nothing.
        (Credential::Nothing, Some(key)) if is_service(port) => Credential::Key(key.to_owned()),
        (credential, _) => credential,
    }
}

async fn pass_on(
    stream: TokioIo<UnixStream>,
    mut request: Request<Body>,
) -> Result<Response, hyper::Error> {
    let (mut sender, connection) = http1::handshake(stream).await?;
    tokio::spawn(async move {
        // What went wrong is in the answer, or breaks it off.
        let _ = connection.with_upgrades().await;
    });
    *request.version_mut() = Version::HTTP_11;
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    for name in OWN {
        request.headers_mut().remove(HeaderName::from_static(name));
    }
    let upgrades = request.headers().contains_key(header::UPGRADE);
    let client = upgrades.then(|| hyper::upgrade::on(&mut request));
    let mut answer = sender.send_request(request).await?;
    // The program's is between it and here (RFC 9110, 2.5).
    *answer.version_mut() = Version::HTTP_11;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(client) = client
    {
        let program = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            let joined = async {
                let client = client.await.map_err(io::Error::other)?;
                let program = program.await.map_err(io::Error::other)?;
                let (mut client, mut program) = (TokioIo::new(client), TokioIo::new(program));
                tokio::io::copy_bidirectional(&mut client, &mut program).await
            };
            // One of both is gone.
            let _: io::Result<_> = joined.await;
        });
    }
    Ok(answer.map(Body::new))
}

fn closed(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(Kind::NotFound, error.to_string())
}

/// Makes the answer for a port that is not reached.
fn not_open(sandbox: &str, port: u16, refusal: &Refusal) -> Response {
    match refusal.kind {
        Kind::NoSandbox => gone(sandbox),
        Kind::NotFound => {
            let body = json!({
                "sandboxId": sandbox,
                "message": "The sandbox is running but port is not open",
                "port": port,
                "code": 502,
                "why": refusal.what,
            });
            answer_json(StatusCode::BAD_GATEWAY, &body)
        }
        _ => Dialect::E2b.refused(refusal),
    }
}
