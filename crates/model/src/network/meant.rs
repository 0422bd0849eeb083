//! One rule's meaning in one text, as people write and read it.

use std::fmt;
use std::str::FromStr;

use super::http::parse_method;
use super::{
    Conditions, Destination, InvalidDestination, InvalidMethod, InvalidPath, NetworkRule,
    PathPattern, Ports, RuleLimits, Scheme, Way,
};

/// What a rule means, wherever it is written: a destination, or in one text with methods
/// and a URL: `GET,HEAD https://example.com/v1/**`, `POST example.com:8080`. In a URL
/// without a port that of its scheme is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meant {
    /// Where to.
    pub to: Destination,
    /// How it is carried.
    pub way: Way,
    /// Which requests.
    pub requests: Conditions,
    /// How much of it: said by a table of a profile alone.
    pub limits: RuleLimits,
}

/// Why a text is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// Where it leads is nowhere.
    #[error(transparent)]
    Destination(#[from] InvalidDestination),
    /// Its method is none.
    #[error(transparent)]
    Method(#[from] InvalidMethod),
    /// Its path is none.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// It is sent in another way than requests are.
    #[error("only http:// and https:// are told apart; write a host and its port for others")]
    Scheme,
    /// A path without a host that it is of, or after one without a scheme.
    #[error("a path stands in a URL: https://example.com/path")]
    NoUrl,
    /// A URL that ends after its host.
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
    /// The text that is read as this, if there is one.
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
    /// The one that a scheme is at where none is named.
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
    /// A port of this rule at which nobody looks into what is carried, by this rule alone.
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

/// What a rule that stands among denials does: one about releases denies all but those that
/// it describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// What is described can be reached.
    Allows,
    /// It cannot; of releases what is not described.
    Denies,
}

/// A rule as it is told where it denies.
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
    /// As it is told where it denies.
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
    /// As it is told where it denies.
    #[must_use]
    pub fn denying(&self) -> Denying<'_> {
        Denying {
            to: &self.to,
            way: self.way,
            requests: &self.requests,
        }
    }

    /// As it is told where it does one or the other.
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
