//! Pseudo-terminals (pty(7)) and window sizes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetpgrp, tcsetwinsize};

/// The size of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters per line.
    pub columns: u16,
}

/// Opens the program's side of a new terminal, from its multiplexer.
///
/// # Errors
/// The kernel's; ENOSPC where the limit of terminals is reached.
pub fn open_pair(multiplexer: &OwnedFd) -> io::Result<OwnedFd> {
    unlockpt(multiplexer)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    Ok(ioctl_tiocgptpeer(multiplexer, flags)?)
}

/// Opens a new terminal of this process's own view: its multiplexer, and the program's side.
///
/// # Errors
/// The kernel's; ENOSPC where the limit of terminals is reached.
pub fn open_own(size: WindowSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let multiplexer = openpt(flags)?;
    let side = open_pair(&multiplexer)?;
    set_window_size(multiplexer.as_fd(), size)?;
    Ok((multiplexer, side))
}

/// Sets the size of a terminal.
///
/// # Errors
/// The kernel's.
pub fn set_window_size(terminal: BorrowedFd<'_>, size: WindowSize) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(terminal, size)?)
}

/// Starts a session with this controlling terminal.
///
/// # Errors
/// The kernel's; EPERM for a process that leads a group already.
pub fn lead_session(terminal: Option<BorrowedFd<'_>>) -> io::Result<()> {
    setsid()?;
    terminal.map_or(Ok(()), |terminal| Ok(ioctl_tiocsctty(terminal)?))
}

/// Makes a process group the foreground group of a terminal.
///
/// # Errors
/// The kernel's.
pub fn set_foreground(terminal: BorrowedFd<'_>, group: u32) -> io::Result<()> {
    let group = i32::try_from(group).ok().and_then(Pid::from_raw);
    let group = group.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(tcsetpgrp(terminal, group)?)
}
