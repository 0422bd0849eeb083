//! Requests about volumes, and their descriptions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::facts::FileFacts;
use super::request::requests;
use super::sandbox::ByteRange;

requests! {
    /// A request about the tenant's volumes. One is named by its id, or its name.
    VolumesAsk {
        /// Lists them.
        ListVolumes {} -> Vec<VolumeFacts>;
        /// Describes one, with its token.
        GetVolume { id: String } -> OwnVolume;
        /// Makes one.
        MakeVolume(VolumeAsk) -> OwnVolume;
        /// Copies one to a new one that nobody changes.
        SnapshotVolume { id: String, name: Option<String> } -> OwnVolume;
        /// Removes one that no sandbox has.
        RemoveVolume { id: String } -> ();
    }
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

/// A volume, with the token by which its files are reached.
#[derive(Serialize, Deserialize, ToSchema)]
#[allow(missing_docs)]
pub struct OwnVolume {
    pub volume: VolumeFacts,
    /// For `/volumecontent/{volume}`, as a bearer token; a key with the scope `files` is another.
    pub token: Option<String>,
}

requests! {
    /// A request about the files of a volume. Paths are from its top on.
    ContentAsk {
        /// Describes one.
        StatContent { path: String } -> ContentFacts;
        /// Lists a directory, so many levels deep.
        ListContent { path: String, depth: u32 } -> Vec<ContentFacts>;
        /// Makes a directory; with `parents` those that it lies in too.
        MakeContentDirectory { path: String, mode: Option<u32>, parents: bool } -> ContentFacts;
        /// Sets permission bits; leaves them as they are if `None`.
        SetContentMode { path: String, mode: Option<u32> } -> ContentFacts;
        /// Removes a file or directory.
        RemoveContent { path: String } -> ();
        /// Opens a file to read it, or a part. Its descriptor follows the answer.
        ReadContent { path: String, range: Option<ByteRange> } -> FileFacts;
        /// Opens a file to write it from empty, one that is there already only if it is replaced. Its
        /// descriptor follows the answer; the description comes once the end of the frames is told.
        WriteContent { path: String, mode: Option<u32>, replaces: bool } -> (), then ContentFacts;
    }
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
            Self::StatContent(ask) => &ask.path,
            Self::ListContent(ask) => &ask.path,
            Self::MakeContentDirectory(ask) => &ask.path,
            Self::SetContentMode(ask) => &ask.path,
            Self::RemoveContent(ask) => &ask.path,
            Self::ReadContent(ask) => &ask.path,
            Self::WriteContent(ask) => &ask.path,
        }
    }

    /// Returns the name of what it changes, as the ledger has it; `None` if it changes nothing.
    #[must_use]
    pub fn change(&self) -> Option<&'static str> {
        match self {
            Self::StatContent(_) | Self::ListContent(_) | Self::ReadContent(_) => None,
            Self::MakeContentDirectory(_) => Some("directory-made"),
            Self::SetContentMode(_) => Some("mode-set"),
            Self::RemoveContent(_) => Some("file-removed"),
            Self::WriteContent(_) => Some("file-written"),
        }
    }
}
