//! Narrowing of a run for logging in: it reaches the hosts that this takes, and nothing else.

use atoll_model::network::{CredentialName, HostPart, PublishedPort, RuleLimits, Way};

use crate::login::LoginIssue;
use crate::origin::{Origin, Sourced};
use crate::refusal::reason;
use crate::rules::Rules;

/// The port of the further hosts of a login.
const HTTPS: u16 = 443;

/// Restricts a run for logging in to the hosts of this login, as far as the profile allows them,
/// with every request inspected. No credential is injected, no key signs, and no port is published
/// other than the browser's. Denials stay in force.
pub(crate) fn narrow(rules: &mut Rules, name: Option<&CredentialName>) {
    let Some(name) = name else {
        return;
    };
    let login = rules.logins.get(name);
    let Some((issue, origin)) =
        login.and_then(|login| Some((login.value.issue.clone()?, login.origin.clone())))
    else {
        rules.refusals.push(reason(
            format!("logging in as {name}"),
            "no [login] of the profile says how",
            &Origin::BuiltIn,
            "log in outside, with the agent's own command",
        ));
        return;
    };
    let asked = asked(&issue);
    let mut allow = Vec::new();
    for rule in &rules.network.allow {
        let meant = &rule.value;
        // Nobody would look for tokens there.
        let is_seen = meant.way != Way::Tunnel;
        for (host, port) in asked.iter().filter(|_| is_seen) {
            let mut narrowed = meant.clone();
            narrowed.way = Way::Inspect;
            narrowed.limits = RuleLimits::default();
            if let Some(to) = meant.to.narrowed(host, *port) {
                narrowed.to = to;
                allow.push(Sourced::new(narrowed, rule.origin.clone()));
            }
        }
    }
    let issuer = issue.token.host.clone();
    if !allow.iter().any(|rule| rule.value.to.is_for(&issuer)) {
        rules.refusals.push(reason(
            format!("logging in as {name}"),
            format!("nothing lets {issuer} be reached, which issues its tokens"),
            &origin,
            "allow it in [network] of the profile, not as a tunnel",
        ));
    }
    rules.network.allow = allow;
    rules.network.learn = false;
    let is_callback = |port: &PublishedPort| Some(port.inside) == issue.callback;
    rules.network.publish.retain(|one| is_callback(&one.value));
    rules.network.host_ports.clear();
    rules.credentials.clear();
    rules.ssh.clear();
}

/// Returns the hosts and ports that logging in takes.
fn asked(issue: &LoginIssue) -> Vec<(HostPart, u16)> {
    let also = issue.hosts.iter().cloned().map(HostPart::Name);
    let mut asked = vec![(issue.token.host.clone(), issue.token.port)];
    asked.extend(also.map(|host| (host, HTTPS)));
    asked
}
