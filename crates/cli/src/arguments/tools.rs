//! The definitions of `atoll tools`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// List, check and call tools
///
/// A tool is a program with a schema for its arguments, a sandbox of its own kind and limits. Tools
/// are described in tools.toml and tools/*.toml beside your profiles; policies decide on each call,
/// and the ledger has it before it happens. `atoll help tools` shows how to write one.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct ToolsArguments {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: ToolsAction,
}

/// The action on tools.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum ToolsAction {
    #[command(alias = "ls")]
    List(ListToolsArguments),
    Show(ShowToolArguments),
    Check(CheckToolsArguments),
    Call(CallToolArguments),
    Pin(PinToolsArguments),
    Install(InstallToolsArguments),
    Uninstall(UninstallToolsArguments),
    Sign(SignToolsArguments),
    Enable(SwitchToolArguments),
    Disable(SwitchToolArguments),
    Clean(CleanArguments),
    Assert(AssertToolsArguments),
}

/// List the tools that you can call
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ListToolsArguments {
    /// List those too that are switched off, or that policies hide.
    #[arg(long)]
    pub all: bool,
    /// Print JSON: a list. Default: a line for each.
    #[arg(long)]
    pub json: bool,
}

/// Show a tool: its arguments, boundary and limits
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ShowToolArguments {
    /// The tool.
    pub name: String,
    /// Print JSON: one object.
    #[arg(long)]
    pub json: bool,
}

/// Check the files that describe tools
///
/// Prints what is wrong, a line each. Exits with 1 if something is.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct CheckToolsArguments {
    /// Print JSON: a list of problems.
    #[arg(long)]
    pub json: bool,
}

/// Call a tool
///
/// Runs it in its sandbox over the current directory, and prints its result. Files that it changes
/// are kept for review, as those of `atoll run`. Exits with 1 if the tool fails, and with 126 if
/// the call is denied.
/// Example: atoll tools call count_words path=README.md
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct CallToolArguments {
    /// The tool.
    pub name: String,
    /// Arguments. A value is text, or JSON where the tool's schema takes something else.
    #[arg(value_name = "NAME=VALUE")]
    pub arguments: Vec<String>,
    /// All arguments as a JSON object; - reads it from standard input.
    #[arg(long = "arguments", value_name = "JSON", conflicts_with = "arguments")]
    pub whole: Option<String>,
    /// Make the call once by this name. The same again is refused for a day.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Print the verdict on the call, and do not call.
    #[arg(long)]
    pub dry_run: bool,
    /// Run it over this directory. Default: the current one.
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Ask nobody: what needs an approval is denied.
    #[arg(long)]
    pub no_ask: bool,
    /// Call only what the token in this file carries, too. Repeatable: every one must.
    #[arg(long, value_name = "FILE")]
    pub token: Vec<PathBuf>,
    /// Print JSON: one object.
    #[arg(long)]
    pub json: bool,
}

/// Clean a text, as an agent's answer, like the results of tools
///
/// Prints it with secrets of known kinds and personal data masked, control and invisible characters
/// written as escapes, and pictures by address made mere text. What was changed, and whether the
/// text reads like instructions to a model, is told on standard error.
/// Example: atoll tools clean answer.md
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct CleanArguments {
    /// The file, of 16 MiB at most. Default: standard input.
    pub file: Option<PathBuf>,
    /// Leave personal data as it is.
    #[arg(long)]
    pub keep_personal_data: bool,
    /// Print JSON: one object, with what was changed.
    #[arg(long)]
    pub json: bool,
}

/// Install a pack of tools, as its maker has signed it
///
/// Shows who has signed it, its tools and the rights that they need, and asks. Of a pack that is
/// changed after that no tool can be called. A later pack of the same name needs the same key.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct InstallToolsArguments {
    /// A directory, or an archive of one (tar, also with gzip).
    #[arg(value_name = "PACK")]
    pub path: PathBuf,
    /// The key of its maker, as they give it out. Default: that of the pack before.
    #[arg(long, value_name = "KEY")]
    pub signer: Option<String>,
    /// Install without a question.
    #[arg(long)]
    pub yes: bool,
}

/// Remove a pack of tools
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct UninstallToolsArguments {
    /// The pack.
    pub name: String,
}

/// Sign a directory as a pack of tools
///
/// Its files are pack.toml (name, version, description), tools.toml, and what these name: profiles
/// are NAME.profile.toml. `atoll policy organisation key FILE --name NAME` makes a key.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct SignToolsArguments {
    /// The directory.
    pub directory: PathBuf,
    /// The file of the key that signs.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
}

/// Approve the tools of an upstream MCP server
///
/// Starts it in its sandbox, shows the tools that it offers and how they differ from those that you
/// have approved, and asks. Only tools that are offered just as approved are called.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct PinToolsArguments {
    /// The upstream.
    pub name: String,
    /// Approve without a question.
    #[arg(long)]
    pub yes: bool,
    /// Print JSON: one object. Approves nothing without --yes.
    #[arg(long)]
    pub json: bool,
    /// Run it over this directory. Default: the current one.
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
}

/// Switch a tool on or off
///
/// It counts for every caller at once, and stays so until it is switched again.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct SwitchToolArguments {
    /// The tool.
    pub name: String,
}

/// Serve your tools over MCP, on standard input and output
///
/// For the configuration of an agent or editor: its command is `atoll mcp`. Tools run over the
/// current directory. Files that they change are kept for review when the client has gone.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct McpArguments {
    /// Run tools over this directory. Default: the current one.
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Record every call and its answer in this new file.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Answer calls by this recording: each is decided and recorded, and nothing is carried out.
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    pub replay: Option<PathBuf>,
    /// Call only what the token in this file carries, too. Repeatable: every one must.
    #[arg(long, value_name = "FILE")]
    pub token: Vec<PathBuf>,
}

/// Compare the calls of a session with a recording
///
/// Which tools were called, with which arguments, and whether policies allowed it. Answers are not
/// compared. For tests of agents: run one with `atoll mcp --replay FILE` as its server, then this.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct AssertToolsArguments {
    /// The recording, as of `atoll mcp --record`.
    pub file: PathBuf,
    /// The session. Default: the last one with a call.
    pub session: Option<String>,
}
