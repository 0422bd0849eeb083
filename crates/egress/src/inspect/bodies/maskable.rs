//! Masking of other credentials' placeholders in bodies as they stream.
//!
//! An agent that has printed its environment repeats it to its model with everything it says from
//! then on. The model's own credential may be in that request; the placeholder of another
//! credential is replaced by a meaningless text of the same length. That is done only where the
//! whole body can be read and changed: a body that is compressed or signed, or whose digest is in a
//! header, stops at such a placeholder, as trailers do. Everything forwarded is searched
//! afterwards, as every body is.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, HeaderMap};

use super::{DIGESTS, ReplayedBody};
use crate::secret::{Mask, MaskedBody, StreamError};

/// The reason why such a body broke off.
pub(super) type MaskableBodyError = StreamError<hyper::Error>;

/// A body, with or without masking.
pub(crate) enum MaskableBody {
    /// Unchanged.
    Through(ReplayedBody),
    /// With other credentials' placeholders masked.
    Masked(Box<MaskedBody<ReplayedBody>>),
}

/// Returns whether a body with these headers may be changed.
pub(super) fn may_be_changed(headers: &HeaderMap) -> bool {
    let tells = |name| headers.contains_key(name);
    !tells(&CONTENT_ENCODING) && !DIGESTS.iter().any(tells)
}

impl MaskableBody {
    pub(super) fn new(body: ReplayedBody, mask: Option<Mask>) -> Self {
        match mask {
            Some(mask) => Self::Masked(Box::new(MaskedBody::outgoing(body, mask))),
            None => Self::Through(body),
        }
    }

    /// Returns the part of the program's body that was not read.
    pub(super) fn into_rest(self) -> Option<Incoming> {
        match self {
            Self::Through(body) => body.into_rest(),
            Self::Masked(body) => body.into_inner().into_rest(),
        }
    }
}

impl Body for MaskableBody {
    type Data = Bytes;
    type Error = MaskableBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, MaskableBodyError>>> {
        match self.get_mut() {
            Self::Through(body) => {
                let frame = std::task::ready!(Pin::new(body).poll_frame(context));
                Poll::Ready(frame.map(|frame| frame.map_err(StreamError::Inner)))
            }
            Self::Masked(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Through(body) => body.is_end_stream(),
            Self::Masked(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Through(body) => body.size_hint(),
            Self::Masked(body) => body.size_hint(),
        }
    }
}
