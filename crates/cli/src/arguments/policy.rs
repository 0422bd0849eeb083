//! The definitions of `atoll policy`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::OrganisationArguments;

/// How long each property may take where nothing else is said.
const PROOF_SECONDS: u16 = 60;

/// Show, check, ask and test policies in Cedar, beside profiles
///
/// They lie in /etc/atoll/*.cedar, in *.cedar beside config.toml, and in those beside a
/// project's atoll.toml that are trusted. Each of these layers only takes away: `atoll help policy`.
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
    Explain(Box<ExplainPolicyArguments>),
    Replay(ReplayPolicyArguments),
    Learn(LearnPolicyArguments),
    Test(TestPolicyArguments),
    Prove(Box<ProvePolicyArguments>),
    Diff(DiffPolicyArguments),
    Organisation(OrganisationArguments),
    Reload(ReloadPolicyArguments),
    Purposes(PurposesArguments),
    Schema(SchemaPolicyArguments),
}

/// Print the Cedar schema: actions, resources, all of `context`
///
/// For an editor's Cedar extension, or to read.
/// Example: atoll policy schema > atoll.cedarschema
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct SchemaPolicyArguments {}

/// List the purposes that narrow what a run may do, or print one
///
/// Those that come with Atoll, and those of NAME.purpose.cedar beside config.toml and in the
/// organisation's directory: all of one name count together, and each only forbids.
/// Example: atoll policy purposes review
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct PurposesArguments {
    /// Print the policies of this one. Default: list all.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Print JSON. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Have runs that go on decide by the policies that there are now
///
/// What begins once this has answered is decided by them, and open connections that they deny
/// end. With a mistake in a file, the policies that were there stay in force. What a run began
/// with stays: its profile, options, places and time.
/// Exit status: 0 where every run that is meant has them, 125 where one keeps those it had.
/// Example: atoll policy reload last
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ReloadPolicyArguments {
    /// The run: its id, its beginning or end, or `last`.
    #[arg(value_name = "RUN")]
    pub run: Option<String>,

    /// All of a session, by its name or id.
    #[arg(long, value_name = "NAME", conflicts_with = "run")]
    pub session: Option<String>,

    /// All that go on.
    #[arg(long, conflicts_with_all = ["run", "session"])]
    pub all: bool,

    /// Only where a solver proves that nothing more is allowed than before. Without it a run has
    /// them at once, and is told afterwards what more they allow, where that can be said.
    #[arg(long, verbatim_doc_comment)]
    pub only_tightening: bool,

    /// How long a proof may take, seconds. Default: 10.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, hide_default_value = true, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub seconds: u16,
}

/// Show which files of policies count, or a profile as policies
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

    /// With the policies of the level that this profile names. Default: default.
    #[arg(long, value_name = "NAME", conflicts_with = "cedar", value_hint = ValueHint::FilePath)]
    pub profile: Option<OsString>,

    /// With a preset of a level and a mode that comes with Atoll. Default: none.
    #[arg(long, value_name = "NAME", conflicts_with = "cedar")]
    pub preset: Vec<String>,

    /// With the policies of this purpose, and print them. Default: what the profile names.
    #[arg(long, value_name = "NAME", conflicts_with = "cedar")]
    pub purpose: Option<String>,
}

/// Check files of policies: mistakes, and what changes nothing
///
/// Exit status: 0 without mistakes, 1 with some. What a policy asks for and this build
/// does not do is one; a policy that another one stands in the way of is only told.
/// Example: atoll policy check ./atoll.cedar
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct CheckPolicyArguments {
    /// The files. Default: those that count here, and those of the project that are not trusted.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,

    /// Without mistakes, prove besides what atoll policy prove does without a property; its status
    /// counts then.
    #[arg(long, verbatim_doc_comment)]
    pub prove: bool,
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
    #[arg(value_name = "ACTION", required = true, verbatim_doc_comment)]
    pub what: Option<String>,

    /// With what: a program, an absolute path, a host, a credential's name, a port.
    #[arg(value_name = "RESOURCE", required = true)]
    pub resource: Option<String>,

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

    /// Of a request; of those that everybody knows in small letters too. Default: GET.
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

    /// What else a case of a test can say, in TOML, as 'trust = "none"'.
    #[arg(long, value_name = "TOML")]
    pub with: Vec<String>,

    /// With a preset of a level and a mode, or of rules, that comes with Atoll. Default: none.
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub preset: Vec<String>,

    /// With the policies of this level of trust. Default: what the profile names.
    #[arg(long, value_name = "LEVEL", conflicts_with = "file")]
    pub trust: Option<String>,

    /// In this mode: strict, layered, permissive. Default: what the profile names.
    #[arg(long, value_name = "MODE", conflicts_with = "file")]
    pub mode: Option<String>,

    /// What is to be done, as a person states it. Default: not stated.
    #[arg(long, value_name = "TEXT")]
    pub task: Option<String>,

    /// What it is for, as a person states it, with its policies. Default: not stated.
    #[arg(long, value_name = "TEXT")]
    pub purpose: Option<String>,

    /// What the session has touched, as private or untrusted; for several say it again.
    /// Default: not stated.
    #[arg(long, value_name = "NAME", value_parser = parse_label, verbatim_doc_comment)]
    pub label: Vec<String>,

    /// How sure the agent says it is, percent: 0 to 100. Default: not stated.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub confidence: Option<u8>,

    /// With this reputation of the agent, 0 to 100. Default: what the ledger says of the profile.
    #[arg(long, value_name = "POINTS", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub reputation: Option<u8>,
}

/// Explain what decides on something, and what would allow it
///
/// A question as of `atoll policy ask`, but with the profile's rules, and with what a request
/// needs besides: its connection and its name. Of a run what was refused is asked again, by the
/// rules and policies that there are now; its bodies and queries are not recorded, and stand for
/// none. A change that is told was decided on: with it, it is allowed.
/// Exit status: 0 allowed, 126 denied or to be approved, 125 for what cannot be asked.
/// Example: atoll policy explain request api.example.com --method POST --path /v1/items
/// Example: atoll policy explain --run last
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(
    verbatim_doc_comment,
    mut_arg("what", |one| one.required(false).required_unless_present_any(["run", "event"]).conflicts_with("run")),
    mut_arg("resource", |one| one.required(false).required_unless_present_any(["run", "event"]))
)]
pub struct ExplainPolicyArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub question: AskPolicyArguments,

    /// What was refused in this run: its id, its beginning or end, or `last`.
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,

    /// One event of that run, by its number (atoll ledger query --run RUN). Default: what was
    /// refused or asked about.
    #[arg(long, value_name = "NUMBER", requires = "run", verbatim_doc_comment)]
    pub event: Option<u64>,

    /// Print JSON. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Re-evaluate recorded decisions under current rules
///
/// Tells what would be denied, asked about or allowed that was not, how often and by what, and
/// what cannot be put again since the ledger does not have it. Each run is asked about with its
/// own options, profile and program, at its own time.
/// Exit status: 0 where all is decided as before, 1 where something is not, 3 where nothing is
/// found otherwise and whole runs could not be put, as those that were shredded.
/// Example: atoll policy replay --since 7d
/// Example: atoll policy replay --since 2026-11-21 --with ./new.cedar
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ReplayPolicyArguments {
    /// From when on: a duration before now, or the beginning of a time (UTC).
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub since: String,

    /// With these files of policies beside those of now; one that has the name of one of yours
    /// stands in its place. Default: those of now.
    #[arg(long, value_name = "FILE", num_args = 1.., verbatim_doc_comment, value_hint = ValueHint::FilePath)]
    pub with: Vec<PathBuf>,

    /// Print JSON. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Print the least policies that let recorded runs go through again
///
/// Programs, hosts, methods and paths as they were used, and what such a run is asked about
/// before it starts: its places, credentials and ports. What was widened, as many paths to what
/// they share, says so in a comment.
/// Example: atoll policy learn last > ~/.config/atoll/learnt.cedar
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct LearnPolicyArguments {
    /// The runs: their ids, beginnings or ends, or `last`.
    #[arg(value_name = "RUN", default_value = atoll_engine::finding::RUN_LAST)]
    pub runs: Vec<String>,

    /// The runs of a session instead, by its name or id.
    #[arg(long, value_name = "NAME", conflicts_with = "runs")]
    pub session: Option<String>,
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

/// Prove what no request can do, or show one that does
///
/// The prover, atoll-prove, and the solver, cvc5, look at every request that there can be: both
/// are programs of their own, beside atoll or in PATH; CVC5 names a solver elsewhere. Without a
/// property these are proven: that no policy fails, that each one matters (not of a profile, nor
/// with --trust), and that nobody reaches 169.254.169.254.
/// Exit status: 0 all is proven, 1 something is refuted, 2 something cannot be said, 3 the
/// prover or the solver is not there.
/// Example: atoll policy prove ./atoll.cedar --never-allows connect
/// Example: atoll policy prove new.cedar --only-tightens old.cedar
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct ProvePolicyArguments {
    /// Files of policies, as one layer, or a profile's name. Default: all that counts here.
    #[arg(value_name = "FILE|NAME", value_hint = ValueHint::FilePath)]
    pub of: Vec<PathBuf>,

    /// Of all that counts here, with what this level of trust says.
    #[arg(long, value_name = "LEVEL", conflicts_with = "of")]
    pub trust: Option<String>,

    /// In this mode: strict, layered, permissive.
    #[arg(long, value_name = "MODE", conflicts_with = "of")]
    pub mode: Option<String>,

    /// No policy fails, whatever is asked: one that does denies.
    #[arg(long)]
    pub never_errors: bool,

    /// Each policy is about something, and without it something would be decided otherwise.
    #[arg(long)]
    pub every_policy_matters: bool,

    /// No name is asked for there, no connection is made and no request sent: a name, *.NAME,
    /// an address, or a block of them.
    #[arg(long, value_name = "HOST", verbatim_doc_comment)]
    pub nobody_reaches: Vec<String>,

    /// This is never allowed: an action, as connect.
    #[arg(long, value_name = "ACTION")]
    pub never_allows: Vec<String>,

    /// Of --never-allows: where this holds, in Cedar. Default: anywhere.
    #[arg(long = "where", value_name = "CONDITION", requires = "never_allows")]
    pub condition: Option<String>,

    /// All that is allowed is allowed by this older file too, and what it asks about asked about.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub only_tightens: Vec<PathBuf>,

    /// Exactly what this file allows is allowed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub same: Vec<PathBuf>,

    /// How long each property may take. Default: 60.
    #[arg(long, value_name = "SECONDS", default_value_t = PROOF_SECONDS, hide_default_value = true, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub seconds: u16,

    /// Print it as JSON.
    #[arg(long)]
    pub json: bool,
}

impl ProvePolicyArguments {
    /// Options for proving these files.
    pub(crate) fn of(files: &[PathBuf]) -> Self {
        Self {
            of: files.to_vec(),
            trust: None,
            mode: None,
            never_errors: false,
            every_policy_matters: false,
            nobody_reaches: Vec::new(),
            never_allows: Vec::new(),
            condition: None,
            only_tightens: Vec::new(),
            same: Vec::new(),
            seconds: PROOF_SECONDS,
            json: false,
        }
    }
}

/// Show what another version of a file of policies changes
///
/// Which policies are new, gone and different, and, where the prover and the solver are there, a
/// request that is allowed now and was not, and one that no longer is.
/// Exit status: 0 the same is allowed, 1 something else, 2 it cannot be said, 3 the prover or
/// the solver is not there.
/// Example: atoll policy diff old.cedar new.cedar
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct DiffPolicyArguments {
    /// The version that was.
    #[arg(value_name = "OLD", value_hint = ValueHint::FilePath)]
    pub old: PathBuf,

    /// The version that is to be.
    #[arg(value_name = "NEW", value_hint = ValueHint::FilePath)]
    pub new: PathBuf,

    /// How long the solver may take for each direction. Default: 60.
    #[arg(long, value_name = "SECONDS", default_value_t = PROOF_SECONDS, hide_default_value = true, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub seconds: u16,

    /// Print it as JSON.
    #[arg(long)]
    pub json: bool,
}

/// A label as sessions have them: a name, or `secret:` and that of a credential.
fn parse_label(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("secret:").unwrap_or(text);
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match !name.is_empty() && name.bytes().all(is_known) {
        true => Ok(text.to_owned()),
        false => Err(
            "it is one name, as private, untrusted or secret:NAME; say --label again for another"
                .to_owned(),
        ),
    }
}
