//! The streams of one exec: what is typed goes in, what is written comes out, bounded both ways.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use atoll_frame::ExecId;
use atoll_model::Ending;
use atoll_sys::descriptor;
use rustix::event::PollFlags;
use rustix::termios::{LocalModes, tcgetattr};

use super::GRACE;
use super::sources::{Sources, Waits};
use super::unread::Unread;
use crate::exec::{ExecEnds, Status, status};
use crate::reports::discard;
use crate::{Attachment, SandboxError, Stream};

/// The most written at once to a pipe that has room, bytes: POSIX guarantees that this much
/// fits, so that a slow reader never blocks the watch over limits.
const PIPE_BLOCK_BYTES: usize = 4096;
/// The most answers that are read before all else has its turn.
const ANSWERS_AT_ONCE_MAX: u32 = 64;
/// The most signals that are held for a program that has not begun.
const HELD_MAX: usize = 16;
/// The pending output at which reading pauses, bytes.
const PENDING_BYTES_MAX: usize = 256 * 1024;

/// The most that an exec can leave in its pipes, bytes (pipe(7)).
const LATE_BYTES_MAX: usize = 1 << 20;

/// The byte of the suspend key, unless the terminal is set otherwise.
const CONTROL_Z: u8 = 0x1a;
/// The bytes of the keys that end a program, likewise: Ctrl-C and Ctrl-\.
const ENDING_KEYS: [u8; 2] = [0x03, 0x1c];

const ENOENT: i32 = 2;
const E2BIG: i32 = 7;

/// The state of one exec's streams, on the host's side.
#[derive(Debug)]
pub(crate) struct ExecStreams {
    pub(crate) id: ExecId,
    status: Option<OwnedFd>,
    input: Option<OwnedFd>,
    unread: Unread,
    output: Option<OwnedFd>,
    error: Option<OwnedFd>,
    pub(crate) terminal: Option<OwnedFd>,
    /// True until the terminal of its own has come, if there is to be one.
    wants_terminal: bool,
    typed: Vec<u8>,
    pub(crate) suspend_typed: bool,
    /// Set where a key that ends programs was typed: at one that is stopped it would wait.
    end_typed: bool,
    input_open: bool,
    pub(crate) shown: [Vec<u8>; 2],
    /// The stream whose output is being shown, and how much of it is left, bytes: all of that
    /// before any of the other's. Both may go to one terminal, where a sequence that is cut would
    /// go on with the other's bytes.
    turn: Option<(Stream, usize)>,
    /// Signals that came before the program, in order.
    held: Vec<u8>,
    /// The last time that something was typed or written.
    pub(crate) active: Instant,
    /// True once its process was about to execute the program.
    pub(crate) is_executing: bool,
    /// The number of that process in the sandbox, until the attachment knows.
    pub(super) pid: Option<u32>,
    pub(crate) ending: Option<Ending>,
    pub(crate) ended: Option<Instant>,
    /// The time from which on its end is not waited for any more, once it has to come.
    pub(super) lost_at: Option<Instant>,
    /// The output that was read since its end, bytes: of what it left in its pipes, and of what
    /// goes on to write to them.
    late_bytes: usize,
}

/// The result of reading what was typed.
#[derive(PartialEq, Eq)]
pub(super) enum Typed {
    /// Some was read, or the input of a pipe has ended.
    Taken,
    /// The terminal is gone: its window was closed.
    HungUp,
}

/// Returns whether keys are signals at this terminal: to a program that reads each, they are text.
fn sends_signals(terminal: &OwnedFd) -> bool {
    let modes = tcgetattr(terminal).map(|set| set.local_modes);
    modes.is_ok_and(|modes| modes.contains(LocalModes::ISIG))
}

impl ExecStreams {
    /// Begins with an exec whose request is sent.
    pub(crate) fn new(ends: ExecEnds) -> Self {
        let now = Instant::now();
        Self {
            id: ends.id,
            status: Some(ends.status),
            input: ends.input,
            unread: Unread::new(ends.input_inside),
            output: ends.output,
            error: ends.error,
            terminal: ends.terminal,
            wants_terminal: ends.wants_terminal,
            typed: Vec::new(),
            suspend_typed: false,
            end_typed: false,
            input_open: true,
            shown: [Vec::new(), Vec::new()],
            turn: None,
            held: Vec::new(),
            active: now,
            is_executing: false,
            pid: None,
            ending: None,
            ended: None,
            lost_at: None,
            late_bytes: 0,
        }
    }

    /// Closes the program's input at once where there is none: who reads finds the end.
    pub(super) fn close_absent_input(&mut self, attachment: &dyn Attachment) {
        if attachment.input().is_none() {
            (self.input_open, self.input) = (false, None);
        }
        if let (Some(from), Some(to)) = (attachment.input(), &self.input) {
            self.unread.begin(from, to.as_fd());
        }
    }

    /// Gives back what the program did not read of its input, once it has ended.
    pub(super) fn give_back(&mut self, attachment: &dyn Attachment) {
        if let Some(from) = attachment.input() {
            self.unread.give_back(from, self.typed.len());
        }
    }

    /// Sets the terminal, which carries everything from then on.
    pub(super) fn set_terminal(&mut self, terminal: OwnedFd) {
        self.terminal = Some(terminal);
        (self.input, self.output, self.error) = (None, None, None);
    }

    pub(super) fn output_is_open(&self) -> bool {
        self.output.is_some() || self.error.is_some() || self.terminal.is_some()
    }

    pub(super) fn has_pending(&self) -> bool {
        self.shown.iter().any(|pending| !pending.is_empty())
    }

    pub(super) fn append(&mut self, told: Vec<(Stream, Vec<u8>)>) {
        for (stream, told) in told {
            if let Some(shown) = self.shown.get_mut(stream as usize) {
                shown.extend_from_slice(&told);
            }
        }
    }

    /// Returns the source of a stream of the program.
    fn source(&self, stream: Stream) -> Option<&OwnedFd> {
        match stream {
            Stream::Output => self.terminal.as_ref().or(self.output.as_ref()),
            Stream::Error => self.error.as_ref(),
        }
    }

    /// Returns the sink of what is typed.
    fn program_input(&self) -> Option<&OwnedFd> {
        self.terminal.as_ref().or(self.input.as_ref())
    }

    /// Adds everything that is waited for.
    pub(super) fn wait_on<'a>(&'a self, sources: &mut Sources<'a>, attachment: &'a dyn Attachment) {
        let mut add = |fd: BorrowedFd<'a>, flags, kind| sources.add(fd, flags, kind);
        if let Some(status) = &self.status {
            add(status.as_fd(), PollFlags::IN, Waits::Status(self.id));
        }
        if let Some(signals) = attachment.signals() {
            add(signals, PollFlags::IN, Waits::Signals(self.id));
        }
        let has_terminal = attachment.has_terminal();
        if self.input_open
            && !self.unread.waits()
            && (self.typed.is_empty() || has_terminal)
            && self.ended.is_none()
            && let Some(input) = attachment.input()
        {
            add(input, PollFlags::IN, Waits::Typing(self.id));
        }
        let is_pending = !self.typed.is_empty() || self.unread.waits() && self.ended.is_none();
        if let Some(input) = self.program_input().filter(|_| is_pending) {
            add(input.as_fd(), PollFlags::OUT, Waits::ProgramReads(self.id));
        }
        for stream in [Stream::Output, Stream::Error] {
            let pending = self.shown.get(stream as usize).map_or(0, Vec::len);
            let takes = pending < PENDING_BYTES_MAX && !has_terminal;
            if let Some(source) = self.source(stream).filter(|_| takes) {
                add(
                    source.as_fd(),
                    PollFlags::IN,
                    Waits::Written(self.id, stream),
                );
            }
            let is_its_turn = self.turn.is_none_or(|(whose, _)| whose == stream);
            if pending > 0 && is_its_turn {
                let sink = attachment.sink(stream);
                add(sink, PollFlags::OUT, Waits::Sink(self.id, stream));
            }
        }
    }

    /// Returns whether a stream has output to read now, which can be the exec's own.
    pub(super) fn has_output(&self) -> bool {
        if self.late_bytes >= LATE_BYTES_MAX {
            return false;
        }
        let both = [Stream::Output, Stream::Error].map(|stream| self.source(stream));
        let both = both.map(|source| source.map(AsFd::as_fd));
        !matches!(descriptor::wait_readable(both, Some(0)), Ok([false, false]))
    }

    /// Takes every answer about the start that is there.
    ///
    /// # Errors
    /// The exec was not started.
    pub(super) fn hear_status(&mut self) -> Result<(), SandboxError> {
        for _ in 0..ANSWERS_AT_ONCE_MAX {
            let Some(socket) = &self.status else {
                break;
            };
            if !matches!(
                descriptor::wait_readable([Some(socket.as_fd())], Some(0)),
                Ok([true])
            ) {
                break;
            }
            match status(socket)? {
                // One, and only where one was asked for.
                Status::Terminal(terminal) if self.wants_terminal => {
                    self.wants_terminal = false;
                    self.set_terminal(terminal);
                }
                Status::Terminal(terminal) => discard(vec![terminal]),
                Status::Executing(pid) => {
                    (self.is_executing, self.lost_at) = (true, None);
                    self.pid = Some(pid);
                    // It may have run for a while: the clock runs since the request.
                    self.active = Instant::now();
                }
                Status::NotExecuted(E2BIG) => {
                    self.status = None;
                    return Err(SandboxError::Words);
                }
                Status::NotExecuted(ENOENT) => self.end(Ending::NotFound),
                Status::NotExecuted(_) => self.end(Ending::NotExecutable),
                Status::Failed(error) => {
                    self.status = None;
                    return Err(error);
                }
                Status::Closed => self.status = None,
            }
        }
        Ok(())
    }

    /// Returns whether the program is to be continued now, since what was typed is to end it.
    pub(super) fn take_end_typed(&mut self) -> bool {
        let takes = self.end_typed && self.typed.is_empty();
        if takes {
            self.end_typed = false;
        }
        takes
    }

    /// Returns whether a signal can be sent now. One to a program that has not begun is held: its
    /// process may not lead its group yet.
    pub(super) fn takes_signal(&mut self, number: u8) -> bool {
        if !self.is_executing && self.held.len() < HELD_MAX {
            self.held.push(number);
        }
        self.is_executing
    }

    /// Takes the signals that were held, once the program begins.
    pub(super) fn take_held(&mut self) -> Vec<u8> {
        match self.is_executing {
            true => std::mem::take(&mut self.held),
            false => Vec::new(),
        }
    }

    /// Returns whether nobody will say any more how the start went.
    pub(super) fn is_lost(&self) -> bool {
        self.status.is_none() && !self.is_executing && self.ended.is_none()
    }

    /// Takes note that its end has to come now: it was killed, or nobody will start it.
    pub(super) fn expect_end(&mut self, now: Instant) {
        self.lost_at.get_or_insert(now + GRACE);
    }

    /// Returns whether its end had to come, and has not.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.ended.is_none() && self.lost_at.is_some_and(|at| now >= at)
    }

    /// Takes note of the exec's end, unless one is known.
    pub(super) fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
        self.ended.get_or_insert_with(Instant::now);
    }

    pub(super) fn take_input(
        &mut self,
        attachment: &mut dyn Attachment,
        block: &mut [u8],
    ) -> Typed {
        let Some(input) = attachment.input() else {
            return Typed::Taken;
        };
        if let (true, Some(to)) = (self.unread.is_shown(), &self.input) {
            self.active = Instant::now();
            if !self.unread.show(input, to.as_fd()) {
                (self.input_open, self.input) = (false, None);
            }
            return Typed::Taken;
        }
        match descriptor::read(input, block) {
            Ok(got @ 1..) => {
                self.unread.took(got);
                let is_suspend = |byte: &u8| *byte == CONTROL_Z;
                let mut typed = block.get(..got).unwrap_or_default().to_vec();
                attachment.typed(&mut typed);
                self.suspend_typed |= self.terminal.is_some() && typed.iter().any(is_suspend);
                let is_end = |byte: &u8| ENDING_KEYS.contains(byte);
                self.end_typed |=
                    typed.iter().any(is_end) && self.terminal.as_ref().is_some_and(sends_signals);
                self.active = Instant::now();
                self.typed.append(&mut typed);
            }
            // A terminal that is gone reads as an error or as the end.
            Ok(0) | Err(_) => {
                self.input_open = false;
                if self.terminal.is_some() {
                    return Typed::HungUp;
                }
                self.input = None;
            }
        }
        Typed::Taken
    }

    pub(super) fn pass_input(&mut self, attachment: &dyn Attachment) {
        if let (true, Some(from)) = (self.unread.waits(), attachment.input()) {
            self.unread.take_shown(from);
            return;
        }
        let Some(input) = self.program_input() else {
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
                self.input = None;
                self.input_open = false;
            }
        }
    }

    pub(super) fn take_output(
        &mut self,
        stream: Stream,
        attachment: &mut dyn Attachment,
        block: &mut [u8],
    ) {
        let Some(source) = self.source(stream) else {
            return;
        };
        match descriptor::read(source.as_fd(), block) {
            Ok(got @ 1..) => {
                self.active = Instant::now();
                if self.ended.is_some() {
                    self.late_bytes = self.late_bytes.saturating_add(got);
                }
                let written = block.get(..got).unwrap_or_default();
                if let Some(pending) = self.shown.get_mut(stream as usize) {
                    attachment.transform(stream, written, pending);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // A terminal whose last program is gone reads as an error (EIO).
            Ok(0) | Err(_) => self.close(stream),
        }
    }

    /// Drops whatever is left.
    pub(super) fn give_up(&mut self) {
        self.shown = [Vec::new(), Vec::new()];
        self.close(Stream::Output);
        self.close(Stream::Error);
    }

    pub(super) fn close(&mut self, stream: Stream) {
        match stream {
            Stream::Output => {
                self.output = None;
                self.terminal = None;
            }
            Stream::Error => self.error = None,
        }
    }

    pub(super) fn show(&mut self, stream: Stream, attachment: &dyn Attachment) {
        let Some(pending) = self.shown.get_mut(stream as usize) else {
            return;
        };
        // What is pending now is whole sequences.
        let (whose, left) = self.turn.unwrap_or((stream, pending.len()));
        if whose != stream {
            return;
        }
        let chunk = pending
            .get(..left.min(PIPE_BLOCK_BYTES))
            .unwrap_or_default();
        match rustix::io::write(attachment.sink(stream), chunk) {
            Ok(count) => {
                pending.drain(..count);
                let left = left.saturating_sub(count);
                self.turn = (left > 0).then_some((stream, left));
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            // Nobody looks any more: the program gets to know as from a closed
            // pipe.
            Err(_) => {
                pending.clear();
                self.turn = None;
                self.close(stream);
            }
        }
    }
}
