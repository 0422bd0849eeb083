//! Messages about outbound connections, between the egress process and the supervisor that records
//! them.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::asking::is_first;
use super::{
    AskedCall, CallDigest, CommandEnd, Consent, CredentialName, Fetched, GivenUp, GivenUps, Issue,
    Limit, Network, NetworkRule, Placeholder, Published, Request, Scheme, SshKeys,
};

/// The beginning of a flow's failure when this host does not accept the certificate of the flow's
/// host.
pub const CERTIFICATE_REFUSED: &str = "the host's certificate is not accepted";

/// The reason for a refusal that a rule could lift.
pub const NO_RULE: &str = "no rule allows it";
/// The middle of the reason for a refusal by a rule: what it denies, then where it is written.
pub const DENIED_BY: &str = " is denied by ";
/// The reason for refusing a certificate that only an authority may have.
pub const SIGNED_BY_ITSELF: &str = "it is signed by itself, or a certificate for signing others";
/// The reason for a failed lookup when no name server can be asked.
pub const NO_NAME_SERVER: &str = "no name server of this host answers";

/// The reason for a refusal that only a rule naming the host could lift.
pub const UNNAMED: &str =
    "only a rule for every host allows it, and an upstream proxy is asked for named ones alone";

/// The most rules that persons can add while a run goes on.
pub const ALLOWANCES_MAX: usize = 64;

/// The longest message of either side, bytes.
pub const FLOW_MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// The longest [`EgressConfig`], bytes: rules, and an authority that names their hosts.
pub const CARRIAGE_BYTES_MAX: usize = 128 * 1024;

/// The exit status of an egress process that could take no credential because the kernel would not
/// lock more memory for it (`RLIMIT_MEMLOCK`, getrlimit(2)).
pub const UNLOCKED_STATUS: u8 = 3;

/// The configuration that an egress process starts with; the sandbox's listeners come with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressConfig {
    /// The network access to enforce.
    pub network: Network,
    /// The authority whose certificates the sandbox trusts. Without one TLS is not intercepted, and
    /// a connection that would have to be is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<Authority>,
    /// The host's users who may connect to published ports, by uid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub visitors: Vec<u32>,
    /// The placeholder of each credential. The first socket that comes with this has their values,
    /// one message each, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placeholders: Vec<Placeholder>,
    /// Set when the last file that comes with this, except for policies, has the contents of lock
    /// files, as JSON of [`Locks`](super::Locks).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_locks: bool,
    /// Set when the last of all the files that come with this, except for tokens, has policies to
    /// evaluate as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_policies: bool,
    /// Set when a file comes with this, the last of all, with the labels that other runs of the
    /// session gain, one per line. It is read on whenever labels decide.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_gained: bool,
    /// Set when the last of all the files except for labels has the tokens that the run holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_tokens: bool,
    /// The SSH keys that may be used. If there are any, the next two sockets are a channel to the
    /// signer, and the one at which the sandbox connects to an SSH agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh: Vec<SshKeys>,
    /// Those credentials whose values are fetched later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fetched: Vec<Fetched>,
    /// The endpoints that issue logins. Tokens captured from them go back by the socket that has
    /// values, which then comes in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<Issue>,
    /// Rights dropped earlier.
    #[serde(default, skip_serializing_if = "GivenUps::is_empty")]
    pub given_up: GivenUps,
    /// True if the program has had a violation before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_attempted: bool,
    /// The generation of the run's policies: 0 for those that it began with.
    #[serde(default, skip_serializing_if = "is_first")]
    pub policies: u32,
}

/// The authority that signs certificates that a sandbox trusts.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authority {
    /// Its certificate, PEM.
    pub certificate: String,
    /// Its key, PKCS #8 as PEM: a secret.
    pub key: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// A report of the egress process: a message has one or more of these, each on a line of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FlowReport {
    /// A flow is about to start.
    Open {
        /// The flow's id from here on.
        id: u64,
        /// The flow.
        flow: Flow,
        /// Set when it starts only after the supervisor has answered that it is on disk.
        waits: bool,
        /// The approval under which it starts, if a person had to be asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval: Option<u32>,
    },
    /// A flow has ended.
    Closed {
        /// The flow's id.
        id: u64,
        /// The way that it ended.
        end: FlowEnd,
    },
    /// A flow was refused, this many times in total.
    Refused {
        /// The flow as it would have been.
        flow: Flow,
        /// The reason.
        why: String,
        /// The total number of refusals.
        count: u64,
    },
    /// A credential is needed: its command is to run now. An earlier command of the same credential
    /// is ended first.
    Command {
        /// The command's id from here on.
        id: u64,
        /// The credential.
        credential: CredentialName,
    },
    /// A login is to be renewed by the egress process: it needs the tokens of the login's file, and
    /// a way to write their successors.
    Renew {
        /// The renewal's id from here on.
        id: u64,
        /// The credential that is the login's access token.
        credential: CredentialName,
    },
    /// A person is to be asked about this call, which waits.
    Ask {
        /// The call's id from here on.
        id: u64,
        /// The waiting call.
        call: Box<AskedCall>,
    },
    /// A call does not wait any more.
    Left {
        /// The call's id.
        id: u64,
    },
    /// The program in the sandbox drops rights, which is in force already; the program is answered
    /// once it is on disk.
    GivesUp {
        /// The id of the change from here on.
        id: u64,
        /// The dropped rights.
        given: Vec<GivenUp>,
    },
    /// Rights dropped from outside the sandbox are in force from here on.
    GaveUp {
        /// The id of the change.
        id: u64,
    },
    /// These policies decide on everything that begins from here on.
    Reloaded {
        /// The generation of the run's policies.
        policies: u32,
    },
    /// The session gains a label: the flow that gives it goes on once the supervisor has answered
    /// that the label is on disk.
    Label {
        /// The id of the change.
        id: u64,
        /// The label.
        label: String,
        /// The source of the label.
        by: String,
    },
}

/// An answer or order of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FlowOrder {
    /// An announced event is on disk.
    Recorded {
        /// The event's id.
        id: u64,
    },
    /// A command has begun: its standard output and standard error come with this.
    Running {
        /// The command's id.
        id: u64,
    },
    /// A command has ended, or could not be started.
    Ran {
        /// The command's id.
        id: u64,
        /// The way that it ended.
        end: CommandEnd,
    },
    /// A login's file is ready to be renewed: a socket to the process that keeps it comes with
    /// this, or none where no process does.
    Renewing {
        /// The renewal's id.
        id: u64,
    },
    /// Another port is published: a listener on the host's loopback comes with this.
    Publish {
        /// The port.
        published: Published,
    },
    /// The decision on a waiting call, by a person or on their behalf.
    Said {
        /// The call's id.
        id: u64,
        /// The digest of what they were asked.
        digest: CallDigest,
        /// The decision.
        consent: Consent,
    },
    /// These rights are dropped; the answer is [`FlowReport::GaveUp`].
    GiveUp {
        /// The id of the change.
        id: u64,
        /// The dropped rights.
        given: Vec<GivenUp>,
    },
    /// A person allows more while the run goes on: this rule counts from here on.
    Allow(Box<LiveRule>),
    /// The program has had a violation.
    Attempted {},
    /// Other policies decide from here on: they come with this as a file, read from its current
    /// offset, or there are none. The answer is [`FlowReport::Reloaded`].
    Reload {
        /// The generation of the run's policies.
        policies: u32,
        /// Set when a file of policies comes with this: a file lost on its way must not read as
        /// none.
        has_policies: bool,
    },
    /// End every flow, and then the egress process.
    End,
}

/// A rule that a person adds while a run goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveRule {
    /// The rule.
    pub rule: NetworkRule,
    /// Set if it counts for one connection or request.
    pub once: bool,
    /// The authority that signs for the rule's host too, where the sandbox trusts one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<Authority>,
}

/// An outbound connection, or a lookup of a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// The kind of flow.
    pub kind: FlowKind,
    /// The host as the program named it: a name, or an address.
    pub host: String,
    /// The address that is dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The upstream proxy that dials instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// The port; 0 for a name.
    pub port: u16,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The request, where the connection is inspected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<FlowRequest>,
    /// The limit of that rule that it exceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The credentials injected into it; of a refused flow, those whose placeholder it would have
    /// carried to another destination.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialName>,
    /// The user and database of a login that Atoll makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<FlowLogin>,
    /// The generation of the run's policies that decided: 0 for those that it began with.
    #[serde(default, skip_serializing_if = "is_first")]
    pub policies: u32,
}

impl Flow {
    /// Returns a flow without details.
    #[must_use]
    pub fn to(kind: FlowKind, host: String, port: u16) -> Self {
        Self {
            kind,
            host,
            address: None,
            via: None,
            port,
            rule: None,
            request: None,
            limit: None,
            credentials: Vec::new(),
            login: None,
            policies: 0,
        }
    }
}

/// The login to a database, as the program states it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowLogin {
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
}

impl FlowLogin {
    /// Formats the login to a host in one word: the user, the host and the database.
    #[must_use]
    pub fn told(&self, host: &str) -> String {
        format!("{}@{host}/{}", self.user, self.database)
    }
}

/// A request, as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowRequest {
    /// The scheme by which it is sent.
    pub scheme: Scheme,
    /// Its method.
    pub method: String,
    /// Its path in normal form, without its query.
    pub path: String,
    /// The agent's stated confidence, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<u8>,
    /// The names of what policies have redacted from it and from its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<String>,
}

/// The longest recorded path, bytes: a message has a limit.
const PATH_BYTES_MAX: usize = 2048;

impl FlowRequest {
    /// Returns the record of a request, with a long path cut.
    #[must_use]
    pub fn of(request: &Request<'_>) -> Self {
        let path = request.target.path();
        Self {
            scheme: request.scheme,
            method: request.method.to_owned(),
            path: match path.get(..PATH_BYTES_MAX) {
                Some(beginning) if beginning.len() < path.len() => format!("{beginning}…"),
                Some(_) | None => path.to_owned(),
            },
            confidence: None,
            redacted: None,
        }
    }
}

/// The kind of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowKind {
    /// A lookup of a name's addresses.
    Name,
    /// A tunnel: bytes in both directions, unchanged.
    Tunnel,
    /// A request and its answer.
    Request,
    /// Bytes in both directions between a program of the host and a published port of the sandbox.
    Published,
    /// A signature with which a program logs in by SSH.
    SshLogin,
    /// A signature of a commit or a tag.
    CommitSignature,
    /// A request of Atoll's own that fetches a credential.
    Fetch,
    /// A request of Atoll's own that revokes a credential.
    Revocation,
    /// A PostgreSQL connection to which Atoll signs in, or one that cancels a query of such a
    /// connection.
    Postgres,
}

/// The end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowEnd {
    /// Bytes from the program.
    pub up_bytes: u64,
    /// Bytes to the program.
    pub down_bytes: u64,
    /// The status of the answer (RFC 9110, section 15), if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The time from its record to its end, microseconds.
    pub duration_us: u64,
    /// The failure, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Set when the failure left an allowed flow without any answer: an unknown name, an
    /// unreachable host, a certificate that is not accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unreached: bool,
    /// The limit of its rule that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The credentials whose placeholders in its body were masked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<CredentialName>,
}
