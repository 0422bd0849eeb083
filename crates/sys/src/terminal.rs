//! Pseudo-terminals (pty(7)) and window sizes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::check_int;
use crate::descriptor::owned;

/// Rows and columns of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters a line.
    pub columns: u16,
}

/// Opens a new terminal from a `ptmx` node: the master and the program's side.
///
/// # Errors
/// The kernel's; ENOSPC where the limit of terminals is reached.
pub fn open_pair(multiplexer: &OwnedFd) -> io::Result<OwnedFd> {
    let unlock: libc::c_int = 0;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCSPTLCK reads one int; TIOCGPTPEER takes flags by value.
    unsafe {
        check_int(libc::ioctl(
            multiplexer.as_raw_fd(),
            libc::TIOCSPTLCK,
            &raw const unlock,
        ))?;
        check_int(libc::ioctl(
            multiplexer.as_raw_fd(),
            libc::TIOCGPTPEER,
            flags,
        ))
        .map(owned)
    }
}

/// Sets the size of a terminal.
///
/// # Errors
/// The kernel's.
pub fn set_window_size(terminal: BorrowedFd<'_>, size: WindowSize) -> io::Result<()> {
    let raw = libc::winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: `raw` lives through the call, which reads it.
    check_int(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const raw) })
        .map(drop)
}

/// Starts a session that this terminal controls.
///
/// # Errors
/// The kernel's; EPERM for a process that leads a group already.
pub fn lead_session(terminal: Option<BorrowedFd<'_>>) -> io::Result<()> {
    // SAFETY: integers only.
    unsafe {
        check_int(libc::setsid())?;
        if let Some(terminal) = terminal {
            check_int(libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0))?;
        }
    }
    Ok(())
}

/// Gives a terminal to a process group.
///
/// # Errors
/// The kernel's.
pub fn set_foreground(terminal: BorrowedFd<'_>, group: u32) -> io::Result<()> {
    // SAFETY: integers only.
    check_int(unsafe { libc::tcsetpgrp(terminal.as_raw_fd(), group as libc::pid_t) }).map(drop)
}
