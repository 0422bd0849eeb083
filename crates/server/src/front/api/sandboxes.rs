//! Sandboxes, their logs, events and ports.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Answered, Path, ProblemDetails, Query, done};
use crate::front::Front;
use crate::front::answers::{body, json as answer_json};
use crate::front::ask::strange;
use crate::front::control::{credential, no_template, once, reaches};
use crate::front::logs::{LogLine, lines};
use crate::protocol::{
    Ask, CreateAsk, InAsk, LifecycleEventFacts, ListAsk, Measures, PortFacts, Refusal, Reply,
    SandboxFacts, SizesAsk,
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

/// A part of a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Listed {
    sandboxes: Vec<SandboxFacts>,
    /// The cursor of the next part, if there is one.
    cursor: Option<String>,
    /// The sandboxes that run, in all parts.
    running: usize,
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
pub(crate) async fn create(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    content: Body,
) -> Answered {
    let mut ask: CreateAsk = body(content).await?;
    if ask.template.is_empty() {
        ask.template = "base".to_owned();
    }
    let ask = Ask::Create(Box::new(ask));
    let mut line = front
        .begin_once(credential(&headers), once(&headers), ask)
        .await?;
    let reply = line.reply().await.map_err(no_template)?;
    let created = created(reply)?;
    let response = answer_json(StatusCode::CREATED, &created);
    Ok(reaches(response, &created.sandbox.network))
}

pub(super) fn created(reply: Reply) -> Result<Created, Refusal> {
    match reply {
        Reply::Created {
            sandbox,
            token,
            port_token,
            ..
        } => Ok(Created {
            sandbox: *sandbox,
            token,
            port_token,
        }),
        _ => Err(strange()),
    }
}

/// List the sandboxes of the tenant, the latest first.
#[utoipa::path(get, path = "/v1/sandboxes", params(ListQuery), tag = "sandboxes",
    responses((status = 200, body = Listed), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Query(query): Query<ListQuery>,
) -> Answered {
    let ask = ListAsk {
        limit: query.limit.unwrap_or(100),
        cursor: query.cursor,
        paused: query.paused.unwrap_or(false),
        ..ListAsk::default()
    };
    match front.ask(credential(&headers), Ask::List(ask)).await? {
        Reply::Sandboxes {
            sandboxes,
            cursor,
            running,
        } => {
            let listed = Listed {
                sandboxes,
                cursor,
                running,
            };
            Ok(answer_json(StatusCode::OK, &listed))
        }
        _ => Err(strange().into()),
    }
}

/// Describe a sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}", params(("sandbox" = String, Path)), tag = "sandboxes",
    responses((status = 200, body = SandboxFacts), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn get(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
) -> Answered {
    match front
        .ask_in(credential(&headers), &sandbox, InAsk::Get)
        .await?
    {
        Reply::Sandbox(facts) => Ok(answer_json(StatusCode::OK, &facts)),
        _ => Err(strange().into()),
    }
}

/// End a sandbox, with everything in it.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox}", params(("sandbox" = String, Path)), tag = "sandboxes",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
) -> Answered {
    front
        .ask_in(credential(&headers), &sandbox, InAsk::Kill)
        .await?;
    Ok(done())
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
pub(crate) async fn set_timeout(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    content: Body,
) -> Answered {
    let asked: TimeoutBody = body(content).await?;
    let ask = InAsk::SetTimeout {
        timeout_s: asked.timeout_s,
        extends: false,
    };
    front.ask_in(credential(&headers), &sandbox, ask).await?;
    Ok(done())
}

/// Change the processors and the memory of a living sandbox: what is left out stays.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox}/resources", request_body = SizesAsk, params(("sandbox" = String, Path)), tag = "sandboxes",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn resize(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    content: Body,
) -> Answered {
    let ask = InAsk::SetSizes(body(content).await?);
    front.ask_in(credential(&headers), &sandbox, ask).await?;
    Ok(done())
}

/// Measure the resources that a sandbox uses.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/metrics", params(("sandbox" = String, Path)), tag = "sandboxes",
    responses((status = 200, body = Measures), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn metrics(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
) -> Answered {
    match front
        .ask_in(credential(&headers), &sandbox, InAsk::Measure)
        .await?
    {
        Reply::Measured(measures) => Ok(answer_json(StatusCode::OK, &measures)),
        _ => Err(strange().into()),
    }
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
pub(crate) async fn events(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Query(query): Query<EventsQuery>,
) -> Answered {
    let ask = Ask::LifecycleEvents {
        sandbox: query.sandbox,
        offset: query.offset.unwrap_or(0),
        limit: query.limit.unwrap_or(100).clamp(1, 100),
        oldest_first: false,
    };
    match front.ask(credential(&headers), ask).await? {
        Reply::LifecycleEvents(all) => Ok(answer_json(StatusCode::OK, &all)),
        _ => Err(strange().into()),
    }
}

/// List the ports at which programs of a sandbox listen.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/ports", params(("sandbox" = String, Path)), tag = "ports",
    responses((status = 200, body = Vec<PortFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn ports(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
) -> Answered {
    match front
        .ask_in(credential(&headers), &sandbox, InAsk::Ports)
        .await?
    {
        Reply::Ports(all) => Ok(answer_json(StatusCode::OK, &all)),
        _ => Err(strange().into()),
    }
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
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    Query(query): Query<LogsQuery>,
) -> Answered {
    let from = query.from.unwrap_or(0);
    let limit = query.limit.unwrap_or(LOG_LINES);
    let (lines, next) = lines(&front, credential(&headers), &sandbox, from, limit).await?;
    Ok(answer_json(StatusCode::OK, &Logs { lines, next }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkBody {
    /// The time for which the link is good, seconds; an hour if it is left out.
    lasts_s: Option<u64>,
}

/// A link to a port.
#[derive(Serialize, ToSchema)]
pub(crate) struct Link {
    /// The address for a browser.
    url: String,
}

/// Make a link to a port, for whoever gets it: signed, for this port and a time.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/ports/{port}/link", request_body = LinkBody, tag = "ports",
    params(("sandbox" = String, Path), ("port" = u16, Path)),
    responses((status = 201, body = Link), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn link(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path((sandbox, port)): Path<(String, u16)>,
    content: Body,
) -> Answered {
    let asked: LinkBody = body(content).await?;
    let ask = InAsk::Link {
        port,
        lasts_s: asked.lasts_s.unwrap_or(3600),
    };
    match front.ask_in(credential(&headers), &sandbox, ask).await? {
        Reply::Link(url) => Ok(answer_json(StatusCode::CREATED, &Link { url })),
        _ => Err(strange().into()),
    }
}
