//! The meaning of one rule, as one text that people write and read.

use std::fmt;
use std::str::FromStr;

use super::http::parse_method;
use super::{
    Conditions, Destination, InvalidDestination, InvalidMethod, InvalidPath, NetworkRule,
    PathPattern, Ports, RuleLimits, Scheme, Way,
};

/// The meaning of a rule, wherever it is written: a destination, or methods and a URL in one text:
/// `GET,HEAD https://example.com/v1/**`, `POST example.com:8080`. A URL without a port has that of
/// its scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meant {
    /// The destination.
    pub to: Destination,
    /// The transport.
    pub way: Way,
    /// The requests.
    pub requests: Conditions,
    /// The limits: only a table of a profile can set them.
    pub limits: RuleLimits,
}

/// The error for a text that is not a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// Its destination is invalid.
    #[error(transparent)]
    Destination(#[from] InvalidDestination),
    /// Its method is invalid.
    #[error(transparent)]
    Method(#[from] InvalidMethod),
    /// Its path is invalid.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// Its scheme is not one of requests.
    #[error("only http:// and https:// are told apart; write a host and its port for others")]
    Scheme,
    /// A path without the host that it belongs to, or after a host without a scheme.
    #[error("a path stands in a URL: https://example.com/path")]
    NoUrl,
    /// A URL that ends with the `/` after its host.
    #[error(
        "this '/' alone is one page of the host: leave it out for all of them, or name which, as \
         https://example.com/v1/**"
    )]
    OnePage,
}

impl From<Destination> for Meant {
    fn from(to: Destination) -> Self {
        Self {
            to,
            way: Way::Usual,
            requests: Conditions::default(),
            limits: RuleLimits::default(),
        }
    }
}

impl From<&NetworkRule> for Meant {
    fn from(rule: &NetworkRule) -> Self {
        Self {
            to: rule.to.clone(),
            way: rule.way,
            requests: rule.requests.clone(),
            limits: rule.limits.clone(),
        }
    }
}

impl Meant {
    /// Returns the text that parses as this, if there is one.
    #[must_use]
    pub fn as_text(&self) -> Option<String> {
        let text = self.to_string();
        (text.parse().as_ref() == Ok(self)).then_some(text)
    }
}

impl FromStr for Meant {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let (methods, rest) = match text.split_once(' ') {
            Some((methods, rest)) => (methods.split(',').map(parse_method).collect(), rest),
            None => (Ok(Vec::new()), text),
        };
        let mut meant = match rest.split_once("://") {
            Some((scheme, rest)) => read_url(scheme, rest)?,
            None => match rest.parse::<Destination>() {
                Ok(to) => Self::from(to),
                // What begins with a name and goes on with a path is no block of addresses.
                Err(_) if is_name_with_path(rest) => return Err(InvalidRule::NoUrl),
                Err(error) => return Err(error.into()),
            },
        };
        meant.requests.methods = methods?;
        Ok(meant)
    }
}

fn is_name_with_path(text: &str) -> bool {
    let (host, path) = text.split_once('/').unwrap_or((text, ""));
    let is_name = host.parse::<Destination>().is_ok() || host.is_empty();
    is_name && !path.bytes().all(|byte| byte.is_ascii_digit())
}

fn read_url(scheme: &str, rest: &str) -> Result<Meant, InvalidRule> {
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return Err(InvalidRule::Scheme),
    };
    let (host, path) = match rest.find(['/', '?']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let mut to: Destination = host.parse()?;
    if to.ports == Ports::Web {
        to.ports = Ports::of(scheme);
    }
    let paths = match path {
        "" => Vec::new(),
        "/" => return Err(InvalidRule::OnePage),
        path => vec![PathPattern::try_from(path.to_owned())?],
    };
    let requests = Conditions {
        scheme: Some(scheme),
        methods: Vec::new(),
        paths,
        packages: None,
    };
    Ok(Meant {
        to,
        way: Way::Usual,
        requests,
        limits: RuleLimits::default(),
    })
}

impl Ports {
    /// Returns the default port of a scheme.
    #[must_use]
    pub fn of(scheme: Scheme) -> Self {
        let port = scheme.port();
        Self::Listed(vec![(port, port)])
    }
}

impl fmt::Display for Meant {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(Sense::Allows, (&self.to, self.way, &self.requests), to)?;
        write_limits(&self.limits, to)
    }
}

impl NetworkRule {
    /// Returns a port of this rule at which connections are not inspected, by this rule alone.
    #[must_use]
    pub fn unseen_port(&self) -> Option<u16> {
        let ports = match &self.to.ports {
            Ports::All => vec![1],
            Ports::Web => vec![80, 443],
            // Of two neighbours one is no port of the web.
            Ports::Listed(ranges) => ranges
                .iter()
                .flat_map(|(first, last)| [*first, *last.min(&first.saturating_add(1))])
                .collect(),
        };
        ports.into_iter().find(|port| !self.is_inspected(*port))
    }
}

impl fmt::Display for NetworkRule {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(Sense::Allows, (&self.to, self.way, &self.requests), to)?;
        write_limits(&self.limits, to)
    }
}

/// The sense of a rule: one about releases, used as a denial, denies all but those that it
/// describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// Allows what it describes.
    Allows,
    /// Denies what it describes; of releases, what it does not describe.
    Denies,
}

/// A rule, formatted as a denial.
#[derive(Clone, Copy, Debug)]
pub struct Denying<'a> {
    to: &'a Destination,
    way: Way,
    requests: &'a Conditions,
}

impl fmt::Display for Denying<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(Sense::Denies, (self.to, self.way, self.requests), to)
    }
}

impl Meant {
    /// Returns the rule, formatted as a denial.
    #[must_use]
    pub fn denying(&self) -> Denying<'_> {
        Denying {
            to: &self.to,
            way: self.way,
            requests: &self.requests,
        }
    }
}

impl NetworkRule {
    /// Returns the rule, formatted as a denial.
    #[must_use]
    pub fn denying(&self) -> Denying<'_> {
        Denying {
            to: &self.to,
            way: self.way,
            requests: &self.requests,
        }
    }

    /// Formats the rule in the given sense.
    pub(super) fn as_one_that(&self, sense: Sense) -> String {
        match sense {
            Sense::Allows => self.to_string(),
            Sense::Denies => self.denying().to_string(),
        }
    }
}

fn write_limits(limits: &RuleLimits, to: &mut fmt::Formatter<'_>) -> fmt::Result {
    match limits.is_empty() {
        true => Ok(()),
        false => write!(to, " with {}", limits.written().join(", ")),
    }
}

fn write(
    sense: Sense,
    (destination, way, requests): (&Destination, Way, &Conditions),
    to: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    if !requests.methods.is_empty() {
        write!(to, "{} ", requests.methods.join(","))?;
    }
    match requests.scheme {
        Some(scheme) => {
            write!(to, "{scheme}://")?;
            match destination.ports == Ports::of(scheme) {
                true => write!(to, "{}", destination.host)?,
                false => write!(to, "{destination}")?,
            }
        }
        None => write!(to, "{destination}")?,
    }
    for (index, path) in requests.paths.iter().enumerate() {
        to.write_str(if index == 0 { "" } else { " or " })?;
        to.write_str(path.as_str())?;
    }
    if let Some(packages) = &requests.packages {
        packages.write(sense, to)?;
    }
    match way {
        Way::Usual => Ok(()),
        Way::Inspect => to.write_str(" as requests"),
        Way::Tunnel => to.write_str(" as a tunnel"),
    }
}
