//! A right in the form that people write, and in a token's Datalog.

use std::fmt;
use std::str::FromStr;

use crate::calls::Calls;
use atoll_model::network::{
    CredentialName, HostName, HostPart, InvalidCredentialName, InvalidHost, Scheme, Target,
    parse_method,
};

/// A right that a token carries: `connect api.example.com:443`,
/// `request GET https://api.example.com/v1/*`, `resolve *.example.com`, `use-credential github`,
/// `publish 8080`, `call lookup customer=42`.
///
/// A right to connect to a host includes resolving its name and sending requests there; a right to
/// send requests includes the connection for them, which is inspected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// Resolve a name.
    Resolve(Hosts),
    /// Make a connection, whatever is sent through it.
    Connect {
        /// The destination hosts.
        hosts: Hosts,
        /// The destination port; any if `None`.
        port: Option<u16>,
    },
    /// Send a request.
    Request {
        /// Its method; any if `None`.
        method: Option<String>,
        /// Its scheme.
        scheme: Scheme,
        /// The destination hosts.
        hosts: Hosts,
        /// The destination port.
        port: u16,
        /// The path.
        path: Place,
    },
    /// Inject a credential; any if `None`.
    UseCredential(Option<CredentialName>),
    /// Publish a port of the sandbox; any if `None`.
    Publish(Option<u16>),
    /// Call tools.
    Call(Calls),
}

/// The hosts of a right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// `*`.
    Any,
    /// `*.example.com`: all hosts beneath a name.
    Beneath(HostName),
    /// One host.
    One(HostPart),
}

/// The path of a request, in normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// This path, with any query.
    At(String),
    /// Any path beneath this one, which ends with `/`.
    Beneath(String),
}

/// The error for a text that is no right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRight {
    /// The first word is unknown.
    #[error(
        "a right begins with call, connect, request, resolve, use-credential or publish, as in \
         'connect api.example.com:443'"
    )]
    Action,
    /// Too many words, or too few.
    #[error("it is written as '{0}'")]
    Form(&'static str),
    /// The host is invalid.
    #[error(transparent)]
    Host(#[from] InvalidHost),
    /// The port is missing or invalid.
    #[error("a port is a number from 1 to 65535, or * for all of them")]
    Port,
    /// The method is missing or invalid.
    #[error(
        "a right names one method in capitals, as GET, or * for all; say --allow again for others"
    )]
    Method,
    /// The URL has a host but no path.
    #[error("a URL has a path: {0}/* is all of it")]
    NoPath(String),
    /// The path is invalid.
    #[error(
        "a path begins with /, has no query and no * but one at its end after a /, and is read in \
         one way only, as in https://api.example.com/v1/*"
    )]
    Path,
    /// The tool or an argument is invalid.
    #[error(
        "it is written as 'call TOOL [NAME=VALUE]...': a name is one word; TOOL and VALUE have no \
         quote, backslash, space and no * but one at their end; what a * follows has no .. and no % \
         in it; no name comes twice, and 8 at most"
    )]
    Call,
    /// The credential's name is invalid.
    #[error(transparent)]
    Credential(#[from] InvalidCredentialName),
}

const CONNECT: &str = "connect HOST:PORT";
const REQUEST: &str = "request METHOD URL";
const RESOLVE: &str = "resolve HOST";
const USE_CREDENTIAL: &str = "use-credential NAME";
const PUBLISH: &str = "publish PORT";

impl FromStr for Right {
    type Err = InvalidRight;

    fn from_str(text: &str) -> Result<Self, InvalidRight> {
        let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        match words[..] {
            ["resolve", hosts] => Ok(Self::Resolve(hosts.parse()?)),
            ["connect", place] => {
                let (hosts, port) = place
                    .rsplit_once(':')
                    .filter(|(hosts, _)| is_whole(hosts))
                    .ok_or(InvalidRight::Form(CONNECT))?;
                let (hosts, port) = (hosts.parse()?, port_of(port)?);
                Ok(Self::Connect { hosts, port })
            }
            ["request", method, url] => request(method, url),
            ["use-credential", "*"] => Ok(Self::UseCredential(None)),
            ["use-credential", name] => Ok(Self::UseCredential(Some(name.parse()?))),
            ["publish", port] => Ok(Self::Publish(port_of(port)?)),
            ["call", tools, ref arguments @ ..] => {
                let calls = Calls::parse(tools, arguments).ok_or(InvalidRight::Call)?;
                Ok(Self::Call(calls))
            }
            ["call"] => Err(InvalidRight::Call),
            ["resolve", ..] => Err(InvalidRight::Form(RESOLVE)),
            ["connect", ..] => Err(InvalidRight::Form(CONNECT)),
            ["request", ..] => Err(InvalidRight::Form(REQUEST)),
            ["use-credential", ..] => Err(InvalidRight::Form(USE_CREDENTIAL)),
            ["publish", ..] => Err(InvalidRight::Form(PUBLISH)),
            [..] => Err(InvalidRight::Action),
        }
    }
}

fn request(method: &str, url: &str) -> Result<Right, InvalidRight> {
    let form = || InvalidRight::Form(REQUEST);
    let method = match method {
        "*" => None,
        method => Some(parse_method(method).map_err(|_| InvalidRight::Method)?),
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(form)?;
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return Err(form()),
    };
    let whole = || InvalidRight::NoPath(url.to_owned());
    let (place, path) = rest.split_at(rest.find('/').ok_or_else(whole)?);
    let (hosts, port) = match place.rsplit_once(':').filter(|(hosts, _)| is_whole(hosts)) {
        Some((hosts, port)) => (hosts, port_of(port)?.ok_or(InvalidRight::Port)?),
        None => (place, scheme.port()),
    };
    Ok(Right::Request {
        method,
        scheme,
        hosts: hosts.parse()?,
        port,
        path: path.parse()?,
    })
}

/// Returns whether the text before a port is a whole host, and not the beginning of an IPv6
/// address.
fn is_whole(hosts: &str) -> bool {
    !hosts.contains(':') || hosts.ends_with(']')
}

fn port_of(text: &str) -> Result<Option<u16>, InvalidRight> {
    if text == "*" {
        return Ok(None);
    }
    let is_number = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|_| is_number);
    port.map(Some).ok_or(InvalidRight::Port)
}

impl FromStr for Hosts {
    type Err = InvalidRight;

    fn from_str(text: &str) -> Result<Self, InvalidRight> {
        match text.strip_prefix("*.") {
            _ if text == "*" => Ok(Self::Any),
            Some(name) => Ok(Self::Beneath(HostName::parse(name)?)),
            None => Ok(Self::One(text.parse()?)),
        }
    }
}

impl FromStr for Place {
    type Err = InvalidRight;

    fn from_str(text: &str) -> Result<Self, InvalidRight> {
        let (path, is_beneath) = match text.strip_suffix("/*") {
            Some(path) => (format!("{path}/"), true),
            None => (text.to_owned(), false),
        };
        let target = Target::parse(&path).map_err(|_| InvalidRight::Path)?;
        if path.contains(['?', '*']) || target.unclear().is_some() {
            return Err(InvalidRight::Path);
        }
        let path = target.path().to_owned();
        Ok(match is_beneath {
            true => Self::Beneath(path),
            false => Self::At(path),
        })
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => to.write_str("*"),
            Self::Beneath(name) => write!(to, "*.{name}"),
            Self::One(host) => host.fmt(to),
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = |port: &Option<u16>| port.map_or("*".to_owned(), |port| port.to_string());
        match self {
            Self::Resolve(hosts) => write!(to, "resolve {hosts}"),
            Self::Connect { hosts, port } => write!(to, "connect {hosts}:{}", any(port)),
            Self::Request {
                method,
                scheme,
                hosts,
                port,
                path,
            } => {
                let method = method.as_deref().unwrap_or("*");
                write!(to, "request {method} {scheme}://{hosts}")?;
                if *port != scheme.port() {
                    write!(to, ":{port}")?;
                }
                match path {
                    Place::At(path) => to.write_str(path),
                    Place::Beneath(path) => write!(to, "{path}*"),
                }
            }
            Self::UseCredential(name) => {
                let name = name.as_ref().map_or("*", CredentialName::as_str);
                write!(to, "use-credential {name}")
            }
            Self::Publish(port) => write!(to, "publish {}", any(port)),
            Self::Call(calls) => calls.fmt(to),
        }
    }
}

impl Right {
    /// Returns the conditions of a question under which this right carries it: bodies of Datalog
    /// rules, of which any suffices. None of its words has a quote or a backslash in it.
    pub(crate) fn bodies(&self) -> Vec<String> {
        let resolve = |hosts: &Hosts| body("resolve", [hosts.body()]);
        match self {
            Self::Resolve(hosts) => vec![resolve(hosts)],
            Self::Connect { hosts, port } => {
                let at = |action| body(action, [hosts.body()].into_iter().chain(at_port(*port)));
                vec![resolve(hosts), at("connect"), at("request")]
            }
            Self::Request {
                method,
                scheme,
                hosts,
                port,
                path,
            } => {
                let at = [hosts.body(), format!("port({port})")];
                let into = at.clone().into_iter().chain(["look(\"into\")".to_owned()]);
                let method = method.iter().map(|method| format!("method(\"{method}\")"));
                let sent = at.into_iter().chain([format!("scheme(\"{scheme}\")")]);
                let sent = sent.chain(method).chain(path.body());
                vec![resolve(hosts), body("connect", into), body("request", sent)]
            }
            Self::UseCredential(name) => {
                let name = name
                    .iter()
                    .map(|name| format!("credential(\"{}\")", name.as_str()));
                vec![body("use-credential", name)]
            }
            Self::Publish(port) => vec![body("publish", at_port(*port))],
            Self::Call(calls) => vec![body("call", calls.conditions())],
        }
    }
}

fn body(action: &str, further: impl IntoIterator<Item = String>) -> String {
    let all = [format!("action(\"{action}\")")].into_iter().chain(further);
    all.collect::<Vec<_>>().join(", ")
}

fn at_port(port: Option<u16>) -> Option<String> {
    port.map(|port| format!("port({port})"))
}

impl Hosts {
    fn body(&self) -> String {
        match self {
            Self::Any => "host($host)".to_owned(),
            Self::Beneath(name) => format!("host($host), $host.ends_with(\".{name}\")"),
            Self::One(host) => format!("host(\"{host}\")"),
        }
    }
}

impl Place {
    /// Returns the condition; `None` where every path is allowed, even one that can be read in
    /// several ways.
    fn body(&self) -> Option<String> {
        match self {
            Self::At(path) => Some(format!("path(\"{path}\")")),
            Self::Beneath(path) if path == "/" => None,
            Self::Beneath(path) => Some(format!("path($path), $path.starts_with(\"{path}\")")),
        }
    }
}
