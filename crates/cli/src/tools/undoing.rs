//! `atoll undo --session`: all that a session of tools has done, taken back.

use std::sync::Arc;

use atoll_engine::NeedsApproval;
use atoll_engine::configuration::Places;
use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_engine::printable::printable;
use atoll_model::{Reason, RunId};
use atoll_policy::PriorAnswer;
use atoll_tools::{Person, Step, ToolSwitches, Unwound, unwind, way_back_of};
use serde_json::{Value, json};

use super::{calling, session};
use crate::arguments::UndoArguments;
use crate::consent::consent;
use crate::output::Output;

/// Carries out `atoll undo --session`. The status is 1 if something was left.
///
/// # Errors
/// When what the session did cannot be read.
pub fn undo(arguments: &UndoArguments, of: &str, output: &Output) -> Result<u8, Failure> {
    let of = RunId::parse(of).doing("there is no session of this id")?;
    let places = Places::read()?;
    let tools = Arc::new(ToolSwitches::new(&places.config, &places.state));
    let by = session(&tools, &calling::workspace(None)?, &[])?;
    if arguments.list {
        let steps = way_back_of(&by, &of)?;
        show(&of, &steps, arguments.json, output);
        return Ok(0);
    }
    let person = Person {
        about_call: &|tool, text, asked| answered(tool, text, asked, output),
        about_restore: &|reasons| agrees(reasons, output),
    };
    let mut tell = |step: &Step| {
        if !arguments.json {
            output.say(&line(step));
        }
    };
    let steps = unwind(&by, &of, &person, &mut tell)?;
    by.end();
    let _ = by.runner().end();
    let left = steps
        .iter()
        .filter(|one| matches!(one.end, Unwound::Left(_)));
    let left = left.count();
    if arguments.json {
        show(&of, &steps, true, output);
    } else if steps.is_empty() {
        output.say(&format!("Session {of} has done nothing that stays.\n"));
    } else {
        let done = steps.len() - left;
        output.say(&format!("Session {of}: {done} taken back, {left} left.\n"));
    }
    Ok(u8::from(left > 0))
}

fn show(of: &RunId, steps: &[Step], as_json: bool, output: &Output) {
    if as_json {
        let steps: Vec<Value> = steps.iter().map(Step::json).collect();
        output.json(&json!({ "session": of.as_str(), "steps": steps }));
        return;
    }
    for step in steps {
        let would = match &step.end {
            Unwound::Restored(_) => "would have its checkpoint restored".to_owned(),
            Unwound::Called(call) => format!("would be taken back by {call}"),
            Unwound::Already | Unwound::Left(_) => {
                output.result(&line(step));
                continue;
            }
        };
        let text = format!(
            "call {}  {} ({})  {would}",
            step.call, step.tool, step.effect
        );
        output.result(&format!("{}\n", printable(text.as_bytes())));
    }
}

fn line(step: &Step) -> String {
    let end = match &step.end {
        Unwound::Restored(Some(kept)) => format!("restored; atoll restore {kept} takes this back"),
        Unwound::Restored(None) => "restored: nothing had changed".to_owned(),
        Unwound::Called(tool) => format!("taken back by {tool}"),
        Unwound::Already => "taken back before".to_owned(),
        Unwound::Left(why) => format!("left: {why}"),
    };
    let text = format!("call {}  {} ({})  {end}", step.call, step.tool, step.effect);
    format!("{}\n", printable(text.as_bytes()))
}

/// Asks about the call of a tool. Any doubt denies.
fn answered(tool: &str, text: &str, asked: &NeedsApproval, output: &Output) -> PriorAnswer {
    if !output.can_ask {
        return PriorAnswer::Denied("nobody can be asked here");
    }
    match consent(&calling::rows(tool, text, asked), "call it once", output) {
        Ok(Ok(())) => PriorAnswer::Agreed(asked.agreement.clone()),
        Ok(Err(why)) => PriorAnswer::Denied(why),
        Err(_) => PriorAnswer::Denied("there was no answer"),
    }
}

/// Asks about a restore. Any doubt denies.
fn agrees(reasons: &[Reason], output: &Output) -> Result<(), Failure> {
    let lines: Vec<String> = reasons.iter().map(calling::told).collect();
    let denied = |why: &str| {
        Failure::new("policies ask a person before this is restored")
            .because(format!("{why}\n{}", lines.join("\n")))
            .of_kind(Kind::Denied)
    };
    if !output.can_ask {
        return Err(denied("nobody can be asked here"));
    }
    let mut rows = vec!["You are asked before a checkpoint is restored:".to_owned()];
    rows.extend(lines.iter().map(|line| format!("  {line}")));
    consent(&rows, "restore it", output)?.map_err(denied)
}
