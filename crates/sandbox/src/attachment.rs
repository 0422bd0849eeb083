use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use atoll_model::network::{
    AskedCall, Breadth, CallDigest, Listener, Published, PublishedPort, Scope,
};

use crate::approvals::{Decision, Pending, Who};
use crate::control::{Declined, PortAgreed};

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
    /// What a person wants to have published.
    pub publishes: Option<PublishedPort>,
    /// The size that the program is told its terminal has.
    pub resized: Option<crate::Size>,
}

/// What whoever sits there is told where something takes two persons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfTwo {
    /// Nobody but the run's own user is heard, and what takes two is denied.
    Unheard,
    /// One has said yes to this question.
    Question(Box<Pending>),
    /// One has said yes to a port.
    Port(PortAgreed),
    /// Both have answered.
    Settled(Box<Settled>),
}

/// What a second person has answered after the yes of a first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Who said yes first.
    pub first: Who,
    /// Who has answered then.
    pub by: Who,
    /// What it was about, and what came of it.
    pub of: SettledOf,
}

/// What two persons have answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettledOf {
    /// A question.
    Question {
        /// Its number.
        approval: u32,
        /// What it asked about.
        call: Box<AskedCall>,
        /// For how long and for what both have said yes; nothing where the second said no.
        granted: Option<(Scope, Breadth)>,
    },
    /// A port.
    Port {
        /// Which.
        port: PublishedPort,
        /// Why it is not published for all that.
        refused: Option<String>,
    },
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
    /// What came of a port that a person wanted to have published: what is shown of that, and
    /// where. Nothing is published yet where that takes another person too.
    fn published(
        &mut self,
        port: PublishedPort,
        done: &Result<Option<Published>, Declined>,
    ) -> Option<(Stream, Vec<u8>)> {
        let _ = (port, done);
        None
    }
    /// Whether a line can be shown: not in the midst of a screen that a program has drawn.
    fn takes_lines(&self) -> bool {
        true
    }
    /// Something takes two persons: what is shown of that, and where.
    fn of_two(&mut self, told: &OfTwo) -> Option<(Stream, Vec<u8>)> {
        let _ = told;
        None
    }
    /// What a person is asked is this by now: all that is open, the oldest first.
    fn asked(&mut self, open: Vec<Pending>) {
        let _ = open;
    }
    /// The program has ended: nothing is asked any more, and no key means anything.
    fn over(&mut self) {}
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
    /// Who started the run wants one more port published; nothing where that takes another
    /// person too.
    ///
    /// # Errors
    /// Why it is not.
    fn publish(&mut self, port: PublishedPort) -> Result<Option<Published>, Declined> {
        Err(Declined {
            why: format!("nothing leads to port {} inside", port.inside),
            advice: "start the run anew, with a network".to_owned(),
        })
    }
    /// The program has tried to get out, which takes from its reputation.
    fn attempted(&mut self) {}
    /// What has begun to listen inside since it was asked last.
    fn begun(&mut self) -> Vec<Listener> {
        Vec::new()
    }
    /// What takes two persons and has not been told of: it is taken as told.
    fn of_two(&mut self) -> Vec<OfTwo> {
        Vec::new()
    }
}
