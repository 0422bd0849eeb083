//! The definitions of the commands that look at a run afterwards and decide
//! what becomes of its changes.

use std::path::PathBuf;

use atoll_engine::finding::RUN_LAST;
use clap::builder::ArgPredicate;
use clap::{Args, ValueHint};

const DIFF_EXAMPLES: &str = "\
Examples:
  atoll diff                     all that the last run changed
  atoll diff --stat              one line for each file
  atoll diff k7qd src/main.rs    one file of the run whose id ends in k7qd
  atoll diff last --no-pager > changes.patch";

const RUNS_EXAMPLES: &str = "\
Examples:
  atoll runs                       the last 20
  atoll runs --state kept          those whose changes wait for a decision
  atoll runs --workspace . --all   every one of this directory";

/// The states of runs, in a word.
const STATES: [&str; 8] = [
    "running",
    "kept",
    "written",
    "applied",
    "partly-applied",
    "undone",
    "interrupted",
    "failed",
];

const APPLY_EXAMPLES: &str = "\
Examples:
  atoll apply last               everything but control files, caches, ignored files
  atoll apply last src tests     these only
  atoll apply k7qd --control     git hooks, CI files and such, too
  atoll apply last --finish      go on with an apply that was cut short
  atoll apply --checks           only what passes the checks of the profile";

/// List runs, the newest first
///
/// Shown are the last 20 of which something is kept, with --all every one, and those
/// that go on. What was discarded is in the ledger only: `atoll ledger show`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment, after_help = RUNS_EXAMPLES)]
pub struct RunsArguments {
    /// Only runs whose id contains this. Default: all; so do `list` and `ls`.
    #[arg(value_name = "RUN")]
    pub runs: Vec<String>,

    /// Only runs that work on this directory or beneath it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub workspace: Option<PathBuf>,

    /// Only runs in this state, as kept, applied, interrupted.
    #[arg(long, value_name = "STATE", value_parser = STATES)]
    pub state: Option<String>,

    /// Print JSON: one array, an object for each run. Default: a table.
    #[arg(long)]
    pub json: bool,

    /// List every run of which something is kept. Default: the last 20.
    #[arg(long)]
    pub all: bool,
}

/// Show what a run changed: a unified diff
///
/// Without a terminal it is a patch that `git apply` takes, byte for byte, binary files
/// included; a file of more than 64 MiB is named, and the status is 125. On a terminal
/// content is escaped, long lines are cut and binary files are named. What a patch cannot
/// say (directories, exact permissions, what is a control file) is in its comments.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment, after_help = DIFF_EXAMPLES)]
pub struct DiffArguments {
    /// The run: its id, its beginning or end, or `last`.
    #[arg(value_name = "RUN", default_value = atoll_engine::finding::RUN_LAST)]
    pub run: String,

    /// Only these files and directories, from the workspace's root. Default: all.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,

    /// One line for each file, with lines added and removed. Default: the text.
    #[arg(long)]
    pub stat: bool,

    /// Show what changed in package and build caches, too. Default: they are counted.
    #[arg(long)]
    pub caches: bool,

    /// Print straight to the terminal. Default: $PAGER, or less, on a terminal.
    #[arg(long)]
    pub no_pager: bool,

    /// Print JSON: one object with each change. Default: text.
    #[arg(long, conflicts_with = "stat")]
    pub json: bool,
}

/// Write a run's changes to the workspace; `undo` takes them back
///
/// Files that changed outside since the run started are conflicts: they are
/// shown, and nothing is written. Caches and ignored files stay in the layer
/// unless asked for; control files need a yes of their own.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment, after_help = APPLY_EXAMPLES)]
pub struct ApplyArguments {
    /// The run: its id, its beginning or end, or `last`. With --checks default: last.
    #[arg(
        value_name = "RUN",
        required_unless_present = "checks",
        default_value_if("checks", ArgPredicate::IsPresent, RUN_LAST)
    )]
    pub run: Option<String>,

    /// Only these files and directories, from the workspace's root. Default: all.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,

    /// Run the checks of the run's profile on the result first, in a sandbox of their own
    ///
    /// Tests and what configures them are there as before the run; where the run changed
    /// these, you are asked. A check that fails: nothing is applied, and the status is 1.
    #[arg(long, verbatim_doc_comment, conflicts_with_all = ["paths", "finish", "take_back"])]
    pub checks: bool,

    /// Control files, too: git hooks and config, CI files, editor tasks, .envrc
    ///
    /// They make other programs run code. Default: left out, and named.
    #[arg(long, verbatim_doc_comment)]
    pub control: bool,

    /// Package and build caches, too. Default: left in the run's layer.
    #[arg(long)]
    pub caches: bool,

    /// Files that git ignores, too. Default: left in the run's layer.
    #[arg(long)]
    pub ignored: bool,

    /// Overwrite files that changed outside meanwhile
    ///
    /// What stood there is kept for `atoll undo`. Default: a conflict stops the apply.
    #[arg(long, verbatim_doc_comment)]
    pub force: bool,

    /// Go on with an apply of this run that was cut short.
    #[arg(long, conflicts_with_all = ["paths", "take_back"])]
    pub finish: bool,

    /// Take back what an apply of this run that was cut short has written so far.
    #[arg(long, conflicts_with = "paths")]
    pub take_back: bool,
}

/// Throw a run's changes away, for good
///
/// The record of what ran stays in the ledger. What a run with --live changed is in
/// the real directory: there this is refused, `atoll undo RUN` takes it back.
/// Example: atoll discard last
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct DiscardArguments {
    /// The run: its id, its beginning or end, or `last`.
    #[arg(value_name = "RUN")]
    pub run: Option<String>,

    /// Every ended run whose changes are not applied. A person is asked once; without one it takes
    /// --yes.
    #[arg(long, conflicts_with_all = ["run", "empty"], verbatim_doc_comment)]
    pub all: bool,

    /// Ask nothing: with --all, or of a run that is applied in part. Default: off.
    #[arg(long, conflicts_with = "empty")]
    pub yes: bool,

    /// Every ended run that changed nothing.
    #[arg(long, conflicts_with = "run")]
    pub empty: bool,
}

/// Take back what `apply`, or a live run, wrote to the workspace
///
/// Applied files that changed since are named, and nothing is written. What others
/// have put into a directory that was applied stays, with the directory. Of a live
/// run only what differed at its end is taken back; where nobody saw its end, only
/// --force takes back, and then all that changed since it started.
/// Example: atoll undo last
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct UndoArguments {
    /// The run: its id, its beginning or end, or `last`.
    #[arg(
        value_name = "RUN",
        required_unless_present = "session",
        default_value = "",
        hide_default_value = true
    )]
    pub run: String,

    /// A session of tools: its calls are taken back, the newest first
    ///
    /// By the checkpoint that was taken before each, or the call that makes up for it
    /// (`atoll tools show`). What cannot be taken back is shown. Status 1 if there is any.
    #[arg(long, value_name = "ID", conflicts_with_all = ["run", "force", "take_back"], verbatim_doc_comment)]
    pub session: Option<String>,

    /// Put files back even where they changed again since
    ///
    /// What stands there is kept for --take-back. Default: such files are named,
    /// nothing is written.
    #[arg(long, verbatim_doc_comment)]
    pub force: bool,

    /// Take the last undo of this run back, with all that stood there before it.
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

/// Explain a run: by which rule, within what, and what was denied
///
/// With commands that would allow it, as far as an option does.
/// Example: atoll why, atoll why k7qd
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct WhyArguments {
    /// The run: its id, its beginning or end, or `last`.
    #[arg(value_name = "RUN", default_value = atoll_engine::finding::RUN_LAST)]
    pub run: String,

    /// A session instead, by its name or id: its runs, and how each went.
    #[arg(long, value_name = "NAME", conflicts_with = "run")]
    pub session: Option<String>,

    /// Print JSON: one object, with every event of the run. Default: text.
    #[arg(long)]
    pub json: bool,
}
