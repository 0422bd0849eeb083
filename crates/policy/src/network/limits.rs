//! Limits in the table of a rule.

use std::num::{NonZeroU32, NonZeroU64};
use std::ops::Range;

use atoll_model::network::{Conditions, Destination, Ports, RuleLimits, Way};
use atoll_model::{parse_bytes, parse_duration};

use crate::document::{Complaint, Document, Section};
use crate::network::rule::Effect;

/// The keys of limits in the table of a rule.
pub(crate) const KEYS: [&str; 7] = [
    "requests",
    "connections",
    "upload",
    "download",
    "rate",
    "body",
    "duration",
];

/// Reads all limits.
pub(crate) fn read(
    document: &mut Document,
    section: &mut Section<'_>,
    at: &Range<usize>,
) -> RuleLimits {
    let bytes = |text: &str| some(text, whole_bytes(text)?);
    let limits = RuleLimits {
        requests: document.measure(section, "requests", |text| {
            text.parse().map_err(|error| complaint_of(text, &error))
        }),
        connections: document.measure(section, "connections", |text| {
            let number = text.parse::<NonZeroU32>();
            number.map_err(|_| Complaint::from(format!("{text:?} is no number of connections")))
        }),
        upload: document.measure(section, "upload", bytes),
        download: document.measure(section, "download", bytes),
        rate: document.measure(section, "rate", |text| {
            let each_second = text.strip_suffix("/s").ok_or_else(|| {
                Complaint::new(
                    format!("{text:?} is no rate"),
                    "write bytes in a second: \"1MiB/s\"",
                )
            })?;
            some(text, whole_bytes(each_second)?)
        }),
        // None at all is a body's length as well.
        body: document.measure(section, "body", whole_bytes),
        duration_ms: document.measure(section, "duration", |text| {
            let duration = parse_duration(text).map_err(|error| complaint_of(text, &error))?;
            some(
                text,
                u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            )
        }),
        table: u64::try_from(at.start).unwrap_or(u64::MAX),
    };
    // What limits nothing is the same wherever it stands.
    match limits.is_empty() {
        true => RuleLimits::default(),
        false => limits,
    }
}

fn whole_bytes(text: &str) -> Result<u64, Complaint> {
    parse_bytes(text).map_err(|error| Complaint::from(error.to_string()))
}

fn some(text: &str, number: u64) -> Result<NonZeroU64, Complaint> {
    NonZeroU64::new(number).ok_or_else(|| {
        Complaint::new(
            format!("{text:?} would allow nothing"),
            "leave the rule out to allow nothing",
        )
    })
}

fn complaint_of(text: &str, error: &dyn std::error::Error) -> Complaint {
    let what = error.to_string();
    match what.contains(text) {
        true => Complaint::from(what),
        false => Complaint::from(format!("{text:?}: {what}")),
    }
}

/// Returns a complaint about limits that do not go with their rule, with a suggestion.
pub(crate) fn mistake(
    limits: &RuleLimits,
    to: &[Destination],
    way: Way,
    requests: &Conditions,
    effect: Effect,
) -> Option<Complaint> {
    if limits.is_empty() {
        return None;
    }
    if effect == Effect::Deny {
        return Some(Complaint::new(
            "what is denied is not reached at all, so that nothing of it is limited",
            "leave the limits out, or write the rule in `allow`",
        ));
    }
    let key = limits.of_requests()?;
    let is_web = |to: &Destination| are_of_the_web(&to.ports);
    match way {
        Way::Tunnel => Some(Complaint::new(
            format!("nobody sees requests in a tunnel: `{key}` is for rules that are looked into"),
            format!(
                "leave `{key}` or `carry` out; connections, upload, download, rate and duration hold for tunnels too"
            ),
        )),
        Way::Inspect => None,
        Way::Usual if !requests.is_empty() || to.iter().all(is_web) => None,
        Way::Usual => Some(Complaint::new(
            format!(
                "`{key}` is about requests, and connections to other ports than 80 and 443 are not looked into for them"
            ),
            "write carry = \"requests\" as well, if requests are what is sent there",
        )),
    }
}

/// Returns whether all of these ports are inspected by default.
fn are_of_the_web(ports: &Ports) -> bool {
    match ports {
        Ports::Web => true,
        Ports::All => false,
        Ports::Listed(ranges) => ranges
            .iter()
            .all(|(first, last)| first == last && [80, 443].contains(first)),
    }
}
