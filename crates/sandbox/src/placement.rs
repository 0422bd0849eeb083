use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use atoll_model::{Mode, View};

use crate::{SandboxError, Subordinate};

/// Where the changeable parts of one run are kept on the host.
#[derive(Clone, Debug)]
pub struct Placement {
    /// How the workspace is given.
    pub workspace: WorkspacePlace,
    /// The layers of the boundary's other changeable views.
    pub layers: Vec<PlacedLayer>,
    /// As host root: the kernel's id for the id 0 inside.
    pub base: Option<u32>,
    /// As an ordinary user who is root inside: further ids, if there are any.
    pub further: Option<FurtherIds>,
    /// As host root: mounts whose owners cannot be mapped. What lies there is shown
    /// with the owners that it has.
    pub unmapped: Vec<PathBuf>,
    /// An empty directory of Atoll's own that nobody writes to.
    pub empty: PathBuf,
    /// Files by which programs trust Atoll's authority, where they are to: a directory of
    /// Atoll's own that nobody writes to.
    pub trust: Option<PathBuf>,
    /// What ssh and git read, and the socket at which an agent is asked for: a directory of
    /// the run's that nobody inside writes to.
    pub ssh: Option<PathBuf>,
    /// Views of the boundary that are not shown, by their paths inside: a login file is in
    /// them, and nothing can stand in its place there.
    pub hidden: Vec<PathBuf>,
    /// Views of single files that are shown with another text, by their paths inside.
    pub texts: Vec<(PathBuf, Vec<u8>)>,
    /// The device and the inode that the directory of the workspace's repository must have,
    /// where the boundary shows it.
    pub repository: Option<(u64, u64)>,
    /// In a fence: what stands in for a home and a /tmp of its own.
    pub fence: Option<FencePlace>,
}

impl Placement {
    /// Whether a view is shown.
    pub(crate) fn shows(&self, view: &View) -> bool {
        !self.hidden.contains(&view.inside)
    }

    /// Which walls stand around what is placed so.
    pub(crate) fn mode(&self) -> Mode {
        match self.fence {
            Some(_) => Mode::Fence,
            None => Mode::Full,
        }
    }
}

/// An ordinary user's further ids, as one run has them.
#[derive(Clone, Debug)]
pub struct FurtherIds {
    /// Which they are.
    pub subordinate: Subordinate,
    /// What is locked by this open file: the launcher holds it too, until the sandbox is
    /// gone. Nobody takes over before that what these ids have written.
    pub mark: Arc<OwnedFd>,
}

/// Directories of Atoll's own for a program in a fence, which sees the host's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencePlace {
    /// Its home.
    pub home: PathBuf,
    /// Where its temporary files go.
    pub tmp: PathBuf,
}

/// How the workspace is given.
#[derive(Clone, Debug)]
pub enum WorkspacePlace {
    /// In a layer over the host's directory.
    Layer(PlacedLayer),
    /// A private copy of the host's directory, its owners shifted by `base`.
    Copy(PathBuf),
    /// The host's directory itself; these paths in it stay read-only.
    Live {
        /// Absolute paths of control files and directories that exist.
        sealed: Vec<PathBuf>,
        /// Absolute paths of sockets, pipes and devices that exist: they would lead
        /// to whoever listens outside.
        covered: Vec<PathBuf>,
    },
    /// The host's directory, for reading.
    ReadOnly,
}

/// A copy-on-write layer that is ready to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedLayer {
    /// The host's directory below.
    pub lower: PathBuf,
    /// Where it is seen inside.
    pub inside: PathBuf,
    /// Where changes go.
    pub upper: PathBuf,
    /// What the file system needs for itself, beside `upper`.
    pub work: PathBuf,
    /// Nothing of it is kept: nobody waits for the disk.
    pub volatile: bool,
}

/// How many ids a shifted sandbox has.
pub const IDS: u32 = 65_536;

/// The kernel's id for the id 0 inside, for a sandbox of host root. The range is
/// one that systemd's "Users, Groups, UIDs and GIDs" leaves unused (from
/// 1,879,048,192 to 2,147,483,647): 4,095 blocks, one chosen by a name: the run's, or the
/// profile's where layers outlive a run.
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

/// Makes the two directories of a layer below `directory`. The upper one looks
/// like `lower`, since it is what the program sees as the layer's root. Returns
/// the layer and the moment after which changes on the host are conflicts.
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
                inside,
                upper,
                work,
                volatile: false,
            },
            since,
        ))
    };
    make().map_err(SandboxError::host("the run's layer could not be made"))
}
