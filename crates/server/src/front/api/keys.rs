//! The keys of callers.

use utoipa::ToSchema;

use super::{Answered, Json, Path};
use crate::front::dialect::*;

/// List the keys of callers, without what they are.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", responses((status = 200, body = Vec<KeyFacts>)))]
pub(crate) async fn keys(caller: Caller) -> Answered {
    caller.answer(ListKeys {}).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyBody {
    /// The caller's name.
    name: String,
    /// The tenant; `default` if it is left out.
    tenant: Option<String>,
    /// The role; `user` if it is left out.
    role: Option<String>,
    /// The scopes within that: read, create, exec, files, ports; everything if they are left out.
    scopes: Option<Vec<String>>,
    /// The time from which it is refused, seconds since 1970.
    expires_s: Option<u64>,
}

/// Make a key.
#[utoipa::path(post, path = "/v1/keys", request_body = KeyBody, tag = "keys", responses((status = 201, body = MadeKey)))]
pub(crate) async fn make_key(caller: Caller, Json(asked): Json<KeyBody>) -> Answered {
    let ask = MakeKey {
        tenant: asked.tenant,
        name: asked.name,
        role: asked.role.unwrap_or_else(|| "user".to_owned()),
        scopes: asked.scopes,
        expires_s: asked.expires_s,
    };
    caller.made(ask).await
}

/// Revoke a key, from now on.
#[utoipa::path(delete, path = "/v1/keys/{key}", tag = "keys", responses((status = 200)))]
pub(crate) async fn revoke_key(caller: Caller, Path(id): Path<String>) -> Answered {
    caller.carry_out(RevokeKey { id }).await
}
