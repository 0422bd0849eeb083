//! Tools and results of calls, in the words of MCP.

use std::borrow::Cow;
use std::sync::Arc;

use atoll_tools::text_of;
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use crate::protocol::{ReasonFacts, ToolAnswer, ToolFacts, ToolReply};

/// The tool that asks whether a call would be allowed.
pub(super) const MAY_I: &str = "atoll__may_i";
/// The tool that reads on in a result that was cut.
pub(super) const READ_RESULT: &str = "atoll__read_result";
/// The name of a result's label among what is said beside it (`_meta`).
const LABEL: &str = "atoll/label";

/// Describes a tool to a client.
pub(super) fn described(facts: ToolFacts) -> Tool {
    let is_read = facts.effect == "read";
    let annotations = ToolAnnotations::new()
        .read_only(is_read)
        .destructive(!is_read)
        .idempotent(facts.idempotent)
        .open_world(facts.effect == "send");
    let name = Cow::Owned(facts.name);
    let description = Some(Cow::Owned(facts.description));
    let mut tool = Tool::new_with_raw(name, description, object(facts.arguments));
    tool.title = facts.title;
    // A schema of anything else is none that every client takes.
    let is_object = |schema: &Value| schema.get("type") == Some(&json!("object"));
    tool.output_schema = facts.result.filter(is_object).map(object);
    tool.with_annotations(annotations)
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(members) => Arc::new(members),
        _ => Arc::new(Map::new()),
    }
}

pub(super) fn may_i() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "tool": { "type": "string", "description": "The name of the tool." },
            "arguments": { "type": "object", "description": "The arguments of the call." },
        },
        "required": ["tool"],
        "additionalProperties": false,
    });
    let description = "Tells whether a call would be allowed, and how to ask. Has no effect.";
    let tool = Tool::new(MAY_I, description, object(schema));
    tool.with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
}

pub(super) fn read_result() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "call": { "type": "integer", "description": "The number of the call." },
            "from": { "type": "integer", "description": "The place to read from. Default: 0." },
        },
        "required": ["call"],
        "additionalProperties": false,
    });
    let description = "Reads the end of a result that was cut. Has no effect.";
    let tool = Tool::new(READ_RESULT, description, object(schema));
    tool.with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
}

pub(super) fn go_on(call: u32, from: usize) -> String {
    format!("Note by Atoll: {READ_RESULT} with call {call} and from {from} reads on.")
}

/// Words the result of a call for a model.
pub(super) fn told(reply: ToolReply) -> Result<CallToolResult, ErrorData> {
    let failed =
        |lines: Vec<String>| CallToolResult::error(vec![ContentBlock::text(lines.join("\n"))]);
    Ok(match reply {
        ToolReply::Answer(answer) => answered(*answer),
        ToolReply::Unknown(name) => {
            let what = format!("there is no tool {name:?}");
            return Err(ErrorData::invalid_params(what, None));
        }
        ToolReply::Invalid(why) => {
            let first = "The arguments are not what this tool takes:".to_owned();
            failed([first].into_iter().chain(why).collect())
        }
        ToolReply::Limited(limit) => {
            let mut lines = vec![format!("Not called: {}.", limit.why)];
            lines.push(match limit.retry_after_s {
                Some(seconds) => format!("Try again in {seconds} s."),
                None => "Do not try again: tell the person whom you work for.".to_owned(),
            });
            failed(lines)
        }
        ToolReply::Denied(reasons) => denied(&reasons),
        ToolReply::NeedsApproval(needed) => denied(&needed.reasons),
    })
}

fn denied(reasons: &[ReasonFacts]) -> CallToolResult {
    let mut lines = vec!["Denied by policy. Nothing was done.".to_owned()];
    lines.extend(reasons.iter().map(line));
    let how: Vec<&str> = reasons.iter().map(|one| &*one.how_to_ask).collect();
    if let Some(how) = how.first() {
        lines.push(format!("How to ask: {how}"));
    }
    CallToolResult::error(vec![ContentBlock::text(lines.join("\n"))])
}

pub(super) fn line(reason: &ReasonFacts) -> String {
    format!("{}: {} ({})", reason.what, reason.why, reason.rule)
}

fn answered(answer: ToolAnswer) -> CallToolResult {
    let text = text_of(&answer.blocks);
    let blocks = serde_json::to_value(answer.blocks);
    let content = blocks.and_then(serde_json::from_value::<Vec<ContentBlock>>);
    let mut content = content.unwrap_or_else(|_| vec![ContentBlock::text(text)]);
    content.extend(notes(&answer.notes, &answer.call, answer.rest_bytes).map(ContentBlock::text));
    let mut result = match answer.end == "done" {
        true => CallToolResult::success(content),
        false => CallToolResult::error(content),
    };
    result.structured_content = answer.structured;
    result.meta = Some(label(answer.label));
    result
}

/// Returns the words about a result: how it was changed, and how the rest of it is read.
pub(super) fn notes(
    notes: &[String],
    call: &str,
    rest_bytes: usize,
) -> impl Iterator<Item = String> + use<> {
    let changes = (!notes.is_empty()).then(|| format!("Note by Atoll: {}", notes.join(" ")));
    let call = call.rsplit('/').next().and_then(|call| call.parse().ok());
    let rest = call.filter(|_| rest_bytes > 0).map(|call| go_on(call, 0));
    [changes, rest].into_iter().flatten()
}

/// Returns what is said beside a result of the trust in it.
pub(super) fn label(label: String) -> MetaObject {
    MetaObject(Map::from_iter([(LABEL.to_owned(), label.into())]))
}
