//! Atoll's own API, beneath `/v1`, with its description generated from the handlers.
//!
//! Errors are problem details (RFC 9457): `detail` says what happened and why, `advice` what to do
//! next. Streams are server-sent events that go on from `Last-Event-ID`.

mod files;
mod kept;
mod keys;
mod ledger;
mod processes;
mod sandboxes;
mod socket;
mod templates;
mod volumes;

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Front;
use super::answers::{json as answer_json, status};
use super::control::credential;
use crate::protocol::{self, Ask, Credential, Kind, Refusal};

/// A refusal as the API tells it.
#[derive(Debug)]
pub(crate) struct Problem(pub(crate) Refusal);

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

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

/// Makes the answer for a problem.
fn problem(status: StatusCode, detail: String, advice: Option<String>) -> Response {
    let details = ProblemDetails {
        r#type: "about:blank",
        title: status.canonical_reason().unwrap_or("Error"),
        status: status.as_u16(),
        detail,
        advice,
    };
    let mut response = answer_json(status, &details);
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = problem(status(self.0.kind), self.0.what, self.0.advice);
        if let Some(seconds) = self.0.retry_after_s {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The parts of a path, and a query, whose mistakes are problems too.
pub(crate) struct Path<T>(pub(crate) T);
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        let wrong = |error: PathRejection| Refusal::new(Kind::Invalid, error.body_text());
        Ok(Self(read.map_err(wrong)?.0))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Query::from_request_parts(parts, state).await;
        let wrong = |error: QueryRejection| Refusal::new(Kind::Invalid, error.body_text());
        Ok(Self(read.map_err(wrong)?.0))
    }
}

/// The result of a request.
type Answered = Result<Response, Problem>;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Atoll",
        description = "Sandboxes for programs that are not trusted",
        license(name = "Apache-2.0")
    ),
    modifiers(&Keys),
    security(("key" = []), ("bearer" = []))
)]
struct Described;

/// The two places of a key.
struct Keys;

impl Modify for Keys {
    fn modify(&self, description: &mut utoipa::openapi::OpenApi) {
        let components = description.components.get_or_insert_default();
        let header = ApiKey::Header(ApiKeyValue::new("X-API-Key"));
        components.add_security_scheme("key", SecurityScheme::ApiKey(header));
        let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.add_security_scheme("bearer", bearer);
    }
}

fn described() -> OpenApiRouter<Arc<Front>> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(sandboxes::create, sandboxes::list))
        .routes(routes!(sandboxes::get, sandboxes::delete))
        .routes(routes!(sandboxes::set_timeout))
        .routes(routes!(kept::pause))
        .routes(routes!(kept::connect))
        .routes(routes!(kept::snapshot))
        .routes(routes!(kept::snapshots))
        .routes(routes!(kept::remove_snapshot))
        .routes(routes!(kept::fork))
        .routes(routes!(kept::roll_back))
        .routes(routes!(templates::list))
        .routes(routes!(templates::get, templates::remove))
        .routes(routes!(volumes::make, volumes::list))
        .routes(routes!(volumes::get, volumes::remove))
        .routes(routes!(volumes::snapshot))
        .routes(routes!(sandboxes::resize))
        .routes(routes!(sandboxes::metrics))
        .routes(routes!(sandboxes::events))
        .routes(routes!(sandboxes::logs))
        .routes(routes!(sandboxes::ports))
        .routes(routes!(sandboxes::link))
        .routes(routes!(ledger::all))
        .routes(routes!(ledger::of_run))
        .routes(routes!(ledger::proof))
        .routes(routes!(ledger::sessions))
        .routes(routes!(ledger::of_session))
        .routes(routes!(ledger::note))
        .routes(routes!(ledger::checkpoint))
        .routes(routes!(ledger::approvals))
        .routes(routes!(ledger::decide))
        .routes(routes!(keys::keys, keys::make_key))
        .routes(routes!(keys::revoke_key))
        .routes(routes!(processes::run))
        .routes(routes!(processes::start, processes::list))
        .routes(routes!(processes::output))
        .routes(routes!(socket::socket))
        .routes(routes!(processes::input, processes::close_input))
        .routes(routes!(processes::signal))
        .routes(routes!(processes::resize))
        .routes(routes!(files::list, files::remove))
        .routes(routes!(files::stat))
        .routes(routes!(files::download, files::upload))
        .routes(routes!(files::make_directory))
        .routes(routes!(files::move_to))
        .routes(routes!(files::changes))
}

/// Returns the description of the API.
pub(crate) fn openapi() -> Value {
    let (_, mut description) = described().split_for_parts();
    for item in description.paths.paths.values_mut() {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
        ];
        operations.into_iter().flatten().for_each(complete);
    }
    serde_json::to_value(description).unwrap_or_default()
}

/// Gives an operation a name that no other has, and each of its responses a description: both are
/// required (OpenAPI 3.1, 4.8.10 and 4.8.17).
fn complete(operation: &mut Operation) {
    let tag = operation.tags.iter().flatten().next();
    if let (Some(tag), Some(id)) = (tag, &mut operation.operation_id) {
        *id = format!("{tag}_{id}");
    }
    for (status, response) in &mut operation.responses.responses {
        let status = status
            .parse()
            .ok()
            .and_then(|code| StatusCode::from_u16(code).ok());
        let reason = status.and_then(|status| status.canonical_reason());
        if let RefOr::T(response) = response
            && response.description.is_empty()
        {
            reason
                .unwrap_or("Problem")
                .clone_into(&mut response.description);
        }
    }
}

/// Bytes, as they are.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it stands for a body in the description")]
pub(crate) struct Content(Vec<u8>);

/// The description as it is sent: it takes a while to make, and anybody asks for it.
static DESCRIPTION: LazyLock<Bytes> =
    LazyLock::new(|| serde_json::to_vec(&openapi()).unwrap_or_default().into());

/// Returns the routes.
pub(crate) fn router(front: &Arc<Front>) -> Router {
    let (router, _) = described().split_for_parts();
    let describe = || async {
        (
            [(header::CONTENT_TYPE, "application/json")],
            DESCRIPTION.clone(),
        )
    };
    router
        .route("/v1/openapi.json", axum::routing::get(describe))
        .method_not_allowed_fallback(|| async {
            let what = "this resource takes other methods; /v1/openapi.json describes them";
            problem(StatusCode::METHOD_NOT_ALLOWED, what.to_owned(), None)
        })
        .fallback(|| async {
            Problem(Refusal::new(
                Kind::NotFound,
                "there is no such resource; /v1/openapi.json describes those that are there",
            ))
        })
        .with_state(Arc::clone(front))
}

/// Makes an event of a stream: a kind, data, and the id to go on from.
fn event(kind: &str, id: Option<u64>, data: &Value) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {kind}\n{id}data: {data}\n\n")
}

/// Makes an answer of events.
fn events(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns the number from which a stream goes on.
fn resumes(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.parse().ok()
}

/// The way to the worker, with the credential of a request.
pub(crate) struct Api {
    front: Arc<Front>,
    key: Credential,
}

impl FromRequestParts<Arc<Front>> for Api {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, front: &Arc<Front>) -> Result<Self, Infallible> {
        Ok(Self {
            front: Arc::clone(front),
            key: credential(&parts.headers),
        })
    }
}

impl Api {
    /// Answers with what the worker does.
    async fn answer<R>(self, status: StatusCode, ask: R) -> Answered
    where
        R: protocol::Request<Of: Into<Ask>, Reply: Serialize>,
    {
        let reply = self.front.call(self.key, ask).await?;
        Ok(answer_json(status, &reply))
    }

    /// Has the worker do something of which there is nothing to say.
    async fn carry_out<R>(self, ask: R) -> Answered
    where
        R: protocol::Request<Of: Into<Ask>, Reply = ()>,
    {
        self.front.call(self.key, ask).await?;
        Ok(done())
    }
}

fn done() -> Response {
    answer_json(StatusCode::OK, &json!({}))
}
