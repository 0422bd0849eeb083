//! Files of a sandbox.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use std::io;
use utoipa::{IntoParams, ToSchema};

use super::{Answered, Api, Content, Path, ProblemDetails, Query, event, events};
use crate::front::answers::{body, json as answer_json};
use crate::front::ask::within;
use crate::front::transfer::{fetch, store};
use crate::protocol::{EntryFacts, ListDirectory, MakeDirectory, Move, Remove, Stat, Watch};

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
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files", params(("sandbox" = String, Path), ListQuery), tag = "files",
    responses((status = 200, body = Vec<EntryFacts>), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn list(
    api: Api,
    Path(sandbox): Path<String>,
    Query(query): Query<ListQuery>,
) -> Answered {
    let ask = ListDirectory {
        path: query.path,
        depth: query.depth.unwrap_or(1),
    };
    api.answer(StatusCode::OK, within(&sandbox, ask)).await
}

/// Remove a file, or a directory with all in it; a missing one is removed already.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox}/files", params(("sandbox" = String, Path), FileQuery), tag = "files",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn remove(
    api: Api,
    Path(sandbox): Path<String>,
    Query(query): Query<FileQuery>,
) -> Answered {
    let ask = Remove { path: query.path };
    api.carry_out(within(&sandbox, ask)).await
}

/// Describe a file.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/stat", params(("sandbox" = String, Path), FileQuery), tag = "files",
    responses((status = 200, body = EntryFacts), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn stat(
    api: Api,
    Path(sandbox): Path<String>,
    Query(query): Query<FileQuery>,
) -> Answered {
    let ask = Stat { path: query.path };
    api.answer(StatusCode::OK, within(&sandbox, ask)).await
}

/// Read a file, or a range of it.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/content", params(("sandbox" = String, Path), FileQuery), tag = "files",
    responses((status = 200, body = inline(Content), content_type = "application/octet-stream"), (status = 206, body = inline(Content), content_type = "application/octet-stream"),
        (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn download(
    api: Api,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    Query(query): Query<FileQuery>,
) -> Answered {
    let key = api.key;
    Ok(fetch(&api.front, key, Some(&sandbox), query.path, &headers).await?)
}

/// Write the body to a file, and make the directories above it.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox}/files/content", params(("sandbox" = String, Path), FileQuery), tag = "files",
    request_body(content = inline(Content), content_type = "application/octet-stream"),
    responses((status = 200, body = EntryFacts), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn upload(
    api: Api,
    Path(sandbox): Path<String>,
    Query(query): Query<FileQuery>,
    content: Body,
) -> Answered {
    let key = api.key;
    let entry = store(&api.front, &key, &sandbox, &query.path, content).await?;
    Ok(answer_json(StatusCode::OK, &entry))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PathBody {
    /// The path, absolute or from the home.
    path: String,
}

/// Make a directory, and those above it.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/files/directory", request_body = PathBody, params(("sandbox" = String, Path)), tag = "files",
    responses((status = 201, body = EntryFacts), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn make_directory(
    api: Api,
    Path(sandbox): Path<String>,
    content: Body,
) -> Answered {
    let asked: PathBody = body(content).await?;
    let ask = MakeDirectory { path: asked.path };
    api.answer(StatusCode::CREATED, within(&sandbox, ask)).await
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
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/files/move", request_body = MoveBody, params(("sandbox" = String, Path)), tag = "files",
    responses((status = 200, body = EntryFacts), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn move_to(api: Api, Path(sandbox): Path<String>, content: Body) -> Answered {
    let asked: MoveBody = body(content).await?;
    let ask = Move {
        from: asked.from,
        to: asked.to,
    };
    api.answer(StatusCode::OK, within(&sandbox, ask)).await
}

/// Follow the changes in a directory, as server-sent events: `begun`, then `change`s.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/changes", params(("sandbox" = String, Path), ChangesQuery), tag = "files",
    responses((status = 200, content_type = "text/event-stream"),
        (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn changes(
    api: Api,
    Path(sandbox): Path<String>,
    Query(query): Query<ChangesQuery>,
) -> Answered {
    let ask = Watch {
        path: query.path,
        recursive: query.recursive.unwrap_or(false),
    };
    let mut line = api.front.begin(api.key, within(&sandbox, ask)).await?;
    line.reply().await?;
    let begin = (Some(event("begun", None, &json!({}))), line);
    let told = futures_util::stream::unfold(Some(begin), async |state| {
        let (begun, mut line) = state?;
        if let Some(begun) = begun {
            return Some((Ok(Bytes::from(begun)), Some((None, line))));
        }
        Some(match line.last().await {
            Ok(changes) => {
                let text: String = changes
                    .iter()
                    .map(|change| event("change", None, &json!(change)))
                    .collect();
                (Ok(text.into()), Some((None, line)))
            }
            Err(refusal) => (Err(io::Error::other(refusal)), None),
        })
    });
    Ok(events(Body::from_stream(told)))
}
