use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::network::Network;
use crate::{Inputs, Limits, VolumeMount};

/// Everything that one execution may see, change and use. Policy makes it, and the sandbox builds
/// exactly it: a thing not named here does not exist in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The name of the profile that it comes from.
    pub profile: String,
    /// The mechanism that confines the program.
    pub mode: Mode,
    /// The access that the program has to the workspace.
    pub workspace: WorkspaceMode,
    /// The home directory's path in the sandbox; empty except for the views below it.
    pub home: PathBuf,
    /// Host paths visible in the sandbox besides the workspace. A parent precedes its descendants.
    pub views: Vec<View>,
    /// The volumes of a served sandbox, none within another.
    pub volumes: Vec<VolumeMount>,
    /// Small files in the home directory's memory, by their paths in the sandbox, with their
    /// content; nothing of them is kept.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The complete environment of the program.
    pub environment: Vec<(OsString, OsString)>,
    /// The resource limits.
    pub limits: Limits,
    /// The program's rights to the person's terminal.
    pub terminal: TerminalRights,
    /// System calls that this boundary refuses beyond those that are always refused.
    pub syscalls: SyscallRights,
    /// When not empty: the only directories and files, by their paths in the sandbox, from which
    /// programs may be executed.
    pub programs: Vec<PathBuf>,
    /// True if the program is root in the sandbox, over a system that it can change in layers.
    pub root: bool,
    /// The template whose files are the system, by the server's name for it; the host's system if
    /// `None`.
    pub system: Option<String>,
    /// True if the program may create namespaces of its own, and mount in them.
    pub nesting: bool,
    /// The fate of its outputs, if it has a directory of them: the files there become artifacts.
    pub outputs: Option<OutputsRule>,
    /// Its inputs.
    pub inputs: Inputs,
    /// The network access.
    pub network: Network,
}

/// The directory of outputs, inside. Its files become artifacts when the sandbox ends.
pub const OUTPUTS_DIRECTORY: &str = "/outputs";

/// The fate of outputs at the end of their sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputsRule {
    /// They wait for a person.
    #[default]
    Hold,
    /// Scanners look at them, and they wait for a person.
    Scan,
    /// Scanners look at them. Where these find nothing, and policies need no person, they are promoted.
    Promote,
}

impl OutputsRule {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Hold, Self::Scan, Self::Promote];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Scan => "scan",
            Self::Promote => "promote",
        }
    }

    /// Returns the one of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// The mechanism that confines a program to its boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Namespaces, with all the other mechanisms.
    Full,
    /// Landlock, the system call filter and a seccomp-notify judge of some calls, on hosts that
    /// forbid user namespaces. The workspace is never copy-on-write.
    Fence,
}

/// The program's access to the person's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceMode {
    /// Writes go to a layer of Atoll's own; the directory does not change until they are applied.
    CopyOnWrite,
    /// A checkpoint is taken, then writes go directly to the directory.
    Live,
    /// The directory is read-only.
    ReadOnly,
}

/// One host path made visible in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The path on the host.
    pub host: PathBuf,
    /// The path in the sandbox.
    pub inside: PathBuf,
    /// The operations allowed on it.
    pub access: Access,
    /// The reason for the view, for summaries and diffs.
    pub kind: ViewKind,
    /// True if it is an error that the host has no such path.
    pub required: bool,
}

/// The operations allowed on a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and execute only.
    ReadOnly,
    /// Write to a layer over the host's files.
    Layer(Layering),
}

/// The retention of a copy-on-write layer when the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layering {
    /// The owner of the layer's content from then on.
    pub keep: Keep,
}

/// The owner of a layer's content after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// The run: the content is kept, applied and discarded with it.
    Run,
    /// The profile: its next run uses the content again.
    Profile,
}

/// The reason for a view.
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
    /// Git data that the worktrees of the workspace's repository share.
    Repository,
}

/// Rights of a program to the terminal it is shown on. Everything is refused unless named; escape
/// sequences for the rest are removed from its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TerminalRights {
    /// Query the terminal for its size, cursor and colours, as full-screen programs do.
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
    /// Refuse ptrace and process_vm_readv/writev, so that debuggers do not work.
    pub deny_debugging: bool,
    /// Refuse internet sockets, also on the sandbox's own loopback.
    pub deny_sockets: bool,
}
