//! The ends of a sandbox that no person sits at.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use atoll_sandbox::{Attachment, Reaction, Stream};

use crate::notice::{Notice, Notices};

/// The attachment of a sandbox without a program of its own.
pub(super) struct NoStreams(pub(super) OwnedFd);

impl Attachment for NoStreams {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn sink(&self, _: Stream) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn signals(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_signal(&mut self) -> Option<Reaction> {
        None
    }

    fn transform(&mut self, _: Stream, _: &[u8], _: &mut Vec<u8>) {}

    fn suspended(&mut self) {}
}

/// Notices that reach nobody: whoever links the library reads the ledger.
pub(super) struct Unheard;

impl Notices for Unheard {
    fn notice(&self, _: Notice) {}
}
