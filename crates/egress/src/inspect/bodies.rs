//! Bodies of requests in a run with credentials: searched for placeholders before they are
//! forwarded, and rewritten where a credential is bound to a field of the body.
//!
//! A small body is read whole first, so that nothing is sent of a request with a misplaced
//! placeholder. A longer body, or one of unknown length, is searched while it streams: it breaks
//! off before the whole placeholder has left.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use atoll_model::network::Request as Judged;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::body::BodyError;
use super::expectation;
use super::injection::Injection;
use super::upload;
use crate::Egress;
use crate::secret::{Coding, Placeholders, SearchedBody, StreamError, longer};

mod fields;
mod maskable;
mod rejection;

use maskable::{MaskableBody, MaskableBodyError};
pub(crate) use rejection::BodyRejection;
pub(super) use rejection::Renewing;

/// The longest body that is read whole before anything of its request is sent, bytes.
const WHOLE_BYTES_MAX: u64 = 64 << 10;
/// The longest body that a credential may be put into, bytes.
const PLACED_BYTES_MAX: u64 = 1 << 20;
/// The most memory for all bodies that are read whole, KiB.
const HELD_KIB_MAX: usize = 64 << 10;
/// The most bodies decompressed at once with a coding that takes much memory, up to 16 MiB each.
const DECODED_MAX: usize = 24;
/// The most bodies in flight with signed pieces: up to 1 MiB of each is held, in a buffer of up to
/// twice that.
const PIECED_MAX: usize = 64;
/// The longest wait for a permit, and for the last byte of a body that is read whole.
const PATIENCE: Duration = Duration::from_secs(60);

/// The field name of a client's secret in a token request (RFC 6749, 2.3.1).
const CLIENT_SECRET: &str = "client_secret";
/// The reason for giving up on a slow body.
const TOO_SLOW: &str = "its body took too long";

/// The memory limits shared by all bodies that are searched or masked.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    held: Arc<Semaphore>,
    decoded: Arc<Semaphore>,
    /// Permits for bodies that are read before they are sent, since their digest is signed.
    ahead: Arc<Semaphore>,
    /// Permits for bodies of which one piece at a time is held, since its signature is made anew.
    pieces: Arc<Semaphore>,
}

impl Default for BodyMemory {
    fn default() -> Self {
        Self {
            held: Arc::new(Semaphore::new(HELD_KIB_MAX)),
            decoded: Arc::new(Semaphore::new(DECODED_MAX)),
            ahead: Arc::new(upload::permit()),
            pieces: Arc::new(Semaphore::new(PIECED_MAX)),
        }
    }
}

/// A memory permit, held for as long as the body is; `None` where none is needed.
pub(crate) type MemoryPermit = Option<OwnedSemaphorePermit>;

impl BodyMemory {
    /// Acquires a permit for decompressing a body with this coding.
    ///
    /// # Errors
    /// The reason why there is none, in words.
    pub(crate) async fn decoding(
        &self,
        coding: Option<Coding>,
    ) -> Result<MemoryPermit, &'static str> {
        match coding {
            None | Some(Coding::Gzip | Coding::Deflate) => Ok(None),
            Some(Coding::Brotli | Coding::Zstd) => {
                let place = Arc::clone(&self.decoded).acquire_owned();
                let place = timeout(PATIENCE, place).await;
                let place = place.ok().and_then(Result::ok);
                place
                    .map(Some)
                    .ok_or("too many bodies of this run are being decompressed")
            }
        }
    }

    /// Returns the permits for bodies that are read before they are sent.
    pub(crate) fn ahead(&self) -> &Arc<Semaphore> {
        &self.ahead
    }

    /// Acquires a permit for a body with signed pieces.
    pub(crate) async fn piece(&self) -> Result<OwnedSemaphorePermit, &'static str> {
        let place = Arc::clone(&self.pieces).acquire_owned();
        let place = timeout(PATIENCE, place).await.ok().and_then(Result::ok);
        place.ok_or("too many bodies of this run are signed in pieces")
    }

    async fn holding(&self, bytes: u64) -> Result<MemoryPermit, &'static str> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let place = Arc::clone(&self.held).acquire_many_owned(kib);
        let place = timeout(PATIENCE, place).await.ok().and_then(Result::ok);
        place
            .map(Some)
            .ok_or("too many bodies of this run are on their way")
    }
}

/// The body of a request on its way to the upstream.
pub(crate) enum BodySource {
    /// Forwarded as it comes, with nothing to search for.
    Plain(Incoming),
    /// Searched while it streams.
    Searched {
        /// The body.
        body: Box<SearchedBody<MaskableBody>>,
        /// The permit for the memory that this takes.
        _held: MemoryPermit,
    },
    /// Read whole and searched.
    Whole {
        /// The body.
        body: ReplayedBody,
        /// The permit for holding it.
        _held: MemoryPermit,
    },
}

impl std::fmt::Debug for BodySource {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("BodySource").finish_non_exhaustive()
    }
}

/// The part of a body that was read, followed by the rest. The frames read are joined: many small
/// ones, each kept, would take far more memory than their bytes.
#[derive(Debug, Default)]
pub(crate) struct ReplayedBody {
    first: Bytes,
    /// The trailers of a body that was read to its end.
    trailers: Option<HeaderMap>,
    rest: Option<Incoming>,
    /// The original body before injection, for the approver.
    rewritten: Option<fields::RewrittenBody>,
}

/// Takes a request's body, and returns what is forwarded of it. A credential put into it is added
/// to those of its request, whose headers must then be updated ([`BodySource::tell`]).
pub(crate) async fn take(
    egress: &Egress,
    judged: &Judged<'_>,
    headers: &HeaderMap,
    injection: &mut Injection,
    body: Incoming,
) -> Result<Option<BodySource>, BodyRejection> {
    if body.is_end_stream() {
        return Ok(None);
    }
    let source = match injection.unfit(&egress.credentials) {
        None => BodySource::Plain(body),
        Some(placeholders) => {
            let looked = search_whole(egress, &placeholders, judged, headers, injection, body);
            looked.await?
        }
    };
    Ok(Some(source))
}

async fn search_whole(
    egress: &Egress,
    placeholders: &Placeholders,
    judged: &Judged<'_>,
    headers: &HeaderMap,
    injection: &mut Injection,
    body: Incoming,
) -> Result<BodySource, BodyRejection> {
    // Compressed in an unknown way it is searched as it stands: what somebody hides so
    // opens nothing anywhere.
    let coding = Coding::of(headers).unwrap_or(None);
    let length = body.size_hint().exact();
    let body = ReplayedBody {
        rest: Some(body),
        ..ReplayedBody::default()
    };
    let kind = fields::FieldFormat::of(headers).filter(|_| coding.is_none());
    let is_placed = egress
        .credentials
        .iter()
        .any(|held| held.is_for_body(judged));
    let is_heard = egress.credentials.learns_client_secret(judged);
    let is_read = (is_placed || is_heard) && length.unwrap_or(0) <= PLACED_BYTES_MAX;
    if let Some(kind) = kind.filter(|_| is_read) {
        let bytes = 2 * length.unwrap_or(PLACED_BYTES_MAX);
        let held = egress.bodies.holding(bytes).await?;
        let again = body.gathered().await?;
        if again.rest.is_some() {
            let again = MaskableBody::new(again, None);
            let searched = SearchedBody::new(again, placeholders, None);
            return Ok(BodySource::searched(searched, held));
        }
        let published = is_heard.then(|| kind.text(&again.first, CLIENT_SECRET));
        let credentials = &egress.credentials;
        let whole = fields::inject(credentials, placeholders, judged, kind, again, injection);
        let whole = whole.map_err(|untaken| untaken.sending(published.flatten()))?;
        return Ok(BodySource::whole(whole, held));
    }
    let decoding = egress.bodies.decoding(coding).await?;
    let may_be_changed = !is_placed && maskable::may_be_changed(headers);
    let mask = may_be_changed.then(|| injection.without_others(&egress.credentials));
    let body = MaskableBody::new(body, mask.flatten());
    let searched = SearchedBody::new(body, placeholders, coding);
    let whole = length.filter(|bytes| *bytes <= WHOLE_BYTES_MAX && !expectation::is_asked(headers));
    let Some(bytes) = whole else {
        return Ok(BodySource::searched(searched, decoding));
    };
    let held = egress.bodies.holding(bytes).await?;
    let mut searched = searched;
    let whole = timeout(PATIENCE, searched_whole(&mut searched)).await;
    match whole.map_err(|_| TOO_SLOW)? {
        Ok(whole) => Ok(BodySource::whole(whole, held)),
        Err(StreamError::Found(found)) => {
            // By HTTP/2 a body that is dropped takes the answer with it.
            let unread = searched.into_inner().into_rest();
            Err(BodyRejection::found(&egress.credentials, judged, found).with(unread))
        }
        Err(failed) => Err(BodyRejection::Broken(failed.to_string())),
    }
}

/// Reads a whole body and searches it.
async fn searched_whole(
    body: &mut SearchedBody<MaskableBody>,
) -> Result<ReplayedBody, StreamError<MaskableBodyError>> {
    let mut read = ReadBody::default();
    while let Some(frame) = body.frame().await {
        read.take(frame?);
    }
    Ok(read.followed_by(None))
}

/// The part of a body that was read so far.
#[derive(Default)]
struct ReadBody {
    bytes: BytesMut,
    trailers: Option<HeaderMap>,
}

impl ReadBody {
    fn take(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) => self.bytes.extend_from_slice(&data),
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    self.trailers.get_or_insert_default().extend(trailers);
                }
            }
        }
    }

    fn followed_by(self, rest: Option<Incoming>) -> ReplayedBody {
        ReplayedBody {
            first: self.bytes.freeze(),
            trailers: self.trailers,
            rest,
            rewritten: None,
        }
    }
}

impl ReplayedBody {
    /// Reads on until the end, or until the body is too long to be rewritten.
    async fn gathered(self) -> Result<Self, BodyRejection> {
        let mut rest = self.rest;
        let mut read = ReadBody::default();
        let gathering = async {
            while let Some(unread) = &mut rest {
                match unread.frame().await {
                    Some(Ok(frame)) => read.take(frame),
                    Some(Err(error)) => return Err(BodyRejection::Broken(error.to_string())),
                    None => rest = None,
                }
                if read.bytes.len() as u64 > PLACED_BYTES_MAX {
                    break;
                }
            }
            Ok(())
        };
        timeout(PATIENCE, gathering).await.map_err(|_| TOO_SLOW)??;
        Ok(read.followed_by(rest))
    }

    /// Returns the part of the program's body that was not read.
    fn into_rest(self) -> Option<Incoming> {
        self.rest
    }
}

impl Body for ReplayedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        if !this.first.is_empty() {
            let first = std::mem::take(&mut this.first);
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        match &mut this.rest {
            Some(rest) => Pin::new(rest).poll_frame(context),
            None => Poll::Ready(this.trailers.take().map(Frame::trailers).map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_read = self.first.is_empty() && self.trailers.is_none();
        is_read && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map(Body::size_hint);
        let rest = rest.unwrap_or_else(|| SizeHint::with_exact(0));
        longer(rest, self.first.len() as u64)
    }
}

/// Headers with a digest of the body, which injection makes stale (RFC 9530, and older ones).
const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

impl BodySource {
    fn searched(body: SearchedBody<MaskableBody>, held: MemoryPermit) -> Self {
        Self::Searched {
            body: Box::new(body),
            _held: held,
        }
    }

    fn whole(body: ReplayedBody, held: MemoryPermit) -> Self {
        Self::Whole { body, _held: held }
    }

    /// Updates the request's headers to match the rewritten body.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        if let Self::Whole { body, .. } = self
            && let Some(rewritten) = &body.rewritten
        {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(rewritten.bytes));
            for digest in &DIGESTS {
                headers.remove(digest);
            }
        }
    }

    /// Returns the body as the program wrote it, if a credential was put in.
    pub(crate) fn before(&self) -> Option<&Bytes> {
        match self {
            Self::Whole { body, .. } => body.rewritten.as_ref().map(|one| &one.before),
            Self::Plain(_) | Self::Searched { .. } => None,
        }
    }

    /// Returns the whole body, if it has been read to its end.
    pub(crate) fn all(&self) -> Option<&Bytes> {
        match self {
            Self::Whole { body, .. } if body.rest.is_none() => Some(&body.first),
            Self::Plain(_) | Self::Searched { .. } | Self::Whole { .. } => None,
        }
    }

    /// Returns the part of the program's body that was not read.
    pub(crate) fn into_rest(self) -> Option<Incoming> {
        match self {
            Self::Plain(incoming) => Some(incoming),
            Self::Searched { body, .. } => body.into_inner().into_rest(),
            Self::Whole { body, .. } => body.into_rest(),
        }
    }
}

impl Body for BodySource {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(match self.get_mut() {
            Self::Plain(incoming) => {
                let frame = ready!(Pin::new(incoming).poll_frame(context));
                frame.map(|frame| frame.map_err(BodyError::Off))
            }
            Self::Searched { body, .. } => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                frame.map(|frame| frame.map_err(BodyError::from))
            }
            Self::Whole { body, .. } => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                frame.map(|frame| frame.map_err(BodyError::Off))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Plain(incoming) => incoming.is_end_stream(),
            Self::Searched { body, .. } => body.is_end_stream(),
            Self::Whole { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Plain(incoming) => incoming.size_hint(),
            Self::Searched { body, .. } => body.size_hint(),
            Self::Whole { body, .. } => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn body_small_frames_are_joined() {
        let mut read = ReadBody::default();
        for byte in b"many pieces of one byte" {
            read.take(Frame::data(Bytes::copy_from_slice(&[*byte])));
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-end", HeaderValue::from_static("1"));
        read.take(Frame::trailers(trailers.clone()));
        let mut again = read.followed_by(None);
        assert_eq!(again.size_hint().exact(), Some(23));
        let first = again.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "many pieces of one byte");
        assert!(!again.is_end_stream());
        let last = again.frame().await.unwrap().unwrap();
        assert_eq!(last.into_trailers().unwrap(), trailers);
        assert!(again.is_end_stream());
        assert!(again.frame().await.is_none());
    }
}
