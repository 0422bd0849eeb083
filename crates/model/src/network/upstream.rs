//! Upstream settings: the proxy by which connections leave the host, and further trusted
//! authorities.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Destination, HostPart, HostPattern, Network, NetworkRule, Request, Unreachable};

/// Upstream settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// The upstream proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<UpstreamProxy>,
    /// Destinations that are dialled directly nevertheless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub direct: Vec<Destination>,
    /// Files of the host with certificates of further authorities that servers may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<PathBuf>,
}

/// A proxy that accepts CONNECT (RFC 9110, 9.3.6).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamProxy {
    /// The host.
    pub host: HostPart,
    /// The port.
    pub port: u16,
    /// User and password, separated by a colon (RFC 7617): a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

/// The error for a text that is not a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no proxy that is spoken to without TLS, with a host and a port")]
pub struct InvalidProxy;

impl Upstream {
    /// Returns whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Network {
    /// Returns the proxy for a host, if it is not dialled directly. The host's own loopback always
    /// is.
    #[must_use]
    pub fn proxy_for(&self, host: &HostPart, port: u16) -> Option<&UpstreamProxy> {
        let proxy = self.upstream.proxy.as_ref()?;
        let mut direct = self.upstream.direct.iter();
        let is_direct = host.is_this_host() || direct.any(|one| one.leads_to(host, port));
        (!is_direct).then_some(proxy)
    }

    /// Decides on reaching a host through the proxy, for this request or for a tunnel. Only the
    /// proxy sees the address that a name resolves to, and it may reach more than the internet: so
    /// a rule has to name the host, without `*`. An address is judged as if it were dialled.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub fn asks_proxy(
        &self,
        host: &HostPart,
        port: u16,
        request: Option<&Request<'_>>,
    ) -> Result<(), Unreachable<'_>> {
        if let HostPart::Address(address) = host {
            return self.address(*address, port, request);
        }
        let names = |rule: &&NetworkRule| match rule.to.host {
            HostPattern::Exact(_) | HostPattern::Beneath(_) => rule.to.leads_to(host, port),
            HostPattern::Any | HostPattern::Block(_) => false,
        };
        let allows = |rule: &NetworkRule| match request {
            Some(request) => rule.requests.hold(request),
            None => rule.requests.is_empty(),
        };
        let is_named = self.allow.iter().filter(names).any(allows);
        is_named.then_some(()).ok_or(Unreachable::Unnamed)
    }
}

impl FromStr for UpstreamProxy {
    type Err = InvalidProxy;

    /// Reads `http://proxy.example:3128`, or `http://user:password@proxy.example:3128`, where the
    /// part before the host can have escapes (`%40`).
    fn from_str(text: &str) -> Result<Self, InvalidProxy> {
        let rest = text.strip_prefix("http://").ok_or(InvalidProxy)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (credentials, place) = match rest.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, rest),
        };
        let (host, port) = place.rsplit_once(':').ok_or(InvalidProxy)?;
        let is_plain = port.bytes().all(|byte| byte.is_ascii_digit());
        let port: Option<u16> = port.parse().ok().filter(|port| is_plain && *port != 0);
        let credentials = credentials.map(|text| {
            let plain = unescaped(text)?;
            let is_whole = plain.contains(':') && !plain.chars().any(char::is_control);
            is_whole.then_some(plain)
        });
        let credentials = match credentials {
            None => None,
            Some(read) => Some(read.ok_or(InvalidProxy)?),
        };
        Ok(Self {
            host: host.parse().map_err(|_| InvalidProxy)?,
            port: port.ok_or(InvalidProxy)?,
            credentials,
        })
    }
}

fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Formats the proxy without its credentials.
impl fmt::Display for UpstreamProxy {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "http://{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}
