//! The ledger of the tenant's sandboxes, and what waits for an approver.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{Answered, Path, ProblemDetails, Query, done};
use crate::front::Front;
use crate::front::answers::{body, json as answer_json};
use crate::front::ask::strange;
use crate::front::control::credential;
use crate::protocol::{ApprovalFacts, Ask, DecideAsk, EventsAsk, InAsk, Reply, SessionFacts};

/// The events that are returned at once unless the caller says otherwise.
const LIMIT: usize = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Only those of this type, or whose type begins with it and a dot.
    r#type: Option<String>,
    /// Only those with this number or a later one: the `next` of the part before.
    from: Option<u64>,
    /// The most that are returned; 1,000 at most.
    limit: Option<usize>,
}

/// Events of the ledger, the oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventList {
    /// Each with `number`, `time`, `run`, `type` and `body`.
    events: Vec<Value>,
    /// The number to go on from, if there are more.
    next: Option<u64>,
}

async fn listed(front: &Front, headers: &HeaderMap, of: EventsAsk, query: EventsQuery) -> Answered {
    let ask = Ask::Events(EventsAsk {
        kind: query.r#type,
        from: query.from.unwrap_or(0),
        limit: query.limit.unwrap_or(LIMIT),
        ..of
    });
    match front.ask(credential(headers), ask).await? {
        Reply::Events { events, next } => {
            Ok(answer_json(StatusCode::OK, &EventList { events, next }))
        }
        _ => Err(strange().into()),
    }
}

/// List what the ledger has of the tenant's sandboxes.
#[utoipa::path(get, path = "/v1/ledger/events", params(EventsQuery), tag = "ledger",
    responses((status = 200, body = EventList), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn all(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Query(query): Query<EventsQuery>,
) -> Answered {
    listed(&front, &headers, EventsAsk::default(), query).await
}

/// List what the ledger has of one run: a sandbox names its own.
#[utoipa::path(get, path = "/v1/runs/{run}/events", params(("run" = String, Path), EventsQuery), tag = "ledger",
    responses((status = 200, body = EventList), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn of_run(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(run): Path<String>,
    Query(query): Query<EventsQuery>,
) -> Answered {
    let of = EventsAsk {
        run: Some(run),
        ..EventsAsk::default()
    };
    listed(&front, &headers, of, query).await
}

/// List the sessions of the tenant, the oldest first.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions",
    responses((status = 200, body = Vec<SessionFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn sessions(State(front): State<Arc<Front>>, headers: HeaderMap) -> Answered {
    match front.ask(credential(&headers), Ask::Sessions).await? {
        Reply::Sessions(all) => Ok(answer_json(StatusCode::OK, &all)),
        _ => Err(strange().into()),
    }
}

/// List what the ledger has of a session: of all its sandboxes, and its notes.
#[utoipa::path(get, path = "/v1/sessions/{session}/events", params(("session" = String, Path), EventsQuery), tag = "sessions",
    responses((status = 200, body = EventList), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn of_session(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(session): Path<String>,
    Query(query): Query<EventsQuery>,
) -> Answered {
    let of = EventsAsk {
        session: Some(session),
        ..EventsAsk::default()
    };
    listed(&front, &headers, of, query).await
}

/// A note in a session.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteBody {
    /// Any JSON, up to 64 KiB.
    note: Value,
}

/// A note that is durable.
#[derive(Serialize, ToSchema)]
pub(crate) struct Noted {
    /// The number of its event in the ledger.
    number: u64,
}

/// Add a note to a session: durable once this is answered, whoever ends then.
#[utoipa::path(post, path = "/v1/sessions/{session}/notes", request_body = NoteBody, params(("session" = String, Path)), tag = "sessions",
    responses((status = 201, body = Noted), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn note(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(session): Path<String>,
    content: Body,
) -> Answered {
    let NoteBody { note } = body(content).await?;
    match front
        .ask(credential(&headers), Ask::Note { session, note })
        .await?
    {
        Reply::Noted(number) => Ok(answer_json(StatusCode::CREATED, &Noted { number })),
        _ => Err(strange().into()),
    }
}

/// Prove that an event is in the ledger (C2SP tlog-proof).
#[utoipa::path(get, path = "/v1/ledger/events/{number}/proof", params(("number" = u64, Path)), tag = "ledger",
    responses((status = 200, body = String, content_type = "text/plain"), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn proof(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(number): Path<u64>,
) -> Answered {
    text(&front, &headers, Ask::Proof { number }).await
}

/// Sign the ledger as it is now (C2SP tlog-checkpoint).
#[utoipa::path(get, path = "/v1/ledger/checkpoint", tag = "ledger",
    responses((status = 200, body = String, content_type = "text/plain"), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn checkpoint(State(front): State<Arc<Front>>, headers: HeaderMap) -> Answered {
    text(&front, &headers, Ask::Checkpoint).await
}

async fn text(front: &Front, headers: &HeaderMap, ask: Ask) -> Answered {
    let Reply::Text(text) = front.ask(credential(headers), ask).await? else {
        return Err(strange().into());
    };
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// List the calls that wait for an approver.
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals",
    responses((status = 200, body = Vec<ApprovalFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn approvals(State(front): State<Arc<Front>>, headers: HeaderMap) -> Answered {
    match front.ask(credential(&headers), Ask::Approvals).await? {
        Reply::Approvals(all) => Ok(answer_json(StatusCode::OK, &all)),
        _ => Err(strange().into()),
    }
}

/// Grant or deny a call that waits.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/approvals/{approval}", request_body = DecideAsk, tag = "approvals",
    params(("sandbox" = String, Path), ("approval" = u32, Path)),
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn decide(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path((sandbox, approval)): Path<(String, u32)>,
    content: Body,
) -> Answered {
    let decision: DecideAsk = body(content).await?;
    let ask = InAsk::Decide { approval, decision };
    front.ask_in(credential(&headers), &sandbox, ask).await?;
    Ok(done())
}
