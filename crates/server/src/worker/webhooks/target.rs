//! The targets of webhooks. The worker has the host's network, so an address that a caller chooses
//! is egress: public ones alone, but for the hosts that `serve.toml` names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;

use atoll_model::network::{HostPart, special, within};
use axum::http::uri::PathAndQuery;
use tokio::task::spawn_blocking;

use crate::configuration::WebhookHost;
use crate::worker::shares::Share;

/// The longest address, bytes.
const URL_BYTES_MAX: usize = 2048;
/// The port of HTTPS; others that are public are unprivileged ones.
const HTTPS: u16 = 443;
const UNPRIVILEGED: u16 = 1024;
/// The most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

/// The target of a webhook, as parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) is_tls: bool,
    pub(super) host: HostPart,
    pub(super) port: u16,
    /// The host and port, as written.
    pub(super) authority: String,
    /// The path with the query.
    pub(super) path: String,
}

/// The reason for which a target is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotAllowed {
    #[error("http:// is for hosts that serve.toml names; others are reached by https://")]
    Clear,
    #[error("its port is neither 443 nor from 1024 on")]
    Port,
    #[error("it is not on the internet ({0})")]
    Special(&'static str),
    #[error("it is this host itself")]
    Own,
    /// Of a name. What its addresses are is not said: only this host's name servers know some.
    #[error("its name does not resolve to public addresses alone")]
    Name,
    #[error("its name does not resolve to public addresses alone")]
    Unresolved,
}

impl Target {
    /// Parses the address of a webhook.
    ///
    /// # Errors
    /// The flaw of the address.
    pub(super) fn parse(url: &str) -> Result<Self, &'static str> {
        if url.len() > URL_BYTES_MAX {
            return Err("it has more than 2048 bytes");
        }
        let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err("it begins with neither https:// nor http://"),
        };
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'\\');
        if !rest.bytes().all(is_plain) {
            return Err("it has a fragment, or a character that is to be escaped");
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("it names a user");
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
                let port = port.parse().ok().filter(|port| is_number && *port != 0);
                (host, port.ok_or("its port is no number of a port")?)
            }
            Some(_) | None => (authority, if is_tls { HTTPS } else { 80 }),
        };
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("/{path}"),
        };
        PathAndQuery::try_from(&path).map_err(|_| "its path has a character to be escaped")?;
        Ok(Self {
            is_tls,
            host: host
                .parse()
                .map_err(|_| "its host is no name and no address as of a URL")?,
            port,
            authority: authority.to_owned(),
            path,
        })
    }

    /// Returns the host and port.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the addresses to connect to: no other one is this target. Every one of them is
    /// public, unless the host is named.
    pub(super) async fn addresses(
        &self,
        named: &[WebhookHost],
        share: &Arc<Share>,
    ) -> Result<Vec<SocketAddr>, NotAllowed> {
        let is_named = named.iter().any(|one| one.names(&self.host, self.port));
        match is_named {
            true => {}
            false if !self.is_tls => return Err(NotAllowed::Clear),
            false if self.port != HTTPS && self.port < UNPRIVILEGED => {
                return Err(NotAllowed::Port);
            }
            false => {}
        }
        let name = match &self.host {
            HostPart::Address(address) if is_named => {
                return Ok(vec![SocketAddr::new(*address, self.port)]);
            }
            HostPart::Address(address) => {
                check_public(*address)?;
                return Ok(vec![SocketAddr::new(*address, self.port)]);
            }
            HostPart::Name(name) => (name.to_string(), self.port),
        };
        let share = Arc::clone(share);
        // What is looked up cannot be broken off: it counts until its end.
        let found = spawn_blocking(move || {
            let found = name.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            drop(share);
            found
        });
        let found = found.await.map_err(|_| NotAllowed::Unresolved)?;
        let mut found = found.map_err(|_| NotAllowed::Unresolved)?;
        if !is_named && found.iter().any(|one| check_public(one.ip()).is_err()) {
            return Err(NotAllowed::Name);
        }
        found.truncate(ADDRESSES_MAX);
        match found.is_empty() {
            true => Err(NotAllowed::Unresolved),
            false => Ok(found),
        }
    }
}

/// Refuses an address that is not on the internet, stands for another one, or is this host's own:
/// behind that one there are services that nobody else reaches.
pub(super) fn check_public(address: IpAddr) -> Result<(), NotAllowed> {
    if let Some(special) = special(address) {
        return Err(NotAllowed::Special(special.name));
    }
    if within(address).next().is_some() {
        return Err(NotAllowed::Special("it stands for another address"));
    }
    match is_own(address) {
        true => Err(NotAllowed::Own),
        false => Ok(()),
    }
}

/// Returns whether an address is this host's: the kernel answers from the one that is asked.
/// Nothing is sent by that.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, HTTPS))?;
        socket.local_addr()
    };
    from().is_ok_and(|from| from.ip() == address)
}
