//! Mounts by the new mount API (fsopen(2), open_tree(2), move_mount(2)): created detached, given
//! their attributes, then moved into place.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
    fsopen, mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};

use crate::check;

/// Attributes of a mount (mount_setattr(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes(MountAttrFlags);

impl Attributes {
    /// Nothing can be written.
    pub const READ_ONLY: Self = Self(MountAttrFlags::MOUNT_ATTR_RDONLY);
    /// Set-user-id bits have no effect.
    pub const NO_SETUID: Self = Self(MountAttrFlags::MOUNT_ATTR_NOSUID);
    /// Device nodes cannot be opened.
    pub const NO_DEVICES: Self = Self(MountAttrFlags::MOUNT_ATTR_NODEV);
    /// Nothing can be executed.
    pub const NO_EXECUTION: Self = Self(MountAttrFlags::MOUNT_ATTR_NOEXEC);

    /// Returns the union of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0.union(other.0))
    }
}

/// One option of a file system: a flag or a key with a value.
pub type FsOption<'a> = (&'a CStr, Option<&'a CStr>);

/// Creates a detached mount of a new file system instance.
///
/// # Errors
/// The kernel's; EINVAL for an option that this kernel does not know.
pub fn make(kind: &CStr, options: &[FsOption<'_>], attributes: Attributes) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        match value {
            None => fsconfig_set_flag(&context, *key)?,
            Some(value) => fsconfig_set_string(&context, *key, *value)?,
        }
    }
    fsconfig_create(&context)?;
    Ok(fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes.0,
    )?)
}

/// Creates a detached copy of the mount at a place, without the mounts beneath it.
///
/// # Errors
/// The kernel's; EINVAL where what lies beneath must not be uncovered.
pub fn copy(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(open_tree(place, c"", COPY)?)
}

/// The flags that copy the mount of a descriptor, without a path.
const COPY: OpenTreeFlags = OpenTreeFlags::OPEN_TREE_CLONE
    .union(OpenTreeFlags::OPEN_TREE_CLOEXEC)
    .union(OpenTreeFlags::AT_EMPTY_PATH);

/// Creates a detached copy of the mount at a place with all mounts beneath it, each with these
/// attributes.
///
/// # Errors
/// The kernel's.
pub fn copy_whole(place: BorrowedFd<'_>, attributes: Attributes) -> io::Result<OwnedFd> {
    let copied = open_tree(place, c"", COPY | OpenTreeFlags::AT_RECURSIVE)?;
    set_attributes(copied.as_fd(), attributes, None, libc::AT_RECURSIVE)?;
    Ok(copied)
}

/// Sets attributes of one mount; with `ids`, also maps its owners through that user namespace
/// (mount_setattr(2)).
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
        attr_set: u64::from(attributes.0.bits()) | ids.map_or(0, |_| libc::MOUNT_ATTR_IDMAP),
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
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    Ok(move_mount(mount, c"", root, path, flags)?)
}

/// Returns the id of the mount that a place is on (statx(2)).
///
/// # Errors
/// The kernel's.
pub fn number(place: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(statx(place, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id)
}

/// Detaches a mount from its place; existing users can continue.
///
/// # Errors
/// The kernel's.
pub fn detach(mount: BorrowedFd<'_>) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    Ok(unmount(path, UnmountFlags::DETACH)?)
}

/// Stops the propagation of mounts into and out of this mount namespace.
///
/// # Errors
/// The kernel's.
pub fn make_all_private() -> io::Result<()> {
    let flags = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    Ok(mount_change(c"/", flags)?)
}

/// Makes `root` the root of this mount namespace and detaches the old one with everything beneath
/// it (pivot_root(2) with both places the same).
///
/// # Errors
/// The kernel's.
pub fn become_root(root: &OwnedFd) -> io::Result<()> {
    fchdir(root)?;
    pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    Ok(chdir(c"/")?)
}

/// Creates a new directory tree in memory, detached: the start of a root.
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
