//! The definitions of `atoll checkpoint` and `atoll restore`.

use clap::{Args, Subcommand};

/// Take and show checkpoints of files, databases and refs
///
/// A tool that says `checkpoint = [...]` has one taken before each call with an effect. Targets are
/// files:PATH, sqlite:PATH, git:PATH (refs) and postgres:NAME or postgres://USER@HOST:PORT/NAME.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct CheckpointArguments {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: CheckpointAction,
}

/// The action on checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum CheckpointAction {
    Take(TakeCheckpointArguments),
    #[command(alias = "ls")]
    List(ListCheckpointsArguments),
    Show(ShowCheckpointArguments),
    Settle(NamedCheckpointArguments),
    Discard(DiscardCheckpointArguments),
}

/// Take a checkpoint of all of these, or of none
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct TakeCheckpointArguments {
    /// Files, databases and repositories, as files:PATH or sqlite:PATH.
    #[arg(required = true, value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Note a reason.
    #[arg(long, value_name = "TEXT")]
    pub why: Option<String>,
    /// Print JSON. Default: its id, and text.
    #[arg(long)]
    pub json: bool,
}

/// List checkpoints, the newest first
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ListCheckpointsArguments {
    /// Print JSON: a list. Default: a line for each.
    #[arg(long)]
    pub json: bool,
}

/// Show what differs from a checkpoint now, and who has changed it
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ShowCheckpointArguments {
    /// Its id, or the first digits of it.
    pub id: String,
    /// Print JSON. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Note that the effect is over
///
/// What changes from now on is somebody else's. A tool's checkpoint is settled by itself. Before that a restore cannot tell what the effect has
/// changed, and restores it only with --overwrite.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct NamedCheckpointArguments {
    /// Its id, or the first digits of it.
    pub id: String,
}

/// Free a checkpoint: what it would restore is gone
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct DiscardCheckpointArguments {
    /// Ids, or the first digits of them.
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
}

/// Restore what an effect has changed since a checkpoint
///
/// What somebody else has changed since is left alone, and shown. What is replaced is kept as a
/// checkpoint of its own, by which this is taken back.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct RestoreArguments {
    /// The id of the checkpoint, or the first digits of it.
    pub id: String,
    /// Only show what would be restored, and what would not.
    #[arg(long)]
    pub dry_run: bool,
    /// Restore also what the effect has changed and somebody has changed again since.
    #[arg(long)]
    pub overwrite: bool,
    /// Print JSON. Default: text.
    #[arg(long)]
    pub json: bool,
}
