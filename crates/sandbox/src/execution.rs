//! The file tree of a run in which only listed programs may be executed. Landlock refuses to
//! execute any other file, but a listed loader executes nothing: it maps a file as code. So
//! unlisted files cannot be mapped as code either, except the system's libraries.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use atoll_frame::Operation;

/// The directories of the libraries that listed programs are linked with. A listed loader can
/// start whatever else lies there.
const LIBRARIES: [&str; 12] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libx32",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/nix",
    "/gnu",
];

/// Returns the last steps of a tree in which only these programs may be executed.
pub(crate) fn close(operations: &[Operation], programs: &[PathBuf]) -> Vec<Operation> {
    let stays = |place: &Path| {
        let libraries = LIBRARIES.iter().map(Path::new);
        let listed = programs.iter().map(PathBuf::as_path);
        listed.chain(libraries).any(|open| place.starts_with(open))
    };
    let mut mounts: Vec<PathBuf> = operations.iter().filter_map(mounted).collect();
    mounts.sort();
    mounts.dedup();
    let lies_in = |place: &Path| {
        let around = mounts.iter().filter(|mount| place.starts_with(mount));
        around.max_by_key(|mount| mount.components().count())
    };
    let is_real = |path: &&str| {
        Path::new(path)
            .symlink_metadata()
            .is_ok_and(|facts| facts.is_dir())
    };
    let libraries = LIBRARIES.iter().copied().filter(is_real).map(Path::new);
    // What stays open within a mount becomes a mount itself, which would hide others
    // in it: then the one around it stays open as well.
    let open: Vec<&Path> = libraries
        .chain(programs.iter().map(PathBuf::as_path))
        .collect();
    let hides = |place: &Path| {
        mounts
            .iter()
            .any(|mount| mount != place && mount.starts_with(place))
    };
    let can_close = |mount: &Path| {
        let mut within = open
            .iter()
            .filter(|place| place.starts_with(mount) && **place != mount);
        !stays(mount) && !within.any(|place| hides(place))
    };
    let closed: Vec<&PathBuf> = mounts.iter().filter(|mount| can_close(mount)).collect();
    let mut pinned: Vec<&Path> = open
        .iter()
        .copied()
        .filter(|place| lies_in(place).is_some_and(|mount| closed.contains(&mount)))
        // One that is not there is told of where it is given its rights.
        .filter(|place| place.symlink_metadata().is_ok())
        .collect();
    pinned.sort();
    pinned.dedup();
    let path = |place: &Path| {
        let bytes = place.as_os_str().as_bytes();
        bytes.strip_prefix(b"/").unwrap_or(bytes).to_vec()
    };
    let pins = pinned
        .iter()
        .map(|place| Operation::Pin { path: path(place) });
    let closes = closed
        .iter()
        .map(|mount| Operation::Inexecutable { path: path(mount) });
    pins.chain(closes).collect()
}

/// Returns the path in the sandbox if the step mounts files there.
fn mounted(operation: &Operation) -> Option<PathBuf> {
    match operation {
        Operation::Memory { path, .. }
        | Operation::ReadOnly { path, .. }
        | Operation::ReadOnlyFile { path, .. }
        | Operation::Layer { path, .. }
        | Operation::Part { path }
        | Operation::ReadOnlyWhole { path, .. }
        | Operation::Writable { path, .. } => {
            Some(Path::new("/").join(std::ffi::OsStr::from_bytes(path)))
        }
        // No files, or those of a mount around.
        Operation::Directory { .. }
        | Operation::Link { .. }
        | Operation::File { .. }
        | Operation::Seal { .. }
        | Operation::Pin { .. }
        | Operation::Inexecutable { .. }
        | Operation::Device { .. }
        | Operation::Terminals { .. }
        | Operation::Processes { .. }
        | Operation::HideFile { .. }
        | Operation::HideDirectory { .. } => None,
    }
}
