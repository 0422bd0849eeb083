use std::path::PathBuf;
use std::time::SystemTime;

/// Where a layer is: the tree before, the tree after, and since when the host
/// must not have changed for the two to be comparable.
#[derive(Clone, Debug)]
pub struct LayerPaths {
    /// The tree before: the person's directory, or its checkpoint (live mode).
    pub before: PathBuf,
    /// The tree after.
    pub after: AfterTree,
    /// When the run began: what changed on the host later is a conflict.
    pub since: SystemTime,
    /// How owners in the layer are to be read.
    pub ids: IdShift,
}

/// How the tree after is kept.
#[derive(Clone, Debug)]
pub enum AfterTree {
    /// An overlayfs upper directory over `before`; not mounted any more.
    Overlay {
        /// The upper directory.
        upper: PathBuf,
        /// The work directory, which has overlayfs' index.
        work: PathBuf,
        /// Which extended attributes overlayfs kept its own notes in.
        xattrs: XattrFlavour,
    },
    /// A private copy of `before` that the program worked on.
    Copy {
        /// The copy.
        path: PathBuf,
        /// When the copy was complete, from [`crate::CheckpointFacts`]: older entries
        /// are not the program's.
        finished: SystemTime,
    },
    /// The person's directory itself; `before` is its checkpoint.
    Live {
        /// The person's directory.
        path: PathBuf,
        /// When the checkpoint was complete, from [`crate::CheckpointFacts`]: older
        /// entries are not the program's.
        finished: SystemTime,
    },
}

/// The name space of overlayfs' own extended attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrFlavour {
    /// `user.overlay.*`, by the mount option `userxattr`.
    User,
    /// `trusted.overlay.*`, for mounts by root.
    Trusted,
}

/// How owners in the layer relate to owners on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdShift {
    /// They are the same.
    None,
    /// Host id `n` is `base + n` in the layer, for `n` below `count`.
    Base {
        /// What is added to a host id.
        base: u32,
        /// How many ids are mapped.
        count: u32,
    },
}

/// What reading a layer may use up: everything in it is attacker-made.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Entries looked at, in all trees together.
    pub entries_max: u64,
    /// Directories above each other.
    pub depth_max: usize,
    /// One path, bytes: four times what programs can name at once.
    pub path_bytes_max: usize,
    /// All paths of changes together, bytes.
    pub all_paths_bytes_max: u64,
    /// Extended attributes of one file, names and values, bytes.
    pub xattr_bytes_max: usize,
    /// The size of an ignore file that is heeded, bytes.
    pub ignore_file_bytes_max: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            entries_max: 20_000_000,
            depth_max: 1_000,
            path_bytes_max: 32 << 10,
            all_paths_bytes_max: 1 << 30,
            xattr_bytes_max: 128 << 10,
            ignore_file_bytes_max: 1 << 20,
        }
    }
}

impl IdShift {
    /// The host's id for an id in the layer; `None` outside of the range.
    #[must_use]
    pub fn to_host(self, id: u32) -> Option<u32> {
        match self {
            Self::None => Some(id),
            Self::Base { base, count } => id.checked_sub(base).filter(|host| *host < count),
        }
    }

    /// The layer's id for an id on the host. One outside of the range stays what it
    /// is: inside it looks like nobody's, as it does through an id-mapped mount.
    #[must_use]
    pub fn to_layer(self, id: u32) -> u32 {
        match self {
            Self::Base { base, count } if id < count => base.saturating_add(id),
            Self::None | Self::Base { .. } => id,
        }
    }
}
