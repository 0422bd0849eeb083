//! Tools: what a caller may call, and calls.

use atoll_tools::{Askable, Form, Pii, clean_answer, text_of};
use axum::http::header::RETRY_AFTER;
use serde::Serialize;
use tokio::task::spawn_blocking;
use utoipa::{IntoParams, ToSchema};

use super::{Answered, Path, Query};
use crate::front::dialect::*;
use crate::mcp::is_clear;

/// List the tools that the caller may call, by their names.
#[utoipa::path(get, path = "/v1/tools", tag = "tools", responses((status = 200, body = Vec<ToolFacts>)))]
pub(crate) async fn list(caller: Caller) -> Answered {
    let (session, form) = (None, Form::Tool);
    caller.answer(ListTools { session, form }).await
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ToolCallBody {
    /// The arguments.
    arguments: Value,
    /// The session of the caller's that the call belongs to.
    session: Option<String>,
    /// The name by which the call is made once: with the same one it is answered alike for a day.
    key: Option<String>,
}

impl ToolCallBody {
    /// Reads one that has one reading.
    async fn of(request: Request<Body>) -> Result<Self, Refusal> {
        let body = whole(request.into_body()).await?;
        let body = if body.is_empty() { &b"{}"[..] } else { &body };
        if !is_clear(body) {
            return Err(Refusal::invalid("the body is not JSON with one reading"));
        }
        serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("the body: {error}")))
    }

    fn text(&self) -> String {
        match &self.arguments {
            Value::Null => "{}".to_owned(),
            arguments => arguments.to_string(),
        }
    }
}

/// Call a tool. A call that policies ask about waits for an approver.
#[utoipa::path(post, path = "/v1/tools/{tool}/call", request_body = ToolCallBody, tag = "tools", responses((status = 200, body = ToolReply)))]
pub(crate) async fn call(
    caller: Caller,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Answered {
    let body = ToolCallBody::of(request).await?;
    let ask = CallTool(Box::new(CallToolAsk {
        name,
        arguments: body.text(),
        session: body.session,
        key: body.key,
        listens: false,
        answers: None,
        askable: Askable::default(),
    }));
    let mut reply: ToolReply = caller.call(ask).await?;
    if let ToolReply::Answer(answer) = &mut reply {
        answer.text = text_of(&answer.blocks);
    }
    let status = match &reply {
        ToolReply::Answer(_) => StatusCode::OK,
        ToolReply::Unknown(_) => StatusCode::NOT_FOUND,
        ToolReply::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
        ToolReply::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
        ToolReply::Denied(_) | ToolReply::NeedsApproval(_) => StatusCode::FORBIDDEN,
    };
    let mut response = answer_json(status, &reply);
    if let ToolReply::Limited(limit) = &reply
        && let Some(seconds) = limit.retry_after_s
    {
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, seconds.into());
    }
    Ok(response)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestQuery {
    /// The session of the caller's that the call belongs to.
    session: Option<String>,
    /// The place to read from, bytes after the cut: the `next` of the part before.
    from: Option<usize>,
}

/// Read the end of a result that was cut, by the number of its call in the session.
#[utoipa::path(get, path = "/v1/tool-results/{call}", params(RestQuery), tag = "tools", responses((status = 200, body = ResultPart)))]
pub(crate) async fn rest(
    caller: Caller,
    Path(call): Path<u32>,
    Query(query): Query<RestQuery>,
) -> Answered {
    let ask = ReadResult {
        session: query.session,
        call,
        from: query.from.unwrap_or_default(),
    };
    caller.answer(ask).await
}

/// Tell whether a call would be carried out, without making it.
#[utoipa::path(post, path = "/v1/tools/{tool}/may", request_body = ToolCallBody, tag = "tools", responses((status = 200, body = MayFacts)))]
pub(crate) async fn may(
    caller: Caller,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Answered {
    let body = ToolCallBody::of(request).await?;
    let ask = MayCall {
        name,
        arguments: body.text(),
        session: body.session,
    };
    caller.answer(ask).await
}

/// A text to clean.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CleanBody {
    /// The text, as the answer of an agent.
    text: String,
    /// True to leave personal data as it is.
    #[serde(default)]
    keep_personal_data: bool,
}

/// A text that was cleaned.
#[derive(Serialize, ToSchema)]
pub(crate) struct CleanedText {
    /// The text.
    text: String,
    /// The changes, a sentence each.
    notes: Vec<String>,
    /// The changes, by the names of the ledger.
    changes: Value,
}

/// Clean a text, as an agent's answer, like results of tools: secrets and personal data are masked, what
/// cannot be seen is written as escapes, pictures by address become mere text, and what reads like
/// instructions to a model is told.
#[utoipa::path(post, path = "/v1/clean", request_body = CleanBody, tag = "tools", responses((status = 200, body = CleanedText)))]
pub(crate) async fn clean(caller: Caller, request: Request<Body>) -> Answered {
    // Whoever may call tools may: the worker knows them.
    let (session, form) = (None, Form::Tool);
    drop(caller.call(ListTools { session, form }).await?);
    let body = whole(request.into_body()).await?;
    let body: CleanBody = serde_json::from_slice(&body)
        .map_err(|error| Refusal::invalid(format!("the body: {error}")))?;
    let pii = match body.keep_personal_data {
        true => Pii::Keep,
        false => Pii::Mask,
    };
    let cleaned = spawn_blocking(move || clean_answer(body.text.as_bytes(), pii)).await;
    let cleaned = cleaned.map_err(|error| Refusal::new(Kind::Fault, error.to_string()))?;
    let reply = CleanedText {
        notes: cleaned.notes().collect(),
        changes: cleaned.details(),
        text: cleaned.text,
    };
    Ok(answer_json(StatusCode::OK, &reply))
}
