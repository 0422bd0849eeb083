//! System calls that can block, made until a deadline at the latest.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use atoll_sys::judging::Answer;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_timeout};

use crate::{ETIMEDOUT, Refused};

/// Makes a call that can block, for `most` at the longest: all other callers in the fence wait
/// too. This process is interrupted at short intervals and retries until then, since a busy
/// host is no reason to refuse anything. So a caller that removes the timeout meanwhile gains
/// nothing.
pub(crate) fn within_time(
    socket: &OwnedFd,
    most: Duration,
    make: impl Fn() -> Result<(), Errno>,
) -> Result<Answer, Refused> {
    let before = socket_timeout(socket, Timeout::Send)?;
    let flags = rustix::fs::fcntl_getfl(socket)?;
    let waits = !flags.contains(rustix::fs::OFlags::NONBLOCK);
    set_socket_timeout(socket, Timeout::Send, Some(most))?;
    let made = unless_interrupted(Instant::now() + most, make);
    set_socket_timeout(socket, Timeout::Send, before)?;
    match made {
        Ok(()) => Ok(Answer::Value(0)),
        Err(Errno::INTR) => Err(Refused(ETIMEDOUT)),
        Err(Errno::INPROGRESS | Errno::AGAIN) if waits => Err(Refused(ETIMEDOUT)),
        Err(error) => Err(error.into()),
    }
}

/// Repeats a call that was only interrupted, until the deadline.
pub(crate) fn unless_interrupted<T>(
    until: Instant,
    make: impl Fn() -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        match make() {
            Err(Errno::INTR) if Instant::now() < until => {}
            made => return made,
        }
    }
}
