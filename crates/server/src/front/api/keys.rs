//! The keys of callers.

use axum::body::Body;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Answered, Api, Path, ProblemDetails};
use crate::front::answers::body;
use crate::protocol::{KeyFacts, ListKeys, MadeKey, MakeKey, RevokeKey};

/// List the keys of callers, without what they are.
#[utoipa::path(get, path = "/v1/keys", tag = "keys",
    responses((status = 200, body = Vec<KeyFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn keys(api: Api) -> Answered {
    api.answer(StatusCode::OK, ListKeys {}).await
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
#[utoipa::path(post, path = "/v1/keys", request_body = KeyBody, tag = "keys",
    responses((status = 201, body = MadeKey), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn make_key(api: Api, content: Body) -> Answered {
    let asked: KeyBody = body(content).await?;
    let ask = MakeKey {
        tenant: asked.tenant,
        name: asked.name,
        role: asked.role.unwrap_or_else(|| "user".to_owned()),
        scopes: asked.scopes,
        expires_s: asked.expires_s,
    };
    api.answer(StatusCode::CREATED, ask).await
}

/// Revoke a key, from now on.
#[utoipa::path(delete, path = "/v1/keys/{key}", params(("key" = String, Path)), tag = "keys",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn revoke_key(api: Api, Path(id): Path<String>) -> Answered {
    let ask = RevokeKey { id };
    api.carry_out(ask).await
}
