//! Names and addresses of hosts, in one form each: what was judged is what is dialled.

use std::fmt;
use std::iter::once;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::within;

/// The longest name, bytes (RFC 1035, 2.3.4), without a dot at its end.
pub const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A host's name in the one form that is compared: ASCII, lower case, no dot at its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

/// Why something is no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    /// Nothing, or an empty label.
    #[error("a part of the name is empty")]
    Empty,
    /// More than [`NAME_BYTES_MAX`], or a label of more than 63 bytes.
    #[error("the name is longer than names can be")]
    Long,
    /// A byte that is in no name.
    #[error("only letters, digits, '-', '_' and '.' are in a name; write others as xn--…")]
    Character,
    /// A label that begins or ends with a hyphen.
    #[error("a part of the name begins or ends with '-'")]
    Hyphen,
    /// Programs take it for an address, and not all for the same one.
    #[error("it ends in a number, so it is no name; an address has four decimal numbers")]
    Number,
    /// A block whose first address is not its first.
    #[error(
        "after the bits that all its addresses share, those of its first one are 0: 10.0.0.0/8"
    )]
    Bits,
    /// Neither a name nor an address.
    #[error("it is no address")]
    Address,
}

impl HostName {
    /// Reads a name. One dot at its end is dropped: it says that nothing is to be added,
    /// which nobody here does.
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

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name lies strictly beneath another.
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

/// Whether some program would read a last label as a part of an address (WHATWG URL,
/// "ends in a number").
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
    /// By address; one of IPv4 written as one of IPv6 is that of IPv4.
    Address(IpAddr),
}

impl HostPart {
    /// An address in its one form.
    #[must_use]
    pub fn address(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }

    /// The host itself, and the addresses of IPv4 that an address of it may lead to.
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

    /// Reads a host as it stands in a URL: IPv6 in brackets, IPv4 as four decimal
    /// numbers without further zeroes, everything else a name.
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
