//! Sandboxes, their logs, events and ports.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Answered, Api, Path, ProblemDetails, Query};
use crate::front::answers::{body, json as answer_json};
use crate::front::ask::within;
use crate::front::control::{no_template, once, reaches};
use crate::front::logs::{LogLine, lines};
use crate::protocol::{
    Create, CreateAsk, CreatedFacts, GetSandbox, Kill, LifecycleEventFacts, Link, LinkPort,
    ListAsk, ListLifecycleEvents, ListPorts, ListSandboxes, Listed, Measure, Measures, PortFacts,
    SandboxFacts, SetSizes, SetTimeout, SizesAsk,
};

/// The lines of a log that are returned at once unless the caller says otherwise.
const LOG_LINES: usize = 100;

/// A sandbox that was made.
#[derive(Serialize, ToSchema)]
pub(crate) struct Created {
    pub(super) sandbox: SandboxFacts,
    /// The token for the services inside, as E2B's SDKs take it; empty without the scopes `exec` and
    /// `files`.
    token: String,
    /// The token for its ports, if they take one.
    port_token: Option<String>,
}

impl From<CreatedFacts> for Created {
    fn from(created: CreatedFacts) -> Self {
        Self {
            sandbox: created.sandbox,
            token: created.token,
            port_token: created.port_token,
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// The most in one part, up to 100.
    limit: Option<usize>,
    /// The cursor of an earlier part.
    cursor: Option<String>,
    /// True for those that are paused too.
    paused: Option<bool>,
}

/// Make a sandbox.
#[utoipa::path(post, path = "/v1/sandboxes", request_body = CreateAsk, tag = "sandboxes",
    params(("Idempotency-Key" = Option<String>, Header, description = "the same again is the same sandbox")),
    responses((status = 201, body = Created), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn create(api: Api, headers: HeaderMap, content: Body) -> Answered {
    let mut ask: CreateAsk = body(content).await?;
    if ask.template.is_empty() {
        ask.template = "base".to_owned();
    }
    let ask = Create(Box::new(ask));
    let mut line = api.front.begin_once(api.key, once(&headers), ask).await?;
    let created = Created::from(line.reply().await.map_err(no_template)?);
    let response = answer_json(StatusCode::CREATED, &created);
    Ok(reaches(response, &created.sandbox.network))
}

/// List the sandboxes of the tenant, the latest first.
#[utoipa::path(get, path = "/v1/sandboxes", params(ListQuery), tag = "sandboxes",
    responses((status = 200, body = Listed), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn list(api: Api, Query(query): Query<ListQuery>) -> Answered {
    let ask = ListAsk {
        limit: query.limit.unwrap_or(100),
        cursor: query.cursor,
        paused: query.paused.unwrap_or(false),
        ..ListAsk::default()
    };
    let ask = ListSandboxes(ask);
    api.answer(StatusCode::OK, ask).await
}

/// Describe a sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}", params(("sandbox" = String, Path)), tag = "sandboxes",
    responses((status = 200, body = SandboxFacts), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn get(api: Api, Path(sandbox): Path<String>) -> Answered {
    api.answer(StatusCode::OK, within(&sandbox, GetSandbox {}))
        .await
}

/// End a sandbox, with everything in it.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox}", params(("sandbox" = String, Path)), tag = "sandboxes",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn delete(api: Api, Path(sandbox): Path<String>) -> Answered {
    api.carry_out(within(&sandbox, Kill {})).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimeoutBody {
    /// The life from now on, seconds; 0 ends it.
    timeout_s: u64,
}

/// Set the life of a sandbox from now on.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/timeout", request_body = TimeoutBody, params(("sandbox" = String, Path)), tag = "sandboxes",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn set_timeout(api: Api, Path(sandbox): Path<String>, content: Body) -> Answered {
    let asked: TimeoutBody = body(content).await?;
    let ask = SetTimeout {
        timeout_s: asked.timeout_s,
        extends: false,
    };
    api.carry_out(within(&sandbox, ask)).await
}

/// Change the processors and the memory of a living sandbox: what is left out stays.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox}/resources", request_body = SizesAsk, params(("sandbox" = String, Path)), tag = "sandboxes",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn resize(api: Api, Path(sandbox): Path<String>, content: Body) -> Answered {
    let ask = SetSizes(body(content).await?);
    api.carry_out(within(&sandbox, ask)).await
}

/// Measure the resources that a sandbox uses.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/metrics", params(("sandbox" = String, Path)), tag = "sandboxes",
    responses((status = 200, body = Measures), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn metrics(api: Api, Path(sandbox): Path<String>) -> Answered {
    api.answer(StatusCode::OK, within(&sandbox, Measure {}))
        .await
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// One sandbox, also one that has ended.
    sandbox: Option<String>,
    /// The number of those left out at the beginning.
    offset: Option<u64>,
    /// The most that are returned, up to 100.
    limit: Option<u64>,
}

/// List what happened to sandboxes of the tenant, the latest first.
#[utoipa::path(get, path = "/v1/events", params(EventsQuery), tag = "sandboxes",
    responses((status = 200, body = Vec<LifecycleEventFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn events(api: Api, Query(query): Query<EventsQuery>) -> Answered {
    let ask = ListLifecycleEvents {
        sandbox: query.sandbox,
        offset: query.offset.unwrap_or(0),
        limit: query.limit.unwrap_or(100).clamp(1, 100),
        oldest_first: false,
    };
    api.answer(StatusCode::OK, ask).await
}

/// List the ports at which programs of a sandbox listen.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/ports", params(("sandbox" = String, Path)), tag = "ports",
    responses((status = 200, body = Vec<PortFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn ports(api: Api, Path(sandbox): Path<String>) -> Answered {
    api.answer(StatusCode::OK, within(&sandbox, ListPorts {}))
        .await
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogsQuery {
    /// Only events with this number or a later one: the `next` of the part before.
    from: Option<u64>,
    /// The most lines, up to 1,000.
    limit: Option<usize>,
}

/// Lines of a sandbox's log, the oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct Logs {
    lines: Vec<LogLine>,
    /// The number to go on from, if there are more.
    next: Option<u64>,
}

/// Read the log of a sandbox, also of one that has ended: what the ledger has of it.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/logs", params(("sandbox" = String, Path), LogsQuery), tag = "sandboxes",
    responses((status = 200, body = Logs), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn logs(
    api: Api,
    Path(sandbox): Path<String>,
    Query(query): Query<LogsQuery>,
) -> Answered {
    let from = query.from.unwrap_or(0);
    let limit = query.limit.unwrap_or(LOG_LINES);
    let (lines, next) = lines(&api.front, api.key, &sandbox, from, limit).await?;
    Ok(answer_json(StatusCode::OK, &Logs { lines, next }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkBody {
    /// The time for which the link is good, seconds; an hour if it is left out.
    lasts_s: Option<u64>,
}

/// Make a link to a port, for whoever gets it: signed, for this port and a time.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/ports/{port}/link", request_body = LinkBody, tag = "ports",
    params(("sandbox" = String, Path), ("port" = u16, Path)),
    responses((status = 201, body = Link), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn link(
    api: Api,
    Path((sandbox, port)): Path<(String, u16)>,
    content: Body,
) -> Answered {
    let asked: LinkBody = body(content).await?;
    let ask = LinkPort {
        port,
        lasts_s: asked.lasts_s.unwrap_or(3600),
    };
    api.answer(StatusCode::CREATED, within(&sandbox, ask)).await
}
