//! Strict parsing of a program's SOCKS 5 messages (RFC 1928, 1929).

use std::net::IpAddr;

use atoll_model::network::HostPart;

use super::target::{self, Target};
use crate::proxy_reply::SOCKS_VERSION;

/// The version of username/password authentication.
const PASSWORD_VERSION: u8 = 1;

/// A method of authentication. Any program in the sandbox may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// No authentication.
    Nothing,
    /// A username and a password, whatever they are.
    Password,
}

/// The outcome of parsing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read<T> {
    /// More bytes are needed.
    Partial,
    /// A whole message, and its length in bytes.
    Whole(T, usize),
    /// No message of the protocol.
    Malformed,
}

impl<T> Read<T> {
    fn of(found: Option<(T, usize)>) -> Self {
        match found {
            Some((found, length)) => Self::Whole(found, length),
            None => Self::Partial,
        }
    }
}

/// The reply to a request that is not supported (RFC 1928, 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnsupportedReply {
    /// Any command but CONNECT.
    Command = 7,
    /// An unknown type of address.
    Kind = 8,
    /// No host, or no port.
    Host = 1,
}

impl UnsupportedReply {
    /// Returns the reason as a sentence.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Command => "by SOCKS 5 nothing is done but connecting",
            Self::Kind => "by SOCKS 5 it asks for an address of no kind that there is",
            Self::Host => "by SOCKS 5 it asks for no host with a port",
        }
    }
}

/// A handshake that leads to no destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeError {
    /// The end of the program's bytes, or of the run.
    Over,
    /// Bytes that are not SOCKS 5.
    Malformed,
    /// No known method of authentication.
    Unknown,
    /// A request that is not supported.
    Unable(UnsupportedReply),
}

/// Parses the first message, the offered methods. The result is `None` where no method is known.
pub(crate) fn greeting(bytes: &[u8]) -> Read<Option<Method>> {
    let [version, rest @ ..] = bytes else {
        return Read::Partial;
    };
    if *version != SOCKS_VERSION {
        return Read::Malformed;
    }
    let Some((count, rest)) = rest.split_first() else {
        return Read::Partial;
    };
    if *count == 0 {
        return Read::Malformed;
    }
    let count = usize::from(*count);
    Read::of(rest.get(..count).map(|methods| {
        let known = match (methods.contains(&0), methods.contains(&2)) {
            (true, _) => Some(Method::Nothing),
            (false, true) => Some(Method::Password),
            (false, false) => None,
        };
        (known, 2 + count)
    }))
}

/// Parses a username and a password; neither is kept.
pub(crate) fn password(bytes: &[u8]) -> Read<()> {
    if bytes.first().is_some_and(|one| *one != PASSWORD_VERSION) {
        return Read::Malformed;
    }
    let length = || {
        let name = usize::from(*bytes.get(1)?);
        let password = usize::from(*bytes.get(2 + name)?);
        let whole = 3 + name + password;
        (bytes.len() >= whole).then_some(((), whole))
    };
    Read::of(length())
}

/// Parses the request, to its destination.
pub(crate) fn request(bytes: &[u8]) -> Read<Result<Target, UnsupportedReply>> {
    let (version, reserved) = (bytes.first(), bytes.get(2));
    if version.is_some_and(|one| *one != SOCKS_VERSION) || reserved.is_some_and(|one| *one != 0) {
        return Read::Malformed;
    }
    let read = || {
        let (command, kind) = (*bytes.get(1)?, *bytes.get(3)?);
        let (host, length) = match kind {
            1 => (bytes.get(4..8), 8),
            4 => (bytes.get(4..20), 20),
            3 => {
                let length = usize::from(*bytes.get(4)?);
                (bytes.get(5..5 + length), 5 + length)
            }
            // How long it is nobody knows.
            _ => return Some((Err(UnsupportedReply::Kind), bytes.len())),
        };
        let (host, port) = (host?, bytes.get(length..length + 2)?);
        let port = port.try_into().map_or(0, u16::from_be_bytes);
        let target = match command {
            1 => named(kind, host)
                .filter(|_| port != 0)
                .map(|host| Target { host, port })
                .ok_or(UnsupportedReply::Host),
            _ => Err(UnsupportedReply::Command),
        };
        Some((target, length + 2))
    };
    Read::of(read())
}

fn named(kind: u8, host: &[u8]) -> Option<HostPart> {
    let address = |address: IpAddr| Some(HostPart::address(address));
    match kind {
        1 => address(<[u8; 4]>::try_from(host).ok()?.into()),
        4 => address(<[u8; 16]>::try_from(host).ok()?.into()),
        _ => target::host(std::str::from_utf8(host).ok()?),
    }
}
