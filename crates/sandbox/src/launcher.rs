use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use atoll_frame::{MESSAGE_BYTES_MAX, Report};
use atoll_model::Mode;
use atoll_sys::{descriptor, process, socket};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid,
};

use crate::{Host, SandboxError};

/// The message for preparing the network and the id maps of root's sandboxes ahead of a
/// description; see `stand_by` in jail.
const AHEAD: &[u8] = b"a";

/// A started launcher that waits for a description. It holds nothing and can do nothing yet, so
/// it may be started before the decision, in parallel with the ledger.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) line: OwnedFd,
    pub(crate) pid: u32,
    pub(crate) parent: Parent,
}

/// The parent of a launcher, which alone can wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    /// This process.
    Own,
    /// The [`Spawner`] with this process id.
    Spawner(u32),
}

/// A started launcher, or why there is none: told once it is needed.
#[derive(Debug)]
pub struct Starting {
    launcher: Option<Result<Launcher, SandboxError>>,
    /// The program for starting another one, if this one cannot be used.
    program: Option<&'static [u8]>,
}

impl Starting {
    /// Starts the launcher program, given its bytes. It gets ready while the caller goes on.
    #[must_use]
    pub fn begin(program: &'static [u8]) -> Self {
        Self {
            launcher: Some(Launcher::start(program).inspect(Launcher::make_ahead)),
            program: Some(program),
        }
    }

    /// Has a spawner start a launcher.
    #[must_use]
    pub fn by(spawner: &Spawner) -> Self {
        Self {
            launcher: Some(spawner.launcher()),
            program: None,
        }
    }

    /// Checks that the launcher can be started, and ends it again.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`].
    pub fn works(self) -> Result<(), SandboxError> {
        self.ready().map(|launcher| drop(launcher.let_go()))
    }

    /// Returns a launcher for a fence, whose program uses its caller's network: a launcher that has
    /// made a network already is ended, and another started.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`].
    pub(crate) fn ready_for_fence(mut self) -> Result<Launcher, SandboxError> {
        let another = self.program.filter(|_| is_made_ahead());
        let Some(program) = another else {
            return self.ready();
        };
        if let Some(Ok(launcher)) = self.launcher.take() {
            drop(launcher.let_go());
        }
        Launcher::start(program)
    }

    /// Returns the launcher.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`].
    pub(crate) fn ready(mut self) -> Result<Launcher, SandboxError> {
        let missing = || SandboxError::Launcher(gone());
        self.launcher.take().unwrap_or_else(|| Err(missing()))
    }
}

impl Drop for Starting {
    /// Ends a launcher that is no longer needed, before this returns.
    fn drop(&mut self) {
        if let Some(Ok(launcher)) = self.launcher.take() {
            drop(launcher.let_go());
        }
    }
}

/// A launcher that stays and forks others, for a process that starts many sandboxes. It holds
/// nothing of any of them. When dropped, it ends; launchers that it made go on. One launcher
/// more than requested is kept waiting, so that the next sandbox starts sooner. One that was ended,
/// or does not answer, is started again.
#[derive(Debug)]
pub struct Spawner {
    /// The process, for one request at a time.
    process: Mutex<Process>,
    /// The launcher program.
    program: OwnedFd,
    /// The message that tells each launcher what to make while it waits.
    word: &'static [u8],
    /// True if one launcher is kept waiting.
    is_ready: bool,
}

/// The spawner's process. Its sockets are closed before its end is awaited.
#[derive(Debug)]
struct Process {
    line: OwnedFd,
    /// The socket of a launcher that was requested, and is not yet confirmed.
    next: Option<OwnedFd>,
    reaper: LauncherReaper,
}

/// The longest time for it to make a launcher, milliseconds.
const MADE_WITHIN_MS: u32 = 10_000;

impl Spawner {
    /// Starts a spawner, given the launcher program's bytes.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`].
    pub fn start(program: &[u8], host: &Host) -> Result<Self, SandboxError> {
        let program = Launcher::memory(program).map_err(SandboxError::Launcher)?;
        let process = Mutex::new(Process::start(&program)?);
        // Of others, all namespaces belong to one that only the description tells of;
        // and in a fence there are none.
        let is_ahead = is_made_ahead() && matches!(host.mode(), Ok(Mode::Full));
        Ok(Self {
            process,
            program,
            is_ready: lists_children(),
            word: if is_ahead { AHEAD } else { b"l" },
        })
    }

    /// Returns whether it is there to make launchers, or can be started again.
    #[must_use]
    pub fn is_there(&self) -> bool {
        // Whoever has it finds out.
        let Ok(mut process) = self.process.try_lock() else {
            return true;
        };
        !process.has_ended() || self.replace(&mut process).is_ok()
    }

    /// Takes a launcher from the spawner.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`]: too many processes.
    pub(crate) fn launcher(&self) -> Result<Launcher, SandboxError> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let launcher = match self.take(&mut process) {
            Err(error) if is_gone(&error) => {
                self.replace(&mut process)?;
                self.take(&mut process)
            }
            taken => taken,
        };
        if launcher.as_ref().is_err_and(is_gone) {
            self.replace(&mut process)?;
        }
        // Where it fails, whoever needs it is told.
        if self.is_ready {
            process.next = self.ask(&process.line).ok();
        }
        launcher.map_err(SandboxError::Launcher)
    }

    /// Ends the process, if it has not ended, and starts another.
    fn replace(&self, process: &mut Process) -> Result<(), SandboxError> {
        *process = Process::start(&self.program)?;
        Ok(())
    }

    /// Takes the launcher that waits, or a new one.
    fn take(&self, process: &mut Process) -> io::Result<Launcher> {
        let waiting = process.next.take().map(|line| process.answered(line));
        let waiting = match waiting {
            // Its answer may still come, and would be taken for the next one's.
            Some(Err(error)) if is_gone(&error) => return Err(error),
            waiting => waiting.and_then(Result::ok),
        };
        // A line that can be read has been closed: by itself it says nothing yet.
        let is_there = |launcher: &Launcher| {
            let seen = descriptor::wait_readable([Some(launcher.line.as_fd())], Some(0));
            seen.is_ok_and(|[readable]| !readable)
        };
        match waiting.filter(is_there) {
            Some(launcher) => Ok(launcher),
            None => self
                .ask(&process.line)
                .and_then(|line| process.answered(line)),
        }
    }

    /// Requests a launcher; returns its socket.
    fn ask(&self, spawner: &OwnedFd) -> io::Result<OwnedFd> {
        let (line, far) = socket::pair()?;
        socket::send(spawner.as_fd(), self.word, &[far.as_fd()])?;
        Ok(line)
    }
}

impl Process {
    fn start(program: &OwnedFd) -> Result<Self, SandboxError> {
        let started = Launcher::start_from(program).map_err(SandboxError::Launcher)?;
        Ok(Self {
            line: started.line,
            next: None,
            reaper: LauncherReaper {
                line: None,
                pid: started.pid,
            },
        })
    }

    /// Reads the confirmation of a launcher.
    fn answered(&self, line: OwnedFd) -> io::Result<Launcher> {
        let spawner = self.line.as_fd();
        let [true] = descriptor::wait_readable([Some(spawner)], Some(MADE_WITHIN_MS))? else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        let mut answer = [0_u8; MESSAGE_BYTES_MAX];
        let (got, _) = socket::receive(spawner, &mut answer)?;
        match Report::from_bytes(answer.get(..got).unwrap_or_default()) {
            Ok(Report::Started { pid }) => Ok(Launcher {
                line,
                pid,
                parent: Parent::Spawner(self.reaper.pid),
            }),
            Ok(Report::Failed { error, .. }) => Err(io::Error::from_raw_os_error(error)),
            _ if got == 0 => Err(io::ErrorKind::BrokenPipe.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Returns whether it has ended; it is reaped later.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = pid_of(self.reaper.pid).map(|pid| waitid(WaitId::Pid(pid), options));
        !matches!(ended, Some(Ok(None)))
    }
}

impl Drop for Process {
    /// Ends it: one that is stopped would not see its line close. Its number is its own until it is
    /// reaped.
    fn drop(&mut self) {
        signal(self.reaper.pid, Signal::KILL);
    }
}

/// Returns whether an error says that the spawner has ended, or does not answer.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut};
    matches!(error.kind(), BrokenPipe | ConnectionReset | TimedOut)
}

/// Returns whether a launcher makes namespaces ahead of its description: those of root belong
/// to no user that only the description would name.
fn is_made_ahead() -> bool {
    rustix::process::geteuid().is_root() && lists_children()
}

/// Returns whether the kernel lists child processes: they may have to leave a group together
/// with their parent.
pub(crate) fn lists_children() -> bool {
    Path::new("/proc/thread-self/children").exists()
}

/// Returns the present children of a process (proc_pid_task_children(5)), if the kernel lists
/// them.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .filter_map(|one| one.parse().ok())
        .collect()
}

/// Returns the children of every thread of a process.
pub(crate) fn children_of_all(pid: u32) -> Vec<u32> {
    let threads = threads(pid).into_iter();
    let lists = threads.filter_map(|thread| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).ok()
    });
    let numbers = lists.flat_map(|list| {
        let numbers = list.split_ascii_whitespace().map(str::parse);
        numbers.filter_map(Result::ok).collect::<Vec<u32>>()
    });
    numbers.collect()
}

/// Returns the threads of a process.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let names = tasks.flatten().map(|task| task.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

/// Continues a launcher and the first process, where somebody outside has stopped them.
pub(crate) fn wake(launcher: u32) {
    for pid in std::iter::once(launcher).chain(children_of(launcher)) {
        signal(pid, Signal::CONT);
    }
}

fn signal(pid: u32, signal: Signal) {
    // That it is gone is as good.
    let _ = pid_of(pid).map(|pid| kill_process(pid, signal));
}

fn pid_of(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

fn gone() -> io::Error {
    io::Error::other("the launcher is gone")
}

/// The launcher of a sandbox that has ended, which ends by itself. Dropping this waits for it;
/// other work can be done meanwhile.
#[derive(Debug)]
pub struct LauncherReaper {
    /// The launcher's socket; `None` for a launcher of this process, which has seen it closed.
    line: Option<OwnedFd>,
    pid: u32,
}

/// The longest time for a launcher to end by itself: then it is continued, in case that somebody
/// has stopped it.
const ENDED_WITHIN: Duration = Duration::from_secs(2);
/// The longest time for the end of one that was continued, and of one that was killed.
const GONE_WITHIN: Duration = Duration::from_secs(10);

impl LauncherReaper {
    /// Waits for the end. Returns whether it came in time.
    fn is_gone_within(&self, time: Duration) -> bool {
        let own = || pidfd_open(pid_of(self.pid)?, PidfdFlags::empty()).ok();
        let end = match &self.line {
            Some(line) => line.as_fd(),
            None => match &own() {
                Some(end) => return is_readable_until(end.as_fd(), Instant::now() + time),
                None => return true,
            },
        };
        let until = Instant::now() + time;
        let mut rest = [0_u8; MESSAGE_BYTES_MAX];
        while is_readable_until(end, until) {
            if !socket::receive(end, &mut rest).is_ok_and(|(got, _)| got > 0) {
                return true;
            }
        }
        false
    }
}

fn is_readable_until(on: BorrowedFd<'_>, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        match descriptor::wait_readable([Some(on)], Some(left_ms)) {
            Ok([false]) if left_ms > 0 => {}
            Ok([is_readable]) => return is_readable,
            Err(_) => return true,
        }
    }
}

impl Drop for LauncherReaper {
    fn drop(&mut self) {
        let is_gone = self.is_gone_within(ENDED_WITHIN)
            || {
                wake(self.pid);
                self.is_gone_within(GONE_WITHIN)
            }
            || {
                signal(self.pid, Signal::KILL);
                self.is_gone_within(GONE_WITHIN)
            };
        if is_gone && self.line.is_none() {
            // That it is reaped already is the only error there can be.
            drop(process::wait(Some(self.pid), true));
        }
    }
}

impl Launcher {
    /// Starts the launcher program, given its bytes, from sealed memory: no file that a sandbox
    /// can reach names the running program.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`].
    pub(crate) fn start(program: &[u8]) -> Result<Self, SandboxError> {
        let memory = Self::memory(program);
        let started = memory.and_then(|memory| Self::start_from(&memory));
        started.map_err(SandboxError::Launcher)
    }

    /// Puts the launcher program into sealed memory.
    fn memory(program: &[u8]) -> io::Result<OwnedFd> {
        descriptor::sealed_memory(c"atoll-jail", program)
    }

    fn start_from(memory: &OwnedFd) -> io::Result<Self> {
        let (line, far) = socket::pair()?;
        let nothing: OwnedFd = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")?
            .into();
        let standard = [
            nothing.as_fd(),
            nothing.as_fd(),
            nothing.as_fd(),
            far.as_fd(),
        ];
        #[cfg(not(feature = "without_defences"))]
        let name = c"atoll-jail";
        #[cfg(feature = "without_defences")]
        let name = &crate::without::name_of(c"atoll-jail");
        let pid = process::spawn_from_memory(memory, name, &standard)?;
        let parent = Parent::Own;
        Ok(Self { line, pid, parent })
    }

    /// Makes the launcher prepare root's namespaces before the decision.
    fn make_ahead(&self) {
        if is_made_ahead() {
            // That it is gone is found when it is needed.
            let _ = socket::send(self.line.as_fd(), AHEAD, &[]);
        }
    }

    /// Returns the processes of Atoll that belong to it, this one included. Children are read
    /// last: those made after their parent was moved are in the same group as it.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        let spawner = match self.parent {
            Parent::Own => None,
            Parent::Spawner(pid) => Some(pid),
        };
        let these = [self.pid, std::process::id()];
        let first = spawner.unwrap_or(self.pid);
        // Launchers, and who holds ids for them.
        let children = || children_of(first).into_iter();
        let further = children().chain(children().flat_map(children_of));
        spawner.into_iter().chain(these).chain(further)
    }

    /// Releases the launcher: once its socket is closed, it ends whatever is left, and itself.
    pub(crate) fn let_go(self) -> LauncherReaper {
        let Self { line, pid, parent } = self;
        let line = match parent {
            Parent::Own => None,
            Parent::Spawner(_) => {
                // To the launcher as good as closed; its own end still shows here.
                let _ = shutdown(&line, Shutdown::Write);
                Some(line)
            }
        };
        LauncherReaper { line, pid }
    }
}
