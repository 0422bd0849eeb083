//! The definitions of `atoll snapshot`, a client of a server's own API.

use clap::{Args, Subcommand};

const SNAPSHOT_EXAMPLES: &str = "\
Examples:
  atoll sandbox snapshot ID --name clean   copies the files of a sandbox
  atoll snapshot list
  atoll sandbox create --template clean    begins with them
  atoll snapshot delete clean

ATOLL_URL and ATOLL_API_KEY name the server and the key; else E2B_API_URL and E2B_API_KEY.";

/// List and remove snapshots, with whose files sandboxes begin
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = SNAPSHOT_EXAMPLES)]
pub struct SnapshotsArguments {
    /// The action.
    #[command(subcommand)]
    pub action: SnapshotAction,
}

/// The actions on snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum SnapshotAction {
    List(ListSnapshotsArguments),
    #[command(aliases = ["rm", "remove"])]
    Delete(DeleteSnapshotArguments),
}

/// List the snapshots, the latest first
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ListSnapshotsArguments {
    /// Print JSON: one array. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Remove a snapshot, with its files
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct DeleteSnapshotArguments {
    /// The snapshot: its id, or name.
    #[arg(value_name = "SNAPSHOT")]
    pub snapshot: String,
}
