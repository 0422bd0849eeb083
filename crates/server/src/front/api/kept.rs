//! Pauses, snapshots and forks.

use serde::Serialize;
use utoipa::ToSchema;

use super::sandboxes::{Created, created};
use super::{Answered, Json, Path};
use crate::front::dialect::*;
use crate::front::kept::{filed, keeps};

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
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/pause", request_body = PauseBody, tag = "sandboxes", responses((status = 200, body = PausedBody)))]
pub(crate) async fn pause(sandbox: Sandbox, Json(asked): Json<PauseBody>) -> Answered {
    let memory = asked.memory != Some(false);
    let memory_kept = sandbox.call(Pause { memory }).await?;
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
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/connect", request_body = ConnectBody, tag = "sandboxes",
    responses((status = 200, body = Created), (status = 201, body = Created, description = "it was paused")))]
pub(crate) async fn connect(sandbox: Sandbox, Json(asked): Json<ConnectBody>) -> Answered {
    let timeout_s = asked.timeout_s;
    let connected = sandbox.call(Connect { timeout_s }).await?;
    let status = match connected.resumed {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok(created(status, connected))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotBody {
    /// A name, by which it is a template as by its id: one that no other snapshot of the tenant has,
    /// and no template.
    name: Option<String>,
}

/// Copy the files of a sandbox, as a template for others: it stands still meanwhile.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/snapshots", request_body = SnapshotBody, tag = "snapshots", responses((status = 201, body = SnapshotFacts)))]
pub(crate) async fn snapshot(sandbox: Sandbox, Json(asked): Json<SnapshotBody>) -> Answered {
    let made = sandbox.call(Snapshot { name: asked.name }).await?;
    let response = answer_json(StatusCode::CREATED, &made.facts);
    Ok(filed(keeps(response, false), made.filed))
}

/// List the snapshots of the tenant, the latest first.
#[utoipa::path(get, path = "/v1/snapshots", tag = "snapshots", responses((status = 200, body = Vec<SnapshotFacts>)))]
pub(crate) async fn snapshots(caller: Caller) -> Answered {
    let ask = ListSnapshots { sandbox: None };
    caller.answer(ask).await
}

/// Remove a snapshot.
#[utoipa::path(delete, path = "/v1/snapshots/{snapshot}", tag = "snapshots", responses((status = 200)))]
pub(crate) async fn remove_snapshot(caller: Caller, Path(id): Path<String>) -> Answered {
    caller.carry_out(RemoveSnapshot { id }).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollBackBody {
    /// The snapshot's id, or name.
    snapshot: String,
}

/// End the programs of a sandbox, which goes on with the files of a snapshot.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/rollback", request_body = RollBackBody, tag = "snapshots", responses((status = 200, body = Created)))]
pub(crate) async fn roll_back(sandbox: Sandbox, Json(asked): Json<RollBackBody>) -> Answered {
    let snapshot = asked.snapshot;
    let again = sandbox.call(RollBack { snapshot }).await?;
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
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/fork", request_body = ForkBody, tag = "snapshots", responses((status = 201, body = Vec<Forked>)))]
pub(crate) async fn fork(sandbox: Sandbox, Json(asked): Json<ForkBody>) -> Answered {
    let (count, timeout_s) = (asked.count.unwrap_or(1), asked.timeout_s);
    let made = sandbox.call(Fork { count, timeout_s }).await?;
    let forks = made.forks.into_iter().map(|fork| match fork {
        Ok(created) => Forked {
            created: Some(created.into()),
            problem: None,
        },
        Err(refusal) => Forked {
            created: None,
            problem: Some(refusal.told()),
        },
    });
    let all: Vec<Forked> = forks.collect();
    Ok(filed(answer_json(StatusCode::CREATED, &all), made.filed))
}
