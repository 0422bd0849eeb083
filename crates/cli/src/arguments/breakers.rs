//! The definitions of `atoll breakers`.

use clap::{Args, Subcommand};

/// List, trip and reset the circuit breakers of tools
///
/// A tool or an upstream that fails again and again is not called for a while, then once for trial.
/// Breakers are the same for every session and process, and outlive them; each change is in the
/// ledger.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct BreakersArguments {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: BreakersAction,
}

/// The action on breakers.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum BreakersAction {
    #[command(alias = "ls")]
    List(ListBreakersArguments),
    Trip(SetBreakerArguments),
    Reset(SetBreakerArguments),
}

/// List the breakers that are not closed
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ListBreakersArguments {
    /// List those of all tools and upstreams.
    #[arg(long)]
    pub all: bool,
    /// Print JSON: a list. Default: a line for each.
    #[arg(long)]
    pub json: bool,
}

/// Trip a breaker, or close it
///
/// One that is tripped lets no call pass until it is reset; one that is reset lets them pass at once.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct SetBreakerArguments {
    /// The tool, the upstream, or what the list has, as "caller default/bot".
    pub of: String,
    /// The reason, for the ledger.
    #[arg(long, value_name = "TEXT")]
    pub why: Option<String>,
}
