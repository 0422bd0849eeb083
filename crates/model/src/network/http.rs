//! What a rule can say of requests, and what a request is as it is judged.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::pattern::Reading;
use super::{HostPart, Packages, PathPattern, Target};

/// How requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// As they are.
    Http,
    /// Within TLS.
    Https,
}

impl Scheme {
    /// The port that is meant without one.
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

/// How what a rule allows is carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Requests are looked into at the ports of the web, 80 and 443, and where the rule
    /// says something of them; other bytes are carried as they are.
    #[default]
    Usual,
    /// Every connection holds requests that are looked into.
    Inspect,
    /// Bytes are carried as they are.
    Tunnel,
}

impl Way {
    /// Whether nothing is said of it.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::Usual
    }
}

/// What a request has to be for a rule to be meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// How it is sent; either without this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    /// Its method is one of these; any without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Its path is one of these; any without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathPattern>,
    /// It is for one of these packages; any without this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<Packages>,
}

impl Conditions {
    /// Whether every request is meant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scheme.is_none()
            && self.methods.is_empty()
            && self.paths.is_empty()
            && self.packages.is_none()
    }

    /// Whether a request is meant, to the letter: what an allowance needs.
    pub(super) fn hold(&self, request: &Request<'_>) -> bool {
        let is_method = |one: &String| one == request.method;
        self.hold_as(request, Reading::Letter, is_method)
    }

    /// Whether some server may take a request for one that is meant: enough for a denial.
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

/// The methods whose names are known, with those of WebDAV that programs use.
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

/// Why something is no method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a method is a word in capitals, as GET; several are written with commas, as GET,HEAD")]
pub struct InvalidMethod;

/// Reads a method of a rule (RFC 9110, section 9): a known one in any case, in the form in
/// which it is sent, or another word of capitals. That is less than a method can be; what
/// else people write, as a host's name, is a mistake.
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

/// A request as it is judged.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The host as the program named it.
    pub host: &'a HostPart,
    /// The port that was connected to.
    pub port: u16,
    /// How it is sent.
    pub scheme: Scheme,
    /// Its method.
    pub method: &'a str,
    /// Its target.
    pub target: &'a Target,
}
