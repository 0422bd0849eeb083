//! The files that come with the description of the egress: certificates, then the packages that
//! lock files name, then policies, then tokens, then the labels that other runs of the session
//! gain.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use atoll_cedar::HANDED_BYTES_MAX;
use atoll_model::network::{LOCKED_BYTES_MAX, Locks, SshKeys};
use atoll_sys::descriptor;
use atoll_tokens::Held;

use crate::connector::AgentInputs;
use crate::policies::Policies;

/// The longest certificates of further authorities, bytes.
const ROOTS_BYTES_MAX: usize = 2 << 20;

/// Returns whether a received descriptor is a regular file.
pub(crate) fn is_file(given: &OwnedFd) -> bool {
    let kind = rustix::fs::fstat(given).map(|facts| facts.st_mode);
    kind.is_ok_and(|mode| rustix::fs::FileType::from_raw_mode(mode).is_file())
}

/// Takes the first two sockets, where there are SSH keys: the inputs of their agent. Returns `None`
/// if they are missing.
#[expect(
    clippy::option_option,
    reason = "what is missing is not what is not wanted"
)]
pub(crate) fn agent(sockets: &mut Vec<OwnedFd>, keys: Vec<SshKeys>) -> Option<Option<AgentInputs>> {
    if keys.is_empty() {
        return Some(None);
    }
    let mut first = sockets.drain(..2.min(sockets.len()));
    let (signer, listener) = (first.next()?, first.next()?);
    Some(Some(AgentInputs {
        keys,
        signer,
        listener,
    }))
}

/// Takes the last file where there are lock files, and reads the packages that they named when the
/// run started. Returns `None` if the file is missing or cannot be read.
pub(crate) fn locks(has_locks: bool, files: &mut Vec<OwnedFd>) -> Option<Locks> {
    if !has_locks {
        return Some(Locks::default());
    }
    let file = files.pop()?;
    let text = descriptor::read_from_start(file.as_fd(), LOCKED_BYTES_MAX).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Takes the last file where the session has other runs: the labels that they gain. Returns `None`
/// if it is missing.
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

/// Takes the last file where the run holds tokens, and reads them. Returns `None` if it is missing,
/// or the tokens are not valid.
pub(crate) fn tokens(has_tokens: bool, files: &mut Vec<OwnedFd>) -> Option<Option<Held>> {
    if !has_tokens {
        return Some(None);
    }
    let file = files.pop()?;
    let text = descriptor::read_from_start(file.as_fd(), atoll_tokens::HANDED_BYTES_MAX).ok()?;
    Held::take(&text).map(Some)
}

/// Takes the last file where there are policies, and reads them. Returns `None` if it is missing,
/// or cannot be read.
pub(crate) fn policies(has_policies: bool, files: &mut Vec<OwnedFd>) -> Option<Policies> {
    if !has_policies {
        return Some(Policies::default());
    }
    let file = files.pop()?;
    let text = descriptor::read_from_start(file.as_fd(), HANDED_BYTES_MAX).ok()?;
    Policies::read(&text)
}

/// Reads the certificates of further trusted authorities, as PEM.
pub(crate) fn roots(files: Vec<OwnedFd>) -> io::Result<Vec<u8>> {
    let read = |file: OwnedFd| descriptor::read_from_start(file.as_fd(), ROOTS_BYTES_MAX);
    let all: Vec<Vec<u8>> = files.into_iter().map(read).collect::<io::Result<_>>()?;
    Ok(all.concat())
}
