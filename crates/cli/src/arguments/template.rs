//! The definitions of the command about templates of served sandboxes.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const TEMPLATE_EXAMPLES: &str = "\
Examples:
  atoll template build code-interpreter-v1               with the usual packages
  atoll template build code-interpreter-v1 polars duckdb with these instead
  atoll template build desktop                           at a server that runs
  atoll template build mine --file Dockerfile            of your own steps
  atoll template build mine --from ghcr.io/owner/image:1 of an image
  atoll template build mine --from oci:image             of one on disk
  atoll template list
  atoll template delete mine

All but build code-interpreter-v1 ask a server: ATOLL_URL and ATOLL_API_KEY name it
and the key; else E2B_API_URL and E2B_API_KEY.";

/// Build, list and remove what sandboxes of a server begin with
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
    List(ListTemplatesArguments),
    #[command(aliases = ["rm", "remove"])]
    Delete(DeleteTemplateArguments),
}

/// Build a template: from a Dockerfile, an image, or a shipped one
///
/// With --file or --from it is built by the server, for the key's tenant.
/// code-interpreter-v1 is built on the server's machine, in a sandbox that reaches
/// PyPI; without that it works with the packages that the machine has.
/// desktop is built by the server, of Debian's packages, for the key's tenant.
/// A server takes what was built for the sandboxes that it makes from then on.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct BuildTemplateArguments {
    /// The template: a name of your own, or code-interpreter-v1, or desktop.
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Carry out a Dockerfile of one stage. COPY takes files of its directory.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["from", "allow", "packages"])]
    pub file: Option<PathBuf>,

    /// Take the image of a registry, or of a layout on disk: oci:DIR, or oci:DIR:NAME.
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["allow", "packages"])]
    pub from: Option<String>,

    /// Let it reach a further destination, as of `atoll run`. Repeatable; for
    /// code-interpreter-v1.
    #[arg(long, value_name = "HOST")]
    pub allow: Vec<String>,

    /// The Python packages, as pip names them. Default: numpy, pandas, matplotlib and others.
    #[arg(value_name = "PACKAGE")]
    pub packages: Vec<String>,
}

/// List the templates that were built at a server, the latest first
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ListTemplatesArguments {
    /// Print JSON: one array. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Remove a template that no sandbox or snapshot stands on
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct DeleteTemplateArguments {
    /// The template: its id, or name.
    #[arg(value_name = "TEMPLATE")]
    pub template: String,
}
