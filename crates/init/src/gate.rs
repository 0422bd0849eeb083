//! Calls of the program that come to `init`: those that a fence judges, and violations, which are
//! refused, counted and reported.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_fence::{Fence, request};
use atoll_frame::Report;
use atoll_sys::judging::{self, Answer, Waiting};
use atoll_sys::socket;

use crate::filter::{Coming, Denials, coming};

/// The time after which counts are first reported; each further interval is twice as long as the
/// last, up to a limit. A new kind of violation is reported at once.
const TOLD_AFTER: Duration = Duration::from_secs(1);
const TOLD_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// The most reports of counts before the end. Together with those of new kinds and all at the end
/// they fit into the socket's buffer: a host side that was stopped misses nothing, least of all the
/// program's end.
const TOLD_BETWEEN_MAX: u32 = 64;

const EPERM: i32 = 1;

/// The listener of a program's filter, with the counts of its violations.
pub(crate) struct Gate {
    /// `None` if no call is reported, and once no caller is left.
    listener: Option<OwnedFd>,
    fence: Option<Fence>,
    denials: Denials,
    /// All calls that can come, once one has: most programs make none.
    coming: Option<Vec<Coming>>,
    /// The violations so far, at most one for each call that can come.
    attempts: Vec<Attempt>,
    tell_at: Instant,
    tell_after: Duration,
    tell_between: u32,
}

struct Attempt {
    call: u32,
    name: &'static str,
    /// The process that made it first.
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

    /// Returns the listener: readable when a call waits, and once when no caller is left.
    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Answers one waiting call; there has to be one. A violation is never let through, and is
    /// reported before the answer: nothing that its caller does next can suppress the report.
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

    /// Counts a violation, and reports the first of its kind.
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

    /// Returns the time until counts are to be reported.
    pub(crate) fn pause_ms(&self) -> Option<u32> {
        let left = self.tell_at.saturating_duration_since(Instant::now());
        let left = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        self.is_more().then_some(left.saturating_add(1))
    }

    fn is_more(&self) -> bool {
        self.tell_between > 0 && self.attempts.iter().any(|one| one.told < one.count)
    }

    /// Reports counts, when it is time.
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

    /// Reports at the end every count that has not been reported yet.
    pub(crate) fn tell_rest(&mut self, control: &OwnedFd) {
        let untold = self.attempts.iter_mut().filter(|one| one.told < one.count);
        untold.for_each(|one| one.tell(control));
    }
}

impl Attempt {
    /// Reports the count. A host side that does not read is not waited for: there is more to do.
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
