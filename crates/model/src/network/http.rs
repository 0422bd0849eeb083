//! Conditions of rules on requests, and the request that they judge.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::pattern::Reading;
use super::{HostPart, Packages, PathPattern, Target};

/// The scheme of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// Returns the default port.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

/// The transport of what a rule allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Connections are inspected as requests at the ports of the web, 80 and 443, and where the
    /// rule has conditions on requests; other connections are tunnelled.
    #[default]
    Usual,
    /// Every connection is inspected as requests.
    Inspect,
    /// Every connection is tunnelled.
    Tunnel,
}

impl Way {
    /// Returns whether it is the default.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::Usual
    }
}

/// The conditions on a request for a rule to apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// The scheme; `None` for either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    /// The methods; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// The paths; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathPattern>,
    /// The packages; `None` for any request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<Packages>,
}

impl Conditions {
    /// Returns whether every request meets them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scheme.is_none()
            && self.methods.is_empty()
            && self.paths.is_empty()
            && self.packages.is_none()
    }

    /// Returns whether a request meets them exactly: required for an allowance.
    pub(super) fn hold(&self, request: &Request<'_>) -> bool {
        let is_method = |one: &String| one == request.method;
        self.hold_as(request, Reading::Letter, is_method)
    }

    /// Returns whether some server may take a request for one that meets them: sufficient for a
    /// denial.
    pub(super) fn may_hold(&self, request: &Request<'_>) -> bool {
        let is_method = |one: &String| one.eq_ignore_ascii_case(request.method);
        self.hold_as(request, Reading::Liberal, is_method)
    }

    fn hold_as(
        &self,
        request: &Request<'_>,
        reading: Reading,
        is_method: impl Fn(&String) -> bool,
    ) -> bool {
        let is_path = |one: &PathPattern| one.holds(request.target, reading);
        self.scheme.is_none_or(|scheme| scheme == request.scheme)
            && (self.methods.is_empty() || self.methods.iter().any(is_method))
            && (self.paths.is_empty() || self.paths.iter().any(is_path))
            && self
                .packages
                .as_ref()
                .is_none_or(|packages| packages.hold(request, reading))
    }
}

/// The known methods, with those of WebDAV that programs use.
pub const METHODS: [&str; 16] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "QUERY",
    "CONNECT",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "REPORT",
];

/// The longest name of a method, bytes.
const METHOD_BYTES_MAX: usize = 64;

/// The error for a text that is not a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a method is a word in capitals, as GET; several are written with commas, as GET,HEAD")]
pub struct InvalidMethod;

/// Reads a method of a rule (RFC 9110, section 9): a known one in any case, returned as sent, or
/// another word of capitals. HTTP allows more; other texts, as a host's name, are mistakes.
///
/// # Errors
/// [`InvalidMethod`].
pub fn parse_method(text: &str) -> Result<String, InvalidMethod> {
    if let Some(known) = METHODS.iter().find(|one| one.eq_ignore_ascii_case(text)) {
        return Ok((*known).to_owned());
    }
    let is_capital =
        |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    let is_word = (1..=METHOD_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_capital);
    is_word.then(|| text.to_owned()).ok_or(InvalidMethod)
}

/// A request, for a decision on it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The host as the program named it.
    pub host: &'a HostPart,
    /// The port of the connection.
    pub port: u16,
    /// The scheme.
    pub scheme: Scheme,
    /// The method.
    pub method: &'a str,
    /// The target.
    pub target: &'a Target,
}
