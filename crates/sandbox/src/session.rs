//! The supervision of a sandbox: input, output, signals and time, until it is gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_frame::{MESSAGE_BYTES_MAX, Order, Report, Stage};
use atoll_ledger::Armed;
use atoll_model::{
    Attempt, Boundary, Call, Ending, Enforcement, LimitHit, Limits, Outcome, Usage, Wall,
};
use atoll_policy::Grant;
use atoll_sys::terminal::{WindowSize, set_window_size};
use atoll_sys::{descriptor, socket};
use rustix::event::{PollFd, PollFlags, poll};

use crate::disk::DiskWatch;
use crate::groups::{Counted, Groups};
use crate::launcher::{Departing, Launcher};
use crate::{Attachment, Carrier, Reaction, SandboxError, Stream};

/// The rows and columns of a terminal.
pub type Size = WindowSize;

/// The time that a program has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// The most read at once, bytes.
const BLOCK_BYTES: usize = 64 * 1024;
/// The most written at once to a pipe that has room, bytes: POSIX guarantees that this much
/// fits, so that a slow reader never blocks the watch over limits.
const PIPE_BLOCK_BYTES: usize = 4096;
/// The pending output at which reading pauses, bytes.
const PENDING_BYTES_MAX: usize = 256 * 1024;

/// The byte of the suspend key, unless the terminal is set otherwise.
const CONTROL_Z: u8 = 0x1a;

const SIGTERM: u8 = 15;
const SIGHUP: u8 = 1;
const SIGKILL: u8 = 9;
const ENOENT: i32 = 2;

/// Records a violation, and returns whether the program may go on.
pub type Witness<'a> = &'a mut dyn FnMut(&Attempt) -> bool;

/// The host's ends of a sandbox's pipes and control socket.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) control: OwnedFd,
    pub(crate) input: Option<OwnedFd>,
    pub(crate) output: Option<OwnedFd>,
    pub(crate) error: Option<OwnedFd>,
}

/// A sandbox that is being built, or waits: its program has not been started. Dropping it ends
/// it.
#[derive(Debug)]
pub struct Assembled {
    call: Call,
    boundary: Boundary,
    sandbox: Option<Running>,
}

impl Assembled {
    pub(crate) fn new(call: Call, boundary: Boundary, sandbox: Running) -> Self {
        Self {
            call,
            boundary,
            sandbox: Some(sandbox),
        }
    }

    /// Lets the program start, now that its call is on disk.
    ///
    /// # Errors
    /// [`SandboxError::AnotherCall`]: the right is for another call or another boundary, or was
    /// used before.
    pub fn start(mut self, armed: &mut Armed<Grant>) -> Result<Running, SandboxError> {
        let is_this = armed.call() == &self.call && armed.grant().boundary() == &self.boundary;
        match self.sandbox.take_if(|_| is_this && armed.use_up()) {
            None => Err(SandboxError::AnotherCall),
            Some(running) => {
                // When nobody is there to obey, attending finds out why.
                let start = Order::Start.to_bytes();
                let _ = socket::send(running.lines.control.as_fd(), &start, &[]);
                Ok(running)
            }
        }
    }
}

impl Drop for Assembled {
    fn drop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            sandbox.abandon();
        }
    }
}

/// A running sandbox.
#[derive(Debug)]
pub struct Running {
    pub(crate) launcher: Launcher,
    pub(crate) lines: Lines,
    pub(crate) groups: Option<Groups>,
    pub(crate) enforcement: Vec<Enforcement>,
    pub(crate) disk: DiskWatch,
    pub(crate) limits: Limits,
}

impl Running {
    /// Supervises the sandbox until it is gone and all its output is shown. Its launcher may
    /// take a moment longer.
    ///
    /// `witness` is called at once for the first violation of each kind, and says whether the
    /// program may go on.
    ///
    /// # Errors
    /// [`SandboxError`]; the sandbox is gone then as well.
    pub fn attend(
        self,
        attachment: &mut dyn Attachment,
        witness: Witness<'_>,
        carrier: &mut dyn Carrier,
    ) -> Result<(Outcome, Option<Departing>), SandboxError> {
        let Self {
            launcher,
            lines,
            groups,
            mut enforcement,
            disk,
            limits,
        } = self;
        let mut session = Session {
            line: Some(&launcher.line),
            launcher: launcher.pid,
            lines,
            disk,
            limits: &limits,
            terminal: None,
            ending: None,
            failure: None,
            used: None,
            hit: None,
            started: Instant::now(),
            ended: None,
            active: Instant::now(),
            kill_at: None,
            abandon_at: None,
            typed: Vec::new(),
            suspend_typed: false,
            stop_waits: false,
            has_run: false,
            input_open: true,
            control_open: true,
            shown: [Vec::new(), Vec::new()],
            attempts: Vec::new(),
            witness,
            carrier,
        };
        let attended = session.attend(attachment);
        let result = attended.and_then(|()| session.finish());
        let counted = groups.as_ref().map(Groups::counted).unwrap_or_default();
        if groups.as_ref().is_some_and(|groups| !groups.hold()) {
            lost(&mut enforcement);
        }
        let is_gone = session.used.is_some();
        let attempts = std::mem::take(&mut session.attempts);
        // Closing both lines ends whatever is left, before the groups go.
        drop(session);
        // One that has not told the end may have to make it first.
        let departing = Some(launcher.let_go()).filter(|_| is_gone);
        if let Some(groups) = groups {
            groups.remove();
        }
        let (ending, usage) = result?;
        let outcome = Outcome {
            attempts,
            ..outcome(ending, usage, counted, enforcement)
        };
        Ok((outcome, departing))
    }

    /// Ends a sandbox whose program was not started.
    fn abandon(self) {
        let Self {
            launcher,
            lines,
            groups,
            ..
        } = self;
        drop(lines);
        drop(launcher.let_go());
        if let Some(groups) = groups {
            groups.remove();
        }
    }
}

/// Marks limits that control groups did not enforce to the end.
fn lost(enforcement: &mut [Enforcement]) {
    for one in enforcement {
        if one.by.starts_with("cgroup") {
            one.by.push_str(", in part");
        }
    }
}

/// Combines what the session observed with the groups' counters.
fn outcome(
    ending: Ending,
    mut usage: Usage,
    counted: Counted,
    enforcement: Vec<Enforcement>,
) -> Outcome {
    if let Some(peak) = counted.memory_peak_bytes {
        usage.memory_peak_bytes = peak;
        usage.memory_is_whole = true;
    }
    if let Some(cpu_us) = counted.cpu_us {
        usage.cpu = Duration::from_micros(cpu_us);
    }
    usage.memory_kills = counted.memory_kills;
    usage.processes_refused = counted.processes_refused;
    let was_killed = counted.memory_kills > 0 && ending != (Ending::Exited { status: 0 });
    let ending = match ending {
        Ending::Exited { .. } | Ending::Signalled { .. } if was_killed => Ending::Limited {
            limit: LimitHit::Memory,
        },
        other => other,
    };
    Outcome {
        ending,
        usage,
        enforcement,
        attempts: Vec::new(),
    }
}

struct Session<'a> {
    line: Option<&'a OwnedFd>,
    launcher: u32,
    lines: Lines,
    disk: DiskWatch,
    limits: &'a Limits,
    terminal: Option<OwnedFd>,
    ending: Option<Ending>,
    failure: Option<SandboxError>,
    used: Option<(u64, u64)>,
    hit: Option<LimitHit>,
    started: Instant,
    ended: Option<Instant>,
    active: Instant,
    kill_at: Option<Instant>,
    abandon_at: Option<Instant>,
    typed: Vec<u8>,
    suspend_typed: bool,
    /// True if the person suspended the program, and this side is still to follow.
    stop_waits: bool,
    has_run: bool,
    input_open: bool,
    control_open: bool,
    shown: [Vec<u8>; 2],
    /// The violations, at most one for each call that can be reported.
    attempts: Vec<Attempt>,
    witness: Witness<'a>,
    carrier: &'a mut dyn Carrier,
}

/// The sources that are ready after a wait.
#[derive(Default)]
struct Ready {
    line: bool,
    control: bool,
    signals: bool,
    typing: bool,
    program_reads: bool,
    outside: bool,
    written: [bool; 2],
    sinks: [bool; 2],
}

impl Session<'_> {
    fn attend(&mut self, attachment: &mut dyn Attachment) -> Result<(), SandboxError> {
        let mut block = vec![0_u8; BLOCK_BYTES];
        if attachment.input().is_none() {
            // Who reads finds the end at once.
            (self.input_open, self.lines.input) = (false, None);
        }
        while self.line.is_some() || self.output_is_open() || self.has_pending() {
            let ready = self
                .wait(attachment)
                .map_err(SandboxError::host("waiting for the sandbox failed"))?;
            if ready.control {
                self.hear_init()?;
            }
            if ready.line {
                self.hear_launcher()?;
            }
            let is_due = self.carrier.due().is_some_and(|at| at <= Instant::now());
            if (ready.outside || is_due) && !self.carrier.attend() {
                self.order_end(Instant::now());
            }
            if ready.signals {
                while let Some(reaction) = attachment.next_signal() {
                    self.react(reaction);
                }
            }
            if ready.typing {
                self.take_input(attachment, &mut block);
            }
            if ready.program_reads {
                self.pass_input();
            }
            for stream in [Stream::Output, Stream::Error] {
                let index = stream as usize;
                if ready.written.get(index) == Some(&true) {
                    self.take_output(stream, attachment, &mut block);
                }
                if ready.sinks.get(index) == Some(&true) {
                    self.show(stream, attachment);
                }
            }
            while self.put_questions(attachment) {}
            self.tell_begun(attachment);
            self.tell_of_two(attachment);
            self.give_way(attachment);
            self.watch(Instant::now());
        }
        Ok(())
    }

    /// Lets the prompts work, and carries out the person's answers. Returns whether there may
    /// be more to do at once.
    fn put_questions(&mut self, attachment: &mut dyn Attachment) -> bool {
        // Nobody waits for an answer once the program has ended.
        let open = match self.ended {
            Some(_) => {
                attachment.over();
                Some(Vec::new())
            }
            None => self.carrier.questions(),
        };
        if let Some(open) = open {
            attachment.asked(open);
        }
        let had_terminal = attachment.has_terminal();
        let turn = attachment.turn(!self.has_pending());
        if had_terminal || attachment.has_terminal() {
            // The program can neither read nor write: a person, not the program, takes this time.
            self.active = Instant::now();
        }
        self.append(turn.shown);
        if let Some((terminal, size)) = self.terminal.as_ref().zip(turn.resized) {
            // A terminal that is closing has no size to set.
            let _ = set_window_size(terminal.as_fd(), size);
        }
        if let Some(port) = turn.publishes {
            let done = self.carrier.publish(port);
            let told = attachment.published(port, &done);
            self.append(told.into_iter().collect());
        }
        let Some(answered) = turn.answered else {
            return false;
        };
        if !self.carrier.answered(answered) {
            self.order_end(Instant::now());
        }
        true
    }

    /// Suspends this side with a program that was suspended while a prompt had the terminal.
    fn give_way(&mut self, attachment: &mut dyn Attachment) {
        if self.stop_waits && !attachment.has_terminal() && !self.has_pending() {
            self.stop_waits = false;
            attachment.suspended();
            self.order(Order::Continue);
        }
    }

    /// Shows new listeners, in step with the program's output.
    fn tell_begun(&mut self, attachment: &mut dyn Attachment) {
        if attachment.has_terminal() {
            return;
        }
        let listeners = self.carrier.begun();
        let told = listeners.iter().filter_map(|one| attachment.begun(one));
        let told = told.collect();
        self.append(told);
    }

    /// Shows notices about dual control, once the screen can take them.
    fn tell_of_two(&mut self, attachment: &mut dyn Attachment) {
        if attachment.has_terminal() || !attachment.takes_lines() {
            return;
        }
        let told = self.carrier.of_two();
        let told = told.iter().filter_map(|one| attachment.of_two(one));
        let told = told.collect();
        self.append(told);
    }

    fn append(&mut self, told: Vec<(Stream, Vec<u8>)>) {
        for (stream, told) in told {
            if let Some(shown) = self.shown.get_mut(stream as usize) {
                shown.extend_from_slice(&told);
            }
        }
    }

    fn output_is_open(&self) -> bool {
        self.lines.output.is_some() || self.lines.error.is_some() || self.terminal.is_some()
    }

    fn has_pending(&self) -> bool {
        self.shown.iter().any(|pending| !pending.is_empty())
    }

    /// Returns the source of a stream of the program.
    fn source(&self, stream: Stream) -> Option<&OwnedFd> {
        match stream {
            Stream::Output => self.terminal.as_ref().or(self.lines.output.as_ref()),
            Stream::Error => self.lines.error.as_ref(),
        }
    }

    fn wait(&self, attachment: &dyn Attachment) -> io::Result<Ready> {
        let mut waiting = Waiting::default();
        if let Some(line) = self.line {
            waiting.add(line.as_fd(), PollFlags::IN, Waits::Line);
        }
        if self.line.is_some() && self.control_open {
            waiting.add(self.lines.control.as_fd(), PollFlags::IN, Waits::Control);
        }
        if let Some(signals) = attachment.signals() {
            waiting.add(signals, PollFlags::IN, Waits::Signals);
        }
        let has_terminal = attachment.has_terminal();
        if self.input_open
            && (self.typed.is_empty() || has_terminal)
            && self.ended.is_none()
            && let Some(input) = attachment.input()
        {
            waiting.add(input, PollFlags::IN, Waits::Typing);
        }
        if !self.typed.is_empty()
            && let Some(input) = self.terminal.as_ref().or(self.lines.input.as_ref())
        {
            waiting.add(input.as_fd(), PollFlags::OUT, Waits::ProgramReads);
        }
        for stream in [Stream::Output, Stream::Error] {
            let pending = self.shown.get(stream as usize).map_or(0, Vec::len);
            let takes = pending < PENDING_BYTES_MAX && !has_terminal;
            if let Some(source) = self.source(stream).filter(|_| takes) {
                waiting.add(source.as_fd(), PollFlags::IN, Waits::Written(stream));
            }
            if pending > 0 {
                waiting.add(attachment.sink(stream), PollFlags::OUT, Waits::Sink(stream));
            }
        }
        for outside in self.carrier.waits_on() {
            waiting.add(outside, PollFlags::IN, Waits::Outside);
        }
        let Waiting { mut set, kinds } = waiting;
        let timeout = self.timeout(Instant::now(), attachment.due());
        match poll(&mut set, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let mut ready = Ready::default();
        for (polled, kind) in set.iter().zip(kinds) {
            if !polled.revents().is_empty() {
                ready.mark(kind);
            }
        }
        Ok(ready)
    }

    /// Returns the longest time to wait.
    fn timeout(&self, now: Instant, due: Option<Instant>) -> Option<rustix::event::Timespec> {
        let running = self.ended.is_none();
        let wall = self
            .limits
            .wall_clock
            .filter(|_| running && self.hit.is_none());
        let idle = self.limits.idle.filter(|_| running && self.hit.is_none());
        let next = [
            wall.map(|limit| self.started + limit),
            idle.map(|limit| self.active + limit),
            self.kill_at.filter(|_| self.line.is_some()),
            self.abandon_at.filter(|_| self.line.is_some()),
            self.disk.next().filter(|_| running),
            self.carrier.due(),
            due,
        ];
        let next = next.into_iter().flatten().min()?;
        // One millisecond more, so that a wait does not end just before its time.
        let left = next.saturating_duration_since(now) + Duration::from_millis(1);
        Some(rustix::event::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        })
    }

    fn hear_init(&mut self) -> Result<(), SandboxError> {
        let Some((report, mut descriptors)) = hear(&self.lines.control)? else {
            // Its end is told by the launcher too; until then nothing more comes.
            self.control_open = false;
            return Ok(());
        };
        match report {
            Report::Terminal => {
                // What is there to read can be gone again: a program may flush its terminal, and
                // the line that was readable may have been the one before it.
                self.terminal = descriptors.pop();
                if let Some(terminal) = &self.terminal {
                    descriptor::never_block(terminal.as_fd()).map_err(SandboxError::host(
                        "the program's terminal cannot be watched",
                    ))?;
                }
                self.lines.output = None;
                self.lines.error = None;
                self.lines.input = None;
            }
            Report::Running => {
                self.has_run = true;
                // It may have run for a while: the clock runs since the order to start.
                self.active = Instant::now();
            }
            Report::Failed {
                stage,
                error,
                detail,
            } => self.fail(stage, error, &detail),
            Report::NotExecuted { error: ENOENT } => self.end(Ending::NotFound),
            Report::NotExecuted { .. } => self.end(Ending::NotExecutable),
            // Only at the person's own wish: a program that stops itself does not
            // stop what watches over it.
            Report::Stopped { .. } if self.suspend_typed => {
                self.suspend_typed = false;
                self.stop_waits = true;
            }
            Report::Stopped { .. } => {}
            Report::MemoryReached => self.hit = Some(LimitHit::Memory),
            Report::TimeReached => self.hit = Some(LimitHit::WallClock),
            Report::Attempt { call, pid, count } => self.note(&call, pid, count),
            Report::Ended {
                signalled: true,
                number,
            } => {
                self.end(Ending::Signalled { signal: number });
            }
            Report::Ended {
                signalled: false,
                number,
            } => {
                self.end(Ending::Exited { status: number });
            }
            Report::Started { .. } | Report::Network | Report::Gone { .. } => {}
        }
        Ok(())
    }

    fn hear_launcher(&mut self) -> Result<(), SandboxError> {
        let Some(line) = self.line else { return Ok(()) };
        match hear(line)? {
            None => {
                // A launcher that was ended by someone else takes its child
                // along, but for a moment while that child changes its ids.
                self.line = None;
                self.order(Order::End);
            }
            Some((
                Report::Gone {
                    cpu_us,
                    memory_peak_bytes,
                },
                _,
            )) => {
                self.used = Some((cpu_us, memory_peak_bytes));
                self.line = None;
            }
            Some((
                Report::Failed {
                    stage,
                    error,
                    detail,
                },
                _,
            )) => {
                // What the launcher met is the cause of what its child met.
                self.failure = None;
                self.fail(stage, error, &detail);
            }
            Some((Report::Network, listeners)) => self.carrier.take(listeners, self.launcher),
            Some(_) => {}
        }
        if self.line.is_none() {
            self.ended.get_or_insert_with(Instant::now);
            self.drain_control();
        }
        Ok(())
    }

    /// Reads the last reports of `init`.
    fn drain_control(&mut self) {
        while self.ending.is_none() && self.failure.is_none() {
            let control = [Some(self.lines.control.as_fd())];
            if !matches!(descriptor::wait_readable(control, Some(0)), Ok([true])) {
                return;
            }
            match hear(&self.lines.control) {
                Ok(Some((
                    Report::Ended {
                        signalled: true,
                        number,
                    },
                    _,
                ))) => {
                    self.end(Ending::Signalled { signal: number });
                }
                Ok(Some((
                    Report::Ended {
                        signalled: false,
                        number,
                    },
                    _,
                ))) => {
                    self.end(Ending::Exited { status: number });
                }
                Ok(Some((Report::NotExecuted { error: ENOENT }, _))) => self.end(Ending::NotFound),
                Ok(Some((Report::NotExecuted { .. }, _))) => self.end(Ending::NotExecutable),
                Ok(Some((Report::MemoryReached, _))) => self.hit = Some(LimitHit::Memory),
                Ok(Some((Report::TimeReached, _))) => self.hit = Some(LimitHit::WallClock),
                Ok(Some((Report::Attempt { call, pid, count }, _))) => {
                    self.note(&call, pid, count);
                }
                Ok(Some((
                    Report::Failed {
                        stage,
                        error,
                        detail,
                    },
                    _,
                ))) => {
                    self.fail(stage, error, &detail);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Notes a violation reported by the first process: only of a known call, and no count that
    /// decreases. A false report can only be about its own sandbox.
    fn note(&mut self, call: &[u8], pid: u32, count: u64) {
        let Some(told) = Attempt::told(call, pid, count) else {
            return;
        };
        let mut known = self.attempts.iter_mut();
        if let Some(known) = known.find(|one| one.call == told.call) {
            known.count = known.count.max(told.count);
            return;
        }
        let is_new = self.attempts.iter().all(|one| one.wall != told.wall);
        self.attempts.push(told);
        if !is_new {
            return;
        }
        if !(self.witness)(&told) {
            self.order_end(Instant::now());
        }
        // What makes a sandbox for a part of itself begins like that too.
        if told.wall != Wall::Namespaces {
            self.carrier.attempted();
        }
    }

    fn fail(&mut self, stage: Stage, error: i32, detail: &[u8]) {
        self.failure
            .get_or_insert_with(|| making(stage, error, detail));
    }

    fn end(&mut self, ending: Ending) {
        self.ending = Some(ending);
        self.ended = Some(Instant::now());
    }

    /// Sends an order. If the receiver is gone, the end is near anyway.
    fn order(&self, order: Order) {
        let _ = socket::send(self.lines.control.as_fd(), &order.to_bytes(), &[]);
    }

    fn react(&mut self, reaction: Reaction) {
        match reaction {
            Reaction::Forward(number) => self.order(Order::Signal(number)),
            Reaction::Resize(size) => {
                if let Some(terminal) = &self.terminal {
                    // A terminal that is closing has no size to set.
                    let _ = set_window_size(terminal.as_fd(), size);
                }
            }
            Reaction::Ignore => {}
        }
    }

    fn take_input(&mut self, attachment: &mut dyn Attachment, block: &mut [u8]) {
        let Some(input) = attachment.input() else {
            return;
        };
        match descriptor::read(input, block) {
            Ok(got @ 1..) => {
                let is_suspend = |byte: &u8| *byte == CONTROL_Z;
                let mut typed = block.get(..got).unwrap_or_default().to_vec();
                attachment.typed(&mut typed);
                self.suspend_typed |= self.terminal.is_some() && typed.iter().any(is_suspend);
                self.active = Instant::now();
                self.typed.append(&mut typed);
            }
            // A terminal that is gone reads as an error or as the end.
            Ok(0) | Err(_) => {
                self.input_open = false;
                if self.terminal.is_some() {
                    // The window was closed. What does not end by that is ended.
                    self.order(Order::Signal(SIGHUP));
                    self.kill_at.get_or_insert(Instant::now() + GRACE);
                } else {
                    self.lines.input = None;
                }
            }
        }
    }

    fn pass_input(&mut self) {
        let Some(input) = self.terminal.as_ref().or(self.lines.input.as_ref()) else {
            self.typed.clear();
            return;
        };
        let chunk = self
            .typed
            .get(..self.typed.len().min(PIPE_BLOCK_BYTES))
            .unwrap_or_default();
        match rustix::io::write(input, chunk) {
            Ok(count) => {
                self.typed.drain(..count);
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            // The program reads no more.
            Err(_) => {
                self.typed.clear();
                self.lines.input = None;
                self.input_open = false;
            }
        }
    }

    fn take_output(&mut self, stream: Stream, attachment: &mut dyn Attachment, block: &mut [u8]) {
        let Some(source) = self.source(stream) else {
            return;
        };
        match descriptor::read(source.as_fd(), block) {
            Ok(got @ 1..) => {
                self.active = Instant::now();
                let written = block.get(..got).unwrap_or_default();
                if let Some(pending) = self.shown.get_mut(stream as usize) {
                    attachment.transform(stream, written, pending);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // A terminal whose last program is gone reads as an error (EIO).
            Ok(0) | Err(_) => self.close(stream),
        }
    }

    fn close(&mut self, stream: Stream) {
        match stream {
            Stream::Output => {
                self.lines.output = None;
                self.terminal = None;
            }
            Stream::Error => self.lines.error = None,
        }
    }

    fn show(&mut self, stream: Stream, attachment: &dyn Attachment) {
        let Some(pending) = self.shown.get_mut(stream as usize) else {
            return;
        };
        let chunk = pending
            .get(..pending.len().min(PIPE_BLOCK_BYTES))
            .unwrap_or_default();
        match rustix::io::write(attachment.sink(stream), chunk) {
            Ok(count) => {
                pending.drain(..count);
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            // Nobody looks any more: the program gets to know as from a closed
            // pipe.
            Err(_) => {
                pending.clear();
                self.close(stream);
            }
        }
    }

    /// Ends the sandbox if it has reached a limit that this side watches.
    fn watch(&mut self, now: Instant) {
        if self.kill_at.is_some_and(|at| now >= at) {
            self.kill_at = None;
            self.order_end(now);
        }
        if self.abandon_at.is_some_and(|at| now >= at) {
            // The first process does not obey, or cannot: the launcher, which
            // ends it without asking, is let go right after this.
            self.abandon_at = None;
            self.line = None;
            self.ended.get_or_insert(now);
            self.close(Stream::Output);
            self.close(Stream::Error);
        }
        if self.hit.is_some() || self.ended.is_some() {
            return;
        }
        let over = |limit: Option<Duration>, since: Instant| {
            limit.is_some_and(|limit| now.saturating_duration_since(since) >= limit)
        };
        if over(self.limits.wall_clock, self.started) {
            self.hit = Some(LimitHit::WallClock);
        } else if over(self.limits.idle, self.active) {
            self.hit = Some(LimitHit::Idle);
        }
        if self.hit.is_some() {
            self.order(Order::Signal(SIGTERM));
            self.kill_at = Some(now + GRACE);
        } else if let Some(hit) = self.disk.check(now) {
            self.hit = Some(hit);
            self.order_end(now);
        }
    }

    /// Ends everything now, through the first process or without it.
    fn order_end(&mut self, now: Instant) {
        self.order(Order::End);
        // However often it is ordered: that gives nobody more time.
        self.abandon_at.get_or_insert(now + GRACE);
    }

    fn finish(&mut self) -> Result<(Ending, Usage), SandboxError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let ending = match (self.hit, self.ending) {
            (Some(limit), _) => Ending::Limited { limit },
            (None, Some(ending)) => ending,
            // The kernel ended the first process itself: for memory, most likely.
            (None, None) if self.used.is_some() && self.has_run => {
                Ending::Signalled { signal: SIGKILL }
            }
            (None, None) => return Err(SandboxError::Vanished),
        };
        let (cpu_us, memory_peak_bytes) = self.used.unwrap_or_default();
        let wall_clock = self
            .ended
            .unwrap_or_else(Instant::now)
            .saturating_duration_since(self.started);
        let cpu = Duration::from_micros(cpu_us);
        Ok((
            ending,
            Usage {
                wall_clock,
                cpu,
                memory_peak_bytes,
                ..Usage::default()
            },
        ))
    }
}

/// The sources of one wait.
#[derive(Default)]
struct Waiting<'a> {
    set: Vec<PollFd<'a>>,
    kinds: Vec<Waits>,
}

impl<'a> Waiting<'a> {
    fn add(&mut self, fd: BorrowedFd<'a>, flags: PollFlags, kind: Waits) {
        self.set.push(PollFd::from_borrowed_fd(fd, flags));
        self.kinds.push(kind);
    }
}

#[derive(Clone, Copy)]
enum Waits {
    Line,
    Control,
    Signals,
    Typing,
    ProgramReads,
    Outside,
    Written(Stream),
    Sink(Stream),
}

impl Ready {
    fn mark(&mut self, kind: Waits) {
        let flag = match kind {
            Waits::Line => Some(&mut self.line),
            Waits::Control => Some(&mut self.control),
            Waits::Signals => Some(&mut self.signals),
            Waits::Typing => Some(&mut self.typing),
            Waits::ProgramReads => Some(&mut self.program_reads),
            Waits::Outside => Some(&mut self.outside),
            Waits::Written(stream) => self.written.get_mut(stream as usize),
            Waits::Sink(stream) => self.sinks.get_mut(stream as usize),
        };
        if let Some(flag) = flag {
            *flag = true;
        }
    }
}

/// Returns the failure that the launcher has reported, if any: a write to one that ended early
/// fails too, but without the reason.
pub(crate) fn last_words(line: &OwnedFd) -> Option<SandboxError> {
    let says_more = || descriptor::wait_readable([Some(line.as_fd())], Some(0));
    while matches!(says_more(), Ok([true])) {
        match hear(line) {
            Ok(Some((
                Report::Failed {
                    stage,
                    error,
                    detail,
                },
                _,
            ))) => return Some(making(stage, error, &detail)),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return None,
        }
    }
    None
}

fn making(stage: Stage, error: i32, detail: &[u8]) -> SandboxError {
    SandboxError::Making {
        stage,
        error: io::Error::from_raw_os_error(error),
        detail: String::from_utf8_lossy(detail).into_owned(),
    }
}

/// Reads one report with its descriptors; `None` if the other side is gone.
fn hear(line: &OwnedFd) -> Result<Option<(Report, Vec<OwnedFd>)>, SandboxError> {
    let mut buffer = [0_u8; MESSAGE_BYTES_MAX];
    let reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    // Whoever left without reading all is told of first, what it said after that.
    let received = match socket::receive(line.as_fd(), &mut buffer) {
        Err(error) if reset(&error) => socket::receive(line.as_fd(), &mut buffer),
        other => other,
    };
    let (got, descriptors) = match received {
        Ok(received) => received,
        Err(error) if reset(&error) => return Ok(None),
        Err(error) => {
            return Err(SandboxError::Host {
                what: "the sandbox's line failed",
                error,
            });
        }
    };
    match buffer.get(..got) {
        None | Some([]) => Ok(None),
        Some(message) => {
            let report = Report::from_bytes(message).map_err(|error| SandboxError::Host {
                what: "the sandbox sent a malformed report",
                error: io::Error::other(error),
            })?;
            Ok(Some((report, descriptors)))
        }
    }
}
