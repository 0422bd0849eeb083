//! Limits of a rule.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Limits;

/// The most outbound connections that a run can have at once, over all rules.
pub const CONNECTIONS_MAX: u32 = 1024;

/// The limits of one rule, counted over a whole run. One table of a profile is counted as a whole,
/// whichever hosts it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleLimits {
    /// The most requests in a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Frequency>,
    /// The most connections at once; of requests, the most in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<NonZeroU32>,
    /// The most bytes sent in a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<NonZeroU64>,
    /// The most bytes received in a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download: Option<NonZeroU64>,
    /// The highest rate in each direction, bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<NonZeroU64>,
    /// The longest body of a request, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<u64>,
    /// The longest time of a connection or a request, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<NonZeroU64>,
    /// The table's offset in its file: two tables on one line are two.
    #[serde(default, skip_serializing_if = "is_first")]
    pub table: u64,
}

fn is_first(table: &u64) -> bool {
    *table == 0
}

/// The limits of all flows of a run or sandbox together, whichever rules allow them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkLimits {
    /// The most bytes, in both directions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The highest rate in each direction, bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// The most connections, and requests in flight, at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
}

impl NetworkLimits {
    /// Returns those of a run's limits.
    #[must_use]
    pub fn of(limits: &Limits) -> Self {
        Self {
            bytes: limits.network_bytes,
            rate: limits.network_rate,
            connections: limits.connections,
        }
    }

    /// Returns whether nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One limit, by its name in a profile. A rate ends nothing, so it is none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The number of requests in a time.
    Requests,
    /// The number of connections at once.
    Connections,
    /// The bytes sent in a run.
    Upload,
    /// The bytes received in a run.
    Download,
    /// The length of a request's body.
    Body,
    /// The time that a connection or request takes.
    Duration,
    /// The bytes of the whole run, in both directions.
    NetworkBytes,
    /// The number of connections at once of the whole run.
    RunConnections,
}

impl Limit {
    /// Returns its name in a profile.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Connections => "connections",
            Self::Upload => "upload",
            Self::Download => "download",
            Self::Body => "body",
            Self::Duration => "duration",
            Self::NetworkBytes => "network-bytes",
            Self::RunConnections => "connections",
        }
    }
}

/// A number of events in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Frequency {
    /// The number of events.
    pub count: NonZeroU32,
    /// The time.
    pub per: Per,
}

/// A time over which something is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Per {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
}

/// The error for a text that is no frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is a number and a time, s, min or h: \"10/s\", \"60/min\", \"1000/h\"")]
pub struct InvalidFrequency;

impl Per {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Second, "s"),
        (Self::Minute, "min"),
        (Self::Hour, "h"),
    ];

    /// Returns its length.
    #[must_use]
    pub fn duration(self) -> Duration {
        match self {
            Self::Second => Duration::from_secs(1),
            Self::Minute => Duration::from_secs(60),
            Self::Hour => Duration::from_secs(60 * 60),
        }
    }
}

impl FromStr for Frequency {
    type Err = InvalidFrequency;

    fn from_str(text: &str) -> Result<Self, InvalidFrequency> {
        let (count, per) = text.split_once('/').ok_or(InvalidFrequency)?;
        let is_plain = count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse().ok().filter(|_| is_plain);
        let per = Per::ALL.iter().find(|(_, unit)| *unit == per);
        match (count, per) {
            (Some(count), Some((per, _))) => Ok(Self { count, per: *per }),
            (None, _) | (_, None) => Err(InvalidFrequency),
        }
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per {
            Per::Second => "s",
            Per::Minute => "min",
            Per::Hour => "h",
        };
        write!(to, "{}/{unit}", self.count)
    }
}

impl TryFrom<String> for Frequency {
    type Error = InvalidFrequency;

    fn try_from(text: String) -> Result<Self, InvalidFrequency> {
        text.parse()
    }
}

impl From<Frequency> for String {
    fn from(frequency: Frequency) -> Self {
        frequency.to_string()
    }
}

impl RuleLimits {
    /// Returns whether nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.written().is_empty()
    }

    /// Returns the name of a limit that is set and can be enforced on inspected requests alone.
    #[must_use]
    pub fn of_requests(&self) -> Option<&'static str> {
        match (self.requests, self.body) {
            (Some(_), _) => Some("requests"),
            (None, Some(_)) => Some("body"),
            (None, None) => None,
        }
    }

    /// Formats one of them as in a profile.
    #[must_use]
    pub fn said(&self, limit: Limit) -> String {
        let bytes = |bytes: Option<NonZeroU64>| bytes.map(|bytes| quoted(exact_bytes(bytes.get())));
        let value = match limit {
            Limit::Requests => self.requests.map(quoted),
            Limit::Connections => self.connections.map(|one| one.to_string()),
            Limit::Upload => bytes(self.upload),
            Limit::Download => bytes(self.download),
            Limit::Body => self.body.map(|bytes| quoted(exact_bytes(bytes))),
            Limit::Duration => {
                let exact = |ms: NonZeroU64| quoted(exact_duration(ms.get()));
                self.duration_ms.map(exact)
            }
            // Of no rule.
            Limit::NetworkBytes | Limit::RunConnections => None,
        };
        format!("{} = {}", limit.name(), value.unwrap_or_default())
    }

    /// Formats all of them as in a profile, in the order of the manual.
    #[must_use]
    pub fn written(&self) -> Vec<String> {
        let rate = |rate: NonZeroU64| format!("rate = \"{}/s\"", exact_bytes(rate.get()));
        let one = |is_there: bool, limit| is_there.then(|| self.said(limit));
        [
            one(self.requests.is_some(), Limit::Requests),
            one(self.connections.is_some(), Limit::Connections),
            one(self.upload.is_some(), Limit::Upload),
            one(self.download.is_some(), Limit::Download),
            self.rate.map(rate),
            one(self.body.is_some(), Limit::Body),
            one(self.duration_ms.is_some(), Limit::Duration),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn quoted(text: impl fmt::Display) -> String {
    format!("\"{text}\"")
}

/// Formats a size so that it reads back as the same.
fn exact_bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    exact(bytes, &UNITS).unwrap_or_else(|| bytes.to_string())
}

/// Formats a duration so that it reads back as the same.
fn exact_duration(ms: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    exact(ms, &UNITS).unwrap_or_else(|| format!("{ms}ms"))
}

pub(super) fn exact(number: u64, units: &[(u64, &str)]) -> Option<String> {
    let is_whole = |unit: &&(u64, &str)| number > 0 && number.is_multiple_of(unit.0);
    let (unit, name) = units.iter().find(is_whole)?;
    Some(format!("{}{name}", number / unit))
}
