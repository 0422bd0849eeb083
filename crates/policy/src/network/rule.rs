//! One rule of `[network]`: a string, or a table.

use std::ops::Range;

use atoll_model::network::{
    Conditions, Destination, InvalidRule, METHODS, Meant, PathPattern, Ports, Scheme, THIS_HOST,
    Way, parse_method,
};

use crate::document::{Complaint, Document, Section};
use crate::network::{likely, limits, packages, repositories};
use crate::quoting::quoted;
use crate::suggest::nearest;
use crate::words::among;

/// The effect of a list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Allow,
    Deny,
    /// Allows with a person's approval each time.
    Ask,
}

/// The hint on the forms of a rule.
const FORMS: &str = "as \"example.com\" (ports 80 and 443), \"example.com:22\", \
     \"*.example.com\", \"192.0.2.0/24:5432\", \"[2001:db8::1]:443\", or with methods and a path as \
     \"GET https://example.com/v1/**\"";

/// Parses a rule that is one string.
pub(crate) fn parse(text: &str, effect: Effect) -> Result<Meant, Complaint> {
    if let Some(complaint) = likely::instead(text) {
        return Err(complaint);
    }
    let meant = text.parse::<Meant>().map_err(|error| {
        if let Some(complaint) = likely::mistake(text) {
            return complaint;
        }
        if error == InvalidRule::OnePage {
            let whole = text.trim_end_matches('/');
            return Complaint::new(
                format!("{:?} is no rule: {error}", likely::shown(text)),
                format!("write {whole:?} for all of its pages"),
            );
        }
        let what = match error {
            InvalidRule::Destination(_) => "no destination",
            InvalidRule::Method(_)
            | InvalidRule::Path(_)
            | InvalidRule::Scheme
            | InvalidRule::NoUrl
            | InvalidRule::OnePage => "no rule",
        };
        Complaint::new(
            format!("{:?} is {what}: {error}", likely::shown(text)),
            FORMS,
        )
    })?;
    settled(meant, effect)
}

/// Parses the destination of a tunnel.
pub(crate) fn parse_tunnel(text: &str) -> Result<Meant, Complaint> {
    let to = allowable(parse_destination(text)?)?;
    Ok(Meant {
        way: Way::Tunnel,
        ..Meant::from(to)
    })
}

pub(crate) fn parse_destination(text: &str) -> Result<Destination, Complaint> {
    if let Some(complaint) = likely::instead(text) {
        return Err(complaint);
    }
    text.parse::<Destination>().map_err(|error| {
        if let Some(complaint) = likely::mistake(text) {
            return complaint;
        }
        Complaint::new(
            format!("{:?} is no destination: {error}", likely::shown(text)),
            "as a host and its ports: \"example.com\", \"example.com:443\"",
        )
    })
}

/// Checks that a rule may allow a destination: the host's own loopback only at named ports.
fn allowable(to: Destination) -> Result<Destination, Complaint> {
    if to.is_allowable() {
        return Ok(to);
    }
    Err(Complaint::new(
        format!(
            "{THIS_HOST} is what listens on this host for its own programs: each port is named"
        ),
        format!("as \"{THIS_HOST}:5432\" or \"{THIS_HOST}:5432,6379\""),
    ))
}

/// Completes a rule: a denial without a port holds at every port, and one of a path whatever the
/// query.
fn settled(mut meant: Meant, effect: Effect) -> Result<Meant, Complaint> {
    // A denial of what nobody sends would deny nothing.
    let mut methods = meant.requests.methods.iter();
    let mistyped = methods.find_map(|method| Some((method, mistyped_method(method)?)));
    if let Some((method, known)) = mistyped {
        return Err(Complaint::new(
            format!("there is no method {method}"),
            format!("did you mean {known}?"),
        ));
    }
    match effect {
        Effect::Allow => {
            meant.to = allowable(meant.to)?;
            return Ok(meant);
        }
        Effect::Ask => meant.to = allowable(meant.to)?,
        Effect::Deny if meant.to.ports == Ports::Web => meant.to.ports = Ports::All,
        Effect::Deny => {}
    }
    if meant.requests.paths.iter().any(PathPattern::has_query) {
        return Err(Complaint::new(
            "what is denied or asked about is so whatever the query, which a program could write \
             in another way",
            "leave out what comes after '?', or allow the queries that may be sent",
        ));
    }
    Ok(meant)
}

/// Returns the known method that an unknown one nearly is.
#[must_use]
pub fn mistyped_method(method: &str) -> Option<String> {
    let known = METHODS.map(str::to_ascii_lowercase);
    let is_known = METHODS.contains(&method);
    let near = nearest(method, known.iter().map(String::as_str)).filter(|_| !is_known)?;
    Some(near.to_ascii_uppercase())
}

/// Reads a rule that is a table, as one rule for each of its destinations.
pub(crate) fn read(
    document: &mut Document,
    mut section: Section<'_>,
    at: &Range<usize>,
    effect: Effect,
) -> Vec<Meant> {
    if section.holds("registry") {
        return packages::read(document, section, at, effect);
    }
    if section.holds("preset") {
        return repositories::read(document, section, at, effect);
    }
    let before = document.problem_count();
    let mut to = if section.holds_text("to") {
        let one = document.text(&mut section, "to", parse_destination);
        one.map(|one| vec![one.value])
    } else {
        texts(document, &mut section, "to", at, parse_destination)
    };
    let method = |text: &str| parse_method(text).map_err(|error| complaint_of(text, &error));
    let methods = texts(document, &mut section, "methods", at, method);
    let path = |text: &str| {
        PathPattern::try_from(text.to_owned()).map_err(|error| complaint_of(text, &error))
    };
    let paths = texts(document, &mut section, "paths", at, path);
    let scheme = document.text(&mut section, "scheme", parse_scheme);
    let carry = document.text(&mut section, "carry", parse_way);
    let limits = limits::read(document, &mut section, at);
    let known = [
        "to", "methods", "paths", "scheme", "carry", "registry", "preset",
    ];
    document.end(section, &[&known[..], &limits::KEYS].concat());
    if document.problem_count() > before {
        return Vec::new();
    }
    let requests = Conditions {
        scheme: scheme.map(|scheme| scheme.value),
        methods: methods.unwrap_or_default(),
        paths: paths.unwrap_or_default(),
        packages: None,
    };
    let way = carry.map(|carry| carry.value).unwrap_or_default();
    // As in a URL, a scheme without a port is at its own one.
    if let (Some(scheme), Effect::Allow | Effect::Ask) = (requests.scheme, effect) {
        for to in to.iter_mut().flatten().filter(|to| to.ports == Ports::Web) {
            to.ports = Ports::of(scheme);
        }
    }
    if let Some(mistake) = mistake(to.is_some(), way, &requests, effect) {
        document.report(at, mistake.to_owned(), None);
    }
    let of = to.as_deref().unwrap_or_default();
    if let Some(mistake) = limits::mistake(&limits, of, way, &requests, effect) {
        document.report(at, mistake.what, mistake.hint);
    }
    let mut rules = Vec::new();
    for to in to.unwrap_or_default() {
        let meant = Meant {
            to,
            way,
            requests: requests.clone(),
            limits: limits.clone(),
        };
        match settled(meant, effect) {
            Ok(meant) => rules.push(meant),
            Err(complaint) => document.report(at, complaint.what, complaint.hint),
        }
    }
    rules
}

/// Returns a complaint about parts of a rule that do not go together.
fn mistake(has_to: bool, way: Way, requests: &Conditions, effect: Effect) -> Option<&'static str> {
    match (way, effect) {
        _ if !has_to => Some("a rule needs `to`: the host that it is about"),
        (Way::Inspect | Way::Tunnel, Effect::Deny) => {
            Some("what is denied is not carried: leave out `carry`")
        }
        (Way::Tunnel, Effect::Allow | Effect::Ask) if !requests.is_empty() => {
            Some("nobody sees methods, paths or schemes in a tunnel: leave them or `carry` out")
        }
        (Way::Usual, Effect::Deny)
        | (Way::Usual | Way::Inspect | Way::Tunnel, Effect::Allow | Effect::Ask) => None,
    }
}

/// Reads a list of strings, and reports an empty one: nobody who writes it means all.
pub(crate) fn texts<T>(
    document: &mut Document,
    section: &mut Section<'_>,
    key: &'static str,
    at: &Range<usize>,
    parse: impl Fn(&str) -> Result<T, Complaint>,
) -> Option<Vec<T>> {
    let before = document.problem_count();
    let list = document.list(section, key, parse)?;
    if list.value.is_empty() && document.problem_count() == before {
        let what = format!("`{key}` is empty, so that the rule means nothing");
        let hint = match key {
            "to" | "packages" => "name one, or \"*\" for all".to_owned(),
            _ => format!("leave `{key}` out to mean all"),
        };
        document.report(at, what, Some(hint));
    }
    Some(list.value.into_iter().map(|one| one.value).collect())
}

pub(crate) fn complaint_of(text: &str, error: &dyn std::error::Error) -> Complaint {
    Complaint::from(format!("{text:?}: {error}"))
}

pub(crate) fn parse_scheme(text: &str) -> Result<Scheme, Complaint> {
    match text {
        "http" => Ok(Scheme::Http),
        "https" => Ok(Scheme::Https),
        _ => Err(among(text, &["http", "https"])),
    }
}

fn parse_way(text: &str) -> Result<Way, Complaint> {
    match text {
        "requests" => Ok(Way::Inspect),
        "tunnel" => Ok(Way::Tunnel),
        _ => Err(among(text, &["requests", "tunnel"])),
    }
}

/// Formats a rule as an entry of a profile's list `allow` or `deny`.
#[must_use]
pub fn network_entry(rule: &Meant) -> String {
    match rule.as_text() {
        Some(text) => quoted(&text),
        None => network_entry_of(rule, std::iter::empty()),
    }
}

/// Formats a rule with further destinations as such an entry.
pub(crate) fn network_entry_of<'a>(
    rule: &'a Meant,
    further: impl Iterator<Item = &'a Destination>,
) -> String {
    let mut all: Vec<String> = std::iter::once(&rule.to)
        .chain(further)
        .map(|to| quoted(&to.to_string()))
        .collect();
    let to = match all.len() {
        1 => all.remove(0),
        _ => format!("[{}]", all.join(", ")),
    };
    let list = |texts: &mut dyn Iterator<Item = &str>| {
        let texts: Vec<String> = texts.map(quoted).collect();
        texts.join(", ")
    };
    let Conditions {
        scheme,
        methods,
        paths,
        packages,
    } = &rule.requests;
    if let Some(packages) = packages {
        return packages::entry(packages, rule.limits.written());
    }
    let mut fields = vec![format!("to = {to}")];
    if !methods.is_empty() {
        let methods = list(&mut methods.iter().map(String::as_str));
        fields.push(format!("methods = [{methods}]"));
    }
    if !paths.is_empty() {
        let paths = list(&mut paths.iter().map(PathPattern::as_str));
        fields.push(format!("paths = [{paths}]"));
    }
    fields.extend(scheme.map(|scheme| format!("scheme = \"{scheme}\"")));
    match rule.way {
        Way::Usual => {}
        Way::Inspect => fields.push("carry = \"requests\"".to_owned()),
        Way::Tunnel => fields.push("carry = \"tunnel\"".to_owned()),
    }
    fields.extend(rule.limits.written());
    format!("{{ {} }}", fields.join(", "))
}
