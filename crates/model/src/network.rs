//! Hosts, addresses and rules about what may be reached.
//!
//! Everything that judges a destination uses these types: what cannot be read into one
//! of them is no destination.

mod block;
mod flow;
mod host;
mod rules;

pub use block::{Block, Special, special};
pub use flow::{
    Carriage, FLOW_MESSAGE_BYTES_MAX, Flow, FlowEnd, FlowKind, FlowOrder, FlowReport, NO_RULE,
};
pub use host::{HostName, HostPart, InvalidHost, NAME_BYTES_MAX};
pub use rules::{
    Destination, HostPattern, InvalidDestination, Network, NetworkRule, Ports, Unreachable,
};
