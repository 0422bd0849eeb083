//! The rules for the network, to which a person may add some while the run goes on.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, RwLock};

use atoll_model::network::{ALLOWANCES_MAX, Flow, Network, NetworkRule};

/// The use of a rule that counts once.
#[derive(Debug)]
enum Used {
    Not,
    By(Flow),
    /// By a flow that reached nobody: the same may try its next address.
    InVain(Flow),
}

/// The rules in force. They are only ever added to, but for those that counted once.
#[derive(Debug)]
pub(crate) struct LiveRules {
    /// Each version stays where it is until the process ends: rules are referred to across waits,
    /// and there are at most [`ALLOWANCES_MAX`] additions.
    network: RwLock<&'static Network>,
    /// The number of rules added so far.
    added: Mutex<usize>,
    /// The rules that count once, as told.
    once: Mutex<HashMap<String, Used>>,
}

impl LiveRules {
    pub(crate) fn new(network: Network) -> Self {
        Self {
            network: RwLock::new(Box::leak(Box::new(network))),
            added: Mutex::default(),
            once: Mutex::default(),
        }
    }

    /// Returns the rules in force.
    pub(crate) fn network(&self) -> &'static Network {
        *self.network.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Network)) {
        let mut network = self.network.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = network.clone();
        change(&mut changed);
        *network = Box::leak(Box::new(changed));
    }

    /// Adds a rule that a person gave, for one connection or request if `once`. Whoever sends more
    /// of them than there can be is not heard.
    pub(crate) fn allow(&self, rule: NetworkRule, once: bool) {
        let mut of_once = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        if *added >= ALLOWANCES_MAX {
            return;
        }
        *added += 1;
        if once {
            of_once.insert(rule.told(), Used::Not);
        }
        self.change(|network| network.allow.push(rule));
    }

    /// Uses up the rule that a flow is about to begin under. Returns false where that counted once
    /// and has been used, unless the same flow came to nothing at another address.
    pub(crate) fn spend(&self, flow: &Flow) -> bool {
        let Some(told) = flow.rule.as_deref() else {
            return true;
        };
        let mut of_once = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(used) = of_once.get_mut(told) else {
            return true;
        };
        let placed = |one: &Flow| Flow {
            address: flow.address,
            ..one.clone()
        };
        match used {
            Used::Not => self.change(|network| network.allow.retain(|rule| rule.told() != told)),
            Used::InVain(one) if placed(one) == *flow && one.address != flow.address => {}
            Used::InVain(_) | Used::By(_) => return false,
        }
        *used = Used::By(flow.clone());
        true
    }

    /// Notes that the flow which used a rule up reached nobody.
    pub(crate) fn note_in_vain(&self, told: &str) {
        let mut of_once = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = of_once.get_mut(told)
            && let Used::By(flow) = used
        {
            *used = Used::InVain(flow.clone());
        }
    }
}

impl Default for LiveRules {
    fn default() -> Self {
        Self::new(Network::default())
    }
}

#[cfg(test)]
mod tests {
    use atoll_model::network::FlowKind;

    use super::*;

    fn rule(text: &str, origin: &str) -> NetworkRule {
        NetworkRule {
            to: text.parse().unwrap(),
            origin: origin.to_owned(),
            ..NetworkRule::learning()
        }
    }

    #[test]
    fn live_rules_once_counts_for_one_flow() {
        let rules = LiveRules::default();
        let host = "example.com".parse().unwrap();
        assert!(rules.network().connection(&host, 443).is_err());
        let once = rule("example.com", "you, once (1)");
        rules.allow(once.clone(), true);
        assert!(rules.network().connection(&host, 443).is_ok());
        let flow = |rule: &NetworkRule, last: u8| Flow {
            address: Some([192, 0, 2, last].into()),
            rule: Some(rule.told()),
            ..Flow::to(FlowKind::Tunnel, "example.com".to_owned(), 443)
        };
        assert!(rules.spend(&flow(&rule("example.com", "another"), 1)));
        assert!(rules.spend(&flow(&once, 1)));
        assert!(rules.network().connection(&host, 443).is_err());
        assert!(!rules.spend(&flow(&once, 2)), "it is in use");
        rules.note_in_vain(&once.told());
        assert!(!rules.spend(&flow(&once, 1)), "the same address again");
        assert!(rules.spend(&flow(&once, 2)), "its next address");
        assert!(!rules.spend(&flow(&once, 3)), "it was used");
        let lasting = rule("example.com", "you, for this run (2)");
        rules.allow(lasting.clone(), false);
        let used = flow(&lasting, 1);
        assert!(rules.spend(&used) && rules.spend(&used));
        assert!(rules.network().connection(&host, 443).is_ok());
        let denied = Network {
            deny: vec![rule("example.com", "the profile")],
            ..Network::default()
        };
        let rules = LiveRules::new(denied);
        rules.allow(lasting, false);
        assert!(
            rules.network().connection(&host, 443).is_err(),
            "denied whatever allows it"
        );
    }
}
