//! The requests of the front to the worker, and the answers.
//!
//! Each request is a connection of its own: a [`Hello`], then what the [`Ask`] says, then
//! [`Reply`]s. Bytes of files and streams go in frames of their own ([`crate::line`]).

mod asked;
mod facts;
mod refusal;
mod templates;
mod volumes;
mod webhooks;

use serde::{Deserialize, Serialize};

pub(crate) use asked::object;
pub use asked::{
    CreateAsk, DecideAsk, EventsAsk, KeysAsk, ListAsk, NetworkAsk, SizesAsk, SnapshotsAsk,
    StartAsk, TerminalSize,
};
pub use facts::{
    ApprovalFacts, ChangeFacts, Counts, End, EntryFacts, Filed, KeyFacts, LifecycleEventFacts,
    Measures, PortFacts, ProcessFacts, SandboxFacts, SessionFacts, SnapshotFacts,
};
pub(crate) use facts::{describe_limit, limited_status};
pub use refusal::{Kind, Refusal};
pub use templates::{
    BuildFacts, BuildFrom, BuildLine, BuildPlan, BuildState, BuildStep, RegistryLogin,
    TemplateFacts, TemplatesAsk,
};
pub use volumes::{ContentAsk, ContentFacts, MountAsk, VolumeAsk, VolumeFacts, VolumesAsk};
pub use webhooks::{Secret, WebhookAsk, WebhookFacts, WebhooksAsk};

/// The version of the protocol. A worker also takes the one before.
pub const VERSION: u32 = 1;

/// The name of a signed link to a port, in a query and in a cookie.
pub const LINK: &str = "atoll-link";

/// The longest time for which such a link is good, seconds.
pub const LINK_LASTS_S_MAX: u64 = 7 * 24 * 60 * 60;

/// The port of E2B's own services in a sandbox.
pub const ENVD_PORT: u16 = 49983;

/// The port of the code interpreter, as E2B has it.
pub const INTERPRETER_PORT: u16 = 49999;

/// Returns whether what listens at a port runs code or reads files for whoever asks: no such port is
/// public, whatever else is said of ports.
#[must_use]
pub const fn is_service(port: u16) -> bool {
    matches!(port, ENVD_PORT | INTERPRETER_PORT)
}

/// The template with an interpreter of code, as E2B's SDK names it.
pub const CODE_INTERPRETER: &str = "code-interpreter-v1";

/// The templates that are shipped: the host's system, with an empty home; the last with an
/// interpreter of code.
pub const TEMPLATES: [&str; 3] = ["base", "default", CODE_INTERPRETER];

/// The beginning of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// The credential of the caller.
    pub credential: Credential,
    /// A name for the request: one with the same name is not carried out again.
    pub once: Option<String>,
    /// The trace id of the request.
    pub trace: Option<String>,
    /// The request.
    pub ask: Ask,
}

/// The credential of a caller, as it came: the worker checks it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    /// None.
    Nothing,
    /// A key of a caller, or a token of an issuer.
    Key(String),
    /// The access token of the sandbox that is asked for.
    Token(String),
    /// A signature for one path of one sandbox.
    Signature {
        /// The signature.
        signature: String,
        /// The user's name, as signed.
        user: String,
        /// The path, as signed.
        path: String,
        /// The time from which it is refused, seconds since 1970.
        expires_s: Option<u64>,
    },
    /// A signed link to one port of one sandbox: its end, seconds since 1970, and the signature.
    Link(u64, String),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Key(_) => "Key",
            Self::Token(_) => "Token",
            Self::Signature { .. } => "Signature",
            Self::Link(..) => "Link",
        })
    }
}

/// A request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Make a sandbox: [`Reply::Created`].
    Create(Box<CreateAsk>),
    /// List the tenant's sandboxes: [`Reply::Sandboxes`].
    List(ListAsk),
    /// Count what the worker holds: [`Reply::Counted`]. Needs no credential.
    Count,
    /// Say when the body of a request may be read, of whoever a credential is of: [`Reply::Done`]. Its
    /// place is taken until the connection is closed.
    Permit {
        /// The sandbox that the request is for.
        sandbox: Option<String>,
        /// The volume that it is for.
        volume: Option<String>,
    },
    /// Make, list and revoke keys.
    Keys(KeysAsk),
    /// Make, list, change and remove webhooks.
    Webhooks(WebhooksAsk),
    /// Tell what happened to the tenant's sandboxes: [`Reply::LifecycleEvents`].
    LifecycleEvents {
        /// One sandbox, also one that has ended.
        sandbox: Option<String>,
        /// The number of those left out at the beginning.
        offset: u64,
        /// The most that are returned.
        limit: u64,
        /// True to begin with the oldest.
        oldest_first: bool,
    },
    /// Return what the ledger has of the tenant's sandboxes: [`Reply::Events`].
    Events(EventsAsk),
    /// Prove that one of these is in the ledger: [`Reply::Text`].
    Proof {
        /// Its number.
        number: u64,
    },
    /// List the tenant's sessions: [`Reply::Sessions`].
    Sessions,
    /// Add a note to a session: [`Reply::Noted`].
    Note {
        /// Its name.
        session: String,
        /// The note: JSON.
        note: serde_json::Value,
    },
    /// Sign the ledger as it is: [`Reply::Text`].
    Checkpoint,
    /// List what waits for an approver: [`Reply::Approvals`].
    Approvals,
    /// List and remove snapshots.
    Snapshots(SnapshotsAsk),
    /// Build, list and remove templates.
    Templates(TemplatesAsk),
    /// Take the frames that follow as files for a build: [`Reply::Done`]. Needs no other credential.
    Upload {
        /// The template.
        template: String,
        /// The caller's name for the files.
        upload: String,
        /// The token of the build.
        token: String,
    },
    /// Make, list and remove volumes.
    Volumes(VolumesAsk),
    /// Something of the files of one volume.
    Content {
        /// Its id, or name.
        volume: String,
        /// The request.
        ask: ContentAsk,
    },
    /// Something of one sandbox.
    In {
        /// The sandbox; `None` only with a signature, which finds it.
        sandbox: Option<String>,
        /// The request.
        ask: InAsk,
    },
}

/// A request of one sandbox. Paths are absolute, or relative to the home.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InAsk {
    /// Say if it is there: [`Reply::Done`]. Needs no credential.
    Alive,
    /// Describe it: [`Reply::Sandbox`].
    Get,
    /// Describe it with its access token: [`Reply::Created`]. Its life is made longer, never
    /// shorter.
    Connect {
        /// Its life from now on, seconds.
        timeout_s: Option<u64>,
    },
    /// End it: [`Reply::Done`].
    Kill,
    /// Have its programs stand still, or end them, and keep its files until it goes on:
    /// [`Reply::Paused`].
    Pause {
        /// True if its memory is to be kept where there is room.
        memory: bool,
    },
    /// Copy its files for others to begin with: [`Reply::Snapshot`].
    Snapshot {
        /// A name for the copy.
        name: Option<String>,
    },
    /// Make others that begin with its files: [`Reply::Forks`].
    Fork {
        /// The number of them.
        count: usize,
        /// Their life, seconds.
        timeout_s: Option<u64>,
    },
    /// End its programs and go on with the files of a snapshot: [`Reply::Created`].
    RollBack {
        /// The snapshot's id, or name.
        snapshot: String,
    },
    /// Set its life from now on: [`Reply::Done`].
    SetTimeout {
        /// Seconds; 0 ends it.
        timeout_s: u64,
        /// True if its life is only made longer.
        extends: bool,
    },
    /// Start a program: [`Reply::Started`], frames of its output, [`Reply::Ended`].
    Start(Box<StartAsk>),
    /// Start a program whose output waits a while for whoever follows it: [`Reply::Started`].
    Launch(Box<StartAsk>),
    /// Follow a program's output: as [`InAsk::Start`].
    Attach {
        /// The program.
        process: Selector,
        /// The offset from which on; only what is new if `None`.
        from: Option<u64>,
    },
    /// List the running programs: [`Reply::Processes`].
    Processes,
    /// Write the frames that follow to a program's input: [`Reply::Done`] at their end.
    Input {
        /// The program.
        process: Selector,
    },
    /// Close a program's input: [`Reply::Done`].
    CloseInput {
        /// The program.
        process: Selector,
    },
    /// Send a program a signal: [`Reply::Done`].
    Signal {
        /// The program.
        process: Selector,
        /// The signal's number.
        number: u8,
    },
    /// Set the size of a program's terminal: [`Reply::Done`].
    Resize {
        /// The program.
        process: Selector,
        /// The size.
        terminal: TerminalSize,
    },
    /// Describe a file: [`Reply::Entries`].
    Stat {
        /// The file.
        path: String,
    },
    /// List a directory: [`Reply::Entries`].
    ListDirectory {
        /// The directory.
        path: String,
        /// The levels, at least 1.
        depth: u32,
    },
    /// Make a directory: [`Reply::Entries`].
    MakeDirectory {
        /// The directory.
        path: String,
    },
    /// Move a file: [`Reply::Entries`].
    Move {
        /// The old path.
        from: String,
        /// The new path.
        to: String,
    },
    /// Remove a file or directory: [`Reply::Done`].
    Remove {
        /// The path.
        path: String,
    },
    /// Open a file to read it: [`Reply::File`], then its descriptor.
    Read {
        /// The path.
        path: String,
        /// The part that is wanted.
        range: Option<ByteRange>,
    },
    /// Open a file to write it from empty: [`Reply::Opened`], then its descriptor; once the end of
    /// the frames is told, [`Reply::Entries`].
    Write {
        /// The path.
        path: String,
    },
    /// Tell of changes in a directory: [`Reply::Done`], then [`Reply::Changed`] until the
    /// connection is closed.
    Watch {
        /// The directory.
        path: String,
        /// True for the directories in it too.
        recursive: bool,
    },
    /// Note changes in a directory: [`Reply::Watcher`].
    MakeWatcher {
        /// The directory.
        path: String,
        /// True for the directories in it too.
        recursive: bool,
    },
    /// Take what a watcher has noted: [`Reply::Changed`].
    Watched {
        /// The watcher.
        watcher: String,
    },
    /// End a watcher: [`Reply::Done`].
    RemoveWatcher {
        /// The watcher.
        watcher: String,
    },
    /// Measure it: [`Reply::Measured`].
    Measure,
    /// List what listens in it: [`Reply::Ports`].
    Ports,
    /// Decide what waits for an approver: [`Reply::Done`].
    Decide {
        /// Its number in the sandbox.
        approval: u32,
        /// The decision.
        decision: DecideAsk,
    },
    /// Put another network in the place of the one it has: [`Reply::Done`].
    SetNetwork(NetworkAsk),
    /// Change what its programs may use, while they run: [`Reply::Done`].
    SetSizes(SizesAsk),
    /// Make a link to one of its ports: [`Reply::Link`].
    Link {
        /// The port.
        port: u16,
        /// The time for which it is good, seconds.
        lasts_s: u64,
    },
    /// Connect to one of its ports: [`Reply::Connected`], then bytes both ways.
    Port {
        /// The port.
        port: u16,
    },
}

/// A part of a file, as of RFC 9110, 14.1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByteRange {
    /// From a byte on, to another one if given, both included.
    From(u64, Option<u64>),
    /// The last bytes.
    Last(u64),
}

/// The name of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// By the number of its process in the sandbox.
    Pid(u32),
    /// By the name that it was started with.
    Tag(String),
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Reply {
    Done,
    Refused(Refusal),
    Created {
        sandbox: Box<SandboxFacts>,
        token: String,
        /// The token for its ports, if they take one.
        port_token: Option<String>,
        /// The token for its code interpreter, if it has one, and for its ports.
        code_token: Option<String>,
        /// True if it was paused before.
        resumed: bool,
    },
    /// One is paused: true if its memory is kept.
    Paused(bool),
    Snapshot(SnapshotFacts, Filed),
    Snapshots(Vec<SnapshotFacts>),
    Templates(Vec<TemplateFacts>),
    Template(Box<TemplateFacts>),
    /// A build that waits for its plan.
    Build {
        template: String,
        build: String,
    },
    UploadToken(String),
    BuildStatus(Box<BuildFacts>),
    /// A volume, with the token by which its files are reached.
    Volume(VolumeFacts, Option<String>),
    Volumes(Vec<VolumeFacts>),
    Content(Vec<ContentFacts>),
    /// Of each fork that it is made, or why not.
    Forks(Vec<Result<Box<Reply>, Refusal>>, Filed),
    Sandbox(Box<SandboxFacts>),
    Sandboxes {
        sandboxes: Vec<SandboxFacts>,
        /// The begin of the next part, if there is one.
        cursor: Option<String>,
        running: usize,
    },
    Keys(Vec<KeyFacts>),
    /// A key that was made, with what it is.
    Key(KeyFacts, String),
    LifecycleEvents(Vec<LifecycleEventFacts>),
    Webhook(WebhookFacts),
    Webhooks(Vec<WebhookFacts>),
    Started {
        pid: u32,
        /// The output that is lost before what follows, bytes.
        lost: u64,
        /// The offset of what follows in all output, bytes.
        at: u64,
    },
    Ended(End),
    Processes(Vec<ProcessFacts>),
    Entries(Vec<EntryFacts>),
    Opened,
    File {
        /// The size of the whole file, bytes.
        size: u64,
        /// The part that is wanted: its first byte, and its length.
        first: u64,
        length: u64,
    },
    Changed(Vec<ChangeFacts>),
    Counted(Counts),
    Watcher(String),
    Connected {
        /// The host that requests are to name.
        host: Option<String>,
    },
    Link(String),
    Ports(Vec<PortFacts>),
    Events {
        events: Vec<serde_json::Value>,
        next: Option<u64>,
    },
    Text(String),
    Sessions(Vec<SessionFacts>),
    /// The number of the event that a note is.
    Noted(u64),
    Approvals(Vec<ApprovalFacts>),
    Measured(Measures),
}
