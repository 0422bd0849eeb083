use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use atoll_model::network::{CallDigest, Listener};

use crate::approvals::{Decision, Pending};

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

/// What a person says to a question at the run's own terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The question's number.
    pub approval: u32,
    /// Of what they were shown.
    pub digest: CallDigest,
    /// What they say.
    pub decision: Decision,
}

/// What is to be done about questions at the run's own terminal.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// What is shown, after all that was shown before.
    pub shown: Vec<(Stream, Vec<u8>)>,
    /// What a person has answered.
    pub answered: Option<Answered>,
    /// The size that the program is told its terminal has.
    pub resized: Option<crate::Size>,
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
    /// What a person is asked is this by now: all that is open, the oldest first.
    fn asked(&mut self, open: Vec<Pending>) {
        let _ = open;
    }
    /// Whether a question has the terminal: nothing that the program writes is taken then, and
    /// nothing that is typed is given to it.
    fn has_terminal(&self) -> bool {
        false
    }
    /// Takes of what was typed what is not for the program.
    fn typed(&mut self, typed: &mut Vec<u8>) {
        let _ = typed;
    }
    /// When there is something to do about questions, whatever else comes.
    fn due(&self) -> Option<Instant> {
        None
    }
    /// Does it. `is_shown` says whether all is shown that was to be.
    fn turn(&mut self, is_shown: bool) -> Turn {
        let _ = is_shown;
        Turn::default()
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
    /// What a person is asked, the oldest first, where that has changed since this was called
    /// last.
    fn questions(&mut self) -> Option<Vec<Pending>> {
        None
    }
    /// Who started the run answers. Whether the program may go on.
    fn answered(&mut self, answered: Answered) -> bool {
        let _ = answered;
        true
    }
    /// What has begun to listen inside since it was asked last.
    fn begun(&mut self) -> Vec<Listener> {
        Vec::new()
    }
}
