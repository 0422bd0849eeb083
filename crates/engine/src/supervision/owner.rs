//! Requests of the program that holds a living sandbox to the thread that supervises it: both are
//! one process, so no socket is needed, and the sandbox can be asked as soon as it is there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use atoll_model::Served;
use atoll_model::network::Network;
use atoll_sandbox::{Declined, FileServer, Size};
use rustix::event::{EventfdFlags, eventfd};

use crate::supervision::control::{
    ANSWER_PATIENCE, Answer, ControlError, ExecCaller, ExecConnection, ExecRequest, Frozen,
    Question, frozen,
};

/// The end of the program that holds a sandbox.
pub struct Owner {
    asked: Sender<OwnerAsk>,
    launcher: Arc<AtomicU32>,
    /// Made readable by each request.
    wake: OwnedFd,
}

/// The end of the thread that supervises it.
pub struct OwnerEnd {
    asked: Receiver<OwnerAsk>,
    /// The process of the launcher; 0 until it is known, and once it is gone.
    launcher: Arc<AtomicU32>,
    wake: OwnedFd,
}

/// A request.
pub(crate) enum OwnerAsk {
    /// One with one answer.
    Question(Question, Sender<Answer>),
    /// For an exec.
    Exec(Box<ExecCaller>),
    /// For another network, which was decided on and recorded.
    Network(Box<Network>, Sender<Result<(), Declined>>),
    /// For the caller that the sandbox was given to, which was decided on and recorded.
    Assign(Box<Served>, Sender<()>),
    /// For all processes to stop until the other end is closed.
    Freeze(UnixStream),
    /// For a file server: the socket of its requests.
    Files(Sender<Result<OwnedFd, Declined>>),
}

/// Makes both ends.
///
/// # Errors
/// The kernel's.
pub fn owner() -> io::Result<(Owner, OwnerEnd)> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let (send, receive) = channel();
    let launcher = Arc::new(AtomicU32::new(0));
    let owner = Owner {
        asked: send,
        launcher: Arc::clone(&launcher),
        wake: wake.try_clone()?,
    };
    let end = OwnerEnd {
        asked: receive,
        launcher,
        wake,
    };
    Ok((owner, end))
}

impl Owner {
    /// Returns the process of the sandbox's launcher, while it is there.
    pub(crate) fn launcher(&self) -> Option<u32> {
        Some(self.launcher.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// Asks a question that has one answer.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn ask(&self, question: Question) -> Result<Answer, ControlError> {
        let (send, receive) = channel();
        self.send(OwnerAsk::Question(question, send))?;
        answered(&receive)
    }

    /// Asks for an exec. Without a terminal the streams are pipes, which the program gets as they
    /// are: nobody copies what goes through them. With one they are copied from and to it.
    ///
    /// # Errors
    /// [`ControlError`]; a refusal comes over the connection.
    pub fn exec(
        &self,
        request: ExecRequest,
        streams: [OwnedFd; 3],
        terminal: Option<Size>,
    ) -> Result<ExecConnection, ControlError> {
        let pair = || -> io::Result<_> {
            let (near, far) = UnixStream::pair()?;
            near.set_nonblocking(true)?;
            far.set_nonblocking(true)?;
            Ok((near, far))
        };
        let (near, far) = pair().map_err(ControlError::Silent)?;
        let caller = ExecCaller::own(request, streams, terminal, far);
        self.send(OwnerAsk::Exec(Box::new(caller)))?;
        Ok(ExecConnection::on(near))
    }

    /// Puts another network, which was decided on and recorded, in the place of the one in force.
    ///
    /// # Errors
    /// [`ControlError`]; the refusal is an answer.
    pub fn replace(&self, network: Network) -> Result<Result<(), Declined>, ControlError> {
        let (send, receive) = channel();
        self.send(OwnerAsk::Network(Box::new(network), send))?;
        answered(&receive)
    }

    /// Tells whom the sandbox was given to, which was decided on and recorded.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) fn assign(&self, served: Served) -> Result<(), ControlError> {
        let (send, receive) = channel();
        self.send(OwnerAsk::Assign(Box::new(served), send))?;
        answered(&receive)
    }

    /// Stops all processes for as long as the value is kept.
    ///
    /// # Errors
    /// [`ControlError`]; the refusal is an answer.
    pub fn freeze(&self) -> Result<Result<Frozen, Declined>, ControlError> {
        let pair = || -> io::Result<_> {
            let (near, far) = UnixStream::pair()?;
            far.set_nonblocking(true)?;
            Ok((near, far))
        };
        let (near, far) = pair().map_err(ControlError::Silent)?;
        self.send(OwnerAsk::Freeze(far))?;
        frozen(near)
    }

    /// Has a file server started.
    ///
    /// # Errors
    /// [`ControlError`]; the refusal is an answer.
    pub fn files(&self) -> Result<Result<FileServer, Declined>, ControlError> {
        let (send, receive) = channel();
        self.send(OwnerAsk::Files(send))?;
        Ok(answered(&receive)?.map(FileServer::new))
    }

    fn send(&self, ask: OwnerAsk) -> Result<(), ControlError> {
        self.asked.send(ask).map_err(|_| ControlError::Gone)?;
        // It can only fail where it is readable already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        Ok(())
    }
}

/// Waits for an answer. Who has asked and is not answered asks something that is gone.
fn answered<T>(receive: &Receiver<T>) -> Result<T, ControlError> {
    use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
    receive
        .recv_timeout(ANSWER_PATIENCE)
        .map_err(|error| match error {
            Disconnected => ControlError::Gone,
            Timeout => ControlError::Silent(io::ErrorKind::TimedOut.into()),
        })
}

impl OwnerEnd {
    /// Notes the process of the launcher.
    pub(crate) fn begin(&self, launcher: u32) {
        self.launcher.store(launcher, Ordering::Relaxed);
    }

    /// Returns what becomes readable when there is a request.
    pub(crate) fn waits_on(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Takes the requests that are there.
    pub(crate) fn take(&self) -> Vec<OwnerAsk> {
        let mut count = [0; 8];
        // First: what comes afterwards makes it readable again.
        match rustix::io::read(&self.wake, &mut count) {
            Ok(_) => self.asked.try_iter().collect(),
            Err(_) => Vec::new(),
        }
    }
}

impl Drop for OwnerEnd {
    fn drop(&mut self) {
        // Its number may become another's.
        self.launcher.store(0, Ordering::Relaxed);
    }
}
