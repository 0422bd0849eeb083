//! What is told of connections to the outside, between the process that carries them
//! and the one that records them.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::asking::is_first;
use super::{
    AskedCall, CallDigest, CommandEnd, Consent, CredentialName, Fetched, GivenUp, GivenUps, Issue,
    Limit, Network, Placeholder, Published, Request, Scheme, SshKeys,
};

/// How the failure of a flow begins whose host has a certificate that this host does not accept.
pub const CERTIFICATE_REFUSED: &str = "the host's certificate is not accepted";

/// Why something is refused that a rule could allow.
pub const NO_RULE: &str = "no rule allows it";
/// Why a certificate is not accepted that an authority alone may have.
pub const SIGNED_BY_ITSELF: &str = "it is signed by itself, or a certificate for signing others";
/// Why a name leads nowhere of which nobody can be asked.
pub const NO_NAME_SERVER: &str = "no name server of this host answers";

/// Why something is refused that a rule which names the host could allow.
pub const UNNAMED: &str =
    "only a rule for every host allows it, and an upstream proxy is asked for named ones alone";

/// The longest message of either side, bytes.
pub const FLOW_MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// The longest description of what to carry, bytes: rules, and an authority that names their
/// hosts.
pub const CARRIAGE_BYTES_MAX: usize = 128 * 1024;

/// How a carrier exits that could take no credential, since the kernel would lock no more memory for
/// it (`RLIMIT_MEMLOCK`, getrlimit(2)).
pub const UNLOCKED_STATUS: u8 = 3;

/// What a carrier begins with; the sandbox's listeners come with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carriage {
    /// What may be reached.
    pub network: Network,
    /// Whose certificates the sandbox trusts. Without one nothing within TLS is looked
    /// into, and what would have to be is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<Authority>,
    /// The users of the host who may come to what is published, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub visitors: Vec<u32>,
    /// What stands inside for each credential. The first socket that comes with this has
    /// their values, a message for each, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placeholders: Vec<Placeholder>,
    /// Whether the last file that comes with this, but for policies, has what lock files name, as JSON of
    /// [`Locks`](super::Locks).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_locks: bool,
    /// Whether the last file of all that come with this, but for tokens, has policies that are
    /// asked besides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_policies: bool,
    /// Whether a file comes with this, the last of all, in which stands what other runs of the
    /// session gain: labels, a line each. It is read on whenever labels decide.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_gained: bool,
    /// Whether the last file of all but that has the tokens that the run holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_tokens: bool,
    /// The keys of SSH that may be used. Where there are some, a line to who signs comes next
    /// of the sockets, then one at which an agent is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh: Vec<SshKeys>,
    /// Those of them whose values are not there yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fetched: Vec<Fetched>,
    /// Where logins are issued. What is caught of one goes back by the socket that has values,
    /// which then comes in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<Issue>,
    /// What was given up before.
    #[serde(default, skip_serializing_if = "GivenUps::is_empty")]
    pub given_up: GivenUps,
    /// Whether the program has tried to get out before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_attempted: bool,
    /// Which of the run's policies these are: 0 those that it began with.
    #[serde(default, skip_serializing_if = "is_first")]
    pub policies: u32,
}

/// What signs certificates that a sandbox trusts.
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

/// What the carrier tells: one or more of these in a message, each on a line of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FlowReport {
    /// This is about to happen.
    Open {
        /// Stands for it from here on.
        id: u64,
        /// What it is.
        flow: Flow,
        /// Whether it happens only once it is on disk, and that was said.
        waits: bool,
        /// The approval by which it happens, where a person was to be asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval: Option<u32>,
    },
    /// It has ended.
    Closed {
        /// Which.
        id: u64,
        /// How.
        end: FlowEnd,
    },
    /// This was refused so often, all told.
    Refused {
        /// What it would have been.
        flow: Flow,
        /// Why.
        why: String,
        /// How often.
        count: u64,
    },
    /// A credential is needed: its command is to run now. An earlier one of the same
    /// credential is ended first.
    Command {
        /// Stands for it from here on.
        id: u64,
        /// Whose.
        credential: CredentialName,
    },
    /// A login is to be renewed by who tells this: its file's tokens are needed, and what
    /// becomes of them is to be written.
    Renew {
        /// Stands for it from here on.
        id: u64,
        /// The credential that is its access token.
        credential: CredentialName,
    },
    /// A person is to be asked about this, which waits.
    Ask {
        /// Stands for it from here on.
        id: u64,
        /// What waits.
        call: Box<AskedCall>,
    },
    /// It does not wait any more.
    Left {
        /// What stood for it.
        id: u64,
    },
    /// The program inside gives something up, which counts already; it is told so once that is on
    /// disk.
    GivesUp {
        /// Stands for it from here on.
        id: u64,
        /// What.
        given: Vec<GivenUp>,
    },
    /// What was given up outside counts from here on.
    GaveUp {
        /// Which.
        id: u64,
    },
    /// These policies decide on whatever begins from here on.
    Reloaded {
        /// Which of the run's they are.
        policies: u32,
    },
    /// The session gains a label: what gives it goes on once that is on disk, and that was said.
    Label {
        /// Stands for it.
        id: u64,
        /// Which.
        label: String,
        /// What gives it.
        by: String,
    },
}

/// What the recorder answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FlowOrder {
    /// What was about to happen is on disk.
    Recorded {
        /// Which.
        id: u64,
    },
    /// A command has begun: its output and its error output come with this.
    Running {
        /// Which.
        id: u64,
    },
    /// A command has ended, or has not even begun.
    Ran {
        /// Which.
        id: u64,
        /// How.
        end: CommandEnd,
    },
    /// The file of a login is there to be renewed: what who keeps it is spoken to by comes with
    /// this, or nothing where nobody does.
    Renewing {
        /// Which.
        id: u64,
    },
    /// Another port is published: what listens for it on the host's loopback comes with this.
    Publish {
        /// Which.
        published: Published,
    },
    /// What a person, or somebody for them, says of a call that waits.
    Said {
        /// Which.
        id: u64,
        /// Of what they were asked.
        digest: CallDigest,
        /// What they say.
        consent: Consent,
    },
    /// This is given up; the answer is [`FlowReport::GaveUp`].
    GiveUp {
        /// Stands for it.
        id: u64,
        /// What.
        given: Vec<GivenUp>,
    },
    /// The program has tried to get out of its sandbox.
    Attempted {},
    /// Other policies decide from here on: they come with this as a file that is read from where it
    /// stands, or none do. The answer is [`FlowReport::Reloaded`].
    Reload {
        /// Which of the run's they are.
        policies: u32,
        /// Whether a file of them comes with this: one that is lost on its way is not none.
        has_policies: bool,
    },
    /// No more: what there is ends, and then the carrier.
    End,
}

/// A connection to the outside, or a question for a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// What it is.
    pub kind: FlowKind,
    /// The host as the program named it: a name, or an address.
    pub host: String,
    /// The address that is dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The proxy that dials instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// The port; 0 for a name.
    pub port: u16,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What was asked for, where that was looked into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<FlowRequest>,
    /// The limit of that rule beyond which it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The credentials that are put into it; where it is refused, those whose placeholder
    /// it would have carried elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialName>,
    /// As whom a database is signed in to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<FlowLogin>,
    /// Which of the run's policies have decided: 0 those that it began with.
    #[serde(default, skip_serializing_if = "is_first")]
    pub policies: u32,
}

impl Flow {
    /// One of which no more is known.
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

/// As whom a database is signed in to, as the program says it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowLogin {
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
}

impl FlowLogin {
    /// As whom, to a host, in one word: the user, the host and the database.
    #[must_use]
    pub fn told(&self, host: &str) -> String {
        format!("{}@{host}/{}", self.user, self.database)
    }
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowRequest {
    /// How it is sent.
    pub scheme: Scheme,
    /// Its method.
    pub method: String,
    /// Its path in normal form, without its query.
    pub path: String,
    /// How sure the agent has said it is, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<u8>,
    /// What policies have taken out of it and of its answer, by names alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<String>,
}

/// The longest path that is told, bytes: a message has an end.
const PATH_BYTES_MAX: usize = 2048;

impl FlowRequest {
    /// What is told of a request: of a long path its beginning.
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

/// What a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowKind {
    /// A question for a name's addresses.
    Name,
    /// Bytes both ways, as they are.
    Tunnel,
    /// A request and its answer.
    Request,
    /// Bytes both ways between a program of the host and a port inside.
    Published,
    /// A signature by which a program logs in by SSH.
    SshLogin,
    /// A signature of a commit or a tag.
    CommitSignature,
    /// A request of Atoll's own for a credential.
    Fetch,
    /// A request of Atoll's own by which a credential is taken back.
    Revocation,
    /// A connection to PostgreSQL to which Atoll signs in, or one that ends what another does.
    Postgres,
}

/// How a flow ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowEnd {
    /// From the program, bytes.
    pub up_bytes: u64,
    /// To the program, bytes.
    pub down_bytes: u64,
    /// The status of the answer (RFC 9110, section 15), where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// From its record to its end, microseconds.
    pub duration_us: u64,
    /// What went wrong, if anything did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Whether nothing came back because of that, though it was allowed: no such name, nobody
    /// there, a certificate that is not accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unreached: bool,
    /// The limit of its rule that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The credentials whose placeholders its body had, and that it was sent without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<CredentialName>,
}
