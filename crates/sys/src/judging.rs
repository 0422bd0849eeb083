//! Calls that wait for a judge's decision (seccomp_unotify(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

/// A system call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The id of this one call.
    pub id: u64,
    /// The thread that made it, by its id in this process's namespace.
    pub thread: u32,
    /// The call's number.
    pub call: u32,
    /// The arguments, as they were when it was made.
    pub arguments: [u64; 6],
}

/// The decision on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call returns this, as if it had been made.
    Value(i64),
    /// The call fails with this error number.
    Error(i32),
    /// The kernel makes the call now. The memory that pointers lead to may have changed since it
    /// was judged, and so may the file of a descriptor.
    Continue,
}

const RECEIVE: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
const SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;
const IS_VALID: libc::Ioctl = 0x4008_2102_u32 as libc::Ioctl;
const GIVE: libc::Ioctl = 0x4018_2103_u32 as libc::Ioctl;

/// Takes the next waiting call, blocking until there is one; `None` if its caller has just ended,
/// or the wait was interrupted.
///
/// # Errors
/// The kernel's.
pub fn next(listener: BorrowedFd<'_>) -> io::Result<Option<Waiting>> {
    // SAFETY: plain data; the kernel wants zeroes and writes one whole record.
    let (received, one) = unsafe {
        let mut one: libc::seccomp_notif = std::mem::zeroed();
        let received = libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut one);
        (received, one)
    };
    match check(received) {
        Ok(_) => Ok(Some(Waiting {
            id: one.id,
            thread: one.pid,
            call: one.data.nr as u32,
            arguments: one.data.args,
        })),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether any caller is left: false once every process under the filter has ended
/// (seccomp_unotify(2), `POLLHUP`).
#[must_use]
pub fn has_callers(listener: BorrowedFd<'_>) -> bool {
    let mut one = libc::pollfd {
        fd: listener.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: `one` lives through the call, which does not wait.
    let polled = unsafe { libc::poll(&raw mut one, 1, 0) };
    polled < 0 || one.revents & libc::POLLHUP == 0
}

/// Returns whether the call still waits, so that data read of its caller was really that caller's.
#[must_use]
pub fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads the number.
    unsafe { libc::ioctl(listener.as_raw_fd(), IS_VALID, &raw const id) == 0 }
}

/// Answers a call. A caller that has ended in the meantime is no error.
///
/// # Errors
/// The kernel's.
pub fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> io::Result<()> {
    let (val, error, flags) = match answer {
        Answer::Value(value) => (value, 0, 0),
        Answer::Error(number) => (0, -number, 0),
        Answer::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
    };
    let response = libc::seccomp_notif_resp {
        id,
        val,
        error,
        flags,
    };
    // SAFETY: the kernel reads one whole record.
    let sent = unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw const response) };
    match check(sent) {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(()),
    }
}

/// Gives the caller of a waiting call a copy of a descriptor: as this number, closing the caller's
/// own one there, or as the lowest free one. Returns its number in the caller.
///
/// # Errors
/// The kernel's; EBADF for a number beyond the caller's limit.
pub fn give(
    listener: BorrowedFd<'_>,
    id: u64,
    descriptor: BorrowedFd<'_>,
    number: Option<u32>,
    close_on_exec: bool,
) -> io::Result<i64> {
    let request = libc::seccomp_notif_addfd {
        id,
        flags: number.map_or(0, |_| libc::SECCOMP_ADDFD_FLAG_SETFD as u32),
        srcfd: descriptor.as_raw_fd() as u32,
        newfd: number.unwrap_or(0),
        newfd_flags: if close_on_exec {
            libc::O_CLOEXEC as u32
        } else {
            0
        },
    };
    // SAFETY: the kernel reads one whole record.
    let given = unsafe { libc::ioctl(listener.as_raw_fd(), GIVE, &raw const request) };
    check(given).map(i64::from)
}

/// Writes into the memory of a thread's process (process_vm_writev(2)).
///
/// # Errors
/// The kernel's; EFAULT where not all of it can be written.
pub fn write(thread: u32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let part = |base: *mut libc::c_void| libc::iovec {
        iov_base: base,
        iov_len: bytes.len(),
    };
    let (from, to) = (
        part(bytes.as_ptr().cast_mut().cast()),
        part(std::ptr::without_provenance_mut(address as usize)),
    );
    // SAFETY: the kernel reads as many of this process's bytes as there are; the others
    // are no memory of this process.
    let written = check(unsafe {
        libc::process_vm_writev(
            thread as libc::pid_t,
            &raw const from,
            1,
            &raw const to,
            1,
            0,
        )
    })?;
    match usize::try_from(written) {
        Ok(written) if written == bytes.len() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}
