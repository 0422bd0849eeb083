//! Names that file systems have for inodes, as overlayfs' index uses them.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

/// `MAX_HANDLE_SZ` of linux/exportfs.h, bytes.
const HANDLE_BYTES_MAX: usize = 128;

/// What a file system calls an inode (name_to_handle_at(2)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// Which form it has; each file system has its own.
    pub kind: i32,
    /// The name, at most 128 bytes.
    pub bytes: Vec<u8>,
    /// The mount on which it was asked for.
    pub mount: i32,
}

/// The kernel's `struct file_handle` with the most room.
#[repr(C)]
struct Room {
    handle_bytes: u32,
    handle_type: i32,
    handle: [u8; HANDLE_BYTES_MAX],
}

/// Asks for the handle of an entry in an open directory. Nothing is opened and no
/// symbolic link followed.
///
/// # Errors
/// The kernel's: `EOPNOTSUPP` where the file system has no handles.
pub fn of(place: BorrowedFd<'_>, name: &CStr) -> io::Result<Handle> {
    let mut room = Room {
        handle_bytes: HANDLE_BYTES_MAX as u32,
        handle_type: 0,
        handle: [0; HANDLE_BYTES_MAX],
    };
    let mut mount: libc::c_int = 0;
    let flags: libc::c_int = 0;
    // SAFETY: all three live through the call, and `handle_bytes` says how much room is
    // behind the head of the structure, which is laid out as the kernel's.
    check(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            place.as_raw_fd(),
            name.as_ptr(),
            &raw mut room,
            &raw mut mount,
            flags,
        )
    })?;
    let length = usize::try_from(room.handle_bytes).unwrap_or(usize::MAX);
    let bytes = room.handle.get(..length);
    Ok(Handle {
        kind: room.handle_type,
        bytes: bytes
            .ok_or_else(|| io::Error::other("too long a handle"))?
            .to_vec(),
        mount,
    })
}
