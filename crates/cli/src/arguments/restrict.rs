//! The definition of the command by which a run gives rights up.

use clap::Args;

const RESTRICT_EXAMPLES: &str = "\
Examples:
  atoll restrict last --deny-host '*.example.com'
  atoll restrict last --no-credentials github
  atoll restrict last --until 10m      after ten minutes nothing leaves any more
  atoll restrict last --no-network     nothing leaves any more
  atoll restrict --no-network          inside a run: the same of itself";

/// Permanently drop rights of a running run
///
/// It counts for every request and connection that begins once this has answered, and ends open
/// connections that it denies. Nothing takes it back before the run's end; of a run of a session
/// it holds for the session's later runs too. Without RUN, inside a run: of that run itself.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment, after_help = RESTRICT_EXAMPLES)]
pub struct RestrictArguments {
    /// The run: its id, its beginning or end, or `last`. Default: the run inside which this is
    /// started.
    #[arg(value_name = "RUN", verbatim_doc_comment)]
    pub run: Option<String>,

    /// Nothing leaves, and nobody comes to published ports.
    #[arg(long)]
    pub no_network: bool,

    /// A host, at all of its ports: a name, *.NAME, an address or a block of them. Can be
    /// repeated. Example: --deny-host '*.example.com'
    #[arg(long = "deny-host", value_name = "HOST", verbatim_doc_comment)]
    pub deny_hosts: Vec<String>,

    /// A credential, by its name: it is put into nothing any more. Can be repeated.
    #[arg(long = "no-credentials", value_name = "NAME")]
    pub no_credentials: Vec<String>,

    /// After so long nothing leaves any more. Example: --until 10m
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}
