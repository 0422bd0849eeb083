use std::ffi::OsString;

use clap::Args;

const EXEC_EXAMPLES: &str = "\
Examples:
  atoll exec last -- npm test         in the run started last
  atoll exec a3f1 -- sh -c 'ls | wc'  in a run by the end of its id
  atoll exec last --env CI=1 -- make  with one more variable";

const SHELL_EXAMPLES: &str = "\
Examples:
  atoll shell last    look around in the run started last";

/// Start a program in a running sandbox
///
/// The program has the run's own boundary: its files, network, limits and
/// variables. Policies decide on it as on the run's own, and the ledger records it.
/// It ends with the run at the latest. Exits with the program's status.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment, after_help = EXEC_EXAMPLES)]
pub struct ExecArguments {
    /// The run: its id, its beginning or end, or `last`.
    #[arg(value_name = "RUN")]
    pub run: String,

    /// Set a variable, in addition to the run's own: NAME=VALUE. Repeatable.
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<OsString>,

    /// Start in this directory of the sandbox. Default: that of the run.
    #[arg(long, value_name = "DIR")]
    pub directory: Option<OsString>,

    /// Give the program a terminal of its own. Default: if standard input and output are one.
    #[arg(long, conflicts_with = "no_tty")]
    pub tty: bool,

    /// Give the program pipes, even on a terminal.
    #[arg(long)]
    pub no_tty: bool,

    /// The program and its arguments, after `--`; no shell is involved.
    #[arg(
        value_name = "COMMAND",
        required = true,
        last = true,
        num_args = 1..,
        allow_hyphen_values = true
    )]
    pub command: Vec<OsString>,
}

/// Open a shell in a running sandbox
///
/// The shell is $SHELL if the sandbox has it, otherwise sh. See `atoll exec` for
/// what holds for it.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment, after_help = SHELL_EXAMPLES)]
pub struct ShellArguments {
    /// The run: its id, its beginning or end, or `last`.
    #[arg(value_name = "RUN")]
    pub run: String,
}
