//! Connections that go on as WebSockets (RFC 6455): their bytes are carried as they are.

use std::io;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};

use super::answers;
use super::body::Received;
use super::exchange::Exchange;
use super::head;
use super::injection::Outgoing;
use crate::limits::{Way, late, passed};

/// How much is carried at once, bytes.
const BLOCK_BYTES: usize = 16 * 1024;

/// Goes on as a server has agreed to.
pub(crate) fn begin(
    exchange: Arc<Exchange>,
    mut response: Response<Incoming>,
    outgoing: &mut Outgoing,
) -> Response<Received> {
    let is_web_socket = response
        .headers()
        .get(UPGRADE)
        .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
    if !outgoing.head.is_web_socket || !is_web_socket {
        let why = "the host goes on with a protocol that was not asked for";
        exchange.fail(Way::Down, &why);
        return answers::failed(&exchange.denial(&outgoing.parts, why), None);
    }
    let server = hyper::upgrade::on(&mut response);
    let mut request = Request::new(());
    *request.extensions_mut() = std::mem::take(&mut outgoing.parts.extensions);
    let program = hyper::upgrade::on(request);
    let egress = Arc::clone(exchange.egress());
    egress
        .upstream
        .tasks
        .spawn(carry(exchange, program, server));
    let mut answer = Response::new(Received::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let mut headers = std::mem::take(response.headers_mut());
    head::strip(&mut headers);
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    *answer.headers_mut() = headers;
    answer
}

/// Carries both ways until both are over.
async fn carry(exchange: Arc<Exchange>, program: OnUpgrade, server: OnUpgrade) {
    let (program, server) = match tokio::try_join!(program, server) {
        Ok(both) => both,
        Err(error) => return exchange.fail(Way::Up, &error),
    };
    let (from_program, to_program) = split(TokioIo::new(program));
    let (from_server, to_server) = split(TokioIo::new(server));
    let both = async {
        tokio::try_join!(
            pump(&exchange, Way::Up, from_program, to_server),
            pump(&exchange, Way::Down, from_server, to_program),
        )
    };
    let carried = tokio::select! {
        carried = both => carried,
        excess = late(exchange.part()) => Err((Way::Up, io::Error::other(excess))),
    };
    if let Err((way, error)) = carried {
        exchange.fail(way, &error);
    }
}

async fn pump(
    exchange: &Exchange,
    way: Way,
    mut from: ReadHalf<TokioIo<Upgraded>>,
    mut to: WriteHalf<TokioIo<Upgraded>>,
) -> Result<(), (Way, io::Error)> {
    let mut block = vec![0_u8; BLOCK_BYTES];
    loop {
        let got = from.read(&mut block).await.map_err(|error| (way, error))?;
        if got == 0 {
            exchange.is_over(way);
            return to.shutdown().await.map_err(|error| (way, error));
        }
        let sent = async {
            let may = passed(exchange.part(), way, got).await;
            may.map_err(io::Error::other)?;
            to.write_all(block.get(..got).unwrap_or_default()).await?;
            to.flush().await
        };
        sent.await.map_err(|error| (way, error))?;
        exchange.count(way, got);
    }
}
