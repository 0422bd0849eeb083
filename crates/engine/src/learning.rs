//! The network access of a run in learning mode, as the smallest rules that allow it again.

mod policies;

use std::collections::{BTreeMap, BTreeSet};

use atoll_ledger::Event;
use atoll_model::network::{
    Conditions, Destination, HostPart, Meant, NetworkRule, PathPattern, Ports, RuleLimits, Scheme,
    Target, Way, parse_method,
};
use atoll_policy::network_entry;
use serde_json::Value;

pub use policies::{LearntPolicies, policies};

/// The most paths of one host in a rule; more become the directory that they share.
const PATHS_MAX: usize = 6;
/// The most destinations: more need a hand-written rule.
const PLACES_MAX: usize = 128;

/// A destination of requests: the host as it was named, its port, and the scheme.
type Place = (String, u16, Option<Scheme>);

/// The requests to one destination.
#[derive(Default)]
struct Asked {
    /// The paths of each method; of `None` those of methods that no rule can name.
    paths: BTreeMap<Option<String>, BTreeSet<String>>,
    /// Set when no rule can name one of the paths: with rules that name paths it would not be sent,
    /// by whichever method.
    is_unnamed: bool,
}

/// Methods of one place that were used with the same paths.
struct Group {
    methods: BTreeSet<Option<String>>,
    /// Empty for all paths.
    paths: Vec<PathPattern>,
    /// The access its rule allows beyond the requests seen, in words.
    widened: Vec<String>,
}

/// Returns the rules for the flows of a run that were allowed only in order to learn from them.
pub fn rules<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<Meant> {
    let learning = NetworkRule::learning().told();
    let is_learnt =
        |event: &Event| event.body.get("rule").and_then(Value::as_str) == Some(learning.as_str());
    let all = places(events, is_learnt).into_iter();
    let all = all.map(|(place, asked)| of_place(&place, &asked));
    let all = all.filter(|rules| !rules.is_empty()).take(PLACES_MAX);
    all.flatten().map(|(meant, _)| meant).collect()
}

/// Returns the rules for all flows of runs, whatever allowed them, each with its widening in words.
pub fn used<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<(Meant, Option<String>)> {
    let is_reached = |event: &Event| {
        let kind = event.body.get("kind").and_then(Value::as_str);
        matches!(
            kind,
            Some("request" | "tunnel" | "postgres" | "fetch" | "revocation")
        )
    };
    let all = places(events, is_reached).into_iter();
    let all = all.map(|(place, asked)| {
        let mut rules = of_place(&place, &asked);
        if place.2.is_none() {
            for (meant, widened) in &mut rules {
                meant.way = Way::Tunnel;
                *widened = Some("carried unseen: whatever is sent there".to_owned());
            }
        }
        rules
    });
    let all = all.filter(|rules| !rules.is_empty()).take(PLACES_MAX);
    all.flatten().collect()
}

/// Collects the requests to each destination, from the events of opened flows that `is_meant`
/// selects.
fn places<'a>(
    events: impl Iterator<Item = &'a Event>,
    is_meant: impl Fn(&Event) -> bool,
) -> BTreeMap<Place, Asked> {
    let mut places: BTreeMap<Place, Asked> = BTreeMap::new();
    // The numbers of flows are of their run.
    let number = |event: &Event| {
        let flow = event.body.get("flow").and_then(Value::as_u64);
        flow.map(|flow| (event.run.clone(), flow))
    };
    let is_unreached = |event: &&&Event| {
        event.kind == "flow.closed" && event.body.get("unreached") == Some(&Value::Bool(true))
    };
    let events: Vec<&Event> = events.collect();
    let unreached: BTreeSet<_> = events
        .iter()
        .filter(is_unreached)
        .filter_map(|event| number(event))
        .collect();
    let opened = events.into_iter().filter(|event| {
        let is_reached = number(event).is_none_or(|flow| !unreached.contains(&flow));
        event.kind == "flow.opened" && is_reached
    });
    for event in opened.filter(|event| is_meant(event)) {
        let said = |member: &str| event.body.get(member).and_then(Value::as_str);
        let port = event.body.get("port").and_then(Value::as_u64);
        let (Some(host), Some(port)) = (said("host"), port.and_then(|port| port.try_into().ok()))
        else {
            continue;
        };
        let scheme = event.body.get("scheme").cloned();
        let scheme = scheme.and_then(|scheme| serde_json::from_value(scheme).ok());
        let asked = places.entry((host.to_owned(), port, scheme)).or_default();
        asked.add(said("method"), said("path"));
    }
    places
}

impl Asked {
    fn add(&mut self, method: Option<&str>, path: Option<&str>) {
        let method = method.unwrap_or_default();
        let is_method = parse_method(method).as_deref() == Ok(method);
        let paths = self.paths.entry(is_method.then(|| method.to_owned()));
        let paths = paths.or_default();
        let path = path.unwrap_or_default();
        let is_clear = Target::parse(path).is_ok_and(|target| target.unclear().is_none());
        match is_clear && !path.contains('*') && PathPattern::try_from(path.to_owned()).is_ok() {
            true => _ = paths.insert(path.to_owned()),
            false => self.is_unnamed = true,
        }
    }

    /// Groups methods with the same paths: each group is a rule.
    fn groups(&self) -> Vec<Group> {
        if self.is_unnamed {
            return vec![Group {
                methods: self.paths.keys().cloned().collect(),
                paths: Vec::new(),
                widened: vec!["widened to every path: one of them is no rule's".to_owned()],
            }];
        }
        let mut groups: Vec<Group> = Vec::new();
        for (method, asked) in &self.paths {
            let (paths, widened) = (paths(asked), widened(asked));
            let mut alike = groups.iter_mut();
            match alike.find(|one| one.paths == paths) {
                Some(group) => {
                    group.methods.insert(method.clone());
                    group.widened.extend(widened);
                }
                None => groups.push(Group {
                    methods: BTreeSet::from([method.clone()]),
                    paths,
                    widened: widened.into_iter().collect(),
                }),
            }
        }
        groups
    }
}

impl Group {
    /// Returns the conditions of the group's rule, and the access it allows beyond the requests
    /// seen, if any.
    fn requests(mut self, scheme: Option<Scheme>) -> (Conditions, Option<String>) {
        let is_any = self.methods.contains(&None);
        if is_any {
            let every = "widened to every method: one of them is no rule's";
            self.widened.push(every.to_owned());
        }
        self.widened.dedup();
        let methods = self.methods.into_iter().flatten().filter(|_| !is_any);
        let requests = Conditions {
            scheme,
            paths: self.paths,
            packages: None,
            methods: methods.collect(),
        };
        let widened = (!self.widened.is_empty()).then(|| self.widened.join("; "));
        (requests, widened)
    }
}

/// Returns the rules for the requests to a destination, each with the access it allows beyond them,
/// in words.
fn of_place((host, port, scheme): &Place, asked: &Asked) -> Vec<(Meant, Option<String>)> {
    // What a program asked for may be no host at all.
    let Ok(host) = host.parse::<HostPart>() else {
        return Vec::new();
    };
    let meant = |requests| {
        let mut to = Destination::of(&host, *port);
        to.ports = Ports::Listed(vec![(*port, *port)]);
        Meant {
            to,
            way: Way::Usual,
            requests,
            limits: RuleLimits::default(),
        }
    };
    if scheme.is_none() {
        return vec![(meant(Conditions::default()), None)];
    }
    let groups = asked.groups().into_iter();
    let rules = groups.map(|group| {
        let (requests, widened) = group.requests(*scheme);
        (meant(requests), widened)
    });
    rules.collect()
}

/// Returns the access the rule for these paths allows beyond them, in words.
fn widened(asked: &BTreeSet<String>) -> Option<String> {
    let count = asked.len();
    (count > PATHS_MAX).then(|| match paths(asked).is_empty() {
        true => format!("widened to every path: {count} share nothing"),
        false => format!("widened to what {count} paths share"),
    })
}

/// Returns the paths one by one, or the directory that they share with all beneath it; empty if
/// that is everything.
fn paths(asked: &BTreeSet<String>) -> Vec<PathPattern> {
    let patterns = |paths: &mut dyn Iterator<Item = String>| -> Option<Vec<PathPattern>> {
        paths.map(|path| PathPattern::try_from(path).ok()).collect()
    };
    if asked.len() <= PATHS_MAX {
        return patterns(&mut asked.iter().cloned()).unwrap_or_default();
    }
    let mut paths = asked.iter();
    let first = paths.next().map_or("", String::as_str);
    let mut shared: Vec<&str> = first.split('/').collect();
    // The last segment is one of a page.
    shared.pop();
    for path in paths {
        let same = shared.iter().zip(path.split('/'));
        let same = same.take_while(|(left, right)| **left == *right).count();
        shared.truncate(same);
    }
    match shared.len() {
        0 | 1 => Vec::new(),
        _ => patterns(&mut std::iter::once(shared.join("/") + "/**")).unwrap_or_default(),
    }
}

/// Formats the rules as a part of a profile.
pub fn as_profile(rules: &[Meant]) -> String {
    let entries: String = rules
        .iter()
        .map(|rule| format!("    {},\n", network_entry(rule)))
        .collect();
    format!("[network]\nallow = [\n{entries}]\n")
}

/// Returns the text printed at the run's end, for pasting.
pub fn told(rules: &[Meant]) -> String {
    match rules {
        [] => "learnt: nothing was reached that the rules do not allow already\n".to_owned(),
        rules => format!(
            "learnt: this allows what was reached, in a profile; read it before you paste it\n\n{}",
            as_profile(rules)
        ),
    }
}

#[cfg(test)]
mod tests;
