//! The definitions of `atoll sandbox`, a client of a server's own API.

use clap::{Args, Subcommand};

const SANDBOX_EXAMPLES: &str = "\
Examples:
  atoll sandbox create                     prints the id of a new sandbox
  atoll sandbox exec ID -- python3 -c 'print(42)'
  atoll sandbox shell ID
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
    Shell(ShellSandboxArguments),
    Cp(CopyArguments),
    Ls(ListFilesArguments),
    Ports(PortsOfSandboxArguments),
    Logs(LogsArguments),
    Pause(PauseSandboxArguments),
    Resume(ResumeSandboxArguments),
    Snapshot(SnapshotArguments),
    Fork(ForkArguments),
    Rollback(RollbackArguments),
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

    /// Processors. Default: the server's, as of the next two.
    #[arg(long, value_name = "NUMBER")]
    pub cpus: Option<u32>,

    /// Memory, as 512M, 2G.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,

    /// Disk, as 512M, 2G.
    #[arg(long, value_name = "SIZE")]
    pub disk: Option<String>,

    /// closed, or the only hosts that it reaches, as api.example.com,*.example.org.
    /// Default: the server's network.
    #[arg(long, value_name = "closed|HOST,…", verbatim_doc_comment)]
    pub network: Option<String>,

    /// A volume, NAME:PATH, or NAME:PATH:ro to only read it; can be given several times.
    #[arg(long, value_name = "NAME:PATH[:ro]")]
    pub volume: Vec<String>,

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

/// List the sandboxes, also paused ones, the latest first
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

    /// Give the program a terminal. Default: if standard input and output are one.
    #[arg(long, conflicts_with = "no_tty")]
    pub tty: bool,

    /// Give the program pipes, even on a terminal.
    #[arg(long)]
    pub no_tty: bool,

    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Open a shell in a sandbox: bash, else sh
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ShellSandboxArguments {
    /// The sandbox.
    #[arg(value_name = "ID")]
    pub id: String,
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

/// List the ports at which programs of a sandbox listen
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct PortsOfSandboxArguments {
    /// The sandbox.
    #[arg(value_name = "ID")]
    pub id: String,

    /// Make a link to this port instead, for whoever gets it, good for an hour.
    #[arg(long, value_name = "PORT")]
    pub link: Option<u16>,

    /// Print JSON. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Read the log of a sandbox, also of one that has ended
///
/// A line for each event in the ledger: programs, what was refused, its end.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct LogsArguments {
    /// The sandbox.
    #[arg(value_name = "ID")]
    pub id: String,

    /// Print JSON: one array. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Pause a sandbox
///
/// Its memory is kept where it is for a time, while there is room; its files in any case.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct PauseSandboxArguments {
    /// End its programs: keep its files alone.
    #[arg(long)]
    pub files: bool,

    /// The sandbox.
    #[arg(value_name = "ID")]
    pub id: String,
}

/// Have a paused sandbox go on, with what is kept of it
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ResumeSandboxArguments {
    /// The sandbox.
    #[arg(value_name = "ID")]
    pub id: String,
}

/// Keep the files of a sandbox for others to begin with
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct SnapshotArguments {
    /// The sandbox.
    #[arg(value_name = "ID")]
    pub id: String,

    /// A name, by which it is a template as by its id.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Print JSON: one object. Default: the id.
    #[arg(long)]
    pub json: bool,
}

/// Make sandboxes that begin with the files of one
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ForkArguments {
    /// The sandbox.
    #[arg(value_name = "ID")]
    pub id: String,

    /// The number of them, up to 100.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u32,

    /// Print JSON: one array, also of forks that were not made. Default: the ids.
    #[arg(long)]
    pub json: bool,
}

/// Have a sandbox go on with a snapshot's files
///
/// Its programs end, and what was written since is lost; its id and tokens stay.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RollbackArguments {
    /// The sandbox.
    #[arg(value_name = "ID")]
    pub id: String,

    /// The snapshot, by its id or name.
    #[arg(value_name = "SNAPSHOT")]
    pub snapshot: String,
}

/// End a sandbox, with everything in it
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct KillSandboxArguments {
    /// The sandbox.
    #[arg(value_name = "ID")]
    pub id: String,
}
