use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use atoll_ledger::state::SCRATCH;
use atoll_ledger::{FileFault, StateDir};
use atoll_model::RunId;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::RunError;
use crate::tree::delete_tree;

/// Makes the directory of a run that keeps nothing: it has no record and is in no list. Its maker
/// removes it; if that process dies, the next opening of the ledger does.
///
/// # Errors
/// [`RunError::Exists`] or [`RunError::File`].
pub fn create_scratch(state: &StateDir, run: &RunId) -> Result<PathBuf, RunError> {
    let scratch = state.subdirectory(SCRATCH, true)?;
    let path = state.scratch_dir(run);
    match rustix::fs::mkdirat(&scratch, run.as_str(), Mode::RWXU) {
        Err(Errno::EXIST) => Err(RunError::Exists(run.clone())),
        other => {
            other.map_err(FileFault::on("create", &path))?;
            Ok(path)
        }
    }
}

/// Removes a directory that programs of a sandbox have written to, whatever is in it; one that is not
/// there is removed.
///
/// # Errors
/// [`RunError::Mounted`] or [`RunError::File`].
pub fn remove_directory(path: &Path) -> Result<(), RunError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let Ok(name) = CString::new(name.as_bytes()) else {
        return Ok(());
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(parent, flags, Mode::empty());
    let opened = opened.map_err(FileFault::on("open", parent));
    let removed = opened
        .map_err(RunError::from)
        .and_then(|parent| delete_tree(&parent, &name, path));
    match removed {
        Err(RunError::File(fault)) if fault.is_not_found() => Ok(()),
        other => other,
    }
}

/// Removes the directory of such a run, if it is there.
///
/// # Errors
/// [`RunError::Mounted`] or [`RunError::File`].
pub fn remove_scratch(state: &StateDir, run: &RunId) -> Result<(), RunError> {
    let scratch = match state.subdirectory(SCRATCH, false) {
        Err(fault) if fault.is_not_found() => return Ok(()),
        other => other?,
    };
    let Ok(name) = CString::new(run.as_str()) else {
        return Ok(());
    };
    match delete_tree(&scratch, &name, &state.scratch_dir(run)) {
        Err(RunError::File(fault)) if fault.is_not_found() => Ok(()),
        other => other,
    }
}
