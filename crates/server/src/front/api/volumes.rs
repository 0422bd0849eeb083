//! Volumes.

use axum::body::Body;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Answered, Api, Path, ProblemDetails};
use crate::front::answers::body;
use crate::protocol::{
    GetVolume, ListVolumes, MakeVolume, OwnVolume, RemoveVolume, SnapshotVolume, VolumeAsk,
    VolumeFacts,
};

/// Make a volume: a directory that outlives the sandboxes it is mounted in.
#[utoipa::path(post, path = "/v1/volumes", request_body = VolumeAsk, tag = "volumes",
    responses((status = 201, body = OwnVolume), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn make(api: Api, content: Body) -> Answered {
    let ask = MakeVolume(body(content).await?);
    api.answer(StatusCode::CREATED, ask).await
}

/// List the volumes of the tenant, the oldest first.
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes",
    responses((status = 200, body = Vec<VolumeFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn list(api: Api) -> Answered {
    api.answer(StatusCode::OK, ListVolumes {}).await
}

/// Describe a volume, by its id or name, with its token.
#[utoipa::path(get, path = "/v1/volumes/{volume}", params(("volume" = String, Path)), tag = "volumes",
    responses((status = 200, body = OwnVolume), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn get(api: Api, Path(id): Path<String>) -> Answered {
    api.answer(StatusCode::OK, GetVolume { id }).await
}

/// Remove a volume that no living sandbox has, with its files.
#[utoipa::path(delete, path = "/v1/volumes/{volume}", params(("volume" = String, Path)), tag = "volumes",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn remove(api: Api, Path(id): Path<String>) -> Answered {
    let ask = RemoveVolume { id };
    api.carry_out(ask).await
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
pub(crate) async fn snapshot(api: Api, Path(id): Path<String>, content: Body) -> Answered {
    let VolumeSnapshotBody { name } = body(content).await?;
    let ask = SnapshotVolume { id, name };
    api.answer(StatusCode::CREATED, ask).await
}
