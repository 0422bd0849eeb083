//! What `@redact` takes out: parts of a request and of its answer, by their names.

use std::fmt;

/// Headers that say how a message is carried or what its bytes mean: without them it would be
/// another one, so nobody takes them out.
const CARRYING: [&str; 23] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "expect",
    "grpc-accept-encoding",
    "grpc-encoding",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A part that is taken out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Redaction {
    /// A header of the request, by its name in lower case.
    Header(String),
    /// A header of the answer, by its name in lower case.
    ResponseHeader(String),
}

impl Redaction {
    /// Reads `header:NAME` or `response-header:NAME`. None for what nobody here knows how to take
    /// out.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (part, name) = text.split_once(':')?;
        let name = name.to_ascii_lowercase();
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = !name.is_empty() && name.bytes().all(is_known);
        match part {
            _ if !is_name || CARRYING.contains(&name.as_str()) => None,
            "header" => Some(Self::Header(name)),
            "response-header" => Some(Self::ResponseHeader(name)),
            _ => None,
        }
    }
}

impl fmt::Display for Redaction {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(to, "header:{name}"),
            Self::ResponseHeader(name) => write!(to, "response-header:{name}"),
        }
    }
}
