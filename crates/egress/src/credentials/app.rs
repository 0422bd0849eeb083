//! Installation tokens of a GitHub App: requested by an assertion signed with the app's key, for
//! the named rights alone, and revoked at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_model::network::{AppRequest, CredentialName, FlowKind, Ingredient, Permission};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::answer;
use super::fetch::Source;
use super::own_request::{self, JSON, OwnRequest, OwnResponse};
use super::values::FetchedValue;
use crate::Egress;
use crate::secret::Secret;

/// The tolerance for this host's clock being ahead, and the validity of an assertion.
const BEFORE: Duration = Duration::from_secs(60);
const GOOD: Duration = Duration::from_secs(300);
/// Headers that GitHub's documentation requires of every request.
const KIND: &str = "application/vnd.github+json";
const VERSION: (&str, &str) = ("x-github-api-version", "2022-11-28");
/// The permission that every token has, requested or not.
const ALWAYS: &str = "metadata";

/// Checks that a text can be the key of an app: RSA, in PEM.
///
/// # Errors
/// The reason why it is not, in words.
pub fn check_app_key(text: &[u8]) -> Result<(), String> {
    key(text).map(drop)
}

fn key(text: &[u8]) -> Result<RsaKeyPair, String> {
    let read = PrivateKeyDer::from_pem_slice(text).map_err(|_| "it is no private key in PEM")?;
    let key = match &read {
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
        _ => return Err("it is a key of another kind than RSA".to_owned()),
    };
    let key = key.map_err(|_| "it is no RSA key of 2048 bits or more".to_owned());
    let mut read = read;
    read.zeroize();
    key
}

/// Builds and signs the app's assertion (RFC 7519).
fn statement(app: u64, key: &RsaKeyPair, now: SystemTime) -> Result<Zeroizing<String>, String> {
    let since = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs()
    };
    let header = URL_SAFE_NO_PAD.encode(br#"{"alg":"RS256","typ":"JWT"}"#);
    let claims = format!(
        "{{\"iat\":{},\"exp\":{},\"iss\":{app}}}",
        since(now).saturating_sub(BEFORE.as_secs()),
        since(now) + GOOD.as_secs()
    );
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    let mut signature = vec![0; key.public_modulus_len()];
    let random = SystemRandom::new();
    key.sign(
        &RSA_PKCS1_SHA256,
        &random,
        signed.as_bytes(),
        &mut signature,
    )
    .map_err(|_| "its key does not sign".to_owned())?;
    let signature = URL_SAFE_NO_PAD.encode(signature);
    Ok(Zeroizing::new(format!("{signed}.{signature}")))
}

/// The body of a token request.
#[derive(Serialize)]
struct TokenRequestBody<'a> {
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    repositories: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    permissions: &'a BTreeMap<String, Permission>,
}

/// Requests a token.
///
/// # Errors
/// The reason why there is none, without any secret.
pub(super) async fn fetch(
    egress: &Arc<Egress>,
    name: &CredentialName,
    source: &Source,
    request: &AppRequest,
) -> Result<FetchedValue, String> {
    let text = source.ingredient(Ingredient::PrivateKey)?;
    let key = key(text.expose()).map_err(|why| format!("its key: {why}"))?;
    let statement = statement(request.app, &key, SystemTime::now())?;
    let wanted = TokenRequestBody {
        repositories: &request.repositories,
        permissions: &request.permissions,
    };
    let body = serde_json::to_vec(&wanted).map_err(|_| "it cannot be written".to_owned())?;
    let path = format!("/app/installations/{}/access_tokens", request.installation);
    let endpoint = request.api.beneath(&path);
    let mut headers = headers(statement.as_bytes())?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    let asking = OwnRequest {
        kind: FlowKind::Fetch,
        method: Method::POST,
        endpoint: &endpoint,
        headers,
        body: Zeroizing::new(body),
    };
    let patience = Duration::from_secs(request.patience_s);
    let answer = own_request::ask(egress, &source.network, name, asking, patience).await?;
    let host = &request.api.host;
    read(&answer, request).map_err(|why| format!("{host}: {why}"))
}

/// Revokes a token.
///
/// # Errors
/// The reason why it may still be valid.
pub(super) async fn revoke(
    egress: &Arc<Egress>,
    name: &CredentialName,
    source: &Source,
    request: &AppRequest,
    token: &Secret,
    patience: Duration,
) -> Result<(), String> {
    let endpoint = request.api.beneath("/installation/token");
    let asking = OwnRequest {
        kind: FlowKind::Revocation,
        method: Method::DELETE,
        endpoint: &endpoint,
        headers: headers(token.expose())?,
        body: Zeroizing::default(),
    };
    own_request::ask(egress, &source.network, name, asking, patience)
        .await
        .map(drop)
}

fn headers(bearer: &[u8]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let mut text = Zeroizing::new(b"Bearer ".to_vec());
    text.extend_from_slice(bearer);
    let value = HeaderValue::from_bytes(&text);
    let mut value = value.map_err(|_| "who asks cannot be written".to_owned())?;
    value.set_sensitive(true);
    headers.insert(AUTHORIZATION, value);
    headers.insert(ACCEPT, HeaderValue::from_static(KIND));
    let (version, date) = VERSION;
    headers.insert(version, HeaderValue::from_static(date));
    Ok(headers)
}

/// A token response, as far as it is used.
#[derive(Deserialize)]
struct TokenResponse {
    token: String,
    expires_at: String,
    #[serde(default)]
    permissions: BTreeMap<String, String>,
    repository_selection: Option<String>,
    #[serde(default)]
    repositories: Vec<Repository>,
}

impl Drop for TokenResponse {
    fn drop(&mut self) {
        self.token.zeroize();
    }
}

#[derive(Deserialize)]
struct Repository {
    name: String,
}

/// Reads a token response, which must grant what was requested and no more.
fn read(answer: &OwnResponse, request: &AppRequest) -> Result<FetchedValue, String> {
    match answer.status {
        StatusCode::CREATED => {}
        StatusCode::UNAUTHORIZED => {
            return Err("it does not know the app by this key (401)".to_owned());
        }
        StatusCode::NOT_FOUND => {
            return Err("it knows no such installation of the app (404)".to_owned());
        }
        StatusCode::UNPROCESSABLE_ENTITY => {
            return Err(
                "the installation has not all of these repositories and permissions (422)"
                    .to_owned(),
            );
        }
        status => return Err(format!("it answers {}", status.as_u16())),
    }
    if !answer.is_json {
        return Err("its answer is not of the type application/json".to_owned());
    }
    // What the library says of a mistake can have a part of the value in it.
    let read = serde_json::from_slice::<TokenResponse>(&answer.body);
    let granted = read.map_err(|_| "its answer is no JSON with a token".to_owned())?;
    let ends = answer::time_of(&granted.expires_at);
    let ends = ends.ok_or_else(|| "its expires_at is no time".to_owned())?;
    let exceeds = |(name, level): (&String, &String)| {
        let level = Permission::ALL.iter().find(|one| one.name() == level);
        let asked = request.permissions.get(name);
        let is_within = level
            .zip(asked)
            .is_some_and(|(level, asked)| level <= asked);
        let is_given_always = name == ALWAYS && level == Some(&Permission::Read);
        !(is_within || is_given_always)
    };
    if !request.permissions.is_empty() && granted.permissions.iter().any(exceeds) {
        return Err("its token may do more than was asked for".to_owned());
    }
    let is_asked = |one: &Repository| {
        let mut asked = request.repositories.iter();
        asked.any(|name| name.eq_ignore_ascii_case(&one.name))
    };
    let is_for_all = granted.repository_selection.as_deref() != Some("selected");
    let is_wider = is_for_all || !granted.repositories.iter().all(is_asked);
    if !request.repositories.is_empty() && is_wider {
        return Err("its token is for more repositories than were asked for".to_owned());
    }
    Ok(FetchedValue::new(granted.token.as_bytes(), Some(ends)))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn pem(kind: &str, der: &[u8]) -> String {
        let text = STANDARD.encode(der);
        format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n")
    }

    #[test]
    fn github_app_signs_with_rsa_key() {
        let made = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let der = made.as_der().unwrap();
        let text = pem("PRIVATE KEY", der.as_ref());
        let key = key(text.as_bytes()).unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let statement = statement(123, &key, now).unwrap();
        let (signed, signature) = statement.rsplit_once('.').unwrap();
        let public = UnparsedPublicKey::new(
            &RSA_PKCS1_2048_8192_SHA256,
            made.public_key().as_ref().to_vec(),
        );
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        public.verify(signed.as_bytes(), &signature).unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let text = |part: &str| String::from_utf8(URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        assert_eq!(text(header), r#"{"alg":"RS256","typ":"JWT"}"#);
        assert_eq!(
            text(claims),
            r#"{"iat":1699999940,"exp":1700000300,"iss":123}"#
        );
        for (no_key, why) in [
            ("a secret word", "no private key in PEM"),
            (&pem("RSA PRIVATE KEY", b"short"), "no RSA key"),
            (&pem("EC PRIVATE KEY", b"short"), "another kind than RSA"),
            (&pem("PUBLIC KEY", b"short"), "no private key in PEM"),
        ] {
            let said = check_app_key(no_key.as_bytes()).unwrap_err();
            assert!(said.contains(why), "{no_key}: {said}");
        }
    }

    #[test]
    fn github_app_token_covers_only_the_request() {
        let request = |repositories: &[&str], permissions: &[(&str, Permission)]| AppRequest {
            api: "https://api.github.com".parse().unwrap(),
            app: 1,
            installation: 2,
            repositories: repositories.iter().map(|one| (*one).to_owned()).collect(),
            permissions: permissions
                .iter()
                .map(|(name, level)| ((*name).to_owned(), *level))
                .collect(),
            patience_s: 30,
        };
        let narrow = request(&["one"], &[("contents", Permission::Read)]);
        let broad = request(&[], &[]);
        let answer = |status: u16, further: &str| {
            OwnResponse {
            status: StatusCode::from_u16(status).unwrap(),
            is_json: true,
            body: Zeroizing::new(
                format!(
                    "{{\"token\":\"ghs_one-of-them\",\"expires_at\":\"2030-01-01T00:00:00Z\"{further}}}"
                )
                .into_bytes(),
            ),
        }
        };
        let selected =
            ",\"repository_selection\":\"selected\",\"repositories\":[{\"name\":\"One\",\"id\":1}]";
        let reads = ",\"permissions\":{\"contents\":\"read\",\"metadata\":\"read\"}";
        for (request, further) in [
            (&narrow, format!("{selected}{reads}")),
            (&broad, format!("{selected}{reads}")),
            (&broad, ",\"repository_selection\":\"all\"".to_owned()),
        ] {
            let fresh = read(&answer(201, &further), request).unwrap();
            assert_eq!(&fresh.value[..], b"ghs_one-of-them");
            assert!(fresh.ends.is_some());
        }
        let more = "may do more";
        for (status, further, why) in [
            (201, reads.to_owned(), "more repositories"),
            (
                201,
                format!("{reads},\"repository_selection\":\"all\""),
                "more repositories",
            ),
            (
                201,
                format!(
                    "{reads},\"repository_selection\":\"selected\",\"repositories\":[{{\"name\":\"two\"}}]"
                ),
                "more repositories",
            ),
            (
                201,
                format!("{selected},\"permissions\":{{\"contents\":\"write\"}}"),
                more,
            ),
            (
                201,
                format!("{selected},\"permissions\":{{\"contents\":\"unheard-of\"}}"),
                more,
            ),
            (
                201,
                format!("{selected},\"permissions\":{{\"issues\":\"read\"}}"),
                more,
            ),
            (
                201,
                format!("{selected},\"permissions\":{{\"metadata\":\"write\"}}"),
                more,
            ),
            (200, String::new(), "it answers 200"),
            (401, String::new(), "by this key"),
            (404, String::new(), "no such installation"),
            (422, String::new(), "has not all of these"),
            (
                201,
                ",\"token\":\"two-of-them\"".to_owned(),
                "no JSON with a token",
            ),
        ] {
            let said = read(&answer(status, &further), &narrow)
                .map(drop)
                .unwrap_err();
            assert!(said.contains(why), "{further}: {said}");
            assert!(!said.contains("-of-them"), "{said}");
        }
        let mut late = answer(201, selected);
        late.body = Zeroizing::new(b"{\"token\":\"a\",\"expires_at\":\"soon\"}".to_vec());
        assert!(
            read(&late, &broad)
                .map(drop)
                .unwrap_err()
                .contains("no time")
        );
    }
}
