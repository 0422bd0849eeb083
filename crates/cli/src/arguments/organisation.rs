//! The definitions of `atoll policy organisation`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Sign an organisation's layer, check it, and pin who signs it
///
/// The layer is organisation.toml and *.cedar of a directory: /etc/atoll, or the one that
/// config.toml names. Where a key is pinned, nothing starts but with the layer that it has signed.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct OrganisationArguments {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: OrganisationAction,
}

/// What to do with an organisation's layer.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum OrganisationAction {
    Key(OrganisationKeyArguments),
    Sign(SignOrganisationArguments),
    Verify(VerifyOrganisationArguments),
    Trust(TrustOrganisationArguments),
    Status(StatusOrganisationArguments),
}

/// Print the public key of a file, or make a key there
///
/// What is printed is pinned by those for whom the layer is. The file itself signs: keep it where
/// nobody else reads it. It is not written over.
/// Example: atoll policy organisation key ~/acme.key --name acme.example
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct OrganisationKeyArguments {
    /// The file of the key.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Make a key for the organisation of this name. Default: print the one that there is.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// Sign the layer that a directory holds, as it is now
///
/// The signature is put beside it, as organisation.sig. Files with mistakes are not signed: they
/// would stop every run.
/// Example: atoll policy organisation sign ./acme --key ~/acme.key --until 2027-06-30
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct SignOrganisationArguments {
    /// The directory.
    #[arg(value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,

    /// The file of a key that signs; for several say it again.
    #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub key: Vec<PathBuf>,

    /// Its number, greater than any before it, or `next`. Default: next.
    #[arg(
        long,
        value_name = "N|next",
        default_value = "next",
        hide_default_value = true
    )]
    pub serial: String,

    /// The last day on which it counts (UTC), as 2027-06-30. Default: it counts for ever.
    #[arg(long, value_name = "DATE")]
    pub until: Option<String>,
}

/// Check that a directory holds just what was signed
///
/// Nothing is remembered of it. Exit status: 0 it does, 125 it does not.
/// Example: atoll policy organisation verify ./acme --key "$KEY"
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct VerifyOrganisationArguments {
    /// The directory. Default: that of the layer that counts here.
    #[arg(value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,

    /// Who has to have signed it. Default: whoever is pinned.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,

    /// Print JSON. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Pin the key that signs the organisation's layer, for yourself
///
/// From then on nothing starts but with a layer that it has signed. Removing organisation.pub
/// beside config.toml ends that.
/// Example: atoll policy organisation trust "$KEY"
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct TrustOrganisationArguments {
    /// The key, as `key` prints it and the organisation gives it out.
    #[arg(value_name = "KEY")]
    pub key: String,

    /// Put it in the place of another one that is pinned. Default: off.
    #[arg(long)]
    pub replace: bool,
}

/// Show where the organisation's layer is, and who has signed it
///
/// Exit status: 0 runs start with it, 125 they do not.
/// Example: atoll policy organisation status
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct StatusOrganisationArguments {
    /// Print JSON. Default: text.
    #[arg(long)]
    pub json: bool,
}
