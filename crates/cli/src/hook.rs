//! `atoll hook`: decides on the calls of an agent's own tools, and has its commands carried out in
//! the sandbox of its session.
//!
//! Agents go on as if there were no hook where one ends in any other way than with an answer or
//! with the status 2: whatever goes wrong here ends with that.

mod deciding;
mod event;
mod living;

use std::path::Path;
use std::thread;
use std::time::Duration;

use atoll_engine::failure::{Failure, Kind};
use atoll_engine::tools::Called;
use atoll_model::ToolEnd;
use atoll_policy::PriorAnswer;
use serde_json::{Map, Value, json};

use crate::arguments::{HookAgent, HookArguments};
use crate::output::Output;
use crate::own;
use deciding::{Asked, Decision, denied, told, unheld};
use event::Event;
use living::Living;

/// The time for a decision: agents give a hook up after a minute, and go on.
const DECIDES_WITHIN: Duration = Duration::from_secs(20);
/// The status that agents take as a denial, with standard error as the reason.
const STATUS_BLOCKED: u8 = 2;

/// Carries out `atoll hook`.
///
/// # Errors
/// When a command is denied, or cannot be carried out in the sandbox.
pub fn hook(arguments: &HookArguments, output: &Output) -> Result<u8, Failure> {
    if let Some(command) = &arguments.command {
        return carried_out(arguments, command, output);
    }
    thread::spawn(|| {
        thread::sleep(DECIDES_WITHIN);
        eprintln!("there was no decision in time");
        std::process::exit(STATUS_BLOCKED.into());
    });
    Ok(match answer(arguments.agent) {
        Ok(answer) => {
            output.result(&format!("{answer}\n"));
            0
        }
        Err(failure) => {
            output.failure(&failure);
            STATUS_BLOCKED
        }
    })
}

/// Returns the answer to the event that is waiting.
fn answer(agent: HookAgent) -> Result<Value, Failure> {
    let first = std::fs::read("/proc/1/comm").unwrap_or_default();
    if std::env::var_os("ATOLL_RUN").is_some() && first == b"atoll-init\n" {
        // A sandbox of Atoll's contains the agent, with its tools.
        return Ok(json!({}));
    }
    let event = Event::read(agent, std::io::stdin().lock());
    let event = event.map_err(|why| Failure::new("the call is denied").because(why))?;
    let asked = Asked::new(&event)?;
    let (decision, why, input) = match asked.decide(agent)? {
        // What the agent or its person asks about besides is theirs.
        Decision::Passed => return Ok(json!({})),
        Decision::Denied(reasons) => ("deny", asked.denial(&reasons), None),
        Decision::Contained(None) => {
            let why = "it is carried out in a sandbox".to_owned();
            ("allow", why, Some(rewritten(agent, &event, None)?))
        }
        Decision::Contained(Some(needs)) => {
            let input = rewritten(agent, &event, Some(&needs.agreement))?;
            ("ask", told(&needs.reasons), Some(input))
        }
    };
    Ok(match (agent, input) {
        (HookAgent::Gemini, None) => json!({ "decision": decision, "reason": why }),
        (HookAgent::Gemini, Some(input)) => json!({ "hookSpecificOutput": {
            "hookEventName": agent.event(),
            "tool_input": input,
        }}),
        (HookAgent::Claude | HookAgent::Codex, input) => {
            let mut answer = json!({
                "hookEventName": agent.event(),
                "permissionDecision": decision,
                "permissionDecisionReason": why,
            });
            if let (Some(input), Some(members)) = (input, answer.as_object_mut()) {
                members.insert("updatedInput".to_owned(), input);
            }
            json!({ "hookSpecificOutput": answer })
        }
    })
}

/// Returns the arguments of a command with this program in its place, which decides once more.
fn rewritten(agent: HookAgent, event: &Event, agreement: Option<&str>) -> Result<Value, Failure> {
    let directory = event.directory.to_string_lossy();
    let mut words = vec!["hook", agent.name(), "--session", &event.session];
    words.extend(["--workspace", &directory]);
    words.extend(agreement.into_iter().flat_map(|one| ["--agreed", one]));
    words.extend(["--", event.command.as_deref().unwrap_or_default()]);
    let mut input = event.input.clone();
    input.insert("command".to_owned(), own::line(&words)?.into());
    Ok(input.into())
}

/// Carries out a command in the sandbox of its session: decided and recorded before, recorded
/// after. Returns its status.
fn carried_out(arguments: &HookArguments, command: &str, output: &Output) -> Result<u8, Failure> {
    let session = arguments.session.as_deref().unwrap_or_default();
    let workspace = arguments.workspace.clone().unwrap_or_default();
    let input = Map::from_iter([("command".to_owned(), json!(command))]);
    let event = Event::new(arguments.agent, session, &workspace, "Bash", input);
    let event = event.map_err(|why| Failure::new("the command is denied").because(why))?;
    let asked = Asked::new(&event)?;
    let living = Living::of(&asked.engine, arguments.agent, session)?;
    let agreed = arguments.agreed.clone();
    let answer = agreed.map_or(PriorAnswer::Nobody, PriorAnswer::Agreed);
    let directory = std::env::current_dir();
    let directory = directory.as_deref().unwrap_or(Path::new("/"));
    let ran = asked.call(&answer, |grant| {
        // It has no end here but the command's own.
        let ran = match unheld(grant) {
            None => living.run(&event.directory, directory, command, output),
            Some(failure) => Err(failure),
        };
        let status = ran.as_ref().map(|ran| ran.status).ok();
        let run = ran.as_ref().map(|ran| ran.run.to_string()).ok();
        Called {
            answer: ran,
            end: match status {
                Some(0) => ToolEnd::Done,
                Some(_) | None => ToolEnd::Failed,
            },
            details: json!({ "agent": session, "status": status, "run": run }),
        }
    });
    match ran {
        Ok(ran) => ran.map(|ran| ran.status),
        Err(not) => Err(Failure::new("the command is denied")
            .because(asked.denial(&denied(not)?))
            .of_kind(Kind::Denied)),
    }
}
