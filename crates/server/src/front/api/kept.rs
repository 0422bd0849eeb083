//! Pauses, snapshots and forks.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sandboxes::{Created, created};
use super::{Answered, Path, ProblemDetails, done};
use crate::front::Front;
use crate::front::answers::{body, json as answer_json};
use crate::front::ask::strange;
use crate::front::control::{credential, reaches};
use crate::front::kept::{filed, keeps};
use crate::protocol::{Ask, InAsk, Refusal, Reply, SnapshotFacts, SnapshotsAsk};

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PauseBody {
    /// False to keep its files alone; otherwise its memory is kept too, for a time, where there is room.
    memory: Option<bool>,
}

/// The parts of a paused sandbox that are kept.
#[derive(Serialize, ToSchema)]
pub(crate) struct PausedBody {
    /// True if its memory is kept: its programs go on as they were.
    memory_kept: bool,
}

/// Have the programs of a sandbox stand still, or end them, and keep its files until it goes on.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/pause", request_body = PauseBody, params(("sandbox" = String, Path)), tag = "sandboxes",
    responses((status = 200, body = PausedBody), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn pause(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    content: Body,
) -> Answered {
    let PauseBody { memory } = body(content).await?;
    let ask = InAsk::Pause {
        memory: memory != Some(false),
    };
    match front.ask_in(credential(&headers), &sandbox, ask).await? {
        Reply::Paused(memory_kept) => {
            let response = answer_json(StatusCode::OK, &PausedBody { memory_kept });
            Ok(keeps(response, memory_kept))
        }
        _ => Err(strange().into()),
    }
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConnectBody {
    /// Its life from now on, seconds; only made longer.
    timeout_s: Option<u64>,
}

/// Describe a sandbox with its tokens; one that is paused goes on, with its files.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/connect", request_body = ConnectBody, params(("sandbox" = String, Path)), tag = "sandboxes",
    responses((status = 200, body = Created), (status = 201, body = Created, description = "it was paused"), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn connect(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    content: Body,
) -> Answered {
    let ConnectBody { timeout_s } = body(content).await?;
    let ask = InAsk::Connect { timeout_s };
    let reply = front.ask_in(credential(&headers), &sandbox, ask).await?;
    let status = match reply {
        Reply::Created { resumed: true, .. } => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    let created = created(reply)?;
    let response = answer_json(status, &created);
    Ok(reaches(response, &created.sandbox.network))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotBody {
    /// A name, by which it is a template as by its id: one that no other snapshot of the tenant has,
    /// and no template.
    name: Option<String>,
}

/// Copy the files of a sandbox, as a template for others: it stands still meanwhile.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/snapshots", request_body = SnapshotBody, params(("sandbox" = String, Path)), tag = "snapshots",
    responses((status = 201, body = SnapshotFacts), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn snapshot(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    content: Body,
) -> Answered {
    let SnapshotBody { name } = body(content).await?;
    let ask = InAsk::Snapshot { name };
    match front.ask_in(credential(&headers), &sandbox, ask).await? {
        Reply::Snapshot(facts, how) => {
            let response = answer_json(StatusCode::CREATED, &facts);
            Ok(filed(keeps(response, false), how))
        }
        _ => Err(strange().into()),
    }
}

/// List the snapshots of the tenant, the latest first.
#[utoipa::path(get, path = "/v1/snapshots", tag = "snapshots",
    responses((status = 200, body = Vec<SnapshotFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn snapshots(State(front): State<Arc<Front>>, headers: HeaderMap) -> Answered {
    let ask = Ask::Snapshots(SnapshotsAsk::List { sandbox: None });
    match front.ask(credential(&headers), ask).await? {
        Reply::Snapshots(all) => Ok(answer_json(StatusCode::OK, &all)),
        _ => Err(strange().into()),
    }
}

/// Remove a snapshot.
#[utoipa::path(delete, path = "/v1/snapshots/{snapshot}", params(("snapshot" = String, Path)), tag = "snapshots",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn remove_snapshot(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Answered {
    let ask = Ask::Snapshots(SnapshotsAsk::Remove { id });
    front.ask(credential(&headers), ask).await?;
    Ok(done())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollBackBody {
    /// The snapshot's id, or name.
    snapshot: String,
}

/// End the programs of a sandbox, which goes on with the files of a snapshot.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/rollback", request_body = RollBackBody, params(("sandbox" = String, Path)), tag = "snapshots",
    responses((status = 200, body = Created), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn roll_back(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    content: Body,
) -> Answered {
    let RollBackBody { snapshot } = body(content).await?;
    let ask = InAsk::RollBack { snapshot };
    let reply = front.ask_in(credential(&headers), &sandbox, ask).await?;
    Ok(answer_json(StatusCode::OK, &created(reply)?))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkBody {
    /// The number of forks, up to 100; one if it is left out.
    count: Option<usize>,
    /// Their life, seconds.
    timeout_s: Option<u64>,
}

/// A fork, or why there is none.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct Forked {
    created: Option<Created>,
    problem: Option<String>,
}

/// Make further sandboxes that begin with the files of one, as they are at one moment.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/fork", request_body = ForkBody, params(("sandbox" = String, Path)), tag = "snapshots",
    responses((status = 201, body = Vec<Forked>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn fork(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    content: Body,
) -> Answered {
    let asked: ForkBody = body(content).await?;
    let ask = InAsk::Fork {
        count: asked.count.unwrap_or(1),
        timeout_s: asked.timeout_s,
    };
    let Reply::Forks(forks, how) = front.ask_in(credential(&headers), &sandbox, ask).await? else {
        return Err(strange().into());
    };
    let one = |fork: Result<Box<Reply>, Refusal>| match fork.and_then(|made| created(*made)) {
        Ok(created) => Forked {
            created: Some(created),
            problem: None,
        },
        Err(refusal) => Forked {
            created: None,
            problem: Some(refusal.told()),
        },
    };
    let all: Vec<Forked> = forks.into_iter().map(one).collect();
    Ok(filed(answer_json(StatusCode::CREATED, &all), how))
}
