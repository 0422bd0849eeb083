//! Ports of a sandbox's that programs of the host can visit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How many ports a run can publish.
pub const PUBLISHED_MAX: usize = 16;

/// A port inside, and the one of the host's loopback that leads there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedPort {
    /// On the host's loopback.
    pub outside: u16,
    /// On the sandbox's.
    pub inside: u16,
}

/// A port that is published, and who says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Which.
    pub port: PublishedPort,
    /// Where it is written.
    pub origin: String,
    /// By which policies a person was asked before it was, in words: none where none asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
}

/// Why something is no port to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a port inside is a number from 1 to 65535; another one for the host stands before it")]
pub struct InvalidPublishedPort;

impl FromStr for PublishedPort {
    type Err = InvalidPublishedPort;

    /// Reads `3000`, or `8080:3000` where the host's is another one; 0 there stands for the
    /// same.
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
    /// As it is told and recorded: what it says, and where it is written.
    #[must_use]
    pub fn told(&self) -> String {
        format!("publish {} ({})", self.port, self.origin)
    }
}
