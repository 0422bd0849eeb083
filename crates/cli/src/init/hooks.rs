//! `atoll init --hook`: names `atoll hook` in the settings of an agent, and takes that back.

use std::env;
use std::path::PathBuf;

use atoll_engine::configuration::Places;
use atoll_engine::failure::Failure;
use serde_json::{Value, json};

use super::{read, read_members, write, written};
use crate::arguments::{Agent, HookAgent, InitArguments};
use crate::output::Output;
use crate::own;

/// The member of the settings that has the hooks of each event.
const HOOKS: &str = "hooks";
/// The time that the agent waits for a decision, seconds: the hook itself ends before.
const TIMEOUT_SECONDS: u64 = 600;

/// Carries out `atoll init --hook`.
pub(super) fn init(
    arguments: &InitArguments,
    places: &Places,
    output: &Output,
) -> Result<u8, Failure> {
    let (agent, file) = place(arguments.agent, places)?;
    let (name, shown) = (agent.name(), file.display().to_string());
    let (before, wanted) = (read(&file)?, entry(agent)?);
    let after = changed(&before, agent, &wanted, arguments.undo).map_err(|why| {
        let verb = if arguments.undo { "remove" } else { "add" };
        let wanted = json!({ HOOKS: { agent.event(): [wanted] } });
        Failure::new(format!("{shown} is not changed"))
            .because(why)
            .advise(format!("{verb} this by hand: {wanted}"))
    })?;
    if after != before {
        write(&file, &after)?;
    }
    let further = match agent {
        HookAgent::Claude | HookAgent::Gemini => "",
        HookAgent::Codex => {
            "Codex passes over it until you have trusted it: start codex, and type /hooks.\n"
        }
    };
    output.say(&match (arguments.undo, after != before) {
        (false, true) => format!(
            "{shown} has `atoll hook {name}` decide on each call of a tool from now on.\n{further}\
             Take it back with: atoll init {name} --hook --undo\n"
        ),
        (false, false) => format!("{shown} names `atoll hook {name}` already.\n"),
        (true, true) => format!("{shown} names `atoll hook {name}` no more.\n"),
        (true, false) => format!("{shown} does not name `atoll hook {name}`.\n"),
    });
    Ok(0)
}

fn place(agent: Agent, places: &Places) -> Result<(HookAgent, PathBuf), Failure> {
    let of = |variable: &str, fallback: &str| {
        let named = env::var_os(variable).map(PathBuf::from);
        named.unwrap_or_else(|| places.home.join(fallback))
    };
    let (agent, directory, file) = match agent {
        Agent::Claude => {
            let directory = of("CLAUDE_CONFIG_DIR", ".claude");
            (HookAgent::Claude, directory, "settings.json")
        }
        Agent::Codex => (HookAgent::Codex, of("CODEX_HOME", ".codex"), "hooks.json"),
        Agent::Gemini => {
            let directory = places.home.join(".gemini");
            (HookAgent::Gemini, directory, "settings.json")
        }
        Agent::Opencode => {
            return Err(Failure::new("OpenCode has no hooks")
                .because("what decides on its tools is a plugin")
                .advise("atoll run -- opencode contains all of it"));
        }
    };
    Ok((agent, directory.join(file)))
}

/// Returns the hook. Agents go on where one ends with another status than 2, or says nothing: so
/// does a shell where the program is gone. In a sandbox of Atoll's that does not show the program,
/// nothing is to be decided.
fn entry(agent: HookAgent) -> Result<Value, Failure> {
    let own = own::quoted(&own::path()?.to_string_lossy());
    let line = own::line(&["hook", agent.name()])?;
    let command = format!(
        "if [ -e {own} ] || [ -z \"$ATOLL_RUN\" ]; then {line} || \
         {{ echo 'atoll hook has not allowed it' >&2; exit 2; }}; fi"
    );
    let timeout = match agent {
        HookAgent::Claude | HookAgent::Codex => TIMEOUT_SECONDS,
        HookAgent::Gemini => TIMEOUT_SECONDS * 1_000,
    };
    Ok(json!({ HOOKS: [{ "type": "command", "command": command, "timeout": timeout }] }))
}

/// Returns the settings with the hook, or without it.
fn changed(before: &str, agent: HookAgent, wanted: &Value, undo: bool) -> Result<String, String> {
    let mut all = read_members(before)?;
    let hooks = all.entry(HOOKS).or_insert_with(|| json!({}));
    let hooks = hooks.as_object_mut().ok_or("its hooks are no object")?;
    let entries = hooks.entry(agent.event()).or_insert_with(|| json!([]));
    let entries = entries.as_array_mut().ok_or("its hooks are no list")?;
    let own = format!(" hook {} ", agent.name());
    let has = entries
        .iter()
        .position(|entry| entry.to_string().contains(&own));
    match (has, undo) {
        (Some(at), _) if entries.get(at) != Some(wanted) => {
            return Err("it has another hook of Atoll's".to_owned());
        }
        (Some(at), true) => drop(entries.remove(at)),
        (None, false) => entries.push(wanted.clone()),
        (Some(_), false) | (None, true) => return Ok(before.to_owned()),
    }
    if entries.is_empty() {
        hooks.shift_remove(agent.event());
    }
    if hooks.is_empty() {
        all.shift_remove(HOOKS);
    }
    written(&all)
}
