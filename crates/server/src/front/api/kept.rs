//! Pauses, snapshots and forks.

use axum::body::Body;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sandboxes::Created;
use super::{Answered, Api, Path, ProblemDetails};
use crate::front::answers::{body, json as answer_json};
use crate::front::control::reaches;
use crate::front::kept::{filed, keeps};
use crate::protocol::{
    Connect, CreatedFacts, Fork, ListSnapshots, Pause, Refusal, RemoveSnapshot, RollBack, Snapshot,
    SnapshotFacts,
};

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
pub(crate) async fn pause(api: Api, Path(sandbox): Path<String>, content: Body) -> Answered {
    let PauseBody { memory } = body(content).await?;
    let ask = Pause {
        memory: memory != Some(false),
    };
    let memory_kept = api.front.call_in(api.key, &sandbox, ask).await?;
    let response = answer_json(StatusCode::OK, &PausedBody { memory_kept });
    Ok(keeps(response, memory_kept))
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
pub(crate) async fn connect(api: Api, Path(sandbox): Path<String>, content: Body) -> Answered {
    let ConnectBody { timeout_s } = body(content).await?;
    let ask = Connect { timeout_s };
    let connected = api.front.call_in(api.key, &sandbox, ask).await?;
    let status = match connected.resumed {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    let created = Created::from(connected);
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
pub(crate) async fn snapshot(api: Api, Path(sandbox): Path<String>, content: Body) -> Answered {
    let SnapshotBody { name } = body(content).await?;
    let ask = Snapshot { name };
    let made = api.front.call_in(api.key, &sandbox, ask).await?;
    let response = answer_json(StatusCode::CREATED, &made.facts);
    Ok(filed(keeps(response, false), made.filed))
}

/// List the snapshots of the tenant, the latest first.
#[utoipa::path(get, path = "/v1/snapshots", tag = "snapshots",
    responses((status = 200, body = Vec<SnapshotFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn snapshots(api: Api) -> Answered {
    let ask = ListSnapshots { sandbox: None };
    api.answer(StatusCode::OK, ask).await
}

/// Remove a snapshot.
#[utoipa::path(delete, path = "/v1/snapshots/{snapshot}", params(("snapshot" = String, Path)), tag = "snapshots",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn remove_snapshot(api: Api, Path(id): Path<String>) -> Answered {
    let ask = RemoveSnapshot { id };
    api.carry_out(ask).await
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
pub(crate) async fn roll_back(api: Api, Path(sandbox): Path<String>, content: Body) -> Answered {
    let RollBackBody { snapshot } = body(content).await?;
    let ask = RollBack { snapshot };
    let again = api.front.call_in(api.key, &sandbox, ask).await?;
    Ok(answer_json(StatusCode::OK, &Created::from(again)))
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
pub(crate) async fn fork(api: Api, Path(sandbox): Path<String>, content: Body) -> Answered {
    let asked: ForkBody = body(content).await?;
    let ask = Fork {
        count: asked.count.unwrap_or(1),
        timeout_s: asked.timeout_s,
    };
    let made = api.front.call_in(api.key, &sandbox, ask).await?;
    let one = |fork: Result<CreatedFacts, Refusal>| match fork {
        Ok(created) => Forked {
            created: Some(created.into()),
            problem: None,
        },
        Err(refusal) => Forked {
            created: None,
            problem: Some(refusal.told()),
        },
    };
    let all: Vec<Forked> = made.forks.into_iter().map(one).collect();
    Ok(filed(answer_json(StatusCode::CREATED, &all), made.filed))
}
