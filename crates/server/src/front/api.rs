//! Atoll's own API, beneath `/v1`, with its description generated from the handlers.
//!
//! Errors are problem details (RFC 9457): `detail` says what happened and why, `advice` what to do
//! next. Streams are server-sent events that go on from `Last-Event-ID`.

mod artifacts;
mod files;
mod kept;
mod keys;
mod ledger;
mod processes;
mod sandboxes;
mod socket;
mod templates;
mod tools;
mod volumes;

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, ResponseBuilder};
use utoipa::{Modify, OpenApi, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answers::{answer_json, body};
use super::ask::{Front, within};
use super::caller::{Caller, Sandbox};
use super::refusals::{Dialect, PROBLEM, ProblemDetails};
use super::senders::credential;
use crate::protocol::{self, Ask, InAsk, Kind, Refusal, Selector};

/// A refusal as the API tells it.
#[derive(Debug)]
pub(crate) struct Problem(pub(crate) Refusal);

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        Dialect::Own.refused(&self.0)
    }
}

/// The parts of a path, and a query, whose mistakes are problems too.
pub(crate) struct Path<T>(pub(crate) T);
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        let wrong = |error: PathRejection| Refusal::invalid(error.body_text());
        Ok(Self(read.map_err(wrong)?.0))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Query::from_request_parts(parts, state).await;
        let wrong = |error: QueryRejection| Refusal::invalid(error.body_text());
        Ok(Self(read.map_err(wrong)?.0))
    }
}

/// A body of JSON, of which the same holds.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: axum::extract::Request, _: &S) -> Result<Self, Problem> {
        Ok(Self(body(request).await?))
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
    components(schemas(ProblemDetails)),
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
        .routes(routes!(artifacts::list))
        .routes(routes!(artifacts::get))
        .routes(routes!(artifacts::statement))
        .routes(routes!(artifacts::content))
        .routes(routes!(artifacts::scan))
        .routes(routes!(artifacts::promote))
        .routes(routes!(artifacts::reject))
        .routes(routes!(tools::list))
        .routes(routes!(tools::call))
        .routes(routes!(tools::may))
        .routes(routes!(tools::rest))
        .routes(routes!(tools::clean))
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
    for (path, item) in &mut description.paths.paths {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
        ];
        let operations = operations.into_iter().flatten();
        operations.for_each(|operation| complete(path, operation));
    }
    serde_json::to_value(description).unwrap_or_default()
}

/// Gives an operation a name that no other has, the parameters of its path, the response that is a
/// problem, and each of its responses a description: all of it is required (OpenAPI 3.1, 4.8.10,
/// 4.8.12 and 4.8.17).
fn complete(path: &str, operation: &mut Operation) {
    let tag = operation.tags.iter().flatten().next();
    if let (Some(tag), Some(id)) = (tag, &mut operation.operation_id) {
        *id = format!("{tag}_{id}");
    }
    let names = path.split('/');
    let names = names.filter_map(|name| name.strip_prefix('{')?.strip_suffix('}'));
    let others = operation.parameters.take().into_iter().flatten();
    let own = names.map(|name| RefOr::T(path_parameter(name)));
    let all: Vec<RefOr<Parameter>> = own.chain(others).collect();
    operation.parameters = Some(all).filter(|all| !all.is_empty());
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("ProblemDetails")));
    let problem = ResponseBuilder::new()
        .content("application/problem+json", problem.build())
        .description("Problem");
    let all = &mut operation.responses.responses;
    all.insert("default".to_owned(), RefOr::T(problem.build()));
    for (status, response) in all {
        let status = status.parse().ok();
        let status = status.and_then(|code| StatusCode::from_u16(code).ok());
        let reason = status.and_then(|status| status.canonical_reason());
        if let (RefOr::T(response), Some(reason)) = (response, reason)
            && response.description.is_empty()
        {
            reason.clone_into(&mut response.description);
        }
    }
}

/// Describes a parameter of a path.
fn path_parameter(name: &str) -> Parameter {
    let schema = match name {
        "port" => u16::schema(),
        "pid" | "approval" => u32::schema(),
        "number" => u64::schema(),
        _ => String::schema(),
    };
    let parameter = ParameterBuilder::new().name(name).schema(Some(schema));
    let parameter = parameter.parameter_in(ParameterIn::Path);
    parameter.required(Required::True).build()
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
            let status = StatusCode::METHOD_NOT_ALLOWED;
            let problem = ProblemDetails::new(status, what.to_owned(), None);
            (
                [(header::CONTENT_TYPE, PROBLEM)],
                answer_json(status, &problem),
            )
        })
        .fallback(|| async {
            Problem(Refusal::new(
                Kind::NotFound,
                "there is no such resource; /v1/openapi.json describes those that are there",
            ))
        })
        .with_state(Arc::clone(front))
}

/// Returns the number from which a stream goes on.
fn resumes(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.parse().ok()
}

impl FromRequestParts<Arc<Front>> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, front: &Arc<Front>) -> Result<Self, Infallible> {
        Ok(Self::new(front, credential(&parts.headers)))
    }
}

/// The sandbox that a path names, and nothing else.
impl FromRequestParts<Arc<Front>> for Sandbox {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, front: &Arc<Front>) -> Result<Self, Problem> {
        let Path(id): Path<String> = Path::from_request_parts(parts, front).await?;
        Ok(Caller::new(front, credential(&parts.headers)).sandbox(&id))
    }
}

/// A program of a sandbox, that a path names.
pub(crate) struct Process {
    sandbox: Sandbox,
    pid: u32,
}

impl FromRequestParts<Arc<Front>> for Process {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, front: &Arc<Front>) -> Result<Self, Problem> {
        let Path((id, pid)): Path<(String, u32)> = Path::from_request_parts(parts, front).await?;
        let sandbox = Caller::new(front, credential(&parts.headers)).sandbox(&id);
        Ok(Self { sandbox, pid })
    }
}

impl Process {
    fn selector(&self) -> Selector {
        Selector::Pid(self.pid)
    }
}

impl Caller {
    /// Answers with what the worker does.
    async fn answer<R>(&self, ask: R) -> Answered
    where
        R: protocol::Request<Of: Into<Ask>, Reply: Serialize>,
    {
        Ok(answer_json(StatusCode::OK, &self.call(ask).await?))
    }

    /// Answers with what the worker makes.
    async fn made<R>(&self, ask: R) -> Answered
    where
        R: protocol::Request<Of: Into<Ask>, Reply: Serialize>,
    {
        Ok(answer_json(StatusCode::CREATED, &self.call(ask).await?))
    }

    /// Has the worker do something of which there is nothing to say.
    async fn carry_out<R>(&self, ask: R) -> Answered
    where
        R: protocol::Request<Of: Into<Ask>, Reply = ()>,
    {
        self.call(ask).await?;
        Ok(done())
    }
}

impl Sandbox {
    async fn answer<R>(&self, ask: R) -> Answered
    where
        R: protocol::Request<Of: Into<InAsk>, Reply: Serialize>,
    {
        self.caller.answer(within(&self.id, ask)).await
    }

    async fn made<R>(&self, ask: R) -> Answered
    where
        R: protocol::Request<Of: Into<InAsk>, Reply: Serialize>,
    {
        self.caller.made(within(&self.id, ask)).await
    }

    async fn carry_out<R>(&self, ask: R) -> Answered
    where
        R: protocol::Request<Of: Into<InAsk>, Reply = ()>,
    {
        self.caller.carry_out(within(&self.id, ask)).await
    }
}

fn done() -> Response {
    answer_json(StatusCode::OK, &json!({}))
}
