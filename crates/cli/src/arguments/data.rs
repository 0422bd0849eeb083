//! The definition of the command about kept data.

use clap::{Args, Subcommand};

/// See what is kept about a run, session or tenant, and until when
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct DataArguments {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: DataAction,
}

/// The actions on kept data.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum DataAction {
    About(AboutDataArguments),
}

/// List everything that is kept about a run, a session or a tenant
///
/// Each thing with its class, its size and when it goes by the rules of retention.toml;
/// whether the key of sealed content exists; and what a hold keeps. atoll gc removes
/// what is due, atoll serve does so by itself.
/// Example: atoll data about last, atoll data about fix-login --json
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct AboutDataArguments {
    /// A run or a session of tools: its whole id, or last; a session, by its name or id;
    /// a tenant of atoll serve. session:NAME and tenant:NAME where both have one name.
    #[arg(value_name = "RUN|SESSION|TENANT", verbatim_doc_comment)]
    pub what: String,

    /// Print JSON: one object. Default: text.
    #[arg(long)]
    pub json: bool,
}
