//! System calls that a boundary is built from.
//!
//! This is the only crate of Atoll with `unsafe`, and only where rustix has no equivalent safe
//! function. Each function wraps one system call (or one fixed sequence that makes no sense apart)
//! in safe types; none of them knows the purpose of a sandbox. Errors are the kernel's own, as
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

/// Converts a negative return value, of the kernel or of libc, to an error.
fn check<Number: Default + PartialOrd>(returned: Number) -> io::Result<Number> {
    if returned < Number::default() {
        Err(io::Error::last_os_error())
    } else {
        Ok(returned)
    }
}

/// Defences that a test of an attack turns off, named in the launcher's own name.
#[cfg(feature = "without_defences")]
pub mod without {
    /// Returns whether this one is turned off.
    #[must_use]
    pub fn is(defence: &str) -> bool {
        let name = std::env::args().next().unwrap_or_default();
        name.split_once(':')
            .is_some_and(|(_, list)| list.split(',').any(|one| one == defence))
    }
}

#[cfg(test)]
mod tests;
