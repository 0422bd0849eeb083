//! Tokens of a Kubernetes service account, by its TokenRequest API: for one account of one namespace,
//! and as short as the API gives them.

use std::sync::Arc;
use std::time::Duration;

use atoll_model::network::{CredentialName, FlowKind, Ingredient, KubernetesRequest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use zeroize::{Zeroize, Zeroizing};

use super::answer;
use super::fetch::Source;
use super::own_request::{self, JSON, OwnRequest, OwnResponse};
use super::values::FetchedValue;
use crate::Egress;

/// The validity that is asked for, seconds: the API gives none of less.
const LIFE_S: u64 = 600;

/// Requests a token.
///
/// # Errors
/// The reason why there is none, without any secret.
pub(super) async fn fetch(
    egress: &Arc<Egress>,
    name: &CredentialName,
    source: &Source,
    request: &KubernetesRequest,
) -> Result<FetchedValue, String> {
    let text = source.ingredient(Ingredient::SubjectToken)?;
    let bearer = Zeroizing::new([b"Bearer ", text.expose()].concat());
    let value = HeaderValue::from_bytes(&bearer);
    let mut value = value.map_err(|_| "who asks cannot be written".to_owned())?;
    value.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, value);
    headers.insert(ACCEPT, HeaderValue::from_static(JSON));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    let mut wanted = json!({ "expirationSeconds": LIFE_S });
    if let (false, Some(wanted)) = (request.audience.is_empty(), wanted.as_object_mut()) {
        wanted.insert("audiences".to_owned(), json!(request.audience));
    }
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": wanted,
    });
    let (namespace, account) = (&request.namespace, &request.account);
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let endpoint = request.server.beneath(&path);
    let asking = OwnRequest {
        kind: FlowKind::Fetch,
        method: Method::POST,
        endpoint: &endpoint,
        headers,
        body: Zeroizing::new(body.to_string().into_bytes()),
    };
    let patience = Duration::from_secs(request.patience_s);
    let answer = own_request::ask(egress, &source.network, name, asking, patience).await?;
    let host = &request.server.host;
    read(&answer, request).map_err(|why| format!("{host}: {why}"))
}

/// A response, as far as it is used.
#[derive(Deserialize)]
struct TokenResponse {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: String,
    expiration_timestamp: String,
}

impl Drop for Status {
    fn drop(&mut self) {
        self.token.zeroize();
    }
}

/// The account that a token is of, as it says.
#[derive(Deserialize)]
struct Claims {
    sub: String,
}

/// Reads a response, whose token must be one of the account that was asked for.
fn read(answer: &OwnResponse, request: &KubernetesRequest) -> Result<FetchedValue, String> {
    match answer.status {
        StatusCode::CREATED | StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => {
            return Err("it does not know who asks by this token (401)".to_owned());
        }
        StatusCode::FORBIDDEN => {
            return Err("who asks may not create tokens of the service account (403)".to_owned());
        }
        StatusCode::NOT_FOUND => {
            return Err("it knows no such service account in the namespace (404)".to_owned());
        }
        status => return Err(format!("it answers {}", status.as_u16())),
    }
    if !answer.is_json {
        return Err("its answer is not of the type application/json".to_owned());
    }
    // What the library says of a mistake can have a part of the value in it.
    let read = serde_json::from_slice::<TokenResponse>(&answer.body);
    let given = read.map_err(|_| "its answer is no JSON with a token".to_owned())?;
    let ends = answer::time_of(&given.status.expiration_timestamp);
    let ends = ends.ok_or_else(|| "its expirationTimestamp is no time".to_owned())?;
    let expected = format!(
        "system:serviceaccount:{}:{}",
        request.namespace, request.account
    );
    match account(&given.status.token) {
        Some(account) if account == expected => {}
        Some(_) => return Err("its token is of another account than was asked for".to_owned()),
        None => return Err("its token does not say whose it is".to_owned()),
    }
    let token = given.status.token.as_bytes();
    Ok(FetchedValue::new(token, Some(ends)))
}

/// Returns the account that a token says it is of (RFC 7519, `sub`).
fn account(token: &str) -> Option<String> {
    let claims = token.split('.').nth(1)?;
    let claims = Zeroizing::new(URL_SAFE_NO_PAD.decode(claims).ok()?);
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    Some(claims.sub)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_the_account_that_was_asked_for() {
        let request = KubernetesRequest {
            server: "https://k8s.example.com".parse().unwrap(),
            namespace: "staging".to_owned(),
            account: "reader".to_owned(),
            audience: Vec::new(),
            patience_s: 30,
        };
        let token = |subject: &str| {
            let claims = URL_SAFE_NO_PAD.encode(format!("{{\"sub\":\"{subject}\"}}"));
            format!("eyJh.{claims}.c2ln")
        };
        let answer = |status: u16, token: &str, ends: &str| OwnResponse {
            status: StatusCode::from_u16(status).unwrap(),
            is_json: true,
            body: Zeroizing::new(
                format!(
                    "{{\"status\":{{\"token\":\"{token}\",\"expirationTimestamp\":\"{ends}\"}}}}"
                )
                .into_bytes(),
            ),
        };
        let (own, ends) = (
            token("system:serviceaccount:staging:reader"),
            "2030-01-01T00:00:00Z",
        );
        let fresh = read(&answer(201, &own, ends), &request).unwrap();
        assert_eq!(&fresh.value[..], own.as_bytes());
        assert!(fresh.ends.is_some());
        let other = token("system:serviceaccount:production:reader");
        let admin = token("system:serviceaccount:staging:reader:admin");
        for (status, token, ends, why) in [
            (201, &*other, ends, "another account"),
            (201, &admin, ends, "another account"),
            (201, "opaque", ends, "does not say whose"),
            (201, &own, "soon", "is no time"),
            (401, &own, ends, "who asks by this token"),
            (403, &own, ends, "may not create"),
            (404, &own, ends, "no such service account"),
            (500, &own, ends, "it answers 500"),
        ] {
            let said = read(&answer(status, token, ends), &request).map(drop);
            let said = said.unwrap_err();
            assert!(said.contains(why) && !said.contains(token), "{said}");
        }
    }
}
