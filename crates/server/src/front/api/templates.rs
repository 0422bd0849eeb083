//! Templates that were built: what there is of a tenant's.

use super::{Answered, Path};
use crate::front::dialect::*;

/// List the templates that the tenant has built.
#[utoipa::path(get, path = "/v1/templates", tag = "templates", responses((status = 200, body = Vec<TemplateFacts>)))]
pub(crate) async fn list(caller: Caller) -> Answered {
    caller.answer(ListTemplates {}).await
}

/// Describe a template, by its id or name.
#[utoipa::path(get, path = "/v1/templates/{template}", tag = "templates", responses((status = 200, body = TemplateFacts)))]
pub(crate) async fn get(caller: Caller, Path(id): Path<String>) -> Answered {
    caller.answer(GetTemplate { id }).await
}

/// Remove a template that no sandbox and no snapshot stands on, with its files.
#[utoipa::path(delete, path = "/v1/templates/{template}", tag = "templates", responses((status = 200)))]
pub(crate) async fn remove(caller: Caller, Path(id): Path<String>) -> Answered {
    caller.carry_out(RemoveTemplate { id }).await
}
