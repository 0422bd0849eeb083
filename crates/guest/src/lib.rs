//! The file server of a sandbox: reads, changes and watches its files when the host side asks.
//!
//! It is a process forked from the exec server, with the rights of the sandbox's programs and no
//! others, so it may resolve paths that a program changes meanwhile. What it says is output of the
//! sandbox: the host side reads bounded messages, and takes out regular files alone.
//!
//! This crate must never know the host, policy or HTTP. Start reading at [`serve`], then at
//! [`Ask`].

mod files;
mod message;
mod watch;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use atoll_sys::socket;
use rustix::event::{PollFd, PollFlags, poll};

pub use message::{ASK_BYTES_MAX, Answer, Ask, Change, Entry, EntryKind, FileUse, TELL_BYTES_MAX};

#[cfg(test)]
mod tests;

/// Answers requests from this socket, one after the other, until its other end is closed. Returns
/// the exit status.
#[must_use]
pub fn serve(requests: &OwnedFd) -> u8 {
    loop {
        let mut message = vec![0; ASK_BYTES_MAX];
        let got = match socket::receive(requests.as_fd(), &mut message) {
            Ok((got @ 1.., _)) => got,
            Ok(_) | Err(_) => return 0,
        };
        let message = message.get(..got).unwrap_or_default();
        let answered = match Ask::from_bytes(message) {
            Ok(Ask::Watch { path, recursive }) => watch::watch(requests, &path, recursive),
            Ok(ask) => files::carry_out(requests, ask),
            Err(_) => Err(io::ErrorKind::InvalidInput.into()),
        };
        let told = answered.or_else(|error| tell(requests, &failed(&error), None));
        if told.is_err() {
            return 1;
        }
    }
}

fn failed(error: &io::Error) -> Answer {
    Answer::Failed {
        error: error.raw_os_error().unwrap_or(match error.kind() {
            io::ErrorKind::IsADirectory => EISDIR,
            io::ErrorKind::NotADirectory => ENOTDIR,
            io::ErrorKind::AlreadyExists => EEXIST,
            _ => EINVAL,
        }),
    }
}

pub(crate) const EEXIST: i32 = 17;
pub(crate) const ENOTDIR: i32 = 20;
pub(crate) const EISDIR: i32 = 21;
pub(crate) const EINVAL: i32 = 22;

/// Sends an answer, once the other side has room for it.
fn tell(to: &OwnedFd, answer: &Answer, file: Option<&OwnedFd>) -> io::Result<()> {
    let bytes = answer.to_bytes();
    let with = file.map(AsFd::as_fd);
    loop {
        match socket::send(to.as_fd(), &bytes, with.as_slice()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(to, PollFlags::OUT)], None)?;
            }
            sent => return sent,
        }
    }
}
