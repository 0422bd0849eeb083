//! A body whose digest its request states and signs: its last frame is not forwarded unless it
//! matches.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aws_lc_rs::digest::{Context as Hash, SHA256, SHA256_OUTPUT_LEN};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::inspect::body::BodyError;
use crate::inspect::injection::Misuse;
use crate::secret::longer;

/// A SHA-256 digest.
pub(crate) type Digest = [u8; SHA256_OUTPUT_LEN];

/// The state of such a body.
pub(super) struct DigestCheck {
    hash: Hash,
    expected: Digest,
    /// The misuse to report if the body does not match.
    misuse: Misuse,
    /// The frames received, each held until another one has come or the body is verified.
    held: VecDeque<Frame<Bytes>>,
    /// Set once all was received and matches.
    is_right: bool,
}

/// Returns the digest of a whole body.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    let mut hash = Hash::new(&SHA256);
    hash.update(bytes);
    finished(hash)
}

fn finished(hash: Hash) -> Digest {
    let mut digest = [0; SHA256_OUTPUT_LEN];
    digest.copy_from_slice(hash.finish().as_ref());
    digest
}

impl std::fmt::Debug for DigestCheck {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("DigestCheck").finish_non_exhaustive()
    }
}

impl DigestCheck {
    pub(super) fn new(expected: Digest, misuse: Misuse) -> Self {
        Self {
            hash: Hash::new(&SHA256),
            expected,
            misuse,
            held: VecDeque::new(),
            is_right: false,
        }
    }

    /// Polls the next frame that may be sent: the last one waits until all of the body is verified.
    pub(super) fn poll(
        &mut self,
        rest: &mut (impl Body<Data = Bytes, Error = BodyError> + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if self.is_right || self.held.len() > 1 {
                return Poll::Ready(self.held.pop_front().map(Ok));
            }
            match ready!(Pin::new(&mut *rest).poll_frame(context)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => {
                    let is_last = frame.is_trailers();
                    let bytes = frame.data_ref();
                    bytes.into_iter().for_each(|bytes| self.hash.update(bytes));
                    // Where an empty one is the last, what is before it would have left.
                    if bytes.is_none_or(|bytes| !bytes.is_empty()) {
                        self.held.push_back(frame);
                    }
                    // Whoever knows the length does not ask for the end.
                    if is_last || rest.is_end_stream() {
                        self.check()?;
                    }
                }
                None => self.check()?,
            }
        }
    }

    fn check(&mut self) -> Result<(), BodyError> {
        if finished(self.hash.clone()) != self.expected {
            self.held.clear();
            return Err(BodyError::AnotherBody(Box::new(self.misuse.clone())));
        }
        self.is_right = true;
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_right && self.held.is_empty()
    }

    /// Returns a size hint that includes the bytes held.
    pub(super) fn longer(&self, hint: SizeHint) -> SizeHint {
        let held = self.held.iter().filter_map(Frame::data_ref);
        longer(hint, held.map(|bytes| bytes.len() as u64).sum())
    }
}

#[cfg(test)]
mod tests;
