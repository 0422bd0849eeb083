//! The front as a process: how the worker starts it, and how they meet.
//!
//! The worker starts its own program again under another name, with three descriptors: the listening
//! socket, one end of a pair of sockets, and what it is told at its begin. Over that the front sends one end of a fresh pair for
//! each request. So a front needs no file, and nobody else can ask the worker.

use std::ffi::CStr;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};

use atoll_sys::{descriptor, process, socket};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::tls::Identity;

/// The name of the front's process.
pub const FRONT: &CStr = c"atoll-front";
/// The descriptors that a front begins with.
pub(crate) const LISTENER: i32 = 3;
pub(crate) const DIAL: i32 = 4;
pub(crate) const HANDED: i32 = 5;

/// The longest message there, bytes.
pub(crate) const HANDED_BYTES_MAX: usize = 1 << 20;

/// The message that a front begins with.
#[derive(Serialize, Deserialize)]
pub(crate) struct Handed {
    /// The certificate that it speaks TLS with, if it does.
    pub(crate) identity: Option<Identity>,
    /// True if requests are logged.
    pub(crate) is_logged: bool,
    /// The access to its MCP endpoint.
    pub(crate) mcp: McpAccess,
}

/// The names by which clients reach the MCP endpoint, and whose tokens they come with.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct McpAccess {
    /// The hosts that a request may name, and pages of which may make one.
    pub(crate) hosts: Vec<String>,
    /// The issuers of tokens, by their addresses.
    pub(crate) issuers: Vec<String>,
}

/// A running front.
pub(crate) struct Front {
    /// The number of its process.
    pub(crate) pid: u32,
    /// The source of its requests' sockets; closed once it is gone.
    pub(crate) dial: OwnedFd,
}

impl Front {
    /// Starts one.
    pub(crate) fn start(listener: &TcpListener, handed: &Handed) -> io::Result<Self> {
        let (dial, far) = socket::pair()?;
        let nothing: OwnedFd = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")?
            .into();
        let errors = io::stderr().as_fd().try_clone_to_owned()?;
        let handed = serde_json::to_vec(handed)?;
        let handed = descriptor::sealed_memory(c"atoll-front", &handed)?;
        let descriptors = [
            nothing.as_fd(),
            nothing.as_fd(),
            errors.as_fd(),
            listener.as_fd(),
            far.as_fd(),
            handed.as_fd(),
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
