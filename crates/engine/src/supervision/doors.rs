//! The egress inputs: the descriptors that the egress process starts with, among them listeners
//! on the host's loopback for published ports.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

use atoll_model::network::{Network, PublishedPort};
use atoll_sandbox::{SandboxError, read_roots};
use atoll_sys::descriptor::sealed_memory;
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::net::{AddressFamily, SocketType};

use crate::supervision::{OUTSIDE, locks};

/// The inputs of an egress process that is not started yet: listeners, and the users whose
/// connections they accept.
#[derive(Debug, Default)]
pub struct EgressInputs {
    pub(crate) listeners: Vec<OwnedFd>,
    pub(crate) visitors: Vec<u32>,
    /// Further certificate authorities for origins.
    pub(crate) roots: Option<OwnedFd>,
    /// The packages named by lock files.
    pub(crate) locks: Option<OwnedFd>,
    /// The policies that judge each connection too.
    pub(crate) policies: Option<OwnedFd>,
    /// The tokens that have to allow each connection too.
    pub(crate) tokens: Option<OwnedFd>,
    /// The file of labels that other runs of the session gain.
    pub(crate) gained: Option<OwnedFd>,
}

impl EgressInputs {
    /// Opens the inputs. The listeners accept this user and root; if `sudo` made this user
    /// root, also the user who called it.
    ///
    /// # Errors
    /// [`SandboxError::Publish`]: a port is taken or not permitted. [`SandboxError::Roots`].
    /// [`SandboxError::Lock`].
    pub fn open(
        network: &Network,
        policies: Option<&[u8]>,
        workspace: &Path,
        environment: &[(OsString, OsString)],
    ) -> Result<Self, SandboxError> {
        let roots = read_roots(network)?;
        let locks = locks::read(network, workspace)?;
        let policies = policies.map(|text| sealed_memory(c"atoll-policies", text));
        let policies = policies.transpose().map_err(|error| SandboxError::Host {
            what: "policies cannot be handed on",
            error,
        })?;
        let mut listeners = Vec::new();
        for published in &network.publish {
            listeners.extend(listen(published.port)?);
        }
        let own = rustix::process::geteuid();
        let mut visitors = vec![0, own.as_raw()];
        if own.is_root() {
            let named = environment.iter().find(|(name, _)| name == "SUDO_UID");
            visitors.extend(named.and_then(|(_, id)| id.to_str()?.parse::<u32>().ok()));
        }
        Ok(Self {
            listeners,
            visitors,
            roots,
            locks,
            policies,
            tokens: None,
            gained: None,
        })
    }

    /// Adds the file of labels that other runs of the session gain, one per line. It is read
    /// from its present offset, and again whenever labels decide.
    #[must_use]
    pub fn beside(self, gained: Option<OwnedFd>) -> Self {
        Self { gained, ..self }
    }

    /// Adds tokens in the egress process's format.
    ///
    /// # Errors
    /// [`SandboxError::Host`].
    pub fn holding(mut self, tokens: Option<&[u8]>) -> Result<Self, SandboxError> {
        let tokens = tokens.map(|text| sealed_memory(c"atoll-tokens", text));
        self.tokens = tokens.transpose().map_err(|error| SandboxError::Host {
            what: "tokens cannot be handed on",
            error,
        })?;
        Ok(self)
    }
}

/// Listens at a port of both loopback addresses; of IPv6 only if the host has it.
pub(crate) fn listen(port: PublishedPort) -> Result<Vec<OwnedFd>, SandboxError> {
    let mut listeners = Vec::new();
    for ip in [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        Ipv6Addr::LOCALHOST.into(),
    ] {
        let at = SocketAddr::new(ip, port.outside);
        match TcpListener::bind(at) {
            Ok(listener) => listeners.push(OwnedFd::from(listener)),
            Err(error) if ip.is_ipv6() && is_no_address(&error) => {}
            Err(error) => {
                return Err(SandboxError::Publish {
                    port: port.outside,
                    inside: port.inside,
                    why: why_not(at, &error),
                });
            }
        }
    }
    Ok(listeners)
}

fn is_no_address(error: &io::Error) -> bool {
    let family = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(family)
}

fn why_not(at: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => match holder(at.port()) {
            Some(holder) => format!("{holder} listens there already"),
            None => "another program listens there already".to_owned(),
        },
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 are root's on this host (net.ipv4.ip_unprivileged_port_start)"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// Returns the process that listens at a port, as far as this user can see.
fn holder(port: u16) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let inodes: Vec<String> = tables
        .iter()
        .flatten()
        .flat_map(|table| table.lines().filter_map(|line| listening_inode(line, port)))
        .collect();
    let numbered = |process: &fs::DirEntry| {
        let name = process.file_name();
        name.as_bytes().iter().all(u8::is_ascii_digit)
    };
    for process in fs::read_dir("/proc").ok()?.flatten().filter(numbered) {
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        let is_it = |link: &OsString| {
            inodes
                .iter()
                .any(|inode| link.as_bytes() == format!("socket:[{inode}]").as_bytes())
        };
        let links = descriptors
            .flatten()
            .filter_map(|one| fs::read_link(one.path()).ok());
        if links.map(OsString::from).any(|link| is_it(&link)) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            let pid = process.file_name();
            let pid = pid.to_string_lossy();
            return Some(match name.trim_end() {
                name if name.as_bytes() == OUTSIDE.to_bytes() => {
                    format!("another run of Atoll (process {pid})")
                }
                name => format!("{name:?} (process {pid})"),
            });
        }
    }
    None
}

/// Returns the inode in a line of `/proc/net/tcp` (proc(5)) if that is a listener at this port.
fn listening_inode(line: &str, port: u16) -> Option<String> {
    const LISTENING: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, local) = fields.get(1)?.rsplit_once(':')?;
    let is_it = u16::from_str_radix(local, 16) == Ok(port) && fields.get(3) == Some(&LISTENING);
    is_it.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
}

/// Returns whether a descriptor becomes readable when there is a connection: the sockets for
/// reaching into the sandbox do not.
pub(crate) fn tells_of_comers(descriptor: &impl AsFd) -> bool {
    let is_internet = rustix::net::sockopt::socket_domain(descriptor)
        .is_ok_and(|family| family != AddressFamily::UNIX);
    let is_stream = matches!(socket_type(descriptor), Ok(SocketType::STREAM));
    !(is_internet && is_stream) || matches!(socket_acceptconn(descriptor), Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_port_is_found_and_told() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let outside = taken.local_addr().unwrap().port();
        let refused = listen(PublishedPort { outside, inside: 1 }).unwrap_err();
        let told = refused.to_string();
        let pid = std::process::id();
        assert!(told.contains(&format!("(process {pid})")), "{told}");
        drop(taken);
        let listeners = listen(PublishedPort { outside, inside: 1 }).unwrap();
        assert!(!listeners.is_empty());
        assert!(listeners.iter().all(tells_of_comers));
        let unconnected = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
        assert!(!tells_of_comers(&unconnected.unwrap()));
    }
}
