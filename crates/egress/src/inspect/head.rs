//! Request heads: the target, and the check that they can be read in one way only.

use atoll_cedar::Follows;
use atoll_model::network::{HostPart, Scheme, Target};
use bytes::Bytes;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::http::uri::{self, PathAndQuery};
use hyper::{Method, StatusCode, Uri, Version};

use super::limits::PATH_BYTES_MAX;
use super::{Origin, header_names};
use crate::Egress;
use crate::policies::{PolicySnapshot, RequestFacts};
use crate::refusals::shown;

/// The longest method, bytes: it is recorded whole.
const METHOD_BYTES_MAX: usize = 64;
/// The reason for refusing a request with a header that names another method or path.
const TWO_METHODS: &str = "rules are about its method, and a header of it names another one";
const TWO_PATHS: &str = "rules are about its path, and a header of it names another one";
/// The most bytes repeated of text that a program wrote.
const SHOWN_BYTES_MAX: usize = 256;

/// The facts of a request's head, besides its parts.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) target: Target,
    /// Set if it asks to upgrade to WebSocket.
    pub(crate) is_web_socket: bool,
    /// The confidence that the agent states, percent.
    pub(crate) confidence: Option<u8>,
}

impl Head {
    /// Returns the facts that policies see: the confidence, and whether anything follows the head.
    pub(crate) fn sent(&self, has_body: bool) -> RequestFacts {
        let follows = match (self.is_web_socket, has_body) {
            (true, _) => Follows::Messages,
            (false, true) => Follows::Body,
            (false, false) => Follows::Nothing,
        };
        RequestFacts {
            follows,
            confidence: self.confidence,
        }
    }
}

/// The reason why a request is refused before it is judged.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    pub(crate) why: String,
}

fn fault(status: StatusCode, why: impl Into<String>) -> Fault {
    let why = why.into();
    Fault { status, why }
}

/// The header with the agent's confidence: for the policies here, and not forwarded.
const CONFIDENCE: HeaderName = HeaderName::from_static("atoll-confidence");

/// Hop-by-hop headers, besides those that `Connection` names (RFC 9110, 7.6.1), and headers that
/// upgrade the protocol.
const OF_ONE_CONNECTION: [HeaderName; 10] = [
    CONFIDENCE,
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("proxy-connection"),
];

/// Returns whether a header of this name is hop-by-hop.
pub(crate) fn is_hop(name: &str) -> bool {
    OF_ONE_CONNECTION.iter().any(|one| one == name)
}

/// Reads the head of a request to a host, on which these policies decide.
pub(crate) fn read(
    egress: &Egress,
    now: &PolicySnapshot<'_>,
    origin: &Origin,
    parts: &Parts,
) -> Result<Head, Fault> {
    if parts.method.as_str().len() > METHOD_BYTES_MAX {
        let why = format!("its method is longer than {METHOD_BYTES_MAX} bytes");
        return Err(fault(StatusCode::NOT_IMPLEMENTED, why));
    }
    if parts.method == Method::CONNECT {
        let why = "a connection through the host that was asked for is not carried";
        return Err(fault(StatusCode::FORBIDDEN, why));
    }
    if parts.method == Method::TRACE {
        let why = "TRACE shows what was sent, and is not sent on";
        return Err(fault(StatusCode::FORBIDDEN, why));
    }
    if let Some(why) = overridden(egress, now, origin, &parts.headers) {
        return Err(fault(StatusCode::FORBIDDEN, why));
    }
    if let Some(why) = header_names::doubt(&parts.headers) {
        return Err(fault(StatusCode::BAD_REQUEST, why));
    }
    check_framing(parts)?;
    check_host(origin, parts)?;
    let written = parts.uri.path_and_query().map_or("/", |both| both.as_str());
    let target = Target::parse(written)
        .map_err(|error| fault(StatusCode::BAD_REQUEST, error.to_string()))?;
    if target.path().len() > PATH_BYTES_MAX {
        let why = format!("its path is longer than {PATH_BYTES_MAX} bytes");
        return Err(fault(StatusCode::URI_TOO_LONG, why));
    }
    let is_web_socket = is_web_socket(parts)?;
    Ok(Head {
        target,
        is_web_socket,
        confidence: confidence(&parts.headers)?,
    })
}

/// Reads the agent's confidence: one whole number, percent.
fn confidence(headers: &HeaderMap) -> Result<Option<u8>, Fault> {
    let mut stated = headers.get_all(&CONFIDENCE).iter();
    let read = match (stated.next(), stated.next()) {
        (None, _) => return Ok(None),
        (Some(one), None) => one.to_str().ok().and_then(percent),
        (Some(_), Some(_)) => None,
    };
    let why =
        "Atoll-Confidence is one whole number from 0 to 100, and states how sure the agent is";
    read.map(Some)
        .ok_or_else(|| fault(StatusCode::BAD_REQUEST, why))
}

fn percent(text: &str) -> Option<u8> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_plain);
    number.filter(|number| *number <= 100)
}

/// Returns whether a request asks for no change (RFC 9110, 9.2.1).
pub(crate) fn is_safe(parts: &Parts) -> bool {
    matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS)
        && !header_names::name_method(&parts.headers)
}

/// Returns why headers or trailers of a request make its method or path unclear, where rules or
/// policies can be about that.
pub(crate) fn overridden(
    egress: &Egress,
    now: &PolicySnapshot<'_>,
    origin: &Origin,
    headers: &HeaderMap,
) -> Option<&'static str> {
    let (network, of_policies) = (egress.network(), now.are_about_requests());
    let is_about_methods = || network.is_about_methods(&origin.host, origin.port);
    let is_about_paths = || network.is_about_paths(&origin.host, origin.port);
    if header_names::name_method(headers) && (of_policies || is_about_methods()) {
        Some(TWO_METHODS)
    } else if header_names::name_path(headers) && (of_policies || is_about_paths()) {
        Some(TWO_PATHS)
    } else {
        None
    }
}

/// Returns the body's length, if it is given once and as a number.
fn length(headers: &HeaderMap) -> Option<u64> {
    let mut all = headers.get_all(CONTENT_LENGTH).iter();
    let (one, None) = (all.next()?, all.next()) else {
        return None;
    };
    let text = one.to_str().ok()?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// Writes the length of a body as the number that was read, never as the text that came: servers
/// read some texts as others, `010` as 8.
pub(crate) fn write_length(headers: &mut HeaderMap) {
    match length(headers) {
        Some(length) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(length))),
        None => drop(headers.remove(CONTENT_LENGTH)),
    }
    header_names::trim(headers);
}

/// Checks that the body is framed once, by a length or by chunks.
fn check_framing(parts: &Parts) -> Result<(), Fault> {
    let headers = &parts.headers;
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let (coding, length) = (codings.next(), lengths.next());
    let is_chunked = |coding: &HeaderValue| {
        coding
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked")
    };
    let why = if codings.next().is_some() || lengths.next().is_some() {
        "the length of its body is said more than once"
    } else if coding.is_some() && length.is_some() {
        "the length of its body is said in two ways"
    } else if coding.is_some_and(|coding| !is_chunked(coding)) {
        "its body is encoded for the connection in a way that is not carried"
    } else if length.is_some() && self::length(headers).is_none() {
        "the length of its body is no number"
    } else {
        return Ok(());
    };
    Err(fault(StatusCode::BAD_REQUEST, why))
}

/// Checks that the request names the host that was connected to.
fn check_host(origin: &Origin, parts: &Parts) -> Result<(), Fault> {
    let another = |named: &str| {
        let why = format!(
            "the request is for another host than {}: {:?}",
            origin.authority.as_str(),
            shown(named, SHOWN_BYTES_MAX)
        );
        fault(StatusCode::MISDIRECTED_REQUEST, why)
    };
    if let Some(authority) = parts.uri.authority()
        && !origin.is(authority.as_str())
    {
        return Err(another(authority.as_str()));
    }
    if let Some(scheme) = parts.uri.scheme_str()
        && scheme != origin.scheme_text()
    {
        let why = format!("it is said to be sent by {scheme}, and is not");
        return Err(fault(StatusCode::MISDIRECTED_REQUEST, why));
    }
    let mut hosts = parts.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => {
            let why = "it names more than one host";
            Err(fault(StatusCode::BAD_REQUEST, why))
        }
        (Some(host), None) => match host.to_str() {
            Ok(host) if origin.is(host) => Ok(()),
            _ => Err(another(&String::from_utf8_lossy(host.as_bytes()))),
        },
        (None, _) if parts.version == Version::HTTP_11 => {
            Err(fault(StatusCode::BAD_REQUEST, "it names no host"))
        }
        (None, _) if parts.version == Version::HTTP_2 && parts.uri.authority().is_none() => {
            Err(fault(StatusCode::BAD_REQUEST, "it names no host"))
        }
        // Older programs than those headers.
        (None, _) => Ok(()),
    }
}

/// Returns whether a request upgrades to WebSocket. An upgrade to HTTP/2 is ignored and answered by
/// HTTP/1.1, as RFC 9110 (7.8) allows; no other one is forwarded.
fn is_web_socket(parts: &Parts) -> Result<bool, Fault> {
    let headers = &parts.headers;
    if !headers.contains_key(UPGRADE) {
        return Ok(false);
    }
    let mut is_web_socket = false;
    for one in tokens(headers, &UPGRADE) {
        if one.eq_ignore_ascii_case(b"websocket") {
            is_web_socket = true;
        } else if !one.eq_ignore_ascii_case(b"h2c") {
            let why = format!(
                "it asks for another protocol, {:?}, which is not carried",
                shown(&String::from_utf8_lossy(one), SHOWN_BYTES_MAX)
            );
            return Err(fault(StatusCode::FORBIDDEN, why));
        }
    }
    let is_asked = tokens(headers, &CONNECTION).any(|one| one.eq_ignore_ascii_case(b"upgrade"));
    let is_possible = parts.method == Method::GET && parts.version == Version::HTTP_11;
    Ok(is_web_socket && is_asked && is_possible)
}

/// Splits the headers of one name into list members.
pub(super) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.get_all(name).iter();
    let parts = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    parts
        .map(<[u8]>::trim_ascii)
        .filter(|part| !part.is_empty())
}

/// Removes hop-by-hop headers, and returns whether trailers are accepted.
pub(crate) fn strip(headers: &mut HeaderMap) -> bool {
    let takes_trailers = tokens(headers, &TE).any(|one| one.eq_ignore_ascii_case(b"trailers"));
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
            .filter_map(|one| HeaderName::from_bytes(one).ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &OF_ONE_CONNECTION {
        headers.remove(name);
    }
    takes_trailers
}

/// Turns the headers of a request into those that are forwarded.
pub(crate) fn prepare(origin: &Origin, head: &Head, headers: &mut HeaderMap, is_2: bool) {
    let takes_trailers = strip(headers);
    if is_2 {
        headers.remove(HOST);
    } else {
        headers.insert(HOST, origin.host_header.clone());
        join_cookies(headers);
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        if !is_2 {
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
    }
    if head.is_web_socket {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
}

/// Joins the cookie headers: they may be split in HTTP/2, and not in HTTP/1.1 (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let parts: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if let Ok(joined) = HeaderValue::from_bytes(&parts.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

impl Origin {
    /// Returns whether a host, with its port unless that is the default, is the one that was
    /// connected to.
    fn is(&self, written: &str) -> bool {
        if written == self.authority.as_str() {
            return true;
        }
        let (host, port) = match written.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (written, None),
        };
        let port = match port {
            None => Some(self.usual_port()),
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().ok(),
            Some(_) => None,
        };
        port == Some(self.port) && host.parse::<HostPart>().as_ref() == Ok(&self.host)
    }

    pub(super) fn usual_port(&self) -> u16 {
        match self.scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }

    pub(super) fn scheme_text(&self) -> &'static str {
        match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

/// Builds the URI to request from the target that was judged.
pub(super) fn uri(origin: &Origin, written: &str, is_2: bool) -> Option<Uri> {
    let written = Bytes::copy_from_slice(written.as_bytes());
    let path = PathAndQuery::from_maybe_shared(written).ok()?;
    let mut parts = uri::Parts::default();
    parts.path_and_query = Some(path);
    if is_2 {
        parts.scheme = Some(match origin.scheme {
            Scheme::Http => uri::Scheme::HTTP,
            Scheme::Https => uri::Scheme::HTTPS,
        });
        parts.authority = Some(origin.authority.clone());
    }
    Uri::from_parts(parts).ok()
}
