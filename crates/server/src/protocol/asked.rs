//! Requests about keys, the ledger and snapshots, and those parts of requests that have many members.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::facts::*;
use super::request::requests;
use super::volumes::MountAsk;

requests! {
    /// A request about keys.
    KeysAsk {
        /// Lists them.
        ListKeys {} -> Vec<KeyFacts>;
        /// Makes one: for the caller's own tenant if none is named, for everything that the role may
        /// if no scopes are. From `expires_s` on it is refused (seconds since 1970).
        MakeKey {
            tenant: Option<String>, name: String, role: String, scopes: Option<Vec<String>>,
            expires_s: Option<u64>
        } -> MadeKey;
        /// Revokes one.
        RevokeKey { id: String } -> ();
    }
}

requests! {
    /// A request about the ledger, or approvals.
    LedgerAsk {
        /// Returns what the ledger has of the tenant's sandboxes.
        ListEvents(EventsAsk) -> EventList;
        /// Proves that the event of this number is in the ledger.
        Prove { number: u64 } -> String;
        /// Signs the ledger as it is.
        Checkpoint {} -> String;
        /// Lists the tenant's sessions.
        ListSessions {} -> Vec<SessionFacts>;
        /// Adds a note to a session.
        AddNote { session: String, note: serde_json::Value } -> Noted;
        /// Lists what waits for an approver.
        ListApprovals {} -> Vec<ApprovalFacts>;
    }
}

requests! {
    /// A request about snapshots.
    SnapshotsAsk {
        /// Lists them, or those of one sandbox.
        ListSnapshots { sandbox: Option<String> } -> Vec<SnapshotFacts>;
        /// Removes one, by its id or name.
        RemoveSnapshot { id: String } -> ();
    }
}

/// Events of the ledger.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EventsAsk {
    /// Only those of this run.
    pub run: Option<String>,
    /// Only those of this sandbox, also one that has ended.
    pub sandbox: Option<String>,
    /// Only those of this session.
    pub session: Option<String>,
    /// Only those of this type, or whose type begins with it and a dot.
    pub kind: Option<String>,
    /// Only those with this number or a later one.
    pub from: u64,
    /// The most that are returned.
    pub limit: usize,
}

/// A decision of an approver.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecideAsk {
    /// The digest of the call that was shown.
    pub digest: String,
    /// True to grant it.
    pub grant: bool,
    /// True to grant all such calls while the sandbox lives, and not this one alone.
    #[serde(default)]
    pub lasting: bool,
}

/// A sandbox to make.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CreateAsk {
    /// The template.
    pub template: String,
    /// Its life, seconds; the server's default if `None`.
    pub timeout_s: Option<u64>,
    /// The caller's notes about it.
    pub metadata: BTreeMap<String, String>,
    /// Variables of all its programs.
    pub environment: BTreeMap<String, String>,
    /// Processors; the server's default if `None`, as of the next three.
    pub cpus: Option<u32>,
    /// Memory, MiB.
    pub memory_mib: Option<u64>,
    /// Disk, MiB.
    pub disk_mib: Option<u64>,
    /// Processes and threads at once.
    pub processes: Option<u64>,
    /// The session that it is a part of, which begins with its first sandbox or note.
    pub session: Option<String>,
    /// The volumes that are mounted in it.
    pub volumes: Vec<MountAsk>,
    /// The artifacts that it reads, as they were when it was made.
    pub inputs: Vec<InputAsk>,
    /// The network that the caller asks for; the server's default if `None`.
    #[serde(deserialize_with = "object")]
    pub network: Option<NetworkAsk>,
    /// True if it is paused at its time, and not ended.
    pub auto_pause: bool,
    /// False if its files alone are kept then, and not its memory too where there is room.
    pub auto_pause_memory: Option<bool>,
    /// True if a request with its token, or with a key, has it go on while it is paused.
    pub auto_resume: bool,
    /// True if its ports are reached by a token of their own alone.
    pub private_ports: bool,
    /// The host that requests to its ports name, in place of the one that callers do; `${PORT}` in
    /// it is the port.
    pub port_host: Option<String>,
}

/// An input of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InputAsk {
    /// Its name, below `/inputs`: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// The id of an artifact of the tenant that was promoted.
    pub artifact: String,
}

/// Reads an object, if there is one: of a list its items would be taken for members, in their order,
/// so that one without any asked for nothing.
pub(crate) fn object<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    match Option::<serde_json::Value>::deserialize(from)? {
        None => Ok(None),
        Some(value) if value.is_object() => serde_json::from_value(value)
            .map(Some)
            .map_err(serde::de::Error::custom),
        Some(_) => Err(serde::de::Error::custom("it is no JSON object")),
    }
}

/// A network, within what the server allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkAsk {
    /// False to close it.
    pub internet: Option<bool>,
    /// The destinations that are reached: names, addresses and networks.
    pub allow: Vec<String>,
    /// Those that are not: addresses and networks.
    pub deny: Vec<String>,
}

/// Resources of a living sandbox; what is `None` is left as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SizesAsk {
    /// Processors.
    pub cpus: Option<u32>,
    /// Memory, MiB.
    pub memory_mib: Option<u64>,
}

/// A part of the list of sandboxes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListAsk {
    /// Only those with these notes.
    pub metadata: BTreeMap<String, String>,
    /// Only those of this template.
    pub template: Option<String>,
    /// Only those that began at this time or later, milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// True for those that are paused too.
    pub paused: bool,
    /// True to leave out those that run.
    pub only_paused: bool,
    /// True to begin with the oldest.
    pub oldest_first: bool,
    /// The most that are returned.
    pub limit: usize,
    /// The end of an earlier part.
    pub cursor: Option<String>,
}

/// A program to start.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StartAsk {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables beside those of the sandbox.
    pub environment: BTreeMap<String, String>,
    /// The working directory; the home if `None`.
    pub directory: Option<String>,
    /// The size of its terminal, if it gets one.
    pub terminal: Option<TerminalSize>,
    /// A name for it.
    pub tag: Option<String>,
    /// True if it gets input.
    pub input: bool,
    /// Its longest time, milliseconds.
    pub timeout_ms: Option<u64>,
    /// The user it runs as.
    pub user: Option<String>,
}

/// The size of a terminal, characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}
