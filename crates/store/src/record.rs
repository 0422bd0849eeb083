use std::ffi::OsString;
use std::path::PathBuf;

use atoll_ledger::{StateDir, host_text};
use atoll_model::{Ending, PlaceholderState, RunId, WorkspaceMode};
use serde::{Deserialize, Serialize};

/// The version of the form of `record.json`.
pub const RECORD_VERSION: u32 = 1;

/// The record of one run, in `runs/RUN/record.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// [`RECORD_VERSION`].
    pub v: u32,
    /// The run's name.
    pub run: RunId,
    /// The program and its arguments.
    #[serde(with = "host_text::list")]
    pub command: Vec<OsString>,
    /// The directory that the program worked on.
    #[serde(with = "host_text::path")]
    pub workspace: PathBuf,
    /// The working directory in which the program was started.
    #[serde(with = "host_text::path")]
    pub directory: PathBuf,
    /// The name of the profile.
    pub profile: String,
    /// The names of the purposes whose policies narrowed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub purposes: Vec<String>,
    /// The mode in which the workspace was mounted.
    pub mode: WorkspaceMode,
    /// The first kernel user id of the range that the sandbox's ids are shifted to, if it was made
    /// by host root. Files in the layers belong to that range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u32>,
    /// The copy-on-write layers, the workspace's first.
    pub layers: Vec<LayerRecord>,
    /// The time of its start, milliseconds since 1970.
    pub started_at_ms: u64,
    /// The state of the run.
    pub state: RunState,
    /// The exit status that the caller of Atoll saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
    /// The way in which the program ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// The numbers of workspace files that differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangeCounts>,
    /// The number of violations that were seen.
    #[serde(default, skip_serializing_if = "is_none_seen")]
    pub attempts: u64,
    /// The run whose layers this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<RunId>,
}

/// Returns whether there were none: records of such runs have no member for it.
fn is_none_seen(attempts: &u64) -> bool {
    *attempts == 0
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// The run has not ended.
    Running,
    /// The run has ended; its changes await a decision.
    Kept,
    /// The changes were written to the workspace.
    Applied,
    /// Some of the changes were written to the workspace.
    PartlyApplied,
    /// The changes were discarded.
    Discarded,
    /// Atoll ended before the run did.
    Interrupted,
    /// The changes were applied to the workspace and undone.
    Undone,
    /// Atoll could not carry out the run.
    Failed,
}

impl RunState {
    /// Returns whether the run has ended, and its changes are not in the workspace.
    #[must_use]
    pub fn is_undecided(self) -> bool {
        match self {
            Self::Kept | Self::Interrupted | Self::Undone | Self::Failed => true,
            Self::Running | Self::Applied | Self::PartlyApplied | Self::Discarded => false,
        }
    }
}

/// The numbers of files that a run added, changed and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ChangeCounts {
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
}

/// One copy-on-write layer of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerRecord {
    /// `workspace`, or a name made from the path.
    pub name: String,
    /// The host's directory below the layer.
    #[serde(with = "host_text::path")]
    pub host: PathBuf,
    /// The path at which the sandbox sees it.
    #[serde(with = "host_text::path")]
    pub inside: PathBuf,
    /// The purpose of the layer.
    pub kind: LayerKind,
    /// The mechanism that keeps writes apart from the host's files.
    pub how: LayerHow,
    /// The directory of the writes, relative to the run's directory, or to the directory of shared
    /// layers when `shared`.
    #[serde(with = "host_text::path_below")]
    pub upper: PathBuf,
    /// Changes on the host after this moment are conflicts: seconds and
    /// nanoseconds since 1970, by the host's file system.
    pub since: (i64, u32),
    /// True if the layer outlives this run, for the next run of its profile.
    pub shared: bool,
    /// The files at its top in whose place something else stands: login files of agents. None of
    /// them is shown or applied.
    #[serde(
        default,
        with = "host_text::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub logins: Vec<OsString>,
    /// The settings files among them, with the state of their placeholders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingsRecord>,
    /// The name of the workspace's own entry in `worktrees`, for a repository's directory. `None`
    /// if the workspace is the only checkout, and for all other layers.
    #[serde(
        default,
        with = "host_text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub worktree: Option<OsString>,
}

/// A settings file at the top of a layer, in whose place stands a version without its secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsRecord {
    /// The file's name.
    #[serde(with = "host_text::path")]
    pub name: PathBuf,
    /// The state of the placeholder that stood there.
    pub stood: PlaceholderState,
}

/// The purpose of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerKind {
    /// The directory that the program works on.
    Workspace,
    /// A part of the home directory.
    Home,
    /// A package or build cache.
    Cache,
    /// The parts of the workspace's git repository that its worktrees share.
    Repository,
}

/// The mechanism that keeps writes to a layer apart from the host's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LayerHow {
    /// The directory is the lower of an overlayfs.
    Overlay {
        /// The extended attributes that hold overlayfs's marks.
        xattrs: OverlayXattrs,
    },
    /// The directory was copied.
    Copy,
    /// Writes go to the host's files, after a checkpoint.
    Live,
}

/// The extended attributes that hold the marks of an overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverlayXattrs {
    /// `user.overlay.*`: an overlay mounted in a user namespace.
    User,
    /// `trusted.overlay.*`: an overlay mounted by the host's root.
    Trusted,
}

impl LayerRecord {
    /// Returns the absolute path of the directory with this layer's writes.
    #[must_use]
    pub fn upper_path(&self, state: &StateDir, run: &RunId) -> PathBuf {
        if self.shared {
            state.shared_layers_dir().join(&self.upper)
        } else {
            state.run_dir(run).join(&self.upper)
        }
    }
}
