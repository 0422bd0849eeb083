//! Requests about volumes, and their descriptions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request about the tenant's volumes. One is named by its id, or its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumesAsk {
    /// List them: [`super::Reply::Volumes`].
    List,
    /// Describe one, with its token: [`super::Reply::Volume`].
    Get {
        /// Its id.
        id: String,
    },
    /// Make one: [`super::Reply::Volume`].
    Make(VolumeAsk),
    /// Copy one to a new one that nobody changes: [`super::Reply::Volume`].
    Snapshot {
        /// Its id.
        id: String,
        /// The name of the copy.
        name: Option<String>,
    },
    /// Remove one that no sandbox has: [`super::Reply::Done`].
    Remove {
        /// Its id.
        id: String,
    },
}

/// A volume to make.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeAsk {
    /// Its name, which no other volume of the tenant has.
    pub name: String,
    /// The most that it may take, MiB; as much as the server lets any if `None`.
    #[serde(default)]
    pub size_mib: Option<u64>,
    /// The volume, or snapshot of one, whose files it begins with.
    #[serde(default)]
    pub from: Option<String>,
}

/// A volume to mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MountAsk {
    /// Its name, or id.
    pub name: String,
    /// The directory in the sandbox: absolute, in none of the system's, the home's or `/tmp`.
    pub path: String,
    /// True if its files are not changed there; that of a snapshot is always so.
    #[serde(default)]
    pub read_only: bool,
}

/// A volume, as its callers see it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeFacts {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The most that it may take, MiB.
    pub size_mib: u64,
    /// True for a snapshot, whose files nobody changes.
    pub read_only: bool,
    /// The id of the volume whose files it began with.
    pub from: Option<String>,
    /// The time at which it was made, milliseconds since 1970.
    pub created_ms: u64,
    /// The living sandboxes that it is mounted in.
    pub sandboxes: Vec<String>,
}

/// A request about the files of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentAsk {
    /// Describe one: [`super::Reply::Content`], as of the next four.
    Stat {
        /// The path, from the volume's top on.
        path: String,
    },
    /// List a directory.
    List {
        /// The directory.
        path: String,
        /// The levels, at least 1.
        depth: u32,
    },
    /// Make a directory.
    MakeDirectory {
        /// The directory.
        path: String,
        /// Its permission bits.
        mode: Option<u32>,
        /// True to make those that it lies in too.
        parents: bool,
    },
    /// Set permission bits.
    SetMode {
        /// The path.
        path: String,
        /// The bits; what they are now if `None`.
        mode: Option<u32>,
    },
    /// Remove a file or directory: [`super::Reply::Done`].
    Remove {
        /// The path.
        path: String,
    },
    /// Open a file to read it: [`super::Reply::File`], then its descriptor.
    Read {
        /// The path.
        path: String,
        /// The part that is wanted.
        range: Option<super::ByteRange>,
    },
    /// Open a file to write it from empty: [`super::Reply::Opened`], then its descriptor; once the
    /// end of the frames is told, [`super::Reply::Content`].
    Write {
        /// The path.
        path: String,
        /// Its permission bits.
        mode: Option<u32>,
        /// False if there may be none of that name yet.
        replaces: bool,
    },
}

/// A file of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ContentFacts {
    /// From the volume's top on.
    pub path: String,
    /// `file`, `directory`, `symlink` or `unknown`.
    pub kind: String,
    pub size: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Nanoseconds since 1970, as of the next two.
    pub accessed_ns: i64,
    pub modified_ns: i64,
    pub changed_ns: i64,
    pub target: Option<String>,
}

impl ContentAsk {
    /// Returns the path that it is about.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Stat { path }
            | Self::List { path, .. }
            | Self::MakeDirectory { path, .. }
            | Self::SetMode { path, .. }
            | Self::Remove { path }
            | Self::Read { path, .. }
            | Self::Write { path, .. } => path,
        }
    }

    /// Returns the name of what it changes, as the ledger has it; `None` if it changes nothing.
    #[must_use]
    pub fn change(&self) -> Option<&'static str> {
        match self {
            Self::Stat { .. } | Self::List { .. } | Self::Read { .. } => None,
            Self::MakeDirectory { .. } => Some("directory-made"),
            Self::SetMode { .. } => Some("mode-set"),
            Self::Remove { .. } => Some("file-removed"),
            Self::Write { .. } => Some("file-written"),
        }
    }
}
