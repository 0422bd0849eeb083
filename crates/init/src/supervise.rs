//! Process 1: starts the program, reaps, passes orders on, watches, ends.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use atoll_frame::{MESSAGE_BYTES_MAX, Order, Report, Spec, Stage};
use atoll_sys::descriptor::{self, Waiting};
use atoll_sys::process::{self, Change};
use atoll_sys::terminal::{self, WindowSize};
use atoll_sys::socket;

use crate::program::{self, Started};
use crate::{At, Failure};

const SIGCHLD: i32 = 17;
const SIGCONT: i32 = 18;
const SIGHUP: i32 = 1;
const SIGTTOU: i32 = 22;
const O_RDWR: i32 = 2;
const O_NOCTTY: i32 = 0o400;

/// How often the memory of all processes is added up, milliseconds.
const WATCH_INTERVAL_MS: u32 = 100;

/// How many ended processes are taken before orders are looked at again:
/// otherwise a program that forks without end would never be told to end.
const REAPED_AT_ONCE_MAX: u32 = 64;

/// Runs the program and returns when it has ended, or the host side has.
pub(crate) fn supervise(
    spec: &Spec,
    control: &OwnedFd,
    standard: [OwnedFd; 3],
) -> Result<(), Failure> {
    let children = process::signals_as_descriptor(&[SIGCHLD]).at(Stage::Start)?;
    let prepared = program::prepare(spec)?;
    let terminal = match spec.terminal {
        None => {
            terminal::lead_session(None).at(Stage::Start)?;
            None
        }
        Some(size) => Some(open_terminal(control, size.rows, size.columns)?),
    };
    let started = match &terminal {
        None => {
            let [input, output, error] = &standard;
            program::start(&prepared, [input.as_fd(), output.as_fd(), error.as_fd()], false)?
        }
        Some(side) => program::start(&prepared, [side.as_fd(); 3], true)?,
    };
    // A pipe held here would never show its end to the host side.
    drop(standard);
    drop(prepared);
    let program = match started {
        Started::Running(pid) => pid,
        Started::NotExecuted(error) => {
            tell(control, &Report::NotExecuted { error });
            return Ok(());
        }
    };
    tell(control, &Report::Running);
    let mut overseer = Overseer { control, terminal, program, watch_bytes: spec.watch.memory_bytes };
    overseer.run(&children).at(Stage::Start)
}

/// Opens a terminal inside, makes it this session's, and hands its other side
/// to the host.
fn open_terminal(control: &OwnedFd, rows: u16, columns: u16) -> Result<OwnedFd, Failure> {
    process::ignore_signal(SIGHUP);
    process::ignore_signal(SIGTTOU);
    let open = || -> io::Result<OwnedFd> {
        let multiplexer = descriptor::open_for_writing(c"/dev/pts/ptmx", O_RDWR | O_NOCTTY)?;
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
    terminal: Option<OwnedFd>,
    program: u32,
    watch_bytes: u64,
}

/// Whether to go on.
#[derive(PartialEq, Eq)]
enum Next {
    Wait,
    End,
}

/// What was taken of the processes that have ended.
enum Reaped {
    /// All of them.
    All,
    /// So many that others may be left.
    Some,
    /// The program itself.
    Program,
}

impl Overseer<'_> {
    fn run(&mut self, children: &OwnedFd) -> io::Result<()> {
        let interval = (self.watch_bytes > 0).then_some(WATCH_INTERVAL_MS);
        let mut more = false;
        loop {
            let mut waiting = [
                Waiting { fd: children.as_fd(), ready: false },
                Waiting { fd: self.control.as_fd(), ready: false },
            ];
            descriptor::wait_readable(&mut waiting, if more { Some(0) } else { interval })?;
            let [died, ordered] = waiting.map(|one| one.ready);
            if died || more {
                match self.reap(children)? {
                    Reaped::All => more = false,
                    Reaped::Some => more = true,
                    Reaped::Program => return Ok(()),
                }
            }
            if ordered && self.obey()? == Next::End {
                return Ok(());
            }
            if self.watch_bytes > 0 && memory_in_use() > self.watch_bytes {
                tell(self.control, &Report::MemoryReached);
                return Ok(());
            }
        }
    }

    /// Takes every child that changed; the program's end is the sandbox's end.
    fn reap(&self, children: &OwnedFd) -> io::Result<Reaped> {
        while process::next_signal(children.as_fd())?.is_some() {}
        for _ in 0..REAPED_AT_ONCE_MAX {
            let Some(waited) = process::wait(None, false)? else { return Ok(Reaped::All) };
            if waited.pid != self.program {
                continue;
            }
            let (signalled, number) = match waited.change {
                Change::Exited(status) => (false, status),
                Change::Signalled(signal) => (true, signal),
                Change::Stopped(signal) => {
                    tell(self.control, &Report::Stopped { signal });
                    continue;
                }
            };
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
                    terminal::set_foreground(terminal.as_fd(), self.program)?;
                }
                process::signal_group(self.program, SIGCONT)?;
            }
            Order::End => return Ok(Next::End),
        }
        Ok(Next::Wait)
    }
}

/// Tells the host side; when it is gone, the line's end says so by itself.
fn tell(control: &OwnedFd, report: &Report) {
    let _ = socket::send(control.as_fd(), &report.to_bytes(), &[]);
}

/// Memory of all processes inside, bytes: resident pages that are not shared.
fn memory_in_use() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    let private_pages = |pid: &str| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        let mut fields = text.split(' ').skip(1).map(|field| field.parse::<u64>().ok());
        let (resident, shared) = (fields.next()??, fields.next()??);
        Some(resident.saturating_sub(shared))
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|pid| private_pages(&pid))
        .sum::<u64>()
        * PAGE_BYTES
}
