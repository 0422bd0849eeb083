//! The directories of a run in a fence, in place of a file tree of its own.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use atoll_model::{Boundary, Mode, WorkspaceMode};
use atoll_sandbox::FencePlace;

use crate::PlaceError;
use crate::place::Placing;
use crate::place_error::state_error;

/// Describes in one line what is weaker in a fence.
fn weaker(mode: WorkspaceMode) -> String {
    let directly = match mode {
        WorkspaceMode::ReadOnly => "",
        WorkspaceMode::CopyOnWrite | WorkspaceMode::Live => {
            "writes to the workspace directly (a checkpoint was taken first), "
        }
    };
    format!(
        "this user may make no namespaces here, so the program is only fenced in: it {directly}can \
         see the names of files it cannot read, and its loopback is the host's; `atoll doctor` \
         says how to get more"
    )
}

/// Makes the home and the /tmp of a fence, which has no file tree of its own. Refuses a workspace
/// from which writes would lead out of it, in live mode too.
///
/// # Errors
/// [`PlaceError::Pipe`] and [`PlaceError::Shared`] for paths that lead out of the workspace;
/// [`PlaceError::State`] if a directory cannot be made.
pub(crate) fn place(
    placing: &mut Placing<'_>,
    boundary: &Boundary,
) -> Result<Option<FencePlace>, PlaceError> {
    match (boundary.mode, boundary.workspace) {
        (Mode::Full, WorkspaceMode::ReadOnly | WorkspaceMode::CopyOnWrite) => Ok(None),
        (Mode::Full, WorkspaceMode::Live) => refuse_shared(placing).map(|()| None),
        (Mode::Fence, mode) => {
            if let Some(pipe) = placing.special.iter().find(|path| is_pipe(path)) {
                return Err(PlaceError::Pipe(pipe.clone()));
            }
            refuse_shared(placing)?;
            make(placing, mode).map(Some)
        }
    }
}

fn refuse_shared(placing: &Placing<'_>) -> Result<(), PlaceError> {
    let workspace = placing.request.call.workspace();
    match placing.shared.first() {
        None => Ok(()),
        Some(first) => Err(PlaceError::Shared {
            workspace: workspace.to_owned(),
            first: workspace.join(first.as_os_str()),
            count: placing.shared.len(),
        }),
    }
}

/// Makes the directories for a home and a /tmp, and adds a notice of what is weaker.
fn make(placing: &mut Placing<'_>, mode: WorkspaceMode) -> Result<FencePlace, PlaceError> {
    let directory = placing.run_dir().join("fence");
    let make = |name: &str| -> Result<PathBuf, PlaceError> {
        let path = directory.join(name);
        std::fs::create_dir_all(&path).map_err(state_error("making", &path))?;
        path.canonicalize().map_err(state_error("finding", &path))
    };
    let place = FencePlace {
        home: make("home")?,
        tmp: make("tmp")?,
    };
    placing.notices.push(weaker(mode));
    Ok(place)
}

fn is_pipe(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|facts| facts.file_type().is_fifo())
}
