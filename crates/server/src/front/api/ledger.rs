//! The ledger of the tenant's sandboxes, and what waits for an approver.

use utoipa::{IntoParams, ToSchema};

use super::{Answered, Json, Path, Query};
use crate::front::dialect::*;

/// The events that are returned at once unless the caller says otherwise.
const LIMIT: usize = 100;
/// The kind of content that proofs and checkpoints are.
const TEXT: &str = "text/plain; charset=utf-8";

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

async fn listed(caller: &Caller, of: EventsAsk, query: EventsQuery) -> Answered {
    let ask = ListEvents(EventsAsk {
        kind: query.r#type,
        from: query.from.unwrap_or(0),
        limit: query.limit.unwrap_or(LIMIT),
        ..of
    });
    caller.answer(ask).await
}

/// List what the ledger has of the tenant's sandboxes.
#[utoipa::path(get, path = "/v1/ledger/events", params(EventsQuery), tag = "ledger", responses((status = 200, body = EventList)))]
pub(crate) async fn all(caller: Caller, Query(query): Query<EventsQuery>) -> Answered {
    listed(&caller, EventsAsk::default(), query).await
}

/// List what the ledger has of one run: a sandbox names its own.
#[utoipa::path(get, path = "/v1/runs/{run}/events", params(EventsQuery), tag = "ledger", responses((status = 200, body = EventList)))]
pub(crate) async fn of_run(
    caller: Caller,
    Path(run): Path<String>,
    Query(query): Query<EventsQuery>,
) -> Answered {
    let of = EventsAsk {
        run: Some(run),
        ..EventsAsk::default()
    };
    listed(&caller, of, query).await
}

/// List the sessions of the tenant, the oldest first.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", responses((status = 200, body = Vec<SessionFacts>)))]
pub(crate) async fn sessions(caller: Caller) -> Answered {
    caller.answer(ListSessions {}).await
}

/// List what the ledger has of a session: of all its sandboxes, and its notes.
#[utoipa::path(get, path = "/v1/sessions/{session}/events", params(EventsQuery), tag = "sessions", responses((status = 200, body = EventList)))]
pub(crate) async fn of_session(
    caller: Caller,
    Path(session): Path<String>,
    Query(query): Query<EventsQuery>,
) -> Answered {
    let of = EventsAsk {
        session: Some(session),
        ..EventsAsk::default()
    };
    listed(&caller, of, query).await
}

/// A note in a session.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteBody {
    /// Any JSON, up to 64 KiB.
    note: Value,
}

/// Add a note to a session: durable once this is answered, whoever ends then.
#[utoipa::path(post, path = "/v1/sessions/{session}/notes", request_body = NoteBody, tag = "sessions", responses((status = 201, body = Noted)))]
pub(crate) async fn note(
    caller: Caller,
    Path(session): Path<String>,
    Json(NoteBody { note }): Json<NoteBody>,
) -> Answered {
    caller.made(AddNote { session, note }).await
}

/// Prove that an event is in the ledger (C2SP tlog-proof).
#[utoipa::path(get, path = "/v1/ledger/events/{number}/proof", tag = "ledger", responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn proof(caller: Caller, Path(number): Path<u64>) -> Answered {
    Ok(text(TEXT, caller.call(Prove { number }).await?))
}

/// Sign the ledger as it is now (C2SP tlog-checkpoint).
#[utoipa::path(get, path = "/v1/ledger/checkpoint", tag = "ledger", responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn checkpoint(caller: Caller) -> Answered {
    Ok(text(TEXT, caller.call(Checkpoint {}).await?))
}

/// List the calls that wait for an approver.
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals", responses((status = 200, body = Vec<ApprovalFacts>)))]
pub(crate) async fn approvals(caller: Caller) -> Answered {
    caller.answer(ListApprovals {}).await
}

/// Grant or deny a call that waits.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/approvals/{approval}", request_body = DecideAsk, tag = "approvals", responses((status = 200)))]
pub(crate) async fn decide(
    caller: Caller,
    Path((sandbox, approval)): Path<(String, u32)>,
    Json(decision): Json<DecideAsk>,
) -> Answered {
    let ask = Decide { approval, decision };
    caller.sandbox(&sandbox).carry_out(ask).await
}
