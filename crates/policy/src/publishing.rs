//! Ports that are published while a run is going on.

use atoll_model::network::{PUBLISHED_MAX, Published, PublishedPort};
use atoll_model::{Call, Reason};

use crate::network::publishing::{forbidden, published, refused, taken, too_many};
use crate::origin::{Origin, Sourced};
use crate::rules::Rules;
use crate::source::Facts;

const LATER: Origin = Origin::CommandLine("atoll publish");

/// Decides whether another port of a running sandbox is published beside these.
///
/// # Errors
/// The reasons against it, each with its rule.
pub fn decide_publishing(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    already: &[Published],
    port: PublishedPort,
) -> Result<Published, Vec<Reason>> {
    let asked = Sourced::new(port, LATER);
    let mut reasons: Vec<Reason> = forbidden(&rules.network, &asked, facts.mode).collect();
    let sockets = &rules.syscalls.deny_sockets;
    if sockets.value {
        let why = "sockets are refused altogether here";
        let instead = "start the run anew, without deny-sockets";
        reasons.push(refused(&asked, why, &sockets.origin, instead));
    }
    if already.iter().any(|one| one.port.outside == port.outside) {
        reasons.push(taken(&asked));
    }
    if already.len() >= PUBLISHED_MAX {
        reasons.push(too_many(&asked));
    }
    if let Some(policies) = &rules.policies {
        reasons.extend(policies.publishing(rules, call, facts, port));
    }
    match reasons.is_empty() {
        true => Ok(published(&asked)),
        false => Err(reasons),
    }
}
