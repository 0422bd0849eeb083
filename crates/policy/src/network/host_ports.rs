//! Ports of the sandbox's own loopback that lead to the host's (`--host-port`).

use atoll_model::network::{HOST_PORTS_MAX, Meant, THIS_HOST};
use atoll_model::{Mode, Reason};

use super::NetworkRules;
use super::rule;
use crate::document::Complaint;
use crate::origin::{Origin, Sourced};
use crate::refusal::reason;

pub(crate) const HOST_PORT: Origin = Origin::CommandLine("--host-port");

/// Parses a port, and returns it with the rule that allows what it leads to.
pub(crate) fn parse(text: &str) -> Result<(u16, Meant), Complaint> {
    let port = text.parse::<u16>().ok().filter(|port| *port > 0);
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.filter(|_| is_plain).ok_or_else(|| {
        Complaint::new(
            format!("{text:?} is no port: a number from 1 to 65535"),
            "as \"11434\"",
        )
    })?;
    // A program that means 127.0.0.1 says so in its requests, which are of another host then.
    Ok((port, rule::parse_tunnel(&format!("{THIS_HOST}:{port}"))?))
}

/// Returns the reasons not to lead any port there.
pub(crate) fn refusals(network: &NetworkRules, mode: Mode) -> Vec<Reason> {
    let ports = &network.host_ports;
    let mut reasons = Vec::new();
    let Some(first) = ports.first() else {
        return reasons;
    };
    if mode == Mode::Fence {
        reasons.push(refused(
            first,
            "without namespaces the sandbox has no loopback of its own to listen on",
            &format!(
                "--allow {THIS_HOST}:{0}, and have the program use {THIS_HOST}:{0}; or let user \
                 namespaces be made (atoll doctor says how)",
                first.value
            ),
        ));
    }
    if let Some(port) = ports.get(HOST_PORTS_MAX) {
        let why = format!("a run has {HOST_PORTS_MAX} of these at most");
        reasons.push(refused(port, &why, "leave some out"));
    }
    reasons
}

fn refused(port: &Sourced<u16>, why: &str, instead: &str) -> Reason {
    let what = format!("leading port {} inside to this host", port.value);
    reason(what, why, &port.origin, instead)
}
