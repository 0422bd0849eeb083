//! Socket addresses, as programs pass them to the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest address, bytes (`struct sockaddr_storage`).
pub(crate) const ADDRESS_BYTES_MAX: u64 = 128;

/// A socket address as a program passes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Internet(SocketAddr),
    /// A path, of a Unix socket.
    Path(Vec<u8>),
    /// An abstract name of a Unix socket, with its leading NUL.
    Abstract(Vec<u8>),
    Unnamed,
}

/// Reads an address (`struct sockaddr` of its family).
pub(crate) fn parse(bytes: &[u8]) -> Option<Address> {
    const AF_UNIX: u16 = 1;
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 10;
    let (family, rest) = bytes.split_first_chunk()?;
    let port = |rest: &[u8]| rest.first_chunk().copied().map(u16::from_be_bytes);
    match u16::from_ne_bytes(*family) {
        AF_INET => {
            let address: [u8; 4] = rest.get(2..6)?.try_into().ok()?;
            Some(Address::Internet((address, port(rest)?).into()))
        }
        AF_INET6 => {
            let address: [u8; 16] = rest.get(6..22)?.try_into().ok()?;
            Some(Address::Internet((address, port(rest)?).into()))
        }
        AF_UNIX => Some(match rest.split_first() {
            None => Address::Unnamed,
            Some((0, _)) => Address::Abstract(rest.to_vec()),
            Some(_) => {
                let end = rest.iter().position(|byte| *byte == 0);
                Address::Path(rest.get(..end.unwrap_or(rest.len()))?.to_vec())
            }
        }),
        _ => None,
    }
}

/// Encodes an address as the kernel does (`struct sockaddr` of its family).
pub(crate) fn written(address: SocketAddr) -> Vec<u8> {
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 10;
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => [&AF_INET.to_ne_bytes()[..], &port, &ip.octets(), &[0; 8]].concat(),
        IpAddr::V6(ip) => {
            let family = AF_INET6.to_ne_bytes();
            [&family[..], &port, &[0; 4], &ip.octets(), &[0; 4]].concat()
        }
    }
}

/// Returns the address that a connection to `address` reaches on this host, if on the loopback.
pub(crate) fn on_loopback(address: SocketAddr) -> Option<SocketAddr> {
    let ip = match (address.ip().is_unspecified(), address.ip()) {
        (true, IpAddr::V4(_)) => Ipv4Addr::LOCALHOST.into(),
        (true, IpAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
        (false, ip) => ip,
    };
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => {
            ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
        }
    };
    is_local.then_some(SocketAddr::new(ip, address.port()))
}
