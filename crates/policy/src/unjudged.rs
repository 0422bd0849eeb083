//! What policies that judge requests do not see: connections whose bytes nobody looks into.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_cedar::{Layer, Layers};
use atoll_model::network::{HostPart, HostPattern, Look, Network, NetworkRule, Ports};

use crate::origin::Origin;
use crate::rules::Rules;

/// Tells of each rule of people's, by which something is carried past what they have written on
/// requests. A policy holds no request that nobody reads.
pub(crate) fn tell(rules: &mut Rules, layers: &Layers) {
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

/// Whether a policy's host is one that a rule opens.
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

/// Whether nobody looks into what is carried: other rules can have it looked into.
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
