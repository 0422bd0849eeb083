//! The supervisor, process 1: starts the program, reaps, forwards orders, watches, ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_fence::{Fence, Outside};
use atoll_frame::{MESSAGE_BYTES_MAX, Nesting, Order, Report, Spec, Stage};
use atoll_sys::descriptor;
use atoll_sys::memory::erase_stack;
use atoll_sys::process::{self, Change};
use atoll_sys::socket;
use atoll_sys::terminal::{self, WindowSize};

use crate::filter::Denials;
use crate::gate::Gate;
use crate::program::{self, Started};
use crate::{At, Failure, fenced, memory};

const SIGCHLD: i32 = 17;
/// SIGTSTP, SIGTTIN and SIGTTOU.
const BY_TERMINAL: [u8; 3] = [20, 21, 22];
const SIGCONT: i32 = 18;
const SIGHUP: i32 = 1;
const SIGTTOU: i32 = 22;
const O_RDWR: i32 = 2;
const O_NOCTTY: i32 = 0o400;

/// The time that a program has here beyond its limit: ending it in time is the host side's task,
/// unless that was stopped.
const HOST_GRACE: Duration = Duration::from_secs(5);

/// The most ended processes that are reaped before orders are read again: otherwise a program that
/// forks without end would never receive the order to end.
const REAPED_AT_ONCE_MAX: u32 = 64;

/// Runs the program and returns when it has ended, or the host side, or the launcher if that is
/// watched.
pub(crate) fn supervise(
    spec: Spec,
    control: &OwnedFd,
    launcher: Option<BorrowedFd<'_>>,
    standard: [OwnedFd; 3],
    outward: Option<OwnedFd>,
) -> Result<(), Failure> {
    let children = process::signals_as_descriptor(&[SIGCHLD]).at(Stage::Start)?;
    let prepared = program::prepare(&spec)?;
    let denials = Denials::of(&spec);
    let outside = outward.map(Outside::new).transpose().at(Stage::Network)?;
    let terminal = match spec.terminal {
        None => {
            terminal::lead_session(None).at(Stage::Start)?;
            None
        }
        Some(size) => {
            let side = open_terminal(control, spec.fenced, size.rows, size.columns)?;
            prepared.allow_terminal(side.as_fd()).at(Stage::Terminal)?;
            Some(side)
        }
    };
    if !is_told_to_start(control).at(Stage::Start)? {
        return Ok(());
    }
    let started = match &terminal {
        None => {
            let [input, output, error] = &standard;
            program::start(
                &prepared,
                [input.as_fd(), output.as_fd(), error.as_fd()],
                false,
            )?
        }
        Some(side) => program::start(&prepared, [side.as_fd(); 3], true)?,
    };
    // A pipe held here would never show its end to the host side.
    drop(standard);
    drop(prepared);
    let fence = spec
        .fenced
        .then(|| Fence::new(fenced::places(&spec), outside));
    let watch = spec.watch;
    let mounts = spec.nesting != Nesting::Refused;
    let memory = (watch.memory_bytes > 0)
        .then(|| memory::Watch::new(watch.memory_bytes, spec.fenced, mounts));
    // What was needed to start is not kept for whoever takes this process over.
    drop(spec);
    erase_stack();
    let (program, listener) = match started {
        Started::Running(pid, listener) => (pid, listener),
        Started::NotExecuted(error) => {
            tell(control, &Report::NotExecuted { error });
            return Ok(());
        }
    };
    tell(control, &Report::Running);
    #[cfg(feature = "without_defences")]
    if let Some(detail) = atoll_sys::takeover::act("init") {
        tell(
            control,
            &Report::Failed {
                stage: Stage::Rights,
                error: 0,
                detail,
            },
        );
    }
    let wall_clock = (watch.wall_clock_ms > 0)
        .then(|| Duration::from_millis(watch.wall_clock_ms).saturating_add(HOST_GRACE));
    let mut overseer = Overseer {
        control,
        launcher,
        terminal,
        program,
        gate: Gate::new(listener, fence, denials),
        memory,
        end_at: wall_clock.and_then(|limit| Instant::now().checked_add(limit)),
    };
    let ran = overseer.run(&children).at(Stage::Start);
    overseer.gate.tell_rest(control);
    ran
}

/// Returns whether the host side has the call on disk, so that the program may start. Any other
/// order, or a closed socket, means that it will not.
fn is_told_to_start(control: &OwnedFd) -> io::Result<bool> {
    let mut buffer = [0_u8; MESSAGE_BYTES_MAX];
    let (got, _) = socket::receive(control.as_fd(), &mut buffer)?;
    let message = buffer.get(..got).unwrap_or_default();
    Ok(Order::from_bytes(message) == Ok(Order::Start))
}

/// Opens a terminal in the sandbox, makes it this session's, and hands its other side to the host.
fn open_terminal(
    control: &OwnedFd,
    fenced: bool,
    rows: u16,
    columns: u16,
) -> Result<OwnedFd, Failure> {
    process::ignore_signal(SIGHUP);
    process::ignore_signal(SIGTTOU);
    let open = || -> io::Result<OwnedFd> {
        let path = if fenced {
            c"/dev/ptmx"
        } else {
            c"/dev/pts/ptmx"
        };
        let multiplexer = descriptor::open_for_writing(path, O_RDWR | O_NOCTTY)?;
        let side = terminal::open_pair(&multiplexer)?;
        terminal::set_window_size(multiplexer.as_fd(), WindowSize { rows, columns })?;
        terminal::lead_session(Some(side.as_fd()))?;
        let report = Report::Terminal.to_bytes();
        socket::send(control.as_fd(), &report, &[multiplexer.as_fd()])?;
        Ok(side)
    };
    open().at(Stage::Terminal)
}

struct Overseer<'a> {
    control: &'a OwnedFd,
    /// Watched in a fence, where this process does not end by itself when the launcher does.
    launcher: Option<BorrowedFd<'a>>,
    terminal: Option<OwnedFd>,
    program: u32,
    gate: Gate,
    /// Set if no cgroup counts the memory.
    memory: Option<memory::Watch>,
    end_at: Option<Instant>,
}

/// The next action of the loop.
#[derive(PartialEq, Eq)]
enum Next {
    Wait,
    End,
}

/// The result of reaping ended processes.
enum Reaped {
    /// All of them were reaped.
    All,
    /// The most at once were reaped; others may be left.
    Some,
    /// The program itself has ended.
    Program,
}

impl Overseer<'_> {
    fn run(&mut self, children: &OwnedFd) -> io::Result<()> {
        let mut more = false;
        loop {
            let pause_ms = if more { Some(0) } else { self.pause_ms() };
            let on = [
                Some(children.as_fd()),
                Some(self.control.as_fd()),
                self.launcher,
                self.gate.listener(),
            ];
            let [died, ordered, alone, waits] = descriptor::wait_readable(on, pause_ms)?;
            if died || more {
                match self.reap(children)? {
                    Reaped::All => more = false,
                    Reaped::Some => more = true,
                    Reaped::Program => return Ok(()),
                }
            }
            if alone || (ordered && self.obey()? == Next::End) {
                return Ok(());
            }
            if waits {
                // One at a time: however many there are, everything else has its turn.
                self.gate.attend(self.control)?;
            }
            self.gate.tell_in_time(self.control);
            if self.memory.as_mut().is_some_and(memory::Watch::is_over) {
                tell(self.control, &Report::MemoryReached);
                return Ok(());
            }
            if self.end_at.is_some_and(|at| Instant::now() >= at) {
                tell(self.control, &Report::TimeReached);
                return Ok(());
            }
        }
    }

    /// Returns the longest time to wait.
    fn pause_ms(&self) -> Option<u32> {
        let left = self.end_at.map(|at| {
            let left = at.saturating_duration_since(Instant::now()).as_millis();
            u32::try_from(left).unwrap_or(u32::MAX).saturating_add(1)
        });
        let look = self.memory.is_some().then_some(memory::WATCH_INTERVAL_MS);
        let tell = self.gate.pause_ms();
        left.into_iter().chain(look).chain(tell).min()
    }

    /// Reaps every child that changed; the program's end is the sandbox's end.
    fn reap(&mut self, children: &OwnedFd) -> io::Result<Reaped> {
        while process::next_signal(children.as_fd())?.is_some() {}
        for _ in 0..REAPED_AT_ONCE_MAX {
            let Some(waited) = process::wait(None, false)? else {
                return Ok(Reaped::All);
            };
            if waited.pid != self.program {
                continue;
            }
            let (signalled, number) = match waited.change {
                Change::Exited(status) => (false, status),
                Change::Signalled(signal) => (true, signal),
                // A stop that the program asked for itself does not stop the host.
                Change::Stopped(signal) if !BY_TERMINAL.contains(&signal) => continue,
                Change::Stopped(signal) => {
                    tell(self.control, &Report::Stopped { signal });
                    continue;
                }
            };
            self.gate.tell_rest(self.control);
            tell(self.control, &Report::Ended { signalled, number });
            return Ok(Reaped::Program);
        }
        Ok(Reaped::Some)
    }

    fn obey(&self) -> io::Result<Next> {
        let mut buffer = [0_u8; MESSAGE_BYTES_MAX];
        let (got, _) = socket::receive(self.control.as_fd(), &mut buffer)?;
        let message = buffer.get(..got).unwrap_or_default();
        if message.is_empty() {
            return Ok(Next::End);
        }
        match Order::from_bytes(message).map_err(io::Error::other)? {
            Order::Signal(number) => process::signal_group(self.program, i32::from(number))?,
            Order::Continue => {
                if let Some(terminal) = &self.terminal {
                    // A group that has gone meanwhile needs no foreground.
                    let _ = terminal::set_foreground(terminal.as_fd(), self.program);
                }
                process::signal_group(self.program, SIGCONT)?;
            }
            Order::End | Order::Start => return Ok(Next::End),
        }
        Ok(Next::Wait)
    }
}

/// Sends a report to the host side; if that is gone, the closed socket shows it.
fn tell(control: &OwnedFd, report: &Report) {
    let _ = socket::send(control.as_fd(), &report.to_bytes(), &[]);
}
