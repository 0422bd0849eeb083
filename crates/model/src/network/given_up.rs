//! Rights that a run gives up for good, while it goes on.
//!
//! What is given up is a list to which more is added and from which nothing is taken: whatever
//! any of it denies is denied, and nothing in it allows anything.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{CredentialName, Destination, HostPart, HostPattern, Ports};
use crate::ids::told_time;

/// How much one run can give up by its own program, restrictions, and as much again by persons: all
/// of the network can be given up besides.
pub const GIVEN_UP_MAX: usize = 64;
/// How much can be given up at once, restrictions.
pub const GIVEN_UP_AT_ONCE_MAX: usize = 16;

/// Hosts that are given up, at all of their ports: `example.com`, `*.example.com`, `192.0.2.0/24`,
/// `*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GivenUpHost(HostPattern);

/// Why something names no hosts that can be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGivenUpHost {
    /// It is no host.
    #[error(transparent)]
    Destination(#[from] super::InvalidDestination),
    /// It has a port.
    #[error("a host is given up at all of its ports: write it without one")]
    Port,
}

impl GivenUpHost {
    fn holds(&self, host: &HostPart) -> bool {
        let is_for = |host: &HostPart| {
            let to = Destination {
                host: self.0.clone(),
                ports: Ports::All,
            };
            to.is_for(host)
        };
        // What a network translates leads to the address within.
        host.standing().any(|host| is_for(&host))
    }
}

impl TryFrom<String> for GivenUpHost {
    type Error = InvalidGivenUpHost;

    fn try_from(text: String) -> Result<Self, InvalidGivenUpHost> {
        let to: Destination = text.parse()?;
        match to.ports {
            Ports::Web => Ok(Self(to.host)),
            Ports::All | Ports::Listed(_) => Err(InvalidGivenUpHost::Port),
        }
    }
}

impl From<GivenUpHost> for String {
    fn from(host: GivenUpHost) -> Self {
        host.0.to_string()
    }
}

/// One thing that is given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Restriction {
    /// All of the network, in and out.
    Network {},
    /// These hosts.
    Host(GivenUpHost),
    /// This credential: it is put into nothing any more.
    Credential(CredentialName),
    /// All of the network from this time on, in seconds since 1970.
    After {
        /// When.
        time_s: u64,
    },
}

impl fmt::Display for Restriction {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network {} => to.write_str("the network"),
            Self::Host(host) => write!(to, "host {}", host.0),
            Self::Credential(name) => write!(to, "credential {name}"),
            Self::After { time_s } => write!(to, "the network from {} on", told_time(*time_s)),
        }
    }
}

/// Who has given it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum GivenUpBy {
    /// The run's own program.
    Program {},
    /// Somebody outside.
    Person {
        /// Who, by number of user.
        uid: u32,
    },
    /// Nobody: a token of the run comes to its end.
    TokenEnd {},
    /// Whoever has revoked a token of the run.
    TokenRevoked {},
}

impl fmt::Display for GivenUpBy {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program {} => to.write_str("by the program itself"),
            Self::Person { uid } => write!(to, "by user {uid}"),
            Self::TokenEnd {} => to.write_str("by the end of its token"),
            Self::TokenRevoked {} => to.write_str("by revoking its token"),
        }
    }
}

impl GivenUpBy {
    /// Whether what both give up counts together: persons do with each other.
    fn shares_with(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Whether it lasts as long as what the other one gives up: what a token ends is there again for
    /// a later run of the session, which can hold another one.
    fn lasts_as_long_as(self, other: Self) -> bool {
        match (self, other) {
            (Self::Program {} | Self::Person { .. }, _) => true,
            (
                Self::TokenEnd {} | Self::TokenRevoked {},
                Self::TokenEnd {} | Self::TokenRevoked {},
            ) => true,
            (Self::TokenEnd {} | Self::TokenRevoked {}, Self::Program {} | Self::Person { .. }) => {
                false
            }
        }
    }
}

/// Something that a run has given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenUp {
    /// When, in seconds since 1970.
    pub at_s: u64,
    /// By whom.
    pub by: GivenUpBy,
    /// What.
    pub what: Restriction,
}

impl GivenUp {
    /// Why something is denied because of it.
    #[must_use]
    pub fn why(&self) -> String {
        let at = told_time(self.at_s);
        let by = match self.by {
            GivenUpBy::Program {} | GivenUpBy::Person { .. } => self.by,
            GivenUpBy::TokenEnd {} => {
                return format!("{TOKEN_OVER}: it has ended, at {}", self.since());
            }
            GivenUpBy::TokenRevoked {} => return format!("{TOKEN_OVER}: it was revoked, at {at}"),
        };
        format!("{GIVEN_UP} at {at} {by}: {}", self.what)
    }

    /// From when on it denies.
    fn since(&self) -> String {
        told_time(match self.what {
            Restriction::After { time_s } => time_s,
            Restriction::Network {} | Restriction::Host(_) | Restriction::Credential(_) => {
                self.at_s
            }
        })
    }

    /// What it is, by whom and when.
    #[must_use]
    pub fn told(&self) -> String {
        format!("{}, {} at {}", self.what, self.by, told_time(self.at_s))
    }
}

/// How the reason of a denial begins that comes of something given up.
pub const GIVEN_UP: &str = "the right to it was given up";
/// The same of a run whose token does not count any more.
pub const TOKEN_OVER: &str = "the run's token carries nothing any more";

/// All that a run has given up, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GivenUps(Vec<GivenUp>);

/// No more can be given up one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{GIVEN_UP_MAX} restrictions are what a run can have by its program, and as many by persons; all of \
     the network can still be given up"
)]
pub struct TooMuchGivenUp;

impl GivenUps {
    /// Adds one. Whether that changes anything: what is denied already, and for as long, is not kept
    /// again.
    ///
    /// # Errors
    /// [`TooMuchGivenUp`]: it is not added.
    pub fn add(&mut self, one: GivenUp) -> Result<bool, TooMuchGivenUp> {
        let holds =
            |known: &GivenUp| known.by.lasts_as_long_as(one.by) && implies(&known.what, &one.what);
        if self.0.iter().any(holds) {
            return Ok(false);
        }
        // A program that uses its own room up leaves persons theirs.
        let as_many = self.0.iter().filter(|known| known.by.shares_with(one.by));
        if as_many.count() >= GIVEN_UP_MAX && one.what != (Restriction::Network {}) {
            return Err(TooMuchGivenUp);
        }
        self.0.push(one);
        Ok(true)
    }

    /// Makes that a time has come last, whatever the clock says later: from then on all of the
    /// network is given up by itself. Whether that changes anything.
    pub fn latch(&mut self, now_s: u64) -> bool {
        let Some(due) = self.network(now_s).cloned() else {
            return false;
        };
        if due.what == (Restriction::Network {}) {
            return false;
        }
        self.0.push(GivenUp {
            at_s: now_s,
            by: due.by,
            what: Restriction::Network {},
        });
        true
    }

    /// Whether a time has come at which nothing is left of the network, and which does not last yet.
    #[must_use]
    pub fn is_to_latch(&self, now_s: u64) -> bool {
        let due = self.network(now_s);
        due.is_some_and(|one| one.what != (Restriction::Network {}))
    }

    /// Whether nothing is given up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is given up, in order.
    pub fn iter(&self) -> impl Iterator<Item = &GivenUp> {
        self.0.iter()
    }

    /// What denies all of the network at this time, if anything does.
    #[must_use]
    pub fn network(&self, now_s: u64) -> Option<&GivenUp> {
        let is_all = |one: &&GivenUp| one.what == (Restriction::Network {});
        let is_due =
            |one: &&GivenUp| matches!(one.what, Restriction::After { time_s } if now_s >= time_s);
        let all = self.0.iter().find(is_all);
        all.or_else(|| self.0.iter().find(is_due))
    }

    /// What denies a host at this time: a name, or an address that is named or dialled.
    #[must_use]
    pub fn host(&self, host: &HostPart, now_s: u64) -> Option<&GivenUp> {
        let named =
            |one: &&GivenUp| matches!(&one.what, Restriction::Host(hosts) if hosts.holds(host));
        self.network(now_s).or_else(|| self.0.iter().find(named))
    }

    /// The same of an address that is dialled.
    #[must_use]
    pub fn address(&self, address: IpAddr, now_s: u64) -> Option<&GivenUp> {
        self.host(&HostPart::address(address), now_s)
    }

    /// What denies a credential.
    #[must_use]
    pub fn credential(&self, name: &CredentialName) -> Option<&GivenUp> {
        let named =
            |one: &&GivenUp| matches!(&one.what, Restriction::Credential(given) if given == name);
        self.0.iter().find(named)
    }

    /// The next time at which more is denied than at this one.
    #[must_use]
    pub fn next_s(&self, now_s: u64) -> Option<u64> {
        let times = self.0.iter().filter_map(|one| match one.what {
            Restriction::After { time_s } => Some(time_s),
            Restriction::Network {} | Restriction::Host(_) | Restriction::Credential(_) => None,
        });
        times.filter(|time_s| *time_s > now_s).min()
    }
}

/// Whether what the first one denies holds all that the second one does.
fn implies(known: &Restriction, one: &Restriction) -> bool {
    match (known, one) {
        (
            Restriction::Network {},
            Restriction::Network {} | Restriction::Host(_) | Restriction::After { .. },
        ) => true,
        (Restriction::After { time_s: known }, Restriction::After { time_s }) => known <= time_s,
        (Restriction::Host(known), Restriction::Host(one)) => {
            known == one || known.0 == HostPattern::Any
        }
        (Restriction::Credential(known), Restriction::Credential(one)) => known == one,
        (
            Restriction::Network {}
            | Restriction::Host(_)
            | Restriction::Credential(_)
            | Restriction::After { .. },
            Restriction::Network {}
            | Restriction::Host(_)
            | Restriction::Credential(_)
            | Restriction::After { .. },
        ) => false,
    }
}

/// What is to be given up, as it is said: by a person to a run, and by a program inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct GivingUp {
    /// All of the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NoNetwork>,
    /// These hosts, at all of their ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny_hosts: Vec<GivenUpHost>,
    /// These credentials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_credentials: Vec<CredentialName>,
    /// All of the network after so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_seconds: Option<u32>,
}

/// How much of the network is left: there is one word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoNetwork {
    /// Nothing.
    None,
}

/// Why what was said gives nothing up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGivingUp {
    /// There is nothing in it.
    #[error("it names nothing to give up")]
    Nothing,
    /// There is too much in it.
    #[error("more than {GIVEN_UP_AT_ONCE_MAX} restrictions are too many at once")]
    TooMany,
}

impl GivingUp {
    /// The restrictions that it names, at this time.
    ///
    /// # Errors
    /// [`InvalidGivingUp`].
    pub fn restrictions(&self, now_s: u64) -> Result<Vec<Restriction>, InvalidGivingUp> {
        let network = self.network.map(|NoNetwork::None| Restriction::Network {});
        let hosts = self.deny_hosts.iter().cloned().map(Restriction::Host);
        let credentials = self.no_credentials.iter().cloned();
        let after = self.until_seconds.map(|seconds| Restriction::After {
            time_s: now_s.saturating_add(seconds.into()),
        });
        let all = network.into_iter().chain(after).chain(hosts);
        let all: Vec<_> = all
            .chain(credentials.map(Restriction::Credential))
            .collect();
        match all.len() {
            0 => Err(InvalidGivingUp::Nothing),
            1..=GIVEN_UP_AT_ONCE_MAX => Ok(all),
            _ => Err(InvalidGivingUp::TooMany),
        }
    }
}

#[cfg(test)]
mod tests;
