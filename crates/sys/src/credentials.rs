//! Rights of the calling process: ids, capabilities, and what can never be
//! gained again.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::{check, check_int};

/// The highest capability that a kernel could know; asking beyond the last
/// known one ends the loop below.
const CAPABILITIES_MAX: libc::c_ulong = 63;

/// SECBIT_NOROOT, SECBIT_NO_SETUID_FIXUP and SECBIT_NO_CAP_AMBIENT_RAISE, each
/// with its lock (capabilities(7)): user id 0 is a number like any other.
const SECURE_BITS: libc::c_ulong = 0b1110_1111;

/// Becomes another user and group, without any supplementary group.
///
/// # Errors
/// EPERM without the right to, EINVAL for ids without a place in the namespace.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // The raw calls change this thread only, which is all there is: glibc's
    // wrappers would look for other threads first.
    // SAFETY: integers and an empty list.
    unsafe {
        check(libc::syscall(
            libc::SYS_setgroups,
            0,
            std::ptr::null::<libc::gid_t>(),
        ))?;
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
    }
    Ok(())
}

/// Gives up every capability and every way to gain one: the bounding and the
/// ambient set, the powers of user id 0, set-user-id programs.
///
/// # Errors
/// The kernel's; nothing may be started after one.
pub fn drop_all_rights() -> io::Result<()> {
    // SAFETY: prctl with integers.
    unsafe {
        let mut capability = 0;
        while capability <= CAPABILITIES_MAX
            && libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) == 0
        {
            capability += 1;
        }
        // EINVAL is the end of the capabilities that this kernel knows.
        let error = io::Error::last_os_error().raw_os_error();
        if capability == 0 || (capability <= CAPABILITIES_MAX && error != Some(libc::EINVAL)) {
            return Err(io::Error::last_os_error());
        }
        check_int(libc::prctl(libc::PR_SET_SECUREBITS, SECURE_BITS, 0, 0, 0))?;
        check_int(libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL,
            0,
            0,
            0,
        ))?;
    }
    clear_capability_sets()?;
    forbid_new_privileges()
}

/// Sets the permitted, effective and inheritable sets to nothing (capset(2)).
fn clear_capability_sets() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let nothing = [0_u32; 6];
    // SAFETY: version 3 reads one header and two records of three words.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, nothing.as_ptr()) }).map(drop)
}

/// No program that is executed from now on gains rights (PR_SET_NO_NEW_PRIVS).
///
/// # Errors
/// The kernel's.
pub fn forbid_new_privileges() -> io::Result<()> {
    // SAFETY: prctl with integers.
    check_int(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// Keeps this process out of reach of ptrace(2) and /proc/PID/mem of processes
/// without CAP_SYS_PTRACE, and out of core dumps.
///
/// # Errors
/// The kernel's.
pub fn forbid_inspection() -> io::Result<()> {
    #[cfg(feature = "without_defences")]
    if crate::without::is("dumpable") {
        // SAFETY: prctl with integers. A change of ids has forbidden it too.
        return check_int(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) }).map(drop);
    }
    // SAFETY: prctl with integers.
    check_int(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }).map(drop)
}

/// Ends this process when the thread that made it ends.
///
/// A parent that ended before the call is not noticed by it: whoever uses this
/// also watches a descriptor that the parent holds.
///
/// # Errors
/// The kernel's.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: prctl with integers.
    check_int(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }).map(drop)
}

/// Joins a namespace that a descriptor stands for; `kind` is a `CLONE_NEW*` flag.
///
/// # Errors
/// The kernel's.
pub fn join_namespace(namespace: BorrowedFd<'_>, kind: libc::c_int) -> io::Result<()> {
    #[cfg(feature = "without_defences")]
    if kind == libc::CLONE_NEWNET && crate::without::is("network") {
        return Ok(());
    }
    // SAFETY: integers only.
    check_int(unsafe { libc::setns(namespace.as_raw_fd(), kind) }).map(drop)
}

/// Moves into new namespaces of these kinds.
///
/// # Errors
/// The kernel's.
pub fn leave_namespaces(kinds: libc::c_int) -> io::Result<()> {
    #[cfg(feature = "without_defences")]
    if kinds == libc::CLONE_NEWNET && crate::without::is("network") {
        return Ok(());
    }
    // SAFETY: integers only.
    check_int(unsafe { libc::unshare(kinds) }).map(drop)
}

/// The name of this host as seen in its namespace.
///
/// # Errors
/// The kernel's.
pub fn set_host_name(name: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and length describe `name`.
    check_int(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// Sets the soft and the hard limit of a resource (setrlimit(2)); where the
/// hard limit is lower already and may not be raised, that one stays. Returns
/// what holds now.
///
/// # Errors
/// The kernel's.
pub fn limit_resource(resource: u32, value: u64) -> io::Result<u64> {
    let mut now = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `now` lives through both calls.
    unsafe {
        check_int(libc::getrlimit(resource, &raw mut now))?;
        let held = value.min(now.rlim_max);
        let wanted = libc::rlimit {
            rlim_cur: value,
            rlim_max: value,
        };
        if libc::setrlimit(resource, &raw const wanted) == 0 {
            return Ok(value);
        }
        let lower = libc::rlimit {
            rlim_cur: held,
            rlim_max: held,
        };
        check_int(libc::setrlimit(resource, &raw const lower))?;
        Ok(held)
    }
}
