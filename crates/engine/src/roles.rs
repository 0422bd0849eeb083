//! The roles: what a program does that was started as one of Atoll's processes beside a sandbox.
//!
//! A program that makes sandboxes calls [`take`] first thing, or names another one that does, such
//! as `atoll`, by [`by`].

use std::ffi::{CStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use atoll_sandbox::{RECLAIM, reclaim_inside, role};

use crate::supervision::{OUTSIDE, SIGNER};

/// Carries out the role that this process was started for, if any; returns the exit status. A
/// process without a role chooses its own program for the roles. `arguments` are all of the
/// process, its name first.
#[must_use]
pub fn take(arguments: &[OsString]) -> Option<u8> {
    let is = |role: &CStr| arguments.first().is_some_and(|name| is_named(name, role));
    match arguments.get(1..).and_then(<[OsString]>::split_first) {
        Some((word, directories)) if word == RECLAIM => {
            return Some(reclaim_inside(directories));
        }
        Some(_) | None => {}
    }
    if is(OUTSIDE) {
        return Some(atoll_egress::program(atoll_connectors::all()));
    }
    if is(SIGNER) {
        return Some(atoll_connectors::ssh::signer_program());
    }
    by(Path::new("/proc/self/exe"));
    None
}

/// Chooses another program for the roles, in place of a call of [`take`]; the first choice counts.
pub fn by(program: &Path) {
    role::choose(program);
}

/// Starts the program of the roles under another role's name, with these descriptors from 0 on;
/// returns its process id. That program's `main` knows the role.
///
/// # Errors
/// When no program was chosen, or it cannot be started.
pub fn start(name: &CStr, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<u32> {
    role::start(name, descriptors)
}

fn is_named(name: &OsString, role: &CStr) -> bool {
    let name = name.as_bytes();
    // A test names there what is left out.
    #[cfg(feature = "without_defences")]
    let name = name.split(|byte| *byte == b':').next().unwrap_or_default();
    name == role.to_bytes()
}
