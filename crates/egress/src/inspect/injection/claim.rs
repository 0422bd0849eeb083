//! A request's claim about its AWS signature, which reads in one way or is refused.

use std::time::{Duration, SystemTime};

use atoll_model::network::SignatureScope;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue};
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};

use super::sigv4::{self, ALGORITHM, PIECES, PIECES_AND_TRAILERS, SIGNATURE, Scope, Signature};
use super::unescaped;

/// The largest difference between a signature's time and this host's clock, the most that servers
/// allow.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);
/// The longest validity of a signature in a query, seconds: a week, as on servers.
const EXPIRES_S_MAX: u64 = 7 * 24 * 60 * 60;
/// The most headers that can be signed: requests have no more.
const SIGNED_MAX: usize = 100;

pub(super) const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-amz-security-token");
const DATE_HEADER: HeaderName = HeaderName::from_static("x-amz-date");
const PAYLOAD_HEADER: HeaderName = HeaderName::from_static("x-amz-content-sha256");

/// The header with the length of a chunked body without its framing, bytes.
const DECODED_HEADER: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");
/// The header that names the trailers of such a body.
const TRAILER_HEADER: HeaderName = HeaderName::from_static("x-amz-trailer");

/// Query parameters of a signature.
pub(super) const CREDENTIAL: &str = "X-Amz-Credential";
pub(super) const SIGNED: &str = "X-Amz-SignedHeaders";
pub(super) const TOKEN: &str = "X-Amz-Security-Token";
const METHOD: &str = "X-Amz-Algorithm";
const DATE: &str = "X-Amz-Date";
const EXPIRES: &str = "X-Amz-Expires";
const PAYLOAD: &str = "X-Amz-Content-Sha256";

/// Payload values for bodies that are not signed, as S3 names them.
const UNSIGNED: [&str; 2] = ["UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"];
/// The prefix of the payload values for bodies signed in chunks.
const STREAMING: &str = "STREAMING-";

/// The place of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The header `Authorization`.
    Header,
    /// The query, in a presigned URL.
    Query,
}

/// The body's representation in what is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    /// The value that the request states.
    Told(String),
    /// The body's digest, which the request does not state.
    Digest,
    /// A payload value for chunks, each with a signature of its own.
    Pieces {
        /// The payload value.
        told: String,
        /// The facts about the chunks.
        body: ChunkedBody,
    },
}

/// A request's claim about a body in signed chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkedBody {
    /// The body's length without framing, bytes.
    pub(crate) bytes: u64,
    /// The names of the trailers, where those are signed too.
    pub(crate) trailers: Option<Vec<String>>,
}

/// A request's claim about its signature.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) form: Form,
    pub(super) scope: Scope,
    pub(super) time: String,
    pub(super) signed: Vec<String>,
    pub(super) signature: Signature,
    pub(super) payload: Payload,
}

/// The parts of the claim, before any is parsed.
struct Parts {
    form: Form,
    /// The key's id and the scope.
    credential: String,
    signed: String,
    signature: String,
    time: String,
    payload: Option<String>,
    /// The validity, seconds.
    expires: Option<String>,
}

impl Claim {
    /// Reads the claim, if it is of this key and valid now.
    ///
    /// # Errors
    /// The reason why it is not, as the end of "a signature that …".
    pub(super) fn read(
        headers: &HeaderMap,
        query: &str,
        key_id: &str,
        now: SystemTime,
    ) -> Result<Self, String> {
        let parts = Parts::read(headers, query)?;
        let scope = parts.credential.strip_prefix(key_id);
        let scope = scope.and_then(|rest| Scope::parse(rest.strip_prefix('/')?));
        let scope = scope.ok_or(UNREADABLE)?;
        check_time(&parts, &scope, now)?;
        let signed = signed_headers(&parts.signed, headers)?;
        let signature = Signature::parse(&parts.signature).ok_or(UNREADABLE)?;
        Ok(Self {
            payload: payload(parts.form, parts.payload, &scope, headers)?,
            form: parts.form,
            scope,
            time: parts.time,
            signed,
            signature,
        })
    }

    /// Returns why the scope is outside what the credential is bound to, if it is.
    pub(super) fn is_beyond(&self, bound: &SignatureScope) -> Option<String> {
        let Scope {
            region, service, ..
        } = &self.scope;
        let mut own = bound.regions.iter().zip(std::iter::repeat(region));
        if own.all(|(one, region)| one != region) {
            return Some(format!(
                "is for the region {region:?}, which the credential is not bound to"
            ));
        }
        let mut own = bound.services.iter().zip(std::iter::repeat(service));
        own.all(|(one, service)| one != service).then(|| {
            format!("is for the service {service:?}, which the credential is not bound to")
        })
    }
}

const UNREADABLE: &str = "cannot be read";
const TWICE: &str = "is said more than once";

impl Parts {
    fn read(headers: &HeaderMap, query: &str) -> Result<Self, String> {
        let of_query = |name: &str| parameter(query, name);
        if !headers.contains_key(AUTHORIZATION) {
            for name in [DATE_HEADER, PAYLOAD_HEADER, TOKEN_HEADER] {
                if headers.contains_key(&name) {
                    return Err(TWICE.to_owned());
                }
            }
            check_algorithm(&of_query(METHOD)?.ok_or(UNREADABLE)?)?;
            return Ok(Self {
                form: Form::Query,
                credential: of_query(CREDENTIAL)?.ok_or(UNREADABLE)?,
                signed: of_query(SIGNED)?.ok_or(UNREADABLE)?,
                signature: of_query(SIGNATURE)?.ok_or(UNREADABLE)?,
                time: of_query(DATE)?.ok_or(UNREADABLE)?,
                payload: of_query(PAYLOAD)?,
                expires: Some(of_query(EXPIRES)?.ok_or(UNREADABLE)?),
            });
        }
        for name in [METHOD, CREDENTIAL, SIGNATURE, TOKEN] {
            if of_query(name)?.is_some() {
                return Err(TWICE.to_owned());
            }
        }
        let authorization = header(headers, &AUTHORIZATION)?.ok_or(UNREADABLE)?;
        let (algorithm, fields) = authorization.split_once(' ').ok_or(UNREADABLE)?;
        check_algorithm(algorithm)?;
        let [mut credential, mut signed, mut signature] = [None, None, None];
        for field in fields.split(',') {
            let (name, value) = field.trim().split_once('=').ok_or(UNREADABLE)?;
            let place = match name {
                "Credential" => &mut credential,
                "SignedHeaders" => &mut signed,
                "Signature" => &mut signature,
                _ => return Err(UNREADABLE.to_owned()),
            };
            if place.replace(value.to_owned()).is_some() {
                return Err(TWICE.to_owned());
            }
        }
        Ok(Self {
            form: Form::Header,
            credential: credential.ok_or(UNREADABLE)?,
            signed: signed.ok_or(UNREADABLE)?,
            signature: signature.ok_or(UNREADABLE)?,
            time: header(headers, &DATE_HEADER)?.ok_or("has no X-Amz-Date")?,
            payload: header(headers, &PAYLOAD_HEADER)?,
            expires: None,
        })
    }
}

fn check_algorithm(algorithm: &str) -> Result<(), String> {
    match algorithm {
        ALGORITHM => Ok(()),
        other if other.starts_with("AWS4-ECDSA-") => Err(format!(
            "is of {other} (SigV4A), which is not made anew: have the program sign for one region \
             (for S3 not by a multi-Region access point)"
        )),
        _ => Err(format!("is not of {ALGORITHM}")),
    }
}

/// Returns the value of a header that occurs once at most.
fn header(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, String> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(TWICE.to_owned());
    }
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned);
    first
        .map(text)
        .transpose()
        .map_err(|_| UNREADABLE.to_owned())
}

/// Returns the unescaped value of a parameter that occurs once at most, in any case of its name.
fn parameter(query: &str, wanted: &str) -> Result<Option<String>, String> {
    let pairs = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let is_it = |(name, _): &(&str, &str)| {
        let name = unescaped(name);
        name.eq_ignore_ascii_case(wanted.as_bytes())
    };
    let mut found = pairs.filter(is_it);
    let (first, second) = (found.next(), found.next());
    if second.is_some() {
        return Err(TWICE.to_owned());
    }
    match first {
        None => Ok(None),
        Some((name, value)) if name == wanted => {
            let value = String::from_utf8(unescaped(value));
            value.map(Some).map_err(|_| UNREADABLE.to_owned())
        }
        Some(_) => Err(UNREADABLE.to_owned()),
    }
}

/// Checks that the time is of the scope's day, and that the signature is valid now.
fn check_time(parts: &Parts, scope: &Scope, now: SystemTime) -> Result<(), String> {
    let made = instant(&parts.time).ok_or("has a date that cannot be read")?;
    if !parts.time.starts_with(&scope.day) || scope.day.len() != 8 {
        return Err("has two dates".to_owned());
    }
    let now = OffsetDateTime::from(now);
    let good = match &parts.expires {
        None => SKEW_MAX,
        Some(seconds) => {
            let is_number = seconds.bytes().all(|byte| byte.is_ascii_digit());
            let seconds = seconds.parse::<u64>().ok().filter(|_| is_number);
            let seconds = seconds.filter(|seconds| (1..=EXPIRES_S_MAX).contains(seconds));
            Duration::from_secs(seconds.ok_or("is good for a time that cannot be read")?)
        }
    };
    let far = |by: time::Duration| {
        format!(
            "is of {}, {} minutes from now: look at the clock",
            parts.time,
            by.whole_minutes().unsigned_abs()
        )
    };
    if made - now > SKEW_MAX {
        return Err(far(made - now));
    }
    if now - made > good {
        return Err(far(now - made));
    }
    Ok(())
}

/// Parses a time such as `20260102T030405Z`.
fn instant(text: &str) -> Option<OffsetDateTime> {
    let (day, rest) = text.split_at_checked(8)?;
    let time = rest.strip_prefix('T')?.strip_suffix('Z')?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if time.len() != 6 || !is_number(day) || !is_number(time) {
        return None;
    }
    let two = |text: &str, at: usize| text.get(at..at + 2)?.parse::<u8>().ok();
    let year = day.get(..4)?.parse::<i32>().ok()?;
    let month = Month::try_from(two(day, 4)?).ok()?;
    let date = Date::from_calendar_date(year, month, two(day, 6)?).ok()?;
    let time = Time::from_hms(two(time, 0)?, two(time, 2)?, two(time, 4)?).ok()?;
    Some(PrimitiveDateTime::new(date, time).assume_utc())
}

/// Reads the names of the signed headers, which must include the host and all AWS headers.
fn signed_headers(written: &str, headers: &HeaderMap) -> Result<Vec<String>, String> {
    let names: Vec<String> = written.split(';').map(str::to_owned).collect();
    let is_name = |name: &String| {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        parsed.is_ok_and(|parsed| parsed.as_str() == name)
    };
    let is_ordered = names.is_sorted_by(|one, next| one < next);
    if names.len() > SIGNED_MAX || !is_ordered || !names.iter().all(is_name) {
        return Err("names signed headers in a way that cannot be read".to_owned());
    }
    let has = |name: &str| names.iter().any(|one| one == name);
    if !has(HOST.as_str()) {
        return Err("is not of the host".to_owned());
    }
    let mut left_out = headers.keys().map(HeaderName::as_str);
    let left_out = left_out.find(|name| {
        // The body's digest is signed in its own place.
        name.starts_with("x-amz-") && *name != PAYLOAD_HEADER.as_str() && !has(name)
    });
    match left_out {
        Some(name) => Err(format!("is not of the header {name}")),
        None => Ok(names),
    }
}

/// Returns the body's representation in what is signed.
fn payload(
    form: Form,
    told: Option<String>,
    scope: &Scope,
    headers: &HeaderMap,
) -> Result<Payload, String> {
    let told = match (told, form) {
        (Some(told), _) => told,
        (None, Form::Query) if scope.service.starts_with("s3") => UNSIGNED[0].to_owned(),
        (None, Form::Query | Form::Header) => return Ok(Payload::Digest),
    };
    if sigv4::undigested(&told).is_some() || UNSIGNED.contains(&told.as_str()) {
        return Ok(Payload::Told(told));
    }
    let has_trailers = told == PIECES_AND_TRAILERS;
    if form == Form::Header && (has_trailers || told == PIECES) {
        let body = chunked_claim(has_trailers, headers)?;
        return Ok(Payload::Pieces { told, body });
    }
    if told.starts_with(STREAMING) {
        return Err(format!(
            "is of a body that is signed as it is written ({told}), which is not made anew: have \
             the program sign the body as a whole, in pieces with the request's own signature in \
             a header ({PIECES}), or not at all"
        ));
    }
    Err(UNREADABLE.to_owned())
}

/// Reads a request's claim about its body in signed chunks.
fn chunked_claim(has_trailers: bool, headers: &HeaderMap) -> Result<ChunkedBody, String> {
    let bytes = header(headers, &DECODED_HEADER)?;
    let bytes = bytes.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let bytes = bytes.and_then(|text| text.parse().ok());
    let bytes = bytes.ok_or("is of a body in pieces without X-Amz-Decoded-Content-Length")?;
    let trailers = match has_trailers {
        true => {
            let names = header(headers, &TRAILER_HEADER)?.unwrap_or_default();
            let names = names
                .split(',')
                .map(|name| name.trim().to_ascii_lowercase());
            Some(names.filter(|name| !name.is_empty()).collect())
        }
        false => None,
    };
    Ok(ChunkedBody { bytes, trailers })
}

#[cfg(test)]
mod tests;
