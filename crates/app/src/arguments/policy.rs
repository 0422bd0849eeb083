//! The definitions of `atoll policy`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Show, check, ask and test policies in Cedar, beside profiles
///
/// They lie in /etc/atoll/*.cedar, in *.cedar beside config.toml, and in a project's
/// trusted atoll.cedar. Each of these layers only takes away: see docs/policy.md.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct PolicyArguments {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub action: PolicyAction,
}

/// What to do with policies.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum PolicyAction {
    Show(ShowPolicyArguments),
    Check(CheckPolicyArguments),
    Ask(Box<AskPolicyArguments>),
    Test(TestPolicyArguments),
}

/// Show which files of policies count here, or a profile as policies
///
/// With --cedar what the profile allows is printed in Cedar: edit it, and put it beside
/// config.toml, and nothing else is allowed any more. Its workspace is the present
/// directory: add the lines of others.
/// Example: atoll policy show rust --cedar > ~/.config/atoll/rust.cedar
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ShowPolicyArguments {
    /// The profile's name, or its file, with --cedar.
    #[arg(value_name = "NAME|FILE", default_value = "default", requires = "cedar", value_hint = ValueHint::FilePath)]
    pub name: OsString,

    /// Print the profile in Cedar. Default: the files of policies that count here.
    #[arg(long)]
    pub cedar: bool,

    /// With the policies of this level of trust, and print them: none, low, medium, high, full.
    /// Default: what the profile names.
    #[arg(
        long,
        value_name = "LEVEL",
        conflicts_with = "cedar",
        verbatim_doc_comment
    )]
    pub trust: Option<String>,

    /// In this mode: strict, layered, permissive. Default: what the profile names.
    #[arg(long, value_name = "MODE", conflicts_with = "cedar")]
    pub mode: Option<String>,
}

/// Check files of policies: mistakes, and what changes nothing
///
/// Exit status: 0 without mistakes, 1 with some. What a policy asks for and this build
/// does not do is one; a policy that another one stands in the way of is only told.
/// Example: atoll policy check ./atoll.cedar
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct CheckPolicyArguments {
    /// The files. Default: those that count here, and an atoll.cedar that is not trusted.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
}

/// Ask what policies decide, without any effect
///
/// Only policies are asked, not a profile's rules: what these do not allow stays denied.
/// Exit status: 0 allowed, 126 denied, 125 for what cannot be asked.
/// Example: atoll policy ask run git
/// Example: atoll policy ask request api.example.com --method POST --path /v1/items
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct AskPolicyArguments {
    /// What is to be done: run, read, write, resolve, connect, request, use_credential,
    /// promote, publish.
    #[arg(value_name = "ACTION", verbatim_doc_comment)]
    pub what: String,

    /// With what: a program, an absolute path, a host, a credential's name, a port.
    #[arg(value_name = "RESOURCE")]
    pub resource: String,

    /// Ask these files alone, as one layer. Default: those that count here.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Vec<PathBuf>,

    /// The port. Default: 443, for http 80.
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,

    /// Of a connection: into where requests are judged, past where bytes are carried unseen.
    /// Default: into.
    #[arg(long, value_name = "LOOK", verbatim_doc_comment)]
    pub look: Option<String>,

    /// Of a request: http or https. Default: https.
    #[arg(long, value_name = "SCHEME")]
    pub scheme: Option<String>,

    /// Of a request. Default: GET.
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,

    /// Of a request, with its query. Default: /.
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,

    /// Of a change: other programs run the file. Default: off.
    #[arg(long)]
    pub control: bool,

    /// Of a request: a body follows. Default: off.
    #[arg(long)]
    pub body: bool,

    /// The profile that is asked under. Default: default.
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,

    /// With the policies of this level of trust. Default: what the profile names.
    #[arg(long, value_name = "LEVEL", conflicts_with = "file")]
    pub trust: Option<String>,

    /// In this mode: strict, layered, permissive. Default: what the profile names.
    #[arg(long, value_name = "MODE", conflicts_with = "file")]
    pub mode: Option<String>,

    /// What is to be done, as a person states it. Default: not stated.
    #[arg(long, value_name = "TEXT")]
    pub task: Option<String>,

    /// What it is for, as a person states it. Default: not stated.
    #[arg(long, value_name = "TEXT")]
    pub purpose: Option<String>,
}

/// Test files of policies with the cases beside them
///
/// The cases of own.cedar are in own.test.toml: a table [[case]] for each, with action,
/// resource, expect (allow, ask or deny) and perhaps by, the id of the policy that decides.
/// Exit status: 0 when all are as expected, 1 when not.
/// Example: atoll policy test ./atoll.cedar
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct TestPolicyArguments {
    /// The files of policies.
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
}
