//! Artifacts: what sandboxes have put out, and the decisions about it.

use utoipa::{IntoParams, ToSchema};

use super::{Answered, Json, Path, Query};
use crate::front::dialect::*;
use crate::front::files::to_keep;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArtifactsQuery {
    /// Those of one sandbox.
    sandbox: Option<String>,
    /// Those of one state: `held`, `promoted` or `rejected`.
    state: Option<String>,
}

/// List the artifacts of the tenant: what its sandboxes have put out to `/outputs`, the newest sandbox
/// first.
#[utoipa::path(get, path = "/v1/artifacts", params(ArtifactsQuery), tag = "artifacts", responses((status = 200, body = Vec<ArtifactFacts>)))]
pub(crate) async fn list(caller: Caller, Query(query): Query<ArtifactsQuery>) -> Answered {
    let (sandbox, state) = (query.sandbox, query.state);
    caller.answer(ListArtifacts { sandbox, state }).await
}

/// Describe an artifact.
#[utoipa::path(get, path = "/v1/artifacts/{artifact}", tag = "artifacts", responses((status = 200, body = ArtifactFacts)))]
pub(crate) async fn get(caller: Caller, Path(id): Path<String>) -> Answered {
    caller.answer(GetArtifact { id }).await
}

/// Get the signed statement about an artifact, and what came with it: in-toto's Statement v1 with
/// SLSA's provenance v1, in a DSSE envelope signed by the ledger's key.
#[utoipa::path(get, path = "/v1/artifacts/{artifact}/statement", tag = "artifacts", responses((status = 200, body = Object)))]
pub(crate) async fn statement(caller: Caller, Path(id): Path<String>) -> Answered {
    let statement = caller.call(GetStatement { id }).await?;
    let statement: Value = serde_json::from_str(&statement).unwrap_or_default();
    Ok(answer_json(StatusCode::OK, &statement))
}

/// Get the content of an artifact: of one that was promoted, or as an approver, who decides. An answer
/// that is cut off was not whole.
#[utoipa::path(get, path = "/v1/artifacts/{artifact}/content", tag = "artifacts", responses((status = 200, content_type = "application/octet-stream")))]
pub(crate) async fn content(caller: Caller, Path(id): Path<String>) -> Answered {
    let mut line = caller.begin(ReadArtifact { id }).await?;
    let facts: ArtifactFacts = line.reply().await?;
    let blocks = futures_util::stream::try_unfold(Some(line), async |line| {
        let Some(mut line) = line else {
            return Ok::<_, std::io::Error>(None);
        };
        match line.next().await.map_err(std::io::Error::other)? {
            Next::Content(_, block) => Ok(Some((block, Some(line)))),
            Next::Message(()) => Ok(None),
        }
    });
    let mut response = Response::new(Body::from_stream(blocks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(facts.size));
    to_keep(headers);
    Ok(response)
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DecisionBody {
    /// The reason, for the ledger.
    why: Option<String>,
}

/// Promote an artifact: whoever makes sandboxes gets its content from then on. Approvers and
/// administrators may, where policies do not refuse it.
#[utoipa::path(post, path = "/v1/artifacts/{artifact}/promote", request_body = DecisionBody, tag = "artifacts", responses((status = 200, body = ArtifactFacts)))]
pub(crate) async fn promote(
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json<DecisionBody>,
) -> Answered {
    decide(caller, id, true, body).await
}

/// Have all scanners look at an artifact, each in a sandbox of its own. One that fails says nothing of
/// the content.
#[utoipa::path(post, path = "/v1/artifacts/{artifact}/scan", tag = "artifacts", responses((status = 200, body = ArtifactFacts)))]
pub(crate) async fn scan(caller: Caller, Path(id): Path<String>) -> Answered {
    caller.answer(ScanArtifact { id }).await
}

/// Reject an artifact.
#[utoipa::path(post, path = "/v1/artifacts/{artifact}/reject", request_body = DecisionBody, tag = "artifacts", responses((status = 200, body = ArtifactFacts)))]
pub(crate) async fn reject(
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json<DecisionBody>,
) -> Answered {
    decide(caller, id, false, body).await
}

async fn decide(caller: Caller, id: String, promotes: bool, body: DecisionBody) -> Answered {
    let why = body.why;
    caller.answer(DecideArtifact { id, promotes, why }).await
}
