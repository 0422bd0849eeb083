//! The arguments of a session's calls, from their text to what is judged and sent.

use std::ffi::OsString;

use atoll_cedar::flattened;
use atoll_model::{Argument, CallTool};
use serde_json::Value;

use crate::json::{self, ARGUMENTS_BYTES_MAX};
use crate::scope::Place;
use crate::tool::{Command, OfUpstream, Tool, Work};

/// A call that its tool takes.
pub(super) struct Typed<'a> {
    pub(super) tool: &'a Tool,
    pub(super) call: CallTool,
    pub(super) arguments: Value,
}

impl<'a> Typed<'a> {
    /// Parses the arguments of a call once, and checks them: what is judged, recorded and sent is made
    /// of the one value. `place` returns where the tool would see its files.
    pub(super) fn read(
        tool: &'a Tool,
        text: &str,
        key: Option<&str>,
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
        // What cannot become a program, or a request, is refused before anything is decided.
        match &tool.work {
            Work::Command(command) => drop(rendered(command, &value).map_err(|why| vec![why])?),
            Work::Upstream(_, OfUpstream::Operation(base, operation)) => {
                drop(operation.request(base, &value).map_err(|why| vec![why])?);
            }
            Work::Upstream(_, OfUpstream::Mcp(..) | OfUpstream::Statement) => {}
        }
        let arguments = flattened(&value).map_err(|why| vec![why])?;
        let call = call_of(tool, value.to_string(), arguments, key);
        Ok(Self {
            tool,
            call,
            arguments: value,
        })
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
