//! Reports of the launcher, the first process and the exec server, as they come.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use atoll_frame::{MESSAGE_BYTES_MAX, Report, Stage};
use atoll_sys::{descriptor, socket};

use crate::SandboxError;

/// Returns the failure that the launcher has reported, if any: a write to one that ended early
/// fails too, but without the reason.
pub(crate) fn last_words(line: &OwnedFd) -> Option<SandboxError> {
    let says_more = || descriptor::wait_readable([Some(line.as_fd())], Some(0));
    while matches!(says_more(), Ok([true])) {
        match hear(line) {
            Ok(Some((
                Report::Failed {
                    stage,
                    error,
                    detail,
                },
                _,
            ))) => return Some(making(stage, error, &detail)),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return None,
        }
    }
    None
}

pub(crate) fn making(stage: Stage, error: i32, detail: &[u8]) -> SandboxError {
    SandboxError::Making {
        stage,
        error: io::Error::from_raw_os_error(error),
        detail: String::from_utf8_lossy(detail).into_owned(),
    }
}

/// Reads one report with its descriptors; `None` if the other side is gone.
pub(crate) fn hear(line: &OwnedFd) -> Result<Option<(Report, Vec<OwnedFd>)>, SandboxError> {
    let mut buffer = [0_u8; MESSAGE_BYTES_MAX];
    let reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    // Whoever left without reading all is told of first, what it said after that.
    let received = match socket::receive(line.as_fd(), &mut buffer) {
        Err(error) if reset(&error) => socket::receive(line.as_fd(), &mut buffer),
        other => other,
    };
    let (got, descriptors) = match received {
        Ok(received) => received,
        Err(error) if reset(&error) => return Ok(None),
        Err(error) => {
            return Err(SandboxError::Host {
                what: "the sandbox's line failed",
                error,
            });
        }
    };
    match buffer.get(..got) {
        None | Some([]) => Ok(None),
        Some(message) => {
            let report = Report::from_bytes(message).map_err(|error| SandboxError::Host {
                what: "the sandbox sent a malformed report",
                error: io::Error::other(error),
            })?;
            Ok(Some((report, descriptors)))
        }
    }
}

/// Closes descriptors that came from inside and are not wanted, in a thread of its own: closing one
/// can wait, as for what a socket has not sent yet (socket(7), `SO_LINGER`).
pub(crate) fn discard(descriptors: Vec<OwnedFd>) {
    if !descriptors.is_empty() {
        // Without a thread they are closed here.
        let _ = std::thread::Builder::new().spawn(move || drop(descriptors));
    }
}
