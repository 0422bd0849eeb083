//! Suggestions for texts that are no valid rule, or not the intended one.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use atoll_model::network::{
    Block, Destination, HostPattern, METHODS, Meant, Special, THIS_HOST, Way, special,
};

use crate::document::Complaint;
use crate::network::preset;
use crate::origin::Sourced;

/// Other names of registries and code hosts, with their presets.
const OTHER_NAMES: [(&str, &str); 10] = [
    ("pypi", "pip"),
    ("python", "pip"),
    ("npmjs", "npm"),
    ("node", "npm"),
    ("yarn", "npm"),
    ("crates", "cargo"),
    ("rust", "cargo"),
    ("golang", "go"),
    ("git", "git-read"),
    ("github", "github-read"),
];

/// Returns the preset that this is another name of.
pub(crate) fn preset_of(text: &str) -> Option<&'static str> {
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == text);
    other.map(|(_, preset)| *preset)
}

/// Returns the part of a text that names a host and ports.
fn destination(text: &str) -> &str {
    let text = text.rsplit_once(' ').map_or(text, |(_, rest)| rest);
    match text.split_once("://") {
        Some((_, rest)) => rest.split(['/', '?']).next().unwrap_or_default(),
        None => text,
    }
}

/// Returns the complaint about a text that names a preset or method instead of a host.
pub(crate) fn instead(text: &str) -> Option<Complaint> {
    let is_method = |one: &&str| one.eq_ignore_ascii_case(text);
    if let Some(method) = METHODS.into_iter().find(is_method) {
        return Some(Complaint::new(
            format!("{text:?} is a method without a host"),
            format!("write where to, as \"{method} example.com\""),
        ));
    }
    let name = preset_of(text).unwrap_or(text);
    let preset = preset::ALL.iter().find(|preset| preset.name == name)?;
    Some(Complaint::new(
        format!("{text:?} alone is a host of your own network, and the name of a preset"),
        format!(
            "for the preset: --preset {0}, or presets = [\"{0}\"] in a profile; for such a host name its ports, \
             as {text}:443",
            preset.name
        ),
    ))
}

/// Returns an invalid rule's text for messages: anything before an `@` may be a password and is
/// left out.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    match text.rsplit_once('@') {
        Some((_, rest)) => format!("…@{rest}").into(),
        None => text.into(),
    }
}

/// Returns the complaint about a user or password in a rule; it repeats nothing of either.
fn user(text: &str, host: &str) -> Option<Complaint> {
    // A password with a '/' in it looks like a path, and its beginning like ports.
    let is_ports = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || b"-,*".contains(&byte))
    };
    let is_cut = || {
        let rest = host.rsplit_once(':').map(|(_, ports)| ports);
        text.contains('@') && !host.starts_with('[') && rest.is_some_and(|rest| !is_ports(rest))
    };
    let hint = match host.rsplit_once('@') {
        Some((_, rest)) => format!("leave out the '@' and what stands before it: {rest:?}"),
        None if is_cut() => "leave out the '@' and what stands before it".to_owned(),
        None => return None,
    };
    Some(Complaint::new(
        "a user or a password is no part of a rule".to_owned(),
        hint,
    ))
}

/// Returns a more specific complaint about a text that is no valid rule, with a suggestion.
pub(crate) fn mistake(text: &str) -> Option<Complaint> {
    let host = destination(text);
    let of = |what: String, hint: String| Some(Complaint::new(what, hint));
    if let Some(complaint) = user(text, host) {
        return Some(complaint);
    }
    if host.contains(',') && !host.contains(':') && host.split(',').all(is_host) {
        let each: Vec<String> = host.split(',').map(|one| format!("{one:?}")).collect();
        return of(
            format!("{host:?} is more than one host"),
            format!(
                "write each for itself: an option for each, or a list in a profile: [{}]",
                each.join(", ")
            ),
        );
    }
    if let Some(address) = bare_6(host) {
        return of(
            format!("{host:?}: an address of IPv6 stands in brackets"),
            format!("write \"[{address}]\", with ports \"[{address}]:443\""),
        );
    }
    let (address, bits) = host.split_once('/')?;
    let inner = address.trim_start_matches('[');
    let (bits, is_6) = (bits.trim_end_matches(']'), address.starts_with('['));
    let bits = bits
        .split(']')
        .next()
        .unwrap_or_default()
        .split(':')
        .next()?;
    let address: IpAddr = match is_6 {
        true => inner.parse::<Ipv6Addr>().ok()?.into(),
        false => inner.parse::<Ipv4Addr>().ok()?.into(),
    };
    let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let width = if is_6 { 128 } else { 32 };
    let bits = bits.parse::<u32>().ok().filter(|_| is_number);
    match bits.filter(|bits| *bits <= width) {
        None => of(
            format!(
                "{host:?}: after the '/' stands how many bits its addresses share, from 0 to {width}"
            ),
            format!(
                "write \"{}\" for this one address alone",
                block(address, width)
            ),
        ),
        Some(bits) => {
            let first = first(address, bits)?;
            of(
                format!("{host:?}: a block begins with its first address, which this is not"),
                format!(
                    "write \"{}\" for the block that it lies in",
                    block(first, bits)
                ),
            )
        }
    }
}

fn is_host(text: &str) -> bool {
    text.parse::<Destination>().is_ok()
}

/// Recognises an IPv6 address, or a block, without its brackets.
fn bare_6(text: &str) -> Option<&str> {
    let address = text.split('/').next().unwrap_or_default();
    address.parse::<Ipv6Addr>().ok().map(|_| text)
}

fn block(first: IpAddr, bits: u32) -> String {
    match first {
        IpAddr::V4(first) => format!("{first}/{bits}"),
        IpAddr::V6(first) => format!("[{first}/{bits}]"),
    }
}

/// Returns the first address of the block with so many shared bits, if this is another one.
fn first(address: IpAddr, bits: u32) -> Option<IpAddr> {
    let first: IpAddr = match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    };
    (first != address).then_some(first)
}

/// Returns a one-line notice on the consequences of a rule that allows something.
pub(crate) fn notice(rule: &Sourced<Meant>) -> Option<String> {
    let meant = &rule.value;
    match &meant.to.host {
        HostPattern::Any if meant.way == Way::Tunnel => Some(
            "a tunnel to '*' lets every host on the internet be sent anything, unseen: no method, no path, no \
             name within TLS is judged"
                .to_owned(),
        ),
        HostPattern::Block(block) if block.bits() == 0 => Some(format!(
            "{} allows every address, also private ones: this host's networks and the metadata of a cloud",
            meant.to
        )),
        HostPattern::Block(block) if is_loopback(block) => Some(own(&meant.to)),
        HostPattern::Exact(name) if is_local(name.as_str()) => Some(own(&meant.to)),
        HostPattern::Any
        | HostPattern::Exact(_)
        | HostPattern::Beneath(_)
        | HostPattern::Block(_) => None,
    }
}

fn own(to: &Destination) -> String {
    format!(
        "{to} opens nothing by itself: inside, loopback is the program's own; a server of this \
         host's is reached as {THIS_HOST}:PORT, by --allow {THIS_HOST}:PORT"
    )
}

fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

fn is_loopback(block: &Block) -> bool {
    let is_own = |special: Special| special.name.contains("loopback");
    block.first().is_loopback() || special(block.first()).is_some_and(is_own)
}
