//! The start of a process beside the sandbox.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use atoll_sandbox::role;
use atoll_sys::socket;

/// Starts the program of the [roles](crate::roles) under this name (argv 0), with a message and descriptors waiting on
/// its socket. Returns this side's end of that, and the process id.
pub(crate) fn start(
    name: &CStr,
    message: &[u8],
    with: &[BorrowedFd<'_>],
) -> io::Result<(OwnedFd, u32)> {
    let (line, far) = socket::pair()?;
    socket::send(line.as_fd(), message, with)?;
    let nothing = OwnedFd::from(File::options().read(true).write(true).open("/dev/null")?);
    let standard = [
        nothing.as_fd(),
        nothing.as_fd(),
        nothing.as_fd(),
        far.as_fd(),
    ];
    Ok((line, role::start(name, &standard)?))
}
