//! Published ports, which programs of the host can connect to: before a run, and while it is going
//! on.

use atoll_model::network::{PUBLISHED_MAX, Published, PublishedPort};
use atoll_model::{Mode, Reason};

use super::NetworkRules;
use crate::document::Complaint;
use crate::origin::{Origin, Sourced};
use crate::refusal::reason;

pub(crate) const PUBLISH: Origin = Origin::CommandLine("--publish");

pub(crate) fn parse_published(text: &str) -> Result<PublishedPort, Complaint> {
    text.parse().map_err(|error| {
        Complaint::new(
            format!("{text:?} is no port to publish: {error}"),
            "as \"3000\", or \"8080:3000\" for port 8080 of this host",
        )
    })
}

pub(crate) fn published(port: &Sourced<PublishedPort>) -> Published {
    Published {
        port: port.value,
        origin: port.origin.to_string(),
        asked: None,
    }
}

pub(crate) fn publishing(port: PublishedPort) -> String {
    format!("publishing port {port}")
}

/// Returns the reasons not to publish the ports that a run begins with.
pub(crate) fn refusals(network: &NetworkRules, mode: Mode) -> Vec<Reason> {
    let ports = &network.publish;
    let is_twice = |(index, port): &(usize, &Sourced<PublishedPort>)| {
        let mut before = ports.iter().take(*index);
        before.any(|one| one.value.outside == port.value.outside)
    };
    let twice = ports.iter().enumerate().find(is_twice);
    let mut reasons: Vec<Reason> = twice.into_iter().map(|(_, port)| taken(port)).collect();
    reasons.extend(ports.get(PUBLISHED_MAX).map(too_many));
    let first = ports.first();
    reasons.extend(
        first
            .into_iter()
            .flat_map(|port| forbidden(network, port, mode)),
    );
    reasons
}

/// Returns the reasons not to publish anything.
pub(crate) fn forbidden(
    network: &NetworkRules,
    port: &Sourced<PublishedPort>,
    mode: Mode,
) -> impl Iterator<Item = Reason> {
    let denied = network.deny_publishing.as_ref().map(|denied| {
        let why = "the organisation forbids it";
        refused(
            port,
            why,
            denied,
            "leave it out, or ask who wrote that rule",
        )
    });
    let fenced = (mode == Mode::Fence).then(|| {
        let why = "without namespaces what listens inside is on this host's loopback already, \
                   for every user of the host and unrecorded";
        let instead = "leave it out and use the port that the program listens on, or let user \
                       namespaces be made (atoll doctor says how)";
        refused(port, why, &port.origin, instead)
    });
    let ours = network.host_ports.iter();
    let ours = ours.filter(|one| one.value == port.value.inside);
    let ours = ours.take(1).map(|one| {
        let why = "that port inside leads to this host already";
        refused(port, why, &one.origin, "publish another port")
    });
    denied.into_iter().chain(fenced).chain(ours)
}

pub(crate) fn taken(port: &Sourced<PublishedPort>) -> Reason {
    let why = "this port of the host leads to one inside already";
    refused(port, why, &port.origin, "name another port of the host")
}

pub(crate) fn too_many(port: &Sourced<PublishedPort>) -> Reason {
    let why = format!("a run publishes {PUBLISHED_MAX} ports at most");
    refused(port, &why, &port.origin, "leave some out")
}

pub(crate) fn refused(
    port: &Sourced<PublishedPort>,
    why: &str,
    rule: &Origin,
    instead: &str,
) -> Reason {
    reason(publishing(port.value), why, rule, instead)
}
