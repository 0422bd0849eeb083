//! Destinations of programs' connections.

use std::net::SocketAddr;

use atoll_model::network::{Flow, FlowKind, HostPart, THIS_HOST};

use crate::Egress;
use crate::names::{self, Names};

/// The port of the sandbox API.
const SANDBOX_API_PORT: u16 = 80;

/// The destination of a program's connection.
#[derive(Debug)]
pub struct Destination {
    /// The host.
    pub host: HostPart,
    /// The port.
    pub port: u16,
}

impl Destination {
    /// Returns the record of a connection to it, of which nothing else is known.
    pub fn flow(&self) -> Flow {
        Flow::to(FlowKind::Tunnel, self.host.to_string(), self.port)
    }

    /// Returns whether a connection is to the proxy.
    pub(crate) fn is_proxy(&self) -> bool {
        matches!(&self.host, HostPart::Name(name) if names::is_proxy(name))
    }

    /// Returns whether a connection is to the sandbox API.
    pub(crate) fn is_sandbox_api(&self) -> bool {
        self.port == SANDBOX_API_PORT
            && matches!(&self.host, HostPart::Name(name) if names::is_sandbox_api(name))
    }
}

/// Returns the destination behind an address, which may stand for a name.
pub(crate) fn of_address(
    egress: &Egress,
    meant: SocketAddr,
) -> Result<Destination, (Destination, String)> {
    let (address, port) = (meant.ip(), meant.port());
    let of = |host| Destination { host, port };
    if egress.network().leads_to_host(address, port)
        && let Ok(host) = THIS_HOST.parse()
    {
        return Ok(of(host));
    }
    if !Names::is_for_names(address) {
        return Ok(of(HostPart::address(address)));
    }
    let name = egress.name(address);
    name.map(|name| of(HostPart::Name(name))).ok_or_else(|| {
        let why = "this address stands for no name that was asked for".to_owned();
        (of(HostPart::address(address)), why)
    })
}

/// Refuses a connection or a request that is for another host than the program asked for, or cannot
/// be parsed; for the misuse of a placeholder, if the name in it has one.
pub(crate) fn refuse_another(egress: &Egress, mut flow: Flow, mut why: String) {
    if let Some((credential, misused)) = egress.credentials.misused_in(&why) {
        flow.credentials.push(credential);
        why = format!("{misused}: {why}");
    }
    egress.control.refuse(flow, why);
}
