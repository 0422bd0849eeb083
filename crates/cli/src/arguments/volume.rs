//! The definitions of `atoll volume`, a client of a server's own API.

use clap::{Args, Subcommand};

const VOLUME_EXAMPLES: &str = "\
Examples:
  atoll volume create models               prints the id of a new volume
  atoll sandbox create --volume models:/mnt/models
  atoll volume snapshot models --name models-1
  atoll sandbox create --volume models-1:/mnt/models:ro
  atoll volume delete models

ATOLL_URL and ATOLL_API_KEY name the server and the key; else E2B_API_URL and E2B_API_KEY.";

/// Make and remove volumes, whose files outlive sandboxes
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = VOLUME_EXAMPLES)]
pub struct VolumeArguments {
    /// The action.
    #[command(subcommand)]
    pub action: VolumeAction,
}

/// The actions on volumes.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum VolumeAction {
    Create(CreateVolumeArguments),
    List(ListVolumesArguments),
    Snapshot(SnapshotVolumeArguments),
    #[command(alias = "rm")]
    Delete(DeleteVolumeArguments),
}

/// Make a volume, and print its id
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CreateVolumeArguments {
    /// Its name, which no other volume of the tenant has.
    #[arg(value_name = "NAME")]
    pub name: String,

    /// The most that it may take, as 512M, 2G. Default: as much as the server lets any.
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,

    /// The volume, or snapshot of one, whose files it begins with.
    #[arg(long, value_name = "VOLUME")]
    pub from: Option<String>,

    /// Print JSON: one object, with the volume's token. Default: the id.
    #[arg(long)]
    pub json: bool,
}

/// List the volumes, the oldest first
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ListVolumesArguments {
    /// Print JSON: one array. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Copy a volume to one that is only read, and print its id
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct SnapshotVolumeArguments {
    /// The volume: its id, or name.
    #[arg(value_name = "VOLUME")]
    pub volume: String,

    /// The name of the copy. Default: one that is made up.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Print JSON: one object, with the copy's token. Default: the id.
    #[arg(long)]
    pub json: bool,
}

/// Remove a volume that no living sandbox has, with its files
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct DeleteVolumeArguments {
    /// The volume: its id, or name.
    #[arg(value_name = "VOLUME")]
    pub volume: String,
}
