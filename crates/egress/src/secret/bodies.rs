//! Bodies that are searched or masked while they stream.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::header::HeaderMap;
use tokio::time::Sleep;

use super::coding::{Coding, Decoder, Undecodable};
use super::finder::{Finder, Found, Placeholders};
use super::mask::{Mask, Masks};

/// The time for which a short possible beginning of a secret is held back when nothing more comes:
/// a server may wait for an answer to it. It depends on no secret.
pub(crate) const HOLD: Duration = Duration::from_millis(50);
/// The longest wait for more after a long one: what is held back then could be nearly all of a
/// secret, and goes on with its continuation or not at all.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(30);
/// The most bytes decompressed before other tasks have their turn.
const TURN_BYTES: usize = 1 << 20;

/// The reason why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum StreamError<Inner: std::error::Error + 'static> {
    /// The inner body broke off.
    #[error(transparent)]
    Inner(Inner),
    /// The body cannot be decompressed.
    #[error(transparent)]
    Undecodable(#[from] Undecodable),
    /// A placeholder was found in the body.
    #[error(transparent)]
    Found(#[from] Found),
    /// The body stalled within a possible secret.
    #[error(transparent)]
    Stalled(#[from] Stalled),
}

/// The body stalled within a possible secret: nothing came for [`STALL_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "nothing came for {} s within a row of characters that could be the beginning of a credential's value",
    STALL_MAX.as_secs()
)]
pub struct Stalled;

type Polled<Error> = Poll<Option<Result<Frame<Bytes>, StreamError<Error>>>>;

/// A body on its way out, unchanged; it ends with an error before the whole of a placeholder has
/// passed. A compressed body is searched both as it is and decompressed.
pub struct SearchedBody<Inner> {
    inner: Inner,
    placeholders: Placeholders,
    finder: Finder,
    decoded: Option<(Decoder, Finder)>,
    /// The piece that is not searched to its end yet.
    piece: Option<Bytes>,
    is_over: bool,
}

impl<Inner> SearchedBody<Inner> {
    /// Wraps a body with this content coding, if any.
    pub fn new(inner: Inner, placeholders: &Placeholders, coding: Option<Coding>) -> Self {
        let decoded = coding.map(|coding| (Decoder::new(coding), placeholders.stream()));
        Self {
            inner,
            placeholders: placeholders.clone(),
            finder: placeholders.stream(),
            decoded,
            piece: None,
            is_over: false,
        }
    }

    /// Returns the inner body.
    pub fn into_inner(self) -> Inner {
        self.inner
    }

    /// Searches the decompressed bytes further, and returns whether all are searched.
    fn search_decoded(&mut self) -> Result<bool, SearchFailed> {
        let Some((decoder, finder)) = &mut self.decoded else {
            return Ok(true);
        };
        let mut out = Vec::new();
        let mut turn = 0;
        while turn < TURN_BYTES {
            out.clear();
            if !decoder.pull(&mut out)? {
                return Ok(true);
            }
            finder.feed(&out)?;
            turn += out.len();
        }
        Ok(false)
    }

    fn end(&self) -> Result<(), Undecodable> {
        let decoder = self.decoded.as_ref().map(|(decoder, _)| decoder);
        decoder.map_or(Ok(()), Decoder::finish)
    }
}

/// The reason why a search ended the body.
enum SearchFailed {
    Undecodable(Undecodable),
    Found(Found),
}

impl From<Undecodable> for SearchFailed {
    fn from(error: Undecodable) -> Self {
        Self::Undecodable(error)
    }
}

impl From<Found> for SearchFailed {
    fn from(found: Found) -> Self {
        Self::Found(found)
    }
}

impl<Inner: std::error::Error> From<SearchFailed> for StreamError<Inner> {
    fn from(failed: SearchFailed) -> Self {
        match failed {
            SearchFailed::Undecodable(error) => Self::Undecodable(error),
            SearchFailed::Found(found) => Self::Found(found),
        }
    }
}

impl<Inner> Body for SearchedBody<Inner>
where
    Inner: Body<Data = Bytes> + Unpin,
    Inner::Error: std::error::Error + 'static,
{
    type Data = Bytes;
    type Error = StreamError<Inner::Error>;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled<Inner::Error> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        let searched = this.poll_searched(context);
        // After an error nothing leaves any more.
        this.is_over = matches!(searched, Poll::Ready(None | Some(Err(_))));
        searched
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.piece.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.piece.as_ref().map_or(0, Bytes::len) as u64;
        longer(self.inner.size_hint(), held)
    }
}

impl<Inner> SearchedBody<Inner>
where
    Inner: Body<Data = Bytes> + Unpin,
    Inner::Error: std::error::Error + 'static,
{
    fn poll_searched(&mut self, context: &mut Context<'_>) -> Polled<Inner::Error> {
        if self.piece.is_none() {
            let polled = Pin::new(&mut self.inner).poll_frame(context);
            let frame = match std::task::ready!(polled) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(StreamError::Inner(error)))),
                None => return Poll::Ready(self.end().err().map(|error| Err(error.into()))),
            };
            match frame.into_data() {
                Ok(piece) => {
                    self.finder.feed(&piece)?;
                    if let Some((decoder, _)) = &mut self.decoded {
                        decoder.push(&piece);
                    }
                    self.piece = Some(piece);
                }
                Err(frame) => {
                    self.end()?;
                    let headers = frame.trailers_ref();
                    let found = headers.and_then(|all| self.placeholders.find_in_headers(all));
                    return Poll::Ready(Some(found.map_or(Ok(frame), |found| Err(found.into()))));
                }
            }
        }
        if !self.search_decoded()? {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.piece.take().map(|piece| Ok(Frame::data(piece))))
    }
}

/// A body from outside, with secrets masked. A compressed one comes decompressed: then the caller
/// removes `Content-Encoding` and `Content-Length` ([`Self::is_decoded`]). Otherwise its length
/// stays.
pub struct MaskedBody<Inner> {
    inner: Inner,
    /// The masks for its trailers, where those are masked.
    masks: Option<Masks>,
    mask: Mask,
    decoder: Option<Decoder>,
    trailers: Option<HeaderMap>,
    /// The longest wait for more where the bytes held back may not go on without it; `None` where
    /// they always may.
    pub(super) stall_max: Option<Duration>,
    /// The timer for the bytes held back, and whether they go on when it ends.
    hold: Option<(Pin<Box<Sleep>>, bool)>,
    /// Set once the inner body is at its end.
    is_over: bool,
    is_failed: bool,
}

impl<Inner> MaskedBody<Inner> {
    /// Wraps a body with this content coding, if any.
    pub fn new(inner: Inner, masks: &Masks, coding: Option<Coding>) -> Self {
        Self {
            masks: Some(masks.clone()),
            decoder: coding.map(Decoder::new),
            stall_max: Some(STALL_MAX),
            ..Self::outgoing(inner, masks.stream())
        }
    }

    /// Wraps an uncompressed body on its way out, whose trailers stay as they are. The values
    /// masked in it are not secret: none is held back for long.
    pub fn outgoing(inner: Inner, mask: Mask) -> Self {
        Self {
            inner,
            mask,
            masks: None,
            decoder: None,
            trailers: None,
            stall_max: None,
            hold: None,
            is_over: false,
            is_failed: false,
        }
    }

    /// Returns the inner body.
    pub fn into_inner(self) -> Inner {
        self.inner
    }

    /// Returns whether it comes decompressed.
    pub fn is_decoded(&self) -> bool {
        self.decoder.is_some()
    }
}

impl<Inner> Body for MaskedBody<Inner>
where
    Inner: Body<Data = Bytes> + Unpin,
    Inner::Error: std::error::Error + 'static,
{
    type Data = Bytes;
    type Error = StreamError<Inner::Error>;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled<Inner::Error> {
        let this = self.get_mut();
        if this.is_failed {
            return Poll::Ready(None);
        }
        let masked = this.poll_masked(context);
        this.is_failed = matches!(masked, Poll::Ready(Some(Err(_))));
        masked
    }

    fn is_end_stream(&self) -> bool {
        let is_empty = self.mask.held() == 0 && self.trailers.is_none();
        let is_over = self.is_over || self.decoder.is_none() && self.inner.is_end_stream();
        self.is_failed || is_over && is_empty
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_decoded() {
            return SizeHint::default();
        }
        longer(self.inner.size_hint(), self.mask.held() as u64)
    }
}

impl<Inner> MaskedBody<Inner>
where
    Inner: Body<Data = Bytes> + Unpin,
    Inner::Error: std::error::Error + 'static,
{
    fn poll_masked(&mut self, context: &mut Context<'_>) -> Polled<Inner::Error> {
        let mut out = Vec::new();
        let mut turn = 0;
        loop {
            if let Some(decoder) = &mut self.decoder {
                let mut decoded = Vec::new();
                let is_any = decoder.pull(&mut decoded)?;
                self.mask.feed(&decoded, &mut out);
                turn += decoded.len();
                if out.is_empty() && is_any && turn < TURN_BYTES {
                    continue;
                }
                if out.is_empty() && is_any {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
            if self.is_over {
                return self.end();
            }
            match Pin::new(&mut self.inner).poll_frame(context) {
                Poll::Pending => return self.waited(context),
                Poll::Ready(None) => self.is_over = true,
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Err(StreamError::Inner(error))));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    self.take(frame, &mut out);
                    // Whoever knows the length does not ask for the end.
                    if self.inner.is_end_stream() {
                        self.is_over = true;
                        if self.decoder.is_none() {
                            self.mask.release(&mut out);
                        }
                    }
                }
            }
        }
    }

    fn take(&mut self, frame: Frame<Bytes>, out: &mut Vec<u8>) {
        self.hold = None;
        match frame.into_data() {
            Ok(piece) => match &mut self.decoder {
                Some(decoder) => decoder.push(&piece),
                None => self.mask.feed(&piece, out),
            },
            Err(frame) => {
                if let Ok(mut trailers) = frame.into_trailers() {
                    if let Some(masks) = &self.masks {
                        masks.headers(&mut trailers);
                    }
                    self.trailers = Some(trailers);
                }
                self.is_over = true;
            }
        }
    }

    /// Waits while nothing more comes. The bytes held back go on after a while if they are few;
    /// otherwise they wait, with a limit. The end of a message within the body changes nothing:
    /// whoever chooses the type of a response chooses where its messages end.
    fn waited(&mut self, context: &mut Context<'_>) -> Polled<Inner::Error> {
        if self.mask.held() == 0 {
            return Poll::Pending;
        }
        let (mask, stall_max) = (&self.mask, self.stall_max);
        let (hold, goes_on) = self.hold.get_or_insert_with(|| {
            let wait = stall_max.filter(|_| !mask.is_short());
            let hold = tokio::time::sleep(wait.unwrap_or(HOLD));
            (Box::pin(hold), wait.is_none())
        });
        std::task::ready!(hold.as_mut().poll(context));
        let goes_on = *goes_on;
        self.hold = None;
        if !goes_on {
            return Poll::Ready(Some(Err(Stalled.into())));
        }
        let mut out = Vec::new();
        self.mask.release(&mut out);
        Poll::Ready(Some(Ok(Frame::data(out.into()))))
    }

    /// Returns the rest once all has come.
    fn end(&mut self) -> Polled<Inner::Error> {
        let mut out = Vec::new();
        self.mask.release(&mut out);
        if !out.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(out.into()))));
        }
        if let Some(decoder) = &self.decoder {
            decoder.finish()?;
        }
        Poll::Ready(
            self.trailers
                .take()
                .map(|trailers| Ok(Frame::trailers(trailers))),
        )
    }
}

/// Returns a size hint that includes this many more bytes.
pub(crate) fn longer(hint: SizeHint, bytes: u64) -> SizeHint {
    let mut longer = SizeHint::new();
    longer.set_lower(hint.lower().saturating_add(bytes));
    if let Some(upper) = hint.upper() {
        longer.set_upper(upper.saturating_add(bytes));
    }
    longer
}
