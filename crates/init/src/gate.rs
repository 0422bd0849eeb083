//! Calls of the program that come here: those that a fence judges, and those that
//! hardly any program makes but to get out. These are refused, counted and told of.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_fence::{Fence, request};
use atoll_frame::Report;
use atoll_sys::judging::{self, Answer};
use atoll_sys::socket;

use crate::filter::Coming;

/// How often counts are told of at most. What is new is told of at once.
const TOLD_EVERY: Duration = Duration::from_secs(1);

const EPERM: i32 = 1;

/// Where calls wait.
pub(crate) struct Gate {
    listener: OwnedFd,
    fence: Option<Fence>,
    coming: Vec<Coming>,
    /// At most one for each call that can come.
    attempts: Vec<Attempt>,
    tell_at: Instant,
}

struct Attempt {
    call: u32,
    name: &'static str,
    /// Who made it first.
    pid: u32,
    count: u64,
    told: u64,
}

impl Gate {
    pub(crate) fn new(listener: OwnedFd, fence: Option<Fence>, coming: Vec<Coming>) -> Self {
        Self {
            listener,
            fence,
            coming,
            attempts: Vec::new(),
            tell_at: Instant::now(),
        }
    }

    /// Readable when a call waits, and for ever once no caller is left.
    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Whether calls are judged here.
    pub(crate) fn is_fence(&self) -> bool {
        self.fence.is_some()
    }

    /// Answers one waiting call; there has to be one. No attempt goes on, and it is told
    /// of before it is answered: what its caller does next cannot keep that back.
    ///
    /// # Errors
    /// When the listener itself fails: then every further call fails too.
    pub(crate) fn attend(&mut self, control: &OwnedFd) -> io::Result<()> {
        let Some(call) = judging::next(self.listener.as_fd())? else {
            return Ok(());
        };
        let known = self.coming.iter().find(|one| one.number == call.call);
        let error = known.map_or(EPERM, |one| i32::from(one.error));
        let (answer, attempt) = match &mut self.fence {
            Some(fence) if request(call.call).is_some() => {
                let judged = fence.judge(self.listener.as_fd(), &call);
                (judged.answer, judged.attempt)
            }
            Some(_) | None => (Answer::Error(error), true),
        };
        if let Some(known) = known.filter(|_| attempt) {
            let name = known.name;
            if self.count(call.call, name, call.thread) {
                self.tell(control);
            }
        }
        judging::answer(self.listener.as_fd(), call.id, answer)
    }

    /// Counts an attempt; whether it is the first of its kind.
    fn count(&mut self, call: u32, name: &'static str, pid: u32) -> bool {
        let mut known = self.attempts.iter_mut();
        if let Some(known) = known.find(|one| one.call == call) {
            known.count = known.count.saturating_add(1);
            return false;
        }
        self.attempts.push(Attempt {
            call,
            name,
            pid,
            count: 1,
            told: 0,
        });
        true
    }

    /// How long until counts are told of that have not been yet.
    pub(crate) fn pause_ms(&self) -> Option<u32> {
        let is_more = self.attempts.iter().any(|one| one.told < one.count);
        let left = self.tell_at.saturating_duration_since(Instant::now());
        is_more.then(|| {
            u32::try_from(left.as_millis())
                .unwrap_or(u32::MAX)
                .saturating_add(1)
        })
    }

    /// Tells of counts, when it is time.
    pub(crate) fn tell_in_time(&mut self, control: &OwnedFd) {
        if Instant::now() >= self.tell_at {
            self.tell(control);
        }
    }

    /// Tells of every count that is not told yet. A host side that does not listen is
    /// told later: this process has more to do than to wait for it.
    pub(crate) fn tell(&mut self, control: &OwnedFd) {
        for one in self.attempts.iter_mut().filter(|one| one.told < one.count) {
            let report = Report::Attempt {
                call: one.name.as_bytes().to_vec(),
                pid: one.pid,
                count: one.count,
            };
            if socket::send(control.as_fd(), &report.to_bytes(), &[]).is_ok() {
                one.told = one.count;
            }
        }
        self.tell_at = Instant::now() + TOLD_EVERY;
    }
}
