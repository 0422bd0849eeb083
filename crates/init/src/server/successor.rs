//! The server that goes on where the first one becomes the first exec.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use atoll_frame::ExecId;
use atoll_sys::{descriptor, process, socket};

use super::{BEGIN, FORKED_WITHIN_MS, Server, Source, spawning};
use crate::Failure;

impl Server<'_> {
    /// Makes the server that goes on once this one is the first exec; returns the socket on which
    /// it says that a process waits for the next exec.
    pub(super) fn make_successor(&self) -> io::Result<OwnedFd> {
        let (near, far) = socket::pair()?;
        let go_on = || {
            let served = self.settle(Some(&far)).and_then(|()| self.go_on(far));
            served.unwrap_or(1)
        };
        process::fork_sibling(go_on).map(|_| near)
    }

    /// Goes on as the server once the one before has become the first exec, or is gone.
    fn go_on(&self, before: OwnedFd) -> Result<u8, Failure> {
        let mut source = Source::default();
        let spare = self.spare(&mut source).ok();
        // One that is gone is succeeded too.
        let _ = socket::send(before.as_fd(), BEGIN, &[]);
        let _ = socket::receive(before.as_fd(), &mut [0; 1]);
        drop(before);
        self.serve(spare, source, None)
    }

    /// Has the successor serve from now on; this process is that exec to `init`. It waits until
    /// another process waits for the next exec: the program can use up all others at once.
    pub(super) fn hand_over(&self, id: ExecId, successor: &OwnedFd) -> io::Result<()> {
        // One that is gone, or stopped, serves nobody, and leaves the program as it is.
        descriptor::wait_readable([Some(successor.as_fd())], Some(FORKED_WITHIN_MS))?;
        let pid = std::process::id();
        socket::send(self.line.as_fd(), &spawning(id, pid), &[])?;
        let _ = socket::send(successor.as_fd(), BEGIN, &[]);
        Ok(())
    }
}
