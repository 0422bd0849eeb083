//! The supervision of a sandbox: input and output of its execs, signals and time, until it is gone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_frame::{ExecId, Order, Report, Stage};
use atoll_ledger::Armed;
use atoll_model::{
    Attempt, Boundary, Call, Ending, Enforcement, LimitHit, Limits, Outcome, Usage, ViolationKind,
};
use atoll_policy::Grant;
use atoll_sys::terminal::set_window_size;
use atoll_sys::{descriptor, socket};
use rustix::event::{PollFlags, poll};

use crate::disk::DiskWatch;
use crate::exec::{ExecServer, PreparedExec, checked_master};
use crate::groups::{Counted, Groups};
use crate::launcher::{Launcher, LauncherReaper, wake};
use crate::reports::{hear, making};
use crate::{Attachment, Carrier, Reaction, SandboxError, Stream};

use further::{Freezing, FurtherExec};
use sources::{Sources, Waits};
use streams::{ExecStreams, Typed};

mod frozen;
mod further;
mod limited;
mod sources;
pub(crate) mod streams;
mod unread;

/// The longest time for showing what further execs have written, once the sandbox is gone.
const DRAINED_WITHIN: Duration = Duration::from_secs(1);
/// The time that a program has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// The longest time for a sandbox to be gone after its end, once it was continued.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// The most read at once, bytes.
const BLOCK_BYTES: usize = 64 * 1024;
/// The time between two looks at them.
const FROZEN_LOOK: Duration = Duration::from_micros(250);
const SIGTERM: u8 = 15;
const SIGHUP: u8 = 1;
const SIGKILL: u8 = 9;
const SIGCONT: u8 = 18;
/// The signals that ask a program to end: SIGHUP, SIGINT, SIGQUIT and SIGTERM.
const ENDING: [u8; 4] = [SIGHUP, 2, 3, SIGTERM];

/// Returns the failure of an exec that nobody starts any more.
fn not_started() -> SandboxError {
    SandboxError::NoExec(io::ErrorKind::BrokenPipe.into())
}

/// Records a violation, and returns whether the program may go on.
pub type Witness<'a> = &'a mut dyn FnMut(&Attempt) -> bool;

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
            Some(mut running) => {
                // When nobody is there to obey, attending finds out why.
                if let Some(first) = running.prepared.take() {
                    running.first = running.server.start(first).ok().map(ExecStreams::new);
                }
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
    /// The socket to the first process.
    pub(crate) control: OwnedFd,
    pub(crate) server: ExecServer,
    /// The first exec, until it may start.
    pub(crate) prepared: Option<PreparedExec>,
    /// The first exec; `None` if there was nobody to start it, or none is wanted.
    pub(crate) first: Option<ExecStreams>,
    /// True for a sandbox that lives until it is ended.
    pub(crate) lives: bool,
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
    ) -> Result<(Outcome, Option<LauncherReaper>), SandboxError> {
        let Self {
            launcher,
            control,
            server,
            prepared: _,
            first,
            lives,
            groups,
            mut enforcement,
            disk,
            limits,
        } = self;
        let mut session = Session {
            line: Some(&launcher.line),
            launcher: launcher.pid,
            control,
            server,
            first,
            further: Vec::new(),
            groups: groups.as_ref(),
            memory_kills: 0,
            disk,
            limits: &limits,
            failure: None,
            used: None,
            hit: None,
            started: Instant::now(),
            ended: None,
            active: Instant::now(),
            kill_at: None,
            wake_at: None,
            abandon_at: None,
            freezing: None,
            frozen_at: Instant::now(),
            stop_waits: false,
            control_open: true,
            server_ended: false,
            lives,
            is_closing: false,
            attempts: Vec::new(),
            witness,
            carrier,
        };
        let attended = session.attend(attachment);
        if let Some(first) = &mut session.first {
            first.give_back(attachment);
        }
        let result = attended.and_then(|()| session.finish());
        let counted = groups.as_ref().map(Groups::counted).unwrap_or_default();
        note_lost(groups.as_ref(), &mut enforcement);
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
            control,
            server,
            groups,
            ..
        } = self;
        drop((control, server));
        drop(launcher.let_go());
        if let Some(groups) = groups {
            groups.remove();
        }
    }
}

/// Marks limits that control groups did not enforce to the end.
fn note_lost(groups: Option<&Groups>, enforcement: &mut [Enforcement]) {
    if groups.is_none_or(Groups::hold) {
        return;
    }
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
    control: OwnedFd,
    server: ExecServer,
    /// The exec that the run is for; `None` if there was nobody to start it.
    first: Option<ExecStreams>,
    further: Vec<FurtherExec>,
    groups: Option<&'a Groups>,
    /// The processes that the kernel ended for lack of memory, at the last look.
    memory_kills: u64,
    disk: DiskWatch,
    limits: &'a Limits,
    failure: Option<SandboxError>,
    used: Option<(u64, u64)>,
    hit: Option<LimitHit>,
    started: Instant,
    /// The time at which the sandbox, or the exec that it is for, has ended.
    ended: Option<Instant>,
    active: Instant,
    kill_at: Option<Instant>,
    /// The time at which a sandbox that is still there after its end is continued.
    wake_at: Option<Instant>,
    abandon_at: Option<Instant>,
    /// Set while all processes are stopped, or are to be.
    freezing: Option<Freezing>,
    /// The time at which they were told to stop last.
    frozen_at: Instant,
    /// True if the person suspended the program, and this side is still to follow.
    stop_waits: bool,
    control_open: bool,
    server_ended: bool,
    /// True for a sandbox that lives until it is ended.
    lives: bool,
    /// True once this side has ordered the end.
    is_closing: bool,
    /// The violations, at most one for each call that can be reported.
    attempts: Vec<Attempt>,
    witness: Witness<'a>,
    carrier: &'a mut dyn Carrier,
}

impl Session<'_> {
    fn attend(&mut self, attachment: &mut dyn Attachment) -> Result<(), SandboxError> {
        self.carrier.begin(self.launcher);
        let mut block = vec![0_u8; BLOCK_BYTES];
        if let Some(first) = &mut self.first {
            first.close_absent_input(attachment);
        }
        while self.line.is_some() || self.first_is_open() {
            let ready = self
                .wait(attachment)
                .map_err(SandboxError::host("waiting for the sandbox failed"))?;
            let is_due = self.carrier.due().is_some_and(|at| at <= Instant::now());
            if is_due && !ready.contains(&Waits::Outside) && !self.carrier.attend() {
                self.order_end(Instant::now());
            }
            for kind in ready {
                self.handle(kind, attachment, &mut block)?;
            }
            // First: what comes with the end of standing still is carried out.
            self.freeze_or_thaw();
            self.serve_requests();
            self.end_execs();
            while self.put_questions(attachment) {}
            self.tell_begun(attachment);
            self.tell_denied(attachment);
            self.tell_of_two(attachment);
            self.give_way(attachment);
            self.watch(Instant::now());
        }
        // The sandbox is gone, and all further execs with it.
        self.note_kills();
        for exec in &mut self.further {
            exec.with_run = exec.streams.ended.is_none();
            exec.streams.end(Ending::Signalled { signal: SIGKILL });
        }
        // Where it was abandoned, something may still write.
        let until = Instant::now() + DRAINED_WITHIN;
        while !self.further.is_empty() && Instant::now() < until {
            for exec in &mut self.further {
                exec.drain(&mut block);
            }
            self.end_execs();
        }
        for exec in &mut self.further {
            exec.streams.give_up();
        }
        self.end_execs();
        Ok(())
    }

    /// Handles one source that is ready.
    fn handle(
        &mut self,
        kind: Waits,
        attachment: &mut dyn Attachment,
        block: &mut [u8],
    ) -> Result<(), SandboxError> {
        match kind {
            Waits::Control => self.hear_init()?,
            Waits::Line => self.hear_launcher()?,
            Waits::Outside => {
                if !self.carrier.attend() {
                    self.order_end(Instant::now());
                }
            }
            Waits::Status(id) => {
                self.hear_status(id);
                if let Some((exec, of)) = self.attached(id, attachment)
                    && let Some(pid) = exec.pid.take()
                {
                    of.executing(pid);
                }
            }
            Waits::Signals(id) => {
                while let Some(reaction) = self
                    .attached(id, attachment)
                    .and_then(|(_, of)| of.next_signal())
                {
                    self.react(id, reaction);
                }
            }
            Waits::Typing(id) => {
                let taken = self.attached(id, attachment);
                let taken = taken.map(|(exec, of)| exec.take_input(of, block));
                if taken == Some(Typed::HungUp) {
                    // What does not end by that is ended.
                    self.order(Order::Signal(id, SIGHUP));
                    if id == ExecId::FIRST {
                        self.kill_at.get_or_insert(Instant::now() + GRACE);
                    }
                }
            }
            Waits::ProgramReads(id) => {
                if let Some((exec, of)) = self.attached(id, attachment) {
                    exec.pass_input(of);
                    if exec.take_end_typed() && self.freezing.is_none() {
                        self.order(Order::Signal(id, SIGCONT));
                    }
                }
            }
            Waits::Written(id, stream) => {
                if let Some((exec, of)) = self.attached(id, attachment) {
                    exec.take_output(stream, of, block);
                }
            }
            Waits::Sink(id, stream) => {
                if let Some((exec, of)) = self.attached(id, attachment) {
                    exec.show(stream, of);
                }
            }
        }
        let actives = self.further.iter().map(|exec| exec.streams.active);
        let first = self.first.as_ref().map(|first| first.active);
        self.active = actives.chain(first).fold(self.active, Instant::max);
        Ok(())
    }

    /// Returns an exec with its attachment.
    fn attached<'s>(
        &'s mut self,
        id: ExecId,
        first: &'s mut dyn Attachment,
    ) -> Option<(&'s mut ExecStreams, &'s mut dyn Attachment)> {
        if let Some(exec) = self.first.as_mut().filter(|exec| exec.id == id) {
            return Some((exec, first));
        }
        let mut further = self.further.iter_mut();
        let exec = further.find(|exec| exec.streams.id == id)?;
        Some((&mut exec.streams, exec.attachment.as_mut()))
    }

    fn exec_mut(&mut self, id: ExecId) -> Option<&mut ExecStreams> {
        let further = self.further.iter_mut().map(|exec| &mut exec.streams);
        self.first
            .iter_mut()
            .chain(further)
            .find(|exec| exec.id == id)
    }

    fn first_is_open(&self) -> bool {
        let first = self.first.as_ref();
        first.is_some_and(|first| first.output_is_open() || first.has_pending())
    }

    fn first_has_pending(&self) -> bool {
        self.first.as_ref().is_some_and(ExecStreams::has_pending)
    }

    /// Takes the answers about an exec's start.
    fn hear_status(&mut self, id: ExecId) {
        let server_ended = self.server_ended;
        let Some(exec) = self.exec_mut(id) else {
            return;
        };
        let heard = match exec.hear_status() {
            // A process that was ended before its program began is reported by its parent; one
            // that never was, by nobody.
            Ok(()) if server_ended && exec.is_lost() => Err(not_started()),
            heard => heard,
        };
        if exec.is_lost() {
            exec.expect_end(Instant::now());
        }
        let ended = exec.ended;
        let held = exec.take_held();
        let Err(error) = heard else {
            if id == ExecId::FIRST {
                self.ended = self.ended.or(ended);
            }
            for number in held {
                self.forward(id, number);
            }
            return;
        };
        exec.end(Ending::NotExecutable);
        let mut further = self.further.iter_mut();
        match further.find(|exec| exec.streams.id == id) {
            Some(exec) => exec.failure = Some(error),
            None => self.end_unstarted(error),
        }
    }

    /// Ends a sandbox whose one exec was not started.
    fn end_unstarted(&mut self, error: SandboxError) {
        self.failure.get_or_insert(error);
        self.order_end(Instant::now());
    }

    /// Takes note that the exec server has ended: what it had not started will not start.
    fn note_server_end(&mut self) {
        self.server_ended = true;
        // The request found nobody.
        if self.first.is_none() && !self.lives {
            self.end_unstarted(not_started());
        }
        let further = self.further.iter().map(|exec| exec.streams.id);
        for id in std::iter::once(ExecId::FIRST)
            .chain(further)
            .collect::<Vec<_>>()
        {
            self.hear_status(id);
        }
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
        let turn = attachment.turn(!self.first_has_pending());
        if had_terminal || attachment.has_terminal() {
            // The program can neither read nor write: a person, not the program, takes this time.
            self.active = Instant::now();
        }
        self.append(turn.shown);
        let terminal = self
            .first
            .as_ref()
            .and_then(|first| first.terminal.as_ref());
        if let Some((terminal, size)) = terminal.zip(turn.resized) {
            // A terminal that is closing has no size to set.
            let _ = set_window_size(terminal.as_fd(), size);
        }
        if let Some(port) = turn.publishes {
            let done = self.carrier.publish(port);
            let told = attachment.published(port, &done);
            self.append(told.into_iter().collect());
        }
        if let Some((rule, lasts)) = turn.allows {
            let done = self.carrier.allow(&rule, lasts);
            let told = attachment.allowed(&rule, lasts, &done);
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
        if self.stop_waits
            && self.freezing.is_none()
            && !attachment.has_terminal()
            && !self.first_has_pending()
        {
            self.stop_waits = false;
            attachment.suspended();
            self.order(Order::Continue(ExecId::FIRST));
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

    /// Shows new denials, in step with the program's output.
    fn tell_denied(&mut self, attachment: &mut dyn Attachment) {
        if attachment.has_terminal() {
            return;
        }
        let denials = self.carrier.denied();
        let told = denials.iter().filter_map(|one| attachment.denied(one));
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

    /// Adds to what the first exec's attachment shows.
    fn append(&mut self, told: Vec<(Stream, Vec<u8>)>) {
        if let Some(first) = &mut self.first {
            first.append(told);
        }
    }

    /// Waits, and returns what is ready, in the order in which it is to be handled.
    fn wait(&self, attachment: &dyn Attachment) -> io::Result<Vec<Waits>> {
        let mut sources = Sources::default();
        if self.line.is_some() && self.control_open {
            sources.add(self.control.as_fd(), PollFlags::IN, Waits::Control);
        }
        if let Some(line) = self.line {
            sources.add(line.as_fd(), PollFlags::IN, Waits::Line);
        }
        for outside in self.carrier.waits_on() {
            sources.add(outside, PollFlags::IN, Waits::Outside);
        }
        if let Some(first) = &self.first {
            first.wait_on(&mut sources, attachment);
        }
        for exec in &self.further {
            exec.streams.wait_on(&mut sources, exec.attachment.as_ref());
        }
        let timeout = self.timeout(Instant::now(), attachment.due());
        match poll(&mut sources.set, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        Ok(sources.ready())
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
            self.wake_at.filter(|_| self.line.is_some()),
            self.abandon_at.filter(|_| self.line.is_some()),
            self.disk.next().filter(|_| running),
            self.carrier.due(),
            due,
        ];
        let look = matches!(self.freezing, Some(Freezing::Until(_)));
        let execs = self
            .further
            .iter()
            .filter(|exec| exec.streams.ended.is_none());
        let execs = execs.filter(|_| self.freezing.is_none());
        let execs = execs.flat_map(|exec| [exec.end_at, exec.kill_at, exec.streams.lost_at]);
        let first = self.first.as_ref().filter(|_| running);
        let first = first.map(|first| first.lost_at);
        let next = next.into_iter().chain(execs).chain(first).flatten().min();
        // One millisecond more, so that a wait does not end just before its time.
        let more = Duration::from_millis(1);
        let left = next.map(|next| next.saturating_duration_since(now) + more);
        let look = look.then_some(FROZEN_LOOK);
        let left = left.into_iter().chain(look).min()?;
        Some(rustix::event::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        })
    }

    fn hear_init(&mut self) -> Result<(), SandboxError> {
        match hear(&self.control)? {
            Some((report, descriptors)) => self.take_report(report, descriptors)?,
            // Its end is told by the launcher too; until then nothing more comes.
            None => self.control_open = false,
        }
        Ok(())
    }

    /// Takes a report of the first process.
    fn take_report(
        &mut self,
        report: Report,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<(), SandboxError> {
        match report {
            Report::Terminal => {
                // What is there to read can be gone again: a program may flush its terminal, and
                // the line that was readable may have been the one before it.
                let terminal = descriptors.pop().map(checked_master).transpose()?;
                if let Some((first, terminal)) = self.first.as_mut().zip(terminal) {
                    first.set_terminal(terminal);
                }
            }
            Report::Failed {
                stage,
                error,
                detail,
            } => self.fail(stage, error, &detail),
            Report::Stopped { exec, .. } => {
                // Only at the person's own wish: a program that stops itself does not
                // stop what watches over it.
                let first = self.first.as_mut().filter(|first| first.id == exec);
                if let Some(first) = first.filter(|first| first.suspend_typed) {
                    first.suspend_typed = false;
                    self.stop_waits = true;
                }
            }
            Report::MemoryReached => self.hit = Some(LimitHit::Memory),
            Report::TimeReached => self.hit = Some(LimitHit::WallClock),
            Report::Attempt { call, pid, count } => self.note(&call, pid, count),
            Report::Ended {
                exec,
                signalled,
                number,
            } => {
                let ending = match signalled {
                    true => Ending::Signalled { signal: number },
                    false => Ending::Exited { status: number },
                };
                self.end(exec, ending);
            }
            Report::ServerEnded => self.note_server_end(),
            Report::Ready
            | Report::Executing { .. }
            | Report::NotExecuted { .. }
            | Report::Started { .. }
            | Report::Network
            | Report::Gone { .. } => {}
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

    /// Reads the last reports of `init`, and the last answers about the first exec's start.
    fn drain_control(&mut self) {
        while self.failure.is_none() {
            let control = [Some(self.control.as_fd())];
            if !matches!(descriptor::wait_readable(control, Some(0)), Ok([true])) {
                break;
            }
            match hear(&self.control) {
                Ok(Some((report, descriptors))) => {
                    if self.take_report(report, descriptors).is_err() {
                        break;
                    }
                }
                Ok(None) | Err(_) => break,
            }
        }
        let has_ended = self
            .first
            .as_ref()
            .is_some_and(|first| first.ending.is_some());
        if !has_ended && self.failure.is_none() {
            self.hear_status(ExecId::FIRST);
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
        if told.wall != ViolationKind::Namespaces {
            self.carrier.attempted();
        }
    }

    fn fail(&mut self, stage: Stage, error: i32, detail: &[u8]) {
        self.failure
            .get_or_insert_with(|| making(stage, error, detail));
    }

    /// Takes note of an exec's end. What was answered about its start comes first: a program that
    /// was not executed ends too.
    fn end(&mut self, id: ExecId, ending: Ending) {
        self.hear_status(id);
        self.note_kills();
        if let Some(exec) = self.exec_mut(id) {
            exec.end(ending);
        }
        // In a sandbox that lives there is none: what an exec server says of it counts for nothing.
        if self.first.as_ref().is_some_and(|first| first.id == id) {
            let ended = *self.ended.get_or_insert_with(Instant::now);
            self.wake_at = Some(ended + GRACE);
        }
    }

    /// Sends an order. If the receiver is gone, the end is near anyway.
    fn order(&self, order: Order) {
        let _ = socket::send(self.control.as_fd(), &order.to_bytes(), &[]);
    }

    /// Passes a signal on. One that is to end a program reaches it stopped, too.
    fn forward(&mut self, id: ExecId, number: u8) {
        self.order(Order::Signal(id, number));
        if number == SIGKILL
            && let Some(exec) = self.exec_mut(id)
        {
            exec.expect_end(Instant::now());
        }
        if ENDING.contains(&number) && self.freezing.is_none() {
            self.order(Order::Signal(id, SIGCONT));
        }
    }

    fn react(&mut self, id: ExecId, reaction: Reaction) {
        match reaction {
            // What stands still is not to go on by that.
            Reaction::Forward(SIGCONT) if self.freezing.is_some() => {}
            Reaction::Forward(number) => {
                if ENDING.contains(&number) {
                    // Somebody outside may have stopped who is to pass it on.
                    wake(self.launcher);
                }
                let Some(exec) = self.exec_mut(id) else {
                    return;
                };
                if exec.takes_signal(number) {
                    self.forward(id, number);
                } else if number == SIGKILL || ENDING.contains(&number) {
                    // An exec whose program does not begin is ended by it nevertheless.
                    exec.expect_end(Instant::now());
                }
            }
            Reaction::Resize(size) => {
                let exec = self.exec_mut(id);
                if let Some(terminal) = exec.and_then(|exec| exec.terminal.as_ref()) {
                    // A terminal that is closing has no size to set.
                    let _ = set_window_size(terminal.as_fd(), size);
                }
            }
            Reaction::Ignore => {}
        }
    }

    /// Ends the sandbox if it has reached a limit that this side watches.
    fn watch(&mut self, now: Instant) {
        self.watch_execs(now);
        let first = self.first.as_mut();
        if let Some(first) = first.filter(|first| first.is_overdue(now)) {
            first.lost_at = None;
            match first.is_executing {
                true => self.order_end(now),
                false => self.end_unstarted(not_started()),
            }
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.kill_at = None;
            self.order_end(now);
        }
        if self.wake_at.is_some_and(|at| now >= at) {
            self.wake_at = None;
            wake(self.launcher);
            self.abandon_at.get_or_insert(now + GONE_WITHIN);
        }
        if self.abandon_at.is_some_and(|at| now >= at) {
            // The first process does not obey, or cannot: the launcher, which
            // ends it without asking, is let go right after this.
            self.abandon_at = None;
            self.line = None;
            self.ended.get_or_insert(now);
            if let Some(first) = &mut self.first {
                first.close(Stream::Output);
                first.close(Stream::Error);
            }
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
            let further = self.further.iter().map(|exec| exec.streams.id);
            for id in std::iter::once(ExecId::FIRST).chain(further) {
                self.order(Order::Signal(id, SIGTERM));
            }
            self.kill_at = Some(now + GRACE);
        } else if let Some(hit) = self.disk.check(now) {
            self.hit = Some(hit);
            self.order_end(now);
        }
    }

    /// Ends everything now, through the first process or without it.
    fn order_end(&mut self, now: Instant) {
        self.is_closing = true;
        self.order(Order::End);
        // However often it is ordered: that gives nobody more time.
        self.abandon_at.get_or_insert(now + GRACE);
    }

    fn finish(&mut self) -> Result<(Ending, Usage), SandboxError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let first = self.first.as_ref();
        let has_run = first.is_some_and(|first| first.is_executing);
        let ending = match (self.hit, first.and_then(|first| first.ending)) {
            (Some(limit), _) => Ending::Limited { limit },
            (None, Some(ending)) => ending,
            // Its owner has ended it.
            (None, None) if self.lives && self.is_closing => Ending::Exited { status: 0 },
            // The kernel ended the first process itself: for memory, most likely.
            (None, None) if self.used.is_some() && (has_run || self.lives) => {
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
