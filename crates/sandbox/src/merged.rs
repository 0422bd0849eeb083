//! Layers read as one, on the host.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use atoll_frame::LOWER_MAX;
use atoll_sys::mount::{self, Attributes};
use rustix::fs::{Mode, OFlags};

/// Mounts layers upon each other, the topmost first, where nobody sees it: to be read by
/// [`shown_path`] for as long as the descriptor is kept. Nothing may write to them meanwhile.
///
/// # Errors
/// The kernel's; without rights of host root it allows none.
pub fn merged(layers: &[PathBuf]) -> io::Result<OwnedFd> {
    if !(2..=LOWER_MAX).contains(&layers.len()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |layer: &PathBuf| rustix::fs::open(layer, flags, Mode::empty());
    let opened = layers.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let paths: Vec<_> = opened
        .iter()
        .map(|one| format!("/proc/self/fd/{}", one.as_raw_fd()))
        .collect();
    let lower = CString::new(paths.join(":")).map_err(io::Error::other)?;
    let options = [
        (c"lowerdir", Some(&*lower)),
        (c"redirect_dir", Some(c"follow")),
    ];
    let attributes = Attributes::READ_ONLY
        .and(Attributes::NO_SETUID)
        .and(Attributes::NO_DEVICES);
    mount::make(c"overlay", &options, attributes)
}

/// Returns the path by which any process of this user finds a directory that this one has open.
#[must_use]
pub fn shown_path(open: &OwnedFd) -> PathBuf {
    format!("/proc/{}/fd/{}/.", std::process::id(), open.as_raw_fd()).into()
}
