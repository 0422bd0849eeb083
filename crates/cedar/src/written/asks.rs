//! Approvals by a person, as permits that need an approval.
//!
//! Such a permit would allow by itself, so there is one for each permit, with the conditions of
//! both: of what is not allowed nobody is asked.

use atoll_model::network::{Network, NetworkRule, Reading};

use super::network::{Scope, conditions, is_whole};
use super::{Text, rows};
use crate::Action;

/// A permit that needs an approval.
const ASKED: &str = "@approve(\"person\")\npermit";

/// The conditions under which a person is asked.
#[derive(Debug, Default)]
pub(super) struct Asks {
    connect: Vec<String>,
    request: Vec<String>,
}

impl Asks {
    /// Collects the conditions of the network's rules, and these further ones.
    pub(super) fn of(network: &Network, further: &[(Action, String)]) -> Self {
        let mut asks = Self::default();
        for rule in &network.ask {
            if is_whole(rule) {
                asks.connect.push(place(rule));
            }
            asks.request.extend(requests(rule).unwrap_or_default());
        }
        for (action, condition) in further {
            if *action == Action::Connect {
                asks.connect.push(condition.clone());
            } else if *action == Action::Request {
                asks.request.push(condition.clone());
            }
        }
        asks
    }

    /// Writes permits for the tunnels among permitted connections that a person is asked about.
    pub(super) fn connect(&self, head: &str, when: &[String], unless: &[String], out: &mut Text) {
        if self.connect.is_empty() {
            return;
        }
        // A connection that is looked into is asked about by its requests.
        let when = [when, &["context.look == \"past\"".to_owned()]].concat();
        out.policies(ASKED, head, &when, &self.connect, unless);
    }

    /// Writes permits for the permitted requests that a person is asked about. `paths` are
    /// conditions of which one has to hold, if there are any.
    pub(super) fn request(
        &self,
        head: &str,
        when: &[String],
        paths: &[String],
        unless: &[String],
        out: &mut Text,
    ) {
        if self.request.is_empty() {
            return;
        }
        if paths.is_empty() {
            return out.policies(ASKED, head, when, &self.request, unless);
        }
        for path in paths {
            let when = [when, std::slice::from_ref(path)].concat();
            out.policies(ASKED, head, &when, &self.request, unless);
        }
    }
}

/// Returns the hosts and ports of a rule as one condition.
fn place(rule: &NetworkRule) -> String {
    let all = Scope::of(rule).everywhere(rule);
    match all.as_slice() {
        [] => "true".to_owned(),
        all => rows::joined(" && ", all),
    }
}

/// Returns the conditions on requests of a rule, of which one has to hold; `None` if policies cannot
/// express them.
pub(super) fn requests(rule: &NetworkRule) -> Option<Vec<String>> {
    if rule.requests.packages.is_some() {
        return None;
    }
    let (further, paths) = conditions(&rule.requests, Reading::Liberal)?;
    let all = [vec![place(rule)], further].concat();
    if paths.is_empty() {
        return Some(vec![rows::joined(" && ", &all)]);
    }
    // A policy that compares paths says what of those that are read in different ways.
    let clear = "!context.unclear".to_owned();
    let all = [all, vec![clear]].concat();
    let with = |path: &String| rows::joined(" && ", &[all.clone(), vec![path.clone()]].concat());
    Some(paths.iter().map(with).collect())
}
