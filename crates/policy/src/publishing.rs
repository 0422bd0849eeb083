//! Ports that are published while a run is going on.

use atoll_model::network::{PUBLISHED_MAX, PublishedPort};
use atoll_model::{Call, Reason, Verdict};

use crate::grant::PortGrant;
use crate::network::publishing::{
    forbidden, published, publishing as publishing_of, refused, taken, too_many,
};
use crate::origin::{Origin, Sourced};
use crate::refusal::{reason, unknown_sandbox};
use crate::rules::Rules;
use crate::source::Facts;

const LATER: Origin = Origin::CommandLine("atoll publish");

/// Decides whether another port of a living sandbox is published beside its others.
pub(crate) fn publishing(
    rules: &Rules,
    call: &Call,
    facts: &Facts<'_>,
    port: PublishedPort,
) -> Verdict<PortGrant> {
    let Some(living) = facts.living else {
        return unknown_sandbox("publishing a port");
    };
    let asked = Sourced::new(port, LATER);
    let mut reasons: Vec<Reason> = forbidden(&rules.network, &asked, facts.mode).collect();
    let sockets = &rules.syscalls.deny_sockets;
    if sockets.value {
        let why = "sockets are refused altogether here";
        let instead = "start the run anew, without deny-sockets";
        reasons.push(refused(&asked, why, &sockets.origin, instead));
    }
    if living
        .published
        .iter()
        .any(|one| one.port.outside == port.outside)
    {
        reasons.push(taken(&asked));
    }
    if living.published.len() >= PUBLISHED_MAX {
        reasons.push(too_many(&asked));
    }
    reasons.extend(living.token_refusal.map(|why| {
        let instead = "start another run, with a token that carries it";
        reason(publishing_of(port), why, &"its token", instead)
    }));
    if let Some(policies) = &rules.policies {
        reasons.extend(policies.publishing(rules, call, facts, port));
    }
    match reasons.is_empty() {
        true => Verdict::Allow(PortGrant(published(&asked))),
        false => Verdict::Deny(reasons),
    }
}
