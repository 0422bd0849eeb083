//! Network rules as policies.

use atoll_model::network::{
    Conditions, HostPattern, Network, NetworkRule, Ports, Reading, Scheme, THIS_HOST, Way,
};

use super::asks::{Asks, requests};
use super::{Text, paths, rows};
use crate::Action;
use crate::quoting::quoted;

/// The scope of any host.
const HOSTS: &str = "resource is Host";
/// The comment on a rule that asks and that policies cannot express.
const ASKED: &str = "a person is asked about that; here it is forbidden";

pub(crate) fn write(network: &Network, asks: &[(Action, String)], out: &mut Text) {
    let asks = Asks::of(network, asks);
    out.section("Names that are asked for");
    for rule in &network.allow {
        if let Some((head, unless)) = Scope::of(rule).resolves(rule) {
            out.policy("permit", &head, &[], &unless);
        }
    }
    for rule in network.deny.iter().filter(|rule| is_whole(rule)) {
        let is_block = matches!(rule.to.host, HostPattern::Block(_));
        if rule.to.ports == Ports::All && !is_block {
            let head = format!("action == Action::\"resolve\", {}", Scope::of(rule).head);
            out.policy("forbid", &head, &[], &[]);
        }
    }
    out.none_if_empty("resolve", "no name can be asked for");
    out.section("Connections. What names lead to is judged by Atoll besides, address by address");
    for (at, rule) in network.allow.iter().enumerate() {
        let before = network.allow.get(..at).unwrap_or_default();
        connect(rule, before, &asks, out);
    }
    for rule in &network.deny {
        let scope = Scope::of(rule);
        let mut when = scope.when(rule);
        if !is_whole(rule) {
            // What some requests are denied for is not carried unseen.
            when.push("context.look == \"past\"".to_owned());
        }
        out.comment(&description(rule));
        out.policy("forbid", &scope.head_of("connect"), &when, &[]);
    }
    for rule in network.ask.iter().filter(|rule| !is_whole(rule)) {
        let scope = Scope::of(rule);
        let mut when = scope.when(rule);
        // What some requests are asked about for is not carried unseen.
        when.push("context.look == \"past\"".to_owned());
        out.comment(&description(rule));
        out.policy("forbid", &scope.head_of("connect"), &when, &[]);
    }
    out.none_if_empty("connect", "nothing can be reached");
    out.section("Requests, where they are looked into");
    for rule in &network.allow {
        request(rule, Some(&asks), out);
    }
    for rule in &network.deny {
        request(rule, None, out);
    }
    for rule in &network.ask {
        if requests(rule).is_some() {
            unclear(rule, &[], out);
        } else {
            out.comment(ASKED);
            request(rule, None, out);
        }
    }
    out.none_if_empty("request", "nothing can be asked for");
}

/// The hosts of a rule, in the scope of a policy and in its conditions.
pub(super) struct Scope {
    head: String,
    condition: Option<String>,
    /// The exclusion of the host's own loopback, which no wildcard allows.
    unless: Vec<String>,
}

impl Scope {
    pub(super) fn of(rule: &NetworkRule) -> Self {
        let own = || vec![format!("resource == Host::{}", quoted(THIS_HOST))];
        let head = |head: String, unless: Vec<String>| Self {
            head,
            condition: None,
            unless,
        };
        match &rule.to.host {
            HostPattern::Any => head(HOSTS.to_owned(), own()),
            HostPattern::Exact(name) => {
                let one = format!("resource == Host::{}", quoted(name.as_str()));
                head(one, Vec::new())
            }
            HostPattern::Beneath(name) => {
                let all = format!("resource in Host::{}", quoted(&format!("*.{name}")));
                head(all, own())
            }
            HostPattern::Block(block) => Self {
                head: HOSTS.to_owned(),
                condition: Some(format!(
                    "context has ip && context.ip.isInRange(ip(\"{block}\"))"
                )),
                unless: Vec::new(),
            },
        }
    }

    fn head_of(&self, action: &str) -> String {
        format!("action == Action::\"{action}\", {}", self.head)
    }

    /// Returns the scope for resolving names; `None` for addresses, and for rules that can allow
    /// nothing.
    fn resolves(&self, rule: &NetworkRule) -> Option<(String, Vec<String>)> {
        let opens = self.condition.is_none() && rule.to.is_allowable();
        opens.then(|| (self.head_of("resolve"), self.unless.clone()))
    }

    /// Returns the conditions on host and port.
    fn when(&self, rule: &NetworkRule) -> Vec<String> {
        self.condition
            .iter()
            .cloned()
            .chain(ports(&rule.to.ports))
            .collect()
    }

    /// Returns the conditions on host and port where the scope is that of another rule.
    pub(super) fn everywhere(&self, rule: &NetworkRule) -> Vec<String> {
        let head = (self.head != HOSTS).then(|| self.head.clone());
        head.into_iter().chain(self.when(rule)).collect()
    }

    /// Returns host and port as one condition that can stand anywhere, without what they do not open.
    fn anywhere(&self, rule: &NetworkRule) -> String {
        let unless = self.unless.iter().map(|one| format!("!({one})"));
        let all = self.everywhere(rule).into_iter().chain(unless);
        let all: Vec<String> = all.collect();
        match all.as_slice() {
            [] => "true".to_owned(),
            all => format!("({})", all.join(" && ")),
        }
    }
}

fn ports(ports: &Ports) -> Option<String> {
    let ranges: &[(u16, u16)] = match ports {
        Ports::All => return None,
        Ports::Web => &[(80, 80), (443, 443)],
        Ports::Listed(ranges) => ranges,
    };
    if let [(first, last)] = ranges
        && first == last
    {
        return Some(format!("context.port == {first}"));
    }
    let is_one = |(first, last): &&(u16, u16)| first == last;
    let single: Vec<String> = ranges
        .iter()
        .filter(is_one)
        .map(|(one, _)| one.to_string())
        .collect();
    let single =
        (!single.is_empty()).then(|| format!("[{}].contains(context.port)", single.join(", ")));
    let wide = ranges.iter().filter(|range| !is_one(range));
    let wide =
        wide.map(|(first, last)| format!("(context.port >= {first} && context.port <= {last})"));
    let all: Vec<String> = single.into_iter().chain(wide).collect();
    Some(match all.as_slice() {
        [one] => one.clone(),
        all => format!("({})", rows::joined(" || ", all)),
    })
}

pub(super) fn is_whole(rule: &NetworkRule) -> bool {
    rule.requests.is_empty()
}

/// Writes the connections that a rule allows: any inspected one, and tunnels if the rule says so or
/// there is nothing to inspect.
fn connect(rule: &NetworkRule, before: &[NetworkRule], asks: &Asks, out: &mut Text) {
    let scope = Scope::of(rule);
    out.comment(&description(rule));
    if !rule.to.is_allowable() {
        return out.comment("the host's own loopback is opened by single ports alone");
    }
    let head = scope.head_of("connect");
    let mut when = scope.when(rule);
    let mut unless = scope.unless.clone();
    let looked_at = "context.look == \"into\"".to_owned();
    match rule.way {
        Way::Tunnel => {}
        Way::Inspect => when.push(looked_at),
        Way::Usual if !is_whole(rule) => when.push(looked_at),
        Way::Usual => {
            unless.push("[80, 443].contains(context.port) && context.look == \"past\"".to_owned());
            // What an earlier rule limits stays looked into.
            let limits = |rule: &&NetworkRule| {
                let is_seen = rule.way == Way::Inspect || rule.way == Way::Usual && !is_whole(rule);
                is_seen && !rule.limits.is_empty() && rule.to.is_allowable()
            };
            let limited = before.iter().filter(limits);
            let limited = limited.filter(|one| can_meet(&one.to.host, &rule.to.host));
            unless.extend(limited.map(|rule| {
                format!(
                    "context.look == \"past\" && {}",
                    Scope::of(rule).anywhere(rule)
                )
            }));
            if !rows::is_short(&head, &when, &unless) {
                out.comment(
                    "looked into alone here: what rules before it limit is longer than a policy",
                );
                when.push(looked_at);
                unless.clone_from(&scope.unless);
            }
        }
    }
    out.policy("permit", &head, &when, &unless);
    asks.connect(&head, &when, &unless, out);
}

/// Returns whether some host can match both patterns.
fn can_meet(one: &HostPattern, other: &HostPattern) -> bool {
    match (one, other) {
        (HostPattern::Exact(one), HostPattern::Exact(other)) => one == other,
        (_, _) => true,
    }
}

/// Writes a forbid of paths that are read in different ways, where a rule is about paths.
fn unclear(rule: &NetworkRule, unless: &[String], out: &mut Text) {
    if rule.requests.paths.is_empty() {
        return;
    }
    let scope = Scope::of(rule);
    let when = [scope.when(rule), vec!["context.unclear".to_owned()]].concat();
    out.comment(
        "rules are about paths there, so a path that is read in different ways is not sent",
    );
    out.policy("forbid", &scope.head_of("request"), &when, unless);
}

/// Writes the requests that a rule allows, with those of them that a person is asked about, or
/// without `asks` those that it denies.
fn request(rule: &NetworkRule, asks: Option<&Asks>, out: &mut Text) {
    let scope = Scope::of(rule);
    let is_permit = asks.is_some();
    let (effect, reading) = match is_permit {
        true => ("permit", Reading::Letter),
        false => ("forbid", Reading::Liberal),
    };
    if is_permit && !rule.to.is_allowable() {
        return;
    }
    let place = scope.when(rule);
    out.comment(&description(rule));
    let unless: &[String] = if is_permit { &scope.unless } else { &[] };
    unclear(rule, unless, out);
    if rule.requests.packages.is_some() {
        if is_permit {
            return out.comment("not permitted here: policies do not speak of packages");
        }
        out.comment("forbidden as a whole here: policies do not speak of packages");
        return out.policy(effect, &scope.head_of("request"), &place, unless);
    }
    match conditions(&rule.requests, reading) {
        Some((mut further, paths)) => {
            if !paths.is_empty() {
                further.push("!context.unclear".to_owned());
            }
            let when = [place, further].concat();
            let head = scope.head_of("request");
            out.policies(effect, &head, &when, &paths, unless);
            if let Some(asks) = asks {
                asks.request(&head, &when, &paths, unless, out);
            }
        }
        None if is_permit => {
            out.comment("not permitted here: its path has more segments than have names")
        }
        None => {
            out.comment("forbidden as a whole here: its path has more segments than have names");
            out.policy(effect, &scope.head_of("request"), &place, unless);
        }
    }
}

/// Returns the conditions that every request has to meet, and those of which it has to meet one if
/// there are any; `None` if a path cannot be expressed.
pub(super) fn conditions(
    requests: &Conditions,
    reading: Reading,
) -> Option<(Vec<String>, Vec<String>)> {
    let mut all = Vec::new();
    all.extend(requests.scheme.map(|scheme| {
        let scheme = match scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        format!("context.scheme == \"{scheme}\"")
    }));
    if !requests.methods.is_empty() {
        let (methods, member): (Vec<String>, _) = match reading {
            Reading::Letter => (requests.methods.clone(), "context.method"),
            Reading::Liberal => {
                let capitals = requests.methods.iter().map(|one| one.to_ascii_uppercase());
                (capitals.collect(), "context.loose.method")
            }
        };
        let methods: Vec<String> = methods.iter().map(|one| quoted(one)).collect();
        all.push(rows::listed(member, &methods));
    }
    let paths = requests.paths.iter();
    let paths: Option<Vec<String>> = paths.map(|one| paths::condition(one, reading)).collect();
    Some((all, paths?))
}

/// Describes a rule as written, with its place.
fn description(rule: &NetworkRule) -> String {
    rule.told()
}
