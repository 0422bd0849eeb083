//! Execs beside the first, files, and standing still: what a living sandbox is asked for.

use std::time::{Duration, Instant};

use atoll_frame::Order;
use atoll_ledger::Armed;
use atoll_model::{Ending, LimitHit};
use atoll_policy::ExecGrant;
use rustix::event::{PollFd, PollFlags, poll};

use super::frozen::Stopped;
use super::limited::{Killed, of_limit};
use super::streams::ExecStreams;
use super::{GRACE, SIGKILL, SIGTERM, Session, frozen, not_started};
use crate::attachment::{EndedExec, FilesRequest, SandboxRequest, StartExec};
use crate::{Attachment, SandboxError, Stream};

/// The longest time until all processes have stopped once they were told to.
const FROZEN_WITHIN: Duration = Duration::from_secs(10);
/// The most execs at once beside the first.
const EXECS_MAX: usize = 64;

/// The state of a sandbox that is to be frozen.
pub(super) enum Freezing {
    /// Its processes were told to stop, and have until then.
    Until(Instant),
    /// Every one has stopped: these threads.
    Done(Stopped),
}

/// An exec beside the first.
pub(super) struct FurtherExec {
    pub(super) streams: ExecStreams,
    pub(super) attachment: Box<dyn Attachment>,
    pub(super) started: Instant,
    /// The end of its own time, if it has a limit.
    pub(super) end_at: Option<Instant>,
    /// Set once its time is over: when it is killed.
    pub(super) kill_at: Option<Instant>,
    /// The failure to start it.
    pub(super) failure: Option<SandboxError>,
    /// True if it ended because the sandbox did.
    pub(super) with_run: bool,
    /// Set where the kernel ended processes for lack of memory while it ran.
    pub(super) killed: Killed,
    pub(super) armed: Armed<ExecGrant>,
}

impl FurtherExec {
    /// Reads and shows what is left once the sandbox is gone; what cannot be shown at once is
    /// dropped.
    pub(super) fn drain(&mut self, block: &mut [u8]) {
        let Self {
            streams,
            attachment,
            ..
        } = self;
        for stream in [Stream::Output, Stream::Error] {
            streams.take_output(stream, attachment.as_mut(), block);
            while streams.has_pending() {
                let sink = [PollFd::from_borrowed_fd(
                    attachment.sink(stream),
                    PollFlags::OUT,
                )];
                let soon = rustix::event::Timespec {
                    tv_sec: 0,
                    tv_nsec: 100_000_000,
                };
                if !matches!(poll(&mut { sink }, Some(&soon)), Ok(1..)) {
                    streams.shown = [Vec::new(), Vec::new()];
                    streams.close(stream);
                    break;
                }
                streams.show(stream, attachment.as_ref());
                if streams.shown.get(stream as usize).is_none_or(Vec::is_empty) {
                    break;
                }
            }
        }
    }
}

impl Session<'_> {
    /// Carries out the requests that came meanwhile.
    pub(super) fn serve_requests(&mut self) {
        for request in self.carrier.requests() {
            match request {
                SandboxRequest::Exec(exec) => self.start_exec(*exec),
                SandboxRequest::Files(FilesRequest { served }) => served(match self.freezing {
                    None => self.server.serve_files(),
                    Some(_) => Err(SandboxError::Frozen),
                }),
            }
        }
    }

    fn start_exec(&mut self, exec: StartExec) {
        let StartExec {
            mut command,
            attachment,
        } = exec;
        let now = Instant::now();
        self.note_kills();
        let begun = match self.further.len() < EXECS_MAX {
            // Nothing is started while everything stands still.
            _ if self.freezing.is_some() => Err(SandboxError::Frozen),
            true => self
                .server
                .prepare(&mut command)
                .and_then(|prepared| self.server.start(prepared)),
            false => Err(SandboxError::TooManyExecs(EXECS_MAX)),
        };
        let armed = command.armed;
        match begun {
            Ok(ends) => {
                let mut streams = ExecStreams::new(ends);
                streams.close_absent_input(attachment.as_ref());
                let limit = armed.grant().wall_clock();
                self.further.push(FurtherExec {
                    streams,
                    attachment,
                    started: now,
                    end_at: limit.and_then(|limit| now.checked_add(limit)),
                    kill_at: None,
                    failure: None,
                    with_run: false,
                    killed: Killed::No,
                    armed,
                });
            }
            Err(error) => self.carrier.exec_ended(EndedExec {
                armed,
                ending: Err(error),
                wall_clock: Duration::ZERO,
                with_run: false,
            }),
        }
    }

    /// Stops or continues all processes, as is wanted now. They are frozen once every thread is
    /// seen to have stopped.
    pub(super) fn freeze_or_thaw(&mut self) {
        let now = Instant::now();
        match (self.carrier.wants_frozen(), &self.freezing) {
            (true, None) if self.server.is_fenced() => {
                let why = "without namespaces nothing can stop all of its processes at once";
                self.carrier.frozen(Err(why.to_owned()));
            }
            (true, None) => {
                self.order(Order::Freeze);
                self.frozen_at = now;
                self.freezing = Some(Freezing::Until(now + FROZEN_WITHIN));
            }
            (true, Some(Freezing::Until(at))) => {
                if let Some(threads) = frozen::stopped(self.launcher) {
                    self.freezing = Some(Freezing::Done(Stopped::new(threads, now)));
                    self.carrier.frozen(Ok(()));
                } else if now >= *at {
                    let why = "a process of it waits for the kernel, and does not stop";
                    self.carrier.frozen(Err(why.to_owned()));
                }
            }
            (false, Some(_)) => {
                self.order(Order::Thaw);
                self.freezing = None;
                // The time that a program stood still is none of its own.
                let stood = now.saturating_duration_since(self.frozen_at);
                for exec in &mut self.further {
                    let lost_at = &mut exec.streams.lost_at;
                    for at in [&mut exec.end_at, &mut exec.kill_at, lost_at] {
                        *at = at.map(|at| at + stood);
                    }
                }
            }
            (true, Some(Freezing::Done(stopped))) => {
                // Of those who came meanwhile.
                self.carrier.frozen(Ok(()));
                // A timer of a program's own can have continued it.
                let has_held = || stopped.has_held(frozen::stopped(self.launcher), now);
                self.carrier.check_frozen(&has_held);
            }
            (false, None) => {}
        }
    }

    /// Reports the further execs that have ended, once all that they wrote is shown.
    pub(super) fn end_execs(&mut self) {
        let is_over = |exec: &FurtherExec| {
            let streams = &exec.streams;
            let waits = streams.output_is_open() && streams.has_output();
            streams.ended.is_some() && !streams.has_pending() && !waits
        };
        while let Some(at) = self.further.iter().position(is_over) {
            let mut exec = self.further.swap_remove(at);
            exec.streams.give_back(exec.attachment.as_ref());
            exec.attachment.finish();
            let ended = exec.streams.ended.unwrap_or_else(Instant::now);
            let hit = exec.kill_at.is_some();
            self.carrier.exec_ended(EndedExec {
                armed: exec.armed,
                ending: match (exec.failure, exec.streams.ending) {
                    (Some(error), _) => Err(error),
                    (None, _) if hit => Ok(Ending::Limited {
                        limit: LimitHit::WallClock,
                    }),
                    (None, Some(ending)) => {
                        let hit = self.hit.filter(|_| exec.with_run);
                        Ok(of_limit(ending, hit, exec.killed))
                    }
                    (None, None) => Err(SandboxError::Vanished),
                },
                wall_clock: ended.saturating_duration_since(exec.started),
                with_run: exec.with_run,
            });
        }
    }

    /// Ends the further execs whose own time is over.
    pub(super) fn watch_execs(&mut self, now: Instant) {
        if self.freezing.is_some() {
            return;
        }
        let mut orders = Vec::new();
        for exec in self
            .further
            .iter_mut()
            .filter(|exec| exec.streams.ended.is_none())
        {
            let id = exec.streams.id;
            if exec.end_at.take_if(|at| now >= *at).is_some() {
                orders.push(Order::Signal(id, SIGTERM));
                exec.kill_at = Some(now + GRACE);
            } else if exec.kill_at.is_some_and(|at| now >= at) {
                orders.push(Order::Signal(id, SIGKILL));
                exec.kill_at = Some(now + GRACE);
                exec.streams.expect_end(now);
            }
            if exec.streams.is_overdue(now) {
                // Whoever waits for it is not to wait for ever: a process can be out of reach, and
                // the sandbox keep its end to itself.
                if !exec.streams.is_executing {
                    exec.failure = Some(not_started());
                }
                exec.streams.end(Ending::Signalled { signal: SIGKILL });
            }
        }
        orders.into_iter().for_each(|order| self.order(order));
        self.end_execs();
    }
}
