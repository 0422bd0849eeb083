//! `atoll tools`: the registry, and calls from the command line.

mod asserting;
mod calling;
mod cleaning;
mod packs;
mod pinning;
mod undoing;

pub use undoing::undo;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_engine::configuration::Places;
use atoll_engine::failure::Failure;
use atoll_engine::printable::{printable, printable_lines};
use atoll_engine::sandboxes::Engine;
use atoll_launcher::LAUNCHER;
use atoll_model::{Shadow, ToolUndo, format_bytes, format_duration};
use atoll_policy::RequestedProfile;
use atoll_server::serve_stdio;
use atoll_tools::{
    LocalRunner, Problem, Recording, Registry, SandboxLife, Session, Tool, ToolSwitches,
};
use serde_json::{Value, json};

use crate::arguments::{
    CheckToolsArguments, ListToolsArguments, McpArguments, ShowToolArguments, SwitchToolArguments,
    ToolsAction, ToolsArguments,
};
use crate::output::Output;

/// Carries out `atoll tools`.
///
/// # Errors
/// When the tools cannot be read, or a call is refused.
pub fn tools(arguments: &ToolsArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let tools = Arc::new(ToolSwitches::new(&places.config, &places.state));
    match &arguments.action {
        ToolsAction::List(arguments) => list(&tools, arguments, output),
        ToolsAction::Show(arguments) => show(&tools.registry(), arguments, output),
        ToolsAction::Check(arguments) => check(&tools, arguments, output),
        ToolsAction::Call(arguments) => calling::call(&tools, arguments, output),
        ToolsAction::Clean(arguments) => cleaning::clean(arguments, output),
        ToolsAction::Assert(arguments) => asserting::assert(arguments, output),
        ToolsAction::Pin(arguments) => pinning::pin(&tools, arguments, output),
        ToolsAction::Install(arguments) => packs::install(&tools, arguments, output),
        ToolsAction::Uninstall(arguments) => packs::uninstall(&tools, &arguments.name, output),
        ToolsAction::Sign(arguments) => packs::sign(arguments, output),
        ToolsAction::Enable(arguments) => switch(&tools, arguments, true, output),
        ToolsAction::Disable(arguments) => switch(&tools, arguments, false, output),
    }
}

/// Carries out `atoll mcp`.
///
/// # Errors
/// When the tools cannot be served.
pub fn mcp(arguments: &McpArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    let tools = Arc::new(ToolSwitches::new(&places.config, &places.state));
    warn_of(tools.registry().problems(), output);
    let workspace = calling::workspace(arguments.workspace.as_deref())?;
    let recording = match (&arguments.record, &arguments.replay) {
        (Some(file), _) => Some(Recording::to(file)?),
        (None, Some(file)) => Some(Recording::from(file)?),
        (None, None) => None,
    };
    let session = session(&tools, &workspace, &arguments.token)?;
    let session = Arc::new(session.with(recording));
    let served = serve_stdio(&session);
    session.end();
    for run in session.runner().end() {
        output.say(&format!(
            "Changes are kept. Review them with `atoll diff {run}`.\n"
        ));
    }
    served.map(|()| 0)
}

/// Begins a session of the person's own, over a directory.
fn session(
    tools: &Arc<ToolSwitches>,
    workspace: &Path,
    tokens: &[PathBuf],
) -> Result<Session<LocalRunner>, Failure> {
    let engine = Engine::open(LAUNCHER)?;
    let runner = LocalRunner::new(engine.clone(), workspace);
    let session = Session::new(engine.clone(), Arc::clone(tools), runner, None);
    let tokens = engine.tool_tokens(tokens, session.id(), workspace)?;
    Ok(session.carried_by(tokens))
}

fn list(
    tools: &Arc<ToolSwitches>,
    arguments: &ListToolsArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let registry = tools.registry();
    let shown: Vec<Arc<Tool>> = match arguments.all || registry.tools().next().is_none() {
        true => registry.tools().cloned().collect(),
        false => session(tools, &calling::workspace(None)?, &[])?.tools(),
    };
    if arguments.json {
        let all: Vec<Value> = shown.iter().map(|tool| described(tool)).collect();
        output.json(&json!(all));
    } else {
        let width = shown.iter().map(|tool| tool.name.as_str().len()).max();
        for tool in &shown {
            output.result(&line(tool, width.unwrap_or_default()));
        }
        if registry.tools().next().is_none() && registry.problems().is_empty() {
            output.say("No tools are described. `atoll help tools` shows how to write one.\n");
        }
    }
    warn_of(registry.problems(), output);
    Ok(0)
}

fn line(tool: &Tool, width: usize) -> String {
    let first = tool.description.lines().next().unwrap_or_default();
    let off = match tool.enabled {
        true => "",
        false => "  (off)",
    };
    let (name, effect) = (&tool.name, tool.effect.name());
    let about = printable(first.as_bytes());
    format!(
        "{name:width$}  {effect:6}  {about}{off}\n",
        name = name.as_str()
    )
}

pub(crate) fn warn_of(problems: &[Problem], output: &Output) {
    for one in problems {
        output.warn(&told(one));
    }
}

fn told(problem: &Problem) -> String {
    let Problem { file, table, why } = problem;
    let table = table.as_ref().map(|table| format!(" [{table}]"));
    let text = format!("{file}{}: {why}", table.unwrap_or_default());
    printable_lines(text.as_bytes())
}

fn check(
    tools: &Arc<ToolSwitches>,
    arguments: &CheckToolsArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let registry = tools.registry();
    let mut problems = registry.problems().to_vec();
    if registry.tools().next().is_some() {
        problems.extend(session(tools, &calling::workspace(None)?, &[])?.problems());
    }
    if arguments.json {
        let all = problems.iter();
        let all = all.map(|one| json!({ "file": one.file, "table": one.table, "why": one.why }));
        output.json(&json!(all.collect::<Vec<_>>()));
    } else if problems.is_empty() {
        let all = match registry.tools().count() {
            1 => "1 tool".to_owned(),
            count => format!("{count} tools"),
        };
        output.say(&format!("{all}, no problems.\n"));
    }
    for one in problems.iter().filter(|_| !arguments.json) {
        output.result(&format!("{}\n", told(one)));
    }
    Ok(u8::from(!problems.is_empty()))
}

fn unknown(registry: &Registry, name: &str) -> Failure {
    let failure = Failure::new(format!("there is no tool {}", printable(name.as_bytes())));
    // Tools of an upstream begin with its name.
    let table = match name.split_once("__") {
        Some((upstream, _)) => format!("upstream.{upstream}"),
        None => format!("tool.{name}"),
    };
    let is_of_it = |one: &&Problem| one.table.as_ref() == Some(&table);
    // One of all tools.
    let is_of_all = |one: &&Problem| one.table.is_none();
    let problems = registry.problems().iter();
    let problem = problems.clone().find(is_of_it);
    match problem.or_else(|| problems.clone().find(is_of_all)) {
        Some(problem) => failure.because(told(problem)),
        None => failure.advise("atoll tools list"),
    }
}

fn switch(
    tools: &ToolSwitches,
    arguments: &SwitchToolArguments,
    on: bool,
    output: &Output,
) -> Result<u8, Failure> {
    let registry = tools.registry();
    let tool = registry
        .tool(&arguments.name)
        .ok_or_else(|| unknown(&registry, &arguments.name))?;
    tools.switch(&tool.name, on)?;
    let state = if on { "on" } else { "off" };
    output.say(&format!("{} is {state}.\n", tool.name));
    Ok(0)
}

fn show(
    registry: &Registry,
    arguments: &ShowToolArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let tool = registry
        .tool(&arguments.name)
        .ok_or_else(|| unknown(registry, &arguments.name))?;
    if arguments.json {
        output.json(&described(tool));
        return Ok(0);
    }
    let mut text = format!(
        "{}\n  {}\n",
        tool.name,
        printable_lines(tool.description.trim_end().as_bytes()).replace('\n', "\n  ")
    );
    let sandbox = match tool.life {
        SandboxLife::Call => "a fresh one for each call",
        SandboxLife::Session => "one for all calls of a session",
    };
    let allow = match tool.requested.allow.as_slice() {
        [] => "nothing but what its profile allows".to_owned(),
        hosts => hosts.join(", "),
    };
    let repeats = if tool.idempotent { "yes" } else { "no" };
    for (name, value) in [
        ("kind", tool.kind().name().to_owned()),
        ("effect", tool.effect.name().to_owned()),
        ("can be repeated", repeats.to_owned()),
        ("taken back by", way_back(tool)),
        ("shadow runs", shadows(tool).to_owned()),
        ("sandbox", sandbox.to_owned()),
        ("profile", profile(tool).to_owned()),
        ("network", allow),
        ("timeout", format_duration(tool.timeout)),
        (
            "result",
            format!("{} at most", format_bytes(tool.result_bytes as u64)),
        ),
        ("state", if tool.enabled { "on" } else { "off" }.to_owned()),
        ("described in", tool.file.clone()),
    ] {
        text.push_str(&format!("  {name:15}  {}\n", printable(value.as_bytes())));
    }
    for scope in tool.scope_lines() {
        text.push_str(&format!(
            "  {:15}  {}\n",
            "scope",
            printable(scope.as_bytes())
        ));
    }
    let schema = format!("{:#}", tool.arguments.value()).replace('\n', "\n  ");
    text.push_str(&format!(
        "  arguments\n  {}\n",
        printable_lines(schema.as_bytes())
    ));
    output.result(&text);
    Ok(0)
}

fn way_back(tool: &Tool) -> String {
    let back = &tool.way_back;
    let targets: Vec<String> = back.checkpoint.iter().map(ToString::to_string).collect();
    match (back.kind(tool.effect), &back.inverse) {
        (ToolUndo::Nothing, _) => "nothing: it changes nothing".to_owned(),
        (ToolUndo::Inverse, Some(inverse)) => format!("inverse: {}", inverse.tool),
        (ToolUndo::Restore, _) => format!("restore of {}", targets.join(", ")),
        (ToolUndo::Inverse | ToolUndo::None, _) => "nothing: its effect stays".to_owned(),
    }
}

fn shadows(tool: &Tool) -> &'static str {
    match tool.shadow {
        None => "none, unless policies ask for one",
        Some(Shadow::Once) => "one before each effect",
        Some(Shadow::Twice) => "two before each effect",
    }
}

fn profile(tool: &Tool) -> &str {
    match &tool.requested.profile {
        Some(RequestedProfile::Named(name)) => name,
        Some(RequestedProfile::File(file)) => &file.name,
        None => "default",
    }
}

fn described(tool: &Tool) -> Value {
    json!({
        "name": tool.name.as_str(),
        "title": tool.title,
        "description": tool.description,
        "kind": tool.kind().name(),
        "form": tool.form().name(),
        "effect": tool.effect.name(),
        "idempotent": tool.idempotent,
        "shadow": tool.shadow.map_or(0, Shadow::times),
        "undo": tool.way_back.kind(tool.effect).name(),
        "sandbox": match tool.life {
            SandboxLife::Call => "call",
            SandboxLife::Session => "session",
        },
        "profile": profile(tool),
        "allow": tool.requested.allow,
        "timeout_seconds": tool.timeout.as_secs_f64(),
        "result_bytes": tool.result_bytes,
        "enabled": tool.enabled,
        "file": tool.file,
        "scopes": tool.scope_lines(),
        "arguments": tool.arguments.value(),
        "result": tool.result.as_ref().map(atoll_tools::Schema::value),
    })
}
