//! Ports of sandboxes: a request is passed on to whatever listens there, and its answer back.

use std::io;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, Request, StatusCode, Uri, header};
use axum::response::Response;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;

use super::Front;
use super::answers::{gone, json as answer_json, refused};
use super::ask::within;
use super::envd::token;
use crate::line;
use crate::protocol::{Credential, InAsk, Kind, Refusal};

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
    front: &Front,
    sandbox: &str,
    port: u16,
    request: Request<Body>,
) -> Response {
    let ask = within(sandbox, InAsk::Port { port });
    let credential = credential(request.headers());
    let opened = async {
        let mut line = front.begin(credential, ask).await?;
        line.reply().await?;
        line::raw(line.reader, line.writer).map_err(|error| closed(&error))
    };
    let stream = match opened.await {
        Ok(stream) => stream,
        Err(refusal) => return not_open(sandbox, port, &refusal),
    };
    let passed = pass_on(TokioIo::new(stream), request).await;
    passed.unwrap_or_else(|error| not_open(sandbox, port, &closed(&error)))
}

fn credential(headers: &HeaderMap) -> Credential {
    let text = headers
        .get(PORT_TOKEN)
        .and_then(|value| value.to_str().ok());
    match text {
        Some(token) => Credential::Token(token.to_owned()),
        None => token(headers),
    }
}

async fn pass_on(
    stream: TokioIo<tokio::net::UnixStream>,
    mut request: Request<Body>,
) -> Result<Response, hyper::Error> {
    let (mut sender, connection) = http1::handshake(stream).await?;
    tokio::spawn(async move {
        // What went wrong is in the answer, or breaks it off.
        let _ = connection.with_upgrades().await;
    });
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    for name in OWN {
        request.headers_mut().remove(HeaderName::from_static(name));
    }
    let upgrades = request.headers().contains_key(header::UPGRADE);
    let client = upgrades.then(|| hyper::upgrade::on(&mut request));
    let mut answer = sender.send_request(request).await?;
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
        _ => refused(refusal),
    }
}
