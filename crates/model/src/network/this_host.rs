//! The host's own loopback, under a name of its own: its services are reached only where a rule
//! names it with its port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Destination, HostName, HostPart, HostPattern, Network, Ports, Request, Unreachable};

/// The name by which programs in the sandbox reach the host's loopback.
pub const THIS_HOST: &str = "host.atoll.internal";

/// The most ports of the sandbox's loopback that lead to the host's.
pub const HOST_PORTS_MAX: usize = 16;

/// The sandbox's own host name, which many programs look up when they start: `/etc/hosts` has it also
/// where nobody answers queries.
pub const SANDBOX_NAME: &str = "localhost";

/// The addresses dialled for it, in this order.
pub const THIS_HOST_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

impl HostName {
    /// Returns whether it stands for the host's own loopback.
    #[must_use]
    pub fn is_this_host(&self) -> bool {
        self.as_str() == THIS_HOST
    }
}

impl HostPart {
    /// Returns whether it stands for the host's own loopback.
    #[must_use]
    pub fn is_this_host(&self) -> bool {
        matches!(self, Self::Name(name) if name.is_this_host())
    }
}

impl Network {
    /// Returns whether a port of the sandbox's own loopback leads to the host's.
    #[must_use]
    pub fn leads_to_host(&self, address: IpAddr, port: u16) -> bool {
        address.is_loopback() && self.host_ports.contains(&port)
    }

    /// Decides on dialling an address for a host, as [`Self::address`]; for the host's own loopback
    /// its own two addresses are allowed, unless a rule denies them.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub fn dials(
        &self,
        host: &HostPart,
        address: IpAddr,
        port: u16,
        request: Option<&Request<'_>>,
    ) -> Result<(), Unreachable<'_>> {
        let is_own = host.is_this_host() && THIS_HOST_ADDRESSES.contains(&address);
        let judged = match host {
            HostPart::Name(_) => self.address_of_name(address, port, request),
            HostPart::Address(_) => self.address(address, port, request),
        };
        match judged {
            Err(Unreachable::Special(_)) if is_own => Ok(()),
            found => found,
        }
    }
}

impl Destination {
    /// Returns whether a rule may allow this. The host's own loopback is allowed by its name and
    /// single ports alone: other ports may have services that nobody thought of.
    #[must_use]
    pub fn is_allowable(&self) -> bool {
        let is_own = matches!(&self.host, HostPattern::Exact(name) if name.is_this_host());
        !is_own || self.ports.are_named()
    }

    /// Returns whether it can allow a host: no wildcard allows the host's own loopback.
    pub(super) fn opens(&self, host: &HostPart) -> bool {
        match self.host {
            HostPattern::Exact(_) => self.is_allowable(),
            HostPattern::Any | HostPattern::Beneath(_) | HostPattern::Block(_) => {
                !host.is_this_host()
            }
        }
    }
}

impl Ports {
    /// Returns whether each of them is written out.
    fn are_named(&self) -> bool {
        match self {
            Self::Web | Self::All => false,
            Self::Listed(ranges) => ranges.iter().all(|(first, last)| first == last),
        }
    }
}
