use std::path::PathBuf;

/// A volume in a sandbox: a directory of Atoll's own that outlives the sandboxes it is mounted in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMount {
    /// The volume's id.
    pub id: String,
    /// The name that its tenant gave it.
    pub name: String,
    /// The directory on the host.
    pub host: PathBuf,
    /// The path in the sandbox.
    pub inside: PathBuf,
    /// False if its files can be changed.
    pub read_only: bool,
    /// The most that it may take of the disk, bytes: whoever exceeds that is ended.
    pub bytes_max: u64,
}

/// The most files and directories in a volume.
pub const VOLUME_INODES_MAX: u64 = 1_000_000;

impl VolumeMount {
    /// Returns it as policies see it: `NAME=read`, or `NAME=write`.
    #[must_use]
    pub fn stated(&self) -> String {
        let access = if self.read_only { "read" } else { "write" };
        format!("{}={access}", self.name)
    }
}
