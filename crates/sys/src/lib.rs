//! System calls that a boundary is built from.
//!
//! This is the only crate of Atoll with `unsafe`, and that only where rustix has
//! no safe function that does exactly the same. Each function wraps one
//! system call (or one fixed sequence that makes no sense apart) in safe types;
//! none of them knows what a sandbox is for. Errors are the kernel's own, as
//! [`std::io::Error`].
//!
//! Start reading at [`process`] and [`mount`].

pub mod credentials;
pub mod descriptor;
pub mod environment;
pub mod funnel;
pub mod handle;
pub mod judging;
pub mod landlock;
pub mod memory;
pub mod mount;
mod netlink;
pub mod network;
pub mod process;
pub mod seccomp;
pub mod socket;
#[cfg(feature = "without_defences")]
#[path = "tests/takeover.rs"]
pub mod takeover;
pub mod terminal;

use std::io;

/// Turns "negative means error", of the kernel and of libc, into a result.
fn check<Number: Default + PartialOrd>(returned: Number) -> io::Result<Number> {
    if returned < Number::default() {
        Err(io::Error::last_os_error())
    } else {
        Ok(returned)
    }
}

/// What a test of an attack leaves out: it is named in the launcher's own name.
#[cfg(feature = "without_defences")]
pub mod without {
    /// Whether this one is left out.
    #[must_use]
    pub fn is(defence: &str) -> bool {
        let name = std::env::args().next().unwrap_or_default();
        name.split_once(':')
            .is_some_and(|(_, list)| list.split(',').any(|one| one == defence))
    }
}

#[cfg(test)]
mod tests;
