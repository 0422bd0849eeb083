//! The settings of the command line for the network.

use crate::document::Complaint;
use crate::error::ProfileError;
use crate::levels;
use crate::network::ask::AskSettings;
use crate::network::host_ports::{self, HOST_PORT};
use crate::network::preset::Preset;
use crate::network::publishing::{PUBLISH, parse_published};
use crate::network::rule::{self, Effect};
use crate::network::{LEARN, likely};
use crate::origin::{Origin, Sourced};
use crate::rules::Rules;
use crate::source::Requested;

use atoll_model::network::Meant;

const ALLOW: Origin = Origin::CommandLine("--allow");

/// The file of hosts that the person has allowed at runs' terminals.
const ALLOWED: Origin = Origin::CommandLine("allowed.toml");

const TUNNEL: Origin = Origin::CommandLine("--tunnel");

const ASK: Origin = Origin::CommandLine("--ask");

const DENY: Origin = Origin::CommandLine("--deny");

const PRESET: Origin = Origin::CommandLine("--preset");

/// Applies the command line's settings.
pub(crate) fn apply(rules: &mut Rules, requested: &Requested) -> Result<(), ProfileError> {
    let of_network = |name: &&String| levels::preset::named(name).is_none();
    for name in requested.presets.iter().filter(of_network) {
        let preset = Preset::parse(name).map_err(|complaint| wrong(&PRESET, complaint))?;
        rules.network.add_preset(preset)?;
    }
    type Read = fn(&str) -> Result<Meant, Complaint>;
    let read = |texts: &[String], origin: &Origin, parse: Read| {
        let read = |text: &String| match parse(text) {
            Ok(meant) => Ok(Sourced::new(meant, origin.clone())),
            Err(complaint) => Err(wrong(origin, complaint)),
        };
        texts.iter().map(read).collect::<Result<Vec<_>, _>>()
    };
    let allow = read(&requested.allow, &ALLOW, |text| {
        rule::parse(text, Effect::Allow)
    })?;
    let tunnel = read(&requested.tunnel, &TUNNEL, rule::parse_tunnel)?;
    let deny = read(&requested.deny, &DENY, |text| {
        rule::parse(text, Effect::Deny)
    })?;
    let of_profile = requested.allowed.iter();
    let of_profile = of_profile.filter(|one| one.profile == rules.profile.value);
    let of_profile: Vec<String> = of_profile.map(|one| one.to.clone()).collect();
    let allowed = read(&of_profile, &ALLOWED, |text| {
        rule::parse(text, Effect::Allow)
    })?;
    let allow = allow.into_iter().chain(tunnel).chain(allowed);
    rules.network.allow.extend(allow);
    for text in &requested.host_ports {
        let (port, meant) = host_ports::parse(text).map_err(|what| wrong(&HOST_PORT, what))?;
        rules.network.allow.push(Sourced::new(meant, HOST_PORT));
        rules.network.host_ports.push(Sourced::new(port, HOST_PORT));
    }
    rules.network.deny.extend(deny);
    let ask = read(&requested.ask, &ASK, |text| rule::parse(text, Effect::Ask))?;
    rules.network.ask.extend(AskSettings::opening(ask));
    for text in &requested.publish {
        let port = parse_published(text).map_err(|complaint| wrong(&PUBLISH, complaint))?;
        rules.network.publish(Sourced::new(port, PUBLISH));
    }
    let opened = rules.network.allow.iter().chain(rules.network.ask.iter());
    let notices = opened.filter_map(|rule| {
        let notice = likely::notice(rule)?;
        Some((notice, rule.origin.clone()))
    });
    for (notice, origin) in notices.collect::<Vec<_>>() {
        rules.notice(notice, origin);
    }
    if requested.learn {
        rules.network.learn = true;
        rules.notice(
            "everything on the internet that no rule denies can be reached, to learn of it; do \
             this only with what you would trust with that"
                .to_owned(),
            LEARN,
        );
    }
    Ok(())
}

fn wrong(origin: &Origin, complaint: Complaint) -> ProfileError {
    let option = match origin {
        Origin::CommandLine(option) => option,
        Origin::BuiltIn | Origin::File { .. } => "an option",
    };
    ProfileError::Request {
        option,
        why: match complaint.hint {
            Some(hint) if hint.starts_with("as ") => {
                format!("{}; write it {hint}", complaint.what)
            }
            Some(hint) => format!("{}; {hint}", complaint.what),
            None => complaint.what,
        },
    }
}
