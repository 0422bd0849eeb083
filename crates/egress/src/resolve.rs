//! From a name to the addresses that may be dialled.

use std::net::IpAddr;
use std::time::Duration;

use atoll_model::network::{HostName, Network};
use hickory_resolver::TokioResolver;

use crate::refusals::why;

/// How long a name may take, in all.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many addresses of one name are tried.
const ADDRESSES_MAX: usize = 8;

/// Why a name leads nowhere.
#[derive(Debug)]
pub(crate) enum Nowhere {
    /// It has no address that may be dialled.
    Refused(String),
    /// Nobody knows it, or nobody answers.
    Unknown(String),
}

/// The addresses of a name that may be dialled at a port: what was checked is what is
/// dialled.
pub(crate) async fn resolve(
    resolver: &TokioResolver,
    network: &Network,
    name: &HostName,
    port: u16,
) -> Result<Vec<IpAddr>, Nowhere> {
    // With a dot at its end nothing is added to it.
    let asked = resolver.lookup_ip(format!("{name}."));
    let found = match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(Nowhere::Unknown(error.to_string())),
        Err(_) => return Err(Nowhere::Unknown("no name server answers".to_owned())),
    };
    let mut addresses = Vec::new();
    let mut refused = None;
    for address in found.iter().map(|address| address.to_canonical()) {
        match network.address(address, port) {
            Ok(()) if addresses.len() < ADDRESSES_MAX => addresses.push(address),
            Ok(()) => {}
            Err(unreachable) => refused = Some(why(&unreachable)),
        }
    }
    // One that is refused among others is a name that somebody plays with.
    match refused {
        Some(why) => Err(Nowhere::Refused(why)),
        None if addresses.is_empty() => Err(Nowhere::Unknown("it has no address".to_owned())),
        None => Ok(addresses),
    }
}
