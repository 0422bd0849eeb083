//! Files of a sandbox.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::{Answered, Content, Path, ProblemDetails, Query, done, event, events};
use crate::front::Front;
use crate::front::answers::{body, json as answer_json};
use crate::front::ask::{strange, within};
use crate::front::control::credential;
use crate::front::transfer::{fetch, store};
use crate::line::Frame;
use crate::protocol::{EntryFacts, InAsk, Refusal, Reply};

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
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    Query(query): Query<ListQuery>,
) -> Answered {
    let ask = InAsk::ListDirectory {
        path: query.path,
        depth: query.depth.unwrap_or(1),
    };
    let entries = entries(front.ask_in(credential(&headers), &sandbox, ask).await?)?;
    Ok(answer_json(StatusCode::OK, &entries))
}

/// Remove a file, or a directory with all in it; a missing one is removed already.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox}/files", params(("sandbox" = String, Path), FileQuery), tag = "files",
    responses((status = 200), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn remove(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    Query(query): Query<FileQuery>,
) -> Answered {
    let ask = InAsk::Remove { path: query.path };
    front.ask_in(credential(&headers), &sandbox, ask).await?;
    Ok(done())
}

/// Describe a file.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/stat", params(("sandbox" = String, Path), FileQuery), tag = "files",
    responses((status = 200, body = EntryFacts), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn stat(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    Query(query): Query<FileQuery>,
) -> Answered {
    let ask = InAsk::Stat { path: query.path };
    one(
        front.ask_in(credential(&headers), &sandbox, ask).await?,
        StatusCode::OK,
    )
}

/// Read a file, or a range of it.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/content", params(("sandbox" = String, Path), FileQuery), tag = "files",
    responses((status = 200, body = inline(Content), content_type = "application/octet-stream"), (status = 206, body = inline(Content), content_type = "application/octet-stream"),
        (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn download(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    Query(query): Query<FileQuery>,
) -> Answered {
    let key = credential(&headers);
    Ok(fetch(&front, key, Some(&sandbox), query.path, &headers).await?)
}

/// Write the body to a file, and make the directories above it.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox}/files/content", params(("sandbox" = String, Path), FileQuery), tag = "files",
    request_body(content = inline(Content), content_type = "application/octet-stream"),
    responses((status = 200, body = EntryFacts), (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn upload(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    Query(query): Query<FileQuery>,
    content: Body,
) -> Answered {
    let key = credential(&headers);
    let entry = store(&front, &key, &sandbox, &query.path, content).await?;
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
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    content: Body,
) -> Answered {
    let asked: PathBody = body(content).await?;
    let ask = InAsk::MakeDirectory { path: asked.path };
    one(
        front.ask_in(credential(&headers), &sandbox, ask).await?,
        StatusCode::CREATED,
    )
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
pub(crate) async fn move_to(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    content: Body,
) -> Answered {
    let asked: MoveBody = body(content).await?;
    let ask = InAsk::Move {
        from: asked.from,
        to: asked.to,
    };
    one(
        front.ask_in(credential(&headers), &sandbox, ask).await?,
        StatusCode::OK,
    )
}

/// Follow the changes in a directory, as server-sent events: `begun`, then `change`s.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/changes", params(("sandbox" = String, Path), ChangesQuery), tag = "files",
    responses((status = 200, content_type = "text/event-stream"),
        (status = "default", body = ProblemDetails, content_type = "application/problem+json")))]
pub(crate) async fn changes(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    Path(sandbox): Path<String>,
    Query(query): Query<ChangesQuery>,
) -> Answered {
    let ask = InAsk::Watch {
        path: query.path,
        recursive: query.recursive.unwrap_or(false),
    };
    let mut line = front
        .begin(credential(&headers), within(&sandbox, ask))
        .await?;
    line.reply().await?;
    let begin = (Some(event("begun", None, &json!({}))), line);
    let told = futures_util::stream::unfold(Some(begin), async |state| {
        let (begun, mut line) = state?;
        if let Some(begun) = begun {
            return Some((Ok(Bytes::from(begun)), Some((None, line))));
        }
        Some(match line.reader.next::<Reply>().await {
            Ok(Some(Frame::Message(Reply::Changed(changes)))) => {
                let text: String = changes
                    .iter()
                    .map(|change| event("change", None, &json!(change)))
                    .collect();
                (Ok(text.into()), Some((None, line)))
            }
            Ok(_) => (Err(io::Error::from(io::ErrorKind::UnexpectedEof)), None),
            Err(error) => (Err(error), None),
        })
    });
    Ok(events(Body::from_stream(told)))
}

fn entries(reply: Reply) -> Result<Vec<EntryFacts>, Refusal> {
    match reply {
        Reply::Entries(entries) => Ok(entries),
        _ => Err(strange()),
    }
}

fn one(reply: Reply, status: StatusCode) -> Result<Response, super::Problem> {
    let entry = entries(reply)?.pop().ok_or_else(strange)?;
    Ok(answer_json(status, &entry))
}
