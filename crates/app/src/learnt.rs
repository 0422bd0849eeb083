//! What a run that was to be learnt from has reached, as the smallest rules that allow it
//! again.

use std::collections::{BTreeMap, BTreeSet};

use atoll_model::network::{
    Conditions, Destination, HostPart, Meant, NetworkRule, PathPattern, Ports, RuleLimits, Scheme,
    Target, Way, parse_method,
};
use atoll_policy::network_entry;
use atoll_store::Event;
use serde_json::Value;

/// More paths of one host than this become the ones beneath what they share.
const PATHS_MAX: usize = 6;
/// More hosts than this are a rule of somebody's own.
const RULES_MAX: usize = 128;

/// Where requests went to: a host as it was named, its port, and how they were sent.
type Place = (String, u16, Option<Scheme>);

/// What was asked of one place.
#[derive(Default)]
struct Asked {
    methods: BTreeSet<String>,
    paths: BTreeSet<String>,
    /// A method that no rule can name.
    any_method: bool,
    /// A path that no rule can name.
    unnamed: bool,
}

/// The rules for what the events of a run say was let pass to learn of it.
pub(crate) fn rules<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<Meant> {
    let learning = NetworkRule::learning().told();
    let mut places: BTreeMap<Place, Asked> = BTreeMap::new();
    let number = |event: &Event| event.body.get("flow").and_then(Value::as_u64);
    let is_unreached = |event: &&&Event| {
        event.kind == "flow.closed" && event.body.get("unreached") == Some(&Value::Bool(true))
    };
    let events: Vec<&Event> = events.collect();
    let unreached: BTreeSet<u64> = events
        .iter()
        .filter(is_unreached)
        .filter_map(|event| number(event))
        .collect();
    let opened = events.into_iter().filter(|event| {
        let is_reached = number(event).is_none_or(|flow| !unreached.contains(&flow));
        event.kind == "flow.opened" && is_reached
    });
    for event in opened {
        let said = |member: &str| event.body.get(member).and_then(Value::as_str);
        if said("rule") != Some(&learning) {
            continue;
        }
        let port = event.body.get("port").and_then(Value::as_u64);
        let (Some(host), Some(port)) = (said("host"), port.and_then(|port| port.try_into().ok()))
        else {
            continue;
        };
        let scheme = event.body.get("scheme").cloned();
        let scheme = scheme.and_then(|scheme| serde_json::from_value(scheme).ok());
        let asked = places.entry((host.to_owned(), port, scheme)).or_default();
        let method = said("method").unwrap_or_default();
        if parse_method(method).as_deref() == Ok(method) {
            asked.methods.insert(method.to_owned());
        } else {
            asked.any_method = true;
        }
        let path = said("path").unwrap_or_default();
        let is_named = Target::parse(path).is_ok_and(|target| target.unclear().is_none());
        if is_named && !path.contains('*') {
            asked.paths.insert(path.to_owned());
        } else {
            asked.unnamed = true;
        }
    }
    let rules = places.into_iter();
    rules
        .filter_map(|(place, asked)| rule(place, asked))
        .take(RULES_MAX)
        .collect()
}

fn rule((host, port, scheme): Place, asked: Asked) -> Option<Meant> {
    // What a program asked for may be no host at all.
    let host: HostPart = host.parse().ok()?;
    let mut to = Destination::of(&host, port);
    to.ports = Ports::Listed(vec![(port, port)]);
    let requests = match scheme {
        None => Conditions::default(),
        Some(_) => Conditions {
            scheme,
            paths: paths(&asked),
            packages: None,
            methods: match asked.any_method {
                true => Vec::new(),
                false => asked.methods.into_iter().collect(),
            },
        },
    };
    Some(Meant {
        to,
        way: Way::Usual,
        requests,
        limits: RuleLimits::default(),
    })
}

/// The paths one by one, or what they share with all beneath it; none where that is all.
fn paths(asked: &Asked) -> Vec<PathPattern> {
    let patterns = |paths: &mut dyn Iterator<Item = String>| -> Option<Vec<PathPattern>> {
        paths.map(|path| PathPattern::try_from(path).ok()).collect()
    };
    if asked.unnamed {
        return Vec::new();
    }
    if asked.paths.len() <= PATHS_MAX {
        return patterns(&mut asked.paths.iter().cloned()).unwrap_or_default();
    }
    let mut paths = asked.paths.iter();
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

/// The rules as a part of a profile.
pub(crate) fn as_profile(rules: &[Meant]) -> String {
    let entries: String = rules
        .iter()
        .map(|rule| format!("    {},\n", network_entry(rule)))
        .collect();
    format!("[network]\nallow = [\n{entries}]\n")
}

/// What a person is told at the run's end, for pasting.
pub(crate) fn told(rules: &[Meant]) -> String {
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
