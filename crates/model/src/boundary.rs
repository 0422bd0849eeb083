use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Limits;
use crate::network::Network;

/// The whole of what one execution may see, change and use. Policy makes it,
/// the sandbox builds exactly it: what is not named here does not exist inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The name of the profile that this boundary comes from.
    pub profile: String,
    /// What holds the program.
    pub mode: Mode,
    /// How the workspace is given.
    pub workspace: WorkspaceMode,
    /// The home directory's path inside; empty but for the views below it.
    pub home: PathBuf,
    /// Host paths that are visible inside, besides the workspace. A parent comes
    /// before what lies beneath it.
    pub views: Vec<View>,
    /// The complete environment of the program.
    pub environment: Vec<(OsString, OsString)>,
    /// What may be used up.
    pub limits: Limits,
    /// What the program may do to the person's terminal.
    pub terminal: TerminalRights,
    /// System calls that this boundary refuses beyond those that are always refused.
    pub syscalls: SyscallRights,
    /// When not empty: the only directories and files, as seen inside, that
    /// programs may be executed from.
    pub programs: Vec<PathBuf>,
    /// Whether the program is root inside, over a system that it can change in layers.
    pub root: bool,
    /// Whether the program may make namespaces of its own, and mount in them.
    pub nesting: bool,
    /// What the program may reach.
    pub network: Network,
}

/// What holds a program in its boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Namespaces, and all the rest.
    Full,
    /// Landlock, the filter of system calls and a judge of some of them, where user
    /// namespaces are forbidden. The workspace is never copy-on-write.
    Fence,
}

/// How the person's directory is given to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceMode {
    /// Writes go to a layer of Atoll's own; nothing changes outside until applied.
    CopyOnWrite,
    /// A checkpoint is taken, then writes go straight to the directory.
    Live,
    /// The directory can be read only.
    ReadOnly,
}

/// One host path made visible inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The path on the host.
    pub host: PathBuf,
    /// The path inside.
    pub inside: PathBuf,
    /// What may be done with it.
    pub access: Access,
    /// Why it is there, for summaries and diffs.
    pub kind: ViewKind,
    /// Whether it is an error when the host has no such path.
    pub required: bool,
}

/// What may be done with a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and execute.
    ReadOnly,
    /// Changed in a layer over the host's files.
    Layer(Layering),
}

/// What happens to a copy-on-write layer when the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layering {
    /// Where the layer's content goes.
    pub keep: Keep,
}

/// Where the content of a layer goes at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// It belongs to the run: kept, applied and discarded with it.
    Run,
    /// It is used again by the next run of the same profile.
    Profile,
}

/// Why a view is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ViewKind {
    /// Part of the operating system.
    System,
    /// A toolchain or a configuration in the home directory.
    Home,
    /// A package or build cache.
    Cache,
    /// Named by the person on the command line or in a profile.
    Input,
    /// What the worktrees of the workspace's git repository share.
    Repository,
}

/// What a program may do to the terminal it is shown on. Everything is refused
/// unless named; escape sequences for the rest are removed from its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TerminalRights {
    /// Ask the terminal for its size, cursor and colours, as full-screen programs do.
    pub queries: bool,
    /// Write to the clipboard (OSC 52).
    pub clipboard: bool,
    /// Set the window's title.
    pub title: bool,
}

/// System calls that a profile can refuse beyond the fixed filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SyscallRights {
    /// Refuse ptrace and process_vm_readv/writev: debuggers stop working.
    pub deny_debugging: bool,
    /// Refuse internet sockets altogether, also on the sandbox's own loopback.
    pub deny_sockets: bool,
}
