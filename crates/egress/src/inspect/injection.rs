//! Credential injection into request heads: where a credential is bound to, and nowhere else.
//!
//! A program holds placeholders. One where its credential is bound to becomes the real value on the
//! way out, after the request was judged and recorded; a request with a placeholder anywhere else
//! is not sent. A real value in a response's head becomes the placeholder again.

mod claim;
mod misuse;
mod other_placeholders;
mod readable;
mod redacted;
mod renewal;
mod signing;
mod sigv4;
mod spots;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use atoll_model::network::{CredentialName, Flow, Issue, Part, Place, Request as Judged};
use atoll_sys::memory;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;

use super::Origin;
use super::denial::Denial;
use super::exchange::SendPermission;
use super::head::{self, Head};
use super::ranges::PaddedRange;
use super::request_permit::RequestPermit;
use super::upload::Upload;
use crate::Egress;
use crate::credentials::{CredentialPart, Credentials, fetch};
use crate::limits::Direction;
use crate::redaction::Redactions;
use crate::secret::{Form, Located, MaskedNumbers, Secret};
pub(crate) use claim::ChunkedBody;
pub(crate) use misuse::{misuse_in_body, misuse_in_tunnel};
use readable::ask_for_readable;
pub(super) use renewal::renewal;
pub(crate) use signing::{Signing, VerificationInput};
pub(crate) use sigv4::{ChainItem, SignatureChain};
pub(super) use spots::unescaped;
use spots::{Spot, basic, in_header, spots};

/// The credentials that are injected into a request.
#[derive(Debug, Default)]
pub(crate) struct Injection {
    found: Vec<InjectedValue>,
    /// The signature that is made anew.
    signing: Option<Signing>,
    /// The record of other credentials' placeholders that are masked in the body, if they are.
    masked: Option<Arc<MaskedNumbers>>,
    /// The range that is requested of the answer.
    pub(super) ranged: Option<PaddedRange>,
    /// Set to request the whole where the program has requested a range: the response to that range
    /// could not be handed on.
    pub(super) asks_all: bool,
}

/// An injected credential, by its index among all.
struct InjectedValue {
    index: usize,
    /// The value to inject; `None` until it is fetched.
    real: Option<Arc<Secret>>,
}

impl fmt::Debug for InjectedValue {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("InjectedValue").field(&self.index).finish()
    }
}

/// A placeholder outside the place that its credential is bound to.
#[derive(Clone, Debug)]
pub(crate) struct Misuse {
    pub(crate) name: CredentialName,
    pub(crate) why: String,
    /// The advice: the place where it may be.
    pub(crate) instead: String,
    /// Set if it raises an alert, which names the credential; what an agent does by itself does
    /// not.
    pub(crate) is_alert: bool,
}

impl Misuse {
    /// Reports the misuse, and returns the denial for the program.
    pub(crate) fn record_and_deny(
        self,
        egress: &Egress,
        origin: &Origin,
        parts: &Parts,
        flow: Flow,
    ) -> Denial {
        self.record(egress, flow);
        Denial::misused(origin, parts, self)
    }

    /// Reports the misuse.
    pub(crate) fn record(&self, egress: &Egress, flow: Flow) {
        let named = self.is_alert.then(|| self.name.clone());
        let flow = Flow {
            credentials: named.into_iter().collect(),
            ..flow
        };
        egress.control.refuse(flow, self.why.clone());
    }
}

/// Builds a misuse of this credential's placeholder.
fn misuse(held: &CredentialPart, why: &str) -> Misuse {
    let name = held.name();
    Misuse {
        name: name.clone(),
        why: format!("the placeholder of credential {name} {why}"),
        instead: renewal::instead(held),
        is_alert: true,
    }
}

/// Builds the misuse of a placeholder in a request that its credential is not bound to.
pub(super) fn misuse_of_request(held: &CredentialPart, judged: &Judged<'_>) -> Misuse {
    let differs = held.binding.differs(judged);
    misuse(held, &format!("is in a request {differs}"))
}

/// Checks that no placeholder in a head is encoded in a way that is never injected: as hexadecimal
/// digits, within base64, as UTF-16.
fn check_forms(
    credentials: &Credentials,
    bound: &[InjectedValue],
    judged: &Judged<'_>,
    parts: &Parts,
) -> Result<(), Misuse> {
    let Some(placeholders) = credentials.placeholders() else {
        return Ok(());
    };
    // One that is put in was found as it is once, at its own place.
    let is_put = |one: &Located, text: &[u8], held: &CredentialPart| {
        let written = text.get(one.range.clone()).unwrap_or_default();
        let written = std::str::from_utf8(written).unwrap_or_default();
        bound.iter().any(|put| put.index == one.found.number)
            && one.found.form == Form::Plain
            && unescaped(written) == held.placeholder.as_bytes()
    };
    let check = |place: &dyn Fn() -> String, text: &[u8], basic: bool| {
        for one in placeholders.locate(text) {
            let found = one.found;
            let Some(held) = credentials.get(found.number) else {
                continue;
            };
            let is_basic = basic
                && matches!(held.binding.place, Place::Basic(_))
                && matches!(found.form, Form::Base64(_))
                && bound.iter().any(|put| put.index == found.number);
            if !is_basic && !is_put(&one, text, held) {
                let form = encoding_text(found.form);
                let why = format!(
                    "is in {}{form}, which the credential is not bound to",
                    place()
                );
                return Err(misuse(held, &why));
            }
        }
        Ok(())
    };
    let host = judged.host.to_string();
    check(&|| "its host".to_owned(), host.as_bytes(), false)?;
    let target = judged.target.as_written();
    check(&|| "its target".to_owned(), target.as_bytes(), false)?;
    for (name, value) in &parts.headers {
        let of_name = || "a header's name".to_owned();
        check(&of_name, name.as_str().as_bytes(), false)?;
        let plain = basic(value.as_bytes()).filter(|_| *name == AUTHORIZATION);
        let of_value = || format!("the header {name}");
        check(&of_value, value.as_bytes(), plain.is_some())?;
        check(&of_value, &plain.unwrap_or_default(), false)?;
    }
    Ok(())
}

/// Reads the signature that contains a key's id.
fn signing_of(
    held: &CredentialPart,
    judged: &Judged<'_>,
    parts: &Parts,
) -> Result<Signing, Misuse> {
    let written = judged.target.as_written().split_once('?');
    let query = written.map_or("", |(_, query)| query);
    let read = Signing::read(held, parts, query);
    read.map_err(|why| misuse(held, &format!("is in a signature that {why}")))
}

/// Describes how a placeholder is encoded.
fn encoding_text(form: Form) -> &'static str {
    match form {
        Form::Plain => "",
        Form::Hexadecimal => " as hexadecimal digits",
        Form::Base64(_) => " within base64",
        Form::HexadecimalBase64(_) => " as hexadecimal digits of base64",
        Form::Wide => " as UTF-16 or UTF-32",
    }
}

impl Injection {
    /// Finds the credentials to inject into a request.
    pub(crate) fn of(
        credentials: &Credentials,
        judged: &Judged<'_>,
        parts: &Parts,
    ) -> Result<Self, Misuse> {
        let mut made = Self::default();
        for (index, held) in credentials.iter().enumerate() {
            let mut spots = spots(held, judged, parts).into_iter();
            let Some(first) = spots.next() else { continue };
            if let Spot::Elsewhere(place) = first {
                let why = format!("is in {place}, which the credential is not bound to");
                return Err(misuse(held, &why));
            }
            if let Some(further) = spots.next() {
                let place = match further {
                    Spot::Bound => "its place more than once".to_owned(),
                    Spot::Elsewhere(place) => {
                        format!("{place}, which the credential is not bound to")
                    }
                };
                return Err(misuse(held, &format!("is in {place}")));
            }
            if !held.binding.holds(judged) {
                return Err(misuse_of_request(held, judged));
            }
            if held.part == Part::KeyId {
                made.signing = Some(signing_of(held, judged, parts)?);
            }
            let real = held.given().map(Arc::clone);
            made.found.push(InjectedValue { index, real });
        }
        check_forms(credentials, &made.found, judged, parts)?;
        made.check_token(credentials)?;
        Ok(made)
    }

    /// Checks that a session token is sent only with its key's signature.
    fn check_token(&self, credentials: &Credentials) -> Result<(), Misuse> {
        let signs = |held: &CredentialPart| {
            let signing = self.signing.as_ref();
            signing.is_some_and(|signing| signing.is_of(held.name()))
        };
        let mut all = self.held(credentials).map(|(held, _)| held);
        match all.find(|held| held.part == Part::Token && !signs(held)) {
            Some(held) => Err(misuse(
                held,
                "is in a request that is not signed with its key",
            )),
            None => Ok(()),
        }
    }

    /// Returns whether the program's signature is verified and made anew.
    pub(crate) fn is_signed(&self) -> bool {
        self.signing.is_some()
    }

    /// Returns a redacted header that the signature covers, if any.
    pub(crate) fn is_of_redacted(&self, redactions: &Redactions) -> Option<&str> {
        self.signing.as_ref()?.is_of_redacted(redactions)
    }

    /// Returns the signature that is made anew.
    pub(crate) fn signing(&mut self) -> Option<&mut Signing> {
        self.signing.as_mut()
    }

    /// Adds a credential, by its index among all, that is injected into the body. A body covered by
    /// the program's signature is not changed.
    pub(super) fn add(
        &mut self,
        index: usize,
        held: &CredentialPart,
        real: &Arc<Secret>,
    ) -> Result<(), Misuse> {
        if self.signing.is_some() {
            let why = "is in the body of a request that is signed, into which nothing is put";
            return Err(misuse(held, why));
        }
        if self.found.iter().all(|put| put.index != index) {
            let real = Some(Arc::clone(real));
            self.found.push(InjectedValue { index, real });
        }
        Ok(())
    }

    fn held<'a>(
        &'a self,
        credentials: &'a Credentials,
    ) -> impl Iterator<Item = (&'a CredentialPart, Option<&'a [u8]>)> {
        self.found.iter().filter_map(|put| {
            let real = put.real.as_ref().map(|real| real.expose());
            Some((credentials.get(put.index)?, real))
        })
    }

    /// Returns whether any of the credentials is fetched on use: then the request is recorded
    /// first.
    pub(crate) fn is_fetched(&self, credentials: &Credentials) -> bool {
        let mut all = self.found.iter();
        all.any(|put| credentials.source(put.index).is_some())
    }

    /// Fetches the credentials that are fetched on use, for a request that is allowed and recorded.
    pub(crate) async fn fetch(&mut self, egress: &Arc<Egress>) -> Result<(), fetch::FetchError> {
        for put in &mut self.found {
            if egress.credentials.source(put.index).is_some() {
                put.real = signing::fetched(&mut self.signing, egress, put.index).await?;
            }
        }
        Ok(())
    }

    /// Notes that the host rejected the credentials.
    pub(crate) fn doubt(&self, credentials: &Credentials) {
        for put in &self.found {
            if let Some(real) = &put.real {
                credentials.doubt(put.index, real);
            }
        }
    }

    /// Returns the flow with the names of the injected credentials. The flow of a refused request
    /// names none: that would be an alert.
    pub(crate) fn flow(&self, credentials: &Credentials, flow: &Flow) -> Flow {
        let mut names: Vec<CredentialName> = Vec::new();
        for (held, _) in self.held(credentials) {
            // A key that signs is of several values.
            if !names.contains(held.name()) {
                names.push(held.name().clone());
            }
        }
        Flow {
            credentials: names,
            ..flow.clone()
        }
    }

    /// Returns the target that is sent.
    pub(crate) fn target<'a>(&self, credentials: &Credentials, written: &'a str) -> Cow<'a, str> {
        let mut target = Cow::Borrowed(written);
        for (held, real) in self.held(credentials) {
            if let (Place::Query(_), Some(real)) = (&held.binding.place, real) {
                target = Cow::Owned(target.replacen(&held.placeholder, &escaped(real), 1));
            }
        }
        target
    }

    /// Injects the credentials into headers, and returns whether all could be.
    pub(crate) fn put(&self, credentials: &Credentials, headers: &mut HeaderMap) -> bool {
        let mut all = self.held(credentials);
        all.all(|(held, real)| put(held, real, headers).is_some())
    }
}

/// A request on its way to the upstream.
pub(crate) struct OutgoingRequest {
    pub(crate) parts: Parts,
    pub(super) body: Option<Upload>,
    pub(crate) head: Head,
    pub(crate) injection: Injection,
    pub(super) flow: Flow,
    pub(super) permit: Arc<RequestPermit>,
    /// Set if it can be sent again when no response came: it changes nothing on the server.
    pub(super) is_safe: bool,
    pub(super) is_2: bool,
    /// The approval and redactions under which it is sent.
    pub(super) leave: SendPermission,
    /// The login whose tokens it asks for.
    pub(super) issue: Option<Arc<Issue>>,
}

impl OutgoingRequest {
    /// Returns the target and headers with credentials injected; `None` if they cannot be written.
    pub(super) fn written(
        &mut self,
        egress: &Egress,
        origin: &Origin,
        is_2: bool,
    ) -> Option<(Uri, HeaderMap)> {
        let target = self.head.target.as_written();
        let mut target = self.injection.target(&egress.credentials, target);
        let mut headers = self.parts.headers.clone();
        head::prepare(origin, &self.head, &mut headers, is_2);
        if !egress.credentials.is_empty() {
            ask_for_readable(&mut headers, self.injection.ranged);
        }
        if !self.injection.put(&egress.credentials, &mut headers) {
            return None;
        }
        // A signature is of what is left.
        self.leave.redactions.take_out(Direction::Up, &mut headers);
        // At last, since it is of what is sent.
        if let Some(signing) = &self.injection.signing {
            let method = self.parts.method.as_str();
            let signed =
                signing.sign(&egress.credentials, origin, method, &target, &mut headers)?;
            target = Cow::Owned(signed.target);
            if let (Some(pieces), Some(body)) = (signed.pieces, &mut self.body) {
                body.sign(pieces);
            }
        }
        // Also what signs.
        self.leave.redactions.take_out(Direction::Up, &mut headers);
        Some((head::uri(origin, &target, is_2)?, headers))
    }
}

/// Injects one credential into the one header value that has its placeholder.
fn put(held: &CredentialPart, real: Option<&[u8]>, headers: &mut HeaderMap) -> Option<()> {
    let Some(bound) = redacted::header(held) else {
        return Some(());
    };
    let real = real?;
    let is_it = |name: &HeaderName, value: &HeaderValue| {
        name.as_str() == bound
            && matches!(in_header(held, name, value.as_bytes()), Some(Spot::Bound))
    };
    let mut all = headers.iter_mut();
    let (_, value) = all.find(|(name, value)| is_it(name, value))?;
    let placeholder = held.placeholder.as_bytes();
    let mut written = match basic(value.as_bytes()) {
        Some(plain) if matches!(held.binding.place, Place::Basic(_)) => {
            let mut both = replaced(&plain, placeholder, real);
            let written = format!("Basic {}", STANDARD.encode(&both));
            memory::erase(&mut both);
            written.into_bytes()
        }
        Some(_) | None => replaced(value.as_bytes(), placeholder, real),
    };
    let made = HeaderValue::from_bytes(&written);
    memory::erase(&mut written);
    *value = made.ok()?;
    // HTTP/2 keeps it out of the table of headers then (RFC 7541, 7.1.3).
    value.set_sensitive(true);
    Some(())
}

/// Percent-encodes a value for a query: only the characters that never have a meaning there stay.
pub(super) fn escaped(real: &[u8]) -> String {
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

/// Replaces every occurrence of a part in a text.
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

/// Replaces every real value in a response's head, in all known encodings, by its placeholder; the
/// headers that frame the response stay.
pub(crate) fn mask(credentials: &Credentials, headers: &mut HeaderMap) {
    credentials.mask(headers);
}

#[cfg(test)]
mod tests;
