//! The files that come with the description of what to carry: certificates, after them what
//! lock files name, then policies, then tokens, then what other runs of the session gain.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use atoll_cedar::HANDED_BYTES_MAX;
use atoll_model::network::{LOCKED_BYTES_MAX, Locks};
use atoll_sys::descriptor;
use atoll_tokens::Held;

use crate::policies::Policies;

/// How long certificates of further authorities can be, bytes.
const ROOTS_BYTES_MAX: usize = 2 << 20;

/// Files are these; nothing else that comes is one.
pub(crate) fn is_file(given: &OwnedFd) -> bool {
    let kind = rustix::fs::fstat(given).map(|facts| facts.st_mode);
    kind.is_ok_and(|mode| rustix::fs::FileType::from_raw_mode(mode).is_file())
}

/// What lock files named when the run started: where there are some the last of the files,
/// which it takes. None where it is not there.
pub(crate) fn locks(has_locks: bool, files: &mut Vec<OwnedFd>) -> Option<Locks> {
    if !has_locks {
        return Some(Locks::default());
    }
    let file = files.pop()?;
    let text = descriptor::read_from_start(file.as_fd(), LOCKED_BYTES_MAX).ok()?;
    serde_json::from_slice(&text).ok()
}

/// What other runs of the session gain: where there is such a file the last of all, which it takes.
/// None where it is not there.
#[expect(
    clippy::option_option,
    reason = "what is missing is not what is not wanted"
)]
pub(crate) fn gained(has_gained: bool, files: &mut Vec<OwnedFd>) -> Option<Option<OwnedFd>> {
    match has_gained {
        true => files.pop().map(Some),
        false => Some(None),
    }
}

/// The tokens that the run holds: where there are some the last of the files then, which it takes.
/// None where it is not there, or they do not count.
pub(crate) fn tokens(has_tokens: bool, files: &mut Vec<OwnedFd>) -> Option<Option<Held>> {
    if !has_tokens {
        return Some(None);
    }
    let file = files.pop()?;
    let text = descriptor::read_from_start(file.as_fd(), atoll_tokens::HANDED_BYTES_MAX).ok()?;
    Held::take(&text).map(Some)
}

/// What is asked of each connection besides the rules: where there is something the last of the
/// files by then, which it takes. None where it is not there, or cannot be read.
pub(crate) fn policies(has_policies: bool, files: &mut Vec<OwnedFd>) -> Option<Policies> {
    if !has_policies {
        return Some(Policies::default());
    }
    let file = files.pop()?;
    let text = descriptor::read_from_start(file.as_fd(), HANDED_BYTES_MAX).ok()?;
    Policies::read(&text)
}

/// What further authorities are trusted, as PEM.
pub(crate) fn roots(files: Vec<OwnedFd>) -> io::Result<Vec<u8>> {
    let read = |file: OwnedFd| descriptor::read_from_start(file.as_fd(), ROOTS_BYTES_MAX);
    let all: Vec<Vec<u8>> = files.into_iter().map(read).collect::<io::Result<_>>()?;
    Ok(all.concat())
}
