//! Prompts and resources of upstreams: listed as MCP has them, and reached by calls of tools.

use atoll_tools::{Block, is_made_by, text_of};
use rmcp::ErrorData;
use rmcp::model::{
    ContentBlock, GetPromptResult, Prompt, PromptMessage, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate, Role,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::words::{label, notes, told};
use crate::protocol::{ToolAnswer, ToolFacts, ToolReply};

/// Returns those offers that are of a type, in the order of a member of theirs.
fn offers<T: DeserializeOwned>(all: &[ToolFacts], by: &str) -> Vec<T> {
    let text = |one: &Value| one.get(by)?.as_str().map(str::to_owned);
    let offers = all.iter().flat_map(|tool| &tool.offers);
    let mut offers: Vec<(String, &Value)> =
        offers.filter_map(|one| Some((text(one)?, one))).collect();
    offers.sort_by(|one, other| one.0.cmp(&other.0));
    let read = |one: &Value| serde_json::from_value(one.clone()).ok();
    offers.iter().filter_map(|one| read(one.1)).collect()
}

pub(super) fn prompts(all: &[ToolFacts]) -> Vec<Prompt> {
    offers(all, "name")
}

pub(super) fn resources(all: &[ToolFacts]) -> Vec<Resource> {
    offers(all, "uri")
}

pub(super) fn templates(all: &[ToolFacts]) -> Vec<ResourceTemplate> {
    offers(all, "uriTemplate")
}

/// Returns the name of the tool that gets a prompt.
pub(super) fn tool_of_prompt<'a>(all: &'a [ToolFacts], name: &str) -> Result<&'a str, ErrorData> {
    let is_it = |tool: &&ToolFacts| {
        tool.offers
            .iter()
            .any(|one| one.get("name") == Some(&json!(name)))
    };
    let none = || ErrorData::invalid_params(format!("there is no prompt {name:?}"), None);
    all.iter()
        .find(is_it)
        .map(|tool| &*tool.name)
        .ok_or_else(none)
}

/// Returns the name of the tool that reads a resource: that of its address goes before those with a
/// template for it, and of two nobody knows which is meant.
pub(super) fn tool_of_resource<'a>(all: &'a [ToolFacts], uri: &str) -> Result<&'a str, ErrorData> {
    let has = |tool: &ToolFacts, is_it: &dyn Fn(&Value) -> bool| tool.offers.iter().any(is_it);
    let is_listed = |one: &Value| one.get("uri") == Some(&json!(uri));
    let is_made = |one: &Value| {
        let template = one.get("uriTemplate").and_then(Value::as_str);
        template.is_some_and(|template| is_made_by(template, uri))
    };
    let mut found: Vec<&ToolFacts> = all.iter().filter(|tool| has(tool, &is_listed)).collect();
    if found.is_empty() {
        found = all.iter().filter(|tool| has(tool, &is_made)).collect();
    }
    let data = Some(json!({ "uri": uri }));
    match &*found {
        [tool] => Ok(&tool.name),
        [] => Err(ErrorData::resource_not_found(
            "there is no such resource",
            data,
        )),
        _ => {
            let what = "more than one upstream has this resource";
            Err(ErrorData::invalid_params(what, data))
        }
    }
}

/// Returns the answer of a call that has a result.
fn answer(reply: ToolReply) -> Result<ToolAnswer, ErrorData> {
    match reply {
        ToolReply::Answer(answer) if answer.end == "done" => Ok(*answer),
        ToolReply::Answer(answer) => Err(ErrorData::internal_error(text_of(&answer.blocks), None)),
        ToolReply::Invalid(why) => Err(ErrorData::invalid_params(why.join("\n"), None)),
        reply => {
            let content = told(reply)?.content;
            let text = content.iter().filter_map(|one| one.as_text());
            let text: Vec<&str> = text.map(|one| &*one.text).collect();
            Err(ErrorData::invalid_request(text.join("\n"), None))
        }
    }
}

/// Words a prompt for a client.
pub(super) fn prompt(reply: ToolReply) -> Result<GetPromptResult, ErrorData> {
    let answer = answer(reply)?;
    let beside = answer.structured.unwrap_or_default();
    let role = |at: usize| {
        let role = beside.get("roles").and_then(|roles| roles.get(at));
        role.and_then(|role| serde_json::from_value(role.clone()).ok())
            .unwrap_or(Role::User)
    };
    let message = |(at, block): (usize, Block)| {
        let content = serde_json::to_value(block).and_then(serde_json::from_value::<ContentBlock>);
        Some(PromptMessage::new(role(at), content.ok()?))
    };
    let mut messages: Vec<PromptMessage> = answer
        .blocks
        .into_iter()
        .enumerate()
        .filter_map(message)
        .collect();
    let notes = notes(&answer.notes, &answer.call, answer.rest_bytes);
    messages.extend(notes.map(|note| PromptMessage::new_text(Role::User, note)));
    let mut result = GetPromptResult::new(messages);
    let description = beside.get("description").and_then(Value::as_str);
    result.description = description.map(str::to_owned);
    result.meta = Some(label(answer.label));
    Ok(result)
}

/// Words the content of a resource for a client.
pub(super) fn resource(uri: &str, reply: ToolReply) -> Result<ReadResourceResult, ErrorData> {
    let answer = answer(reply)?;
    let content = |block: Block| match block {
        Block::Resource { resource } => serde_json::to_value(resource)
            .and_then(serde_json::from_value::<ResourceContents>)
            .ok(),
        _ => None,
    };
    let mut contents: Vec<ResourceContents> =
        answer.blocks.into_iter().filter_map(content).collect();
    let notes = notes(&answer.notes, &answer.call, answer.rest_bytes);
    contents.extend(notes.map(|note| ResourceContents::text(note, uri)));
    let mut result = ReadResourceResult::new(contents);
    result.meta = Some(label(answer.label));
    Ok(result)
}
