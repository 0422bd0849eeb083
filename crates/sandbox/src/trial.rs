//! What namespaces are good for on this host, found by trying: a process that ends at
//! once makes them, and does in them what every sandbox needs. Settings do not tell it
//! all, for a filter of system calls, a security module or what is mounted over /proc
//! can stand against any of these steps.

use std::io;

use atoll_sys::process::{self, Change, Namespaces, Side};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

/// The step at which a trial ended.
#[derive(Debug)]
pub enum Trial {
    /// None: namespaces do what sandboxes need of them.
    Works,
    /// None could be made.
    NoNamespaces(io::Error),
    /// They could be made, and give no rights.
    NoRights,
    /// Nothing can be mounted in them.
    NoMounts,
    /// /proc cannot be mounted in them: a part of the one outside is covered, and the
    /// kernel does not let a new one show more.
    NoProc,
    /// This kernel has no overlayfs, or none for ordinary users.
    NoOverlay,
}

/// What the process that tries ends with.
const WORKS: u8 = 0;
const NO_RIGHTS: u8 = 1;
const NO_MOUNTS: u8 = 2;
const NO_PROC: u8 = 3;
const NO_OVERLAY: u8 = 4;

/// Tries. Nothing of it is left.
#[must_use]
pub fn try_namespaces() -> Trial {
    // Whoever tries may have threads: its copy must not ask for memory any more.
    let ids = [
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    ];
    let maps = ids.map(|id| format!("{id} {id} 1").into_bytes());
    match process::divide(Namespaces::ALL, None) {
        Err(error) => Trial::NoNamespaces(error),
        Ok(Side::Child) => {
            let ended = use_namespaces(&maps).err();
            process::exit_now(ended.unwrap_or(WORKS))
        }
        Ok(Side::Parent(child)) => {
            let ended = process::wait(Some(child.pid), true);
            match ended.ok().flatten().map(|waited| waited.change) {
                Some(Change::Exited(code)) => from_status(code),
                _ => Trial::NoRights,
            }
        }
    }
}

/// Whether a process can be made at all as the launcher makes them: a fence needs that too.
pub(crate) fn can_copy() -> bool {
    match process::divide(Namespaces::NONE, None) {
        Err(_) => false,
        Ok(Side::Child) => process::exit_now(WORKS),
        Ok(Side::Parent(child)) => process::wait(Some(child.pid), true).is_ok(),
    }
}

fn from_status(status: u8) -> Trial {
    match status {
        WORKS => Trial::Works,
        NO_MOUNTS => Trial::NoMounts,
        NO_PROC => Trial::NoProc,
        NO_OVERLAY => Trial::NoOverlay,
        // Whatever else ended it has shown no rights.
        _ => Trial::NoRights,
    }
}

/// The steps, in the order in which a sandbox needs them.
fn use_namespaces([users, groups]: &[Vec<u8>; 2]) -> Result<(), u8> {
    let written = |path, text: &[u8]| write(path, text).map_err(|_| NO_RIGHTS);
    written(c"/proc/self/setgroups", b"deny")?;
    written(c"/proc/self/uid_map", users)?;
    written(c"/proc/self/gid_map", groups)?;
    // A right that nothing but a security module takes from whoever has the others.
    remove_capability_from_bounding_set(CapabilitySet::SYS_BOOT).map_err(|_| NO_RIGHTS)?;
    let apart = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change(c"/", apart).map_err(|_| NO_MOUNTS)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(c"proc", c"/proc", c"proc", flags, None).map_err(|_| NO_PROC)?;
    // What else is tried is done in a place that every host has.
    mount(c"tmpfs", c"/proc", c"tmpfs", flags, c"mode=0700").map_err(|_| NO_MOUNTS)?;
    for name in [c"/proc/lower", c"/proc/upper", c"/proc/work", c"/proc/top"] {
        rustix::fs::mkdir(name, Mode::RWXU).map_err(|_| NO_MOUNTS)?;
    }
    let layers = c"lowerdir=/proc/lower,upperdir=/proc/upper,workdir=/proc/work,userxattr";
    mount(c"overlay", c"/proc/top", c"overlay", flags, layers).map_err(|_| NO_OVERLAY)
}

fn write(path: &std::ffi::CStr, text: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text).map(drop)
}
