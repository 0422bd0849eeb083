use std::path::{Path, PathBuf};

use atoll_layer::{CheckpointError, SealError, TreeError};
use atoll_ledger::LedgerError;
use atoll_model::RunId;
use atoll_sandbox::SandboxError;
use atoll_store::{AuthorityError, KeptError, RunError};

use crate::inputs::InputError;

/// An error that keeps a run's layers from being made.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A directory could not be made.
    #[error(transparent)]
    Layer(#[from] SandboxError),
    /// The workspace could not be copied.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// An input cannot be put there.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The workspace's control files cannot be kept read-only.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The modes in the earlier run's layers could not be restored.
    #[error(transparent)]
    Modes(#[from] TreeError),
    /// The earlier run's layers could not be taken over.
    #[error("the layers of run {run} could not be taken over: {error}")]
    Resume {
        /// The earlier run.
        run: RunId,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// A directory of the system cannot be given to root in the sandbox.
    #[error("root inside needs a layer over {}: {}", .0.display(), .1)]
    System(PathBuf, String),
    /// Files of a user's subordinate ids could not be given back to the user.
    #[error("the run's files could not be given back to you: {0}")]
    GivenBack(std::io::Error),
    /// The workspace cannot be given live.
    #[error(
        "{} cannot be given live to a program that is not root: {why}",
        path.display()
    )]
    Unmapped {
        /// The workspace.
        path: PathBuf,
        /// The reason why its files cannot be shown as the program's own.
        why: String,
    },
    /// A volume cannot be mounted.
    #[error("volume {name} cannot be mounted: {why}")]
    Volume {
        /// Its name.
        name: String,
        /// The reason why its files cannot be shown as the program's own.
        why: String,
    },
    /// A pipe in the workspace, which leads to its reader and cannot be covered.
    #[error(
        "{} is a pipe in the workspace, which leads out of it; without namespaces it cannot be \
         covered. Remove it, or choose another workspace",
        .0.display()
    )]
    Pipe(PathBuf),
    /// Files in the workspace have other names outside it: a write to them changes files
    /// elsewhere.
    #[error(
        "{} has further names (hard links) outside the workspace, {count} of its files have: \
         the program could write through them to what lies there",
        first.display()
    )]
    Shared {
        /// The workspace.
        workspace: PathBuf,
        /// The first such file.
        first: PathBuf,
        /// The number of such files.
        count: usize,
    },
    /// The path of a socket is too long for programs to connect to.
    #[error(
        "{} is longer than the path of a socket can be, and without namespaces it is seen there: \
         set XDG_STATE_HOME to a shorter directory",
        .0.display()
    )]
    LongSocket(PathBuf),
    /// The earlier run has no layers to go on with.
    #[error("run {0} cannot be resumed: {1}")]
    NotResumable(RunId, &'static str),
    /// A sandbox cannot begin in copies of a run's layers.
    #[error("no sandbox can begin with the changes of run {0}: {1}")]
    NotBegun(RunId, &'static str),
    /// A file in Atoll's state could not be made.
    #[error("{what} {}: {error}", path.display())]
    State {
        /// The attempted operation.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// The files of Atoll's certificate authority could not be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A new authority could not be recorded.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The record of a kept layer could not be written.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// The earlier run's record could not be changed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Returns the conversion of a kernel's error on the state, with the attempted operation.
pub(crate) fn state_error(
    what: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> PlaceError {
    let path = path.to_path_buf();
    move |error| PlaceError::State { what, path, error }
}
