//! Tunnels, whose bytes are not inspected, past policies that judge requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_cedar::{Layer, Layers};
use atoll_model::network::{HostPart, HostPattern, Look, Network, NetworkRule, Ports};

use crate::origin::Origin;
use crate::rules::Rules;

/// Adds a notice for each rule that allows a tunnel past people's policies on requests. A policy
/// cannot judge a request that nobody reads.
pub(crate) fn notice_tunnels(rules: &mut Rules, layers: &Layers) {
    let network = rules.network();
    let is_written =
        |layer: &Layer| matches!(layer, Layer::Organisation | Layer::User | Layer::Project);
    let written = layers.each().filter(|(layer, _)| is_written(layer));
    let policies: Vec<_> = written
        .flat_map(|(_, policies)| policies.of_requests_alone())
        .collect();
    let mut told = BTreeSet::new();
    for rule in &network.allow {
        let is_about = |host: &Option<String>| host.as_deref().is_none_or(|one| holds(one, rule));
        let by = policies.iter().find(|(_, host)| is_about(host));
        let Some((by, _)) = by.filter(|_| is_carried_unseen(&network, rule)) else {
            continue;
        };
        let to = rule.to.to_string();
        if !told.insert(to.clone()) {
            continue;
        }
        let text = format!(
            "policy {} judges requests, but {to} ({}) is carried unseen, past it; {}",
            by.id,
            rule.origin,
            instead(rule)
        );
        let origin = Origin::File {
            name: Arc::clone(&by.file),
            line: by.line,
        };
        rules.notice(text, origin);
    }
}

/// Returns whether a rule allows a policy's host.
fn holds(host: &str, rule: &NetworkRule) -> bool {
    match (&rule.to.host, host.strip_prefix('*')) {
        (HostPattern::Exact(name), Some(beneath)) => name.as_str().ends_with(beneath),
        (HostPattern::Exact(_) | HostPattern::Block(_), None) => {
            let part = host.parse::<HostPart>();
            part.map_or(true, |part| rule.to.is_for(&part))
        }
        // Names lead to addresses, and one pattern can be within another.
        (HostPattern::Any | HostPattern::Beneath(_), _) | (HostPattern::Block(_), Some(_)) => true,
    }
}

/// Returns whether the rule's destination is tunnelled; other rules can have it inspected.
fn is_carried_unseen(network: &Network, rule: &NetworkRule) -> bool {
    let Some(port) = rule.unseen_port() else {
        return false;
    };
    let HostPattern::Exact(name) = &rule.to.host else {
        return true;
    };
    let carried = network.connection(&HostPart::Name(name.clone()), port);
    matches!(carried, Ok((_, Look::Past)))
}

fn instead(rule: &NetworkRule) -> String {
    let host = &rule.to.host;
    let one = match &rule.to.ports {
        Ports::Listed(ranges) => match ranges.as_slice() {
            [(first, last)] if first == last => Some(*first),
            _ => None,
        },
        Ports::All | Ports::Web => None,
    };
    let judged = match one {
        Some(443) => format!("'https://{host}'"),
        Some(80) => format!("'http://{host}'"),
        Some(port) => format!("'http://{host}:{port}'"),
        None => "a rule for requests".to_owned(),
    };
    format!("if it speaks HTTP, {judged} in its place has its requests judged")
}
