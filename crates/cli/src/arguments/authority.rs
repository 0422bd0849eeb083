//! The definitions of `atoll ca`.

use clap::{Args, Subcommand};

/// Show or replace the certificate authority that sandboxes trust
///
/// It is made when a run first has a network that is looked into. Only sandboxes are to
/// trust it: do not add it to what this machine or a browser trusts.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct AuthorityArguments {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: AuthorityAction,
}

/// What to do with the authority.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum AuthorityAction {
    Show(ShowAuthorityArguments),
    Rotate(RotateAuthorityArguments),
}

/// Print its certificate as PEM, with its fingerprint, validity and place
///
/// Its key is never printed.
/// Example: atoll ca show > atoll.pem
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ShowAuthorityArguments {
    /// Print JSON: one object. Default: text, with the certificate as PEM.
    #[arg(long)]
    pub json: bool,
}

/// Make a new one, and destroy the key of the one that there is
///
/// Sandboxes that are there go on with the one that they know. New ones trust the new one,
/// and for 30 days the old one too.
/// Example: atoll ca rotate --revoke
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct RotateAuthorityArguments {
    /// Have new sandboxes trust none of the old ones: someone may have a key. Default: off.
    #[arg(long)]
    pub revoke: bool,
}
