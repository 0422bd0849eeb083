//! Programs that listen in a sandbox.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A program in the sandbox that accepts connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The port.
    pub port: u16,
    /// The addresses of the sandbox.
    pub at: ListensAt,
    /// The program's name, as stated by itself: a hostile one states anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// The addresses of its sandbox at which a program listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListensAt {
    /// At an address of the loopback.
    Loopback,
    /// At every address.
    Everywhere,
    /// At another address: a published port does not lead there.
    Elsewhere,
}

impl ListensAt {
    /// Returns the class of an address at which a socket listens.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_unspecified() => Self::Everywhere,
            address if address.is_loopback() => Self::Loopback,
            _ => Self::Elsewhere,
        }
    }
}
