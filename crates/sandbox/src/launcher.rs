use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

use atoll_sys::{descriptor, process, socket};

use crate::SandboxError;

/// A launcher that has been started and waits for a description. It holds
/// nothing and can do nothing yet, so it may be started before the decision:
/// the time it takes runs beside the ledger's.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) line: OwnedFd,
    pub(crate) pid: u32,
}

/// A launcher that is being started, on a thread of its own: copying it to memory
/// and executing it takes as long as everything else before a run.
#[derive(Debug)]
pub struct Starting {
    thread: Option<io::Result<JoinHandle<Result<Launcher, SandboxError>>>>,
}

impl Starting {
    /// Begins to start the launcher program, whose bytes these are.
    #[must_use]
    pub fn begin(program: &'static [u8]) -> Self {
        // Where a user has too many processes, there is no thread either.
        let thread = std::thread::Builder::new().spawn(|| Launcher::start(program));
        Self {
            thread: Some(thread),
        }
    }

    /// Whether it can be started at all; it is let go again.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`].
    pub fn works(self) -> Result<(), SandboxError> {
        self.ready().map(|launcher| drop(launcher.let_go()))
    }

    /// Waits until it is there.
    ///
    /// # Errors
    /// [`SandboxError::Launcher`].
    pub(crate) fn ready(mut self) -> Result<Launcher, SandboxError> {
        let ended = std::io::Error::other("its thread ended early");
        match self.thread.take() {
            Some(Ok(thread)) => match thread.join() {
                Ok(started) => started,
                Err(_) => Err(SandboxError::Launcher(ended)),
            },
            Some(Err(error)) => Err(SandboxError::Launcher(error)),
            None => Err(SandboxError::Launcher(ended)),
        }
    }
}

impl Drop for Starting {
    /// A launcher that is not needed any more ends before this returns.
    fn drop(&mut self) {
        if let Some(Ok(thread)) = self.thread.take()
            && let Ok(Ok(launcher)) = thread.join()
        {
            drop(launcher.let_go());
        }
    }
}

/// What is left of a sandbox that is gone: its launcher, which ends by itself.
/// Dropping this waits for it; other work can be done meanwhile.
#[derive(Debug)]
pub struct Departing {
    pid: u32,
}

impl Drop for Departing {
    fn drop(&mut self) {
        // That it is gone already is the only error there can be.
        let _ = process::wait(Some(self.pid), true);
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
            Ok(Self { line, pid })
        };
        start().map_err(SandboxError::Launcher)
    }

    /// Lets the launcher go: it ends what is left, and itself, once its line is
    /// closed.
    pub(crate) fn let_go(self) -> Departing {
        Departing { pid: self.pid }
    }
}
