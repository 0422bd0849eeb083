//! What listens inside of a sandbox.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A program inside that takes connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// At which port.
    pub port: u16,
    /// At which addresses of the sandbox's.
    pub at: ListensAt,
    /// The program's name, as it calls itself: a hostile one calls itself anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// At which addresses of its sandbox a program listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListensAt {
    /// At an address of the loopback.
    Loopback,
    /// At every address.
    Everywhere,
    /// At another one: a published port does not lead there.
    Elsewhere,
}

impl ListensAt {
    /// Of an address that a socket listens at.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_unspecified() => Self::Everywhere,
            address if address.is_loopback() => Self::Loopback,
            _ => Self::Elsewhere,
        }
    }
}
