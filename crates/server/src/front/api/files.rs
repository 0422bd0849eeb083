//! Files of a sandbox.

use utoipa::{IntoParams, ToSchema};

use super::{Answered, Content, Json, Query};
use crate::front::dialect::*;
use crate::front::stream::{event, events};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileQuery {
    /// The path, absolute or from the home.
    path: String,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// The directory, absolute or from the home.
    path: String,
    /// The levels; 1 if it is left out.
    depth: Option<u32>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangesQuery {
    /// The directory, absolute or from the home.
    path: String,
    /// True for the directories in it too.
    recursive: Option<bool>,
}

/// List a directory.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files", params(ListQuery), tag = "files", responses((status = 200, body = Vec<EntryFacts>)))]
pub(crate) async fn list(sandbox: Sandbox, Query(query): Query<ListQuery>) -> Answered {
    let (path, depth) = (query.path, query.depth.unwrap_or(1));
    sandbox.answer(ListDirectory { path, depth }).await
}

/// Remove a file, or a directory with all in it; a missing one is removed already.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox}/files", params(FileQuery), tag = "files", responses((status = 200)))]
pub(crate) async fn remove(sandbox: Sandbox, Query(query): Query<FileQuery>) -> Answered {
    sandbox.carry_out(Remove { path: query.path }).await
}

/// Describe a file.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/stat", params(FileQuery), tag = "files", responses((status = 200, body = EntryFacts)))]
pub(crate) async fn stat(sandbox: Sandbox, Query(query): Query<FileQuery>) -> Answered {
    sandbox.answer(Stat { path: query.path }).await
}

/// Read a file, or a range of it.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/content", params(FileQuery), tag = "files",
    responses((status = 200, body = inline(Content), content_type = "application/octet-stream"), (status = 206, body = inline(Content), content_type = "application/octet-stream")))]
pub(crate) async fn download(
    headers: HeaderMap,
    sandbox: Sandbox,
    Query(query): Query<FileQuery>,
) -> Answered {
    Ok(sandbox.fetch(query.path, &headers).await?)
}

/// Write the body to a file, and make the directories above it.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox}/files/content", params(FileQuery), tag = "files",
    request_body(content = inline(Content), content_type = "application/octet-stream"),
    responses((status = 200, body = EntryFacts)))]
pub(crate) async fn upload(
    sandbox: Sandbox,
    Query(query): Query<FileQuery>,
    content: Body,
) -> Answered {
    let entry = sandbox.store(&query.path, content).await?;
    Ok(answer_json(StatusCode::OK, &entry))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PathBody {
    /// The path, absolute or from the home.
    path: String,
}

/// Make a directory, and those above it.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/files/directory", request_body = PathBody, tag = "files", responses((status = 201, body = EntryFacts)))]
pub(crate) async fn make_directory(sandbox: Sandbox, Json(asked): Json<PathBody>) -> Answered {
    let ask = MakeDirectory { path: asked.path };
    sandbox.made(ask).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveBody {
    /// The old path.
    from: String,
    /// The new path; what is there is replaced.
    to: String,
}

/// Move a file or directory.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/files/move", request_body = MoveBody, tag = "files", responses((status = 200, body = EntryFacts)))]
pub(crate) async fn move_to(sandbox: Sandbox, Json(asked): Json<MoveBody>) -> Answered {
    let MoveBody { from, to } = asked;
    sandbox.answer(Move { from, to }).await
}

/// Follow the changes in a directory, as server-sent events: `begun`, then `change`s.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/changes", params(ChangesQuery), tag = "files", responses((status = 200, content_type = "text/event-stream")))]
pub(crate) async fn changes(sandbox: Sandbox, Query(query): Query<ChangesQuery>) -> Answered {
    let (path, recursive) = (query.path, query.recursive.unwrap_or(false));
    let mut line = sandbox.begin(Watch { path, recursive }).await?;
    line.reply().await?;
    let (out, response) = events();
    tokio::spawn(async move {
        let mut is_there = out.send(event("begun", None, &json!({}))).await;
        while is_there && let Some(Next::Message(changes)) = out.next(&mut line).await {
            let events = changes.iter().map(|one| event("change", None, &json!(one)));
            let text: String = events.collect();
            is_there = out.send(text).await;
        }
    });
    Ok(response)
}
