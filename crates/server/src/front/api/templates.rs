//! Templates that were built: what there is of a tenant's.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};

use super::{Answered, Path, ProblemDetails, done};
use crate::front::Front;
use crate::front::answers::json as answer_json;
use crate::front::ask::strange;
use crate::front::control::credential;
use crate::protocol::{Ask, Reply, TemplateFacts, TemplatesAsk};

/// List the templates that the tenant has built.
#[utoipa::path(get, path = "/v1/templates", tag = "templates",
    responses((status = 200, body = Vec<TemplateFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn list(State(front): State<Arc<Front>>, headers: HeaderMap) -> Answered {
    let ask = Ask::Templates(TemplatesAsk::List);
    match front.ask(credential(&headers), ask).await? {
        Reply::Templates(all) => Ok(answer_json(StatusCode::OK, &all)),
        _ => Err(strange().into()),
    }
}

/// Describe a template, by its id or name.
#[utoipa::path(get, path = "/v1/templates/{template}", params(("template" = String, Path)), tag = "templates",
    responses((status = 200, body = TemplateFacts), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn get(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Answered {
    let ask = Ask::Templates(TemplatesAsk::Get { id });
    match front.ask(credential(&headers), ask).await? {
        Reply::Template(facts) => Ok(answer_json(StatusCode::OK, &facts)),
        _ => Err(strange().into()),
    }
}

/// Remove a template that no sandbox and no snapshot stands on, with its files.
#[utoipa::path(delete, path = "/v1/templates/{template}", params(("template" = String, Path)), tag = "templates",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn remove(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Answered {
    let ask = Ask::Templates(TemplatesAsk::Remove { id });
    front.ask(credential(&headers), ask).await?;
    Ok(done())
}
