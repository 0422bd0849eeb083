//! Bodies in flight: counted as they stream, never held.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::bodies::MemoryPermit;
use super::body_throttle::{self, BodyThrottle, Pieces};
use super::exchange::{Exchange, RightsWatch};
use super::expectation::{BodyUnwanted, GateWait};
use super::injection::Misuse;
use super::ranges::WindowedBody;
use super::upload::Upload;
use crate::limits::{Direction, Excess};
use crate::secret::{Coding, Found, MaskedBody, Masks, Stalled, StreamError, Undecodable};

/// The reason why a body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// The sender broke off.
    #[error(transparent)]
    Off(#[from] hyper::Error),
    /// The receiver does not want it.
    #[error(transparent)]
    Unwanted(#[from] BodyUnwanted),
    /// A credential's placeholder was found in it.
    #[error(transparent)]
    Found(#[from] Found),
    /// The body does not match its signed digest.
    #[error("{}", .0.why)]
    AnotherBody(Box<Misuse>),
    /// One of its signed pieces is too long to be held until it is verified.
    #[error("a piece of its body that is signed has more than 1 MiB")]
    LongPiece,
    /// The body cannot be decoded for searching.
    #[error(transparent)]
    Undecodable(#[from] Undecodable),
    /// The body stalled where a credential's value could be cut in two.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// Its rule's limit is used up.
    #[error(transparent)]
    Beyond(#[from] Excess),
    /// The right to reach its destination was dropped.
    #[error("{0}")]
    GivenUp(String),
    /// Its trailers can be read in more than one way.
    #[error("of its trailers: {0}")]
    Trailers(String),
    /// The body ended early.
    #[error("it broke off")]
    Short,
}

/// A request's body on its way to the server.
#[derive(Debug)]
pub(crate) struct RequestBody {
    incoming: Option<Upload>,
    exchange: Arc<Exchange>,
    /// The rights that it needs for as long as it is forwarded.
    rights: RightsWatch,
    /// The wait until the server wants it, where the program asked for that.
    waiting: Option<GateWait>,
    /// The throttle of its rule's limits.
    brake: BodyThrottle,
}

impl RequestBody {
    /// Wraps a body (`None` is an empty one), which waits until the server wants it where the
    /// program asked for that.
    pub(crate) fn new(incoming: Option<Upload>, exchange: Arc<Exchange>) -> Self {
        if incoming.as_ref().is_none_or(Body::is_end_stream) {
            exchange.is_over(Direction::Up);
        }
        let waiting = exchange.gate().cloned().map(GateWait::new);
        Self {
            incoming,
            rights: RightsWatch::of(&exchange),
            exchange,
            waiting,
            brake: BodyThrottle::default(),
        }
    }

    /// Takes back a body that was not sent, to be sent another way.
    pub(crate) fn into_upload(mut self) -> Option<Upload> {
        self.incoming.take()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        // By HTTP/2 a body that is dropped takes the answer with it.
        let unread = self.incoming.take().and_then(Upload::into_rest);
        if let Some(unread) = unread.filter(|body| !body.is_end_stream()) {
            self.exchange.hold(unread);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let Some(incoming) = &mut this.incoming else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(lost) = this.rights.poll(&this.exchange, context) {
            return Poll::Ready(Some(Err(lost)));
        }
        if let Some(waiting) = &mut this.waiting {
            if let Err(unwanted) = ready!(waiting.poll(context)) {
                return Poll::Ready(Some(Err(unwanted.into())));
            }
            this.waiting = None;
        }
        match this.exchange.part() {
            None => poll(incoming, &this.exchange, Direction::Up, context),
            Some(part) => this.brake.poll(incoming, &this.exchange, part, context),
        }
    }

    fn is_end_stream(&self) -> bool {
        !self.brake.holds() && self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let empty = || SizeHint::with_exact(0);
        self.incoming.as_ref().map_or_else(empty, Body::size_hint)
    }
}

/// A response's body on its way to the program.
pub(crate) enum ResponseBody {
    /// The upstream's body as it comes.
    Through {
        /// The upstream's body.
        incoming: Incoming,
        /// Its exchange.
        exchange: Arc<Exchange>,
        /// The rights that it needs for as long as it is forwarded.
        rights: RightsWatch,
    },
    /// The upstream's body, within its rule's limits.
    Limited {
        /// The frames that may pass.
        pieces: Pieces,
        /// The remaining length.
        hint: SizeHint,
        /// Set once its end has come.
        is_over: bool,
    },
    /// One of those, with real values masked.
    Masked {
        /// The body.
        body: Box<MaskedBody<ResponseBody>>,
        /// Its exchange.
        exchange: Arc<Exchange>,
        /// The permit for decompressing it.
        _held: MemoryPermit,
    },
    /// A masked body, cut down to the range that was requested.
    Part(Box<WindowedBody<ResponseBody>>),
    /// Atoll's own response.
    Told {
        /// The text.
        text: Option<Bytes>,
        /// The unread rest of the request's body, held until the response is sent.
        _unread: Option<Incoming>,
    },
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

impl ResponseBody {
    pub(crate) fn new(incoming: Incoming, exchange: Arc<Exchange>) -> Self {
        if incoming.is_end_stream() {
            exchange.is_over(Direction::Down);
        } else if exchange.part().is_some() {
            let hint = incoming.size_hint();
            let pieces = body_throttle::carry(incoming, exchange);
            let is_over = false;
            return Self::Limited {
                pieces,
                hint,
                is_over,
            };
        }
        let rights = RightsWatch::of(&exchange);
        Self::Through {
            incoming,
            exchange,
            rights,
        }
    }

    /// Masks real values in this body, decompressing it first.
    pub(crate) fn masked(
        self,
        masks: &Masks,
        coding: Option<Coding>,
        exchange: Arc<Exchange>,
        held: MemoryPermit,
    ) -> Self {
        Self::Masked {
            body: Box::new(MaskedBody::new(self, masks, coding)),
            exchange,
            _held: held,
        }
    }

    /// Builds Atoll's own response to a request with this unread body.
    pub(crate) fn told(text: Bytes, unread: Option<Incoming>) -> Self {
        let text = Some(text);
        Self::Told {
            text,
            _unread: unread,
        }
    }

    /// Builds an empty body.
    pub(crate) fn empty() -> Self {
        Self::Told {
            text: None,
            _unread: None,
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let Self::Through { exchange, .. } = self
            && let Some(gate) = exchange.gate()
        {
            gate.over();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Through {
                incoming,
                exchange,
                rights,
            } => match rights.poll(exchange, context) {
                Poll::Ready(lost) => Poll::Ready(Some(Err(lost))),
                Poll::Pending => poll(incoming, exchange, Direction::Down, context),
            },
            Self::Limited { is_over: true, .. } => Poll::Ready(None),
            Self::Limited {
                pieces, is_over, ..
            } => match ready!(pieces.poll_recv(context)) {
                Some(Some(piece)) => Poll::Ready(Some(Ok(piece))),
                Some(None) => {
                    *is_over = true;
                    Poll::Ready(None)
                }
                None => Poll::Ready(Some(Err(BodyError::Short))),
            },
            Self::Masked { body, exchange, .. } => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                match &frame {
                    Some(Err(StreamError::Undecodable(error))) => {
                        exchange.fail(Direction::Down, error)
                    }
                    Some(Err(StreamError::Stalled(stalled))) => exchange.stalled(*stalled),
                    // Those are told of where they happen.
                    Some(Ok(_) | Err(StreamError::Inner(_) | StreamError::Found(_))) | None => {}
                }
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)))
            }
            Self::Part(window) => Pin::new(window).poll_frame(context),
            Self::Told { text, .. } => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Through { incoming, .. } => incoming.is_end_stream(),
            Self::Limited { is_over, .. } => *is_over,
            Self::Masked { body, .. } => body.is_end_stream(),
            Self::Part(window) => window.is_end_stream(),
            Self::Told { text, .. } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Through { incoming, .. } => incoming.size_hint(),
            Self::Limited { hint, .. } => *hint,
            Self::Masked { body, .. } => body.size_hint(),
            Self::Part(window) => window.size_hint(),
            Self::Told { text, .. } => {
                let bytes = text.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
        }
    }
}

impl From<StreamError<hyper::Error>> for BodyError {
    fn from(failed: StreamError<hyper::Error>) -> Self {
        match failed {
            StreamError::Inner(error) => Self::Off(error),
            StreamError::Undecodable(error) => Self::Undecodable(error),
            StreamError::Found(found) => Self::Found(found),
            StreamError::Stalled(stalled) => Self::Stalled(stalled),
        }
    }
}

impl From<StreamError<StreamError<hyper::Error>>> for BodyError {
    fn from(failed: StreamError<StreamError<hyper::Error>>) -> Self {
        match failed {
            StreamError::Inner(failed) => failed.into(),
            StreamError::Undecodable(error) => Self::Undecodable(error),
            StreamError::Found(found) => Self::Found(found),
            StreamError::Stalled(stalled) => Self::Stalled(stalled),
        }
    }
}

impl From<StreamError<BodyError>> for BodyError {
    fn from(failed: StreamError<BodyError>) -> Self {
        match failed {
            StreamError::Inner(broken) => broken,
            StreamError::Undecodable(error) => Self::Undecodable(error),
            StreamError::Found(found) => Self::Found(found),
            StreamError::Stalled(stalled) => Self::Stalled(stalled),
        }
    }
}

/// Polls the next frame of a body, and counts it.
fn poll<B>(
    incoming: &mut B,
    exchange: &Exchange,
    way: Direction,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BodyError>>>
where
    B: Body<Data = Bytes> + Unpin,
    BodyError: From<B::Error>,
{
    let frame = ready!(Pin::new(&mut *incoming).poll_frame(context));
    let mut frame = frame.map(|frame| frame.map_err(BodyError::from));
    if let Some(Ok(piece)) = &mut frame
        && let Some(trailers) = piece.trailers_mut()
        && let Err(broken) = exchange.trail(way, trailers)
    {
        frame = Some(Err(broken));
    }
    match &frame {
        Some(Ok(frame)) => {
            if let Some(data) = frame.data_ref() {
                exchange.count(way, data.len());
            }
            // Whoever knows the length does not ask for the end; after trailers there is
            // nothing.
            if incoming.is_end_stream() || frame.is_trailers() {
                exchange.is_over(way);
            }
        }
        Some(Err(error)) => exchange.broken(way, error),
        None => exchange.is_over(way),
    }
    Poll::Ready(frame)
}
