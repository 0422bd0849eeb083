//! Blocks of addresses, and addresses that are not on the internet.

use std::fmt;
use std::iter::once;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::InvalidHost;

/// A block of addresses: those with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Block {
    first: IpAddr,
    bits: u8,
}

impl Block {
    /// Returns a block; the bits after the first ones have to be zero.
    ///
    /// # Errors
    /// [`InvalidHost`].
    pub fn new(first: IpAddr, bits: u8) -> Result<Self, InvalidHost> {
        let block = Self { first, bits };
        let is_mapped = first.to_canonical() != first;
        if is_mapped || bits > width(first) {
            return Err(InvalidHost::Address);
        }
        if masked(first, bits) != first {
            return Err(InvalidHost::Bits);
        }
        Ok(block)
    }

    /// Returns the block of one address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        let first = address.to_canonical();
        let bits = width(first);
        Self { first, bits }
    }

    /// Returns the first address.
    #[must_use]
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// Returns the number of bits that its addresses share.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns whether its addresses are IPv6.
    #[must_use]
    pub fn is_6(&self) -> bool {
        self.first.is_ipv6()
    }

    /// Returns whether it contains an address.
    #[must_use]
    pub fn holds(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && masked(address, self.bits) == self.first
    }
}

fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX
                .checked_shl(32_u32.saturating_sub(bits))
                .unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX
                .checked_shl(128_u32.saturating_sub(bits))
                .unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

impl FromStr for Block {
    type Err = InvalidHost;

    /// Reads an address, or one with `/` and the number of shared bits.
    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => {
                let is_plain = bits.bytes().all(|byte| byte.is_ascii_digit());
                let bits = bits.parse().ok().filter(|_| is_plain);
                (address, Some(bits.ok_or(InvalidHost::Address)?))
            }
        };
        let first = IpAddr::from_str(address).map_err(|_| InvalidHost::Address)?;
        Self::new(first, bits.unwrap_or(width(first)))
    }
}

impl TryFrom<String> for Block {
    type Error = InvalidHost;

    fn try_from(text: String) -> Result<Self, InvalidHost> {
        text.parse()
    }
}

impl From<Block> for String {
    fn from(block: Block) -> Self {
        block.to_string()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bits == width(self.first) {
            self.first.fmt(to)
        } else {
            write!(to, "{}/{}", self.first, self.bits)
        }
    }
}

/// An address that is not on the internet (IANA's registries of special-purpose addresses).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Special {
    /// The address.
    pub address: IpAddr,
    /// Its class, in words.
    pub name: &'static str,
}

impl Special {
    /// Returns whether dialling it reaches this host itself, as 0.0.0.0 and `::` do too (ip(7)).
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let mut all = once(self.address.to_canonical()).chain(within(self.address));
        all.any(|address| match address {
            IpAddr::V4(four) => four.is_loopback() || four.octets().first() == Some(&0),
            IpAddr::V6(six) => six.is_loopback() || six.is_unspecified(),
        })
    }
}

const fn of_4(first: [u8; 4], bits: u8, name: &'static str) -> (u32, u8, &'static str) {
    (u32::from_be_bytes(first), bits, name)
}

/// The class of addresses that only programs of the same host reach.
pub(super) const LOOPBACK: &str = "this host's loopback";

/// All IPv4 blocks that are not on the internet (no length is 0).
const SPECIAL_4: [(u32, u8, &str); 17] = [
    of_4([0, 0, 0, 0], 8, "this host"),
    of_4([10, 0, 0, 0], 8, "a private network"),
    of_4([100, 64, 0, 0], 10, "a carrier's private network"),
    of_4([127, 0, 0, 0], 8, LOOPBACK),
    // Microsoft's own, and public by its number.
    of_4([168, 63, 129, 16], 32, "where a cloud keeps metadata"),
    of_4(
        [169, 254, 0, 0],
        16,
        "link-local, where clouds keep metadata",
    ),
    of_4([172, 16, 0, 0], 12, "a private network"),
    of_4([192, 0, 0, 0], 24, "set apart for protocols"),
    of_4([192, 0, 2, 0], 24, "set apart for documentation"),
    of_4([192, 31, 196, 0], 24, "set apart for name servers"),
    of_4([192, 88, 99, 0], 24, "a relay that is gone"),
    of_4([192, 168, 0, 0], 16, "a private network"),
    of_4([198, 18, 0, 0], 15, "set apart for measurements"),
    of_4([198, 51, 100, 0], 24, "set apart for documentation"),
    of_4([203, 0, 113, 0], 24, "set apart for documentation"),
    of_4([224, 0, 0, 0], 4, "a group of hosts"),
    of_4([240, 0, 0, 0], 4, "reserved"),
];

/// The blocks that are not on the internet within 2000::/3, the only block of IPv6 that is.
const SPECIAL_6: [([u16; 2], u8, &str); 4] = [
    ([0x2001, 0], 23, "set apart for protocols and tunnels"),
    ([0x2001, 0x0db8], 32, "set apart for documentation"),
    ([0x2002, 0], 16, "a tunnel to an address of IPv4"),
    ([0x3fff, 0], 20, "set apart for documentation"),
];

/// Returns the class of an address that is not on the internet. An IPv4 address within an IPv6 one
/// (mapped, or by the well-known prefix of NAT64) counts as itself; one by another transition
/// mechanism ([`within`]) only if it is not on the internet either.
#[must_use]
pub fn special(address: IpAddr) -> Option<Special> {
    let name = match address.to_canonical() {
        IpAddr::V4(address) => special_4(address),
        IpAddr::V6(address) => special_6(address),
    };
    name.map(|name| Special { address, name })
}

fn special_4(address: Ipv4Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    let mut known = SPECIAL_4.iter();
    let within = known.find(|(first, length, _)| (bits ^ first) >> (32 - length) == 0);
    within.map(|(_, _, name)| *name)
}

/// Returns whether an address is of a private network (RFC 1918, RFC 4193). This host's loopback is
/// not, nor are those of a carrier, a translator or a cloud's metadata.
#[must_use]
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

/// Returns the IPv4 addresses that an IPv6 address may lead to by transition mechanisms: mapped
/// (RFC 4291), compatible, translated (RFC 2765, RFC 6052 with the well-known prefix, RFC 8215),
/// 6to4 (RFC 3056), Teredo (RFC 4380: the server and the client), ISATAP (RFC 5214, any prefix).
pub fn within(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let found = match address {
        IpAddr::V4(_) => [None; 4],
        IpAddr::V6(address) => embedded(address),
    };
    found.into_iter().flatten().map(IpAddr::V4)
}

fn embedded(address: Ipv6Addr) -> [Option<Ipv4Addr>; 4] {
    let four =
        |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    let one = |high, low| [four(high, low), None, None, None];
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None; 4],
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => one(high, low),
        [0x64, 0xff9b, 1, ..] => translated_here(address),
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            [four(high, low), four(!client_high, !client_low), None, None]
        }
        [.., 0 | 0x200, 0x5efe, high, low] => one(high, low),
        _ => [None; 4],
    }
}

/// Returns the IPv4 addresses for each prefix length beneath 64:ff9b:1::/48 (RFC 6052, 2.2), since
/// only the network itself knows its own. Wrong lengths make zeros into 0.0.0.0/8, to which none
/// leads.
fn translated_here(address: Ipv6Addr) -> [Option<Ipv4Addr>; 4] {
    let [.., a, b, _, c, d, e, f, g, h, i] = address.octets();
    let all = [[a, b, c, d], [b, c, d, e], [c, d, e, f], [f, g, h, i]];
    all.map(|four| Some(Ipv4Addr::from(four)).filter(|four| four.octets().first() != Some(&0)))
}

fn special_6(address: Ipv6Addr) -> Option<&'static str> {
    // A translator leads there, and nowhere else.
    if let [0x64, 0xff9b, 0, 0, 0, 0, ..] = address.segments() {
        return embedded(address).into_iter().flatten().find_map(special_4);
    }
    let [first, second, ..] = address.segments();
    if first & 0xe000 != 0x2000 {
        return Some(match first {
            0 if address.is_loopback() => LOOPBACK,
            0xfe80..=0xfebf => "link-local",
            0xfc00..=0xfdff => "a private network",
            0xff00.. => "a group of hosts",
            _ => "not on the internet",
        });
    }
    let bits = u32::from(first) << 16 | u32::from(second);
    let mut known = SPECIAL_6.iter();
    let within = known.find(|([one, two], length, _)| {
        let first = u32::from(*one) << 16 | u32::from(*two);
        (bits ^ first) >> (32 - length) == 0
    });
    let own = within.map(|(_, _, name)| *name);
    own.or_else(|| embedded(address).into_iter().flatten().find_map(special_4))
}
