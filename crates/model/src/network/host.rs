//! Names and addresses of hosts, each in one canonical form: a judged host is exactly the one
//! dialled.

use std::fmt;
use std::iter::once;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::within;

/// The longest name, bytes (RFC 1035, 2.3.4), without a dot at its end.
pub const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A host's name in the one form used for comparison: ASCII, lower case, no dot at its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

/// The error for a text that is not a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    /// The name or a label is empty.
    #[error("a part of the name is empty")]
    Empty,
    /// The name has more than [`NAME_BYTES_MAX`], or a label more than 63 bytes.
    #[error("the name is longer than names can be")]
    Long,
    /// A byte that no name has.
    #[error("only letters, digits, '-', '_' and '.' are in a name; write others as xn--…")]
    Character,
    /// A label that begins or ends with a hyphen.
    #[error("a part of the name begins or ends with '-'")]
    Hyphen,
    /// A number at the end: programs take the text for an address, and not all for the same one.
    #[error("it ends in a number, so it is no name; an address has four decimal numbers")]
    Number,
    /// A block that does not begin with its first address.
    #[error(
        "after the bits that all its addresses share, those of its first one are 0: 10.0.0.0/8"
    )]
    Bits,
    /// Neither a name nor an address.
    #[error("it is no address")]
    Address,
}

impl HostName {
    /// Reads a name. One dot at its end is dropped: it prevents a search domain, and there is none.
    ///
    /// # Errors
    /// [`InvalidHost`].
    pub fn parse(text: &str) -> Result<Self, InvalidHost> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.len() > NAME_BYTES_MAX {
            return Err(InvalidHost::Long);
        }
        for label in text.split('.') {
            check_label(label)?;
        }
        let last = text.rsplit('.').next().unwrap_or_default();
        if is_number(last) {
            return Err(InvalidHost::Number);
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this name lies strictly beneath another.
    #[must_use]
    pub fn is_beneath(&self, above: &Self) -> bool {
        let rest = self.0.strip_suffix(&above.0);
        rest.is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
    }
}

fn check_label(label: &str) -> Result<(), InvalidHost> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match label {
        "" => Err(InvalidHost::Empty),
        _ if !label.bytes().all(is_known) => Err(InvalidHost::Character),
        _ if label.starts_with('-') || label.ends_with('-') => Err(InvalidHost::Hyphen),
        _ if label.len() > LABEL_BYTES_MAX => Err(InvalidHost::Long),
        _ => Ok(()),
    }
}

/// Returns whether some program would read a last label as a part of an address (WHATWG URL, "ends
/// in a number").
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").or(label.strip_prefix("0X"));
    label.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl fmt::Display for HostName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl TryFrom<String> for HostName {
    type Error = InvalidHost;

    fn try_from(text: String) -> Result<Self, InvalidHost> {
        Self::parse(&text)
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

/// A host as a program names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostPart {
    /// By name.
    Name(HostName),
    /// By address; an IPv4-mapped IPv6 address is the IPv4 address.
    Address(IpAddr),
}

impl HostPart {
    /// Returns an address in its canonical form.
    #[must_use]
    pub fn address(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }

    /// Returns the host itself, and the IPv4 addresses that its IPv6 address may lead to.
    pub fn standing(&self) -> impl Iterator<Item = Self> {
        let within = match self {
            Self::Address(address) => Some(within(*address).map(Self::Address)),
            Self::Name(_) => None,
        };
        once(self.clone()).chain(within.into_iter().flatten())
    }
}

impl FromStr for HostPart {
    type Err = InvalidHost;

    /// Reads a host as in a URL: IPv6 in brackets, IPv4 as four decimal numbers without leading
    /// zeros, everything else a name.
    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        if let Some(inner) = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            let address = Ipv6Addr::from_str(inner).map_err(|_| InvalidHost::Address)?;
            return Ok(Self::address(address.into()));
        }
        match Ipv4Addr::from_str(text) {
            Ok(address) => Ok(Self::Address(address.into())),
            Err(_) => HostName::parse(text).map(Self::Name),
        }
    }
}

impl fmt::Display for HostPart {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(to),
            Self::Address(IpAddr::V4(address)) => address.fmt(to),
            Self::Address(IpAddr::V6(address)) => write!(to, "[{address}]"),
        }
    }
}
