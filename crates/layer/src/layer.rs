use std::path::PathBuf;
use std::time::SystemTime;

/// The location of a layer: the tree before, the tree after, and the time since when the host must
/// not have changed for the two to be comparable.
#[derive(Clone, Debug)]
pub struct LayerPaths {
    /// The tree before: the host directory, or its checkpoint (live mode).
    pub before: PathBuf,
    /// The tree after.
    pub after: AfterTree,
    /// The start of the run: later changes on the host are conflicts.
    pub since: SystemTime,
    /// The record of what Atoll has put back in the tree before, which is no conflict.
    pub put_back: Option<PathBuf>,
    /// The mapping of owners in the layer.
    pub ids: IdShift,
}

/// The form of the tree after.
#[derive(Clone, Debug)]
pub enum AfterTree {
    /// An overlayfs upper directory over `before`; not mounted any more.
    Overlay {
        /// The upper directory.
        upper: PathBuf,
        /// The work directory, which has overlayfs' index.
        work: PathBuf,
        /// The name space of the extended attributes in which overlayfs kept its notes.
        xattrs: XattrFlavour,
    },
    /// A private copy of `before` that the program worked on.
    Copy {
        /// The copy.
        path: PathBuf,
        /// The time at which the copy was complete, from [`crate::CheckpointFacts`]: older entries
        /// are not the program's.
        finished: SystemTime,
    },
    /// The host directory itself; `before` is its checkpoint.
    Live {
        /// The host directory.
        path: PathBuf,
        /// The time at which the checkpoint was complete, from [`crate::CheckpointFacts`]: older
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

/// The mapping between owners in the layer and on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdShift {
    /// They are the same.
    None,
    /// Host id `n` is `base + n` in the layer, for `n` below `count`.
    Base {
        /// The number added to a host id.
        base: u32,
        /// The number of mapped ids.
        count: u32,
    },
}

/// Bounds on reading a layer: everything in it is attacker-made.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The most entries looked at, in all trees together.
    pub entries_max: u64,
    /// The deepest nesting of directories.
    pub depth_max: usize,
    /// The longest path, bytes: four times what programs can name at once.
    pub path_bytes_max: usize,
    /// The most bytes of all changed paths together.
    pub all_paths_bytes_max: u64,
    /// The most bytes of the extended attributes of one file, names and values.
    pub xattr_bytes_max: usize,
    /// The largest ignore file that is heeded, bytes.
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
    /// Returns the host's id for an id in the layer; `None` outside of the range.
    #[must_use]
    pub fn to_host(self, id: u32) -> Option<u32> {
        match self {
            Self::None => Some(id),
            Self::Base { base, count } => id.checked_sub(base).filter(|host| *host < count),
        }
    }

    /// Returns the layer's id for an id on the host. One outside of the range stays what it is: in
    /// the sandbox it looks like nobody's, as it does through an id-mapped mount.
    #[must_use]
    pub fn to_layer(self, id: u32) -> u32 {
        match self {
            Self::Base { base, count } if id < count => base.saturating_add(id),
            Self::None | Self::Base { .. } => id,
        }
    }
}
