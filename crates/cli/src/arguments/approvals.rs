//! The definitions of the commands by which a person answers a run that goes on, or ends it.

use clap::{Args, Subcommand};

const APPROVALS_EXAMPLES: &str = "\
Examples:
  atoll approvals                      what waits for an answer
  atoll approvals show k7qd.1          one question, whole
  atoll approvals grant k7qd.1         this call, once
  atoll approvals grant 1              the same, where one run asks
  atoll approvals grant k7qd.1 --for 15m   the same again for 15 minutes
  atoll approvals deny k7qd.1 --stop   no, and the run ends
  atoll approvals revoke k7qd.1        a lease ends now
  atoll approvals list --of ada        what waits for a second person beside ada";

const STOP_EXAMPLES: &str = "\
Examples:
  atoll stop last
  atoll stop 7f3kq x9w2m
  atoll stop --session fix-login
  atoll stop --agent codex
  atoll stop --all";

/// Answer what runs ask before it goes out
///
/// A run asks where a rule says so: `ask` under [network] of a profile, --ask. What is asked
/// about waits two minutes, then it is denied. Where the organisation or your config.toml says
/// `widen = 2` under [approvals], what lasts (--run, --for) takes two persons.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment, after_help = APPROVALS_EXAMPLES)]
pub struct ApprovalsArguments {
    /// What to do. Default: list.
    #[command(subcommand)]
    pub action: Option<ApprovalsAction>,
}

/// What to do. The variants have no text of their own.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
#[allow(missing_docs)]
pub enum ApprovalsAction {
    #[command(alias = "ls")]
    List(ListApprovalsArguments),
    Show(ShowApprovalArguments),
    #[command(aliases = ["allow", "approve"])]
    Grant(GrantApprovalArguments),
    Deny(DenyApprovalArguments),
    Revoke(RevokeApprovalArguments),
}

impl Default for ApprovalsAction {
    fn default() -> Self {
        Self::List(ListApprovalsArguments::default())
    }
}

/// List what waits for an answer, and what was granted for longer
///
/// With ATOLL_API_KEY set, also what sandboxes of its server wait for (ATOLL_URL).
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ListApprovalsArguments {
    /// Print JSON: one array, an object for each run. Default: text.
    #[arg(long)]
    pub json: bool,

    /// A run of this user, who names you in `approvers`. Default: your own.
    #[arg(long, value_name = "USER")]
    pub of: Option<String>,
}

/// Show one question with all that is known of what it is about
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ShowApprovalArguments {
    /// The question: RUN.NUMBER as it is listed, or its number where one run asks.
    #[arg(value_name = "QUESTION")]
    pub question: String,

    /// Print JSON: one object. Default: text.
    #[arg(long)]
    pub json: bool,

    /// A run of this user, who names you in `approvers`. Default: your own.
    #[arg(long, value_name = "USER")]
    pub of: Option<String>,
}

/// Let what waits go out
///
/// Once, if nothing else is said: exactly what was shown. For longer it is for the same host,
/// port, scheme, method and path, with whatever query and body.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct GrantApprovalArguments {
    /// The question: RUN.NUMBER as it is listed, or its number where one run asks.
    #[arg(value_name = "QUESTION")]
    pub question: String,

    /// This call alone. That is the default.
    #[arg(long, conflicts_with_all = ["run", "time"])]
    pub once: bool,

    /// The same again until the run ends.
    #[arg(long, conflicts_with = "time")]
    pub run: bool,

    /// The same again for so long, a day at most. Example: --for 15m
    #[arg(long = "for", value_name = "TIME")]
    pub time: Option<String>,

    /// With --run or --for: whatever the same rule asks about. Default: the same call.
    #[arg(long, conflicts_with = "once")]
    pub whole_rule: bool,

    /// The digest of what you were shown; another one counts for nothing. Default: that of
    /// what waits now.
    #[arg(long, value_name = "SHA256", verbatim_doc_comment)]
    pub digest: Option<String>,

    /// A run of this user, who names you in `approvers`. Default: your own.
    #[arg(long, value_name = "USER")]
    pub of: Option<String>,
}

/// Do not let it go out
///
/// The same is then denied for half a minute without a question, and longer each time.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub struct DenyApprovalArguments {
    /// The question: RUN.NUMBER as it is listed, or its number where one run asks.
    #[arg(value_name = "QUESTION")]
    pub question: String,

    /// End the run as well. Default: it goes on, and is told.
    #[arg(long)]
    pub stop: bool,

    /// A run of this user, who names you in `approvers`. Default: your own.
    #[arg(long, value_name = "USER")]
    pub of: Option<String>,
}

/// Take back what was granted for longer
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct RevokeApprovalArguments {
    /// The lease: RUN.NUMBER as it is listed, or its number where one run has some.
    #[arg(value_name = "LEASE")]
    pub lease: String,
}

/// End runs that go on, with everything in them, now
///
/// Their connections are cut and their processes ended without a word to them; their records say
/// who did that. What they have changed is kept as at any other end.
/// Several are told at once; one that cannot be ended holds up no other, and the status is 125.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(verbatim_doc_comment, after_help = STOP_EXAMPLES)]
pub struct StopArguments {
    /// The runs, one or several: each by its id, its beginning or end, or `last`.
    #[arg(value_name = "RUN")]
    pub runs: Vec<String>,

    /// All that go on.
    #[arg(long, conflicts_with = "runs")]
    pub all: bool,

    /// All of a session, by its name or id.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["runs", "all"])]
    pub session: Option<String>,

    /// All of an agent, by the name of its profile.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["runs", "all", "session"])]
    pub agent: Option<String>,
}
