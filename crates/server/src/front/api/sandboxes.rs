//! Sandboxes, their logs, events and ports.

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::{Answered, Json, Path, Query};
use crate::front::dialect::*;
use crate::front::listed::{no_template, reaches};
use crate::front::logs::{LogLine, lines};
use crate::front::senders::once;

/// The lines of a log that are returned at once unless the caller says otherwise.
const LOG_LINES: usize = 100;

/// A sandbox that was made.
#[derive(Serialize, ToSchema)]
pub(crate) struct Created {
    sandbox: SandboxFacts,
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

/// Describes a sandbox that was made, and says what it reaches.
pub(super) fn created(status: StatusCode, made: CreatedFacts) -> Response {
    let created = Created::from(made);
    reaches(answer_json(status, &created), &created.sandbox.network)
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
    responses((status = 201, body = Created)))]
pub(crate) async fn create(
    caller: Caller,
    headers: HeaderMap,
    Json(mut ask): Json<CreateAsk>,
) -> Answered {
    if ask.template.is_empty() {
        ask.template = "base".to_owned();
    }
    let ask = Create(Box::new(ask));
    let mut line = caller.begin_once(once(&headers), ask).await?;
    let made = line.reply().await.map_err(no_template)?;
    Ok(created(StatusCode::CREATED, made))
}

/// List the sandboxes of the tenant, the latest first.
#[utoipa::path(get, path = "/v1/sandboxes", params(ListQuery), tag = "sandboxes", responses((status = 200, body = Listed)))]
pub(crate) async fn list(caller: Caller, Query(query): Query<ListQuery>) -> Answered {
    let ask = ListAsk {
        limit: query.limit.unwrap_or(100),
        cursor: query.cursor,
        paused: query.paused.unwrap_or(false),
        ..ListAsk::default()
    };
    caller.answer(ListSandboxes(ask)).await
}

/// Describe a sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", responses((status = 200, body = SandboxFacts)))]
pub(crate) async fn get(sandbox: Sandbox) -> Answered {
    sandbox.answer(GetSandbox {}).await
}

/// End a sandbox, with everything in it.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", responses((status = 200)))]
pub(crate) async fn delete(sandbox: Sandbox) -> Answered {
    sandbox.carry_out(Kill {}).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimeoutBody {
    /// The life from now on, seconds; 0 ends it.
    timeout_s: u64,
}

/// Set the life of a sandbox from now on.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/timeout", request_body = TimeoutBody, tag = "sandboxes", responses((status = 200)))]
pub(crate) async fn set_timeout(sandbox: Sandbox, Json(asked): Json<TimeoutBody>) -> Answered {
    let (timeout_s, extends) = (asked.timeout_s, false);
    sandbox.carry_out(SetTimeout { timeout_s, extends }).await
}

/// Change the processors and the memory of a living sandbox: what is left out stays.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox}/resources", request_body = SizesAsk, tag = "sandboxes", responses((status = 200)))]
pub(crate) async fn resize(sandbox: Sandbox, Json(sizes): Json<SizesAsk>) -> Answered {
    sandbox.carry_out(SetSizes(sizes)).await
}

/// Measure the resources that a sandbox uses.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/metrics", tag = "sandboxes", responses((status = 200, body = Measures)))]
pub(crate) async fn metrics(sandbox: Sandbox) -> Answered {
    sandbox.answer(Measure {}).await
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
#[utoipa::path(get, path = "/v1/events", params(EventsQuery), tag = "sandboxes", responses((status = 200, body = Vec<LifecycleEventFacts>)))]
pub(crate) async fn events(caller: Caller, Query(query): Query<EventsQuery>) -> Answered {
    let ask = ListLifecycleEvents {
        sandbox: query.sandbox,
        offset: query.offset.unwrap_or(0),
        limit: query.limit.unwrap_or(100).clamp(1, 100),
        oldest_first: false,
    };
    caller.answer(ask).await
}

/// List the ports at which programs of a sandbox listen.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/ports", tag = "ports", responses((status = 200, body = Vec<PortFacts>)))]
pub(crate) async fn ports(sandbox: Sandbox) -> Answered {
    sandbox.answer(ListPorts {}).await
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
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/logs", params(LogsQuery), tag = "sandboxes", responses((status = 200, body = Logs)))]
pub(crate) async fn logs(sandbox: Sandbox, Query(query): Query<LogsQuery>) -> Answered {
    let (from, limit) = (query.from.unwrap_or(0), query.limit.unwrap_or(LOG_LINES));
    let (lines, next) = lines(&sandbox.caller, &sandbox.id, from, limit).await?;
    Ok(answer_json(StatusCode::OK, &Logs { lines, next }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkBody {
    /// The time for which the link is good, seconds; an hour if it is left out.
    lasts_s: Option<u64>,
}

/// Make a link to a port, for whoever gets it: signed, for this port and a time.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/ports/{port}/link", request_body = LinkBody, tag = "ports", responses((status = 201, body = Link)))]
pub(crate) async fn link(
    caller: Caller,
    Path((sandbox, port)): Path<(String, u16)>,
    Json(asked): Json<LinkBody>,
) -> Answered {
    let lasts_s = asked.lasts_s.unwrap_or(3600);
    let sandbox = caller.sandbox(&sandbox);
    sandbox.made(LinkPort { port, lasts_s }).await
}
