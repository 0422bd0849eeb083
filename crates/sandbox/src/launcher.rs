use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use atoll_frame::{MESSAGE_BYTES_MAX, Report};
use atoll_model::Mode;
use atoll_sys::{descriptor, process, socket};
use rustix::net::{Shutdown, shutdown};

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
/// more than requested is kept waiting, so that the next sandbox starts sooner.
#[derive(Debug)]
pub struct Spawner {
    /// The sockets, for one request at a time. Closed before the spawner's end is awaited.
    lines: Mutex<Lines>,
    /// The message that tells each launcher what to make while it waits.
    word: &'static [u8],
    /// True if one launcher is kept waiting.
    is_ready: bool,
    process: LauncherReaper,
}

#[derive(Debug)]
struct Lines {
    spawner: OwnedFd,
    /// The socket of a launcher that was requested, and is not yet confirmed.
    next: Option<OwnedFd>,
}

impl Spawner {
    /// Starts a spawner, given the launcher program's bytes.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`].
    pub fn start(program: &[u8], host: &Host) -> Result<Self, SandboxError> {
        let Launcher { line, pid, .. } = Launcher::start(program)?;
        // Of others, all namespaces belong to one that only the description tells of;
        // and in a fence there are none.
        let is_ahead = is_made_ahead() && matches!(host.mode(), Ok(Mode::Full));
        Ok(Self {
            lines: Mutex::new(Lines {
                spawner: line,
                next: None,
            }),
            is_ready: lists_children(),
            word: if is_ahead { AHEAD } else { b"l" },
            process: LauncherReaper { line: None, pid },
        })
    }

    /// Takes a launcher from the spawner.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`]: too many processes, or the spawner is gone.
    pub(crate) fn launcher(&self) -> Result<Launcher, SandboxError> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = lines.next.take();
        let waiting = waiting.and_then(|line| self.answered(&lines.spawner, line).ok());
        // A line that can be read has been closed: by itself it says nothing yet.
        let is_there = |launcher: &Launcher| {
            let seen = descriptor::wait_readable([Some(launcher.line.as_fd())], Some(0));
            seen.is_ok_and(|[readable]| !readable)
        };
        let launcher = match waiting.filter(is_there) {
            Some(launcher) => Ok(launcher),
            None => self
                .ask(&lines.spawner)
                .and_then(|line| self.answered(&lines.spawner, line)),
        };
        // Where it fails, whoever needs it is told.
        if self.is_ready {
            lines.next = self.ask(&lines.spawner).ok();
        }
        launcher.map_err(|error| {
            SandboxError::Launcher(match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => gone(),
                _ => error,
            })
        })
    }

    /// Requests a launcher; returns its socket.
    fn ask(&self, spawner: &OwnedFd) -> io::Result<OwnedFd> {
        let (line, far) = socket::pair()?;
        socket::send(spawner.as_fd(), self.word, &[far.as_fd()])?;
        Ok(line)
    }

    /// Reads the confirmation of a launcher.
    fn answered(&self, spawner: &OwnedFd, line: OwnedFd) -> io::Result<Launcher> {
        let mut answer = [0_u8; MESSAGE_BYTES_MAX];
        let (got, _) = socket::receive(spawner.as_fd(), &mut answer)?;
        match Report::from_bytes(answer.get(..got).unwrap_or_default()) {
            Ok(Report::Started { pid }) => Ok(Launcher {
                line,
                pid,
                parent: Parent::Spawner(self.process.pid),
            }),
            Ok(Report::Failed { error, .. }) => Err(io::Error::from_raw_os_error(error)),
            _ if got == 0 => Err(gone()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
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

fn gone() -> io::Error {
    io::Error::other("the spawner is gone")
}

/// The launcher of a sandbox that has ended, which ends by itself. Dropping this waits for it;
/// other work can be done meanwhile.
#[derive(Debug)]
pub struct LauncherReaper {
    /// The launcher's socket; `None` for a launcher of this process, which has seen it closed.
    line: Option<OwnedFd>,
    pid: u32,
}

impl Drop for LauncherReaper {
    fn drop(&mut self) {
        // That it is gone already is the only error there can be.
        match &self.line {
            None => drop(process::wait(Some(self.pid), true)),
            Some(line) => {
                let mut rest = [0_u8; MESSAGE_BYTES_MAX];
                while socket::receive(line.as_fd(), &mut rest).is_ok_and(|(got, _)| got > 0) {}
            }
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
        let start = || -> std::io::Result<Self> {
            let memory = descriptor::sealed_memory(c"atoll-jail", program)?;
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
            let pid = process::spawn_from_memory(&memory, name, &standard)?;
            let parent = Parent::Own;
            Ok(Self { line, pid, parent })
        };
        start().map_err(SandboxError::Launcher)
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
