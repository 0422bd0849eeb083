//! The sandbox-writable paths at present, of all runs.

use std::path::{Path, PathBuf};

use super::WrittenInside;

/// Lists the workspaces of all runs recorded in a state directory, or says why they are
/// unknown.
pub type Workspaces = fn(&Path) -> Result<Vec<PathBuf>, String>;

/// The source of sandbox-writable paths: a run's own, and those of all recorded runs.
#[derive(Clone, Debug)]
pub struct Writers {
    workspace: Option<PathBuf>,
    state: PathBuf,
    list: Workspaces,
}

impl Writers {
    /// Creates the source for a workspace, if any, and the runs recorded in this state
    /// directory.
    #[must_use]
    pub fn new(workspace: Option<&Path>, state: &Path, list: Workspaces) -> Self {
        Self {
            workspace: workspace.map(Path::to_owned),
            state: state.to_owned(),
            list,
        }
    }

    /// Returns the paths that sandboxed programs write now, or wrote: their workspaces, and
    /// Atoll's state of them.
    ///
    /// # Errors
    /// The reason why the paths are unknown: any could have been written, so nothing may run.
    pub fn written(&self) -> Result<WrittenInside, String> {
        let others = (self.list)(&self.state)?;
        let own = self.workspace.iter().cloned().chain([self.state.clone()]);
        Ok(own.chain(others).collect())
    }
}
