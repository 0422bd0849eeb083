//! Rights that the launcher drops: whoever takes it over while it waits can end its sandbox and
//! remove empty cgroups next to its own, and little else.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use atoll_frame::{Identity, Stage};
use atoll_init::Failure;
use atoll_init::filter::{self, Process};
use atoll_sys::landlock::{Holds, Rights, Ruleset};
use atoll_sys::{credentials, memory, seccomp};

use crate::at;

/// CAP_DAC_OVERRIDE: cgroups may be in a directory that even their owner may not write.
const BY_ANY_MODE: u64 = 1 << 1;
/// The first version of Landlock that confines signals.
const KNOWS_SIGNALS: u32 = 6;

/// In a fence, before its first process is created: restricts this process's signals and inspection
/// to its descendants.
pub(crate) fn reach_only_below(landlock: u32) -> io::Result<()> {
    if landlock < KNOWS_SIGNALS {
        return Ok(());
    }
    credentials::forbid_new_privileges()?;
    Ruleset::new(landlock, Holds::Signals)?.enter()
}

/// Restricts the launcher to waiting, ending its sandbox, and removing these directories.
pub(crate) fn only_wait(
    directories: &[Vec<u8>],
    landlock: u32,
    fenced: bool,
    identity: Identity,
) -> Result<(), Failure> {
    if let Identity::Unmapped { uid, gid } = identity {
        // Root without capabilities ends nobody else's processes, and those of the
        // sandbox are in no user namespace of root's: as their user it can end them.
        at(
            Stage::Rights,
            credentials::become_user_by_capabilities(uid, gid),
        )?;
        at(Stage::Rights, credentials::forbid_inspection())?;
    }
    at(Stage::Rights, credentials::keep_capabilities(BY_ANY_MODE))?;
    at(Stage::Rights, credentials::forbid_new_privileges())?;
    at(Stage::Landlock, hold_files(directories, landlock, fenced))?;
    memory::erase_stack();
    let process = if fenced {
        Process::FenceLauncher
    } else {
        Process::Launcher
    };
    let filter = filter::own(process);
    at(Stage::Filter, seccomp::install(&filter, "jail-filter"))
}

/// Denies access to files, except to `/proc` in a fence. A directory is removed by a right to its
/// parent.
fn hold_files(directories: &[Vec<u8>], landlock: u32, fenced: bool) -> io::Result<()> {
    let rules = Ruleset::new(landlock, Holds::AllButSignals)?;
    for directory in directories {
        let parent = Path::new(OsStr::from_bytes(directory)).parent();
        let parent = parent.ok_or(io::ErrorKind::InvalidInput)?;
        let parent = CString::new(parent.as_os_str().as_bytes())?;
        rules.allow_path(&parent, Rights::REMOVE_DIRECTORIES)?;
    }
    if fenced {
        rules.allow_path(c"/proc", Rights::READ)?;
    }
    rules.enter()
}
