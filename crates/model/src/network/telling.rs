//! Explanations: the reason that something is unreachable, and the way to ask for it.

use super::http::parse_method;
use super::meant::Sense;
use super::{
    Block, Conditions, DENIED_BY, Destination, HostPart, HostPattern, Meant, NO_RULE, NetworkRule,
    PathPattern, Ports, Request, RuleLimits, Scheme, Special, THIS_HOST, UNNAMED, Unreachable, Way,
};

/// The longest path that a proposed rule names, bytes.
const PATH_SHOWN_BYTES_MAX: usize = 256;
/// The reason for refusing a request that may or may not be for a release.
const UNTOLD: &str =
    "which release it is of cannot be told from its path, and a rule is about some releases alone";
/// The reason for refusing an address that a person would have to approve by itself.
const ASKED: &str = "a person is asked about the address to which its name leads, and was not";

impl NetworkRule {
    /// Formats the rule for messages and records: its text, and the place where it is written.
    #[must_use]
    pub fn told(&self) -> String {
        format!("{self} ({})", self.origin)
    }

    /// Formats the rule in the given sense, with the place where it is written.
    pub(super) fn told_as(&self, sense: Sense) -> String {
        format!("{} ({})", self.as_one_that(sense), self.origin)
    }
}

impl Unreachable<'_> {
    /// Returns the reason, for the owner of the rules.
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::NoRule => NO_RULE.to_owned(),
            Self::Unnamed => UNNAMED.to_owned(),
            Self::Denied(rule) => format!("{}{DENIED_BY}{}", rule.denying(), rule.origin),
            Self::Special(special) if special.is_loopback() => loopback(special),
            Self::Special(Special { address, name }) => {
                let rule = Destination::of(&HostPart::address(*address), Scheme::Https.port());
                format!(
                    "its address {address} is {name}: only a rule for that very address allows \
                     it, as --allow {rule}"
                )
            }
            Self::Unclear(why) => format!("rules are about its path, and {why}"),
            Self::Untold(rule) => format!("{UNTOLD}: {}", rule.told()),
            Self::Asked(rule) => format!("{ASKED}: {}", rule.told()),
        }
    }

    /// Returns the reason for the program, without the place where a rule is written (a path of the
    /// host) and without the address that a name resolves to.
    #[must_use]
    pub fn why_inside(&self) -> String {
        match self {
            Self::Denied(rule) => format!("{} is denied", rule.denying()),
            Self::Special(special) if special.is_loopback() => loopback(special),
            Self::Special(Special { name, .. }) => {
                format!("its address is {name}: only a rule for that very address allows it")
            }
            Self::Untold(rule) => format!("{UNTOLD}: {rule}"),
            Self::Asked(rule) => format!("{ASKED}: {rule}"),
            Self::NoRule | Self::Unnamed | Self::Unclear(_) => self.why(),
        }
    }

    /// Returns advice to a program, or the agent that it is, about a refused request.
    #[must_use]
    pub fn how_to_ask(&self, request: &Request<'_>) -> String {
        match self {
            Self::Unclear(_) => {
                "write the path without such parts, if another path means the same; nobody can \
                 allow this one while rules are about paths of this host"
                    .to_owned()
            }
            Self::NoRule | Self::Unnamed => {
                let to = request.as_rule();
                format!(
                    "ask the person who started this to allow it: atoll run --allow '{to}' …, or \
                     the line allow = [\"{to}\"] under [network] of a profile"
                )
            }
            Self::Denied(_) | Self::Special(_) | Self::Untold(_) | Self::Asked(_) => {
                self.how_to_ask_for(request.host, request.port)
            }
        }
    }

    /// Returns advice about a refused connection.
    #[must_use]
    pub fn how_to_ask_for(&self, host: &HostPart, port: u16) -> String {
        let to = Destination::of(host, port);
        match self {
            Self::NoRule | Self::Unnamed => format!(
                "ask the person who started this to allow it: atoll run --allow '{to}' …, or the \
                 line allow = [\"{to}\"] under [network] of a profile"
            ),
            Self::Denied(rule) => format!(
                "do without: a rule of the person who started this, or of their organisation, \
                 denies {}, and only whoever wrote it can take it back",
                rule.denying()
            ),
            Self::Special(special) if special.is_loopback() => format!(
                "what listens on the host's own loopback is reached by the name {THIS_HOST}: ask \
                 the person who started this to allow that, as --allow {THIS_HOST}:{port}"
            ),
            Self::Special(_) => format!(
                "ask the person who started this for a rule that names the address of {host} \
                 itself, as --allow ADDRESS:{port}"
            ),
            Self::Asked(_) => {
                "name the address itself: then the person who started this is asked".to_owned()
            }
            Self::Unclear(_) | Self::Untold(_) => {
                "do without: rules are about requests to this host".to_owned()
            }
        }
    }
}

fn loopback(special: &Special) -> String {
    let name = special.name;
    format!("its address is {name}: only a rule for {THIS_HOST} and its port opens that")
}

impl Destination {
    /// Returns the destination of a connection, as a rule would allow it: for a port of the web,
    /// both.
    #[must_use]
    pub fn of(host: &HostPart, port: u16) -> Self {
        let ports = match Ports::Web.hold(port) && !host.is_this_host() {
            true => Ports::Web,
            false => Ports::Listed(vec![(port, port)]),
        };
        Self {
            host: HostPattern::of(host),
            ports,
        }
    }
}

impl Request<'_> {
    /// Returns the narrowest rule that allows this request and can be written in one line. It has
    /// nothing that a shell would interpret, because people paste it.
    #[must_use]
    pub fn as_rule(&self) -> Meant {
        let path = self.target.path();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/%:@+,=".contains(&byte);
        let is_named = self.target.unclear().is_none()
            && path.len() <= PATH_SHOWN_BYTES_MAX
            && path.bytes().all(is_plain)
            && path != "/";
        let path = is_named.then(|| PathPattern::try_from(path.to_owned()).ok());
        let method = parse_method(self.method).ok();
        let method = method.filter(|method| method == self.method);
        Meant {
            to: Destination {
                host: HostPattern::of(self.host),
                ports: Ports::Listed(vec![(self.port, self.port)]),
            },
            way: Way::Usual,
            requests: Conditions {
                scheme: Some(self.scheme),
                methods: method.into_iter().collect(),
                paths: path.flatten().into_iter().collect(),
                packages: None,
            },
            limits: RuleLimits::default(),
        }
    }
}

impl HostPattern {
    fn of(host: &HostPart) -> Self {
        match host {
            HostPart::Name(name) => Self::Exact(name.clone()),
            HostPart::Address(address) => Self::Block(Block::of(*address)),
        }
    }
}

/// Returns the beginning of a URL.
#[must_use]
pub fn place(scheme: Scheme, host: &str, port: u16) -> String {
    if port == scheme.port() {
        format!("{scheme}://{host}")
    } else {
        format!("{scheme}://{host}:{port}")
    }
}
