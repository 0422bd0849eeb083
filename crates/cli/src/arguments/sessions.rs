//! The definition of the command about sessions.

use clap::Args;

/// List sessions and their runs, the latest first
///
/// `atoll run --session NAME` begins one, or goes on with it. It is a log in the ledger, so that
/// it outlives the runs, what carried them and what was kept of them.
/// Example: atoll sessions, atoll why --session fix-login
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct SessionsArguments {
    /// Print JSON: one array, an object for each session with its runs. Default: a list.
    #[arg(long)]
    pub json: bool,
}
