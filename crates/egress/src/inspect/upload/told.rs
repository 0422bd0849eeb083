//! A body whose digest its request tells and has signed: it is that body, or its end does not
//! leave.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aws_lc_rs::digest::{Context as Hash, SHA256, SHA256_OUTPUT_LEN};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::inspect::body::Broken;
use crate::inspect::injection::Misuse;
use crate::secret::longer;

/// A SHA-256 digest.
pub(crate) type Digest = [u8; SHA256_OUTPUT_LEN];

/// What is known of such a body so far.
pub(super) struct Told {
    hash: Hash,
    expected: Digest,
    /// What is said of another body.
    misuse: Misuse,
    /// What has come, and leaves once more has, or it was found to be the right one.
    held: VecDeque<Frame<Bytes>>,
    /// All has come, and is as it was told.
    is_right: bool,
}

/// The digest of a whole body.
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

impl std::fmt::Debug for Told {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Told").finish_non_exhaustive()
    }
}

impl Told {
    pub(super) fn new(expected: Digest, misuse: Misuse) -> Self {
        Self {
            hash: Hash::new(&SHA256),
            expected,
            misuse,
            held: VecDeque::new(),
            is_right: false,
        }
    }

    /// The next of it that may leave: what comes last waits until all of it is known.
    pub(super) fn poll(
        &mut self,
        rest: &mut (impl Body<Data = Bytes, Error = Broken> + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
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

    fn check(&mut self) -> Result<(), Broken> {
        if finished(self.hash.clone()) != self.expected {
            self.held.clear();
            return Err(Broken::AnotherBody(Box::new(self.misuse.clone())));
        }
        self.is_right = true;
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_right && self.held.is_empty()
    }

    /// A hint with what is held.
    pub(super) fn longer(&self, hint: SizeHint) -> SizeHint {
        let held = self.held.iter().filter_map(Frame::data_ref);
        longer(hint, held.map(|bytes| bytes.len() as u64).sum())
    }
}

#[cfg(test)]
mod tests;
