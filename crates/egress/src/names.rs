//! Stand-in addresses for names: a program queries a name, gets one of these, and connects to it;
//! the decision is then about the name.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use atoll_model::network::HostName;

/// The name at which the proxy is reached, at whichever port.
pub(crate) const PROXY_NAME: &str = "proxy.atoll.internal";
/// The name of the sandbox API's host.
pub(crate) const SANDBOX_API_NAME: &str = "atoll.internal";

/// The first IPv4 address, within 198.18.0.0/15, which nobody on the internet has (RFC 2544).
const FIRST_4: u32 = u32::from_be_bytes([198, 18, 0, 1]);
/// The IPv4 address of the proxy, the first name.
pub const PROXY_ADDRESS: Ipv4Addr = Ipv4Addr::from_bits(FIRST_4);
/// The first IPv6 address, under a prefix of Atoll's own among the private ones (RFC 4193).
const FIRST_6: u128 = 0xfd61_746f_6c6c_0000_0000_0000_0000_0001;

/// The most names known at once: as many as there are IPv4 addresses.
const NAMES_MAX: usize = (1 << 17) - 2;

/// Returns whether a name is the proxy's.
pub(crate) fn is_proxy(name: &HostName) -> bool {
    name.as_str() == PROXY_NAME
}

/// Returns whether a name is that of the sandbox API.
pub(crate) fn is_sandbox_api(name: &HostName) -> bool {
    name.as_str() == SANDBOX_API_NAME
}

/// The names that one sandbox has queried and may reach.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<HostName, u32>,
    names: Vec<HostName>,
}

impl Names {
    /// Begins with the proxy's name, whose addresses are thus always the same.
    pub(crate) fn with_proxy() -> Self {
        let mut names = Self::default();
        if let Ok(proxy) = HostName::parse(PROXY_NAME) {
            let _ = names.addresses(&proxy);
        }
        names
    }

    /// Returns the addresses that stand for a name from now on; `None` when there are no more.
    pub(crate) fn addresses(&mut self, name: &HostName) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None if self.names.len() >= NAMES_MAX => return None,
            None => {
                let number = u32::try_from(self.names.len()).ok()?;
                self.names.push(name.clone());
                self.numbers.insert(name.clone(), number);
                number
            }
        };
        let four = Ipv4Addr::from_bits(FIRST_4 + number);
        Some((four, Ipv6Addr::from_bits(FIRST_6 + u128::from(number))))
    }

    /// Returns whether an address can stand for a name.
    pub(crate) fn is_for_names(address: IpAddr) -> bool {
        number(address).is_some()
    }

    /// Returns the name that an address stands for.
    pub(crate) fn name(&self, address: IpAddr) -> Option<&HostName> {
        self.names.get(number(address)?)
    }
}

fn number(address: IpAddr) -> Option<usize> {
    let number = match address.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits().checked_sub(FIRST_4)?),
        IpAddr::V6(address) => address.to_bits().checked_sub(FIRST_6)?,
    };
    usize::try_from(number).ok().filter(|one| *one < NAMES_MAX)
}
