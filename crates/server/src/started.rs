//! The front as a process: how the worker starts it, and how they meet.
//!
//! The worker starts its own program again under another name, with two descriptors: the listening
//! socket, and one end of a pair of sockets. Over that the front sends one end of a fresh pair for
//! each request. So a front needs no file, and nobody else can ask the worker.

use std::ffi::CStr;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};

use atoll_sys::{process, socket};
use rustix::process::{Pid, Signal, kill_process};

/// The name of the front's process.
pub const FRONT: &CStr = c"atoll-front";
/// The descriptors that a front begins with.
pub(crate) const LISTENER: i32 = 3;
pub(crate) const DIAL: i32 = 4;

/// A running front.
pub(crate) struct Front {
    /// The number of its process.
    pub(crate) pid: u32,
    /// The source of its requests' sockets; closed once it is gone.
    pub(crate) dial: OwnedFd,
}

impl Front {
    /// Starts one.
    pub(crate) fn start(listener: &TcpListener) -> io::Result<Self> {
        let (dial, far) = socket::pair()?;
        let nothing: OwnedFd = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")?
            .into();
        let errors = io::stderr().as_fd().try_clone_to_owned()?;
        let descriptors = [
            nothing.as_fd(),
            nothing.as_fd(),
            errors.as_fd(),
            listener.as_fd(),
            far.as_fd(),
        ];
        let pid = atoll_engine::roles::start(FRONT, &descriptors)?;
        Ok(Self { pid, dial })
    }

    /// Ends its process, if it has not ended, and waits until it is gone.
    pub(crate) fn end(&self) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // Not waited for yet, so the number is still its own.
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = process::wait(Some(self.pid), true);
    }
}
