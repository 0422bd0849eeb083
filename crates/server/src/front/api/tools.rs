//! Tools: what a caller may call, and calls.

use atoll_tools::text_of;
use axum::http::header::RETRY_AFTER;
use utoipa::ToSchema;

use super::{Answered, Path};
use crate::front::dialect::*;
use crate::mcp::is_clear;

/// List the tools that the caller may call, by their names.
#[utoipa::path(get, path = "/v1/tools", tag = "tools", responses((status = 200, body = Vec<ToolFacts>)))]
pub(crate) async fn list(caller: Caller) -> Answered {
    caller.answer(ListTools { session: None }).await
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ToolCallBody {
    /// The arguments.
    arguments: Value,
    /// The session of the caller's that the call belongs to.
    session: Option<String>,
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
    }));
    let mut reply: ToolReply = caller.call(ask).await?;
    if let ToolReply::Answer(answer) = &mut reply {
        answer.text = text_of(&answer.blocks);
    }
    let mut response = answer_json(StatusCode::OK, &reply);
    if let ToolReply::Limited(limit) = &reply {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        if let Some(seconds) = limit.retry_after_s {
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, seconds.into());
        }
    }
    Ok(response)
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
