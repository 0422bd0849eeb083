//! Dropped rights: rights that a run gives up for good while it goes on.
//!
//! The list of dropped rights only grows: whatever any entry denies is denied, and no entry allows
//! anything.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{CredentialName, Destination, HostPart, HostPattern, Ports};
use crate::ids::told_time;

/// The most restrictions that one run can have from its own program, and as many again from
/// persons: all of the network can be dropped in addition.
pub const GIVEN_UP_MAX: usize = 64;
/// The most restrictions in one request.
pub const GIVEN_UP_AT_ONCE_MAX: usize = 16;

/// Hosts to which access is dropped, at all of their ports: `example.com`, `*.example.com`,
/// `192.0.2.0/24`, `*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GivenUpHost(HostPattern);

/// The error for a text that names no hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGivenUpHost {
    /// An invalid host.
    #[error(transparent)]
    Destination(#[from] super::InvalidDestination),
    /// A port.
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

/// One restriction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Restriction {
    /// All of the network, in and out.
    Network {},
    /// These hosts.
    Host(GivenUpHost),
    /// This credential: it is not injected any more.
    Credential(CredentialName),
    /// All of the network from this time on.
    After {
        /// The time, seconds since 1970.
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

/// The cause of a dropped right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum GivenUpBy {
    /// The run's own program.
    Program {},
    /// A person outside the sandbox.
    Person {
        /// The user's uid.
        uid: u32,
    },
    /// The expiry of a token of the run.
    TokenEnd {},
    /// The revocation of a token of the run.
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
    /// Returns whether both share one quota of restrictions: persons do with each other.
    fn shares_with(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Returns whether it lasts as long as what `other` drops: a right that ends with a token
    /// returns for a later run of the session, which can hold another token.
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

/// A right that a run has dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenUp {
    /// The time, seconds since 1970.
    pub at_s: u64,
    /// The cause.
    pub by: GivenUpBy,
    /// The restriction.
    pub what: Restriction,
}

impl GivenUp {
    /// Returns the reason for denials that it causes.
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

    /// Returns the time from which it denies.
    fn since(&self) -> String {
        told_time(match self.what {
            Restriction::After { time_s } => time_s,
            Restriction::Network {} | Restriction::Host(_) | Restriction::Credential(_) => {
                self.at_s
            }
        })
    }

    /// Describes it: the restriction, its cause and time.
    #[must_use]
    pub fn told(&self) -> String {
        format!("{}, {} at {}", self.what, self.by, told_time(self.at_s))
    }
}

/// The beginning of the reason for a denial caused by a dropped right.
pub const GIVEN_UP: &str = "the right to it was given up";
/// The beginning of the reason for a denial to a run whose token is not valid any more.
pub const TOKEN_OVER: &str = "the run's token carries nothing any more";

/// All rights that a run has dropped, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GivenUps(Vec<GivenUp>);

/// The error for one restriction too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{GIVEN_UP_MAX} restrictions are what a run can have by its program, and as many by persons; all of \
     the network can still be given up"
)]
pub struct TooMuchGivenUp;

impl GivenUps {
    /// Adds one, and returns whether that changes anything: a restriction implied by an earlier one
    /// that lasts as long is not added.
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

    /// Makes a time that has come final, whatever the clock says later: from then on all of the
    /// network is dropped. Returns whether that changes anything.
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

    /// Returns whether a time has come at which all of the network is dropped, and which is not
    /// final yet.
    #[must_use]
    pub fn is_to_latch(&self, now_s: u64) -> bool {
        let due = self.network(now_s);
        due.is_some_and(|one| one.what != (Restriction::Network {}))
    }

    /// Returns whether nothing is dropped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the dropped rights, in order.
    pub fn iter(&self) -> impl Iterator<Item = &GivenUp> {
        self.0.iter()
    }

    /// Returns the entry that denies all of the network at this time, if any.
    #[must_use]
    pub fn network(&self, now_s: u64) -> Option<&GivenUp> {
        let is_all = |one: &&GivenUp| one.what == (Restriction::Network {});
        let is_due =
            |one: &&GivenUp| matches!(one.what, Restriction::After { time_s } if now_s >= time_s);
        let all = self.0.iter().find(is_all);
        all.or_else(|| self.0.iter().find(is_due))
    }

    /// Returns the entry that denies a host at this time: a name, or an address that is named or
    /// dialled.
    #[must_use]
    pub fn host(&self, host: &HostPart, now_s: u64) -> Option<&GivenUp> {
        let named =
            |one: &&GivenUp| matches!(&one.what, Restriction::Host(hosts) if hosts.holds(host));
        self.network(now_s).or_else(|| self.0.iter().find(named))
    }

    /// Returns the entry that denies an address that is dialled.
    #[must_use]
    pub fn address(&self, address: IpAddr, now_s: u64) -> Option<&GivenUp> {
        self.host(&HostPart::address(address), now_s)
    }

    /// Returns the entry that denies a credential.
    #[must_use]
    pub fn credential(&self, name: &CredentialName) -> Option<&GivenUp> {
        let named =
            |one: &&GivenUp| matches!(&one.what, Restriction::Credential(given) if given == name);
        self.0.iter().find(named)
    }

    /// Returns the next time after this one at which more is denied.
    #[must_use]
    pub fn next_s(&self, now_s: u64) -> Option<u64> {
        let times = self.0.iter().filter_map(|one| match one.what {
            Restriction::After { time_s } => Some(time_s),
            Restriction::Network {} | Restriction::Host(_) | Restriction::Credential(_) => None,
        });
        times.filter(|time_s| *time_s > now_s).min()
    }
}

/// Returns whether the first restriction denies everything that the second one does.
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

/// A request to drop rights: by a person for a run, or by a program in its sandbox.
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
    /// All of the network, after this many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_seconds: Option<u32>,
}

/// The part of the network that is left: its only word is `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoNetwork {
    /// Nothing.
    None,
}

/// The error for a request that drops nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGivingUp {
    /// An empty request.
    #[error("it names nothing to give up")]
    Nothing,
    /// A request with too many restrictions.
    #[error("more than {GIVEN_UP_AT_ONCE_MAX} restrictions are too many at once")]
    TooMany,
}

impl GivingUp {
    /// Returns the restrictions that it names, at this time.
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
