//! Finds a credential's placeholder in a request's head.

use atoll_model::network::{HOLE, Place, Request as Judged};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hyper::header::{AUTHORIZATION, HeaderName, PROXY_AUTHORIZATION};
use hyper::http::request::Parts;

use super::signing;
use crate::credentials::{CredentialPart, holds, holds_in_any_case};

/// A place where a credential's placeholder was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// The place that it is bound to.
    Bound,
    /// Another place, in words.
    Elsewhere(String),
}

/// Finds all places of a credential's placeholder.
pub(super) fn spots(held: &CredentialPart, judged: &Judged<'_>, parts: &Parts) -> Vec<Spot> {
    let placeholder = held.placeholder.as_bytes();
    let elsewhere = |place: &str| Spot::Elsewhere(place.to_owned());
    let mut spots = Vec::new();
    if holds_in_any_case(judged.host.to_string().as_bytes(), placeholder) {
        spots.push(elsewhere("its host"));
    }
    if holds(judged.method.as_bytes(), placeholder) {
        spots.push(elsewhere("its method"));
    }
    let written = judged.target.as_written();
    let (path, query) = written.split_once('?').unwrap_or((written, ""));
    if is_written(path, placeholder) {
        spots.push(elsewhere("its path"));
    }
    for pair in query
        .split('&')
        .filter(|pair| is_written(pair, placeholder))
    {
        let is_bound = match (&held.binding.place, pair.split_once('=')) {
            (Place::Query(key), Some((name, value))) => {
                name == key && value.as_bytes() == placeholder
            }
            (Place::SigV4(_), Some((name, value))) => {
                signing::is_bound_parameter(held, name, value)
            }
            (
                Place::Query(_)
                | Place::Header { .. }
                | Place::Basic(_)
                | Place::Body(_)
                | Place::Refresh(_)
                | Place::SigV4(_)
                | Place::Postgres(_),
                _,
            ) => false,
        };
        spots.push(match is_bound {
            true => Spot::Bound,
            false if signing::is_of_version_2(held, pair) => elsewhere(signing::VERSION_2),
            false => elsewhere("its query"),
        });
    }
    for (name, value) in &parts.headers {
        if holds_in_any_case(name.as_str().as_bytes(), placeholder) {
            spots.push(elsewhere("a header's name"));
        }
        spots.extend(in_header(held, name, value.as_bytes()));
    }
    spots
}

/// Finds the placeholder in a header, as it is or within basic authentication.
pub(super) fn in_header(held: &CredentialPart, name: &HeaderName, value: &[u8]) -> Option<Spot> {
    let placeholder = held.placeholder.as_bytes();
    let elsewhere = || Some(Spot::Elsewhere(format!("the header {name}")));
    if holds(value, placeholder) {
        let is_bound = match &held.binding.place {
            Place::Header { name: bound, form } => {
                name == bound.as_str() && is_of_form(value, placeholder, form.as_deref())
            }
            Place::SigV4(_) => signing::is_bound_header(held, name, value),
            Place::Basic(_)
            | Place::Query(_)
            | Place::Body(_)
            | Place::Refresh(_)
            | Place::Postgres(_) => false,
        };
        return match is_bound {
            true => Some(Spot::Bound),
            false => elsewhere(),
        };
    }
    let of_basic = [AUTHORIZATION, PROXY_AUTHORIZATION].contains(name);
    let plain = basic(value).filter(|_| of_basic)?;
    if !holds(&plain, placeholder) {
        return None;
    }
    let Some(at) = plain.iter().position(|byte| *byte == b':') else {
        return elsewhere();
    };
    let (user, rest) = plain.split_at(at);
    let password = rest.get(1..).unwrap_or_default();
    match &held.binding.place {
        Place::Basic(bound)
            if *name == AUTHORIZATION
                && (bound == "*" || user == bound.as_bytes())
                && !holds(user, placeholder)
                && password == placeholder =>
        {
            Some(Spot::Bound)
        }
        Place::Basic(_)
        | Place::Header { .. }
        | Place::Query(_)
        | Place::Body(_)
        | Place::Refresh(_)
        | Place::SigV4(_)
        | Place::Postgres(_) => elsewhere(),
    }
}

/// Returns whether a value matches its form, in any case of the letters around the placeholder;
/// without a form, whether the placeholder is one word of it, once.
fn is_of_form(value: &[u8], placeholder: &[u8], form: Option<&str>) -> bool {
    if let Some((before, after)) = form.and_then(|form| form.split_once(HOLE)) {
        let Some(rest) = value.len().checked_sub(after.len()) else {
            return false;
        };
        let (value, end) = value.split_at(rest);
        let Some((start, middle)) = value.split_at_checked(before.len()) else {
            return false;
        };
        return start.eq_ignore_ascii_case(before.as_bytes())
            && end.eq_ignore_ascii_case(after.as_bytes())
            && middle == placeholder;
    }
    let words = || value.split(|byte| *byte == b' ');
    words().filter(|word| *word == placeholder).count() == 1
        && words()
            .filter(|word| *word != placeholder)
            .all(|word| !holds(word, placeholder))
}

/// Returns whether a part of a target has the placeholder, as it is or percent-encoded (RFC 3986,
/// 2.1).
fn is_written(part: &str, placeholder: &[u8]) -> bool {
    holds(part.as_bytes(), placeholder) || holds(&unescaped(part), placeholder)
}

/// Percent-decodes a text (RFC 3986, 2.1).
pub(in crate::inspect) fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let escaped = (byte == b'%').then(|| {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let (high, low) = (digit(ahead.next()?)?, digit(ahead.next()?)?);
            u8::try_from(high * 16 + low).ok()
        });
        match escaped.flatten() {
            Some(escaped) => {
                plain.push(escaped);
                bytes = ahead;
            }
            None => plain.push(byte),
        }
    }
    plain
}

/// Returns user and password of basic authentication (RFC 7617, 2).
pub(super) fn basic(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, text) = value.split_at_checked(b"basic ".len())?;
    let text = text.trim_ascii();
    let decoded = || {
        STANDARD
            .decode(text)
            .or_else(|_| STANDARD_NO_PAD.decode(text))
    };
    scheme.eq_ignore_ascii_case(b"basic ").then(decoded)?.ok()
}
