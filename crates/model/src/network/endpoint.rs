//! Endpoints that Atoll itself requests credentials from, always over TLS.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{
    Block, Conditions, Destination, HostPart, HostPattern, Network, NetworkRule, Ports, RuleLimits,
    Scheme, Target, Way, special,
};

/// The longest endpoint, bytes.
const ENDPOINT_BYTES_MAX: usize = 2048;

/// An https URL, as `https://login.example.com/oauth/token`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Endpoint {
    /// The host.
    pub host: HostPart,
    /// The port.
    pub port: u16,
    /// The path, optionally with a query.
    pub target: String,
}

/// The error for a text that is not an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// Its scheme is not https.
    #[error("it begins with https://, since secrets are sent there")]
    Scheme,
    /// Its host is invalid, or has a user before it.
    #[error("its host is a name or an address, with a port or without, and nothing before it")]
    Host,
    /// Its host is this one, where a program of the sandbox could listen.
    #[error("it is on this host, where a program could listen in its place")]
    ThisHost,
    /// Its path can be read in more than one way.
    #[error("its path is one that can be read in one way alone, without a fragment")]
    Path,
}

impl Endpoint {
    /// Returns the host as requests name it: with its port unless that is the default.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.port == Scheme::Https.port() {
            true => self.host.to_string(),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Returns the endpoint of a path beneath this one, whose target is a common prefix.
    #[must_use]
    pub fn beneath(&self, path: &str) -> Self {
        Self {
            target: format!("{}{path}", self.target.trim_end_matches('/')),
            ..self.clone()
        }
    }

    /// Returns a rule that allows this host alone.
    fn rule(&self) -> NetworkRule {
        let host = match &self.host {
            HostPart::Name(name) => HostPattern::Exact(name.clone()),
            HostPart::Address(address) => HostPattern::Block(Block::of(*address)),
        };
        NetworkRule {
            to: Destination {
                host,
                ports: Ports::Listed(vec![(self.port, self.port)]),
            },
            way: Way::Inspect,
            requests: Conditions {
                scheme: Some(Scheme::Https),
                ..Conditions::default()
            },
            limits: RuleLimits::default(),
            origin: "[credential]".to_owned(),
        }
    }
}

impl Network {
    /// Returns the network access of Atoll's own requests to these endpoints, which are judged
    /// apart from a program's: they are allowed without a rule. A denied host is denied here too,
    /// and a name that resolves to a private address needs a rule that allows that address.
    #[must_use]
    pub fn with_own(&self, endpoints: &[&Endpoint]) -> Self {
        let own = endpoints.iter().map(|endpoint| endpoint.rule());
        Self {
            allow: own.chain(self.allow.iter().cloned()).collect(),
            learn: None,
            ..self.clone()
        }
    }
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let rest = text
            .strip_prefix("https://")
            .ok_or(InvalidEndpoint::Scheme)?;
        let begin = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(begin);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let is_plain = port.bytes().all(|byte| byte.is_ascii_digit());
                let port = port.parse().ok().filter(|port| is_plain && *port != 0);
                (host, port.ok_or(InvalidEndpoint::Host)?)
            }
            Some(_) | None => (authority, Scheme::Https.port()),
        };
        let host: HostPart = host.parse().map_err(|_| InvalidEndpoint::Host)?;
        let is_loopback = match &host {
            HostPart::Name(name) => name.is_this_host() || is_localhost(name.as_str()),
            HostPart::Address(address) => special(*address).is_some_and(|one| one.is_loopback()),
        };
        if is_loopback {
            return Err(InvalidEndpoint::ThisHost);
        }
        let target = if target.is_empty() { "/" } else { target };
        let read = Target::parse(target).map_err(|_| InvalidEndpoint::Path)?;
        if read.unclear().is_some() || text.len() > ENDPOINT_BYTES_MAX {
            return Err(InvalidEndpoint::Path);
        }
        let target = target.to_owned();
        Ok(Self { host, port, target })
    }
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

impl TryFrom<String> for Endpoint {
    type Error = InvalidEndpoint;

    fn try_from(text: String) -> Result<Self, InvalidEndpoint> {
        text.parse()
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.to_string()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "https://{}{}", self.authority(), self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Request;
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_by_tls_that_is_not_this_one() {
        for (text, form) in [
            ("https://login.example.com/oauth/token", None),
            (
                "https://LOGIN.example.com:443/a?b=c",
                Some("https://login.example.com/a?b=c"),
            ),
            (
                "https://login.example.com:8443",
                Some("https://login.example.com:8443/"),
            ),
            ("https://10.0.0.5/token", None),
            ("https://[2001:db8::1]:8443/token", None),
            ("https://[2001:db8::1]/token", None),
        ] {
            let read: Endpoint = text.parse().unwrap();
            assert_eq!(read.to_string(), form.unwrap_or(text));
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        for (text, why) in [
            ("http://login.example.com/token", InvalidEndpoint::Scheme),
            ("login.example.com/token", InvalidEndpoint::Scheme),
            ("https://user@login.example.com/", InvalidEndpoint::Host),
            ("https://login.example.com:0/", InvalidEndpoint::Host),
            ("https://login.example.com:+443/", InvalidEndpoint::Host),
            ("https:///token", InvalidEndpoint::Host),
            ("https://*.example.com/", InvalidEndpoint::Host),
            (
                "https://host.atoll.internal:8443/",
                InvalidEndpoint::ThisHost,
            ),
            ("https://localhost/", InvalidEndpoint::ThisHost),
            ("https://127.0.0.1/", InvalidEndpoint::ThisHost),
            ("https://[::1]/", InvalidEndpoint::ThisHost),
            ("https://[::ffff:127.0.0.1]/", InvalidEndpoint::ThisHost),
            ("https://login.example.com/a/../b", InvalidEndpoint::Path),
            ("https://login.example.com/#a", InvalidEndpoint::Path),
            ("https://login.example.com/ a", InvalidEndpoint::Path),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(why), "{text}");
        }
    }

    #[test]
    fn requests_of_its_own_are_held_to_what_is_denied_and_to_addresses() {
        let endpoint: Endpoint = "https://login.example.com/token".parse().unwrap();
        let fixed: Endpoint = "https://10.0.0.5/token".parse().unwrap();
        let target = Target::parse("/token").unwrap();
        let rule = |to: &str| NetworkRule {
            to: to.parse().unwrap(),
            ..endpoint.rule()
        };
        let may = |network: &Network, host: &HostPart| {
            let request = Request {
                host,
                port: 443,
                scheme: Scheme::Https,
                method: "POST",
                target: &target,
            };
            let own = network.with_own(&[&endpoint, &fixed]);
            let private = "10.0.0.5".parse().unwrap();
            let is_sent = own.request(&request).is_ok();
            (
                is_sent,
                own.dials(host, private, 443, Some(&request)).is_ok(),
            )
        };
        let nothing = Network::default();
        assert_eq!(may(&nothing, &endpoint.host), (true, true));
        let only = |network: &Network| {
            let own = network.with_own(&[&endpoint]);
            own.address("10.0.0.5".parse().unwrap(), 443, None).is_ok()
        };
        // A name leads to a private address only where a rule names that.
        assert!(!only(&nothing));
        assert_eq!(may(&nothing, &fixed.host), (true, true));
        let other = "other.example.com".parse().unwrap();
        assert!(!may(&nothing, &other).0);
        let denied = Network {
            deny: vec![rule("login.example.com:*")],
            ..Network::default()
        };
        assert!(!may(&denied, &endpoint.host).0);
        let denied = Network {
            deny: vec![rule("10.0.0.0/8:*")],
            ..Network::default()
        };
        assert!(!may(&denied, &fixed.host).1);
        assert!(
            nothing
                .request(&Request {
                    host: &endpoint.host,
                    port: 443,
                    scheme: Scheme::Https,
                    method: "POST",
                    target: &target,
                })
                .is_err()
        );
    }
}
