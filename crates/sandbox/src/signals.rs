use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use atoll_sys::process;

use crate::SandboxError;

/// The signals to this process, as a descriptor to wait for. Once this exists they have no
/// other effect.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
}

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGUSR1: i32 = 10;
const SIGUSR2: i32 = 12;
const SIGTERM: i32 = 15;

const SIGCONT: i32 = 18;

/// A change of the window's size.
pub const SIGWINCH: i32 = 28;

/// The signals that are forwarded to the program.
const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM];

impl Signals {
    /// Takes over the signals that ask a program to do something, and changes of the window's
    /// size.
    ///
    /// # Errors
    /// [`SandboxError::Host`].
    pub fn take() -> Result<Self, SandboxError> {
        let mut all = FORWARDED.to_vec();
        all.extend([SIGWINCH, SIGCONT]);
        process::signals_as_descriptor(&all)
            .map(|descriptor| Self { descriptor })
            .map_err(SandboxError::host("signals could not be taken over"))
    }

    /// Returns a descriptor that is readable when a signal has arrived.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Returns the next signal that has arrived.
    #[must_use]
    pub fn next(&self) -> Option<i32> {
        // A descriptor that cannot be read has nothing to tell.
        let signal = process::next_signal(self.descriptor.as_fd()).ok().flatten();
        // A process that was suspended is not told of a window that changed meanwhile.
        signal.map(|signal| if signal == SIGCONT { SIGWINCH } else { signal })
    }
}
