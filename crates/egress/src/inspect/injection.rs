//! Credentials in requests: put in where they are bound to, and nowhere else.
//!
//! A program holds placeholders. One that stands where its credential is bound to becomes
//! the real value on the way out, after the request was judged and recorded; a request that
//! has one anywhere else is not sent. What comes back of a real value in an answer's head
//! becomes the placeholder again.

mod claim;
mod signing;
mod sigv4;

use std::borrow::Cow;
use std::sync::Arc;

use atoll_model::network::{CredentialName, Flow, HOLE, Part, Place, Request as Judged};
use atoll_sys::memory;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use hyper::http::request::Parts;

use super::Asked;
use super::answers::Denial;
use super::head::{self, Head};
use super::room::Room;
use super::upload::Upload;
use crate::Egress;
use crate::credentials::{Credentials, Held, holds, holds_in_any_case};
pub(crate) use signing::{Needed, Signing};

/// Which credentials are put into a request.
#[derive(Debug, Default)]
pub(crate) struct Injection {
    /// By their place among all.
    found: Vec<usize>,
    /// The signature that is made anew.
    signing: Option<Signing>,
}

/// A placeholder that is elsewhere.
#[derive(Debug)]
pub(crate) struct Misuse {
    pub(crate) name: CredentialName,
    pub(crate) why: String,
    /// Where it may stand.
    pub(crate) instead: String,
}

impl Misuse {
    /// Tells of it. What the program is told.
    pub(crate) fn told(
        self,
        egress: &Egress,
        asked: &Asked,
        parts: &Parts,
        mut flow: Flow,
    ) -> Denial {
        flow.credentials.push(self.name.clone());
        egress.line.refuse(flow, self.why.clone());
        Denial::misused(asked, parts, self)
    }
}

/// What one credential's placeholder is found in.
#[derive(Debug, PartialEq, Eq)]
enum Spot {
    /// Where it is bound to.
    Bound,
    /// Elsewhere, in words.
    Elsewhere(String),
}

impl Injection {
    /// What is put into a request that may be sent.
    pub(crate) fn of(
        credentials: &Credentials,
        judged: &Judged<'_>,
        parts: &Parts,
    ) -> Result<Self, Misuse> {
        let mut made = Self::default();
        for (index, held) in credentials.iter().enumerate() {
            let misuse = |why: String| misuse(held, &why);
            let mut spots = spots(held, judged, parts).into_iter();
            let Some(first) = spots.next() else { continue };
            if let Spot::Elsewhere(place) = first {
                return Err(misuse(format!("is in {place}, which it is not for")));
            }
            if let Some(further) = spots.next() {
                let place = match further {
                    Spot::Bound => "its place more than once".to_owned(),
                    Spot::Elsewhere(place) => format!("{place}, which it is not for"),
                };
                return Err(misuse(format!("is in {place}")));
            }
            if !held.binding.holds(judged) {
                return Err(misuse("is in a request that it is not for".to_owned()));
            }
            if held.part == Part::KeyId {
                let query = judged.target.as_written().split_once('?');
                let signing = Signing::read(held, parts, query.map_or("", |(_, query)| query));
                let signing =
                    signing.map_err(|why| misuse(format!("is in a signature that {why}")));
                made.signing = Some(signing?);
            }
            made.found.push(index);
        }
        for held in made.held(credentials) {
            let signs = made.signing.as_ref();
            if held.part == Part::Token && !signs.is_some_and(|signing| signing.is_of(held.name()))
            {
                return Err(misuse(
                    held,
                    "is in a request that is not signed with its key",
                ));
            }
        }
        Ok(made)
    }

    /// The signature that is made anew.
    pub(crate) fn signing(&mut self) -> Option<&mut Signing> {
        self.signing.as_mut()
    }

    fn held<'a>(&'a self, credentials: &'a Credentials) -> impl Iterator<Item = &'a Held> {
        let is_one = |index: &usize| self.found.contains(index);
        let all = credentials.iter().enumerate();
        all.filter(move |(index, _)| is_one(index))
            .map(|(_, held)| held)
    }

    /// What is told of a request that they are put into. One that is refused tells of
    /// none: it would be an alert.
    pub(crate) fn flow(&self, credentials: &Credentials, flow: &Flow) -> Flow {
        let names = self.held(credentials).map(|held| held.name().clone());
        let mut names: Vec<_> = names.collect();
        names.dedup();
        Flow {
            credentials: names,
            ..flow.clone()
        }
    }

    /// The target that is sent.
    pub(crate) fn target<'a>(&self, credentials: &Credentials, written: &'a str) -> Cow<'a, str> {
        let mut target = Cow::Borrowed(written);
        for held in self.held(credentials) {
            if let Place::Query(_) = &held.binding.place {
                let real = escaped(held.real());
                target = Cow::Owned(target.replacen(&held.placeholder, &real, 1));
            }
        }
        target
    }

    /// Puts them into headers that are sent. Whether they all could be.
    pub(crate) fn put(&self, credentials: &Credentials, headers: &mut HeaderMap) -> bool {
        let mut all = self.held(credentials);
        all.all(|held| put(held, headers).is_some())
    }
}

/// A request that is on its way.
pub(crate) struct Outgoing {
    pub(crate) parts: Parts,
    pub(super) body: Option<Upload>,
    pub(crate) head: Head,
    pub(crate) injection: Injection,
    pub(super) flow: Flow,
    pub(super) room: Arc<Room>,
    /// Whether it can be sent again if nothing came back: it changes nothing there.
    pub(super) is_safe: bool,
    pub(super) is_2: bool,
}

impl Outgoing {
    /// Where it goes and with which headers, credentials put in; none where that cannot be
    /// written.
    pub(super) fn written(
        &self,
        egress: &Egress,
        asked: &Asked,
        is_2: bool,
    ) -> Option<(Uri, HeaderMap)> {
        let target = self.head.target.as_written();
        let mut target = self.injection.target(&egress.credentials, target);
        let mut headers = self.parts.headers.clone();
        head::prepare(asked, &self.head, &mut headers, is_2);
        if !self.injection.put(&egress.credentials, &mut headers) {
            return None;
        }
        // At last, since it is of what is sent.
        if let Some(signing) = &self.injection.signing {
            let whose = (asked, self.parts.method.as_str());
            let signed = signing.sign(&egress.credentials, whose, &target, &mut headers)?;
            target = Cow::Owned(signed);
        }
        Some((head::uri(asked, &target, is_2)?, headers))
    }
}

fn misuse(held: &Held, why: &str) -> Misuse {
    let name = held.name();
    Misuse {
        name: name.clone(),
        why: format!("the placeholder of credential {name} {why}"),
        instead: format!(
            "credential {name} is put in for {}: write its placeholder nowhere else",
            held.binding
        ),
    }
}

/// Puts one in, in the one value that has its placeholder.
fn put(held: &Held, headers: &mut HeaderMap) -> Option<()> {
    let bound = match &held.binding.place {
        Place::Header { name, .. } => name.as_str(),
        Place::Basic(_) => AUTHORIZATION.as_str(),
        Place::Query(_) | Place::SigV4(_) => return Some(()),
    };
    let is_it = |name: &HeaderName, value: &HeaderValue| {
        name.as_str() == bound
            && matches!(in_header(held, name, value.as_bytes()), Some(Spot::Bound))
    };
    let mut all = headers.iter_mut();
    let (_, value) = all.find(|(name, value)| is_it(name, value))?;
    let placeholder = held.placeholder.as_bytes();
    let mut written = match basic(value.as_bytes()) {
        Some(plain) if matches!(held.binding.place, Place::Basic(_)) => {
            let mut real = replaced(&plain, placeholder, held.real());
            let written = format!("Basic {}", STANDARD.encode(&real));
            memory::erase(&mut real);
            written.into_bytes()
        }
        Some(_) | None => replaced(value.as_bytes(), placeholder, held.real()),
    };
    let made = HeaderValue::from_bytes(&written);
    memory::erase(&mut written);
    *value = made.ok()?;
    // HTTP/2 keeps it out of the table of headers then (RFC 7541, 7.1.3).
    value.set_sensitive(true);
    Some(())
}

/// Where the placeholder of a credential stands.
fn spots(held: &Held, judged: &Judged<'_>, parts: &Parts) -> Vec<Spot> {
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
            (Place::Query(_) | Place::Header { .. } | Place::Basic(_) | Place::SigV4(_), _) => {
                false
            }
        };
        spots.push(match is_bound {
            true => Spot::Bound,
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

/// Where in a header it stands, as it is or within basic authentication.
fn in_header(held: &Held, name: &HeaderName, value: &[u8]) -> Option<Spot> {
    let placeholder = held.placeholder.as_bytes();
    let elsewhere = || Some(Spot::Elsewhere(format!("the header {name}")));
    if holds(value, placeholder) {
        let is_bound = match &held.binding.place {
            Place::Header { name: bound, form } => {
                name == bound.as_str() && is_of_form(value, placeholder, form.as_deref())
            }
            Place::SigV4(_) => signing::is_bound_header(held, name, value),
            Place::Basic(_) | Place::Query(_) => false,
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
        Place::Basic(_) | Place::Header { .. } | Place::Query(_) | Place::SigV4(_) => elsewhere(),
    }
}

/// Whether a value is what its form says, in any case of letters around the placeholder;
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

/// Whether a part of a target has it, as it is or with escapes (RFC 3986, 2.1).
fn is_written(part: &str, placeholder: &[u8]) -> bool {
    holds(part.as_bytes(), placeholder) || holds(&unescaped(part), placeholder)
}

fn unescaped(text: &str) -> Vec<u8> {
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

/// A value as it is written in a query: only what never means anything there stays.
fn escaped(real: &[u8]) -> String {
    let mut text = String::with_capacity(real.len() * 3);
    for byte in real {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// User and password of basic authentication (RFC 7617, 2).
fn basic(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, text) = value.split_at_checked(b"basic ".len())?;
    let text = text.trim_ascii();
    let decoded = || {
        STANDARD
            .decode(text)
            .or_else(|_| STANDARD_NO_PAD.decode(text))
    };
    scheme.eq_ignore_ascii_case(b"basic ").then(decoded)?.ok()
}

/// Every place of one part in a text, by another.
fn replaced(text: &[u8], part: &[u8], by: &[u8]) -> Vec<u8> {
    let mut made = Vec::with_capacity(text.len() + by.len());
    let mut rest = text;
    while let Some((first, further)) = rest.split_first() {
        if rest.starts_with(part) && !part.is_empty() {
            made.extend_from_slice(by);
            rest = rest.get(part.len()..).unwrap_or_default();
        } else {
            made.push(*first);
            rest = further;
        }
    }
    made
}

/// Makes of every real value in an answer's head the placeholder again, in all forms that are
/// known; what says how the answer is framed is the server's and Atoll's own.
pub(crate) fn mask(credentials: &Credentials, headers: &mut HeaderMap) {
    for held in credentials.iter() {
        // A name can hold one too, where it is a word.
        let named: Vec<HeaderName> = headers
            .keys()
            .filter(|name| holds_in_any_case(name.as_str().as_bytes(), held.real()))
            .cloned()
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    credentials.mask(headers);
}

#[cfg(test)]
mod tests;
