use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use atoll_frame::{MESSAGE_BYTES_MAX, Report};
use atoll_sys::{descriptor, process, socket};
use rustix::net::{Shutdown, shutdown};

use crate::SandboxError;

/// A launcher that has been started and waits for a description. It holds
/// nothing and can do nothing yet, so it may be started before the decision:
/// the time it takes runs beside the ledger's.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) line: OwnedFd,
    pub(crate) pid: u32,
    pub(crate) parent: Parent,
}

/// Whose child a launcher is, who alone can wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    /// This process's own.
    Own,
    /// That of the [`Spawner`] with this number.
    Spawner(u32),
}

/// A launcher that is being started.
#[derive(Debug)]
pub struct Starting {
    launcher: Option<Begun>,
}

#[derive(Debug)]
enum Begun {
    /// On a thread of its own: copying it to memory and executing it takes as long
    /// as everything else before a run.
    Thread(JoinHandle<Result<Launcher, SandboxError>>),
    /// By a spawner, which has made it.
    Made(Result<Launcher, SandboxError>),
}

impl Starting {
    /// Begins to start the launcher program, whose bytes these are.
    #[must_use]
    pub fn begin(program: &'static [u8]) -> Self {
        // Where a user has too many processes, there is no thread either.
        let begun = match std::thread::Builder::new().spawn(|| Launcher::start(program)) {
            Ok(thread) => Begun::Thread(thread),
            Err(error) => Begun::Made(Err(SandboxError::Launcher(error))),
        };
        Self {
            launcher: Some(begun),
        }
    }

    /// Has a spawner make one.
    #[must_use]
    pub fn by(spawner: &Spawner) -> Self {
        Self {
            launcher: Some(Begun::Made(spawner.launcher())),
        }
    }

    /// Waits until it is there.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`].
    pub(crate) fn ready(mut self) -> Result<Launcher, SandboxError> {
        let ended = || SandboxError::Launcher(io::Error::other("its thread ended early"));
        match self.launcher.take() {
            Some(Begun::Thread(thread)) => thread.join().unwrap_or_else(|_| Err(ended())),
            Some(Begun::Made(made)) => made,
            None => Err(ended()),
        }
    }
}

impl Drop for Starting {
    /// A launcher that is not needed any more ends before this returns.
    fn drop(&mut self) {
        let begun = match self.launcher.take() {
            Some(Begun::Thread(thread)) => thread.join().ok(),
            Some(Begun::Made(made)) => Some(made),
            None => None,
        };
        if let Some(Ok(launcher)) = begun {
            drop(launcher.let_go());
        }
    }
}

/// A launcher that stays and makes others, a fork for each: for whoever starts many
/// sandboxes. It holds nothing of any of them. Dropped, it ends; what it has made
/// goes on.
#[derive(Debug)]
pub struct Spawner {
    /// One asks and is answered at a time. Closed before its end is waited for.
    line: Mutex<OwnedFd>,
    process: Departing,
}

impl Spawner {
    /// Starts it; these are the launcher program's bytes.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`].
    pub fn start(program: &[u8]) -> Result<Self, SandboxError> {
        let Launcher { line, pid, .. } = Launcher::start(program)?;
        Ok(Self {
            line: Mutex::new(line),
            process: Departing { line: None, pid },
        })
    }

    /// A launcher of its making.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`]: too many processes, or the spawner is gone.
    pub(crate) fn launcher(&self) -> Result<Launcher, SandboxError> {
        let spawner = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = || io::Error::other("the spawner is gone");
        let ask = || -> io::Result<Launcher> {
            let (line, far) = socket::pair()?;
            socket::send(spawner.as_fd(), b"l", &[far.as_fd()])?;
            drop(far);
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
        };
        ask().map_err(|error| {
            SandboxError::Launcher(match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => gone(),
                _ => error,
            })
        })
    }
}

/// What is left of a sandbox that is gone: its launcher, which ends by itself.
/// Dropping this waits for it; other work can be done meanwhile.
#[derive(Debug)]
pub struct Departing {
    /// Not of a launcher of this process's own, which has seen it closed.
    line: Option<OwnedFd>,
    pid: u32,
}

impl Drop for Departing {
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
    /// Starts the launcher program, whose bytes these are, from sealed memory:
    /// nothing that a sandbox can reach names the file that runs.
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
            let name = &crate::without::launcher_name();
            let pid = process::spawn_from_memory(&memory, name, &standard)?;
            let parent = Parent::Own;
            Ok(Self { line, pid, parent })
        };
        start().map_err(SandboxError::Launcher)
    }

    /// The processes of Atoll's own that have to do with it, this one included.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let spawner = match self.parent {
            Parent::Own => None,
            Parent::Spawner(pid) => Some(pid),
        };
        let these = [self.pid, std::process::id()];
        these.into_iter().chain(spawner).collect()
    }

    /// Lets the launcher go: it ends what is left, and itself, once its line is
    /// closed.
    pub(crate) fn let_go(self) -> Departing {
        let Self { line, pid, parent } = self;
        let line = match parent {
            Parent::Own => None,
            Parent::Spawner(_) => {
                // To the launcher as good as closed; its own end still shows here.
                let _ = shutdown(&line, Shutdown::Write);
                Some(line)
            }
        };
        Departing { line, pid }
    }
}
