//! The definitions of the command about templates of served sandboxes.

use clap::{Args, Subcommand};

const TEMPLATE_EXAMPLES: &str = "\
Examples:
  atoll template build code-interpreter-v1               with the usual packages
  atoll template build code-interpreter-v1 polars duckdb with these instead";

/// Build what sandboxes of a server begin with (atoll serve)
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = TEMPLATE_EXAMPLES)]
pub struct TemplateArguments {
    /// The action.
    #[command(subcommand)]
    pub action: TemplateAction,
}

/// The actions on templates.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum TemplateAction {
    Build(BuildTemplateArguments),
}

/// Build a shipped template anew, in a sandbox that reaches PyPI
///
/// code-interpreter-v1 works without it, with the packages that the machine has.
/// A server takes what was built for the sandboxes that it makes from then on.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct BuildTemplateArguments {
    /// The template: code-interpreter-v1.
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Let it reach a further destination, as of `atoll run`. Repeatable.
    #[arg(long, value_name = "HOST")]
    pub allow: Vec<String>,

    /// The Python packages, as pip names them. Default: numpy, pandas, matplotlib and others.
    #[arg(value_name = "PACKAGE")]
    pub packages: Vec<String>,
}
