//! Volumes.

use utoipa::ToSchema;

use super::{Answered, Json, Path};
use crate::front::dialect::*;

/// Make a volume: a directory that outlives the sandboxes it is mounted in.
#[utoipa::path(post, path = "/v1/volumes", request_body = VolumeAsk, tag = "volumes", responses((status = 201, body = OwnVolume)))]
pub(crate) async fn make(caller: Caller, Json(asked): Json<VolumeAsk>) -> Answered {
    caller.made(MakeVolume(asked)).await
}

/// List the volumes of the tenant, the oldest first.
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes", responses((status = 200, body = Vec<VolumeFacts>)))]
pub(crate) async fn list(caller: Caller) -> Answered {
    caller.answer(ListVolumes {}).await
}

/// Describe a volume, by its id or name, with its token.
#[utoipa::path(get, path = "/v1/volumes/{volume}", tag = "volumes", responses((status = 200, body = OwnVolume)))]
pub(crate) async fn get(caller: Caller, Path(id): Path<String>) -> Answered {
    caller.answer(GetVolume { id }).await
}

/// Remove a volume that no living sandbox has, with its files.
#[utoipa::path(delete, path = "/v1/volumes/{volume}", tag = "volumes", responses((status = 200)))]
pub(crate) async fn remove(caller: Caller, Path(id): Path<String>) -> Answered {
    caller.carry_out(RemoveVolume { id }).await
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VolumeSnapshotBody {
    /// The name of the copy; one is made up if it is left out.
    name: Option<String>,
}

/// Copy a volume that nothing changes meanwhile to one that is only read: others can begin with it.
#[utoipa::path(post, path = "/v1/volumes/{volume}/snapshots", request_body = VolumeSnapshotBody, tag = "volumes", responses((status = 201, body = OwnVolume)))]
pub(crate) async fn snapshot(
    caller: Caller,
    Path(id): Path<String>,
    Json(VolumeSnapshotBody { name }): Json<VolumeSnapshotBody>,
) -> Answered {
    caller.made(SnapshotVolume { id, name }).await
}
