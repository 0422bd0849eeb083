//! Calls of the program that come here: those that a fence judges, and those that
//! hardly any program makes but to get out. These are refused, counted and told of.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_fence::{Fence, request};
use atoll_frame::Report;
use atoll_sys::judging::{self, Answer, Waiting};
use atoll_sys::socket;

use crate::filter::{Coming, Denials, coming};

/// When counts are told of first; each time it takes twice as long as the last, up to a
/// limit. What is new is told of at once.
const TOLD_AFTER: Duration = Duration::from_secs(1);
const TOLD_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// How many counts are told of before the end. With what is new, and all of them at the
/// end, that is less than the line holds: a host side that was stopped misses nothing,
/// and the program's end least of all.
const TOLD_BETWEEN_MAX: u32 = 64;

const EPERM: i32 = 1;

/// Where calls wait.
pub(crate) struct Gate {
    /// None where no call is heard of, and once no caller is left.
    listener: Option<OwnedFd>,
    fence: Option<Fence>,
    denials: Denials,
    /// All calls that can come, once there is one: most programs make none.
    coming: Option<Vec<Coming>>,
    /// At most one for each call that can come.
    attempts: Vec<Attempt>,
    tell_at: Instant,
    tell_after: Duration,
    tell_between: u32,
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
    pub(crate) fn new(listener: Option<OwnedFd>, fence: Option<Fence>, denials: Denials) -> Self {
        Self {
            listener,
            fence,
            denials,
            coming: None,
            attempts: Vec::new(),
            tell_at: Instant::now(),
            tell_after: TOLD_AFTER,
            tell_between: TOLD_BETWEEN_MAX,
        }
    }

    /// Readable when a call waits, and once when no caller is left.
    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Answers one waiting call; there has to be one. No attempt goes on, and it is told
    /// of before it is answered: what its caller does next cannot keep that back.
    ///
    /// # Errors
    /// When the listener itself fails: then every further call fails too.
    pub(crate) fn attend(&mut self, control: &OwnedFd) -> io::Result<()> {
        let Some(listener) = self.listener.take() else {
            return Ok(());
        };
        if let Some(call) = judging::next(listener.as_fd())? {
            self.judge(&listener, &call, control)?;
        } else if !judging::has_callers(listener.as_fd()) {
            // The end of the program is told of by its parent's signal, later: until
            // then this would be ready without a pause.
            return Ok(());
        }
        self.listener = Some(listener);
        Ok(())
    }

    fn judge(&mut self, listener: &OwnedFd, call: &Waiting, control: &OwnedFd) -> io::Result<()> {
        let coming = self.coming.get_or_insert_with(|| coming(self.denials));
        let known = coming.iter().find(|one| one.number == call.call).copied();
        let error = known.map_or(EPERM, |one| i32::from(one.error));
        let (answer, attempt) = match &mut self.fence {
            Some(fence) if request(call.call).is_some() => {
                let judged = fence.judge(listener.as_fd(), call);
                (judged.answer, judged.attempt)
            }
            Some(_) | None => (Answer::Error(error), true),
        };
        if let Some(Coming { name, number, .. }) = known.filter(|_| attempt) {
            self.count(number, name, call.thread, control);
        }
        judging::answer(listener.as_fd(), call.id, answer)
    }

    /// Counts an attempt, and tells of the first of its kind.
    fn count(&mut self, call: u32, name: &'static str, pid: u32, control: &OwnedFd) {
        let mut known = self.attempts.iter_mut();
        if let Some(known) = known.find(|one| one.call == call) {
            known.count = known.count.saturating_add(1);
            return;
        }
        let mut first = Attempt {
            call,
            name,
            pid,
            count: 1,
            told: 0,
        };
        first.tell(control);
        if self.attempts.is_empty() {
            self.tell_at = Instant::now() + TOLD_AFTER;
        }
        self.attempts.push(first);
    }

    /// How long until counts are told of that have not been yet.
    pub(crate) fn pause_ms(&self) -> Option<u32> {
        let left = self.tell_at.saturating_duration_since(Instant::now());
        let left = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        self.is_more().then_some(left.saturating_add(1))
    }

    fn is_more(&self) -> bool {
        self.tell_between > 0 && self.attempts.iter().any(|one| one.told < one.count)
    }

    /// Tells of counts, when it is time.
    pub(crate) fn tell_in_time(&mut self, control: &OwnedFd) {
        let now = Instant::now();
        if !self.is_more() || now < self.tell_at {
            return;
        }
        for one in self.attempts.iter_mut().filter(|one| one.told < one.count) {
            if let Some(left) = self.tell_between.checked_sub(1) {
                self.tell_between = left;
                one.tell(control);
            }
        }
        self.tell_at = now + self.tell_after;
        self.tell_after = self.tell_after.saturating_mul(2).min(TOLD_AFTER_MAX);
    }

    /// Tells at the end of every count that is not told yet.
    pub(crate) fn tell_rest(&mut self, control: &OwnedFd) {
        let untold = self.attempts.iter_mut().filter(|one| one.told < one.count);
        untold.for_each(|one| one.tell(control));
    }
}

impl Attempt {
    /// A host side that does not listen is not waited for: there is more to do.
    fn tell(&mut self, control: &OwnedFd) {
        let report = Report::Attempt {
            call: self.name.as_bytes().to_vec(),
            pid: self.pid,
            count: self.count,
        };
        if socket::send(control.as_fd(), &report.to_bytes(), &[]).is_ok() {
            self.told = self.count;
        }
    }
}
