//! Input that a program does not read stays its caller's: the next program in a loop, or the shell
//! that the loop is in, reads on from there.

use std::os::fd::{BorrowedFd, OwnedFd};

use atoll_sys::descriptor;
use rustix::fs::{FileType, SeekFrom, fstat, seek};
use rustix::io::ioctl_fionread;
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, tee};

/// The size of a pipe that holds one piece: it has room again once that is read.
const ONE_PIECE_BYTES: usize = 4096;
/// The most that is shown at once, bytes.
const SHOWN_BYTES_MAX: usize = 64 * 1024;

/// The way in which what is not read is given back.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// None: a terminal, a socket.
    None,
    /// The caller's place in the file is set back.
    File,
    /// The content of the caller's pipe is shown to the program, and taken out once that has read it.
    Pipe,
}

/// The part of its input that a program has not read yet.
#[derive(Debug)]
pub(super) struct Unread {
    way: Way,
    /// The program's own end of its input.
    inside: Option<OwnedFd>,
    /// The bytes that were taken from a file; of a pipe, those that are shown and not taken yet.
    bytes: u64,
    /// True if the program's pipe has no room, though nothing is shown in it.
    is_full: bool,
}

impl Unread {
    pub(super) fn new(inside: Option<OwnedFd>) -> Self {
        Self {
            way: Way::None,
            inside,
            bytes: 0,
            is_full: false,
        }
    }

    /// Begins with the caller's input and the program's.
    pub(super) fn begin(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) {
        let kind = fstat(from).map(|facts| FileType::from_raw_mode(facts.st_mode));
        self.way = match kind {
            _ if self.inside.is_none() => Way::None,
            Ok(FileType::RegularFile) => Way::File,
            Ok(FileType::Fifo) if fcntl_setpipe_size(to, ONE_PIECE_BYTES).is_ok() => Way::Pipe,
            _ => Way::None,
        };
    }

    /// Returns whether input is shown, and not taken at first.
    pub(super) fn is_shown(&self) -> bool {
        self.way == Way::Pipe
    }

    /// Returns whether the program is to read before more is shown.
    pub(super) fn waits(&self) -> bool {
        self.way == Way::Pipe && (self.bytes > 0 || self.is_full)
    }

    /// Counts what was taken of a file.
    pub(super) fn took(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Shows what is there to the program; returns false at its end.
    pub(super) fn show(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> bool {
        match tee(from, to, SHOWN_BYTES_MAX, SpliceFlags::NONBLOCK) {
            Ok(0) => return false,
            Ok(bytes) => self.bytes = bytes as u64,
            Err(rustix::io::Errno::AGAIN) => {
                let is_there = descriptor::wait_readable([Some(from)], Some(0));
                self.is_full = matches!(is_there, Ok([true]));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
        true
    }

    /// Takes what was shown, which the program has read.
    pub(super) fn take_shown(&mut self, from: BorrowedFd<'_>) {
        self.is_full = false;
        take(from, std::mem::take(&mut self.bytes));
    }

    /// Gives back what is left, and what waits to be written.
    pub(super) fn give_back(&mut self, from: BorrowedFd<'_>, waiting: usize) {
        let Some(inside) = self.inside.take() else {
            return;
        };
        // A program can put something in by itself: no more is given back than was taken.
        let left = ioctl_fionread(&inside)
            .unwrap_or(0)
            .saturating_add(waiting as u64);
        let left = left.min(self.bytes);
        match self.way {
            Way::None => {}
            Way::File => {
                let back = i64::try_from(left).unwrap_or(0);
                let _ = seek(from, SeekFrom::Current(-back));
            }
            Way::Pipe => take(from, self.bytes - left),
        }
    }
}

/// Takes so many bytes out of a pipe, of which nobody else is to have taken any.
fn take(from: BorrowedFd<'_>, mut bytes: u64) {
    let mut block = [0; ONE_PIECE_BYTES];
    while bytes > 0 {
        if !matches!(descriptor::wait_readable([Some(from)], Some(0)), Ok([true])) {
            return;
        }
        let most = block
            .len()
            .min(usize::try_from(bytes).unwrap_or(usize::MAX));
        let part = block.get_mut(..most).unwrap_or_default();
        match descriptor::read(from, part) {
            Ok(got @ 1..) => bytes -= got as u64,
            Ok(0) | Err(_) => return,
        }
    }
}
