//! Ports of a sandbox that programs of the host can connect to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most ports that a run can publish.
pub const PUBLISHED_MAX: usize = 16;

/// A port of the sandbox, and the port of the host's loopback that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedPort {
    /// The port on the host's loopback.
    pub outside: u16,
    /// The port on the sandbox's loopback.
    pub inside: u16,
}

/// A published port, and its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The port.
    pub port: PublishedPort,
    /// The place where it is written.
    pub origin: String,
    /// The policies that had a person asked before it was published, in words; `None` if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
}

/// The error for a text that is not a port to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a port inside is a number from 1 to 65535; another one for the host stands before it")]
pub struct InvalidPublishedPort;

impl FromStr for PublishedPort {
    type Err = InvalidPublishedPort;

    /// Reads `3000`, or `8080:3000` for another port of the host; 0 there stands for the same port.
    fn from_str(text: &str) -> Result<Self, InvalidPublishedPort> {
        let (outside, inside) = text.split_once(':').unwrap_or(("0", text));
        let port = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|_| is_plain)
        };
        let inside = port(inside).filter(|inside| *inside != 0);
        let inside = inside.ok_or(InvalidPublishedPort)?;
        let outside = match port(outside).ok_or(InvalidPublishedPort)? {
            0 => inside,
            outside => outside,
        };
        Ok(Self { outside, inside })
    }
}

impl fmt::Display for PublishedPort {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.outside == self.inside {
            self.inside.fmt(to)
        } else {
            write!(to, "{}:{}", self.outside, self.inside)
        }
    }
}

impl Published {
    /// Formats the port for messages and records, with the place where it is written.
    #[must_use]
    pub fn told(&self) -> String {
        format!("publish {} ({})", self.port, self.origin)
    }
}
