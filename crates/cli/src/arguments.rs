//! The command line in raw form: what was typed, not yet what it means.
//!
//! [`read`] only recognises words; turning them into profiles, limits and runs
//! is the next stage's work, which knows the configuration. Nothing here looks
//! at the file system or the environment. The help texts are the reference for
//! users: each option says its unit, its default and shows an example.

mod approvals;
mod artifacts;
mod authority;
mod breakers;
mod checkpoints;
mod data;
mod exec;
mod hook;
mod init;
mod kept;
mod ledger;
mod login;
mod organisation;
mod policy;
mod ports;
mod restrict;
mod review;
mod run;
mod sandbox;
mod secret;
mod serve;
mod sessions;
mod snapshot;
mod template;
mod token;
mod tools;
mod upkeep;
mod volume;

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};

use atoll_policy::agent_of;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as _, CommandFactory, Parser, Subcommand};

use crate::status::STATUS_OWN_ERROR;

pub use approvals::{
    ApprovalsAction, ApprovalsArguments, DenyApprovalArguments, GrantApprovalArguments,
    ListApprovalsArguments, RevokeApprovalArguments, ShowApprovalArguments, StopArguments,
};
pub use artifacts::{
    ArtifactsAction, ArtifactsArguments, GetArtifactArguments, ListArtifactsArguments,
    PromoteArtifactsArguments, RejectArtifactArguments, ScanArtifactsArguments,
    ShowArtifactArguments,
};
pub use authority::{
    AuthorityAction, AuthorityArguments, RotateAuthorityArguments, ShowAuthorityArguments,
};
pub use breakers::{BreakersAction, BreakersArguments, ListBreakersArguments, SetBreakerArguments};
pub use checkpoints::{CheckpointAction, CheckpointArguments, RestoreArguments};
pub use data::{AboutDataArguments, DataAction, DataArguments};
pub use exec::{ExecArguments, ShellArguments};
pub use hook::{HookAgent, HookArguments};
pub use init::{Agent, InitArguments};
pub use kept::{
    ApplyKeptArguments, DiffKeptArguments, DiscardKeptArguments, KeptAction, KeptArguments,
    ListKeptArguments, UndoKeptArguments,
};
pub use ledger::{
    CheckProofArguments, ExportFormat, ExportLedgerArguments, HoldLedgerArguments, KeyAction,
    KeyLedgerArguments, LedgerAction, LedgerArguments, ProveAction, ProveConsistencyArguments,
    ProveInclusionArguments, ProveLedgerArguments, QueryLedgerArguments, ShowLedgerArguments,
    ShredLedgerArguments, TailLedgerArguments, VerifyLedgerArguments, WitnessLedgerArguments,
};
pub use login::LoginArguments;
pub use organisation::{
    OrganisationAction, OrganisationArguments, OrganisationKeyArguments, SignOrganisationArguments,
    StatusOrganisationArguments, TrustOrganisationArguments, VerifyOrganisationArguments,
};
pub use policy::{
    AskPolicyArguments, CheckPolicyArguments, DiffPolicyArguments, ExplainPolicyArguments,
    LearnPolicyArguments, PolicyAction, PolicyArguments, ProvePolicyArguments, PurposesArguments,
    ReloadPolicyArguments, ReplayPolicyArguments, SchemaPolicyArguments, ShowPolicyArguments,
    TestPolicyArguments,
};
pub use ports::{PortsArguments, PublishArguments};
pub use restrict::RestrictArguments;
pub use review::{
    ApplyArguments, DiffArguments, DiscardArguments, RunsArguments, UndoArguments, WhyArguments,
};
pub use run::RunArguments;
pub use sandbox::{
    CopyArguments, CreateSandboxArguments, ExecSandboxArguments, ForkArguments,
    KillSandboxArguments, ListFilesArguments, ListSandboxesArguments, LogsArguments,
    PortsOfSandboxArguments, SandboxAction, SandboxArguments, ShellSandboxArguments,
};
pub use secret::{
    KeyPlace, ListSecretsArguments, RemoveSecretsArguments, SecretAction, SecretArguments,
    SetSecretArguments, UnlockArguments, VaultKeyArguments,
};
pub use serve::{
    CreateKeyArguments, KeysAction, KeysArguments, ListKeysArguments, RevokeKeyArguments,
    ServeAction, ServeArguments,
};
pub use sessions::SessionsArguments;
pub use snapshot::{
    DeleteSnapshotArguments, ListSnapshotsArguments, SnapshotAction, SnapshotsArguments,
};
pub use template::{
    BuildTemplateArguments, DeleteTemplateArguments, ListTemplatesArguments, TemplateAction,
    TemplateArguments,
};
pub use token::{
    AttenuateTokenArguments, IssueTokenArguments, KeyTokenArguments, ListTokensArguments,
    RevokeTokenArguments, ShowTokenArguments, TermsArguments, TokenAction, TokenArguments,
};
pub use tools::{
    AssertToolsArguments, CallToolArguments, CheckToolsArguments, CleanArguments,
    InstallToolsArguments, ListToolsArguments, McpArguments, PinToolsArguments, ShowToolArguments,
    SignToolsArguments, SwitchToolArguments, ToolsAction, ToolsArguments, UninstallToolsArguments,
};
pub use upkeep::{
    CheckProfileArguments, CompletionsArguments, DoctorArguments, GcArguments,
    ListProfilesArguments, ManArguments, PresetsArguments, ProfileAction, ProfileArguments,
    ReputationArguments, Requirement, ShowProfileArguments, TrustArguments,
};
pub use volume::{
    CreateVolumeArguments, DeleteVolumeArguments, ListVolumesArguments, SnapshotVolumeArguments,
    VolumeAction, VolumeArguments,
};

const TOP_EXAMPLES: &str = "\
Examples:
  atoll run -- npm test        run something in a boundary, see what it changed
  atoll codex                  run a coding agent: short for atoll run -- codex
  atoll diff                   what the last run changed
  atoll apply last             take the changes over
  atoll undo last              take them back
  atoll why                    what was refused, by which rule, what to do

`atoll COMMAND --help` tells more about each command, `atoll help` lists documents.";

/// Runs AI agents in a sandbox that you can define, inspect and undo.
#[derive(Debug, Parser)]
#[command(
    name = "atoll",
    bin_name = "atoll",
    version,
    after_help = TOP_EXAMPLES,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

/// What was asked for. The variants have no text of their own, because it would
/// stand in place of what their arguments' types say.
#[derive(Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum Command {
    Run(Box<RunArguments>),
    Exec(ExecArguments),
    Shell(ShellArguments),
    Login(LoginArguments),
    Serve(ServeArguments),
    #[command(alias = "sandboxes")]
    Sandbox(SandboxArguments),
    #[command(alias = "volumes")]
    Volume(VolumeArguments),
    #[command(alias = "templates")]
    Template(TemplateArguments),
    #[command(alias = "snapshots")]
    Snapshot(SnapshotsArguments),
    #[command(aliases = ["list", "ls", "ps"])]
    Runs(RunsArguments),
    #[command(alias = "session")]
    Sessions(SessionsArguments),
    #[command(alias = "approval")]
    Approvals(ApprovalsArguments),
    #[command(alias = "kill")]
    Stop(StopArguments),
    Restrict(RestrictArguments),
    Ports(PortsArguments),
    Publish(PublishArguments),
    Diff(DiffArguments),
    Apply(ApplyArguments),
    Discard(DiscardArguments),
    Undo(UndoArguments),
    Kept(KeptArguments),
    Why(WhyArguments),
    Gc(GcArguments),
    #[command(alias = "profiles")]
    Profile(ProfileArguments),
    #[command(alias = "policies")]
    Policy(PolicyArguments),
    Trust(TrustArguments),
    #[command(name = "ca")]
    Authority(AuthorityArguments),
    #[command(alias = "secrets")]
    Secret(SecretArguments),
    #[command(alias = "tokens")]
    Token(TokenArguments),
    #[command(alias = "tool")]
    Tools(ToolsArguments),
    Mcp(McpArguments),
    Init(InitArguments),
    Hook(HookArguments),
    #[command(alias = "artifact")]
    Artifacts(ArtifactsArguments),
    #[command(alias = "checkpoints")]
    Checkpoint(CheckpointArguments),
    Restore(RestoreArguments),
    #[command(alias = "breaker")]
    Breakers(BreakersArguments),
    Data(DataArguments),
    #[command(alias = "log")]
    Ledger(LedgerArguments),
    Doctor(DoctorArguments),
    Completions(CompletionsArguments),
    Man(ManArguments),
    #[command(skip)]
    Help(Vec<String>),
}

/// Reads the process's arguments, the program's name first.
///
/// # Errors
/// clap's error, which also stands for `--help` and `--version`. Print it with
/// `error.print()` and end with [`status_of`].
pub fn read(argv: &[OsString]) -> Result<Command, clap::Error> {
    if let Some(Ok(arguments)) = read_run_only(argv) {
        return Ok(Command::Run(Box::new(arguments)));
    }
    if let Some(words) = read_help(argv) {
        return Ok(Command::Help(words));
    }
    let read = CommandLine::try_parse_from(argv).map(|line| line.command);
    read.map_err(|error| in_words(with_hint(with_action(error, argv))))
}

/// Returns the words with `run --` before an agent's name that stands for the command: `atoll codex`
/// is `atoll run -- codex`, and all that follows is the agent's.
#[must_use]
pub fn in_full(argv: &[OsString]) -> Vec<OsString> {
    let is_agent = |word: &OsString| word.to_str().is_some_and(|word| agent_of(word).is_some());
    match argv.split_first() {
        Some((own, rest)) if rest.first().is_some_and(is_agent) => {
            let words = [own.clone(), "run".into(), "--".into()].into_iter();
            words.chain(rest.iter().cloned()).collect()
        }
        Some(_) | None => argv.to_vec(),
    }
}

/// Says of a number that is none what it has to be, in place of how it is read; and of an option
/// for a file what it takes.
fn in_words(error: clap::Error) -> clap::Error {
    let invalid = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(invalid)) => invalid.clone(),
        _ => return error,
    };
    let value = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.clone(),
        _ => String::new(),
    };
    let is_number = || {
        let source = std::error::Error::source(&error)?;
        source.downcast_ref::<std::num::ParseIntError>().cloned()
    };
    let text = match (error.kind(), is_number()) {
        (ErrorKind::ValueValidation, Some(_)) => {
            format!("{value:?} is not usable for {invalid}: it takes a whole number, in digits\n")
        }
        (ErrorKind::InvalidValue, None) if value.is_empty() && invalid == "--json <FILE>" => {
            "--json names a file, as --json result.json; --json - is standard error\n".to_owned()
        }
        (_, _) => return error,
    };
    clap::Error::raw(
        error.kind(),
        text + "\nFor more information, try '--help'.\n",
    )
}

/// Says what is written before a name of what is kept.
fn with_action(mut error: clap::Error, argv: &[OsString]) -> clap::Error {
    let is_of_kept = argv.get(1).is_some_and(|command| command == "kept");
    // A word that is nearly an action has its hint.
    let has_hint = error.get(ContextKind::SuggestedSubcommand).is_some();
    if is_of_kept && !has_hint && error.kind() == ErrorKind::InvalidSubcommand {
        let hint = "atoll kept diff NAME shows what is kept, atoll kept lists the names";
        let hint = ContextValue::StyledStrs(vec![hint.into()]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

/// Options for the network as others call them, and how that is said here.
const OTHER_OPTIONS: [(&[&str], &str); 5] = [
    (
        &["-v", "--volume", "--mount", "--bind", "--ro-bind"],
        "--ro PATH shows one more path, --rw DIR lets it be changed in a layer; each is at the same \
         path inside",
    ),
    (
        &["-e"],
        "--env NAME passes a variable on, --env NAME=VALUE sets one",
    ),
    (
        &["-it", "-i", "-t", "--rm"],
        "leave it out: a terminal is given where there is one, and --discard keeps nothing",
    ),
    (
        &["--no-network", "--offline", "--no-net"],
        "nothing is reached without a rule: leave it out; --deny '*' closes what a profile opens",
    ),
    (
        &[
            "--network",
            "--net",
            "--share-net",
            "--allow-net",
            "--allow-network",
        ],
        "what may be reached is named: --allow HOST[:PORT], --preset NAME",
    ),
];

/// Says what stands for an option that others have.
fn with_hint(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(written)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let name = written.split(['=', ' ']).next().unwrap_or_default();
    let known = OTHER_OPTIONS
        .iter()
        .find(|(names, _)| names.contains(&name));
    if let Some((_, hint)) = known.filter(|_| error.kind() == ErrorKind::UnknownArgument) {
        // What is only spelt alike is not meant.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedValue);
        let hint = ContextValue::StyledStrs(vec![(*hint).into()]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

/// `atoll run` is started often and measured against programs that take three
/// milliseconds in all, so its definitions are tried alone, without building the
/// others'. Where that fails, the whole definition words the error or the help.
fn read_run_only(argv: &[OsString]) -> Option<Result<RunArguments, clap::Error>> {
    let (_, rest) = argv.split_first()?;
    if rest.first().map(OsString::as_os_str) != Some(OsStr::new("run")) {
        return None;
    }
    let alone = RunArguments::augment_args(clap::Command::new("run"));
    let matches = alone.try_get_matches_from(rest);
    Some(matches.and_then(|found| <RunArguments as clap::FromArgMatches>::from_arg_matches(&found)))
}

/// clap knows the help of commands, and nothing of documents; other options after `help` are an
/// error of its own.
fn read_help(argv: &[OsString]) -> Option<Vec<String>> {
    let words = argv.get(1..)?.strip_prefix(&["help".into()])?;
    let word = |word: &OsString| word.to_str().map(str::to_owned);
    let words: Option<Vec<String>> = words
        .iter()
        .filter(|word| *word != "--help" && *word != "-h")
        .map(word)
        .collect();
    words.filter(|words| !words.iter().any(|word| word.starts_with('-')))
}

/// The exit status for what [`read`] returned in place of a command: 0 for help
/// and version that were asked for, otherwise [`STATUS_OWN_ERROR`].
#[must_use]
pub fn status_of(error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        _ => STATUS_OWN_ERROR,
    }
}

/// The whole definition, for completions and manual pages.
#[must_use]
pub fn definition() -> clap::Command {
    CommandLine::command()
}
