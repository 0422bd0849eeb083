//! Limits of namespaces beneath a sandbox's user namespace.

use std::io;
use std::os::fd::BorrowedFd;

use atoll_frame::Nesting;
use atoll_sys::descriptor;

use crate::text;

/// The most inotify instances of a sandbox: the kernel counts them for the caller's user too, who
/// has 128 by default.
const INOTIFY_INSTANCES_MAX: &[u8] = b"64";

/// The most namespaces of each kind beneath a sandbox at once: a browser creates one for each of
/// its pages.
const NAMESPACES_MAX: &[u8] = b"128";

/// Returns the limits of a sandbox's user namespace, for itself and all beneath it together, as
/// files of /proc/sys/user (namespaces(7)): unless it may nest, no user namespace can be created,
/// and it cannot exhaust its user's limits on the host. They are final once the capability to raise
/// them is gone.
#[must_use]
pub fn namespace_limits(nesting: Nesting) -> Vec<(&'static str, &'static [u8])> {
    let mut limits = vec![("max_inotify_instances", INOTIFY_INSTANCES_MAX)];
    let groups = match nesting {
        Nesting::Refused => {
            limits.push(("max_user_namespaces", b"0"));
            return limits;
        }
        Nesting::ButGroups => &b"0"[..],
        Nesting::All => NAMESPACES_MAX,
    };
    limits.extend([
        ("max_user_namespaces", NAMESPACES_MAX),
        ("max_mnt_namespaces", NAMESPACES_MAX),
        ("max_pid_namespaces", NAMESPACES_MAX),
        ("max_net_namespaces", NAMESPACES_MAX),
        ("max_ipc_namespaces", NAMESPACES_MAX),
        ("max_uts_namespaces", NAMESPACES_MAX),
        ("max_cgroup_namespaces", groups),
        ("max_time_namespaces", b"0"),
    ]);
    limits
}

/// Sets the limits in the user namespace of this /proc.
pub(crate) fn limit(processes: BorrowedFd<'_>, nesting: Nesting) -> io::Result<()> {
    for (name, value) in namespace_limits(nesting) {
        let path = text(format!("sys/user/{name}").as_bytes())?;
        let limit = descriptor::open_beneath(processes, &path, O_WRONLY, 0)?;
        descriptor::write_all(&limit, value)?;
    }
    Ok(())
}

const O_WRONLY: i32 = 1;
