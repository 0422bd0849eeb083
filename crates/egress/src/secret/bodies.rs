//! Bodies that are searched or masked as they pass.

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

/// How long what could be the beginning of a secret is held back when nothing more comes, and
/// it is short: a server may wait for an answer to it. It depends on no secret.
pub(crate) const HOLD: Duration = Duration::from_millis(50);
/// How long more may be waited for where that is not so: what is held back then could be nearly
/// all of a secret, and goes on with what it belongs to or not at all.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(30);
/// How much is decompressed before others have their turn, bytes.
const TURN_BYTES: usize = 1 << 20;

/// Why a body comes to no end.
#[derive(Debug, thiserror::Error)]
pub enum Failed<Inner: std::error::Error + 'static> {
    /// What it is made of comes to none.
    #[error(transparent)]
    Inner(Inner),
    /// It cannot be decompressed.
    #[error(transparent)]
    Undecodable(#[from] Undecodable),
    /// It carries a placeholder.
    #[error(transparent)]
    Found(#[from] Found),
    /// It stops where it could be within a secret.
    #[error(transparent)]
    Stalled(#[from] Stalled),
}

/// It stops where it could be within a secret: nothing came for [`STALL_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "nothing came for {} s within a row of characters that could be the beginning of a credential's value",
    STALL_MAX.as_secs()
)]
pub struct Stalled;

type Polled<Error> = Poll<Option<Result<Frame<Bytes>, Failed<Error>>>>;

/// A body on its way out, as it is; it ends with an error before a placeholder in it is
/// whole. What is compressed is searched before and after it was decompressed.
pub struct SearchedBody<Inner> {
    inner: Inner,
    placeholders: Placeholders,
    finder: Finder,
    decoded: Option<(Decoder, Finder)>,
    /// What is not searched to its end yet.
    piece: Option<Bytes>,
    is_over: bool,
}

impl<Inner> SearchedBody<Inner> {
    /// For a body that is compressed so, or not at all.
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

    /// What it is made of.
    pub fn into_inner(self) -> Inner {
        self.inner
    }

    /// Searches on in what is compressed. Whether that is done.
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

/// Why a search comes to no end.
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

impl<Inner: std::error::Error> From<SearchFailed> for Failed<Inner> {
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
    type Error = Failed<Inner::Error>;

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
                Some(Err(error)) => return Poll::Ready(Some(Err(Failed::Inner(error)))),
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

/// A body from outside without secrets. What was compressed is no longer: whoever hands it
/// on removes `Content-Encoding` and `Content-Length` then ([`Self::is_decoded`]).
/// Otherwise it is as long as it was.
pub struct MaskedBody<Inner> {
    inner: Inner,
    /// For its trailers, where they are masked.
    masks: Option<Masks>,
    mask: Mask,
    decoder: Option<Decoder>,
    trailers: Option<HeaderMap>,
    /// How long more is waited for where what is held back may not go on without it. None
    /// where it always may.
    pub(super) stall_max: Option<Duration>,
    /// Until when what is held back is, and whether it goes on then.
    hold: Option<(Pin<Box<Sleep>>, bool)>,
    /// Whether the inner one is at its end.
    is_over: bool,
    is_failed: bool,
}

impl<Inner> MaskedBody<Inner> {
    /// For a body that is compressed so, or not at all.
    pub fn new(inner: Inner, masks: &Masks, coding: Option<Coding>) -> Self {
        Self {
            masks: Some(masks.clone()),
            decoder: coding.map(Decoder::new),
            stall_max: Some(STALL_MAX),
            ..Self::outgoing(inner, masks.stream())
        }
    }

    /// For a body on its way out that is not compressed, and whose trailers stay as they are.
    /// What is masked in it is no secret: none of it is held back for long.
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

    /// What it is made of.
    pub fn into_inner(self) -> Inner {
        self.inner
    }

    /// Whether it comes decompressed.
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
    type Error = Failed<Inner::Error>;

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
                    return Poll::Ready(Some(Err(Failed::Inner(error))));
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

    /// Nothing more has come for now. What is held back goes on after a while if it is short;
    /// otherwise it waits, and not for ever. That a message would end there is no reason: who
    /// chooses the type of an answer chooses where its messages end.
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

    /// What is left when all has come.
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

/// A hint of so many bytes more.
pub(crate) fn longer(hint: SizeHint, bytes: u64) -> SizeHint {
    let mut longer = SizeHint::new();
    longer.set_lower(hint.lower().saturating_add(bytes));
    if let Some(upper) = hint.upper() {
        longer.set_upper(upper.saturating_add(bytes));
    }
    longer
}
