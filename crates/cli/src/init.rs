//! `atoll init`: names Atoll's tools in the configuration of an agent, and takes that back.

mod hooks;

use std::env;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_tools::ToolSwitches;
use serde_json::{Map, Value, json};

use crate::arguments::{Agent, InitArguments};
use crate::output::Output;
use crate::own::environment;

/// The name of the server that is added.
const NAME: &str = "atoll";

/// An agent's configuration of MCP servers.
struct Configuration {
    /// The agent's name for people.
    agent: &'static str,
    file: PathBuf,
    /// The table of servers; `None` for TOML.
    servers: Option<&'static str>,
}

/// Carries out `atoll init`.
///
/// # Errors
/// When the agent's configuration cannot be read or written, or has another server of the name.
pub fn init(arguments: &InitArguments, output: &Output) -> Result<u8, Failure> {
    let places = Places::read()?;
    if arguments.hook {
        return hooks::init(arguments, &places, output);
    }
    let of = configuration(arguments.agent, &places);
    let before = read(&of.file)?;
    let after = match (of.servers, arguments.undo) {
        (None, false) => with_table(&before),
        (None, true) => without_table(&before),
        (Some(servers), false) => with_member(&before, servers, arguments.agent),
        (Some(servers), true) => without_member(&before, servers, arguments.agent),
    };
    let after = after.map_err(|why| by_hand(&of, arguments, why))?;
    if after != before {
        write(&of.file, &after)?;
    }
    output.say(&said(&of, arguments, after != before));
    let tools = ToolSwitches::new(&places.config, &places.state).registry();
    if !arguments.undo && tools.tools().next().is_none() {
        output.say(&format!(
            "No tool is described yet: {} has none.\n",
            places.config.join("tools.toml").display()
        ));
    }
    Ok(0)
}

fn configuration(agent: Agent, places: &Places) -> Configuration {
    let of = |variable: &str, fallback: &str| {
        let named = env::var_os(variable).map(PathBuf::from);
        named.unwrap_or_else(|| places.home.join(fallback))
    };
    let (agent, file, servers) = match agent {
        Agent::Codex => (
            "Codex",
            of("CODEX_HOME", ".codex").join("config.toml"),
            None,
        ),
        Agent::Claude => (
            "Claude Code",
            of("CLAUDE_CONFIG_DIR", "").join(".claude.json"),
            Some("mcpServers"),
        ),
        Agent::Opencode => (
            "OpenCode",
            of("XDG_CONFIG_HOME", ".config").join("opencode/opencode.json"),
            Some("mcp"),
        ),
        Agent::Gemini => (
            "Gemini CLI",
            places.home.join(".gemini/settings.json"),
            Some("mcpServers"),
        ),
    };
    Configuration {
        agent,
        file,
        servers,
    }
}

fn said(of: &Configuration, arguments: &InitArguments, is_changed: bool) -> String {
    let (agent, file) = (of.agent, of.file.display());
    let name = arguments.agent.name();
    match (arguments.undo, is_changed) {
        (false, true) => format!(
            "{agent} starts `atoll mcp` for its tools from now on: {file} names it.\n\
             Take it back with: atoll init {name} --undo\n"
        ),
        (false, false) => format!("{file} names `atoll mcp` already.\n"),
        (true, true) => format!("{file} names `atoll mcp` no more.\n"),
        (true, false) => format!("{file} does not name `atoll mcp`.\n"),
    }
}

fn by_hand(of: &Configuration, arguments: &InitArguments, why: String) -> Failure {
    let wanted = match of.servers {
        None => table(),
        Some(servers) => json!({ servers: { NAME: member(arguments.agent) } }).to_string(),
    };
    let verb = if arguments.undo { "remove" } else { "add" };
    let wanted = printable(wanted.trim().as_bytes());
    Failure::new(format!("{} is not changed", of.file.display()))
        .because(why)
        .advise(format!("{verb} this by hand: {wanted}"))
}

/// Reads the file; one that is not there is empty.
fn read(file: &Path) -> Result<String, Failure> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read.doing(&format!("{} cannot be read", file.display())),
    }
}

/// Writes the file through a link, whole or not at all. It may hold keys: nobody reads it meanwhile
/// who could not read it before.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let place = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let new = place.with_extension(format!("{}.new", std::process::id()));
    let write = || -> io::Result<()> {
        if let Some(directory) = place.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut options = File::options();
        let mut written = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        written.write_all(text.as_bytes())?;
        if let Ok(found) = fs::metadata(&place) {
            written.set_permissions(found.permissions())?;
        }
        written.sync_all()?;
        fs::rename(&new, &place)
    };
    write().doing(&format!("{} cannot be written", place.display()))
}

/// Returns the program as it is started: by its name where that leads here.
fn program() -> String {
    let own = env::current_exe().and_then(fs::canonicalize);
    let paths = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&paths).map(|directory| directory.join("atoll"));
    let found = found.filter_map(|path| fs::canonicalize(path).ok()).next();
    match own {
        Ok(own) if found.as_ref() != Some(&own) => own.display().to_string(),
        Ok(_) | Err(_) => "atoll".to_owned(),
    }
}

fn member(agent: Agent) -> Value {
    let (mut member, variables) = match agent {
        Agent::Opencode => (
            json!({ "type": "local", "command": [program(), "mcp"], "enabled": true }),
            "environment",
        ),
        Agent::Codex | Agent::Claude | Agent::Gemini => {
            (json!({ "command": program(), "args": ["mcp"] }), "env")
        }
    };
    let environment = environment();
    if let (Some(member), false) = (member.as_object_mut(), environment.is_empty()) {
        member.insert(variables.to_owned(), environment.into());
    }
    member
}

fn table() -> String {
    let text = |value: &str| toml::Value::String(value.to_owned()).to_string();
    let mut table = format!(
        "\n[mcp_servers.{NAME}]\ncommand = {}\nargs = [\"mcp\"]\n",
        text(&program())
    );
    let environment = environment();
    let named = environment
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_str()?)));
    let named: Vec<String> = named
        .map(|(name, value)| format!("{name} = {}", text(value)))
        .collect();
    if !named.is_empty() {
        table += &format!("env = {{ {} }}\n", named.join(", "));
    }
    table
}

fn read_table(text: &str) -> Result<Option<toml::Value>, String> {
    let all: toml::Table = text
        .parse()
        .map_err(|error| format!("it is no TOML: {error}"))?;
    let servers = all.get("mcp_servers");
    Ok(servers.and_then(|servers| servers.get(NAME)).cloned())
}

fn with_table(before: &str) -> Result<String, String> {
    let wanted = read_table(&table())?;
    match read_table(before)? {
        None => {
            let line = if before.is_empty() || before.ends_with('\n') {
                ""
            } else {
                "\n"
            };
            let after = format!("{before}{line}{}", table());
            read_table(&after)?;
            Ok(after)
        }
        has if has == wanted => Ok(before.to_owned()),
        Some(_) => Err(format!("it has another server called {NAME}")),
    }
}

fn without_table(before: &str) -> Result<String, String> {
    if read_table(before)?.is_none() {
        return Ok(before.to_owned());
    }
    let after = before.replacen(&table(), "", 1);
    match read_table(&after)? {
        None => Ok(after),
        Some(_) => Err(format!("its server called {NAME} was changed")),
    }
}

fn read_members(text: &str) -> Result<Map<String, Value>, String> {
    match text.trim().is_empty() {
        true => Ok(Map::new()),
        false => serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}")),
    }
}

fn written(all: &Map<String, Value>) -> Result<String, String> {
    let text = serde_json::to_string_pretty(all).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

fn with_member(before: &str, servers: &str, agent: Agent) -> Result<String, String> {
    let mut all = read_members(before)?;
    let of = all.entry(servers).or_insert_with(|| json!({}));
    let of = of
        .as_object_mut()
        .ok_or(format!("its {servers} is no object"))?;
    match of.get(NAME) {
        Some(has) if *has == member(agent) => return Ok(before.to_owned()),
        Some(_) => return Err(format!("it has another server called {NAME}")),
        None => of.insert(NAME.to_owned(), member(agent)),
    };
    written(&all)
}

fn without_member(before: &str, servers: &str, agent: Agent) -> Result<String, String> {
    let mut all = read_members(before)?;
    let of = all.get_mut(servers).and_then(Value::as_object_mut);
    match of.and_then(|of| Some((of.get(NAME)?.clone(), of))) {
        None => Ok(before.to_owned()),
        Some((has, _)) if has != member(agent) => {
            Err(format!("its server called {NAME} was changed"))
        }
        Some((_, of)) => {
            of.shift_remove(NAME);
            if of.is_empty() {
                all.shift_remove(servers);
            }
            written(&all)
        }
    }
}
