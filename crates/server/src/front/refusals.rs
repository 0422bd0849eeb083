//! Refusals in the forms of all dialects: one table of statuses and codes, and a body for each.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::answers::answer_json;
use crate::protocol::{Kind, Refusal};

/// The dialects, by the form of their refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Connect,
    E2b,
    Jupyter,
    LibreChat,
    OpenSandbox,
    Own,
}

/// The line of a kind: its status, its code in the Connect protocol, and its code in OpenSandbox' API.
fn line(kind: Kind) -> (StatusCode, &'static str, &'static str) {
    use StatusCode as Status;
    match kind {
        Kind::Invalid => (Status::BAD_REQUEST, "invalid_argument", "INVALID_REQUEST"),
        Kind::Unauthenticated => (Status::UNAUTHORIZED, "unauthenticated", "UNAUTHORIZED"),
        Kind::Forbidden => (Status::FORBIDDEN, "permission_denied", "FORBIDDEN"),
        Kind::NoSandbox => (Status::NOT_FOUND, "not_found", "SANDBOX_NOT_FOUND"),
        Kind::NotFound => (Status::NOT_FOUND, "not_found", "NOT_FOUND"),
        Kind::Exists => (Status::CONFLICT, "already_exists", "CONFLICT"),
        Kind::Quota => (
            Status::TOO_MANY_REQUESTS,
            "resource_exhausted",
            "QUOTA_EXCEEDED",
        ),
        Kind::NoSpace => (
            Status::INSUFFICIENT_STORAGE,
            "resource_exhausted",
            "NO_SPACE",
        ),
        Kind::Late => (Status::GATEWAY_TIMEOUT, "deadline_exceeded", "TIMEOUT"),
        Kind::Unavailable => (Status::SERVICE_UNAVAILABLE, "unavailable", "UNAVAILABLE"),
        Kind::Fault => (Status::INTERNAL_SERVER_ERROR, "internal", "INTERNAL_ERROR"),
    }
}

/// Problem details (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProblemDetails {
    /// The kind of problem: `about:blank`, so that the status says it.
    r#type: &'static str,
    /// The name of the status.
    title: &'static str,
    /// The status.
    status: u16,
    /// The error, and the reason.
    detail: String,
    /// The next step for the caller.
    advice: Option<String>,
}

/// The kind of content that problem details are.
pub(crate) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

impl ProblemDetails {
    pub(crate) fn new(status: StatusCode, detail: String, advice: Option<String>) -> Self {
        Self {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail,
            advice,
        }
    }
}

impl Dialect {
    pub(crate) fn status(self, kind: Kind) -> StatusCode {
        match (self, kind) {
            // Its code has this status.
            (Self::Connect, Kind::NoSpace) => StatusCode::TOO_MANY_REQUESTS,
            _ => line(kind).0,
        }
    }

    /// Makes the answer for a refusal.
    pub(crate) fn refused(self, refusal: &Refusal) -> Response {
        let mut response = answer_json(self.status(refusal.kind), &self.body(refusal));
        let headers = response.headers_mut();
        if self == Self::Own {
            headers.insert(header::CONTENT_TYPE, PROBLEM);
        }
        if let Some(seconds) = refusal.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// Makes the answer of a service in a sandbox for a refusal.
    pub(crate) fn refused_in(self, sandbox: &str, refusal: &Refusal) -> Response {
        match refusal.kind {
            Kind::NoSandbox => gone(sandbox),
            _ => self.refused(refusal),
        }
    }

    /// Makes the body for a refusal.
    pub(crate) fn body(self, refusal: &Refusal) -> Value {
        let message = refusal.told();
        let (_, connect, opensandbox) = line(refusal.kind);
        match self {
            Self::Connect => json!({ "code": connect, "message": message }),
            Self::E2b => {
                let code = self.status(refusal.kind).as_u16();
                json!({ "code": code, "message": message })
            }
            Self::Jupyter => json!({ "message": message, "reason": null }),
            Self::LibreChat if refusal.kind == Kind::Quota => json!({
                "error": "rate_limited",
                "message": message,
                "retry_after_seconds": refusal.retry_after_s.unwrap_or(1),
            }),
            Self::LibreChat => json!({ "error": message }),
            Self::OpenSandbox => json!({ "code": opensandbox, "message": message }),
            Self::Own => {
                let (what, advice) = (refusal.what.clone(), refusal.advice.clone());
                json!(ProblemDetails::new(self.status(refusal.kind), what, advice))
            }
        }
    }
}

/// Makes the answer of E2B's services for a sandbox that is not there.
pub(crate) fn gone(sandbox: &str) -> Response {
    let body = json!({
        "sandboxId": sandbox,
        "message": "The sandbox was not found",
        "code": 502,
    });
    let mut response = answer_json(StatusCode::BAD_GATEWAY, &body);
    let headers = response.headers_mut();
    headers.insert("should-retry", HeaderValue::from_static("false"));
    response
}
