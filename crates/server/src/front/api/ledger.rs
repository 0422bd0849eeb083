//! The ledger of the tenant's sandboxes, and what waits for an approver.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{Answered, Api, Path, ProblemDetails, Query};
use crate::front::answers::body;
use crate::front::ask::within;
use crate::protocol::{
    AddNote, ApprovalFacts, Checkpoint, Decide, DecideAsk, EventList, EventsAsk, ListApprovals,
    ListEvents, ListSessions, Noted, Prove, SessionFacts,
};

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

async fn listed(api: Api, of: EventsAsk, query: EventsQuery) -> Answered {
    let ask = ListEvents(EventsAsk {
        kind: query.r#type,
        from: query.from.unwrap_or(0),
        limit: query.limit.unwrap_or(LIMIT),
        ..of
    });
    api.answer(StatusCode::OK, ask).await
}

/// List what the ledger has of the tenant's sandboxes.
#[utoipa::path(get, path = "/v1/ledger/events", params(EventsQuery), tag = "ledger",
    responses((status = 200, body = EventList), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn all(api: Api, Query(query): Query<EventsQuery>) -> Answered {
    listed(api, EventsAsk::default(), query).await
}

/// List what the ledger has of one run: a sandbox names its own.
#[utoipa::path(get, path = "/v1/runs/{run}/events", params(("run" = String, Path), EventsQuery), tag = "ledger",
    responses((status = 200, body = EventList), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn of_run(
    api: Api,
    Path(run): Path<String>,
    Query(query): Query<EventsQuery>,
) -> Answered {
    let of = EventsAsk {
        run: Some(run),
        ..EventsAsk::default()
    };
    listed(api, of, query).await
}

/// List the sessions of the tenant, the oldest first.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions",
    responses((status = 200, body = Vec<SessionFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn sessions(api: Api) -> Answered {
    api.answer(StatusCode::OK, ListSessions {}).await
}

/// List what the ledger has of a session: of all its sandboxes, and its notes.
#[utoipa::path(get, path = "/v1/sessions/{session}/events", params(("session" = String, Path), EventsQuery), tag = "sessions",
    responses((status = 200, body = EventList), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn of_session(
    api: Api,
    Path(session): Path<String>,
    Query(query): Query<EventsQuery>,
) -> Answered {
    let of = EventsAsk {
        session: Some(session),
        ..EventsAsk::default()
    };
    listed(api, of, query).await
}

/// A note in a session.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteBody {
    /// Any JSON, up to 64 KiB.
    note: Value,
}

/// Add a note to a session: durable once this is answered, whoever ends then.
#[utoipa::path(post, path = "/v1/sessions/{session}/notes", request_body = NoteBody, params(("session" = String, Path)), tag = "sessions",
    responses((status = 201, body = Noted), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn note(api: Api, Path(session): Path<String>, content: Body) -> Answered {
    let NoteBody { note } = body(content).await?;
    let ask = AddNote { session, note };
    api.answer(StatusCode::CREATED, ask).await
}

/// Prove that an event is in the ledger (C2SP tlog-proof).
#[utoipa::path(get, path = "/v1/ledger/events/{number}/proof", params(("number" = u64, Path)), tag = "ledger",
    responses((status = 200, body = String, content_type = "text/plain"), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn proof(api: Api, Path(number): Path<u64>) -> Answered {
    let proof = api.front.call(api.key, Prove { number }).await?;
    Ok(text(proof))
}

/// Sign the ledger as it is now (C2SP tlog-checkpoint).
#[utoipa::path(get, path = "/v1/ledger/checkpoint", tag = "ledger",
    responses((status = 200, body = String, content_type = "text/plain"), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn checkpoint(api: Api) -> Answered {
    let signed = api.front.call(api.key, Checkpoint {}).await?;
    Ok(text(signed))
}

fn text(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// List the calls that wait for an approver.
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals",
    responses((status = 200, body = Vec<ApprovalFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn approvals(api: Api) -> Answered {
    api.answer(StatusCode::OK, ListApprovals {}).await
}

/// Grant or deny a call that waits.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/approvals/{approval}", request_body = DecideAsk, tag = "approvals",
    params(("sandbox" = String, Path), ("approval" = u32, Path)),
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn decide(
    api: Api,
    Path((sandbox, approval)): Path<(String, u32)>,
    content: Body,
) -> Answered {
    let decision: DecideAsk = body(content).await?;
    let ask = Decide { approval, decision };
    api.carry_out(within(&sandbox, ask)).await
}
