//! Rights of the calling process: ids, capabilities, and securing that they can never be regained.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::process::{self, DumpableBehavior, Signal};
use rustix::thread::{self, CapabilitiesSecureBits, CapabilitySet, CapabilitySets};
use rustix::thread::{Gid, ThreadNameSpaceType, Uid};

use crate::check;

/// The securebits: user id 0 has no privileges, no capability survives a change of ids, none is
/// raised: each locked, all bits but one (capabilities(7)).
const SECURE_BITS: CapabilitiesSecureBits =
    CapabilitiesSecureBits::from_bits_retain(0xff).difference(CapabilitiesSecureBits::KEEP_CAPS);

/// The securebits of user id 0, which keeps the powers that the bounding set has left and, unless
/// it asks to keep them, loses them with a change of ids.
const SECURE_BITS_OF_ROOT: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

/// Changes to another user and group, without any supplementary group.
///
/// # Errors
/// EPERM without the right to, EINVAL for ids without a place in the namespace.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    // These change this thread only, which is all there is: glibc's functions
    // would look for other threads first.
    thread::set_thread_groups(&[])?;
    thread::set_thread_res_gid(gid, gid, gid)?;
    Ok(thread::set_thread_res_uid(uid, uid, uid)?)
}

/// Has what root makes in files belong to this user and group, and keeps root's rights to them
/// (setfsuid(2)): capabilities(7) takes those out of effect with the change.
///
/// # Errors
/// EPERM where the ids did not change.
pub fn make_files_for(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: both take numbers alone, and return the ones before; the second pair is how a change
    // is seen, since these calls tell of no error.
    let now = unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        (
            libc::syscall(libc::SYS_setfsgid, gid),
            libc::syscall(libc::SYS_setfsuid, uid),
        )
    };
    if now != (i64::from(gid), i64::from(uid)) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    keep_capabilities(u64::MAX)
}

/// Changes to another user and group without losing the capabilities, as a change from user id 0
/// would: dropping the ways to regain them needs some of them.
///
/// # Errors
/// As for [`become_user`].
pub fn become_user_by_capabilities(uid: u32, gid: u32) -> io::Result<()> {
    thread::set_keep_capabilities(true)?;
    become_user(uid, gid)?;
    // The change took them out of effect.
    keep_capabilities(u64::MAX)
}

/// Drops every capability except `kept`, and every way to gain one: the bounding and the ambient
/// set, the powers of user id 0, set-user-id programs.
///
/// # Errors
/// The kernel's; nothing may be started after one.
pub fn drop_rights(kept: u64) -> io::Result<()> {
    for number in (0..u64::BITS).filter(|number| kept & (1 << number) == 0) {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match thread::remove_capability_from_bounding_set(capability) {
            // The end of the capabilities that this kernel knows.
            Err(Errno::INVAL) if number > 0 => break,
            removed => removed?,
        }
    }
    let bits = if kept == 0 {
        SECURE_BITS
    } else {
        SECURE_BITS_OF_ROOT
    };
    thread::set_capabilities_secure_bits(bits)?;
    thread::clear_ambient_capability_set()?;
    keep_capabilities(kept)?;
    forbid_new_privileges()
}

/// Sets the permitted and effective sets to those of these bits that are permitted, and clears the
/// inheritable set (capset(2)); 0 drops everything.
///
/// # Errors
/// The kernel's.
pub fn keep_capabilities(bits: u64) -> io::Result<()> {
    let held = thread::capabilities(None)?.permitted;
    let kept = held & CapabilitySet::from_bits_retain(bits);
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(thread::set_capabilities(None, sets)?)
}

/// Prevents programs that are executed from now on from gaining rights (PR_SET_NO_NEW_PRIVS).
///
/// # Errors
/// The kernel's.
pub fn forbid_new_privileges() -> io::Result<()> {
    Ok(thread::set_no_new_privs(true)?)
}

/// Protects this process from ptrace(2) and /proc/PID/mem of processes without CAP_SYS_PTRACE, and
/// from core dumps.
///
/// # Errors
/// The kernel's.
pub fn forbid_inspection() -> io::Result<()> {
    #[cfg(feature = "without_defences")]
    if crate::without::is("dumpable") {
        // A change of ids has forbidden it too.
        return Ok(process::set_dumpable_behavior(DumpableBehavior::Dumpable)?);
    }
    Ok(process::set_dumpable_behavior(
        DumpableBehavior::NotDumpable,
    )?)
}

/// Takes that protection away again: for a process that others of its user are kept from by other
/// means, and that its watch has to look into.
///
/// # Errors
/// The kernel's.
pub fn allow_inspection() -> io::Result<()> {
    Ok(process::set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Ends this process when the thread that created it ends.
///
/// A parent that ended before the call goes unnoticed: a caller also has to watch a descriptor that
/// the parent holds.
///
/// # Errors
/// The kernel's.
pub fn die_with_parent() -> io::Result<()> {
    Ok(process::set_parent_process_death_signal(Some(
        Signal::KILL,
    ))?)
}

/// Joins a namespace; `kind` is a `CLONE_NEW*` flag.
///
/// # Errors
/// The kernel's.
pub fn join_namespace(namespace: BorrowedFd<'_>, kind: libc::c_int) -> io::Result<()> {
    #[cfg(feature = "without_defences")]
    if kind == libc::CLONE_NEWNET && crate::without::is("network") {
        return Ok(());
    }
    // setns(2) takes a namespace as it takes a thread, and the same flags.
    let kind = ThreadNameSpaceType::from_bits_retain(kind as u32);
    Ok(thread::move_into_thread_name_spaces(namespace, kind)?)
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
    check(unsafe { libc::unshare(kinds) }).map(drop)
}

/// Sets the host name of this process's namespace.
///
/// # Errors
/// The kernel's.
pub fn set_host_name(name: &[u8]) -> io::Result<()> {
    Ok(rustix::system::sethostname(name)?)
}

/// Sets the soft and the hard limit of a resource (setrlimit(2)); where the hard limit is lower
/// already and may not be raised, it stays. Returns the limit that holds now.
///
/// # Errors
/// The kernel's.
pub fn limit_resource(resource: u32, value: u64) -> io::Result<u64> {
    let both = |limit| libc::rlimit {
        rlim_cur: limit,
        rlim_max: limit,
    };
    let mut now = both(0);
    // SAFETY: `now` lives through the call.
    check(unsafe { libc::getrlimit(resource, &raw mut now) })?;
    let set = |limit| {
        let wanted = both(limit);
        // SAFETY: `wanted` lives through the call.
        check(unsafe { libc::setrlimit(resource, &raw const wanted) }).map(|_| limit)
    };
    set(value).or_else(|_| set(value.min(now.rlim_max)))
}
