//! The keys of callers.

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
use crate::protocol::{Ask, KeyFacts, KeysAsk, Reply};

/// List the keys of callers, without what they are.
#[utoipa::path(get, path = "/v1/keys", tag = "keys",
    responses((status = 200, body = Vec<KeyFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn keys(State(front): State<Arc<Front>>, headers: HeaderMap) -> Answered {
    match front
        .ask(credential(&headers), Ask::Keys(KeysAsk::List))
        .await?
    {
        Reply::Keys(keys) => Ok(answer_json(StatusCode::OK, &keys)),
        _ => Err(strange().into()),
    }
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

/// A key that was made.
#[derive(Serialize, ToSchema)]
pub(crate) struct MadeKey {
    /// The key: shown this once.
    key: String,
    facts: KeyFacts,
}

/// Make a key.
#[utoipa::path(post, path = "/v1/keys", request_body = KeyBody, tag = "keys",
    responses((status = 201, body = MadeKey), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn make_key(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    content: Body,
) -> Answered {
    let asked: KeyBody = body(content).await?;
    let ask = Ask::Keys(KeysAsk::Make {
        tenant: asked.tenant,
        name: asked.name,
        role: asked.role.unwrap_or_else(|| "user".to_owned()),
        scopes: asked.scopes,
        expires_s: asked.expires_s,
    });
    match front.ask(credential(&headers), ask).await? {
        Reply::Key(facts, key) => Ok(answer_json(StatusCode::CREATED, &MadeKey { key, facts })),
        _ => Err(strange().into()),
    }
}

/// Revoke a key, from now on.
#[utoipa::path(delete, path = "/v1/keys/{key}", params(("key" = String, Path)), tag = "keys",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn revoke_key(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Answered {
    front
        .ask(credential(&headers), Ask::Keys(KeysAsk::Revoke { id }))
        .await?;
    Ok(done())
}
