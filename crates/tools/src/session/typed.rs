//! Arguments of calls, as they are judged, recorded and sent.

use std::ffi::OsString;

use atoll_cedar::flattened;
use atoll_model::{Argument, CallTool};
use serde_json::Value;

use crate::json::{self, ARGUMENTS_BYTES_MAX};
use crate::scope::Place;
use crate::tool::{Command, OfUpstream, Tool, Work};
use crate::upstream::frames::{Answers, Form};

/// The name by which policies see answers to what an upstream has asked.
const ANSWERS: &str = "inputResponses";

/// Returns the address of a resource that is to be read.
pub(super) fn uri_of(arguments: &Value) -> &str {
    let uri = arguments.get("uri").and_then(Value::as_str);
    uri.unwrap_or_default()
}

/// A call that its tool takes.
pub(super) struct Typed<'a> {
    pub(super) tool: &'a Tool,
    pub(super) call: CallTool,
    pub(super) arguments: Value,
}

impl<'a> Typed<'a> {
    /// Parses the arguments of a call once, and checks them: what is judged, recorded and sent is made
    /// of the one value, and of the answers to what an upstream has asked. `place` returns where the
    /// tool would see its files.
    pub(super) fn read(
        tool: &'a Tool,
        text: &str,
        key: Option<&str>,
        answers: Option<&Answers>,
        place: impl FnOnce() -> Place,
    ) -> Result<Self, Vec<String>> {
        let value = json::parse(text, ARGUMENTS_BYTES_MAX);
        let mut value = value.map_err(|error| vec![error.to_string()])?;
        tool.arguments.check(&value)?;
        if !tool.scopes.is_empty() {
            tool.scopes.confine(&mut value, &place())?;
            // In the form that is sent, too.
            tool.arguments.check(&value)?;
        }
        check_work(tool, &value, answers)?;
        let judged = with_answers(&value, answers)?;
        let arguments = flattened(&judged).map_err(|why| vec![why])?;
        let call = call_of(tool, judged.to_string(), arguments, key);
        Ok(Self {
            tool,
            call,
            arguments: value,
        })
    }
}

/// Refuses what cannot become a program, or a request, before anything is decided.
fn check_work(tool: &Tool, value: &Value, answers: Option<&Answers>) -> Result<(), Vec<String>> {
    match &tool.work {
        Work::Command(command) => drop(rendered(command, value).map_err(|why| vec![why])?),
        Work::Upstream(_, OfUpstream::Operation(base, operation)) => {
            drop(operation.request(base, value).map_err(|why| vec![why])?);
        }
        Work::Upstream(
            _,
            OfUpstream::Mcp {
                form: Form::Resource,
                pins,
                ..
            },
        ) => {
            let uri = uri_of(value);
            let none = || vec![format!("there is no resource {uri:?}")];
            pins.resource(uri).ok_or_else(none)?;
        }
        Work::Upstream(_, OfUpstream::Mcp { .. } | OfUpstream::Statement) => {}
    }
    let can_ask = matches!(tool.work, Work::Upstream(_, OfUpstream::Mcp { .. }));
    match answers.is_some() && !can_ask {
        true => Err(vec![
            "this tool asks nothing that could be answered".to_owned(),
        ]),
        false => Ok(()),
    }
}

/// Adds answers to arguments, as they are judged.
fn with_answers(value: &Value, answers: Option<&Answers>) -> Result<Value, Vec<String>> {
    let mut judged = value.clone();
    if let (Some(members), Some(answers)) = (judged.as_object_mut(), answers) {
        let responses = Value::Object(answers.responses.clone());
        if members.insert(ANSWERS.to_owned(), responses).is_some() {
            return Err(vec![format!(
                "an argument is named {ANSWERS}, as answers are"
            )]);
        }
    }
    match judged.to_string().len() > ARGUMENTS_BYTES_MAX {
        true => Err(vec![format!("longer than {ARGUMENTS_BYTES_MAX} bytes")]),
        false => Ok(judged),
    }
}

pub(super) fn call_of(
    tool: &Tool,
    text: String,
    arguments: Vec<Argument>,
    key: Option<&str>,
) -> CallTool {
    CallTool {
        tool: tool.name.clone(),
        kind: tool.kind(),
        effect: tool.effect,
        idempotent: tool.idempotent,
        undo: tool.way_back.kind(tool.effect),
        text,
        arguments,
        key: key.map(str::to_owned),
    }
}

/// Makes the program and its standard input of the arguments of a call.
pub(super) fn rendered(
    command: &Command,
    arguments: &Value,
) -> Result<(Vec<OsString>, Vec<u8>), String> {
    let words = command.template.render(arguments)?;
    let stdin = match &command.stdin {
        None => String::new(),
        Some(item) => item.render(arguments)?.join("\n"),
    };
    Ok((words, stdin.into_bytes()))
}
