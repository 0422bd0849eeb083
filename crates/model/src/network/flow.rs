//! What is told of connections to the outside, between the process that carries them
//! and the one that records them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Network;

/// Why something is refused that a rule could allow.
pub const NO_RULE: &str = "no rule allows it";

/// The longest message of either side, bytes.
pub const FLOW_MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// What a carrier begins with; the sandbox's listeners come with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carriage {
    /// What may be reached.
    pub network: Network,
}

/// What the carrier tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FlowReport {
    /// This is about to happen. It does once it is recorded.
    Open {
        /// Stands for it from here on.
        id: u64,
        /// What it is.
        flow: Flow,
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
}

/// What the recorder answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FlowOrder {
    /// What was about to happen is on disk.
    Recorded {
        /// Which.
        id: u64,
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
    /// The port; 0 for a name.
    pub port: u16,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// What a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowKind {
    /// A question for a name's addresses.
    Name,
    /// Bytes both ways, as they are.
    Tunnel,
}

/// How a flow ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowEnd {
    /// From the program, bytes.
    pub up_bytes: u64,
    /// To the program, bytes.
    pub down_bytes: u64,
    /// From its record to its end, microseconds.
    pub duration_us: u64,
    /// What went wrong, if anything did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}
