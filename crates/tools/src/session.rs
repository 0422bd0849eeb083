//! A session of a caller: the tools that it is offered, and its calls.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use atoll_cedar::flattened;
use atoll_engine::failure::Failure;
use atoll_engine::sandboxes::{CreateSandbox, Engine, PriorAnswer};
use atoll_engine::tools::{NotCalled, ToolRequest, new_tool_session};
use atoll_model::{Argument, CallTool, Reason, RunId, Verdict};
use atoll_policy::ToolGrant;
use serde_json::Value;

use crate::answer::{Answer, Refusal};
use crate::exec::{Cancel, Program};
use crate::json::{self, ARGUMENTS_BYTES_MAX};
use crate::registry::{Registry, ToolSwitches};
use crate::runner::Runner;
use crate::tool::Tool;

/// A session of tools. All calls of it are recorded by its id.
pub struct Session<R> {
    id: RunId,
    engine: Engine,
    tools: Arc<ToolSwitches>,
    runner: R,
    /// The caller's name to a server.
    caller: Option<String>,
    calls: AtomicU32,
}

/// A request for a call.
pub struct Asked<'a> {
    /// The tool's name.
    pub name: &'a str,
    /// The arguments, as JSON text.
    pub arguments: &'a str,
    /// The name by which the call is made once.
    pub key: Option<&'a str>,
    /// The answer of an approver, if one was asked.
    pub answer: &'a PriorAnswer,
    /// The word by which the caller ends it.
    pub cancel: &'a Cancel,
}

/// The verdict on a call that is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum May {
    /// Carried out.
    Yes,
    /// An approver would be asked, for these reasons.
    Ask(Vec<Reason>),
    /// Refused, for these reasons.
    No(Vec<Reason>),
}

impl<R: Runner> Session<R> {
    /// Begins a session of a caller.
    #[must_use]
    pub fn new(
        engine: Engine,
        tools: Arc<ToolSwitches>,
        runner: R,
        caller: Option<String>,
    ) -> Self {
        Self {
            id: new_tool_session(),
            engine,
            tools,
            runner,
            caller,
            calls: AtomicU32::new(0),
        }
    }

    /// Returns its id, by which the ledger has its calls.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Returns the sandboxes.
    pub fn runner(&self) -> &R {
        &self.runner
    }

    /// Returns the registry as its files are now.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.tools.registry()
    }

    /// Returns the tools that the caller may call, by their names.
    ///
    /// # Errors
    /// When the rules of one cannot be made.
    pub fn tools(&self) -> Result<Vec<Arc<Tool>>, Failure> {
        let registry = self.registry();
        let mut all = Vec::new();
        for tool in registry.tools() {
            if self.offers(tool)? {
                all.push(Arc::clone(tool));
            }
        }
        Ok(all)
    }

    /// Calls a tool: parsed and checked, decided, recorded, carried out, recorded again.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn call(&self, asked: &Asked<'_>) -> Result<Answer, Refusal> {
        let tool = self.tool(asked.name)?;
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let (call, value) = typed(&tool, asked.arguments, asked.key).map_err(|why| {
            let recorded = self.engine.reject_tool(&self.id, number, &tool.name, &why);
            match recorded {
                Ok(()) => Refusal::Invalid(why),
                Err(failure) => Refusal::Failed(Box::new(failure)),
            }
        })?;
        let boundary = self.runner.boundary(&tool);
        let request = ToolRequest {
            session: &self.id,
            number,
            sandbox: &boundary,
            call: &call,
            answer: asked.answer,
        };
        let (id, directory) = (request.id(), boundary.workspace.directory());
        let effect = |grant: &ToolGrant| {
            let (command, stdin) = match rendered(&tool, &value) {
                Ok(rendered) => rendered,
                Err(why) => return Answer::of_failure(number, &Failure::new(why)),
            };
            let most = grant.wall_clock().unwrap_or(tool.timeout);
            let program = Program {
                command,
                stdin,
                timeout: most.min(tool.timeout),
                file: tool.command.file.as_ref().map(|path| directory.join(path)),
                parent: id,
                cancel: asked.cancel.clone(),
            };
            match self.runner.run(&tool, &program) {
                Ok(ran) => Answer::of(&tool, number, &ran, program.timeout),
                Err(failure) => Answer::of_failure(number, &failure),
            }
        };
        Ok(self.engine.call_tool(&request, effect)?)
    }

    /// Returns the verdict on a call, without its effect and without a record.
    ///
    /// # Errors
    /// [`Refusal`], where there is no such tool, or the arguments are none of it.
    pub fn may(&self, name: &str, arguments: &str) -> Result<May, Refusal> {
        let tool = self.tool(name)?;
        let (call, _) = typed(&tool, arguments, None).map_err(Refusal::Invalid)?;
        let boundary = self.runner.boundary(&tool);
        let request = self.preview(&boundary, &call);
        let verdict = self.engine.preview_tool(&request);
        Ok(match verdict.map_err(failed)? {
            Verdict::Allow(_) => May::Yes,
            Verdict::Ask(reasons) => May::Ask(reasons),
            Verdict::Deny(reasons) => May::No(reasons),
        })
    }

    /// Finds a tool; one that the caller is not shown is not there.
    fn tool(&self, name: &str) -> Result<Arc<Tool>, Refusal> {
        let registry = self.registry();
        let tool = registry.tool(name);
        match tool {
            Some(tool) if self.offers(tool).map_err(failed)? => Ok(Arc::clone(tool)),
            Some(_) | None => Err(Refusal::Unknown(name.to_owned())),
        }
    }

    fn offers(&self, tool: &Tool) -> Result<bool, Failure> {
        let is_for = match (&tool.callers, &self.caller) {
            (None, _) | (_, None) => true,
            (Some(callers), Some(caller)) => callers.contains(caller),
        };
        if !tool.enabled || !is_for {
            return Ok(false);
        }
        let boundary = self.runner.boundary(tool);
        let call = call_of(tool, String::new(), Vec::new(), None);
        self.engine.offers_tool(&self.preview(&boundary, &call))
    }

    fn preview<'a>(&'a self, sandbox: &'a CreateSandbox, call: &'a CallTool) -> ToolRequest<'a> {
        ToolRequest {
            session: &self.id,
            number: self.calls.load(Ordering::Relaxed) + 1,
            sandbox,
            call,
            answer: &PriorAnswer::Nobody,
        }
    }
}

fn failed(failure: Failure) -> Refusal {
    Refusal::Failed(Box::new(failure))
}

impl From<NotCalled> for Refusal {
    fn from(not: NotCalled) -> Self {
        match not {
            NotCalled::NeedsApproval(asked) => Self::NeedsApproval(asked),
            NotCalled::Denied(reasons) => Self::Denied(reasons),
            NotCalled::Failed(failure) => failed(failure),
        }
    }
}

/// Parses the arguments of a call once, and checks them: what is judged, recorded and sent is made
/// of the one value.
fn typed(tool: &Tool, text: &str, key: Option<&str>) -> Result<(CallTool, Value), Vec<String>> {
    let value = json::parse(text, ARGUMENTS_BYTES_MAX);
    let value = value.map_err(|error| vec![error.to_string()])?;
    tool.arguments.check(&value)?;
    // What cannot become a program is refused before anything is decided.
    rendered(tool, &value).map_err(|why| vec![why])?;
    let arguments = flattened(&value).map_err(|why| vec![why])?;
    let call = call_of(tool, value.to_string(), arguments, key);
    Ok((call, value))
}

fn call_of(tool: &Tool, text: String, arguments: Vec<Argument>, key: Option<&str>) -> CallTool {
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
fn rendered(tool: &Tool, arguments: &Value) -> Result<(Vec<OsString>, Vec<u8>), String> {
    let command = tool.command.template.render(arguments)?;
    let stdin = match &tool.command.stdin {
        None => String::new(),
        Some(item) => item.render(arguments)?.join("\n"),
    };
    Ok((command, stdin.into_bytes()))
}
