//! The questions of upstreams, as clients are asked them: in the result of a call, which is made again
//! with the answers (2026-07-28), or by requests while it waits (before).

#![expect(
    deprecated,
    reason = "clients of 2025-11-25 and before have sampling and roots"
)]

use std::collections::BTreeMap;

use atoll_tools::{Answers, Askable, Asks};
use rmcp::model::{ClientCapabilities, InputRequest, InputRequiredResult};
use rmcp::service::{RequestContext, ServiceError};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Map, Value, json};

use crate::protocol::ToolReply;

/// The most times that an upstream asks during one call.
pub(super) const ROUNDS_MAX: usize = 8;

/// Returns whether a client is of a revision with sessions, in which it can be asked and told.
pub(super) fn has_session(context: &RequestContext<RoleServer>) -> bool {
    context.meta.protocol_version().is_none()
}

/// Returns the questions that a client can be asked, as it has declared.
pub(super) fn askable(context: &RequestContext<RoleServer>) -> Askable {
    let able = context.client_capabilities().unwrap_or_default();
    Askable {
        elicitation: able.elicitation.is_some(),
        sampling: able.sampling.is_some(),
        roots: able.roots.is_some(),
    }
}

/// Returns the answers that came with a call.
pub(super) fn answers(
    responses: Option<BTreeMap<String, Value>>,
    state: Option<String>,
) -> Option<Answers> {
    let has_any = responses.is_some() || state.is_some();
    has_any.then(|| Answers {
        responses: responses.unwrap_or_default().into_iter().collect(),
        state,
    })
}

/// Returns the questions in a reply.
pub(super) fn of(reply: &ToolReply) -> Option<&Asks> {
    match reply {
        ToolReply::Answer(answer) => answer
            .asks
            .as_ref()
            .filter(|asks| !asks.requests.is_empty()),
        _ => None,
    }
}

/// Makes the result of a call of its questions; returns the reply where there are none.
pub(super) fn result(
    context: &RequestContext<RoleServer>,
    reply: ToolReply,
) -> Result<Result<InputRequiredResult, ToolReply>, ErrorData> {
    if let ToolReply::Answer(answer) = &reply
        && let Some(Asks { undeclared, .. }) = &answer.asks
        && *undeclared != Askable::default()
        && !has_session(context)
    {
        let mut needed = ClientCapabilities::default();
        needed.elicitation = undeclared.elicitation.then(Default::default);
        needed.sampling = undeclared.sampling.then(Default::default);
        needed.roots = undeclared.roots.then(Default::default);
        return Err(ErrorData::missing_required_client_capability(needed));
    }
    let Some(asks) = of(&reply) else {
        return Ok(Err(reply));
    };
    let requests = serde_json::from_value(Value::Object(asks.requests.clone()));
    let requests = requests.map_err(|error| unknown(&error))?;
    let state = asks.state.clone();
    Ok(Ok(InputRequiredResult::new(Some(requests), state)))
}

/// Asks the client of a session.
pub(super) async fn asked(
    context: &RequestContext<RoleServer>,
    asks: &Asks,
) -> Result<Answers, ErrorData> {
    let mut responses = Map::new();
    for (name, request) in &asks.requests {
        let request = serde_json::from_value(request.clone());
        let request: InputRequest = request.map_err(|error| unknown(&error))?;
        let answered = tokio::select! {
            answered = answer(context, request) => answered,
            () = context.ct.cancelled() => return Err(failed("its caller ended it")),
        };
        let answered = answered.map_err(|error| failed(&error.to_string()))?;
        responses.insert(name.clone(), answered);
    }
    Ok(Answers {
        responses,
        state: asks.state.clone(),
    })
}

async fn answer(
    context: &RequestContext<RoleServer>,
    request: InputRequest,
) -> Result<Value, ServiceError> {
    let client = &context.peer;
    Ok(match request {
        InputRequest::Elicitation(one) => json!(client.create_elicitation(one.params).await?),
        InputRequest::CreateMessage(one) => json!(client.create_message(one.params).await?),
        InputRequest::ListRoots(_) => json!(client.list_roots().await?),
        _ => return Err(ServiceError::UnexpectedResponse),
    })
}

fn unknown(error: &serde_json::Error) -> ErrorData {
    failed(&format!(
        "the upstream asks what nobody understands: {error}"
    ))
}

fn failed(what: &str) -> ErrorData {
    ErrorData::internal_error(what.to_owned(), None)
}
