use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use atoll_model::network::Listener;

use crate::approvals::Pending;

/// Which of the program's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or everything on a terminal.
    Output,
    /// Standard error.
    Error,
}

/// What to do with a signal that the host side received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Send it to the program.
    Forward(u8),
    /// The window has this size now.
    Resize(crate::Size),
    /// Nothing.
    Ignore,
}

/// Whoever sits on the host's side of a session: where its input comes from,
/// where its output goes.
pub trait Attachment {
    /// Where the program's input is read from; `None` for none.
    fn input(&self) -> Option<BorrowedFd<'_>>;
    /// Where a stream is shown.
    fn sink(&self, stream: Stream) -> BorrowedFd<'_>;
    /// Becomes readable when a signal has arrived.
    fn signals(&self) -> Option<BorrowedFd<'_>>;
    /// Takes the signals that have arrived.
    fn next_signal(&mut self) -> Option<Reaction>;
    /// Turns what the program wrote into what is shown, and keeps what is kept.
    fn transform(&mut self, stream: Stream, written: &[u8], shown: &mut Vec<u8>);
    /// A program inside has begun to listen: what is shown of that, and where.
    fn begun(&mut self, listener: &Listener) -> Option<(Stream, Vec<u8>)> {
        let _ = listener;
        None
    }
    /// A person is asked something: what is shown of that, and where.
    fn asked(&mut self, question: &Pending) -> Option<(Stream, Vec<u8>)> {
        let _ = question;
        None
    }
    /// The program was stopped by the terminal: returns when it is to go on.
    fn suspended(&mut self);
}

/// Whoever carries a sandbox's connections to the outside, where it has any.
pub trait Carrier {
    /// Takes what leads to the sandbox's network and out of it, once that is there, with the
    /// process above its first one.
    fn take(&mut self, listeners: Vec<OwnedFd>, launcher: u32);
    /// What becomes readable when there is something to do.
    fn waits_on(&self) -> Vec<BorrowedFd<'_>>;
    /// When there is something to do though nothing has become readable.
    fn due(&self) -> Option<Instant> {
        None
    }
    /// Does it. Whether the program may go on.
    fn attend(&mut self) -> bool;
    /// What a person is asked since this was called last.
    fn questions(&mut self) -> Vec<Pending> {
        Vec::new()
    }
    /// What has begun to listen inside since it was asked last.
    fn begun(&mut self) -> Vec<Listener> {
        Vec::new()
    }
}
