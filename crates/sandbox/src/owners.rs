//! The mapping of file owners: for host root the program's kernel ids are shifted, and the
//! person's files should look like the program's own.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use atoll_model::{Access, Boundary, ViewKind};
use atoll_sys::descriptor;
use atoll_sys::mount::{self, Attributes};
use atoll_sys::process::{Namespaces, Side, divide, exit_now, signal, wait};

use crate::{Host, MountPoint};

const SIGKILL: i32 = 9;

/// File systems that support mapping on every kernel that Atoll runs on. Others depend on the
/// kernel, and are probed.
const CAN: [&str; 3] = ["btrfs", "ext4", "xfs"];

/// Returns those mounts shown as the person's own whose owners cannot be mapped
/// (mount_setattr(2)), for example overlayfs. Only host root maps owners.
#[must_use]
pub fn unmapped_mounts(host: &Host, boundary: &Boundary, workspace: &Path) -> Vec<PathBuf> {
    if !host.is_root {
        return Vec::new();
    }
    if host.unmapped {
        return host.mounts.iter().map(|mount| mount.path.clone()).collect();
    }
    let views = boundary.views.iter();
    let shown = views
        .filter(|view| view.kind != ViewKind::System || view.access != Access::ReadOnly)
        .filter_map(|view| view.host.canonicalize().ok());
    let volumes = boundary.volumes.iter().map(|mount| mount.host.clone());
    let shown = shown.chain([workspace.to_path_buf()]).chain(volumes);
    let shown: Vec<PathBuf> = shown.collect();
    let mut seen: Vec<(&Path, bool)> = Vec::new();
    for path in &shown {
        let on = host.mount_of(path).map(|mount| (mount, path.as_path()));
        let within = host
            .mounts_within(path)
            .map(|one| (one, one.path.as_path()));
        for (mount, place) in on.into_iter().chain(within) {
            if !seen.iter().any(|(known, _)| *known == mount.path) {
                seen.push((&mount.path, maps_owners(mount, place)));
            }
        }
    }
    let unmapped = seen.into_iter().filter(|(_, maps)| !maps);
    unmapped.map(|(path, _)| path.to_path_buf()).collect()
}

fn maps_owners(mount: &MountPoint, place: &Path) -> bool {
    CAN.contains(&mount.kind.as_str()) || try_to_map(place).is_ok()
}

/// Maps the owners of a private copy of the mount.
fn try_to_map(place: &Path) -> io::Result<()> {
    let path = std::ffi::CString::new(place.as_os_str().as_bytes())?;
    let place = descriptor::open_place(None, &path)?;
    let copied = mount::copy(place.as_fd())?;
    // Which ids they are does not matter, so that one map serves all.
    static IDS: Mutex<Option<OwnedFd>> = Mutex::new(None);
    let mut known = IDS.lock().unwrap_or_else(PoisonError::into_inner);
    let ids = match known.take() {
        Some(ids) => ids,
        None => some_ids()?,
    };
    let ids = known.insert(ids);
    mount::restrict(copied.as_fd(), Attributes::NO_SETUID, Some(ids.as_fd()))
}

/// Makes a user namespace with an arbitrary map, by a short-lived process; the descriptor keeps
/// it.
pub(crate) fn some_ids() -> io::Result<OwnedFd> {
    let (ready, go) = descriptor::pipe()?;
    let child = match divide(Namespaces::USER, None)? {
        // Other threads are not there any more: system calls only. Should this
        // process go, the line's end shows; until then such a process of another
        // thread may hold a copy of its other end, so that it is ended outright.
        Side::Child => {
            drop(go);
            let mut word = [0_u8; 1];
            let _ = descriptor::read(ready.as_fd(), &mut word);
            exit_now(0)
        }
        Side::Parent(child) => child,
    };
    let of_child = |name: &str| PathBuf::from(format!("/proc/{}/{name}", child.pid));
    let made = (|| {
        std::fs::write(of_child("uid_map"), "0 1879048192 1")?;
        std::fs::write(of_child("gid_map"), "0 1879048192 1")?;
        std::fs::File::open(of_child("ns/user"))
    })();
    signal(child.descriptor.as_fd(), SIGKILL)?;
    wait(Some(child.pid), true)?;
    drop(go);
    made.map(OwnedFd::from)
}
