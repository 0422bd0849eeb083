//! A session of a caller: the tools that it is offered, and its calls.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_cedar::flattened;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::sandboxes::{CreateSandbox, Engine, PriorAnswer};
use atoll_engine::tools::{Called, NotCalled, ToolRequest, new_tool_session};
use atoll_model::{Argument, CallId, CallTool, Reason, RunId, Verdict};
use atoll_policy::ToolGrant;
use serde_json::{Map, Value};

use crate::answer::{Answer, Refusal};
use crate::exec::{Cancel, Program};
use crate::json::{self, ARGUMENTS_BYTES_MAX};
use crate::registry::{Registry, ToolSwitches};
use crate::runner::Runner;
use crate::tool::{Command, OfUpstream, Tool, Work};
use crate::upstream::Upstream;
use crate::upstream::connection::Connection;
use crate::upstream::frames::Offered;

/// A session of tools. All calls of it are recorded by its id.
pub struct Session<R> {
    id: RunId,
    engine: Engine,
    tools: Arc<ToolSwitches>,
    runner: R,
    /// The caller's name to a server.
    caller: Option<String>,
    calls: AtomicU32,
    /// The upstreams that were started, by their names.
    connections: Mutex<BTreeMap<String, Slot>>,
}

/// The place of one connection, held while it is made.
type Slot = Arc<Mutex<Option<Arc<Connection>>>>;

/// A call that is on record, and may be carried out.
struct Begun<'a> {
    tool: &'a Tool,
    arguments: &'a Value,
    id: CallId,
    timeout: Duration,
    cancel: &'a Cancel,
}

impl Begun<'_> {
    fn number(&self) -> u32 {
        self.id.tool.unwrap_or_default()
    }
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
            connections: Mutex::default(),
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
            let most = grant.wall_clock().unwrap_or(tool.timeout);
            let begun = Begun {
                tool: &tool,
                arguments: &value,
                id,
                timeout: most.min(tool.timeout),
                cancel: asked.cancel,
            };
            let called = match &tool.work {
                Work::Command(command) => self.run(&begun, command, directory),
                Work::Mcp(of) => self.call_upstream(&begun, of),
            };
            called.unwrap_or_else(|failure| Answer::of_failure(number, &failure))
        };
        Ok(self.engine.call_tool(&request, effect)?)
    }

    /// Runs the program of a call.
    fn run(
        &self,
        begun: &Begun<'_>,
        command: &Command,
        directory: &Path,
    ) -> Result<Called<Answer>, Failure> {
        let (words, stdin) = rendered(command, begun.arguments).map_err(Failure::new)?;
        let program = Program {
            command: words,
            stdin,
            timeout: begun.timeout,
            file: command.file.as_ref().map(|path| directory.join(path)),
            parent: begun.id.clone(),
            cancel: begun.cancel.clone(),
        };
        let ran = self.runner.run(begun.tool, &program)?;
        Ok(Answer::of(
            begun.tool,
            begun.number(),
            &ran,
            program.timeout,
        ))
    }

    /// Calls a tool of an upstream, if that offers it just as it was approved.
    fn call_upstream(&self, begun: &Begun<'_>, of: &OfUpstream) -> Result<Called<Answer>, Failure> {
        let upstream = &of.upstream;
        let connection = self.connection(upstream, &begun.id)?;
        let offered = connection.offered();
        let offered = offered.doing("the upstream cannot be used")?;
        if !of.pins.holds(&of.name, &offered) {
            return Ok(Answer::held(
                begun.number(),
                &upstream.name,
                connection.run(),
            ));
        }
        let none = Map::new();
        let arguments = begun.arguments.as_object().unwrap_or(&none);
        let result = connection.call(&of.name, arguments, begun.timeout, begun.cancel);
        let run = connection.run();
        Ok(Answer::of_upstream(begun.tool, begun.number(), run, result))
    }

    /// Returns the session's connection with an upstream, made by the first call, and again where it
    /// is gone.
    fn connection(
        &self,
        upstream: &Arc<Upstream>,
        parent: &CallId,
    ) -> Result<Arc<Connection>, Failure> {
        let slot = {
            let mut all = self
                .connections
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(upstream.name.clone()).or_default())
        };
        // Others begin at the same time.
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = slot.as_ref().filter(|one| !one.is_gone()) {
            return Ok(Arc::clone(connection));
        }
        *slot = None;
        let (sandbox, served) = self.runner.upstream(upstream, parent)?;
        let started = Connection::start(sandbox, upstream, parent, served);
        let connection = Arc::new(started?);
        *slot = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Returns the tools that an upstream offers, as it says now.
    ///
    /// # Errors
    /// When it cannot be started, or does not speak MCP.
    pub fn offered(&self, upstream: &Arc<Upstream>) -> Result<Vec<Offered>, Failure> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let id = CallId {
            run: self.id.clone(),
            exec: None,
            tool: Some(number),
        };
        let offered = self.connection(upstream, &id)?.offered();
        offered.doing("the upstream cannot be used")
    }

    /// Ends the connections with upstreams.
    pub fn disconnect(&self) {
        let mut all = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.clear();
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
    if let Work::Command(command) = &tool.work {
        rendered(command, &value).map_err(|why| vec![why])?;
    }
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
fn rendered(command: &Command, arguments: &Value) -> Result<(Vec<OsString>, Vec<u8>), String> {
    let words = command.template.render(arguments)?;
    let stdin = match &command.stdin {
        None => String::new(),
        Some(item) => item.render(arguments)?.join("\n"),
    };
    Ok((words, stdin.into_bytes()))
}
