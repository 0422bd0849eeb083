//! Throttled bodies, whose rule has limits: each frame passes once the limits allow, and where they
//! do not the body breaks off, so that nobody takes it for a whole one.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep_until};

use super::body::BodyError;
use super::exchange::Exchange;
use super::request_permit::header_bytes;
use super::upload::Upload;
use crate::limits::{BudgetShare, Direction, Excess};

type Piece = Frame<Bytes>;

/// The throttle of a request's body: holds back its next frame.
#[derive(Debug, Default)]
pub(crate) struct BodyThrottle {
    held: Option<(Piece, Pin<Box<Sleep>>)>,
}

impl BodyThrottle {
    /// Returns whether a frame is held back.
    pub(crate) fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Polls the next frame that may pass.
    pub(crate) fn poll(
        &mut self,
        incoming: &mut Upload,
        exchange: &Exchange,
        part: &BudgetShare,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        // An end after that would make what was sent look whole.
        if let Some(excess) = part.excess() {
            return Poll::Ready(Some(Err(excess.clone().into())));
        }
        if self.held.is_none() {
            let piece = match ready!(Pin::new(&mut *incoming).poll_frame(context)) {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => {
                    exchange.broken(Direction::Up, &error);
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    exchange.is_over(Direction::Up);
                    return Poll::Ready(None);
                }
            };
            match part.pass(Direction::Up, weight(&piece)) {
                Ok(None) => return Poll::Ready(Some(count_passed(piece, incoming, exchange))),
                Ok(Some(from)) => self.held = Some((piece, Box::pin(sleep_until(from.into())))),
                Err(excess) => return Poll::Ready(Some(Err(excess.into()))),
            }
        }
        let Some((piece, mut pause)) = self.held.take() else {
            return Poll::Pending;
        };
        if pause.as_mut().poll(context).is_pending() {
            self.held = Some((piece, pause));
            return Poll::Pending;
        }
        Poll::Ready(Some(count_passed(piece, incoming, exchange)))
    }
}

/// Counts a frame that passes.
fn count_passed(
    mut piece: Piece,
    incoming: &Upload,
    exchange: &Exchange,
) -> Result<Piece, BodyError> {
    if let Some(trailers) = piece.trailers_mut()
        && let Err(broken) = exchange.trail(Direction::Up, trailers)
    {
        exchange.broken(Direction::Up, &broken);
        return Err(broken);
    }
    exchange.count(Direction::Up, piece.data_ref().map_or(0, Bytes::len));
    if incoming.is_end_stream() || piece.is_trailers() {
        exchange.is_over(Direction::Up);
    }
    Ok(piece)
}

fn weight(piece: &Piece) -> u64 {
    let data = piece.data_ref().map_or(0, |data| data.len() as u64);
    data + piece.trailers_ref().map_or(0, header_bytes)
}

/// The frames of a response's body on their way to the program. `None` is the end; a channel that
/// closes without it means that the body broke off.
pub(crate) type Pieces = mpsc::Receiver<Option<Piece>>;

/// Forwards a response's body in its own task, so that it ends in time even when the program does
/// not read it.
pub(crate) fn carry(incoming: Incoming, exchange: Arc<Exchange>) -> Pieces {
    let (to, pieces) = mpsc::channel(1);
    let tasks = exchange.egress().upstream.tasks.clone();
    tasks.spawn(async move {
        let Some(part) = exchange.part() else {
            return;
        };
        tokio::select! {
            // What has ended it the exchange tells.
            _ = pass(incoming, &exchange, part, &to) => {}
            _ = part.late() => {}
            _ = exchange.unless_given_up(pending::<()>()) => {}
            () = to.closed() => {}
        }
        if let Some(gate) = exchange.gate() {
            gate.over();
        }
    });
    pieces
}

async fn pass(
    mut incoming: Incoming,
    exchange: &Exchange,
    part: &BudgetShare,
    to: &mpsc::Sender<Option<Piece>>,
) -> Result<(), Excess> {
    while let Some(piece) = incoming.frame().await {
        let mut piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                exchange.fail(Direction::Down, &error);
                return Ok(());
            }
        };
        if let Some(trailers) = piece.trailers_mut() {
            exchange.redact(Direction::Down, trailers);
        }
        if let Some(from) = part.pass(Direction::Down, weight(&piece))? {
            sleep_until(from.into()).await;
        }
        let bytes = piece.data_ref().map_or(0, Bytes::len);
        if to.send(Some(piece)).await.is_err() {
            return Ok(());
        }
        exchange.count(Direction::Down, bytes);
    }
    exchange.is_over(Direction::Down);
    // Who does not read on needs no end.
    let _ = to.send(None).await;
    Ok(())
}
