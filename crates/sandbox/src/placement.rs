use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use atoll_model::{Mode, View};

use crate::{SandboxError, Subordinate};

/// The places of one run's writable parts on the host.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The way the workspace is given.
    pub workspace: WorkspacePlace,
    /// The layers of the boundary's other writable views.
    pub layers: Vec<PlacedLayer>,
    /// For host root: the kernel's id of the id 0 in the sandbox.
    pub base: Option<u32>,
    /// For an ordinary user who is root in the sandbox: subordinate ids, if there are any.
    pub further: Option<FurtherIds>,
    /// For host root: mounts whose owners cannot be mapped. Files there keep their owners.
    pub unmapped: Vec<PathBuf>,
    /// An empty directory of Atoll's own that is never written to.
    pub empty: PathBuf,
    /// The files by which programs trust Atoll's authority, if they are to: a directory of
    /// Atoll's own that no program writes to.
    pub trust: Option<PathBuf>,
    /// The files of ssh and git, and the agent's socket: a directory of the run that no program
    /// in the sandbox writes to.
    pub ssh: Option<PathBuf>,
    /// The files of users and groups of a served sandbox, `passwd` and `group`: a directory of
    /// Atoll's own.
    pub accounts: Option<PathBuf>,
    /// The files of a served sandbox's template, to read at [`TEMPLATE_DIRECTORY`](crate::TEMPLATE_DIRECTORY).
    pub template: Option<PathBuf>,
    /// A file with the memory of its interpreter, to read at [`FROZEN_FILE`](crate::FROZEN_FILE).
    pub frozen: Option<PathBuf>,
    /// The directory whose files become artifacts, if the boundary has outputs.
    pub outputs: Option<OutputsPlace>,
    /// The inputs, to read at [`INPUTS_DIRECTORY`](atoll_model::INPUTS_DIRECTORY): a directory of
    /// Atoll's own.
    pub inputs: Option<PathBuf>,
    /// Links at the root of a template's system, with what they lead to.
    pub links: Vec<(PathBuf, Vec<u8>)>,
    /// The views of the boundary that are not shown, by their paths in the sandbox: they
    /// contain a login file, and there can be no placeholder.
    pub hidden: Vec<PathBuf>,
    /// The views of single files that are shown with another text, by their paths in the
    /// sandbox.
    pub texts: Vec<(PathBuf, Vec<u8>)>,
    /// The required device and inode of the directory of the workspace's repository, if the
    /// boundary shows it.
    pub repository: Option<(u64, u64)>,
    /// In a fence: the directories for a home and a /tmp.
    pub fence: Option<FencePlace>,
}

impl Placement {
    /// Returns whether a view is shown.
    pub(crate) fn shows(&self, view: &View) -> bool {
        !self.hidden.contains(&view.inside)
    }

    /// Returns whether a path lies in a layer of which only parts are shown.
    pub(crate) fn is_part(&self, path: &Path) -> bool {
        let mut layers = self.layers.iter();
        layers.any(|layer| !layer.parts.is_empty() && layer.holds(path))
    }

    /// Returns the mode of isolation.
    pub(crate) fn mode(&self) -> Mode {
        match self.fence {
            Some(_) => Mode::Fence,
            None => Mode::Full,
        }
    }
}

/// The subordinate ids of an ordinary user, as used by one run.
#[derive(Clone, Debug)]
pub struct FurtherIds {
    /// The ids.
    pub subordinate: Subordinate,
    /// The open file that holds a lock: the launcher holds it too, until the sandbox is gone.
    /// The files that these ids have written are not reclaimed before that.
    pub mark: Arc<OwnedFd>,
}

/// The directories of Atoll's own for a program in a fence, which sees the host's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencePlace {
    /// The home.
    pub home: PathBuf,
    /// The directory of temporary files.
    pub tmp: PathBuf,
}

/// The way the workspace is given.
#[derive(Clone, Debug)]
pub enum WorkspacePlace {
    /// A layer over the host's directory.
    Layer(PlacedLayer),
    /// A private copy of the host's directory, its owners shifted by `base`.
    Copy(PathBuf),
    /// The host's directory itself; these paths in it stay read-only.
    Live {
        /// Absolute paths of control files and directories that exist.
        sealed: Vec<PathBuf>,
        /// Absolute paths of sockets, pipes and devices that exist: they would lead to
        /// processes outside.
        covered: Vec<PathBuf>,
    },
    /// The host's directory, read-only.
    ReadOnly,
}

/// A copy-on-write layer that is ready to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedLayer {
    /// The lower directory, on the host.
    pub lower: PathBuf,
    /// Directories of a template over it, the topmost first.
    pub over: Vec<PathBuf>,
    /// The number of these whose files belong to the sandbox's own ids already.
    pub own: u32,
    /// The path in the sandbox.
    pub inside: PathBuf,
    /// The directories of it that alone are shown, if not all of it is.
    pub parts: Vec<PathBuf>,
    /// The upper directory, for changes.
    pub upper: PathBuf,
    /// The work directory of the file system, beside `upper`.
    pub work: PathBuf,
    /// Set if hard links beneath stay such where one is written to, for as long as the work directory
    /// is kept.
    pub linked: bool,
    /// Set if nothing of it is kept, so that it is never synced to disk.
    pub volatile: bool,
}

impl PlacedLayer {
    /// Returns the paths in the sandbox at which it is mounted.
    pub(crate) fn places(&self) -> &[PathBuf] {
        match &*self.parts {
            [] => std::slice::from_ref(&self.inside),
            parts => parts,
        }
    }

    /// Returns whether a path in the sandbox lies in it, if in no other one within.
    pub(crate) fn holds(&self, path: &Path) -> bool {
        self.places().iter().any(|place| path.starts_with(place))
    }
}

/// The number of ids of a shifted sandbox.
pub const IDS: u32 = 65_536;

/// Returns the kernel's id of the id 0 in a sandbox of host root. The range is one that
/// systemd's "Users, Groups, UIDs and GIDs" leaves unused (from 1,879,048,192 to
/// 2,147,483,647): 4,095 blocks, one chosen by a name: the run's, or the profile's if layers
/// outlive a run.
#[must_use]
pub fn identity_base(name: &str) -> u32 {
    const BLOCKS: u32 = 4_095;
    // FNV-1a: any spread will do. Two runs at once in one block reach nothing of each
    // other's; without user namespaces they share what the kernel limits by user.
    let hash = name.bytes().fold(2_166_136_261_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    FIRST_ID + hash % BLOCKS * IDS
}

/// The first id of that range.
pub(crate) const FIRST_ID: u32 = 1_879_048_192;

/// The place of outputs. As host root, programs are none of those who may list it, and can enter and
/// write; nobody else reaches it. An ordinary user's program is its owner: only Landlock rules keep it
/// from listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputsPlace {
    /// The directory.
    pub directory: PathBuf,
    /// True if programs may list `/`: then no Landlock rule keeps them from listing outputs.
    pub lists_root: bool,
}

impl OutputsPlace {
    /// Makes the directory, for host root's program or an ordinary user's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make(directory: PathBuf, base: Option<u32>, lists_root: bool) -> std::io::Result<Self> {
        std::fs::create_dir(&directory)?;
        let mode = if base.is_some() { 0o733 } else { 0o700 };
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode))?;
        Ok(Self {
            directory,
            lists_root: base.is_some() || lists_root,
        })
    }
}

/// Makes the two directories of a layer below `directory`. The upper one gets the mode and
/// owner of `lower`, since the program sees it as the layer's root. Returns the layer and the
/// time after which changes on the host are conflicts.
///
/// # Errors
/// [`SandboxError::Host`].
pub fn make_layer(
    directory: &Path,
    lower: &Path,
    inside: &Path,
    base: Option<u32>,
) -> Result<(PlacedLayer, SystemTime), SandboxError> {
    let make = || -> std::io::Result<(PlacedLayer, SystemTime)> {
        let (upper, work) = (directory.join("upper"), directory.join("work"));
        let mut builder = DirBuilder::new();
        builder.mode(0o700).recursive(true).create(directory)?;
        if !upper.is_dir() {
            builder.create(&upper)?;
        }
        if !work.is_dir() {
            builder.create(&work)?;
        }
        let facts = std::fs::metadata(lower)?;
        if let Some(base) = base {
            let shifted = |id: u32| Some(base + id % IDS);
            for path in [&upper, &work] {
                std::os::unix::fs::chown(path, shifted(facts.uid()), shifted(facts.gid()))?;
            }
        }
        let mode = std::fs::Permissions::from_mode(facts.mode() & 0o7777);
        std::fs::set_permissions(&upper, mode)?;
        // The time of its making, which use does not change.
        let facts = std::fs::metadata(&work)?;
        let since = facts.created().or_else(|_| facts.modified())?;
        let (lower, inside) = (lower.to_path_buf(), inside.to_path_buf());
        Ok((
            PlacedLayer {
                lower,
                over: Vec::new(),
                own: 0,
                inside,
                parts: Vec::new(),
                upper,
                work,
                linked: true,
                volatile: false,
            },
            since,
        ))
    };
    make().map_err(SandboxError::host("the run's layer could not be made"))
}
