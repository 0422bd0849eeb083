//! The calls of an agent's tools, as its hook is told of them.

use std::io::Read;
use std::path::{Path, PathBuf};

use atoll_cedar::flattened;
use atoll_model::{CallTool, ToolEffect, ToolKind, ToolName, ToolUndo};
use atoll_tools::parse;
use serde_json::{Map, Value, json};

use crate::arguments::HookAgent;

/// The largest event, bytes: more cannot be judged.
const EVENT_BYTES_MAX: usize = 256 << 10;
/// The longest id of an agent's session, bytes.
const SESSION_BYTES_MAX: usize = 64;

/// Tools that run a shell command, which is their argument `command`.
const SHELLS: [&str; 3] = ["Bash", "Monitor", "run_shell_command"];
/// Tools that run programs of the model's own where no hook can contain them.
const UNCONTAINED: [&str; 3] = ["PowerShell", "REPL", "js_repl"];
/// Tools by the worst that they do; of any other, as those of MCP servers, nothing is known.
const EFFECTS: [(ToolEffect, &str); 3] = [
    (
        ToolEffect::Read,
        "Glob Grep LS Read glob grep_search list_directory read_file read_many_files view_image",
    ),
    (
        ToolEffect::Write,
        "Bash Edit MultiEdit NotebookEdit TodoWrite Write apply_patch replace run_shell_command \
         update_plan write_file write_todos",
    ),
    (
        ToolEffect::Send,
        "WebFetch WebSearch google_web_search web_fetch",
    ),
];

/// A call of an agent's own tool.
pub(super) struct Event {
    /// The agent's id of its session.
    pub(super) session: String,
    /// The directory that it works in.
    pub(super) directory: PathBuf,
    /// The call, as policies and the ledger have it: of a shell command the text alone.
    pub(super) call: CallTool,
    /// The text of the shell command that it is.
    pub(super) command: Option<String>,
    /// The arguments as they came.
    pub(super) input: Map<String, Value>,
}

impl Event {
    /// Reads an event.
    ///
    /// # Errors
    /// Describes why it cannot be understood, or not be contained.
    pub(super) fn read(agent: HookAgent, from: impl Read) -> Result<Self, String> {
        let mut text = String::new();
        from.take(EVENT_BYTES_MAX as u64 + 1)
            .read_to_string(&mut text)
            .map_err(|error| format!("the event cannot be read: {error}"))?;
        let event = parse(&text, EVENT_BYTES_MAX)
            .map_err(|error| format!("the event cannot be judged: {error}"))?;
        let text = |name: &str| match event.get(name) {
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(_) | None => Err(format!("the event's {name} is no text")),
        };
        let kind = text("hook_event_name")?;
        if kind != agent.event() {
            return Err(format!("the event is {kind:?}, and not {}", agent.event()));
        }
        let tool = text("tool_name")?;
        let Some(Value::Object(input)) = event.get("tool_input") else {
            return Err("the event's tool_input is no object".to_owned());
        };
        let directory = Path::new(text("cwd")?);
        Self::new(agent, text("session_id")?, directory, tool, input.clone())
    }

    /// Makes the event of a tool and its arguments.
    ///
    /// # Errors
    /// As of [`Self::read`].
    pub(super) fn new(
        agent: HookAgent,
        session: &str,
        directory: &Path,
        tool: &str,
        input: Map<String, Value>,
    ) -> Result<Self, String> {
        let is_of_id = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if !(1..=SESSION_BYTES_MAX).contains(&session.len()) || !session.bytes().all(is_of_id) {
            return Err(format!("{session:?} is no id of a session"));
        }
        if !directory.is_absolute() {
            return Err(format!("{} is no absolute path", directory.display()));
        }
        if UNCONTAINED.contains(&tool) {
            return Err(format!(
                "{tool} runs programs that no hook contains: start the agent beneath `atoll run`"
            ));
        }
        // A monitor of a socket runs nothing.
        let is_shell = SHELLS.contains(&tool) && !input.contains_key("ws");
        let (command, tool, kind) = match (is_shell, input.get("command"), agent) {
            (false, _, _) => (None, tool, ToolKind::Mcp),
            (true, Some(Value::String(command)), _) if command.contains('\0') => {
                return Err("the command has a character that no program can be given".to_owned());
            }
            (true, Some(Value::String(command)), HookAgent::Gemini) => (
                Some(command.clone()),
                "run_shell_command",
                ToolKind::Snippet,
            ),
            (true, Some(Value::String(command)), HookAgent::Claude | HookAgent::Codex) => {
                (Some(command.clone()), "Bash", ToolKind::Snippet)
            }
            (true, _, _) => return Err(format!("the command of {tool} is no text")),
        };
        let judged = match &command {
            Some(command) => json!({ "command": command }),
            None => Value::Object(input.clone()),
        };
        let name = ToolName::parse(&format!("{}__{tool}", agent.name()));
        let is_of = |tools: &str| tools.split(' ').any(|one| one == tool);
        let effect = EFFECTS.iter().find(|(_, tools)| is_of(tools));
        Ok(Self {
            session: session.to_owned(),
            directory: directory.to_owned(),
            call: CallTool {
                tool: name.map_err(|error| error.to_string())?,
                kind,
                effect: effect.map_or(ToolEffect::Deploy, |(effect, _)| *effect),
                idempotent: false,
                undo: ToolUndo::None,
                text: judged.to_string(),
                arguments: flattened(&judged)?,
                key: None,
                spent: Vec::new(),
            },
            command,
            input,
        })
    }
}
