//! Senders of requests, as the heads of E2B's clients tell of them: keys, tokens and users.

use atoll_model::RESIDENT;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::answers::header_of;
use crate::protocol::{Credential, Kind, Refusal};

/// Returns the key that came with a request.
pub(crate) fn credential(headers: &HeaderMap) -> Credential {
    let bearer = || header_of(headers, "authorization")?.strip_prefix("Bearer ");
    let key = header_of(headers, "x-api-key").or_else(bearer);
    key.map_or(Credential::Nothing, |key| Credential::Key(key.to_owned()))
}

/// Returns the name that a request is carried out once by.
pub(crate) fn once(headers: &HeaderMap) -> Option<String> {
    header_of(headers, "idempotency-key").map(str::to_owned)
}

/// Returns the access token that came with a request.
pub(crate) fn token(headers: &HeaderMap) -> Credential {
    let token = header_of(headers, "x-access-token").map(str::to_owned);
    token.map_or(Credential::Nothing, Credential::Token)
}

/// Returns the user that a request names: `Authorization: Basic` of the name and no password.
pub(crate) fn asked_user(headers: &HeaderMap) -> Option<String> {
    let encoded = header_of(headers, "authorization")?.strip_prefix("Basic ")?;
    let decoded = BASE64_STANDARD.decode(encoded.trim()).unwrap_or_default();
    let text = String::from_utf8_lossy(&decoded).into_owned();
    let name = text.split(':').next().unwrap_or_default();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Checks the user that a request about files names.
pub(crate) fn check_user(headers: &HeaderMap) -> Result<(), Refusal> {
    asked_user(headers).map_or(Ok(()), |name| named_user(&name))
}

/// Refuses a user that is not there.
pub(crate) fn named_user(name: &str) -> Result<(), Refusal> {
    match name {
        "" => Ok(()),
        name if name == RESIDENT.name => Ok(()),
        name => Err(
            Refusal::new(Kind::Unauthenticated, format!("invalid username: '{name}'")).advise(
                format!("files are reached, and made, for {:?}", RESIDENT.name),
            ),
        ),
    }
}
