//! Redactions: the parts of a request or response that `@redact` removes, by name.

use std::fmt;

/// Headers that frame a message or define the meaning of its bytes. They cannot be redacted, since
/// without them it would be another message.
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

/// A part to remove.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Redaction {
    /// A request header, its name in lower case.
    Header(String),
    /// A response header, its name in lower case.
    ResponseHeader(String),
}

impl Redaction {
    /// Parses `header:NAME` or `response-header:NAME`. Returns `None` for anything that cannot be
    /// redacted.
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
