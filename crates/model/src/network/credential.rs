//! Bindings of credentials: the requests that one is injected into, and the place in them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Block, Conditions, Destination, HostPart, HostPattern, Look, Network, Ports, Request};

/// The most credentials of one boundary.
pub const CREDENTIALS_MAX: usize = 16;

/// The longest value of a credential, bytes.
pub const CREDENTIAL_BYTES_MAX: usize = 8 * 1024;

/// The marker for the credential in a [`Place::Header`]'s form.
pub const HOLE: &str = "{}";

/// The name of a credential: letters, digits, `-` and `_`, at most 64.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CredentialName(String);

/// The error for a text that is not a credential's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a credential's name is made of letters, digits, `-` and `_`, at most 64")]
pub struct InvalidCredentialName;

impl CredentialName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CredentialName {
    type Err = InvalidCredentialName;

    fn from_str(text: &str) -> Result<Self, InvalidCredentialName> {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_name = (1..=64).contains(&text.len()) && text.bytes().all(is_of_name);
        is_name
            .then(|| Self(text.to_owned()))
            .ok_or(InvalidCredentialName)
    }
}

impl TryFrom<String> for CredentialName {
    type Error = InvalidCredentialName;

    fn try_from(text: String) -> Result<Self, InvalidCredentialName> {
        text.parse()
    }
}

impl From<CredentialName> for String {
    fn from(name: CredentialName) -> Self {
        name.0
    }
}

impl fmt::Display for CredentialName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// The place of a credential in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Place {
    /// The value of a header.
    Header {
        /// The header's name, in lower case.
        name: String,
        /// The header's value, with [`HOLE`] for the credential; without a form, the credential is
        /// one word of the value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        form: Option<String>,
    },
    /// The password of HTTP's basic authentication (RFC 7617), for this user; `*` for any.
    Basic(String),
    /// The value of a parameter of the query.
    Query(String),
    /// The value of a field of the body: of a form (`application/x-www-form-urlencoded`), or a
    /// string member of a JSON object.
    Body(String),
    /// The refresh token of a login, in this field of a body. It is never injected: the sandbox
    /// would see the answer.
    Refresh(String),
    /// The key of an AWS signature: the request is signed again with the real key.
    #[serde(rename = "sigv4")]
    SigV4(SignatureScope),
    /// The password with which Atoll itself signs in to PostgreSQL, on the program's behalf.
    Postgres(PostgresAccess),
}

/// The user and databases for which Atoll signs in to PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresAccess {
    /// The user.
    pub user: String,
    /// The databases.
    pub databases: Vec<String>,
    /// The use of TLS with the server.
    #[serde(default, skip_serializing_if = "ServerTls::is_required")]
    pub tls: ServerTls,
}

/// The use of TLS with a database server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerTls {
    /// TLS is required, with a certificate for the server's name.
    #[default]
    Required,
    /// No TLS: only with a server at a private address ([`is_private`](super::is_private)).
    None,
}

impl ServerTls {
    /// Returns whether TLS is required.
    #[must_use]
    pub fn is_required(&self) -> bool {
        *self == Self::Required
    }
}

impl PostgresAccess {
    /// The longest name of a user or database, bytes: `NAMEDATALEN` of PostgreSQL without the
    /// byte that ends it.
    pub const NAME_BYTES_MAX: usize = 63;

    /// Returns whether a text can be the name of a user or a database.
    #[must_use]
    pub fn is_name(text: &str) -> bool {
        (1..=Self::NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
    }

    /// Returns whether it covers that user and database.
    #[must_use]
    pub fn holds(&self, user: &str, database: &str) -> bool {
        self.user == user && self.databases.iter().any(|one| one == database)
    }
}

/// The regions and services that an AWS Signature Version 4 is valid for: both are in the key that
/// makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignatureScope {
    /// Regions, as `eu-west-1`.
    pub regions: Vec<String>,
    /// Services by their names in signatures, as `s3`.
    pub services: Vec<String>,
}

impl SignatureScope {
    /// The longest name of a region or a service, bytes.
    pub const NAME_BYTES_MAX: usize = 64;

    /// Returns whether a text can be the name of a region or a service.
    #[must_use]
    pub fn is_name(text: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=Self::NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
    }
}

/// The part of a credential that a value is: most credentials have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The only part.
    #[default]
    Whole,
    /// Of an AWS key: its id, which is sent.
    KeyId,
    /// Of an AWS key: the secret, which signs and is never sent.
    Secret,
    /// Of a temporary AWS key: its session token, which is sent.
    Token,
}

impl Part {
    /// Returns whether it is the only part.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        *self == Self::Whole
    }
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header { name, form: None } => write!(to, "the header {name}"),
            Self::Header {
                name,
                form: Some(form),
            } => write!(to, "the header {name} as {form:?}"),
            Self::Basic(user) if user == "*" => {
                to.write_str("the password of basic authentication")
            }
            Self::Basic(user) => {
                write!(to, "the password of basic authentication for user {user}")
            }
            Self::Query(key) => write!(to, "the parameter {key} of the query"),
            Self::Body(field) => write!(to, "the field {field} of a body (form or JSON)"),
            Self::Refresh(field) => write!(to, "the field {field} of a body that renews a login"),
            Self::SigV4(scope) => write!(
                to,
                "AWS signatures for {} in {}",
                scope.services.join(", "),
                scope.regions.join(", ")
            ),
            Self::Postgres(access) => write!(
                to,
                "a login to PostgreSQL as {}, database {}{}",
                access.user,
                access.databases.join(", "),
                match access.tls {
                    ServerTls::Required => "",
                    ServerTls::None => ", without TLS",
                }
            ),
        }
    }
}

/// The treatment of another credential's placeholder in the body of a request that a credential is
/// injected into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Others {
    /// The request is refused.
    #[default]
    Refused,
    /// The placeholder is replaced by another text of its length.
    Masked,
}

impl Others {
    /// Returns whether the request is refused.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        *self == Self::Refused
    }
}

/// The binding of a credential: it is injected into no other request, and at no other place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// The credential.
    pub name: CredentialName,
    /// The destinations.
    pub to: Vec<Destination>,
    /// The requests.
    #[serde(default, skip_serializing_if = "Conditions::is_empty")]
    pub requests: Conditions,
    /// The place in them.
    pub place: Place,
    /// The treatment of other credentials' placeholders in their bodies.
    #[serde(default, skip_serializing_if = "Others::is_refused")]
    pub others: Others,
}

impl Binding {
    /// Returns whether the credential may be injected into a request. A path that can be read in
    /// more than one way never qualifies if the binding names paths; nor does a request to this
    /// host's own loopback, since a program can listen there in a service's place.
    #[must_use]
    pub fn holds(&self, request: &Request<'_>) -> bool {
        let leads = |to: &Destination| to.leads_to(request.host, request.port);
        let is_clear = self.requests.paths.is_empty() || request.target.unclear().is_none();
        let is_here = matches!(request.host, HostPart::Name(name) if name.is_this_host());
        is_clear && !is_here && self.to.iter().any(leads) && self.requests.hold(request)
    }

    /// Returns the PostgreSQL login at a host and port. This host's own loopback never has one, as
    /// above.
    #[must_use]
    pub fn postgres_at(&self, host: &HostPart, port: u16) -> Option<&PostgresAccess> {
        let is_here = matches!(host, HostPart::Name(name) if name.is_this_host());
        match &self.place {
            Place::Postgres(access) if !is_here && self.is_for(host, port) => Some(access),
            Place::Postgres(_)
            | Place::Header { .. }
            | Place::Basic(_)
            | Place::Query(_)
            | Place::Body(_)
            | Place::Refresh(_)
            | Place::SigV4(_) => None,
        }
    }

    /// Returns whether the credential may be injected into some request to a host.
    #[must_use]
    pub fn is_for(&self, host: &HostPart, port: u16) -> bool {
        self.to.iter().any(|to| to.leads_to(host, port))
    }

    /// Returns, in words, the first difference that makes a request fail [`Self::holds`].
    #[must_use]
    pub fn differs(&self, request: &Request<'_>) -> &'static str {
        let requests = &self.requests;
        let is_method = |one: &String| one == request.method;
        if !self.to.iter().any(|to| to.is_for(request.host)) {
            "to another host than it is for"
        } else if !self.is_for(request.host, request.port) {
            "to another port than it is for"
        } else if requests.scheme.is_some_and(|own| own != request.scheme) {
            "by another scheme than it is for"
        } else if !requests.methods.is_empty() && !requests.methods.iter().any(is_method) {
            "by another method than it is for"
        } else if !requests.paths.is_empty() {
            "for another path than it is for"
        } else {
            "to a host that it is never put in for"
        }
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = &self.requests;
        let list = |words: &mut dyn Iterator<Item = String>| words.collect::<Vec<_>>().join(", ");
        if !requests.methods.is_empty() {
            write!(out, "{} ", requests.methods.join(","))?;
        }
        if let Some(scheme) = requests.scheme {
            write!(out, "{scheme} ")?;
        }
        write!(
            out,
            "{}",
            list(&mut self.to.iter().map(ToString::to_string))
        )?;
        if !requests.paths.is_empty() {
            let paths = requests.paths.iter().map(|path| path.as_str().to_owned());
            write!(out, " {}", list(&mut { paths }))?;
        }
        write!(out, ", in {}", self.place)
    }
}

/// The stand-in for a credential in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placeholder {
    /// The credential.
    pub name: CredentialName,
    /// The part of the credential.
    #[serde(default, skip_serializing_if = "Part::is_whole")]
    pub part: Part,
    /// The placeholder's text.
    pub text: String,
}

/// The reach of requests that a credential is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// They are inspected, so that it can be injected.
    Seen,
    /// A rule tunnels them: it cannot be injected.
    Unseen,
    /// No rule allows them.
    Unreached,
}

impl Network {
    /// Returns the reach of requests to a destination that a credential is bound to.
    #[must_use]
    pub fn reach_of(&self, to: &Destination) -> Reach {
        let Some((host, port)) = example(to) else {
            // Many hosts: some rule may be about one of them.
            return Reach::Seen;
        };
        match self.connection(&host, port) {
            Ok((_, Look::Into)) => Reach::Seen,
            Ok((_, Look::Past)) => Reach::Unseen,
            Err(_) => Reach::Unreached,
        }
    }
}

/// Returns a host and port of a destination, if it is for one host.
fn example(to: &Destination) -> Option<(HostPart, u16)> {
    let host = match &to.host {
        HostPattern::Exact(name) => HostPart::Name(name.clone()),
        HostPattern::Block(block) => {
            let first = block.first();
            (*block == Block::of(first)).then(|| HostPart::address(first))?
        }
        HostPattern::Any | HostPattern::Beneath(_) => return None,
    };
    let port = match &to.ports {
        Ports::Web | Ports::All => 443,
        Ports::Listed(ranges) => ranges.first()?.0,
    };
    Some((host, port))
}
