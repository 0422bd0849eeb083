//! Whether two rights have anything in common: what narrows a token to nothing is told.

use atoll_model::network::HostPart;

use crate::right::{Hosts, Place, Right};

impl Right {
    /// Whether there can be anything that both carry, but for a name that is asked for on the way
    /// to it. Where that cannot be told they do.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let is_same = |own: Option<u16>, other: Option<u16>| {
            own.zip(other).is_none_or(|(own, other)| own == other)
        };
        match (self, other) {
            (Self::UseCredential(own), Self::UseCredential(other)) => {
                let both = own.as_ref().zip(other.as_ref());
                both.is_none_or(|(own, other)| own == other)
            }
            (Self::Publish(own), Self::Publish(other)) => is_same(*own, *other),
            (
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
            ) => {
                let methods = method.as_ref().zip(other_method.as_ref());
                methods.is_none_or(|(own, other)| own == other)
                    && (scheme, port) == (other_scheme, other_port)
                    && hosts.meet(other_hosts)
                    && path.meets(other_path)
            }
            (
                Self::Resolve(_) | Self::Connect { .. } | Self::Request { .. },
                Self::Resolve(_) | Self::Connect { .. } | Self::Request { .. },
            ) => {
                let hosts = self.hosts().zip(other.hosts());
                hosts.is_some_and(|(own, other)| own.meet(other))
                    && is_same(self.port(), other.port())
            }
            (
                Self::Resolve(_)
                | Self::Connect { .. }
                | Self::Request { .. }
                | Self::UseCredential(_)
                | Self::Publish(_),
                Self::Resolve(_)
                | Self::Connect { .. }
                | Self::Request { .. }
                | Self::UseCredential(_)
                | Self::Publish(_),
            ) => false,
        }
    }

    fn hosts(&self) -> Option<&Hosts> {
        match self {
            Self::Resolve(hosts) | Self::Connect { hosts, .. } | Self::Request { hosts, .. } => {
                Some(hosts)
            }
            Self::UseCredential(_) | Self::Publish(_) => None,
        }
    }

    /// The one at which alone it connects.
    fn port(&self) -> Option<u16> {
        match self {
            Self::Connect { port, .. } => *port,
            Self::Request { port, .. } => Some(*port),
            Self::Resolve(_) | Self::UseCredential(_) | Self::Publish(_) => None,
        }
    }
}

impl Hosts {
    fn meet(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, Self::Any | Self::Beneath(_) | Self::One(_))
            | (Self::Beneath(_) | Self::One(_), Self::Any) => true,
            (Self::Beneath(own), Self::Beneath(other)) => {
                own == other || own.is_beneath(other) || other.is_beneath(own)
            }
            (Self::One(own), Self::One(other)) => own == other,
            (Self::Beneath(above), Self::One(one)) | (Self::One(one), Self::Beneath(above)) => {
                match one {
                    HostPart::Name(name) => name.is_beneath(above),
                    HostPart::Address(_) => false,
                }
            }
        }
    }
}

impl Place {
    fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::At(own), Self::At(other)) => own == other,
            (Self::At(at), Self::Beneath(above)) | (Self::Beneath(above), Self::At(at)) => {
                at.starts_with(above)
            }
            (Self::Beneath(own), Self::Beneath(other)) => {
                own.starts_with(other) || other.starts_with(own)
            }
        }
    }
}
