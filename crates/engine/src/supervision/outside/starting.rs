//! Starting this program anew, under another name.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use atoll_sys::{process, socket};

/// Starts this program under another name (argv 0), with a message and descriptors waiting on
/// its socket. Returns this side's end of that, and the process id.
pub(crate) fn start(
    name: &CStr,
    message: &[u8],
    with: &[BorrowedFd<'_>],
) -> io::Result<(OwnedFd, u32)> {
    let (line, far) = socket::pair()?;
    socket::send(line.as_fd(), message, with)?;
    let program = OwnedFd::from(File::open("/proc/self/exe")?);
    let nothing = OwnedFd::from(File::options().read(true).write(true).open("/dev/null")?);
    let standard = [
        nothing.as_fd(),
        nothing.as_fd(),
        nothing.as_fd(),
        far.as_fd(),
    ];
    let pid = process::spawn_from_memory(&program, name, &standard)?;
    Ok((line, pid))
}
