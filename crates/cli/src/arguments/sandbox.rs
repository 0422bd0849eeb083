//! The definitions of `atoll sandbox`, a client of a server's own API.

use clap::{Args, Subcommand};

const SANDBOX_EXAMPLES: &str = "\
Examples:
  atoll sandbox create                     prints the id of a new sandbox
  atoll sandbox exec ID -- python3 -c 'print(42)'
  atoll sandbox cp report.csv ID:report.csv
  atoll sandbox ls ID
  atoll sandbox kill ID

ATOLL_URL and ATOLL_API_KEY name the server and the key; else E2B_API_URL and E2B_API_KEY.";

/// Make and use sandboxes of a server (atoll serve)
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = SANDBOX_EXAMPLES)]
pub struct SandboxArguments {
    /// The action.
    #[command(subcommand)]
    pub action: SandboxAction,
}

/// The actions on sandboxes.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum SandboxAction {
    Create(CreateSandboxArguments),
    #[command(alias = "ps")]
    List(ListSandboxesArguments),
    Exec(ExecSandboxArguments),
    Cp(CopyArguments),
    Ls(ListFilesArguments),
    Kill(KillSandboxArguments),
}

/// Make a sandbox, and print its id
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CreateSandboxArguments {
    /// The template. Default: base, the server's system.
    #[arg(long, value_name = "NAME")]
    pub template: Option<String>,

    /// Its life, in s, m, h, d. Default: the server's, 5m.
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,

    /// A variable of its programs, NAME=VALUE; can be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,

    /// A note, NAME=VALUE; can be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub metadata: Vec<String>,

    /// Print JSON: one object. Default: the id.
    #[arg(long)]
    pub json: bool,
}

/// List the sandboxes, the latest first
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ListSandboxesArguments {
    /// Print JSON: one array. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Run a program in a sandbox, with its output and status
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ExecSandboxArguments {
    /// The sandbox.
    #[arg(value_name = "ID")]
    pub id: String,

    /// A variable, NAME=VALUE; can be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,

    /// The working directory. Default: /home/user.
    #[arg(long, value_name = "DIR")]
    pub directory: Option<String>,

    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Copy a file into a sandbox, or out of one
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CopyArguments {
    /// A file, or ID:PATH in a sandbox.
    #[arg(value_name = "FROM")]
    pub from: String,

    /// A file, or ID:PATH in a sandbox.
    #[arg(value_name = "TO")]
    pub to: String,
}

/// List a directory of a sandbox
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ListFilesArguments {
    /// The sandbox.
    #[arg(value_name = "ID")]
    pub id: String,

    /// The directory. Default: /home/user.
    #[arg(value_name = "PATH")]
    pub path: Option<String>,

    /// Print JSON: one array. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// End a sandbox, with everything in it
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct KillSandboxArguments {
    /// The sandbox.
    #[arg(value_name = "ID")]
    pub id: String,
}
