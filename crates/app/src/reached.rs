//! What a run has reached outside, and what it has not, for a person and for machines.

use atoll_sandbox::{Flows, Refused};
use serde_json::json;

use crate::escape::printable;
use crate::render::{self, Denied};

/// Something outside that was not reached, and what would let it be.
pub(crate) fn unreached(refused: &Refused) -> Denied {
    let flow = &refused.flow;
    let to = match flow.port {
        0 => flow.host.clone(),
        port => format!("{}:{port}", flow.host),
    };
    let to = printable(to.as_bytes());
    Denied {
        what: format!("reaching {to}: {}", printable(refused.why.as_bytes())),
        times: refused.count,
        limit: None,
    }
}

/// What it sent and got, if it reached anything.
pub(crate) fn traffic(flows: &Flows) -> Option<render::Traffic> {
    (flows.made > 0).then_some(render::Traffic {
        connections: flows.made,
        up_bytes: flows.up_bytes,
        down_bytes: flows.down_bytes,
    })
}

/// The same for machines.
pub(crate) fn network_json(flows: &Flows) -> serde_json::Value {
    let refused = |one: &Refused| {
        json!({
            "host": one.flow.host, "port": one.flow.port, "why": one.why, "times": one.count,
        })
    };
    json!({
        "connections": flows.made,
        "up-bytes": flows.up_bytes,
        "down-bytes": flows.down_bytes,
        "refused": flows.refused.iter().map(refused).collect::<Vec<_>>(),
        "failure": flows.failure,
    })
}
