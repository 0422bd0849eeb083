//! Rules for network access.

use std::fmt;
use std::iter::once;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::block::within;
use super::{Binding, Block, Conditions, HostName, HostPart, InvalidHost, Place, Published};
use super::{NetworkLimits, Request, RuleLimits, Special, SshGrant, Upstream, Way, special};

/// A boundary's network access: nothing without a rule that allows it; denials override these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Rules that allow.
    pub allow: Vec<NetworkRule>,
    /// Rules that deny, overriding every allowance.
    pub deny: Vec<NetworkRule>,
    /// Rules that ask a person first about allowed destinations. They allow nothing themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<NetworkRule>,
    /// A rule that allows everything no other rule denies, to record it (`--learn`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learn: Option<NetworkRule>,
    /// Ports of the sandbox that programs of the host can connect to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<Published>,
    /// Ports of the sandbox's own loopback that lead to the same ports of the host's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<u16>,
    /// The way that connections leave the host.
    #[serde(default, skip_serializing_if = "Upstream::is_empty")]
    pub upstream: Upstream,
    /// The bindings of credentials to requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<Binding>,
    /// The hosts where SSH keys log in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh: Vec<SshGrant>,
    /// The limits of all flows together.
    #[serde(default, skip_serializing_if = "NetworkLimits::is_empty")]
    pub limits: NetworkLimits,
}

/// One rule that allows, denies or asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRule {
    /// The destination.
    pub to: Destination,
    /// The transport: requests, or a tunnel.
    #[serde(default, skip_serializing_if = "Way::is_usual")]
    pub way: Way,
    /// The requests it applies to, where connections are inspected.
    #[serde(default, skip_serializing_if = "Conditions::is_empty")]
    pub requests: Conditions,
    /// The limits on what it allows.
    #[serde(default, skip_serializing_if = "RuleLimits::is_empty")]
    pub limits: RuleLimits,
    /// The place where it is written.
    pub origin: String,
}

/// Hosts and ports: `example.com`, `*.example.com:443`, `192.0.2.0/24:5432`, `[2001:db8::/32]:22`,
/// `*:443`. Without ports those of the web, 80 and 443.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Destination {
    /// The hosts.
    pub host: HostPattern,
    /// The ports.
    pub ports: Ports,
}

/// A set of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Every host on the internet.
    Any,
    /// The host of this name.
    Exact(HostName),
    /// Every name strictly beneath this one.
    Beneath(HostName),
    /// Every host with an address in this block, private ones included.
    Block(Block),
}

/// A set of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// The ports of the web: 80 and 443.
    Web,
    /// Every port.
    All,
    /// Ranges of ports, first and last inclusive.
    Listed(Vec<(u16, u16)>),
}

/// The ports of the web.
const WEB: [u16; 2] = [80, 443];

/// The most ranges of ports in one rule.
const RANGES_MAX: usize = 32;

/// The error for a text that is not a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDestination {
    /// The host is invalid.
    #[error(transparent)]
    Host(#[from] InvalidHost),
    /// The port is invalid.
    #[error("a port is a number from 1 to 65535, a range of them like 8000-8080, or '*'")]
    Port,
    /// The text is a URL.
    #[error("it is a URL: write its host alone")]
    Url,
    /// A star stands in another position.
    #[error(
        "'*' stands for all hosts, or for what is beneath a name at its beginning: *.example.com"
    )]
    Star,
}

/// The treatment of a connection's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// They are requests, each of which is judged.
    Into,
    /// They are tunnelled unchanged.
    Past,
}

/// The reason that a destination is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable<'a> {
    /// No rule allows it.
    NoRule,
    /// This rule denies it.
    Denied(&'a NetworkRule),
    /// The address is not on the internet, and no rule names it.
    Special(Special),
    /// Only a rule for everything allows it, and an upstream proxy would resolve its name.
    Unnamed,
    /// Rules restrict its path, which can be read in more than one way, for this reason.
    Unclear(&'static str),
    /// This rule is about some releases alone, and the request's path does not determine a release.
    Untold(&'a NetworkRule),
    /// This rule asks a person about the address itself, and the program named another host.
    Asked(&'a NetworkRule),
}

impl Network {
    /// Returns whether nothing at all can be reached from the sandbox.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.learn.is_none()
    }

    /// Returns whether some allowed connections are inspected.
    #[must_use]
    pub fn is_inspected(&self) -> bool {
        let is_web = |rule: &NetworkRule| WEB.iter().any(|port| rule.to.ports.hold(*port));
        let is_looked_into = |rule: &NetworkRule| match rule.way {
            Way::Inspect => true,
            Way::Tunnel => false,
            Way::Usual => !rule.requests.is_empty() || is_web(rule),
        };
        // What some requests are denied for is looked into, however it is allowed.
        let is_denied_in_part = |rule: &NetworkRule| !rule.requests.is_empty();
        let signs_in = |one: &Binding| matches!(one.place, Place::Postgres(_));
        self.allow.iter().chain(&self.learn).any(is_looked_into)
            || !self.is_empty() && self.credentials.iter().any(signs_in)
            || !self.is_empty() && self.deny.iter().chain(&self.ask).any(is_denied_in_part)
    }

    /// Returns the rule that allows resolving a name: the name can be reached at some port.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub fn name(&self, name: &HostName) -> Result<&NetworkRule, Unreachable<'_>> {
        let refuses = |rule: &&NetworkRule| rule.to.ports == Ports::All && rule.requests.is_empty();
        let named = |rule: &&NetworkRule| rule.to.host.names(name);
        if let Some(rule) = self.deny.iter().filter(refuses).find(named) {
            return Err(Unreachable::Denied(rule));
        }
        let host = HostPart::Name(name.clone());
        let mut rules = self.allow.iter().filter(named).chain(&self.learn);
        let allowed = rules.find(|rule| rule.to.opens(&host));
        allowed.ok_or(Unreachable::NoRule)
    }

    /// Returns whether a rule names exactly this name: one beneath a wildcard can carry anything.
    #[must_use]
    pub fn is_named(&self, name: &HostName) -> bool {
        let is_it = |rule: &NetworkRule| matches!(&rule.to.host, HostPattern::Exact(exact) if exact == name);
        self.allow.iter().any(is_it)
    }

    /// Decides on a connection to a host, as named by the program: returns the rule, and whether
    /// its content has to be inspected. Each request is then judged by [`Self::request`]. A
    /// connection to an address has to be judged by [`Self::address`] too.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub fn connection(
        &self,
        host: &HostPart,
        port: u16,
    ) -> Result<(&NetworkRule, Look), Unreachable<'_>> {
        let leads = |rule: &&NetworkRule| rule.to.leads_to(host, port);
        let is_whole = |rule: &&NetworkRule| rule.requests.is_empty();
        let denied = || self.deny.iter().filter(leads);
        if let Some(rule) = denied().find(is_whole) {
            return Err(Unreachable::Denied(rule));
        }
        let opens = |rule: &&NetworkRule| rule.to.leads_to(host, port) && rule.to.opens(host);
        let is_allowed = self.allow.iter().any(|rule| opens(&rule));
        // What no rule speaks of is carried to learn of it.
        let learnt = self.learn.iter().filter(opens).filter(|_| !is_allowed);
        let allowed = || self.allow.iter().filter(opens).chain(learnt.clone());
        // What an earlier rule limits stays looked into, but for a tunnel that is asked for.
        let limits = |rule: &NetworkRule| rule.is_inspected(port) && !rule.limits.is_empty();
        let is_limited = |before: usize| allowed().take(before).any(limits);
        let is_tunnel = |(at, rule): &(usize, &NetworkRule)| {
            !rule.is_inspected(port) && (rule.way == Way::Tunnel || !is_limited(*at))
        };
        let tunnel = allowed().enumerate().find(is_tunnel).map(|(_, rule)| rule);
        let asked_in_part = self.asks_about(host, port).find(|rule| !is_whole(rule));
        match (tunnel, allowed().next(), denied().next().or(asked_in_part)) {
            (_, None, _) => Err(Unreachable::NoRule),
            (Some(rule), Some(_), None) => Ok((rule, Look::Past)),
            // What some requests are denied or asked for cannot be carried unseen.
            (Some(rule), Some(_), Some(_)) | (None, Some(rule), _) => Ok((rule, Look::Into)),
        }
    }

    /// Decides on a request of an allowed connection, and returns the rule that allows it. Where
    /// rules restrict paths, a path that can be read in more than one way is refused.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub fn request(&self, request: &Request<'_>) -> Result<&NetworkRule, Unreachable<'_>> {
        let leads = |rule: &&NetworkRule| rule.to.leads_to(request.host, request.port);
        let denied = || self.deny.iter().filter(leads);
        let opens = |rule: &&NetworkRule| leads(rule) && rule.to.opens(request.host);
        let allowed = || self.allow.iter().filter(opens);
        self.told_apart(request)?;
        if let Some(rule) = denied().find(|rule| rule.requests.may_hold(request)) {
            return Err(Unreachable::Denied(rule));
        }
        let asked = self.asks_about(request.host, request.port);
        let mut rules = denied().chain(allowed()).chain(asked);
        if let Some(why) = request.target.unclear()
            && rules.any(|rule| !rule.requests.paths.is_empty())
        {
            return Err(Unreachable::Unclear(why));
        }
        let allowed = allowed().find(|rule| rule.requests.hold(request));
        let learnt = || self.learn.as_ref().filter(opens);
        allowed.or_else(learnt).ok_or(Unreachable::NoRule)
    }

    /// Decides on dialling an address for an allowed connection that will carry this request, or a
    /// tunnel without one: the address is on the internet, or a rule allows exactly this address
    /// for that.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub fn address(
        &self,
        address: IpAddr,
        port: u16,
        request: Option<&Request<'_>>,
    ) -> Result<(), Unreachable<'_>> {
        let of = |rules, address| blocks(rules, address, port);
        // What cannot be seen can be any request.
        let denies = |rule: &&NetworkRule| request.is_none_or(|one| rule.requests.may_hold(one));
        let mut denied = once(address).chain(within(address));
        if let Some(rule) = denied.find_map(|address| of(&self.deny, address).find(denies)) {
            return Err(Unreachable::Denied(rule));
        }
        let allows = |rule: &NetworkRule| match request {
            Some(one) => {
                let is_clear = rule.requests.paths.is_empty() || one.target.unclear().is_none();
                is_clear && rule.requests.hold(one)
            }
            None => rule.requests.is_empty(),
        };
        match special(address) {
            // The host's own loopback is opened by its name alone: see [`Self::dials`].
            Some(special) if special.is_loopback() || !of(&self.allow, address).any(allows) => {
                Err(Unreachable::Special(special))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the rules that name a block with this address.
pub(super) fn blocks(
    rules: &[NetworkRule],
    address: IpAddr,
    port: u16,
) -> impl Iterator<Item = &NetworkRule> {
    rules.iter().filter(move |rule| {
        matches!(rule.to.host, HostPattern::Block(_))
            && rule.to.host.holds(address)
            && rule.to.ports.hold(port)
    })
}

impl NetworkRule {
    /// Returns the rule that allows everything no other rule denies, to record it (`--learn`).
    #[must_use]
    pub fn learning() -> Self {
        let to = Destination {
            host: HostPattern::Any,
            ports: Ports::All,
        };
        Self {
            to,
            way: Way::Usual,
            requests: Conditions::default(),
            limits: RuleLimits::default(),
            origin: "--learn".to_owned(),
        }
    }

    pub(super) fn is_inspected(&self, port: u16) -> bool {
        match self.way {
            Way::Inspect => true,
            Way::Tunnel => false,
            Way::Usual => Ports::Web.hold(port) || !self.requests.is_empty(),
        }
    }
}

impl Destination {
    pub(super) fn leads_to(&self, host: &HostPart, port: u16) -> bool {
        self.is_for(host) && self.ports.hold(port)
    }

    /// Returns whether it covers a host, at any port.
    #[must_use]
    pub fn is_for(&self, host: &HostPart) -> bool {
        match host {
            HostPart::Name(name) => self.host.names(name),
            HostPart::Address(address) => self.host.holds(*address),
        }
    }
}

impl HostPattern {
    fn names(&self, name: &HostName) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact == name,
            Self::Beneath(above) => name.is_beneath(above),
            Self::Block(_) => false,
        }
    }

    fn holds(&self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Block(block) => block.holds(address),
            Self::Exact(_) | Self::Beneath(_) => false,
        }
    }
}

impl Ports {
    pub(super) fn hold(&self, port: u16) -> bool {
        match self {
            Self::Web => WEB.contains(&port),
            Self::All => port != 0,
            Self::Listed(ranges) => ranges
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&port)),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        let port = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|port| is_plain && *port != 0)
        };
        let ranges = text.split(',').map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u16, u16) = (port(first)?, port(last)?);
            (first <= last).then_some((first, last))
        });
        let ranges: Vec<_> = ranges.collect::<Option<_>>()?;
        (ranges.len() <= RANGES_MAX).then_some(Self::Listed(ranges))
    }
}

impl FromStr for Destination {
    type Err = InvalidDestination;

    fn from_str(text: &str) -> Result<Self, InvalidDestination> {
        if text.contains("://") {
            return Err(InvalidDestination::Url);
        }
        let (host, ports) = match text.strip_prefix('[') {
            Some(rest) => {
                let (inner, ports) = rest.split_once(']').ok_or(InvalidHost::Address)?;
                let block: Block = inner.parse()?;
                let is_6 = inner.contains(':');
                let ports = match (ports, ports.strip_prefix(':')) {
                    ("", _) => None,
                    (_, Some(ports)) => Some(ports),
                    (_, None) => return Err(InvalidHost::Address.into()),
                };
                let block = is_6.then_some(block).ok_or(InvalidHost::Address)?;
                (HostPattern::Block(block), ports)
            }
            None => {
                let (host, ports) = match text.split_once(':') {
                    Some((host, ports)) => (host, Some(ports)),
                    None => (text, None),
                };
                (parse_host(host)?, ports)
            }
        };
        let ports = match ports {
            None => Ports::Web,
            Some(ports) => Ports::parse(ports).ok_or(InvalidDestination::Port)?,
        };
        Ok(Self { host, ports })
    }
}

fn parse_host(text: &str) -> Result<HostPattern, InvalidDestination> {
    if text == "*" {
        return Ok(HostPattern::Any);
    }
    if let Some(above) = text.strip_prefix("*.") {
        return Ok(HostPattern::Beneath(HostName::parse(above)?));
    }
    if text.contains('*') {
        return Err(InvalidDestination::Star);
    }
    if text.contains('/') {
        return Ok(HostPattern::Block(text.parse()?));
    }
    match text.parse()? {
        HostPart::Name(name) => Ok(HostPattern::Exact(name)),
        HostPart::Address(address) => Ok(HostPattern::Block(Block::of(address))),
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => to.write_str("*"),
            Self::Exact(name) => name.fmt(to),
            Self::Beneath(name) => write!(to, "*.{name}"),
            Self::Block(block) if block.is_6() => write!(to, "[{block}]"),
            Self::Block(block) => block.fmt(to),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host.fmt(to)?;
        match &self.ports {
            Ports::Web => Ok(()),
            Ports::All => to.write_str(":*"),
            Ports::Listed(ranges) => {
                for (index, (first, last)) in ranges.iter().enumerate() {
                    to.write_str(if index == 0 { ":" } else { "," })?;
                    write!(to, "{first}")?;
                    if first != last {
                        write!(to, "-{last}")?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl TryFrom<String> for Destination {
    type Error = InvalidDestination;

    fn try_from(text: String) -> Result<Self, InvalidDestination> {
        text.parse()
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        destination.to_string()
    }
}
