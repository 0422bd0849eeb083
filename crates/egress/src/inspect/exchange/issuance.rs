//! Logins issued through a request: the real tokens in the response do not enter the sandbox.

use std::sync::Arc;
use std::time::Duration;

use atoll_model::network::{Flow, Issue, Request as Judged};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue,
};
use hyper::http::request::Parts as Asking;
use hyper::http::response::Parts;
use hyper::{Method, Response, StatusCode};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::Exchange;
use super::masked::masked;
use crate::Egress;
use crate::credentials::why_not_issued;
use crate::inspect::bodies::BodySource;
use crate::inspect::body::ResponseBody;
use crate::inspect::denial::{self, Denial, unread_of};
use crate::inspect::head::Head;

/// The longest response of an issuer, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The longest wait for that response.
const PATIENCE: Duration = Duration::from_secs(30);
/// The only media type that is read of it.
const JSON: &str = "application/json";
/// The advice to a program that tries to log in.
const INSTEAD: &str = "The person who started this logs in outside: by `atoll login`, or by the agent's own \
                       command there. Trying again changes nothing.";

/// Returns the login that a request would obtain, if any.
///
/// # Errors
/// The reason why the request is not sent, in words.
pub(super) fn admitted(
    egress: &Egress,
    judged: &Judged<'_>,
    parts: &Asking,
    head: &Head,
) -> Result<Option<Arc<Issue>>, String> {
    let Some(issue) = egress.credentials.issue(judged) else {
        return match egress.credentials.doubted_issue(judged) {
            Some((login, why)) => Err(format!(
                "tokens of login {login} are issued at that host, and whether this asks for them \
                 cannot be told: {why}"
            )),
            None => Ok(None),
        };
    };
    let login = &issue.login;
    if !issue.is_caught {
        return Err(format!(
            "tokens of login {login} are issued there, and would come in: nobody logs in by this run"
        ));
    }
    match parts.method == Method::POST && !head.is_web_socket {
        true => Ok(Some(issue)),
        false => Err(format!(
            "tokens of login {login} are issued there, by POST alone"
        )),
    }
}

/// Returns the response to a login request that is not sent to its issuer.
pub(super) async fn refuse(
    egress: &Egress,
    flow: Flow,
    what: Denial,
    why: String,
    parts: &Asking,
    body: Option<BodySource>,
) -> Response<ResponseBody> {
    egress.control.refuse(flow, why.clone());
    let denial = what.refused(why, Some(INSTEAD.to_owned()));
    let unread = unread_of(parts, body.and_then(BodySource::into_rest)).await;
    denial::denied(StatusCode::FORBIDDEN, &denial, unread)
}

/// Updates the headers to match the body, and asks an issuer for an uncompressed response.
pub(super) fn prepare_headers(
    issue: Option<Arc<Issue>>,
    body: Option<&BodySource>,
    headers: &mut HeaderMap,
) -> Option<Arc<Issue>> {
    if let Some(body) = body {
        body.tell(headers);
    }
    if issue.is_some() {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    issue
}

/// Returns the body that enters the sandbox: an issuer's with placeholders, any other with real
/// values masked.
///
/// # Errors
/// The reason why nothing does, in words.
pub(super) async fn response_body(
    exchange: &Arc<Exchange>,
    issue: Option<&Issue>,
    parts: &mut Parts,
    body: ResponseBody,
) -> Result<ResponseBody, String> {
    match issue {
        Some(issue) => intercept_tokens(exchange, issue, parts, body).await,
        None => masked(exchange, parts, body).await,
    }
}

/// Returns the body that enters the sandbox of an issuer's response; its head is made anew.
///
/// # Errors
/// The reason why nothing does, in words.
async fn intercept_tokens(
    exchange: &Arc<Exchange>,
    issue: &Issue,
    parts: &mut Parts,
    body: ResponseBody,
) -> Result<ResponseBody, String> {
    let headers = std::mem::take(&mut parts.headers);
    let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(is_plain) {
        return Err("its answer is packed, which was not asked for".to_owned());
    }
    if parts.status.is_redirection() || parts.status.is_informational() {
        return Err(format!("it leads elsewhere ({})", parts.status.as_u16()));
    }
    let whole = timeout(PATIENCE, whole(body)).await;
    let whole = whole.map_err(|_| "its answer took too long".to_owned())??;
    let made = match parts.status.is_success() {
        true => {
            let caught = exchange.egress.credentials.catch(issue, &whole);
            caught.map_err(|why| format!("its answer cannot be caught: {why}"))?
        }
        false => why_not_issued(&whole),
    };
    let headers = &mut parts.headers;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(ResponseBody::told(Bytes::from(made), None))
}

async fn whole(mut body: ResponseBody) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut whole = Zeroizing::new(Vec::with_capacity(ANSWER_BYTES_MAX));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "its answer broke off".to_owned())?;
        let data = frame.data_ref().map_or(&[][..], |data| data);
        if whole.len() + data.len() > ANSWER_BYTES_MAX {
            return Err(format!("its answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
        whole.extend_from_slice(data);
    }
    Ok(whole)
}
