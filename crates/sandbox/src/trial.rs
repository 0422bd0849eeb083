//! The namespace probe: a short-lived process makes namespaces on this host and tries
//! everything that a sandbox needs in them. Reading settings is not enough, since a seccomp
//! filter, a security module or a mount over /proc can forbid any of these steps.

use std::ffi::CStr;
use std::{fmt, io};

use atoll_sys::process::{self, Change, Namespaces, Side};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

use crate::placement::FIRST_ID;

/// The result of a probe: the step that failed, if any.
#[derive(Debug)]
pub enum Trial {
    /// No step failed: namespaces can be used for sandboxes.
    Works,
    /// No namespaces could be made.
    NoNamespaces(io::Error),
    /// Namespaces could be made, but give no rights.
    NoRights,
    /// Nothing can be mounted in them.
    NoMounts,
    /// /proc cannot be mounted in them: a part of the one outside is covered, and the kernel
    /// does not let a new one show more.
    NoProc,
    /// This kernel has no overlayfs, or none for ordinary users.
    NoOverlay,
    /// The system's directories cannot be shown in them: this is the root of a user namespace,
    /// to whom the kernel does not give some of the mounts.
    NoSystem,
}

/// Exit statuses of the probing process.
const WORKS: u8 = 0;
const NO_RIGHTS: u8 = 1;
const NO_MOUNTS: u8 = 2;
const NO_PROC: u8 = 3;
const NO_OVERLAY: u8 = 4;
const NO_SYSTEM: u8 = 5;

impl fmt::Display for Trial {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => to.write_str("they can be used"),
            Self::NoNamespaces(error) => write!(to, "none can be made ({error})"),
            Self::NoRights => to.write_str("they give no rights"),
            Self::NoMounts => to.write_str("nothing can be mounted in them"),
            Self::NoProc => to.write_str("/proc cannot be mounted in them"),
            Self::NoOverlay => to.write_str("this kernel mounts no overlayfs in them"),
            Self::NoSystem => to.write_str(
                "the system's directories cannot be shown in them, because this root is one of a \
                 user namespace",
            ),
        }
    }
}

/// The mount options of an ordinary user's overlay.
const LAYERS: &CStr = c"lowerdir=/proc/lower,upperdir=/proc/upper,workdir=/proc/work,userxattr";

/// Runs the probe; for an `unmapped` host, of what root can do without a user namespace.
/// Nothing of it is left.
#[must_use]
pub fn try_namespaces(unmapped: bool) -> Trial {
    // Whoever tries may have threads: its copy must not ask for memory any more.
    let ids = [
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    ];
    let maps = ids.map(|id| format!("{id} {id} 1").into_bytes());
    let is_first = is_in_first_user_namespace();
    let kinds = if unmapped {
        Namespaces::ALL_BUT_USER
    } else {
        Namespaces::ALL
    };
    match process::divide(kinds, None) {
        Err(error) => Trial::NoNamespaces(error),
        Ok(Side::Child) => {
            let ended = if unmapped {
                use_rights(is_first)
            } else {
                map_ids(&maps).and_then(|()| use_namespaces(LAYERS))
            };
            let ended = ended.err();
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

/// Returns whether a process can be made as the launcher makes it; a fence needs that too.
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
        NO_SYSTEM => Trial::NoSystem,
        // Whatever else ended it has shown no rights.
        _ => Trial::NoRights,
    }
}

fn map_ids([users, groups]: &[Vec<u8>; 2]) -> Result<(), u8> {
    let written = |path, text: &[u8]| write(path, text).map_err(|_| NO_RIGHTS);
    written(c"/proc/self/setgroups", b"deny")?;
    written(c"/proc/self/uid_map", users)?;
    written(c"/proc/self/gid_map", groups)
}

/// Probes as root without a user namespace, where the program gets another user id. Parts of
/// one overlay of the whole root stand for the system's directories, which the kernel does not
/// give to the root of a user namespace.
fn use_rights(is_first: bool) -> Result<(), u8> {
    use_namespaces(c"lowerdir=/proc/lower:/proc/upper")?;
    if !is_first {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let layers = c"lowerdir=/:/proc/upper";
        mount(c"overlay", c"/proc/top", c"overlay", flags, layers).map_err(|_| NO_SYSTEM)?;
    }
    let (uid, gid) = (FIRST_ID, FIRST_ID);
    atoll_sys::credentials::become_user(uid, gid).map_err(|_| NO_RIGHTS)
}

/// Runs the steps in the order in which a sandbox needs them; `layers` are the options of an
/// overlay.
fn use_namespaces(layers: &CStr) -> Result<(), u8> {
    // A security module takes all rights; a filter that takes one call does not.
    let has_rights = atoll_sys::credentials::set_host_name(b"atoll").is_ok()
        || remove_capability_from_bounding_set(CapabilitySet::SYS_BOOT).is_ok();
    if !has_rights {
        return Err(NO_RIGHTS);
    }
    let apart = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change(c"/", apart).map_err(|_| NO_MOUNTS)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(c"proc", c"/proc", c"proc", flags, None).map_err(|_| NO_PROC)?;
    // What else is tried is done in a place that every host has.
    mount(c"tmpfs", c"/proc", c"tmpfs", flags, c"mode=0700").map_err(|_| NO_MOUNTS)?;
    for name in [c"/proc/lower", c"/proc/upper", c"/proc/work", c"/proc/top"] {
        rustix::fs::mkdir(name, Mode::RWXU).map_err(|_| NO_MOUNTS)?;
    }
    mount(c"overlay", c"/proc/top", c"overlay", flags, layers).map_err(|_| NO_OVERLAY)
}

/// Returns whether this is the initial user namespace: its number is the same everywhere
/// (PROC_USER_INIT_INO in include/linux/proc_ns.h).
pub(crate) fn is_in_first_user_namespace() -> bool {
    match std::fs::read_link("/proc/self/ns/user") {
        Ok(name) => name.as_os_str() == "user:[4026531837]",
        // A kernel without user namespaces has only the first.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn write(path: &CStr, text: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text).map(drop)
}
