//! The definitions of the commands that look at what is kept of agents' directories.

use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  atoll kept                         what is kept, for which profile, how much
  atoll kept diff codex              what runs of Codex have left in its directories
  atoll kept apply codex             take its history over
  atoll kept apply codex --control   its settings too: look at them first
  atoll kept undo codex              take all that back
  atoll kept discard codex           begin anew";

/// Look at what agents keep from run to run, and decide about it
///
/// A profile's `[home] keep` names directories whose changes the profile's next run goes on
/// with. They are no part of a run's changes. The next run sees the history among them;
/// all else is set aside until it is taken over here.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct KeptArguments {
    /// What to do. Default: list what is kept.
    #[command(subcommand)]
    pub action: Option<KeptAction>,

    /// Print JSON: one array, an object for each directory. Default: a table.
    #[arg(long)]
    pub json: bool,
}

/// What to do. The variants have no text of their own.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum KeptAction {
    #[command(alias = "ls")]
    List(ListKeptArguments),
    Diff(DiffKeptArguments),
    Apply(ApplyKeptArguments),
    Undo(UndoKeptArguments),
    Discard(DiscardKeptArguments),
}

/// List what is kept: name, profile, directory, room on disk, last run
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ListKeptArguments {
    /// Print JSON: one array, an object for each directory. Default: a table.
    #[arg(long)]
    pub json: bool,
}

/// Show how what is kept differs from the directory outside
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffKeptArguments {
    /// A profile, for all that is kept for it, or a name as it is listed.
    #[arg(value_name = "NAME")]
    pub name: String,

    /// One line for each file, with what is a control file. Default: the text.
    #[arg(long)]
    pub stat: bool,

    /// Print straight to the terminal. Default: $PAGER, or less, on a terminal.
    #[arg(long)]
    pub no_pager: bool,

    /// Print JSON: one array, an object for each directory with each change. Default: text.
    #[arg(long, conflicts_with = "stat")]
    pub json: bool,
}

/// Write what is kept to the directory outside
///
/// That is history alone, unless control files are asked for, too. Files that changed outside
/// meanwhile are conflicts: they are shown, and nothing is written.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ApplyKeptArguments {
    /// A profile, for all that is kept for it, or a name as it is listed.
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Control files, too: settings, hooks, servers of MCP, plugins, instructions
    ///
    /// The agent runs or believes them, outside too. Default: left aside, and named.
    #[arg(long, verbatim_doc_comment)]
    pub control: bool,

    /// Overwrite files that changed outside meanwhile
    ///
    /// What stood there is kept for `atoll kept undo`. Default: a conflict stops the apply.
    #[arg(long, verbatim_doc_comment)]
    pub force: bool,
}

/// Take back all that `kept apply` wrote
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoKeptArguments {
    /// A profile, for all that is kept for it, or a name as it is listed.
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Put files back even where they changed again since
    ///
    /// What stands there is kept for --take-back. Default: such files are named,
    /// nothing is written.
    #[arg(long, verbatim_doc_comment)]
    pub force: bool,

    /// Take the last undo back, with all that stood there before it.
    #[arg(long, conflicts_with = "force")]
    pub take_back: bool,

    /// List all that an undo would meet: what changed since, what is in the way, what stays
    ///
    /// Nothing is written. Where nothing is left to be taken back, what the last undo has met.
    #[arg(long, verbatim_doc_comment, conflicts_with_all = ["force", "take_back"])]
    pub list: bool,

    /// Print JSON: one object, with all that was met. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Throw what is kept away, for good
///
/// What `kept apply` wrote before stays where it is, and `kept undo` can take it back no more.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct DiscardKeptArguments {
    /// A profile, for all that is kept for it, or a name as it is listed.
    #[arg(value_name = "NAME")]
    pub name: String,
}
