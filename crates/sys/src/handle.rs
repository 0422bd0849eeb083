//! File handles: the names that file systems give inodes.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `MAX_HANDLE_SZ` of linux/exportfs.h.
const HANDLE_BYTES_MAX: usize = 128;

/// A file handle: a file system's own name of an inode (name_to_handle_at(2)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The handle's type: each file system has its own.
    pub kind: i32,
    /// The handle, at most 128 bytes.
    pub bytes: Vec<u8>,
    /// The id of the mount on which it was requested.
    pub mount: i32,
}

/// The kernel's `struct file_handle` of the largest size.
#[repr(C)]
struct Room {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES_MAX],
}

/// Returns the handle of an entry in an open directory; no symbolic link is followed.
///
/// # Errors
/// The kernel's: `EOPNOTSUPP` where the file system has no handles.
pub fn of(place: BorrowedFd<'_>, name: &CStr) -> io::Result<Handle> {
    let (bytes, handle) = (HANDLE_BYTES_MAX as u32, [0; HANDLE_BYTES_MAX]);
    let (mut room, mut mount) = (
        Room {
            bytes,
            kind: 0,
            handle,
        },
        0,
    );
    let (place, name, to) = (place.as_raw_fd(), name.as_ptr(), &raw mut room);
    let call = libc::SYS_name_to_handle_at;
    // SAFETY: name, room and mount live through the call; `room.bytes` says how much fits.
    crate::check(unsafe { libc::syscall(call, place, name, to, &raw mut mount, 0) })?;
    let bytes = room.handle.iter().copied().take(room.bytes as usize);
    Ok(Handle {
        kind: room.kind,
        bytes: bytes.collect(),
        mount,
    })
}
