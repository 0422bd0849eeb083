//! The supervisor, process 1: starts the exec server, reaps, forwards orders, watches, ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_fence::{Fence, Outside};
use atoll_frame::{ExecId, MESSAGE_BYTES_MAX, Nesting, Order, Report, SandboxSpec, Stage};
use atoll_sys::descriptor;
use atoll_sys::memory::erase_stack;
use atoll_sys::process::{self, Change};
use atoll_sys::socket;
use atoll_sys::terminal::{self, WindowSize};

use crate::execs::{Child, Execs, Heard, News, Sources};
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

/// The time until ends are reported again to a host side that does not read, milliseconds.
const TOLD_AGAIN_MS: u32 = 10;

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
        sources: Children { server: Some(line) },
        is_run,
        is_over: false,
        execs: Execs::default(),
        untold: Vec::new(),
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
    sources: Children,
    /// True if the sandbox ends with its first exec.
    is_run: bool,
    /// True once that has ended.
    is_over: bool,
    execs: Execs,
    /// The ends of execs that the host side does not know yet.
    untold: Vec<Report>,
    gate: Gate,
    /// Set if no cgroup counts the memory.
    memory: Option<memory::Watch>,
    /// The longest time from the first exec on.
    wall_clock: Option<Duration>,
    end_at: Option<Instant>,
}

/// The next action of the loop.
#[derive(PartialEq, Eq)]
enum Next {
    Wait,
    End,
}

/// The kernel, and the socket on which the exec server says which process an exec is, until that
/// has ended.
struct Children {
    server: Option<OwnedFd>,
}

impl Sources for Children {
    fn changed(&mut self) -> io::Result<Option<u32>> {
        match process::changed_child() {
            // No child is left once the exec server and all execs have ended.
            Err(error) if error.raw_os_error() == Some(ECHILD) => Ok(None),
            changed => changed,
        }
    }

    fn take(&mut self, pid: u32) -> io::Result<Child> {
        let waited = match process::wait(Some(pid), false) {
            Err(error) if error.raw_os_error() == Some(ECHILD) => return Ok(Child::Gone),
            waited => waited?,
        };
        Ok(match waited.map(|waited| waited.change) {
            None => Child::Running,
            // A child that made this process its tracer would wait for it for ever.
            Some(Change::Stopped(signal)) if process::stop_tracing(pid, signal) => Child::Running,
            Some(change) => Child::Changed(change),
        })
    }

    fn heard(&mut self) -> io::Result<Heard> {
        let Some(server) = &self.server else {
            return Ok(Heard::Nothing);
        };
        if let [false] = descriptor::wait_readable([Some(server.as_fd())], Some(0))? {
            return Ok(Heard::Nothing);
        }
        let mut message = [0_u8; MESSAGE_BYTES_MAX];
        let received = socket::receive(server.as_fd(), &mut message);
        let got = received.map_or(0, |(got, _)| got);
        if got == 0 {
            self.server = None;
            return Ok(Heard::End);
        }
        let said = server::spawned(message.get(..got).unwrap_or_default());
        Ok(said.map_or(Heard::Malformed, |(id, pid)| Heard::Exec(id, pid)))
    }
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
                self.sources.server.as_ref().map(AsFd::as_fd),
            ];
            let [died, ordered, alone, waits, spawned] = descriptor::wait_readable(on, pause_ms)?;
            if died || spawned || more {
                more = self.attend_execs(children)?;
            }
            self.tell_ends();
            if self.is_over && self.untold.is_empty() {
                return Ok(());
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
        let look = self.memory.as_ref().map(|memory| {
            let pause = memory.pause().as_millis();
            u32::try_from(pause).unwrap_or(u32::MAX).saturating_add(1)
        });
        let tell = self.gate.pause_ms();
        let ends = (!self.untold.is_empty()).then_some(TOLD_AGAIN_MS);
        let all = left.into_iter().chain(look).chain(tell).chain(ends);
        all.min()
    }

    /// Takes the reports on execs. Returns true if there may be more.
    fn attend_execs(&mut self, children: &OwnedFd) -> io::Result<bool> {
        // First: a child that ends later makes it readable again.
        while process::next_signal(children.as_fd())?.is_some() {}
        let mut news = Vec::new();
        let is_all = self.execs.attend(&mut self.sources, &mut news)?;
        for one in news {
            self.report(one);
        }
        Ok(!is_all)
    }

    fn report(&mut self, news: News) {
        match news {
            News::Started => {
                let limit = self.wall_clock.take();
                let end_at = limit.and_then(|limit| Instant::now().checked_add(limit));
                self.end_at = self.end_at.or(end_at);
            }
            News::ServerEnded => tell(self.control, &Report::ServerEnded),
            News::Changed(exec, Change::Exited(status)) => self.end(exec, false, status),
            News::Changed(exec, Change::Signalled(signal)) => self.end(exec, true, signal),
            // A stop that the program asked for itself does not stop the host.
            News::Changed(exec, Change::Stopped(signal)) if BY_TERMINAL.contains(&signal) => {
                tell(self.control, &Report::Stopped { exec, signal });
            }
            News::Changed(_, Change::Stopped(_)) => {}
        }
    }

    /// Reports an exec's end; that of a run's one exec is the sandbox's end.
    fn end(&mut self, exec: ExecId, signalled: bool, number: u8) {
        self.gate.tell_rest(self.control);
        self.untold.push(Report::Ended {
            exec,
            signalled,
            number,
        });
        self.is_over |= self.is_run && exec == ExecId::FIRST;
        self.tell_ends();
    }

    /// Reports the ends that are not reported yet: a host side that does not read them now, being
    /// busy or stopped, gets them later.
    fn tell_ends(&mut self) {
        let control = self.control.as_fd();
        self.untold.retain(|end| {
            let sent = socket::send(control, &end.to_bytes(), &[]);
            sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        });
    }

    fn obey(&self) -> io::Result<Next> {
        let mut buffer = [0_u8; MESSAGE_BYTES_MAX];
        let (got, _) = socket::receive(self.control.as_fd(), &mut buffer)?;
        let message = buffer.get(..got).unwrap_or_default();
        if message.is_empty() {
            return Ok(Next::End);
        }
        match Order::from_bytes(message).map_err(io::Error::other)? {
            Order::Signal(id, number) => {
                if let Some(pid) = self.execs.pid(id) {
                    // No number that somebody sends ends the sandbox.
                    let _ = process::signal_group(pid, i32::from(number));
                }
            }
            Order::Continue(id) => {
                let Some(pid) = self.execs.pid(id) else {
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
