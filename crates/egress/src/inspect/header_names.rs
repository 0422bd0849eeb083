//! Headers that servers may read as other ones.
//!
//! Many servers hand headers on by names in which `-` and `_` are alike (CGI, RFC 3875, 4.1.18),
//! and some turn every other character into `_` too; frameworks behind them look for `HTTP_…`.

use std::borrow::Cow;

use hyper::header::{HeaderMap, HeaderName, HeaderValue, TRAILER};

use super::head::{is_hop, tokens};
use crate::redaction::folded;
use crate::refusals::shown;

/// The most bytes repeated of text that a program wrote.
const SHOWN_BYTES_MAX: usize = 256;

/// Headers that frame a request or name its host, besides the hop-by-hop ones.
const FRAMING: [HeaderName; 4] = [
    hyper::header::CONTENT_LENGTH,
    hyper::header::EXPECT,
    hyper::header::HOST,
    TRAILER,
];

/// Headers that make some servers see another method, as [`folded`].
const OTHER_METHOD: [&str; 8] = [
    "method",
    "method-override",
    "x-forwarded-method",
    "x-http-method",
    "x-http-method-override",
    "x-method",
    "x-method-override",
    "x-original-method",
];

/// Headers that make some servers see another path, as [`folded`].
const OTHER_PATH: [&str; 10] = [
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-forwarded-uri",
    "x-forwarded-url",
    "x-original-path",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-uri",
    "x-rewrite-url",
    "x-script-name",
];

/// Returns whether a header names another method than its request has.
pub(crate) fn name_method(headers: &HeaderMap) -> bool {
    names(headers).any(|name| is_among(&name, &OTHER_METHOD))
}

/// Returns whether a header names another path than its request has.
pub(crate) fn name_path(headers: &HeaderMap) -> bool {
    names(headers).any(|name| is_among(&name, &OTHER_PATH))
}

fn is_among(name: &str, all: &[&str]) -> bool {
    let read = folded(name);
    all.contains(&read.strip_prefix("http-").unwrap_or(&read))
}

/// Returns the names of headers, and of the trailers that they announce, in lower case.
fn names(headers: &HeaderMap) -> impl Iterator<Item = Cow<'_, str>> {
    let announced = tokens(headers, &TRAILER)
        .map(|name| Cow::Owned(String::from_utf8_lossy(name).to_ascii_lowercase()));
    let own = headers.keys().map(|name| Cow::Borrowed(name.as_str()));
    own.chain(announced)
}

/// Returns why headers or trailers of a request can be read in more than one way, if they can.
pub(crate) fn doubt(headers: &HeaderMap) -> Option<String> {
    names(headers)
        .find_map(|name| other_name(&name))
        .or_else(|| headers.keys().find_map(no_name))
}

fn other_name(name: &str) -> Option<String> {
    let read = folded(name);
    (read != name && is_framing(&read)).then(|| {
        let name = shown(name, SHOWN_BYTES_MAX);
        format!("some servers read its header {name:?} as {read:?}: leave it out, or send {read:?}")
    })
}

/// Returns why a name from HTTP/2 is none of a header; by HTTP/1.1 it cannot come.
fn no_name(name: &HeaderName) -> Option<String> {
    let shown = shown(name.as_str(), SHOWN_BYTES_MAX);
    name.as_str()
        .contains('"')
        .then(|| format!("{shown:?} is no name of a header"))
}

/// Takes spaces from both ends of values: HTTP/2 forbids them (RFC 9113, 8.2.1), programs send
/// them (`Bearer ` with an empty token), and by HTTP/1.1 they are no part of a value
/// (RFC 9110, 5.5).
pub(crate) fn trim(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        let inner = value.as_bytes().trim_ascii();
        if inner.len() == value.len() {
            continue;
        }
        let Ok(mut trimmed) = HeaderValue::from_bytes(inner) else {
            continue;
        };
        trimmed.set_sensitive(value.is_sensitive());
        *value = trimmed;
    }
}

fn is_framing(name: &str) -> bool {
    is_hop(name) || FRAMING.iter().any(|one| one == name)
}

/// Removes framing fields, which no trailer can be (RFC 9110, 6.5.1).
pub(crate) fn unframe(trailers: &mut HeaderMap) {
    let framing: Vec<HeaderName> = trailers
        .keys()
        .filter(|name| is_framing(name.as_str()))
        .cloned()
        .collect();
    for name in framing {
        trailers.remove(name);
    }
    trim(trailers);
}
