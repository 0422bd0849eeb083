//! Token refresh by a program, answered here with placeholders in the form of the issuer's
//! response. Nothing that the program has sent goes anywhere.

use std::sync::Arc;
use std::time::Duration;

use atoll_model::network::Flow;
use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::error::RecordError;
use crate::Egress;
use crate::control_channel::FlowOutcome;
use crate::credentials::{Credentials, fetch};
use crate::inspect::bodies::Renewing;
use crate::inspect::body::ResponseBody;
use crate::inspect::denial::{self, Denial};
use crate::policies::{Forbidden, PolicySnapshot};

/// The lifetime stated to a program for a token of unknown lifetime. Atoll itself refreshes the
/// token when needed.
const LIFE: Duration = Duration::from_secs(3600);
/// The shortest lifetime stated to it, so that it does not ask again at once.
const LIFE_MIN: Duration = Duration::from_secs(300);

/// An issuer's response (RFC 6749, 5.1).
#[derive(Serialize)]
struct IssuerResponse<'a> {
    access_token: &'a str,
    refresh_token: &'a str,
    token_type: &'static str,
    expires_in: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
}

/// Answers a request that carries a refresh token's placeholder, given by its index among all
/// credentials.
pub(in crate::inspect) async fn answer(
    egress: &Arc<Egress>,
    renewing: Renewing,
    mut flow: Flow,
    what: Denial,
) -> Result<Response<ResponseBody>, RecordError> {
    let Renewing {
        by,
        published,
        unread,
    } = renewing;
    let now = egress.policies.now();
    flow.policies = now.version();
    if let Err(forbidden) = may_renew(&now, &egress.credentials, by) {
        egress.control.refuse(flow, forbidden.why);
        let denial = what.refused(forbidden.shown, None);
        return Ok(denial::denied(StatusCode::FORBIDDEN, &denial, unread));
    }
    let opened = egress.control.open(flow, true).await?;
    let renewed = match of(egress, by, published).await {
        Ok(renewed) => renewed,
        Err(unfetched) => {
            let failure = FlowOutcome::nothing(unfetched.recorded()).at_last(true);
            egress.control.close(&opened, failure);
            return Ok(denial::failed(&what.because(unfetched.why), unread));
        }
    };
    let carried = FlowOutcome {
        bytes: [0, renewed.len() as u64],
        status: Some(StatusCode::OK.as_u16()),
        ..FlowOutcome::default()
    };
    egress.control.close(&opened, carried);
    let mut response = Response::new(ResponseBody::told(Bytes::from(renewed), unread));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Checks that policies allow the use of a login and of its refresh token now: neither is sent from
/// here, but both serve to get a new token.
fn may_renew(
    now: &PolicySnapshot<'_>,
    credentials: &Credentials,
    by: usize,
) -> Result<(), Forbidden> {
    let Some(by) = credentials.get(by) else {
        return Ok(());
    };
    now.credential_unasked(by.name())?;
    let login = credentials.renewed_by(by.name());
    match login.and_then(|index| credentials.get(index)) {
        Some(login) => now.credential_unasked(login.name()),
        None => Ok(()),
    }
}

/// Returns the response's body, once the login is valid.
async fn of(
    egress: &Arc<Egress>,
    by: usize,
    published: Option<Vec<u8>>,
) -> Result<Vec<u8>, fetch::FetchError> {
    let credentials = &egress.credentials;
    let gone = || fetch::FetchError::from("there is no such login".to_owned());
    let by = credentials.get(by).ok_or_else(gone)?;
    let index = credentials.renewed_by(by.name()).ok_or_else(gone)?;
    if let Some(published) = published {
        credentials.hear(index, &published).await?;
    }
    let life = fetch::life(egress, index).await?;
    let held = credentials.get(index).ok_or_else(gone)?;
    let scope = credentials.source(index);
    let granted = IssuerResponse {
        access_token: &held.placeholder,
        refresh_token: &by.placeholder,
        token_type: "Bearer",
        expires_in: life.unwrap_or(LIFE).max(LIFE_MIN).as_secs(),
        scope: scope.and_then(|(_, source)| source.scope()),
    };
    let written = serde_json::to_vec(&granted);
    written.map_err(|error| fetch::FetchError::from(error.to_string()))
}
