//! Reasons to refuse a network.

use atoll_model::network::{FLOW_MESSAGE_BYTES_MAX, Network};
use atoll_model::{Mode, Reason};

use crate::network::{host_ports, publishing};
use crate::refusal::reason;
use crate::rules::Rules;

/// The most rules of a boundary, which are sent to the egress process.
const RULES_MAX: usize = 256;

/// The longest serialised network of a boundary, bytes; the rest of the message is for other parts.
const RULES_BYTES_MAX: usize = FLOW_MESSAGE_BYTES_MAX - (4 << 10);

/// Returns the reasons to refuse this network.
pub(crate) fn refusals(rules: &Rules, whole: &Network, mode: Mode) -> Vec<Reason> {
    let network = &rules.network;
    let Some((what, origin)) = network.first() else {
        return Vec::new();
    };
    let mut reasons = Vec::new();
    if rules.syscalls.deny_sockets.value {
        reasons.push(reason(
            what,
            "sockets are refused altogether here",
            &rules.syscalls.deny_sockets.origin,
            "leave deny-sockets out, or what is allowed",
        ));
    }
    let described = serde_json::to_vec(whole).map_or(usize::MAX, |text| text.len());
    if whole.allow.len() + whole.deny.len() + whole.ask.len() > RULES_MAX
        || described > RULES_BYTES_MAX
    {
        reasons.push(reason(
            "so many rules for the network",
            format!("a boundary holds {RULES_MAX} of them, and {RULES_BYTES_MAX} bytes"),
            origin,
            "name a few above them, as *.example.com",
        ));
    }
    reasons.extend(publishing::refusals(network, mode));
    reasons.extend(host_ports::refusals(network, mode));
    reasons
}
