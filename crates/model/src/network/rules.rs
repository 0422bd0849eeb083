//! What a program may reach.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Block, HostName, HostPart, InvalidHost, Special, special};

/// What a boundary lets its program reach: nothing that no rule allows. What one rule
/// refuses no other one allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// What may be reached.
    pub allow: Vec<NetworkRule>,
    /// What may not, although it were allowed.
    pub deny: Vec<NetworkRule>,
}

/// One line of what may be reached, or may not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRule {
    /// Where to.
    pub to: Destination,
    /// Where it is written.
    pub origin: String,
}

/// Hosts and ports: `example.com`, `*.example.com:443`, `192.0.2.0/24:5432`,
/// `[2001:db8::/32]:22`, `*:443`. Without ports those of the web are meant, 80 and 443.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Destination {
    /// Which hosts.
    pub host: HostPattern,
    /// Which of their ports.
    pub ports: Ports,
}

/// Which hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Every one on the internet.
    Any,
    /// The one of this name.
    Exact(HostName),
    /// Those strictly beneath a name.
    Beneath(HostName),
    /// Those with such an address: also private ones.
    Block(Block),
}

/// Which ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// 80 and 443.
    Web,
    /// All.
    All,
    /// From the first to the last, one or more times.
    Listed(Vec<(u16, u16)>),
}

/// How many ranges of ports one rule can have.
const RANGES_MAX: usize = 32;

/// Why something is no destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDestination {
    /// Its host is none.
    #[error(transparent)]
    Host(#[from] InvalidHost),
    /// Its port is none.
    #[error("a port is a number from 1 to 65535, a range of them like 8000-8080, or '*'")]
    Port,
    /// A URL.
    #[error("it is a URL: write its host alone")]
    Url,
    /// A star somewhere else.
    #[error(
        "'*' stands for all hosts, or for what is beneath a name at its beginning: *.example.com"
    )]
    Star,
}

/// Why something cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable<'a> {
    /// No rule allows it.
    NoRule,
    /// This rule refuses it.
    Denied(&'a NetworkRule),
    /// It is not on the internet, and no rule names such an address.
    Special(Special),
}

impl Network {
    /// Whether nothing at all can be reached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty()
    }

    /// Whether a name may be asked for: it can be reached at some port.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub fn name(&self, name: &HostName) -> Result<&NetworkRule, Unreachable<'_>> {
        let refuses = |rule: &&NetworkRule| rule.to.ports == Ports::All;
        let named = |rule: &&NetworkRule| rule.to.host.names(name);
        if let Some(rule) = self.deny.iter().filter(refuses).find(named) {
            return Err(Unreachable::Denied(rule));
        }
        self.allow.iter().find(named).ok_or(Unreachable::NoRule)
    }

    /// Whether a connection may be made to a host, as it is named. That to an address has
    /// to be judged by [`Self::address`] too.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub fn connection(&self, host: &HostPart, port: u16) -> Result<&NetworkRule, Unreachable<'_>> {
        let matches = |rule: &&NetworkRule| {
            let of_host = match host {
                HostPart::Name(name) => rule.to.host.names(name),
                HostPart::Address(address) => rule.to.host.holds(*address),
            };
            of_host && rule.to.ports.hold(port)
        };
        if let Some(rule) = self.deny.iter().find(matches) {
            return Err(Unreachable::Denied(rule));
        }
        self.allow.iter().find(matches).ok_or(Unreachable::NoRule)
    }

    /// Whether an address may be dialled for a connection that may be made: it is on the
    /// internet, or a rule allows this very address.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub fn address(&self, address: IpAddr, port: u16) -> Result<(), Unreachable<'_>> {
        let is_block = |rule: &&NetworkRule| matches!(rule.to.host, HostPattern::Block(_));
        let matches = |rule: &&NetworkRule| rule.to.host.holds(address) && rule.to.ports.hold(port);
        if let Some(rule) = self.deny.iter().filter(is_block).find(matches) {
            return Err(Unreachable::Denied(rule));
        }
        match special(address) {
            Some(special)
                if !self
                    .allow
                    .iter()
                    .filter(is_block)
                    .any(|rule| matches(&rule)) =>
            {
                Err(Unreachable::Special(special))
            }
            _ => Ok(()),
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
    fn hold(&self, port: u16) -> bool {
        match self {
            Self::Web => matches!(port, 80 | 443),
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

impl fmt::Display for Destination {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostPattern::Any => to.write_str("*")?,
            HostPattern::Exact(name) => name.fmt(to)?,
            HostPattern::Beneath(name) => write!(to, "*.{name}")?,
            HostPattern::Block(block) if block.is_6() => write!(to, "[{block}]")?,
            HostPattern::Block(block) => block.fmt(to)?,
        }
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
