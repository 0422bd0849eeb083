//! Descriptions of things, as callers see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::asked::{NetworkAsk, StartAsk};
use super::refusal::Refusal;
use super::volumes::MountAsk;

/// A sandbox, as its callers see it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SandboxFacts {
    /// Its id.
    pub id: String,
    /// Its run in the ledger.
    pub run: String,
    /// The template.
    pub template: String,
    /// `running`, or `paused`.
    pub state: String,
    /// True if it is paused, and its memory is kept: its programs go on as they were.
    #[serde(default)]
    pub memory_kept: bool,
    /// True if it is paused at its time, and not ended.
    pub auto_pause: bool,
    /// True if a request has it go on while it is paused.
    pub auto_resume: bool,
    /// Its begin, milliseconds since 1970.
    pub started_ms: u64,
    /// Its end, as it is set now, milliseconds since 1970.
    pub ends_ms: u64,
    /// The session that it is a part of.
    pub session: Option<String>,
    /// The caller's notes.
    pub metadata: BTreeMap<String, String>,
    /// Processors.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Disk, MiB.
    pub disk_mib: u64,
    /// Processes and threads at once.
    pub processes: u64,
    /// The volumes that are mounted in it.
    #[serde(default)]
    pub volumes: Vec<MountAsk>,
    /// The network, in the words of `serve.toml`.
    pub network: String,
    /// The network that the caller asked for.
    pub asked: Option<NetworkAsk>,
}

/// A sandbox, for whoever may reach it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreatedFacts {
    /// The sandbox.
    pub sandbox: SandboxFacts,
    /// Its access token.
    pub token: String,
    /// The token for its ports, if they take one.
    pub port_token: Option<String>,
    /// The token for its code interpreter, if it has one, and for its ports.
    pub code_token: Option<String>,
    /// True if it was paused before.
    pub resumed: bool,
}

/// A part of a list.
#[derive(Serialize, Deserialize, ToSchema)]
#[allow(missing_docs)]
pub struct Listed {
    pub sandboxes: Vec<SandboxFacts>,
    /// The cursor of the next part, if there is one.
    pub cursor: Option<String>,
    /// The sandboxes that run, in all parts.
    pub running: usize,
}

/// A call that waits for an approver.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ApprovalFacts {
    /// The sandbox.
    pub sandbox: String,
    /// Its number in the sandbox.
    pub approval: u32,
    /// The digest of the call, to decide about this call and no other.
    pub digest: String,
    /// The call: its host, port, request and the rule that asks.
    pub call: serde_json::Value,
    /// Calls like it that wait.
    pub waiting: u32,
    /// The time until it is denied, seconds.
    pub left_s: u64,
}

/// A port at which a program listens.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PortFacts {
    /// The port.
    pub port: u16,
    /// The program's name, as it states it.
    pub program: Option<String>,
    /// The address for whoever may reach it.
    pub url: String,
}

/// A port that is connected.
#[derive(Debug, Serialize, Deserialize)]
pub struct OpenedPort {
    /// The host that requests are to name.
    pub host: Option<String>,
}

/// A link to a port.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// The address for a browser.
    pub url: String,
}

/// The way in which others come to begin with a sandbox's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filed {
    /// No file was copied: they lie beneath each.
    Shared,
    /// Copied, as they were at one moment.
    Copied,
    /// Copied, because as many layers as there can be were beneath them.
    Flattened,
}

impl Filed {
    /// Returns its name in answers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Copied => "copied",
            Self::Flattened => "flattened",
        }
    }
}

/// A copy of a sandbox's files, which others can begin with: as a template.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs)]
pub struct SnapshotFacts {
    pub id: String,
    pub name: Option<String>,
    pub sandbox: String,
    pub created_ms: u64,
}

/// A snapshot that was made.
#[derive(Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct MadeSnapshot {
    pub facts: SnapshotFacts,
    pub filed: Filed,
}

/// The sandboxes that begin with the files of another one.
#[derive(Debug, Serialize, Deserialize)]
pub struct Forks {
    /// Of each that it is made, or why not.
    pub forks: Vec<Result<CreatedFacts, Refusal>>,
    /// The way in which they come to those files.
    pub filed: Filed,
}

/// Events of the ledger, the oldest first.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// Each with `number`, `time`, `run`, `type` and `body`.
    pub events: Vec<serde_json::Value>,
    /// The number to go on from, if there are more.
    pub next: Option<u64>,
}

/// A note that is durable.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct Noted {
    /// The number of its event in the ledger.
    pub number: u64,
}

/// A session: the durable log of one task, apart from its sandboxes and from who works on it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionFacts {
    /// Its name.
    pub name: String,
    /// The ids of its sandboxes, the oldest first; the last hundred.
    pub sandboxes: Vec<String>,
    /// The number of notes in it.
    pub notes: u64,
    /// The time of its first event (RFC 3339).
    pub begun: String,
    /// The time of its last sandbox, or note.
    pub last: String,
}

/// A key, without what it is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs)]
pub struct KeyFacts {
    pub id: String,
    pub tenant: String,
    pub name: String,
    pub role: String,
    /// The scopes within that; everything if there are none.
    pub scopes: Option<Vec<String>>,
    pub created_s: u64,
    pub expires_s: Option<u64>,
    pub revoked_s: Option<u64>,
}

/// A key that was made.
#[derive(Serialize, Deserialize, ToSchema)]
#[allow(missing_docs)]
pub struct MadeKey {
    /// The key: shown this once.
    pub key: String,
    pub facts: KeyFacts,
}

/// Something that happened to a sandbox.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs)]
pub struct LifecycleEventFacts {
    pub id: String,
    pub tenant: String,
    pub sandbox: String,
    pub kind: String,
    pub at_ms: u64,
    pub facts: serde_json::Value,
}

/// A running program.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProcessFacts {
    /// The number of its process in the sandbox.
    pub pid: u32,
    /// The request.
    pub started: StartAsk,
}

/// A program that is followed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct StartedFacts {
    /// The number of its process in the sandbox.
    pub pid: u32,
    /// The output that is lost before what follows, bytes.
    pub lost: u64,
    /// The offset of what follows in all output, bytes.
    pub at: u64,
}

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The status that it returned.
    Exited(u8),
    /// A signal ended it.
    Signalled(u8),
    /// A limit ended it: `memory`, `disk`, `inodes`, `volume`, `wall-clock` or `idle`.
    Limited(String),
    /// The reason for which it was ended, or never began.
    Otherwise(String),
    /// Its time was over.
    Late,
    /// Its sandbox has ended, for this reason.
    Gone(String),
    /// This reader was too slow, and others read on.
    TooSlow,
}

impl End {
    /// Returns the reason in words.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Exited(status) => format!("exit status {status}"),
            Self::Signalled(number) => format!("signal {number}"),
            Self::Limited(limit) => describe_limit(limit),
            Self::Late => "its time was over".to_owned(),
            Self::TooSlow => "its reader was too slow".to_owned(),
            Self::Otherwise(why) | Self::Gone(why) => why.clone(),
        }
    }
}

/// Returns the exit status of a program that a limit of this name ended, as `atoll run` has it.
pub(crate) fn limited_status(limit: &str) -> u8 {
    match limit {
        "wall-clock" | "idle" => 124,
        _ => 137,
    }
}

/// Describes the end of a program by a limit of this name, and the setting that gives more.
pub(crate) fn describe_limit(limit: &str) -> String {
    let why = match limit {
        "memory" => "the sandbox used all the memory that it may have (memory_mib)",
        "disk" => "the sandbox wrote as much as it may (disk_mib)",
        "inodes" => "the sandbox made as many files as it may",
        "volume" => "the volume holds as much as it may (volume_mib)",
        "wall-clock" => "its time was over",
        "idle" => "it had neither input nor output for too long",
        _ => "it was reached",
    };
    format!("{limit} limit: {why}")
}

/// A file.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EntryFacts {
    /// The path.
    pub path: String,
    /// `file`, `directory`, `link` (to nothing) or `other`.
    pub kind: String,
    /// The size, bytes.
    pub size: u64,
    /// The permission bits.
    pub mode: u16,
    /// The owner's name, or number.
    pub owner: String,
    /// The group's name, or number.
    pub group: String,
    /// The time of the last change, nanoseconds since 1970.
    pub modified_ns: i64,
    /// Of a link: its target.
    pub target: Option<String>,
}

/// A file that is opened to be read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FileFacts {
    /// The size of the whole file, bytes.
    pub size: u64,
    /// The first byte of the part that is wanted.
    pub first: u64,
    /// The length of that part, bytes.
    pub length: u64,
}

/// A change in a watched directory.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangeFacts {
    /// `created`, `written`, `removed`, `renamed` or `attributes`.
    pub kind: String,
    /// The path, relative to the watched directory.
    pub name: String,
}

/// The resources in use by a sandbox.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs)]
pub struct Measures {
    pub at_s: u64,
    pub cpus: u32,
    pub cpu_percent: f64,
    pub memory_bytes: u64,
    pub memory_bytes_max: u64,
    pub disk_bytes: u64,
    pub disk_bytes_max: u64,
}

/// The numbers of a worker, of all tenants together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Sandboxes that are alive.
    pub sandboxes: usize,
    /// Programs that run in them.
    pub programs: usize,
    /// Sandboxes that wait for whoever asks for one.
    pub warm: usize,
    /// Those of them that have become a caller's since its begin.
    pub assigned: u64,
    /// Sandboxes that were made since its begin.
    pub created: u64,
    /// Sandboxes that have ended since its begin.
    pub ended: u64,
    /// Requests since its begin.
    pub requests: u64,
    /// Deliveries to webhooks that were received.
    pub webhooks_delivered: u64,
    /// Those that were given up.
    pub webhooks_given_up: u64,
    /// Those that were never tried: too many waited.
    pub webhooks_dropped: u64,
    /// True once it is to end, and makes no sandbox any more.
    pub draining: bool,
    /// True if there is a launcher for sandboxes.
    pub makes: bool,
}
