//! The supervisor, process 1: starts the exec server, reaps, forwards orders, watches, ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_fence::{Fence, Outside};
use atoll_frame::{ExecId, MESSAGE_BYTES_MAX, Nesting, Order, Report, SandboxSpec, Stage};
use atoll_sys::descriptor;
use atoll_sys::memory::erase_stack;
use atoll_sys::process::{self, Change, Waited};
use atoll_sys::socket;
use atoll_sys::terminal::{self, WindowSize};

use crate::filter::Denials;
use crate::gate::Gate;
use crate::server::{self, Started};
use crate::{At, Failure, O_NOCTTY, O_RDWR, SIGTTOU, fenced, memory};

const SIGCHLD: i32 = 17;
/// SIGTSTP, SIGTTIN and SIGTTOU.
const BY_TERMINAL: [u8; 3] = [20, 21, 22];
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;
const SIGHUP: i32 = 1;

/// The time that a program has here beyond its limit: ending it in time is the host side's task,
/// unless that was stopped.
const HOST_GRACE: Duration = Duration::from_secs(5);

/// The most ended processes that are reaped before orders are read again: otherwise a program that
/// forks without end would never receive the order to end.
const REAPED_AT_ONCE_MAX: u32 = 64;

/// The most execs at once that are known; the host side allows fewer.
const EXECS_MAX: usize = 1024;

/// Starts the exec server and returns when the sandbox is to end: by the host side's order or end,
/// a limit, the end of the one exec of a run, or the launcher's end if that is watched.
pub(crate) fn supervise(
    spec: SandboxSpec,
    control: &OwnedFd,
    requests: OwnedFd,
    launcher: Option<BorrowedFd<'_>>,
    outward: Option<OwnedFd>,
) -> Result<(), Failure> {
    let children = process::signals_as_descriptor(&[SIGCHLD]).at(Stage::Start)?;
    let prepared = server::prepare(&spec)?;
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
    let Started { line, listener } = server::start(&prepared, &requests, terminal.as_ref())?;
    // Held here, it would never show the host side the server's end.
    drop(requests);
    drop(prepared);
    let fence = spec
        .fenced
        .then(|| Fence::new(fenced::places(&spec), outside));
    let watch = spec.watch;
    let mounts = spec.nesting != Nesting::Refused;
    let memory = (watch.memory_bytes > 0)
        .then(|| memory::Watch::new(watch.memory_bytes, spec.fenced, mounts));
    let is_run = spec.one_exec;
    // What was needed to start is not kept for whoever takes this process over.
    drop(spec);
    erase_stack();
    tell(control, &Report::Ready);
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
    let mut supervisor = Supervisor {
        control,
        launcher,
        terminal,
        server: Some(line),
        is_run,
        execs: Vec::new(),
        gate: Gate::new(listener, fence, denials),
        memory,
        wall_clock: (watch.wall_clock_ms > 0)
            .then(|| Duration::from_millis(watch.wall_clock_ms).saturating_add(HOST_GRACE)),
        end_at: None,
    };
    let ran = supervisor.run(&children).at(Stage::Start);
    supervisor.gate.tell_rest(control);
    ran
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

struct Supervisor<'a> {
    control: &'a OwnedFd,
    /// Watched in a fence, where this process does not end by itself when the launcher does.
    launcher: Option<BorrowedFd<'a>>,
    /// The terminal of this session, which the first exec has.
    terminal: Option<OwnedFd>,
    /// The socket on which the exec server says which process an exec is, until it has ended.
    server: Option<OwnedFd>,
    /// True if the sandbox ends with its first exec.
    is_run: bool,
    /// The running execs.
    execs: Vec<Exec>,
    gate: Gate,
    /// Set if no cgroup counts the memory.
    memory: Option<memory::Watch>,
    /// The longest time from the first exec on.
    wall_clock: Option<Duration>,
    end_at: Option<Instant>,
}

/// A running exec.
#[derive(Clone, Copy)]
struct Exec {
    id: ExecId,
    pid: u32,
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
    /// The one exec of a run has ended.
    Run,
}

impl Supervisor<'_> {
    fn run(&mut self, children: &OwnedFd) -> io::Result<()> {
        let mut more = false;
        loop {
            let pause_ms = if more { Some(0) } else { self.pause_ms() };
            let on = [
                Some(children.as_fd()),
                Some(self.control.as_fd()),
                self.launcher,
                self.gate.listener(),
                self.server.as_ref().map(AsFd::as_fd),
            ];
            let [died, ordered, alone, waits, spawned] = descriptor::wait_readable(on, pause_ms)?;
            // Before anything is reaped: an exec is said to be one before it can end.
            if (spawned || died) && self.hear_server()? == Next::End {
                return Ok(());
            }
            if died || more {
                match self.reap(children)? {
                    Reaped::All => more = false,
                    Reaped::Some => more = true,
                    Reaped::Run => return Ok(()),
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

    /// Takes every message of the exec server. What it says counts only for a child of this
    /// process, and only the first time.
    fn hear_server(&mut self) -> io::Result<Next> {
        for _ in 0..REAPED_AT_ONCE_MAX {
            let Some(server) = &self.server else {
                break;
            };
            if let [false] = descriptor::wait_readable([Some(server.as_fd())], Some(0))? {
                break;
            }
            let mut message = [0_u8; MESSAGE_BYTES_MAX];
            let received = socket::receive(server.as_fd(), &mut message);
            let got = received.map_or(0, |(got, _)| got);
            if got == 0 {
                self.server = None;
                tell(self.control, &Report::ServerEnded);
                break;
            }
            let message = message.get(..got).unwrap_or_default();
            let Some((id, pid)) = server::spawned(message) else {
                continue;
            };
            let is_known = |one: &Exec| one.id == id || one.pid == pid;
            if self.execs.len() >= EXECS_MAX || self.execs.iter().any(is_known) {
                continue;
            }
            let Ok(ended) = process::wait(Some(pid), false) else {
                continue;
            };
            self.execs.push(Exec { id, pid });
            let limit = self.wall_clock.take();
            let end_at = limit.and_then(|limit| Instant::now().checked_add(limit));
            self.end_at = self.end_at.or(end_at);
            if ended.is_some_and(|ended| self.note(ended) == Next::End) {
                return Ok(Next::End);
            }
        }
        Ok(Next::Wait)
    }

    /// Reaps every child that changed.
    fn reap(&mut self, children: &OwnedFd) -> io::Result<Reaped> {
        while process::next_signal(children.as_fd())?.is_some() {}
        for _ in 0..REAPED_AT_ONCE_MAX {
            let waited = match process::wait(None, false) {
                // No child is left once the exec server and all execs have ended.
                Err(error) if error.raw_os_error() == Some(ECHILD) => return Ok(Reaped::All),
                waited => waited?,
            };
            let Some(waited) = waited else {
                return Ok(Reaped::All);
            };
            if self.note(waited) == Next::End {
                return Ok(Reaped::Run);
            }
        }
        Ok(Reaped::Some)
    }

    /// Takes note of a child's change; the end of a run's one exec is the sandbox's end.
    fn note(&mut self, waited: Waited) -> Next {
        let exec = self.execs.iter().position(|exec| exec.pid == waited.pid);
        let (signalled, number) = match waited.change {
            Change::Exited(status) => (false, status),
            Change::Signalled(signal) => (true, signal),
            // A child that made this process its tracer would wait for it for ever.
            Change::Stopped(signal) if process::stop_tracing(waited.pid, signal) => {
                return Next::Wait;
            }
            Change::Stopped(signal) => {
                let exec = exec.and_then(|at| self.execs.get(at));
                // A stop that the program asked for itself does not stop the host.
                if let Some(&Exec { id: exec, .. }) = exec.filter(|_| BY_TERMINAL.contains(&signal))
                {
                    tell(self.control, &Report::Stopped { exec, signal });
                }
                return Next::Wait;
            }
        };
        let Some(exec) = exec.map(|at| self.execs.swap_remove(at)) else {
            return Next::Wait;
        };
        self.gate.tell_rest(self.control);
        let ended = Report::Ended {
            exec: exec.id,
            signalled,
            number,
        };
        tell(self.control, &ended);
        match self.is_run && exec.id == ExecId::FIRST {
            true => Next::End,
            false => Next::Wait,
        }
    }

    fn obey(&self) -> io::Result<Next> {
        let mut buffer = [0_u8; MESSAGE_BYTES_MAX];
        let (got, _) = socket::receive(self.control.as_fd(), &mut buffer)?;
        let message = buffer.get(..got).unwrap_or_default();
        if message.is_empty() {
            return Ok(Next::End);
        }
        let pid = |id: ExecId| {
            let exec = self.execs.iter().find(|exec| exec.id == id);
            exec.map(|exec| exec.pid)
        };
        match Order::from_bytes(message).map_err(io::Error::other)? {
            Order::Signal(id, number) => {
                if let Some(pid) = pid(id) {
                    // No number that somebody sends ends the sandbox.
                    let _ = process::signal_group(pid, i32::from(number));
                }
            }
            Order::Continue(id) => {
                let Some(pid) = pid(id) else {
                    return Ok(Next::Wait);
                };
                if let Some(terminal) = self.terminal.as_ref().filter(|_| id == ExecId::FIRST) {
                    // A group that has gone meanwhile needs no foreground.
                    let _ = terminal::set_foreground(terminal.as_fd(), pid);
                }
                process::signal_group(pid, SIGCONT)?;
            }
            // In a fence every process of the user would be meant.
            Order::Freeze | Order::Thaw if self.launcher.is_some() => {}
            Order::Freeze => process::signal_all(SIGSTOP)?,
            Order::Thaw => process::signal_all(SIGCONT)?,
            Order::End => return Ok(Next::End),
        }
        Ok(Next::Wait)
    }
}

const ECHILD: i32 = 10;

/// Sends a report to the host side; if that is gone, the closed socket shows it.
fn tell(control: &OwnedFd, report: &Report) {
    let _ = socket::send(control.as_fd(), &report.to_bytes(), &[]);
}
