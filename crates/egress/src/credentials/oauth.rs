//! OAuth 2.0 tokens: requested when a request needs one, and revoked at the end.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use atoll_model::network::{
    ClientAuthentication, CredentialName, FlowKind, Ingredient, OAuthRequest, TokenGrant,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use serde::Deserialize;
use zeroize::{Zeroize, Zeroizing};

use super::fetch::Source;
use super::own_request::{self, OwnRequest, OwnResponse};
use super::rotation;
use super::values::FetchedValue;
use crate::Egress;
use crate::secret::Secret;

/// The media type of forms.
pub(super) const FORM: &str = "application/x-www-form-urlencoded";
/// The grant type of token exchange (RFC 8693, 2.1).
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
/// The longest lifetime that an issuer is believed, seconds.
const LIFE_S_MAX: u64 = 10 * 365 * 24 * 60 * 60;
/// The standard error codes of an issuer (RFC 6749, 5.2 and 4.1.2.1; RFC 8693, 2.2.2; RFC 8628,
/// 3.5; RFC 7009, 2.2.1). Other texts are not repeated: anything could be in them.
const ERRORS: &[&str] = &[
    "access_denied",
    "invalid_client",
    "invalid_grant",
    "invalid_request",
    "invalid_scope",
    "invalid_target",
    "server_error",
    "slow_down",
    "temporarily_unavailable",
    "unauthorized_client",
    "unsupported_grant_type",
    "unsupported_token_type",
];

/// Obtains a token.
///
/// # Errors
/// The reason why there is none, without any secret.
pub(super) async fn fetch(
    egress: &Arc<Egress>,
    index: usize,
    name: &CredentialName,
    source: &Source,
    request: &OAuthRequest,
) -> Result<FetchedValue, String> {
    match request.grant {
        TokenGrant::Refresh => rotation::fetch(egress, index, name, source, request).await,
        TokenGrant::ClientCredentials | TokenGrant::Exchange { .. } => {
            Ok(request_token(egress, name, source, request).await?.fresh)
        }
    }
}

/// Requests a token once.
///
/// # Errors
/// As [`fetch`].
pub(super) async fn request_token(
    egress: &Arc<Egress>,
    name: &CredentialName,
    source: &Source,
    request: &OAuthRequest,
) -> Result<TokenContents, String> {
    let mut form = Form::default();
    match &request.grant {
        TokenGrant::ClientCredentials => {
            form.add("grant_type", b"client_credentials");
        }
        TokenGrant::Refresh => {
            let token = source.ingredient(Ingredient::RefreshToken)?;
            form.add("grant_type", b"refresh_token");
            form.add("refresh_token", token.expose());
        }
        TokenGrant::Exchange { kind } => {
            let token = source.ingredient(Ingredient::SubjectToken)?;
            form.add("grant_type", EXCHANGE.as_bytes());
            form.add("subject_token", token.expose());
            form.add("subject_token_type", kind.as_bytes());
        }
    }
    if !request.scope.is_empty() {
        form.add("scope", request.scope.join(" ").as_bytes());
    }
    for (key, values) in [
        ("audience", &request.audience),
        ("resource", &request.resource),
    ] {
        values.iter().for_each(|one| form.add(key, one.as_bytes()));
    }
    let headers = authenticated(&mut form, source, request)?;
    let asking = OwnRequest {
        kind: FlowKind::Fetch,
        method: Method::POST,
        endpoint: &request.token,
        headers,
        body: form.0,
    };
    let patience = Duration::from_secs(request.patience_s);
    let asked_at = SystemTime::now();
    let answer = own_request::ask(egress, &source.network, name, asking, patience).await?;
    let host = &request.token.host;
    read(&answer, asked_at, MissingTokenType::IsRefused).map_err(|why| format!("{host}: {why}"))
}

/// Revokes a token (RFC 7009).
///
/// # Errors
/// The reason why it may still be valid.
pub(super) async fn revoke(
    egress: &Arc<Egress>,
    name: &CredentialName,
    source: &Source,
    request: &OAuthRequest,
    token: &Secret,
    patience: Duration,
) -> Result<(), String> {
    let Some(endpoint) = &request.revoke else {
        return Ok(());
    };
    let mut form = Form::default();
    form.add("token", token.expose());
    form.add("token_type_hint", b"access_token");
    let headers = authenticated(&mut form, source, request)?;
    let asking = OwnRequest {
        kind: FlowKind::Revocation,
        method: Method::POST,
        endpoint,
        headers,
        body: form.0,
    };
    own_request::ask(egress, &source.network, name, asking, patience)
        .await
        .map(drop)
}

/// Authenticates the client, in the form or in a header.
fn authenticated(
    form: &mut Form,
    source: &Source,
    request: &OAuthRequest,
) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(FORM));
    match request.authentication {
        ClientAuthentication::Public => form.add("client_id", request.client.as_bytes()),
        ClientAuthentication::Post => {
            let secret = source.ingredient(Ingredient::ClientSecret)?;
            form.add("client_id", request.client.as_bytes());
            form.add("client_secret", secret.expose());
        }
        ClientAuthentication::Basic => {
            let secret = source.ingredient(Ingredient::ClientSecret)?;
            let mut user = Form::default();
            user.escape(request.client.as_bytes());
            user.0.push(b':');
            user.escape(secret.expose());
            let mut value = Zeroizing::new(b"Basic ".to_vec());
            value.extend_from_slice(STANDARD.encode(&*user.0).as_bytes());
            let value = HeaderValue::from_bytes(&value);
            let mut value = value.map_err(|_| "its client's secret cannot be written")?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
    }
    Ok(headers)
}

/// A form as it is sent.
pub(super) struct Form(Zeroizing<Vec<u8>>);

/// The capacity of a form, bytes: two secrets and three lists of names with every byte escaped. So
/// it never grows, and leaves no copy behind.
const FORM_BYTES: usize = 256 * 1024;

impl Default for Form {
    fn default() -> Self {
        Self(Zeroizing::new(Vec::with_capacity(FORM_BYTES)))
    }
}

impl Form {
    pub(super) fn into_bytes(self) -> Zeroizing<Vec<u8>> {
        self.0
    }

    pub(super) fn add(&mut self, key: &str, value: &[u8]) {
        if !self.0.is_empty() {
            self.0.push(b'&');
        }
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
        self.escape(value);
    }

    /// Appends a text with form encoding (RFC 6749, appendix B).
    fn escape(&mut self, text: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or(b'0');
        for byte in text {
            match byte {
                b' ' => self.0.push(b'+'),
                byte if byte.is_ascii_alphanumeric() || b"-._*".contains(byte) => {
                    self.0.push(*byte);
                }
                byte => {
                    let escaped = [b'%', digit(byte >> 4), digit(byte & 15)];
                    self.0.extend_from_slice(&escaped);
                }
            }
        }
    }
}

/// The contents of a token response.
pub(super) struct TokenContents {
    pub(super) fresh: FetchedValue,
    /// The refresh token for the next time.
    pub(super) refresh: Option<Zeroizing<Vec<u8>>>,
    /// The ID token (OpenID Connect).
    pub(super) id: Option<Zeroizing<Vec<u8>>>,
}

/// The handling of a token whose issuer does not state the type, as it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingTokenType {
    /// Refused: the type is unknown.
    IsRefused,
    /// Taken for a bearer token, as the one before it was: issuers of agents' logins omit the type.
    IsBearer,
}

/// A token response (RFC 6749, 5.1). A repeated member is refused.
#[derive(Deserialize)]
struct TokenResponse {
    #[serde(default)]
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<TokenLifetime>,
    #[serde(default)]
    refresh_token: String,
    #[serde(default)]
    id_token: String,
}

impl Drop for TokenResponse {
    fn drop(&mut self) {
        self.access_token.zeroize();
        self.refresh_token.zeroize();
        self.id_token.zeroize();
    }
}

/// A token's lifetime, seconds; some issuers write it as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum TokenLifetime {
    Number(u64),
    Text(String),
}

#[derive(Deserialize)]
struct Refusal {
    error: Option<String>,
}

/// Reads a token response.
pub(super) fn read(
    answer: &OwnResponse,
    asked_at: SystemTime,
    missing_type: MissingTokenType,
) -> Result<TokenContents, String> {
    if answer.status != StatusCode::OK {
        return Err(refusal_text(answer));
    }
    if !answer.is_json {
        return Err("its answer is not of the type application/json".to_owned());
    }
    // What the library says of a mistake can have a part of the value in it.
    let read = serde_json::from_slice::<TokenResponse>(&answer.body);
    let granted = read.map_err(|_| "its answer is no JSON with a token".to_owned())?;
    if granted.access_token.is_empty() {
        return Err(match standard_error(answer) {
            Some(error) => format!("it refuses: {error}"),
            None => "its answer has no access_token".to_owned(),
        });
    }
    let kind = granted.token_type.as_deref();
    match kind {
        Some(kind) if kind.eq_ignore_ascii_case("Bearer") => {}
        Some(_) => return Err("its token is of another type than Bearer".to_owned()),
        None if missing_type == MissingTokenType::IsBearer => {}
        None => return Err("its answer does not say that its token is a Bearer".to_owned()),
    }
    let life = match &granted.expires_in {
        None => None,
        Some(TokenLifetime::Number(seconds)) => Some(*seconds),
        Some(TokenLifetime::Text(text)) => {
            let seconds = text.parse::<u64>();
            Some(seconds.map_err(|_| "its expires_in is no number of seconds".to_owned())?)
        }
    };
    // From when it was asked: it is not longer good than that.
    let ends =
        life.and_then(|life| asked_at.checked_add(Duration::from_secs(life.min(LIFE_S_MAX))));
    let some = |text: &str| (!text.is_empty()).then(|| Zeroizing::new(text.as_bytes().to_vec()));
    Ok(TokenContents {
        fresh: FetchedValue::new(granted.access_token.as_bytes(), ends),
        refresh: some(&granted.refresh_token),
        id: some(&granted.id_token),
    })
}

/// Returns why a response of another status has no token.
fn refusal_text(answer: &OwnResponse) -> String {
    let status = answer.status.as_u16();
    match standard_error(answer) {
        Some(error) => format!("it answers {status}: {error}"),
        None => format!("it answers {status}"),
    }
}

fn standard_error(answer: &OwnResponse) -> Option<&'static str> {
    let refusal: Refusal = serde_json::from_slice(&answer.body).ok()?;
    let error = refusal.error?;
    let known = ERRORS.iter().find(|known| **known == error);
    Some(known.copied().unwrap_or("an error of its own"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> OwnResponse {
        OwnResponse {
            status: StatusCode::from_u16(status).unwrap(),
            is_json: true,
            body: Zeroizing::new(body.as_bytes().to_vec()),
        }
    }

    #[test]
    fn token_response_is_parsed_strictly() {
        let now = SystemTime::now();
        let plain = "\"access_token\":\"one-of-them\",\"token_type\":\"bEaReR\"";
        for (further, life, refresh) in [
            ("", None, None),
            (",\"expires_in\":60", Some(60), None),
            (",\"expires_in\":\"60\",\"scope\":\"a b\"", Some(60), None),
            (",\"refresh_token\":\"next\"", None, Some(&b"next"[..])),
            (
                ",\"expires_in\":18446744073709551615",
                Some(LIFE_S_MAX),
                None,
            ),
        ] {
            let answer = answer(200, &format!("{{{plain}{further}}}"));
            let read = read(&answer, now, MissingTokenType::IsRefused).unwrap();
            assert_eq!(&read.fresh.value[..], b"one-of-them");
            let ends = life.map(|life| now + Duration::from_secs(life));
            assert_eq!(read.fresh.ends, ends, "{further}");
            assert_eq!(read.refresh.as_deref().map(Vec::as_slice), refresh);
        }
        for (status, body, why) in [
            (200, "{}", "no access_token"),
            (200, "[]", "no JSON with a token"),
            (200, "access_token=one-of-them", "no JSON with a token"),
            (
                200,
                "{\"access_token\":\"\",\"token_type\":\"Bearer\"}",
                "no access_token",
            ),
            (
                200,
                "{\"access_token\":7,\"token_type\":\"Bearer\"}",
                "no JSON",
            ),
            (200, "{\"access_token\":\"one-of-them\"}", "does not say"),
            (
                200,
                "{\"access_token\":\"one-of-them\",\"token_type\":\"DPoP\"}",
                "another type",
            ),
            (
                200,
                "{\"access_token\":\"one-of-them\",\"access_token\":\"two-of-them\",\"token_type\":\"Bearer\"}",
                "no JSON with a token",
            ),
            (
                200,
                "{\"access_token\":\"one-of-them\",\"token_type\":\"Bearer\",\"expires_in\":-1}",
                "no JSON with a token",
            ),
            (
                200,
                "{\"access_token\":\"one-of-them\",\"token_type\":\"Bearer\",\"expires_in\":\"soon\"}",
                "no number of seconds",
            ),
            (
                200,
                "{\"error\":\"bad_verification_code\"}",
                "it refuses: an error of its own",
            ),
            (
                201,
                "{\"access_token\":\"one-of-them\",\"token_type\":\"Bearer\"}",
                "it answers 201",
            ),
            (
                400,
                "{\"error\":\"invalid_grant\"}",
                "it answers 400: invalid_grant",
            ),
            (
                401,
                "{\"error\":\"one-of-them\"}",
                "it answers 401: an error of its own",
            ),
            (500, "one-of-them", "it answers 500"),
        ] {
            let said = read(&answer(status, body), now, MissingTokenType::IsRefused);
            let said = said.map(drop).unwrap_err();
            assert!(said.contains(why), "{body}: {said}");
            assert!(!said.contains("-of-them"), "{body}: {said}");
        }
        let mut page = answer(200, &format!("{{{plain}}}"));
        page.is_json = false;
        let said = read(&page, now, MissingTokenType::IsBearer)
            .map(drop)
            .unwrap_err();
        assert!(said.contains("not of the type"), "{said}");
        let missing_type = answer(
            200,
            "{\"access_token\":\"one-of-them\",\"id_token\":\"who\"}",
        );
        let read = read(&missing_type, now, MissingTokenType::IsBearer).unwrap();
        assert_eq!(read.id.as_deref().map(Vec::as_slice), Some(&b"who"[..]));
    }

    #[test]
    fn token_request_form_is_escaped() {
        let mut form = Form::default();
        form.add("scope", b"read:a write/b");
        form.add("secret", "a+b&c=d%\u{e9}~*".as_bytes());
        let text = "scope=read%3Aa+write%2Fb&secret=a%2Bb%26c%3Dd%25%C3%A9%7E*";
        assert_eq!(String::from_utf8(form.0.to_vec()).unwrap(), text);
    }
}
