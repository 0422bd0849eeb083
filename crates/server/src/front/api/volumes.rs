//! Volumes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Answered, Path, ProblemDetails, done};
use crate::front::Front;
use crate::front::answers::{body, json as answer_json};
use crate::front::ask::strange;
use crate::front::control::credential;
use crate::protocol::{Ask, Refusal, Reply, VolumeAsk, VolumeFacts, VolumesAsk};

/// A volume, with the token by which its files are reached.
#[derive(Serialize, ToSchema)]
pub(crate) struct OwnVolume {
    volume: VolumeFacts,
    /// For `/volumecontent/{volume}`, as a bearer token; a key with the scope `files` is another.
    token: Option<String>,
}

async fn one(front: &Front, headers: &HeaderMap, ask: VolumesAsk) -> Result<OwnVolume, Refusal> {
    match front.ask(credential(headers), Ask::Volumes(ask)).await? {
        Reply::Volume(volume, token) => Ok(OwnVolume { volume, token }),
        _ => Err(strange()),
    }
}

/// Make a volume: a directory that outlives the sandboxes it is mounted in.
#[utoipa::path(post, path = "/v1/volumes", request_body = VolumeAsk, tag = "volumes",
    responses((status = 201, body = OwnVolume), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn make(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    content: Body,
) -> Answered {
    let ask = VolumesAsk::Make(body(content).await?);
    let made = one(&front, &headers, ask).await?;
    Ok(answer_json(StatusCode::CREATED, &made))
}

/// List the volumes of the tenant, the oldest first.
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes",
    responses((status = 200, body = Vec<VolumeFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn list(State(front): State<Arc<Front>>, headers: HeaderMap) -> Answered {
    let ask = Ask::Volumes(VolumesAsk::List);
    match front.ask(credential(&headers), ask).await? {
        Reply::Volumes(all) => Ok(answer_json(StatusCode::OK, &all)),
        _ => Err(strange().into()),
    }
}

/// Describe a volume, by its id or name, with its token.
#[utoipa::path(get, path = "/v1/volumes/{volume}", params(("volume" = String, Path)), tag = "volumes",
    responses((status = 200, body = OwnVolume), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn get(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Answered {
    let found = one(&front, &headers, VolumesAsk::Get { id }).await?;
    Ok(answer_json(StatusCode::OK, &found))
}

/// Remove a volume that no living sandbox has, with its files.
#[utoipa::path(delete, path = "/v1/volumes/{volume}", params(("volume" = String, Path)), tag = "volumes",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn remove(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Answered {
    let ask = Ask::Volumes(VolumesAsk::Remove { id });
    front.ask(credential(&headers), ask).await?;
    Ok(done())
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VolumeSnapshotBody {
    /// The name of the copy; one is made up if it is left out.
    name: Option<String>,
}

/// Copy a volume that nothing changes meanwhile to one that is only read: others can begin with it.
#[utoipa::path(post, path = "/v1/volumes/{volume}/snapshots", request_body = VolumeSnapshotBody, params(("volume" = String, Path)), tag = "volumes",
    responses((status = 201, body = OwnVolume), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn snapshot(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(id): Path<String>,
    content: Body,
) -> Answered {
    let VolumeSnapshotBody { name } = body(content).await?;
    let made = one(&front, &headers, VolumesAsk::Snapshot { id, name }).await?;
    Ok(answer_json(StatusCode::CREATED, &made))
}
