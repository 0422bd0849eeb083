//! The program that is started for Atoll's own processes beside a sandbox: the egress process, the
//! signing process, and the one that gives files back.
//!
//! A process chooses it once, before it makes a sandbox: itself, if its `main` takes the roles, or
//! another program by its path.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use atoll_sys::process;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Chooses the program, for the whole process; the first choice counts.
pub fn choose(program: &Path) {
    let _ = PROGRAM.set(program.to_owned());
}

/// Starts the program under a role's name (argv 0), with these descriptors from 0 on; returns its
/// process id.
///
/// # Errors
/// When no program was chosen, or it cannot be started.
pub fn start(name: &CStr, descriptors: &[BorrowedFd<'_>]) -> io::Result<u32> {
    let program = File::open(path()?)?;
    process::spawn_from_memory(&program.into(), name, descriptors)
}

/// Returns the program's path.
pub(crate) fn path() -> io::Result<&'static Path> {
    let missing = || io::Error::other("no program was chosen for the processes beside a sandbox");
    PROGRAM.get().map(PathBuf::as_path).ok_or_else(missing)
}
