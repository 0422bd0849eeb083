//! What a program may reach: `network` in files, `--allow` and `--deny`.

use atoll_model::Reason;
use atoll_model::network::{Destination, Network, NetworkRule, Ports};

use crate::document::{Complaint, Document, Section};
use crate::error::ProfileError;
use crate::origin::{Origin, Sourced};
use crate::refusal::reason;
use crate::rules::Rules;
use crate::settings::among;

const ALLOW: Origin = Origin::CommandLine("--allow");
const DENY: Origin = Origin::CommandLine("--deny");

/// The most destinations of a boundary: what is described to who carries has an end.
const DESTINATIONS_MAX: usize = 256;

/// `network`, as a text or a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkSettings {
    /// `"none"`: what was allowed before is not.
    none: bool,
    allow: Vec<Sourced<Destination>>,
    deny: Vec<Sourced<Destination>>,
}

/// The destinations of a boundary, with where each is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkRules {
    pub(crate) allow: Vec<Sourced<Destination>>,
    pub(crate) deny: Vec<Sourced<Destination>>,
}

impl NetworkSettings {
    pub(crate) fn read(document: &mut Document, top: &mut Section<'_>) -> Self {
        if top.holds_text("network") {
            let none = document.text(top, "network", parse_none).is_some();
            return Self {
                none,
                ..Self::default()
            };
        }
        let Some(mut section) = document.section(top, "network", "network") else {
            return Self::default();
        };
        let allow = document.list(&mut section, "allow", parse_destination);
        let deny = document.list(&mut section, "deny", parse_denied);
        let [allow, deny] =
            [allow, deny].map(|list| list.map(|list| list.value).unwrap_or_default());
        document.end(section, &["allow", "deny"]);
        Self {
            none: false,
            allow,
            deny,
        }
    }
}

impl NetworkSettings {
    /// Without what it would allow, which is returned beside.
    pub(crate) fn narrowed(mut self) -> (Self, Vec<Sourced<Destination>>) {
        let ignored = std::mem::take(&mut self.allow);
        (self, ignored)
    }
}

fn parse_none(text: &str) -> Result<(), Complaint> {
    match text {
        "none" => Ok(()),
        _ => {
            let mut complaint = among(text, &["none"]);
            complaint.hint =
                Some("write \"none\", or a table: [network] allow = [\"example.com\"]".to_owned());
            Err(complaint)
        }
    }
}

/// Reads where something may be reached, or may not.
pub(crate) fn parse_destination(text: &str) -> Result<Destination, Complaint> {
    text.parse::<Destination>().map_err(|error| {
        Complaint::new(
            format!("{text:?} is no destination: {error}"),
            "as \"example.com\" (ports 80 and 443), \"example.com:22\", \"*.example.com\", \
             \"192.0.2.0/24:5432\", \"[2001:db8::1]:443\"",
        )
    })
}

/// The same for what may not be: without ports, none of them.
pub(crate) fn parse_denied(text: &str) -> Result<Destination, Complaint> {
    let mut denied = parse_destination(text)?;
    if denied.ports == Ports::Web {
        denied.ports = Ports::All;
    }
    Ok(denied)
}

impl NetworkRules {
    /// A profile over what it extends: lists add up, and `"none"` empties them.
    pub(crate) fn merge(&mut self, settings: NetworkSettings) {
        if settings.none {
            self.allow.clear();
        }
        self.allow.extend(settings.allow);
        self.deny.extend(settings.deny);
    }

    /// What a boundary holds of them.
    pub(crate) fn boundary(&self) -> Network {
        let list = |list: &[Sourced<Destination>]| {
            let rule = |one: &Sourced<Destination>| NetworkRule {
                to: one.value.clone(),
                origin: one.origin.to_string(),
            };
            list.iter().map(rule).collect()
        };
        Network {
            allow: list(&self.allow),
            deny: list(&self.deny),
        }
    }
}

/// What the command line adds.
pub(crate) fn apply(
    rules: &mut Rules,
    allow: &[String],
    deny: &[String],
) -> Result<(), ProfileError> {
    type Read = fn(&str) -> Result<Destination, Complaint>;
    let read = |option: &'static str, texts: &[String], origin: Origin, parse: Read| {
        let read = |text: &String| {
            let destination = parse(text);
            destination
                .map(|destination| Sourced::new(destination, origin.clone()))
                .map_err(|complaint| ProfileError::Request {
                    option,
                    why: match complaint.hint {
                        Some(hint) => format!("{}; write it {hint}", complaint.what),
                        None => complaint.what,
                    },
                })
        };
        texts.iter().map(read).collect::<Result<Vec<_>, _>>()
    };
    rules
        .network
        .allow
        .extend(read("--allow", allow, ALLOW, parse_destination)?);
    rules
        .network
        .deny
        .extend(read("--deny", deny, DENY, parse_denied)?);
    Ok(())
}

/// Why there is no such network.
pub(crate) fn refusals(rules: &Rules, is_fenced: bool) -> Vec<Reason> {
    let network = &rules.network;
    let Some(first) = network.allow.first() else {
        return Vec::new();
    };
    let what = format!("reaching {}", first.value);
    let mut reasons = Vec::new();
    if is_fenced {
        reasons.push(reason(
            what.clone(),
            "without namespaces there is no network that leads only to what is allowed",
            &first.origin,
            "let user namespaces be made (atoll doctor says how), or leave it out",
        ));
    }
    if rules.syscalls.deny_sockets.value {
        reasons.push(reason(
            what,
            "sockets are refused altogether here",
            &rules.syscalls.deny_sockets.origin,
            "leave deny-sockets out, or what is allowed",
        ));
    }
    if network.allow.len() + network.deny.len() > DESTINATIONS_MAX {
        reasons.push(reason(
            "so many destinations",
            format!("a boundary holds {DESTINATIONS_MAX} of them"),
            &first.origin,
            "name a few above them, as *.example.com",
        ));
    }
    reasons
}
