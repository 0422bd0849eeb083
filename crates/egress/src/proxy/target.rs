//! Destinations that programs ask a proxy for.

use std::net::Ipv6Addr;

use atoll_model::network::HostPart;

/// A host and its port, as they are decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) host: HostPart,
    pub(crate) port: u16,
}

/// Parses a port in decimal digits, without leading zeroes.
pub(crate) fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}

/// Parses a host as programs write it where no port follows: an IPv6 address also without brackets.
pub(crate) fn host(text: &str) -> Option<HostPart> {
    match text.parse() {
        Ok(host) => Some(host),
        Err(_) => {
            let address: Ipv6Addr = text.parse().ok()?;
            Some(HostPart::address(address.into()))
        }
    }
}
