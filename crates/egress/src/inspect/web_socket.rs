//! WebSocket connections (RFC 6455): their bytes are forwarded as they are, or searched frame by
//! frame in a run that has credentials.

mod frames;

use std::future::pending;
use std::io;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_EXTENSIONS, UPGRADE};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::sleep;

use super::body::ResponseBody;
use super::denial;
use super::exchange::Exchange;
use super::head;
use super::injection::OutgoingRequest;
use crate::limits::{Direction, late, passed};
use crate::secret::{HOLD, STALL_MAX, Stalled};
use frames::{Fault, FrameMask, FrameSearch};

/// The most bytes forwarded at once.
const BLOCK_BYTES: usize = 16 * 1024;

/// Starts the WebSocket that a server has agreed to.
pub(crate) fn begin(
    exchange: Arc<Exchange>,
    mut response: Response<Incoming>,
    outgoing: &mut OutgoingRequest,
) -> Response<ResponseBody> {
    let is_web_socket = response
        .headers()
        .get(UPGRADE)
        .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
    if !outgoing.head.is_web_socket || !is_web_socket {
        let why = "the host goes on with a protocol that was not asked for";
        exchange.fail(Direction::Down, &why);
        return denial::failed(&exchange.denial(&outgoing.parts, why), None);
    }
    let credentials = &exchange.egress().credentials;
    if !credentials.is_empty() && response.headers().contains_key(SEC_WEBSOCKET_EXTENSIONS) {
        let why = "the host goes on with an extension of WebSocket that was not asked for";
        exchange.fail(Direction::Down, &why);
        return denial::failed(&exchange.denial(&outgoing.parts, why), None);
    }
    let server = hyper::upgrade::on(&mut response);
    let mut request = Request::new(());
    *request.extensions_mut() = std::mem::take(&mut outgoing.parts.extensions);
    let program = hyper::upgrade::on(request);
    let egress = Arc::clone(exchange.egress());
    let carried = carry(Arc::clone(&exchange), program, server);
    egress.upstream.tasks.spawn(carried);
    let mut answer = Response::new(ResponseBody::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let mut headers = std::mem::take(response.headers_mut());
    head::strip(&mut headers);
    exchange.redact(Direction::Down, &mut headers);
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    *answer.headers_mut() = headers;
    answer
}

/// Forwards both ways until both have ended.
async fn carry(exchange: Arc<Exchange>, program: OnUpgrade, server: OnUpgrade) {
    let (program, server) = match tokio::try_join!(program, server) {
        Ok(both) => both,
        Err(error) => return exchange.fail(Direction::Up, &error),
    };
    let (from_program, to_program) = split(TokioIo::new(program));
    let (from_server, to_server) = split(TokioIo::new(server));
    let both = async {
        tokio::try_join!(
            pump(
                &exchange,
                DirectionScan::out(&exchange),
                from_program,
                to_server
            ),
            pump(
                &exchange,
                DirectionScan::back(&exchange),
                from_server,
                to_program
            ),
        )
    };
    let carried = tokio::select! {
        carried = both => carried,
        excess = late(exchange.part()) => Err((Direction::Up, io::Error::other(excess))),
        // Nobody broke off: why it ends is noted.
        _ = exchange.unless_given_up(pending::<()>()) => return,
    };
    if let Err((way, error)) = carried {
        exchange.fail(way, &error);
    }
}

/// The inspection of one direction.
enum DirectionScan {
    /// None, in this direction.
    Not(Direction),
    /// A search for placeholders, on the way out.
    Out(Box<FrameSearch>),
    /// Masking of real values, on the way back.
    Back(Box<FrameMask>),
}

impl DirectionScan {
    fn out(exchange: &Exchange) -> Self {
        exchange.unfit().map_or(Self::Not(Direction::Up), |all| {
            Self::Out(Box::new(FrameSearch::new(all)))
        })
    }

    fn back(exchange: &Exchange) -> Self {
        let masks = exchange.egress().credentials.masks();
        masks.map_or(Self::Not(Direction::Down), |all| {
            Self::Back(Box::new(FrameMask::new(&all)))
        })
    }

    fn way(&self) -> Direction {
        match self {
            Self::Not(way) => *way,
            Self::Out(_) => Direction::Up,
            Self::Back(_) => Direction::Down,
        }
    }

    /// Appends the part of a chunk that goes on to `out`.
    fn at(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        match self {
            Self::Not(_) => out.extend_from_slice(chunk),
            Self::Out(searched) => {
                searched.feed(chunk)?;
                out.extend_from_slice(chunk);
            }
            Self::Back(masked) => masked.feed(chunk, out)?,
        }
        Ok(())
    }

    /// Appends what was held back to `out`, once nothing more has come for a while.
    ///
    /// # Errors
    /// [`Stalled`]: it may not go on, and the longest wait is over.
    async fn rest(&mut self, out: &mut Vec<u8>) -> Result<(), Stalled> {
        match self {
            Self::Back(masked) if masked.holds() && masked.is_short() => {
                sleep(HOLD).await;
                masked.release(out);
                Ok(())
            }
            Self::Back(masked) if masked.holds() => {
                sleep(STALL_MAX).await;
                Err(Stalled)
            }
            Self::Not(_) | Self::Out(_) | Self::Back(_) => pending().await,
        }
    }
}

/// Forwards one direction until its end.
async fn pump(
    exchange: &Exchange,
    mut look: DirectionScan,
    mut from: ReadHalf<TokioIo<Upgraded>>,
    mut to: WriteHalf<TokioIo<Upgraded>>,
) -> Result<(), (Direction, io::Error)> {
    let way = look.way();
    let mut block = vec![0_u8; BLOCK_BYTES];
    let mut out = Vec::with_capacity(BLOCK_BYTES);
    loop {
        out.clear();
        let got = tokio::select! {
            got = from.read(&mut block) => got.map_err(|error| (way, error))?,
            rest = look.rest(&mut out) => {
                if let Err(stalled) = rest {
                    exchange.stalled(stalled);
                    return Err((way, io::Error::other(stalled)));
                }
                write(&mut to, &out).await.map_err(|error| (way, error))?;
                continue;
            }
        };
        if got == 0 {
            exchange.is_over(way);
            return to.shutdown().await.map_err(|error| (way, error));
        }
        if let Err(fault) = look.at(block.get(..got).unwrap_or_default(), &mut out) {
            if let Fault::Found(found) = fault {
                exchange.misused(found);
            }
            return Err((way, io::Error::other(fault)));
        }
        let sent = async {
            let may = passed(exchange.part(), way, got).await;
            may.map_err(io::Error::other)?;
            write(&mut to, &out).await
        };
        sent.await.map_err(|error| (way, error))?;
        exchange.count(way, got);
    }
}

async fn write(to: &mut WriteHalf<TokioIo<Upgraded>>, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}
