//! The definitions of `atoll secret`.

use std::path::PathBuf;
use std::time::Duration;

use atoll_model::{SecretName, parse_duration};
use clap::{Args, Subcommand};

/// Keep secrets for credentials, sealed on disk
///
/// They are never inside a sandbox, which holds what stands for them alone.
/// What a secret is, no command shows again: only what carries a run's connections opens it,
/// where a profile binds it to hosts.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct SecretArguments {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: SecretAction,
}

/// What to do with secrets.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum SecretAction {
    Set(SetSecretArguments),
    List(ListSecretsArguments),
    #[command(name = "rm", alias = "remove")]
    Remove(RemoveSecretsArguments),
    Key(VaultKeyArguments),
    Unlock(UnlockArguments),
    Lock(LockArguments),
}

/// Put a secret in, or another one in its place
///
/// It is asked for on the terminal, or read from standard input, where a newline at its end
/// is not part of it. 64 KiB at most.
/// Example: gh auth token | atoll secret set github
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct SetSecretArguments {
    /// Its name: letters, digits and - _ .
    pub name: SecretName,
    /// Take what this file holds, each byte of it. Default: standard input.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Name the secrets that there are
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ListSecretsArguments {
    /// Print JSON: one object. Default: a line for each.
    #[arg(long)]
    pub json: bool,
}

/// Take secrets out
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RemoveSecretsArguments {
    /// Their names.
    #[arg(required = true)]
    pub names: Vec<SecretName>,
}

/// Choose how the key is kept that opens the secrets
///
/// In a file (vault-….key beside config.toml) whoever can read your files has it; it is that
/// the secrets do not lie open in what keeps Atoll's state. With a passphrase nobody has it
/// who does not know that, and `atoll secret unlock` asks for it.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct VaultKeyArguments {
    /// Where: `file`, or `passphrase`. Default: show where it is.
    pub kept: Option<KeyPlace>,
}

/// How a key is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyPlace {
    /// In a file of the configuration.
    File,
    /// Nowhere in the clear: a passphrase gives it.
    Passphrase,
}

/// Ask for the passphrase, and keep the key in this kernel for a time
///
/// It is in your keyring (keyrings(7)), never on disk, and gone when the host restarts.
/// Example: atoll secret unlock --for 1h
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct UnlockArguments {
    /// For how long: 30m, 8h. Default: 8h.
    #[arg(long = "for", value_name = "TIME", default_value = "8h", value_parser = parse_duration)]
    pub lasts: Duration,
}

/// Forget the key that an unlock has put into this kernel
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct LockArguments {}
