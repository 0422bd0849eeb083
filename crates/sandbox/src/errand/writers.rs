//! Where programs inside write by now, whichever run they are of.

use std::path::{Path, PathBuf};

use super::WrittenInside;

/// The workspaces of all runs whose records are in a state directory, or why nobody knows.
pub type Workspaces = fn(&Path) -> Result<Vec<PathBuf>, String>;

/// Who writes inside: the programs of a run, and those of all runs that are known.
#[derive(Clone, Debug)]
pub struct Writers {
    workspace: Option<PathBuf>,
    state: PathBuf,
    list: Workspaces,
}

impl Writers {
    /// Those in a workspace, if any, and those whose records are in this state directory.
    #[must_use]
    pub fn new(workspace: Option<&Path>, state: &Path, list: Workspaces) -> Self {
        Self {
            workspace: workspace.map(Path::to_owned),
            state: state.to_owned(),
            list,
        }
    }

    /// Where they write by now, and did: their workspaces, and what Atoll keeps of them.
    ///
    /// # Errors
    /// Why nobody knows: any of them could have written anything, so nothing is to run.
    pub fn written(&self) -> Result<WrittenInside, String> {
        let others = (self.list)(&self.state)?;
        let own = self.workspace.iter().cloned().chain([self.state.clone()]);
        Ok(own.chain(others).collect())
    }
}
