//! The sources that a session waits on.

use std::os::fd::BorrowedFd;

use atoll_frame::ExecId;
use rustix::event::{PollFd, PollFlags};

use crate::Stream;

/// The sources of one wait.
#[derive(Default)]
pub(super) struct Sources<'a> {
    pub(super) set: Vec<PollFd<'a>>,
    kinds: Vec<Waits>,
}

impl<'a> Sources<'a> {
    pub(super) fn add(&mut self, fd: BorrowedFd<'a>, flags: PollFlags, kind: Waits) {
        self.set.push(PollFd::from_borrowed_fd(fd, flags));
        self.kinds.push(kind);
    }

    /// Returns the kinds of those that are ready, each once.
    pub(super) fn ready(self) -> Vec<Waits> {
        let ready = self.set.iter().zip(self.kinds);
        let ready = ready.filter(|(polled, _)| !polled.revents().is_empty());
        let mut ready: Vec<Waits> = ready.map(|(_, kind)| kind).collect();
        ready.dedup();
        ready
    }
}

/// The kinds of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    Control,
    Line,
    Outside,
    Status(ExecId),
    Signals(ExecId),
    Typing(ExecId),
    ProgramReads(ExecId),
    Written(ExecId, Stream),
    Sink(ExecId, Stream),
}
