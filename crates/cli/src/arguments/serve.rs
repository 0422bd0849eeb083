//! The definitions of `atoll serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use atoll_server::NetworkWord;
use clap::{Args, Subcommand};

const SERVE_EXAMPLES: &str = "\
Examples:
  atoll serve                          http://127.0.0.1:3000, sandboxes without a network
  atoll serve --network registries     they reach package registries, to read
  atoll serve --check                  whether serve.toml is right
  atoll serve keys create --name ci    a further key
  atoll serve backup store.sqlite      keys and tenants, in a file

`atoll help serve` tells of serve.toml, and how the SDKs are pointed here.";

const KEYS_EXAMPLES: &str = "\
Examples:
  atoll serve keys create --name ci
  atoll serve keys create --name ci --tenant team-a --expires 30d
  atoll serve keys create --name ci --scope create --scope exec --scope files
  atoll serve keys list
  atoll serve keys revoke 3f9a1c20";

/// Serve sandboxes to programs, over the API that E2B's SDKs speak
///
/// Each sandbox is made, decided and recorded as `atoll run` does it, and has a home of its
/// own that is gone with it. Ends with the command; sandboxes end with it.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    after_help = SERVE_EXAMPLES,
    args_conflicts_with_subcommands = true
)]
pub struct ServeArguments {
    /// The actions besides serving.
    #[command(subcommand)]
    pub action: Option<ServeAction>,

    /// The address to listen at, on the loopback. Default: 127.0.0.1:3000, or serve.toml's.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,

    /// The network of sandboxes: closed, registries or internet. Default: closed, or serve.toml's.
    ///
    /// registries: package registries, to read. internet: every public address, looked into
    /// and recorded. A caller can ask for less.
    #[arg(long, value_name = "WORD", value_parser = network, verbatim_doc_comment)]
    pub network: Option<NetworkWord>,

    /// The configuration. Default: serve.toml in Atoll's configuration directory.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Only say whether the configuration is right.
    #[arg(long)]
    pub check: bool,
}

/// The actions besides serving.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum ServeAction {
    Keys(KeysArguments),
    Backup(BackupArguments),
    Restore(RestoreArguments),
}

/// Write the server's store to a file, while it runs
///
/// Keys, tenants and what happened to sandboxes. The ledger is not in it: `atoll ledger export`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct BackupArguments {
    /// The new file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Replace the server's store by a backup of it
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RestoreArguments {
    /// The backup.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Make, list and revoke the keys of callers
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = KEYS_EXAMPLES)]
pub struct KeysArguments {
    /// The action.
    #[command(subcommand)]
    pub action: KeysAction,
}

/// The actions on keys.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum KeysAction {
    Create(CreateKeyArguments),
    List(ListKeysArguments),
    Revoke(RevokeKeyArguments),
}

/// Make a key, and show it once
///
/// Only its digest is kept. A running server takes it at once.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct CreateKeyArguments {
    /// The caller's name, as the ledger has it.
    #[arg(long, value_name = "NAME")]
    pub name: String,

    /// The tenant, whose sandboxes no other tenant sees. Default: default.
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,

    /// administrator, operator, approver, auditor or user. Default: user.
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,

    /// A part of what its role may: read, create, exec, files or ports. Can be repeated.
    /// Default: everything.
    #[arg(long, value_name = "NAME", verbatim_doc_comment)]
    pub scope: Vec<String>,

    /// The time until it is refused, in s, m, h, d. Default: none.
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,

    /// Print JSON: one object, with `key`. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// List the keys, without what they are
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ListKeysArguments {
    /// Print JSON: one array. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Revoke a key, from now on
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RevokeKeyArguments {
    /// Its id, as `atoll serve keys list` shows it.
    #[arg(value_name = "KEY")]
    pub id: String,
}

fn network(text: &str) -> Result<NetworkWord, String> {
    NetworkWord::parse(text).ok_or_else(|| "it is closed, registries or internet".to_owned())
}
