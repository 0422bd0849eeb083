//! Mounts by the new mount API (fsopen(2), open_tree(2), move_mount(2)):
//! made detached, given their attributes, then moved into place.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::descriptor::owned;
use crate::{check, check_int};

const FSCONFIG_SET_FLAG: u32 = 0;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;

/// Attributes of a mount (mount_setattr(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// Nothing can be written.
    pub const READ_ONLY: Self = Self(libc::MOUNT_ATTR_RDONLY);
    /// Set-user-id bits have no effect.
    pub const NO_SETUID: Self = Self(libc::MOUNT_ATTR_NOSUID);
    /// Device nodes cannot be opened.
    pub const NO_DEVICES: Self = Self(libc::MOUNT_ATTR_NODEV);
    /// Nothing can be executed.
    pub const NO_EXECUTION: Self = Self(libc::MOUNT_ATTR_NOEXEC);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One option of a file system: a flag or a key with a value.
pub type FsOption<'a> = (&'a CStr, Option<&'a CStr>);

/// Makes a detached mount of a new file system instance.
///
/// # Errors
/// The kernel's; EINVAL for an option that this kernel does not know.
pub fn make(kind: &CStr, options: &[FsOption<'_>], attributes: Attributes) -> io::Result<OwnedFd> {
    // SAFETY: `kind` is a C string.
    let raw = check(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), 1) })?;
    let context = owned(raw as RawFd);
    for (key, value) in options {
        let (command, value) = match value {
            None => (FSCONFIG_SET_FLAG, std::ptr::null()),
            Some(value) => (FSCONFIG_SET_STRING, value.as_ptr()),
        };
        // SAFETY: key and value are C strings or null, as the command wants.
        check(unsafe {
            libc::syscall(
                libc::SYS_fsconfig,
                context.as_raw_fd(),
                command,
                key.as_ptr(),
                value,
                0,
            )
        })?;
    }
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: CMD_CREATE takes neither key nor value.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            none,
            none,
            0,
        )
    })?;
    // SAFETY: integers only.
    let raw =
        check(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 1, attributes.0) })?;
    Ok(owned(raw as RawFd))
}

/// Makes a detached copy of the mount at a place, without the mounts beneath it.
///
/// # Errors
/// The kernel's; EINVAL where what lies beneath must not be uncovered.
pub fn copy(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    open_tree(place, 0)
}

fn open_tree(place: BorrowedFd<'_>, further: libc::c_long) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: the path is an empty C string.
    let raw = check(unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            place.as_raw_fd(),
            c"".as_ptr(),
            flags as libc::c_long | libc::c_long::from(libc::AT_EMPTY_PATH) | further,
        )
    })?;
    Ok(owned(raw as RawFd))
}

/// Makes a detached copy of the mount at a place with all mounts beneath it,
/// each with these attributes.
///
/// # Errors
/// The kernel's.
pub fn copy_whole(place: BorrowedFd<'_>, attributes: Attributes) -> io::Result<OwnedFd> {
    let copied = open_tree(place, libc::c_long::from(libc::AT_RECURSIVE))?;
    set_attributes(copied.as_fd(), attributes, None, libc::AT_RECURSIVE)?;
    Ok(copied)
}

/// Sets attributes of one mount; with `ids`, also lets it show owners through
/// that user namespace's map (mount_setattr(2)).
///
/// # Errors
/// The kernel's; EINVAL where the file system cannot map ids, EPERM without
/// rights over the file system.
pub fn restrict(
    mount: BorrowedFd<'_>,
    attributes: Attributes,
    ids: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    set_attributes(mount, attributes, ids, 0)
}

fn set_attributes(
    mount: BorrowedFd<'_>,
    attributes: Attributes,
    ids: Option<BorrowedFd<'_>>,
    further: libc::c_int,
) -> io::Result<()> {
    let change = libc::mount_attr {
        attr_set: attributes.0 | ids.map_or(0, |_| libc::MOUNT_ATTR_IDMAP),
        attr_clr: 0,
        propagation: 0,
        userns_fd: ids.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    // SAFETY: `change` lives through the call and its size is given.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | further,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Attaches a detached mount at a path beneath an open directory; no symbolic
/// link at its end is followed.
///
/// # Errors
/// The kernel's.
pub fn attach(mount: BorrowedFd<'_>, root: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    const FROM_EMPTY_PATH: libc::c_long = 0x4;
    const TO_EMPTY_PATH: libc::c_long = 0x40;
    let flags = FROM_EMPTY_PATH | if path.is_empty() { TO_EMPTY_PATH } else { 0 };
    // SAFETY: both paths are C strings.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            root.as_raw_fd(),
            path.as_ptr(),
            flags,
        )
    })
    .map(drop)
}

/// The number of the mount that a place is on (statx(2)).
///
/// # Errors
/// The kernel's.
pub fn number(place: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: statx is plain data that the call fills.
    let mut facts: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is an empty C string, `facts` lives through the call.
    check_int(unsafe {
        libc::statx(
            place.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_MNT_ID,
            &raw mut facts,
        )
    })?;
    Ok(facts.stx_mnt_id)
}

/// Detaches a mount from where it is attached; who uses it may go on.
///
/// # Errors
/// The kernel's.
pub fn detach(mount: BorrowedFd<'_>) -> io::Result<()> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", mount.as_raw_fd()))
        .map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the path is a C string.
    check_int(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }).map(drop)
}

/// Cuts this mount namespace off from mounts made elsewhere, and the other way round.
///
/// # Errors
/// The kernel's.
pub fn make_all_private() -> io::Result<()> {
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: for a change of propagation only the target is read.
    check_int(unsafe {
        libc::mount(
            none,
            c"/".as_ptr(),
            none,
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        )
    })
    .map(drop)
}

/// Makes `root` the root of this mount namespace and lets the old one go with
/// everything beneath it (pivot_root(2) with both places the same).
///
/// # Errors
/// The kernel's.
pub fn become_root(root: &OwnedFd) -> io::Result<()> {
    // SAFETY: integers and C strings only.
    unsafe {
        check_int(libc::fchdir(root.as_raw_fd()))?;
        check(libc::syscall(
            libc::SYS_pivot_root,
            c".".as_ptr(),
            c".".as_ptr(),
        ))?;
        check_int(libc::umount2(c".".as_ptr(), libc::MNT_DETACH))?;
        check_int(libc::chdir(c"/".as_ptr()))?;
    }
    Ok(())
}

/// A new directory tree in memory, detached: the start of a root.
///
/// # Errors
/// The kernel's.
pub fn memory_tree(
    bytes: &CStr,
    inodes: &CStr,
    mode: &CStr,
    attributes: Attributes,
) -> io::Result<OwnedFd> {
    let options: [FsOption<'_>; 3] = [
        (c"size", Some(bytes)),
        (c"nr_inodes", Some(inodes)),
        (c"mode", Some(mode)),
    ];
    make(c"tmpfs", &options, attributes)
}
