//! The ports of the sandbox's loopback that lead to the host's, as its launcher has them.

use atoll_frame::HOST_PORTS_MAX;
use atoll_model::network::Network;

/// Returns the loopback ports that lead to the host; more than there is room for are not granted.
pub(crate) fn host_ports(network: &Network) -> [u16; HOST_PORTS_MAX] {
    let mut ports = [0; HOST_PORTS_MAX];
    for (place, port) in ports.iter_mut().zip(&network.host_ports) {
        *place = *port;
    }
    ports
}
