//! Requests that a program has signed with placeholders, signed anew on the way out.
//!
//! Exactly what the program has signed is signed anew: its own signature is verified first, with
//! the placeholder's secret, so that nothing it has not signed gets a real signature.

use std::sync::Arc;
use std::time::SystemTime;

use atoll_model::network::{CredentialName, Part, Place};
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue};
use hyper::http::request::Parts;

use super::claim::{self, Claim, Form, Payload};
use super::sigv4::{
    ALGORITHM, Canonicalization, SIGNATURE, Signable, SignatureChain, digest, undigested,
};
use super::{Misuse, escaped, unescaped};
use crate::Egress;
use crate::credentials::{CredentialPart, Credentials, Values, fetch};
use crate::inspect::Origin;
use crate::inspect::head::{self, Head};
use crate::inspect::upload::{Pieces, SignedBody};
use crate::redaction::Redactions;
use crate::secret::Secret;

/// A signature to be made anew.
#[derive(Debug)]
pub(crate) struct Signing {
    credential: CredentialName,
    claim: Claim,
    proven: Option<VerifiedSignature>,
    /// The real key, if it is fetched on use.
    key: Option<Values>,
}

/// The result of verifying the program's own signature.
#[derive(Debug)]
struct VerifiedSignature {
    reading: Canonicalization,
    payload: String,
    /// The program's own signatures of its body's chunks, if it signs those.
    pieces: Option<SignatureChain>,
}

/// The changes to a request that is signed anew.
pub(super) struct SignedRequest {
    pub(super) target: String,
    /// The signer of the body's chunks, if they are signed.
    pub(super) pieces: Option<SignatureChain>,
}

/// The input needed to verify the program's signature.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum VerificationInput {
    /// The head alone.
    Nothing,
    /// The whole body.
    Body,
}

/// A kind of signature that is not made anew, and the advice.
pub(super) const VERSION_2: &str =
    "a signature of version 2 (boto3 makes one of version 4 with signature_version = \"s3v4\")";

/// Returns whether a key's id is in a query in the way of version 2 signatures.
pub(super) fn is_of_version_2(held: &CredentialPart, pair: &str) -> bool {
    held.part == Part::KeyId && pair.starts_with("AWSAccessKeyId=")
}

/// Returns whether a part of a key is in a header where it may be.
pub(super) fn is_bound_header(held: &CredentialPart, name: &HeaderName, value: &[u8]) -> bool {
    let placeholder = held.placeholder.as_bytes();
    match held.part {
        Part::KeyId => {
            let after = value.strip_prefix(b"AWS4-".as_slice());
            let fields = after.and_then(|text| {
                Some(text.split_at(text.iter().position(|byte| *byte == b' ')?).1)
            });
            let fields = fields.map(|text| text.split(|byte| *byte == b','));
            let named = |field: &&[u8]| {
                let rest = field.trim_ascii().strip_prefix(b"Credential=".as_slice());
                rest.and_then(|rest| rest.strip_prefix(placeholder))
                    .is_some_and(|rest| rest.starts_with(b"/"))
            };
            *name == AUTHORIZATION
                && fields.is_some_and(|mut fields| fields.any(|field| named(&field)))
                && once(value, placeholder)
        }
        Part::Token => *name == claim::TOKEN_HEADER && value == placeholder,
        Part::Secret | Part::Whole => false,
    }
}

fn once(value: &[u8], placeholder: &[u8]) -> bool {
    let windows = value.windows(placeholder.len().max(1));
    windows.filter(|window| *window == placeholder).count() == 1
}

/// Returns whether a part of a key is in a query parameter where it may be.
pub(super) fn is_bound_parameter(held: &CredentialPart, name: &str, value: &str) -> bool {
    let value = unescaped(value);
    let placeholder = held.placeholder.as_bytes();
    match held.part {
        Part::KeyId => {
            let rest = value.strip_prefix(placeholder);
            name == claim::CREDENTIAL && rest.is_some_and(|rest| rest.starts_with(b"/"))
        }
        Part::Token => name == claim::TOKEN && value == placeholder,
        Part::Secret | Part::Whole => false,
    }
}

impl Signing {
    /// Reads the signature of a request that names a key's placeholder.
    ///
    /// # Errors
    /// The reason why it is unusable, as the end of "a signature that …".
    pub(super) fn read(held: &CredentialPart, parts: &Parts, query: &str) -> Result<Self, String> {
        let Place::SigV4(bound) = &held.binding.place else {
            return Err("is of no key".to_owned());
        };
        let now = SystemTime::now();
        let claim = Claim::read(&parts.headers, query, &held.placeholder, now)?;
        match claim.is_beyond(bound) {
            Some(why) => Err(why),
            None => Ok(Self {
                credential: held.name().clone(),
                claim,
                proven: None,
                key: None,
            }),
        }
    }

    pub(super) fn is_of(&self, name: &CredentialName) -> bool {
        self.credential == *name
    }

    /// Returns the input needed to verify the program's own signature.
    pub(crate) fn needs(&self) -> VerificationInput {
        match (&self.proven, &self.claim.payload) {
            (None, Payload::Digest) => VerificationInput::Body,
            (None, Payload::Told(_) | Payload::Pieces { .. }) | (Some(_), _) => {
                VerificationInput::Nothing
            }
        }
    }

    /// Verifies the program's own signature of a request, with this body where it is needed.
    pub(crate) fn prove(
        &mut self,
        credentials: &Credentials,
        origin: &Origin,
        parts: &Parts,
        head: &Head,
        body: &[u8],
    ) -> Result<(), Misuse> {
        if self.proven.is_some() {
            return Ok(());
        }
        let payload = match &self.claim.payload {
            Payload::Told(told) | Payload::Pieces { told, .. } => told.clone(),
            Payload::Digest => digest(body),
        };
        let written = parts.uri.authority().map(|authority| authority.as_str());
        let host = parts.headers.get(HOST).map(HeaderValue::to_str);
        let host = host.and_then(Result::ok).or(written);
        let signable = Signable {
            method: parts.method.as_str(),
            target: head.target.as_written(),
            headers: &parts.headers,
            host: host.unwrap_or(origin.authority.as_str()),
            signed: &self.claim.signed,
            payload: &payload,
            time: &self.claim.time,
            scope: &self.claim.scope,
        };
        let secret = self.part(credentials, Part::Secret);
        let signature = &self.claim.signature;
        let proven = secret.and_then(|secret| {
            let secret = secret.placeholder.as_bytes();
            let reading = signable.proof(secret, signature)?;
            let pieces = || signable.chain(secret, &signature.text());
            Some((reading, self.is_in_pieces().then(pieces)))
        });
        let Some((reading, pieces)) = proven else {
            return Err(self.misuse(credentials));
        };
        self.proven = Some(VerifiedSignature {
            reading,
            payload,
            pieces,
        });
        Ok(())
    }

    /// Builds the misuse of a request that is not what was signed.
    pub(crate) fn misuse(&self, credentials: &Credentials) -> Misuse {
        let name = &self.credential;
        let bound = self.part(credentials, Part::KeyId);
        let bound = bound.map_or_else(String::new, |held| held.binding.to_string());
        Misuse {
            name: name.clone(),
            why: format!(
                "the placeholder of credential {name} is in a signature that is not of this request"
            ),
            instead: format!(
                "credential {name} is put in for {bound}: sign with both placeholders, and send \
                 what was signed unchanged"
            ),
            is_alert: true,
        }
    }

    fn is_in_pieces(&self) -> bool {
        matches!(self.claim.payload, Payload::Pieces { .. })
    }

    /// Returns what the body must match, if the request states that and has signed it.
    pub(crate) fn expected(&self, credentials: &Credentials) -> Option<SignedBody> {
        let misuse = || self.misuse(credentials);
        match &self.claim.payload {
            Payload::Told(told) => undigested(told).map(|told| SignedBody::Digest(told, misuse())),
            Payload::Digest => None,
            Payload::Pieces { body, .. } => {
                let chain = self.proven.as_ref()?.pieces.clone()?;
                let pieces = Pieces::new(chain, body.clone(), misuse());
                Some(SignedBody::Pieces(Box::new(pieces)))
            }
        }
    }

    fn part<'a>(&self, credentials: &'a Credentials, part: Part) -> Option<&'a CredentialPart> {
        let mut all = credentials.iter();
        all.find(|held| held.part == part && *held.name() == self.credential)
    }

    /// Returns a value of the key, unless that is still to be fetched.
    fn real<'a>(&'a self, credentials: &'a Credentials, part: Part) -> Option<&'a [u8]> {
        let real = match &self.key {
            Some(key) => key.part(part),
            None => self.part(credentials, part)?.given(),
        };
        real.map(|real| real.expose())
    }

    /// Returns a redacted header that the signature covers or is in: the signer meant it to be
    /// there.
    pub(super) fn is_of_redacted(&self, redactions: &Redactions) -> Option<&str> {
        let own = ["authorization", "x-amz-date", "x-amz-security-token"];
        let signed = self.claim.signed.iter().map(String::as_str);
        let mut all = signed.chain(own);
        all.find(|name| redactions.takes(name))
    }

    /// Signs what is sent, in place of the program's signature. `None` if that was not verified.
    pub(super) fn sign(
        &self,
        credentials: &Credentials,
        origin: &Origin,
        method: &str,
        target: &str,
        headers: &mut HeaderMap,
    ) -> Option<SignedRequest> {
        let proven = self.proven.as_ref()?;
        let id = std::str::from_utf8(self.real(credentials, Part::KeyId)?).ok()?;
        let secret = self.real(credentials, Part::Secret)?;
        let real = self.real(credentials, Part::Token);
        let token = self.part(credentials, Part::Token);
        if let Some(token) = token {
            put_token(token, real, headers)?;
        }
        let host = origin.authority.as_str();
        // What is for one connection only is not sent on.
        let is_sent = |name: &&String| {
            *name == HOST.as_str() || headers.contains_key(name.as_str()) && !head::is_hop(name)
        };
        let signed: Vec<String> = self.claim.signed.iter().filter(is_sent).cloned().collect();
        let credential = format!("{id}/{}", self.claim.scope.text());
        let names = signed.join(";");
        let target = match self.claim.form {
            Form::Header => target.to_owned(),
            Form::Query => rewritten(target, |name, value| match name {
                claim::CREDENTIAL => ParameterChange::With(escaped(credential.as_bytes())),
                claim::SIGNED => ParameterChange::With(escaped(names.as_bytes())),
                claim::TOKEN
                    if token.is_some_and(|token| is_bound_parameter(token, name, value)) =>
                {
                    real.map_or(ParameterChange::LeftOut, |real| {
                        ParameterChange::With(escaped(real))
                    })
                }
                _ => ParameterChange::AsItIs,
            }),
        };
        let signable = Signable {
            method,
            target: &target,
            headers,
            host,
            signed: &signed,
            payload: &proven.payload,
            time: &self.claim.time,
            scope: &self.claim.scope,
        };
        let signature = signable.sign(secret, proven.reading);
        let pieces = proven.pieces.as_ref();
        let pieces = pieces.map(|_| signable.chain(secret, &signature));
        let target = match self.claim.form {
            Form::Header => {
                let value = format!(
                    "{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
                );
                let mut value = HeaderValue::try_from(value).ok()?;
                // HTTP/2 keeps it out of the table of headers then (RFC 7541, 7.1.3).
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
                target
            }
            Form::Query => rewritten(&target, |name, _| match name {
                SIGNATURE => ParameterChange::With(signature.clone()),
                _ => ParameterChange::AsItIs,
            }),
        };
        Some(SignedRequest { target, pieces })
    }
}

/// Returns the value of a credential that is fetched on use, by its index among all. The values of
/// one key are of one fetch, even when a newer one arrives meanwhile. `None` if the key has no such
/// value.
pub(super) async fn fetched(
    signing: &mut Option<Signing>,
    egress: &Arc<Egress>,
    index: usize,
) -> Result<Option<Arc<Secret>>, fetch::FetchError> {
    let Some(held) = egress.credentials.get(index) else {
        return Ok(None);
    };
    let its = signing.as_mut().filter(|one| one.is_of(held.name()));
    let values = match its.as_ref().and_then(|signing| signing.key.clone()) {
        Some(values) => values,
        None => fetch::value(egress, index).await?,
    };
    let real = values.part(held.part).map(Arc::clone);
    if let Some(signing) = its {
        signing.key = Some(values);
    }
    Ok(real)
}

/// Injects a session token for its placeholder. If the key has none, the header is removed, and
/// then not signed either.
fn put_token(token: &CredentialPart, real: Option<&[u8]>, headers: &mut HeaderMap) -> Option<()> {
    let is_alone = headers.get_all(claim::TOKEN_HEADER).iter().count() == 1;
    let found = headers.get_mut(claim::TOKEN_HEADER);
    let Some(value) = found.filter(|value| value.as_bytes() == token.placeholder.as_bytes()) else {
        return Some(());
    };
    match real {
        Some(real) => {
            *value = HeaderValue::from_bytes(real).ok()?;
            value.set_sensitive(true);
            Some(())
        }
        // Another one beside it would become the first.
        None if !is_alone => None,
        None => headers.remove(claim::TOKEN_HEADER).map(drop),
    }
}

/// The change to one query parameter.
enum ParameterChange {
    AsItIs,
    With(String),
    LeftOut,
}

/// Returns a target with some parameters of its query replaced or removed.
fn rewritten(target: &str, change: impl Fn(&str, &str) -> ParameterChange) -> String {
    let Some((path, query)) = target.split_once('?') else {
        return target.to_owned();
    };
    let pair = |pair: &str| {
        let Some((name, value)) = pair.split_once('=') else {
            return Some(pair.to_owned());
        };
        match change(name, value) {
            ParameterChange::AsItIs => Some(pair.to_owned()),
            ParameterChange::With(other) => Some(format!("{name}={other}")),
            ParameterChange::LeftOut => None,
        }
    };
    let pairs: Vec<String> = query.split('&').filter_map(pair).collect();
    format!("{path}?{}", pairs.join("&"))
}

#[cfg(test)]
mod tests;
