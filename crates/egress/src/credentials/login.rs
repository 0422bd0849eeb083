//! Agents' logins that Atoll refreshes: when their token is no longer valid, and with the new one
//! written to this host's file before it is used.
//!
//! The file is read anew each time, under its lock: another run, or the agent outside, may have
//! refreshed it meanwhile. Then the issuer is not asked. If the issuer's response cannot be written
//! it is kept, and written the next time: the refresh token used for it may be worthless by then.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_model::network::{
    CREDENTIAL_BYTES_MAX, CredentialName, FlowKind, LoginTokens, RenewalForm, RenewalRequest,
    RenewalSaid, Renewed, TOKEN_PATIENCE_S,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::fetch::Source;
use super::oauth::{self, FORM, Form, MissingTokenType};
use super::own_request::{self, JSON, OwnRequest};
use super::store_client::{CredentialStoreClient, READING, WRITING};
use super::values::FetchedValue;
use crate::Egress;
use crate::secret::Secret;

/// The longest time for asking an issuer.
const ASKING: Duration = Duration::from_secs(TOKEN_PATIENCE_S);
/// The longest wait for a refresh in progress when the run ends. The store waits longer.
pub(super) const SETTLING: Duration = ASKING.saturating_add(WRITING);
/// The remaining validity below which a token of the file is not used.
const MARGIN: Duration = Duration::from_secs(60);
/// The expiry of a token as the sandbox sees it: in the year 2126, seconds since 1970.
const ENDS_S: u64 = 4_940_000_000;

/// An issuer's response that is not written yet, with the refresh token used for it.
pub(super) struct UnwrittenTokens {
    pub(super) by: Zeroizing<String>,
    pub(super) renewed: Renewed,
}

impl Source {
    /// Takes the response that could not be written, once.
    pub(super) fn unwritten(&self) -> Option<UnwrittenTokens> {
        let mut unwritten = self
            .unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        unwritten.take()
    }

    pub(super) fn keep_unwritten(&self, given: UnwrittenTokens) {
        let mut unwritten = self
            .unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *unwritten = Some(given);
    }
}

/// A login to be refreshed.
#[derive(Clone, Copy)]
pub(super) struct Login<'a> {
    /// The index of its access token among all credentials, and its name.
    pub(super) index: usize,
    pub(super) name: &'a CredentialName,
    /// The refresh request, and the credential with the refresh token.
    pub(super) request: &'a RenewalRequest,
    pub(super) by: &'a CredentialName,
}

/// Refreshes a login.
///
/// # Errors
/// The reason why there is no token, without any of its text.
pub(super) async fn fetch(
    egress: &Arc<Egress>,
    login: Login<'_>,
    source: &Source,
    current: Option<Arc<Secret>>,
) -> Result<FetchedValue, String> {
    let store = CredentialStoreClient::of(egress, login.name, "its login file").await?;
    let there = match store.receive(READING).await? {
        RenewalSaid::There(there) => there,
        RenewalSaid::Written => return Err(store.unclear()),
        RenewalSaid::Unfit(why) => return Err(why),
    };
    let _open = source.begin(egress).await?;
    let unwritten = source.unwritten();
    let unwritten = unwritten.filter(|one| *one.by == there.refresh);
    let is_other = current.is_none_or(|current| current.expose() != there.access.as_bytes());
    let given = match unwritten {
        Some(given) => given,
        None if is_other && is_fresh(&there) => return use_stored_token(egress, login, &there),
        None => UnwrittenTokens {
            by: Zeroizing::new(there.refresh.clone()),
            renewed: request_token(egress, login, source, &there).await?,
        },
    };
    let said = store.send(&given.renewed).await;
    let said = match said {
        Ok(()) => store.receive(WRITING).await,
        Err(why) => Err(why),
    };
    let why = match said {
        Ok(RenewalSaid::Written) => {
            let refresh = given.renewed.refresh.as_ref().unwrap_or(&given.by);
            egress.credentials.supersede(login, refresh);
            let ends = end_of(&given.renewed.access, given.renewed.ends_s);
            return Ok(FetchedValue::new(given.renewed.access.as_bytes(), ends));
        }
        // Somebody has logged in anew meanwhile.
        Ok(RenewalSaid::There(there)) => return use_stored_token(egress, login, &there),
        Ok(RenewalSaid::Unfit(why)) | Err(why) => why,
    };
    source.keep_unwritten(given);
    Err(format!(
        "it was renewed, and could not be written back: {why}"
    ))
}

/// Uses the token that is in the file.
fn use_stored_token(
    egress: &Egress,
    login: Login<'_>,
    there: &LoginTokens,
) -> Result<FetchedValue, String> {
    let refresh = Zeroizing::new(there.refresh.as_bytes().to_vec());
    let checked = egress.credentials.keep_refresh(login, refresh);
    checked.map_err(|why| format!("its login file: its refresh token: {why}"))?;
    egress.credentials.supersede(login, &there.refresh);
    let ends = end_of(&there.access, there.ends_s);
    Ok(FetchedValue::new(there.access.as_bytes(), ends))
}

fn is_fresh(there: &LoginTokens) -> bool {
    let ends = end_of(&there.access, there.ends_s);
    ends.is_none_or(|ends| SystemTime::now() + MARGIN < ends)
}

/// Requests another token, and checks that all of the response is fit.
async fn request_token(
    egress: &Arc<Egress>,
    login: Login<'_>,
    source: &Source,
    there: &LoginTokens,
) -> Result<Renewed, String> {
    let request = login.request;
    let refresh = Zeroizing::new(there.refresh.as_bytes().to_vec());
    let checked = egress.credentials.keep_refresh(login, refresh);
    checked.map_err(|why| format!("its login file: its refresh token: {why}"))?;
    egress.credentials.has_room(login.index)?;
    let published = source.published(request)?;
    let (kind, body) = body(request, &there.refresh, published.as_deref())?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let asking = OwnRequest {
        kind: FlowKind::Fetch,
        method: Method::POST,
        endpoint: &request.token,
        headers,
        body,
    };
    let asked_at = SystemTime::now();
    let answer = own_request::ask(egress, &source.network, login.name, asking, ASKING).await?;
    let host = &request.token.host;
    let read = oauth::read(&answer, asked_at, MissingTokenType::IsBearer);
    if let (true, Some(sent)) = (read.is_ok(), &published) {
        source.client_secret.has_worked(sent);
    }
    let read = read.map_err(|why| match why.contains("invalid_grant") {
        true => format!("{host}: {why}: log in again outside, with the agent's own command"),
        false => format!("{host}: {why}"),
    })?;
    let text = |value: &[u8]| {
        let text = std::str::from_utf8(value).map(str::to_owned);
        text.map_err(|_| format!("{host}: its answer has no text in it"))
    };
    let access = text(&read.fresh.value)?;
    let ends = read.fresh.ends.or_else(|| end_of(&access, None));
    // Nothing is written back that could not be used.
    let accepted = egress
        .credentials
        .accept(login.index, read.fresh.value, ends);
    accepted.map_err(|why| format!("{host}: {why}"))?;
    let refresh = match read.refresh {
        Some(refresh) => {
            let written = text(&refresh)?;
            let kept = egress.credentials.keep_refresh(login, refresh);
            kept.map_err(|why| format!("{host}: its new refresh token: {why}"))?;
            Some(written)
        }
        None => None,
    };
    let id = match read.id {
        Some(id) => {
            egress.credentials.is_nobodys(&id)?;
            Some(text(&id)?)
        }
        None => None,
    };
    let since = ends.and_then(|ends| ends.duration_since(UNIX_EPOCH).ok());
    Ok(Renewed {
        access,
        refresh,
        id,
        ends_s: since.map(|since| since.as_secs()),
    })
}

/// Returns the refresh request's body (RFC 6749, 6) and media type.
fn body(
    request: &RenewalRequest,
    refresh: &str,
    published: Option<&str>,
) -> Result<(&'static str, Zeroizing<Vec<u8>>), String> {
    let scope = (!request.scope.is_empty()).then(|| request.scope.join(" "));
    let fields = Fields {
        grant_type: "refresh_token",
        refresh_token: refresh,
        client_id: &request.client,
        client_secret: published,
        scope: scope.as_deref(),
    };
    match request.form {
        RenewalForm::Json => {
            let mut body = Zeroizing::new(Vec::with_capacity(4 * CREDENTIAL_BYTES_MAX));
            let written = serde_json::to_writer(&mut *body, &fields);
            written.map_err(|_| "it cannot be written")?;
            Ok((JSON, body))
        }
        RenewalForm::Form => {
            let mut form = Form::default();
            form.add("grant_type", fields.grant_type.as_bytes());
            form.add("refresh_token", refresh.as_bytes());
            form.add("client_id", fields.client_id.as_bytes());
            for (key, value) in [
                ("client_secret", fields.client_secret),
                ("scope", fields.scope),
            ] {
                if let Some(value) = value {
                    form.add(key, value.as_bytes());
                }
            }
            Ok((FORM, form.into_bytes()))
        }
    }
}

#[derive(Serialize)]
struct Fields<'a> {
    grant_type: &'a str,
    refresh_token: &'a str,
    client_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_secret: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
}

/// Returns a token's expiry: as stated beside it, or in it (RFC 7519, 4.1.4).
pub(super) fn end_of(access: &str, ends_s: Option<u64>) -> Option<SystemTime> {
    #[derive(Deserialize)]
    struct Claims {
        exp: u64,
    }
    let of_token = || {
        let mut parts = access.split('.');
        let (_, body, _) = (parts.next()?, parts.next()?, parts.next()?);
        let decoded = Zeroizing::new(URL_SAFE_NO_PAD.decode(body).ok()?);
        let claims: Claims = serde_json::from_slice(&decoded).ok()?;
        Some(claims.exp)
    };
    let ends = ends_s.or_else(of_token)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(ends))
}

/// Returns the same web token with the late expiry, in as many digits; `None` if it has no expiry.
pub(super) fn lasting(real: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let text = std::str::from_utf8(real).ok()?;
    let ends = end_of(text, None)?.duration_since(UNIX_EPOCH).ok()?;
    let mut parts = text.split('.');
    let (header, body, signature) = (parts.next()?, parts.next()?, parts.next()?);
    let decoded = Zeroizing::new(URL_SAFE_NO_PAD.decode(body).ok()?);
    let claims = Zeroizing::new(std::str::from_utf8(&decoded).ok()?.to_owned());
    let (before, after) = (ends.as_secs().to_string(), ENDS_S.to_string());
    let (name, rest) = claims.split_once("\"exp\"")?;
    let at = rest.find(&before)?;
    // Nothing but the colon is between them.
    let is_its = rest.get(..at)?.trim() == ":";
    if !is_its || before.len() != after.len() || parts.next().is_some() {
        return None;
    }
    let rest = Zeroizing::new(rest.replacen(&before, &after, 1));
    let changed = Zeroizing::new(format!("{name}\"exp\"{}", *rest));
    let changed = Zeroizing::new(URL_SAFE_NO_PAD.encode(changed.as_bytes()));
    let made = format!("{header}.{}.{signature}", *changed);
    Some(Zeroizing::new(made.into_bytes()))
}

#[cfg(test)]
mod tests {
    use atoll_model::network::PublishedSecret;

    use super::*;

    #[test]
    fn login_token_expiry_is_from_file_or_token() {
        let at = |seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let token = |claims: &str| {
            let parts = ["{\"alg\":\"none\"}", claims].map(|part| URL_SAFE_NO_PAD.encode(part));
            format!("{}.{}.c2lnbmF0dXJl", parts[0], parts[1])
        };
        assert_eq!(end_of("opaque", None), None);
        assert_eq!(end_of("opaque", Some(7)), at(7));
        assert_eq!(end_of(&token("{\"exp\":9,\"sub\":\"a\"}"), None), at(9));
        assert_eq!(end_of(&token("{\"exp\":9}"), Some(7)), at(7));
        assert_eq!(end_of(&token("{\"exp\":\"9\"}"), None), None);
        assert_eq!(end_of("a.!.c", None), None);
    }

    const SIGNATURE: &str = "s1gn4tur3OfTh1sT3stWh1chN0Ag3ntM4yS33iNf1lesN0rInM3m0ry";

    #[test]
    fn renewed_token_placeholder_claims_long_validity() {
        let token = |claims: &str| {
            let parts = ["{\"alg\":\"RS256\"}", claims].map(|part| URL_SAFE_NO_PAD.encode(part));
            format!("{}.{}.{}", parts[0], parts[1], SIGNATURE)
        };
        let real = token("{\"sub\":\"somebody\",\"exp\":1700000000,\"email\":\"ann@example.com\"}");
        let made = super::super::make_renewed_placeholder(real.as_bytes()).unwrap();
        let made = String::from_utf8(made).unwrap();
        assert_eq!(end_of(&made, None), end_of("", Some(ENDS_S)), "{made}");
        assert_eq!(made.len(), real.len());
        assert!(!made.contains(SIGNATURE), "{made}");
        for other in ["opaque", &token("{\"sub\":1}"), &token("{\"exp\":9}")] {
            assert!(lasting(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn renewal_request_has_issuers_format() {
        let mut request = RenewalRequest {
            token: "https://login.example/token".parse().unwrap(),
            client: "a client".to_owned(),
            published: PublishedSecret::None,
            form: RenewalForm::Json,
            scope: Vec::new(),
        };
        let (kind, sent) = body(&request, "a\"token", None).unwrap();
        assert_eq!(kind, "application/json");
        assert_eq!(
            std::str::from_utf8(&sent).unwrap(),
            "{\"grant_type\":\"refresh_token\",\"refresh_token\":\"a\\\"token\",\"client_id\":\"a client\"}"
        );
        request.form = RenewalForm::Form;
        request.scope = vec!["one".to_owned(), "two".to_owned()];
        let (kind, sent) = body(&request, "a&token", Some("published")).unwrap();
        assert_eq!(kind, "application/x-www-form-urlencoded");
        assert_eq!(
            std::str::from_utf8(&sent).unwrap(),
            "grant_type=refresh_token&refresh_token=a%26token&client_id=a+client&client_secret=published&scope=one+two"
        );
    }
}
