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
    let is_learnt =
        |event: &Event| event.body.get("rule").and_then(Value::as_str) == Some(learning.as_str());
    let rules = places(events, is_learnt).into_iter();
    rules
        .filter_map(|(place, asked)| rule(place, asked))
        .take(RULES_MAX)
        .collect()
}

/// The rules for all that was reached by runs, whatever has let it pass, and what of each was
/// widened, in words.
pub(crate) fn used<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<(Meant, Option<String>)> {
    let is_reached = |event: &Event| {
        let kind = event.body.get("kind").and_then(Value::as_str);
        matches!(
            kind,
            Some("request" | "tunnel" | "postgres" | "fetch" | "revocation")
        )
    };
    let all = places(events, is_reached).into_iter();
    all.filter_map(|(place, asked)| {
        if place.2.is_some() {
            let widened = asked.widened();
            return Some((rule(place, asked)?, widened));
        }
        let mut meant = rule(place, asked)?;
        meant.way = Way::Tunnel;
        Some((
            meant,
            Some("carried unseen: whatever is sent there".to_owned()),
        ))
    })
    .take(RULES_MAX)
    .collect()
}

/// What was asked of each place, by those events of opened flows that are meant.
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
        if parse_method(method).as_deref() == Ok(method) {
            self.methods.insert(method.to_owned());
        } else {
            self.any_method = true;
        }
        let path = path.unwrap_or_default();
        let is_named = Target::parse(path).is_ok_and(|target| target.unclear().is_none());
        if is_named && !path.contains('*') {
            self.paths.insert(path.to_owned());
        } else {
            self.unnamed = true;
        }
    }

    /// What its rule opens that nobody has asked for.
    fn widened(&self) -> Option<String> {
        if self.unnamed {
            return Some("widened to every path: one of them is no rule's".to_owned());
        }
        let count = self.paths.len();
        if count > PATHS_MAX {
            return Some(match paths(self).is_empty() {
                true => format!("widened to every path: {count} share nothing"),
                false => format!("widened to what {count} paths share"),
            });
        }
        let is_any = self.any_method;
        is_any.then(|| "widened to every method: one of them is no rule's".to_owned())
    }
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
