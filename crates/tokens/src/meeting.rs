//! The intersection of two rights, and of all blocks of a token: the rights of a narrowed token.

use atoll_model::network::HostPart;

use crate::right::{Hosts, Place, Right};

/// The most rights in common that are listed one by one.
pub const COMMON_MAX: usize = 256;

/// The error for blocks with more than [`COMMON_MAX`] rights in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {COMMON_MAX} rights")]
pub struct TooManyRights;

/// Returns the rights that one block and another have in common, none of them within another.
///
/// # Errors
/// [`TooManyRights`].
pub fn in_common(one: &[Right], other: &[Right]) -> Result<Vec<Right>, TooManyRights> {
    let mut all: Vec<Right> = Vec::new();
    for right in one
        .iter()
        .flat_map(|own| other.iter().filter_map(|one| own.common(one)))
    {
        if all.iter().any(|there| there.holds(&right)) {
            continue;
        }
        all.retain(|there| !right.holds(there));
        all.push(right);
        if all.len() > COMMON_MAX {
            return Err(TooManyRights);
        }
    }
    Ok(all)
}

impl Right {
    /// Returns whether the two have anything in common, apart from a name lookup needed for it.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.common(other).is_some()
    }

    /// Returns whether this right includes the other one.
    fn holds(&self, other: &Self) -> bool {
        self.common(other).as_ref() == Some(other)
    }

    /// Returns the rights in common, apart from a name lookup needed for them.
    fn common(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::UseCredential(own), Self::UseCredential(other)) => {
                both(own, other).map(Self::UseCredential)
            }
            (Self::Publish(own), Self::Publish(other)) => both(own, other).map(Self::Publish),
            (Self::Call(own), Self::Call(other)) => own.common(other).map(Self::Call),
            (Self::Request { .. }, Self::Request { .. }) => self.request_in(other),
            (Self::Resolve(own), Self::Resolve(other))
            | (Self::Resolve(own), Self::Connect { hosts: other, .. })
            | (Self::Resolve(own), Self::Request { hosts: other, .. })
            | (Self::Connect { hosts: other, .. }, Self::Resolve(own))
            | (Self::Request { hosts: other, .. }, Self::Resolve(own)) => {
                own.common(other).map(Self::Resolve)
            }
            (
                Self::Connect { hosts, port },
                Self::Connect {
                    hosts: other,
                    port: other_port,
                },
            ) => Some(Self::Connect {
                hosts: hosts.common(other)?,
                port: both(port, other_port)?,
            }),
            (
                Self::Connect { hosts, port },
                request @ Self::Request {
                    hosts: other,
                    port: other_port,
                    ..
                },
            )
            | (
                request @ Self::Request {
                    hosts: other,
                    port: other_port,
                    ..
                },
                Self::Connect { hosts, port },
            ) => {
                both(port, &Some(*other_port))?;
                Some(request.to_hosts(hosts.common(other)?))
            }
            (Self::UseCredential(_) | Self::Publish(_) | Self::Call(_), _)
            | (_, Self::UseCredential(_) | Self::Publish(_) | Self::Call(_)) => None,
        }
    }

    /// Returns the requests in common.
    fn request_in(&self, other: &Self) -> Option<Self> {
        let (
            Self::Request {
                method,
                scheme,
                hosts,
                port,
                path,
            },
            Self::Request {
                method: other_method,
                scheme: other_scheme,
                hosts: other_hosts,
                port: other_port,
                path: other_path,
            },
        ) = (self, other)
        else {
            return None;
        };
        if (scheme, port) != (other_scheme, other_port) {
            return None;
        }
        Some(Self::Request {
            method: both(method, other_method)?,
            scheme: *scheme,
            hosts: hosts.common(other_hosts)?,
            port: *port,
            path: path.common(other_path)?,
        })
    }

    /// Returns the same right for these hosts.
    fn to_hosts(&self, to: Hosts) -> Self {
        let mut right = self.clone();
        match &mut right {
            Self::Resolve(hosts) | Self::Connect { hosts, .. } | Self::Request { hosts, .. } => {
                *hosts = to;
            }
            Self::UseCredential(_) | Self::Publish(_) | Self::Call(_) => {}
        }
        right
    }
}

/// Returns the intersection of two values, where `None` stands for all of them.
#[allow(clippy::option_option)]
fn both<T: Clone + PartialEq>(own: &Option<T>, other: &Option<T>) -> Option<Option<T>> {
    match (own, other) {
        (Some(own), Some(other)) => (own == other).then(|| Some(own.clone())),
        (own, other) => Some(own.as_ref().or(other.as_ref()).cloned()),
    }
}

impl Hosts {
    fn common(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, narrower) | (narrower, Self::Any) => Some(narrower.clone()),
            (Self::Beneath(own), Self::Beneath(other)) => {
                if own == other || own.is_beneath(other) {
                    return Some(self.clone());
                }
                other.is_beneath(own).then(|| Self::Beneath(other.clone()))
            }
            (Self::One(own), Self::One(other)) => (own == other).then(|| self.clone()),
            (Self::Beneath(above), Self::One(one)) | (Self::One(one), Self::Beneath(above)) => {
                match one {
                    HostPart::Name(name) => name.is_beneath(above).then(|| Self::One(one.clone())),
                    HostPart::Address(_) => None,
                }
            }
        }
    }
}

impl Place {
    fn common(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::At(own), Self::At(other)) => (own == other).then(|| self.clone()),
            (Self::At(at), Self::Beneath(above)) | (Self::Beneath(above), Self::At(at)) => {
                at.starts_with(above).then(|| Self::At(at.clone()))
            }
            (Self::Beneath(own), Self::Beneath(other)) => {
                if own.starts_with(other) {
                    return Some(self.clone());
                }
                other.starts_with(own).then(|| Self::Beneath(other.clone()))
            }
        }
    }
}
