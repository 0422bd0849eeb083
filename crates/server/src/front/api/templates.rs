//! Templates that were built: what there is of a tenant's.

use axum::http::StatusCode;

use super::{Answered, Api, Path, ProblemDetails};
use crate::protocol::{GetTemplate, ListTemplates, RemoveTemplate, TemplateFacts};

/// List the templates that the tenant has built.
#[utoipa::path(get, path = "/v1/templates", tag = "templates",
    responses((status = 200, body = Vec<TemplateFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn list(api: Api) -> Answered {
    api.answer(StatusCode::OK, ListTemplates {}).await
}

/// Describe a template, by its id or name.
#[utoipa::path(get, path = "/v1/templates/{template}", params(("template" = String, Path)), tag = "templates",
    responses((status = 200, body = TemplateFacts), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn get(api: Api, Path(id): Path<String>) -> Answered {
    api.answer(StatusCode::OK, GetTemplate { id }).await
}

/// Remove a template that no sandbox and no snapshot stands on, with its files.
#[utoipa::path(delete, path = "/v1/templates/{template}", params(("template" = String, Path)), tag = "templates",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn remove(api: Api, Path(id): Path<String>) -> Answered {
    let ask = RemoveTemplate { id };
    api.carry_out(ask).await
}
