//! `atoll tools call`: one call, at a terminal or in a script.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_engine::NeedsApproval;
use atoll_engine::failure::{Doing, Failure, Kind};
use atoll_engine::printable::{printable, quoted};
use atoll_model::Reason;
use atoll_policy::PriorAnswer;
use atoll_tools::{
    Answer, Askable, Asked, Cancel, ChangeSet, LocalRunner, May, Refusal, Session, ShadowEnd, Tool,
    ToolSwitches,
};
use serde_json::{Map, Value, json};

use super::{session, unknown};
use crate::arguments::CallToolArguments;
use crate::consent::consent;
use crate::output::Output;
use crate::status::STATUS_DENIED;

/// The status of a tool that failed.
const STATUS_FAILED: u8 = 1;
/// The most that is read as arguments, bytes: more is refused in any case.
const STDIN_BYTES_MAX: u64 = 1 << 20;

/// Returns the directory that tools run over, free of symbolic links.
pub(super) fn workspace(chosen: Option<&Path>) -> Result<PathBuf, Failure> {
    let chosen = match chosen {
        Some(chosen) => chosen.to_owned(),
        None => std::env::current_dir().doing("the current directory cannot be used")?,
    };
    let what = format!(
        "{} cannot be used",
        printable(chosen.as_os_str().as_encoded_bytes())
    );
    chosen.canonicalize().doing(&what)
}

/// Calls a tool, and prints its result.
pub(super) fn call(
    tools: &Arc<ToolSwitches>,
    arguments: &CallToolArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let registry = tools.registry();
    let name = &arguments.name;
    let tool = registry
        .tool(name)
        .ok_or_else(|| unknown(&registry, name))?;
    if !tool.enabled {
        return Err(Failure::new(format!("{name} is off"))
            .advise(format!("atoll tools enable {name}"))
            .of_kind(Kind::Denied));
    }
    let text = text_of(tool, arguments)?;
    let workspace = workspace(arguments.workspace.as_deref())?;
    let session = session(tools, &workspace, &arguments.token)?;
    if arguments.dry_run {
        return may(&session, name, &text, arguments.json, output);
    }
    let answer = answered(&session, arguments, &text, output)?;
    session.end();
    let kept = session.runner().end();
    if arguments.json {
        output.json(&json!({
            "call": format!("{}/tool/{}", session.id(), answer.number),
            "end": answer.end.name(),
            "text": answer.text(),
            "blocks": answer.blocks,
            "structured": answer.structured,
            "notes": answer.notes,
            "run": answer.run.as_ref().map(ToString::to_string),
            "shadow": answer.shadow.as_ref().map(|report| report.json()),
        }));
    } else if answer.is_result() {
        let text = answer.text();
        let newline = match text.is_empty() || text.ends_with('\n') {
            true => "",
            false => "\n",
        };
        output.result(&format!("{text}{newline}"));
    } else {
        output.failure(&Failure::new(format!("{name} failed")).because(answer.text()));
    }
    for note in answer.told.iter().chain(&answer.notes) {
        output.warn(note);
    }
    for run in kept.iter().filter(|_| !arguments.json) {
        output.say(&format!(
            "Its changes are kept. Review them with `atoll diff {run}`.\n"
        ));
    }
    let end = answer.shadow.as_ref().map(|report| &report.end);
    Ok(match (answer.is_result(), end) {
        (true, _) => 0,
        (false, Some(ShadowEnd::Denied(_))) => STATUS_DENIED,
        (false, _) => STATUS_FAILED,
    })
}

/// Makes the call, and once more with the person's answer where policies ask.
fn answered(
    session: &Session<LocalRunner>,
    arguments: &CallToolArguments,
    text: &str,
    output: &Output,
) -> Result<Answer, Failure> {
    let name = &arguments.name;
    let cancel = Cancel::new()?;
    let can_ask = output.can_ask && !arguments.no_ask;
    let approver = |change: &ChangeSet, reasons: &[Reason]| match can_ask {
        false => Err("nobody can be asked here".to_owned()),
        true => match consent(&change_rows(name, change, reasons), "apply this", output) {
            Ok(consented) => consented.map_err(str::to_owned),
            Err(failure) => Err(failure.what),
        },
    };
    let call = |answer: &PriorAnswer| {
        session.call(&Asked {
            name,
            arguments: text,
            key: arguments.key.as_deref(),
            answer,
            cancel: &cancel,
            listener: None,
            answers: None,
            askable: Askable::default(),
            approver: Some(&approver),
        })
    };
    let (asked, judged) = match call(&PriorAnswer::Nobody) {
        Err(Refusal::NeedsApproval { asked, arguments }) => (asked, arguments),
        called => return called.map_err(|refusal| refused(session, name, refusal)),
    };
    let answer = match can_ask {
        false => PriorAnswer::Denied("nobody can be asked here"),
        true => match consent(&rows(name, &judged, &asked), "call it once", output)? {
            Ok(()) => PriorAnswer::Agreed(asked.agreement),
            Err(why) => PriorAnswer::Denied(why),
        },
    };
    call(&answer).map_err(|refusal| refused(session, name, refusal))
}

/// Returns the rows shown to the person: nothing in them can be a line of its own, or hide.
pub(super) fn rows(name: &str, text: &str, asked: &NeedsApproval) -> Vec<String> {
    let mut rows = vec![
        "Policies ask you before this tool is called:".to_owned(),
        format!("  tool: {}", quoted(name.as_bytes())),
        format!("  arguments: {}", printable(text.as_bytes())),
    ];
    rows.extend(asked.reasons.iter().map(|one| format!("  {}", told(one))));
    rows.push(format!("  digest {}", asked.agreement));
    rows
}

/// Returns the rows shown to the person before a change set is applied.
fn change_rows(name: &str, change: &ChangeSet, reasons: &[Reason]) -> Vec<String> {
    let mut rows = vec![
        "You are asked before exactly this is applied:".to_owned(),
        format!("  tool: {}", quoted(name.as_bytes())),
    ];
    let lines = change.lines.iter();
    rows.extend(lines.map(|line| format!("  {}", printable(line.as_bytes()))));
    rows.extend(reasons.iter().map(|one| format!("  {}", told(one))));
    rows.push(format!("  digest {}", change.facts.digest));
    rows
}

pub(super) fn told(reason: &Reason) -> String {
    let text = format!("{}: {} ({})", reason.what, reason.why, reason.rule);
    printable(text.as_bytes())
}

fn refused(session: &Session<LocalRunner>, name: &str, refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Unknown(_) => Failure::new(format!("{name} cannot be called here"))
            .because("policies, or its own list of callers, do not allow any call of it")
            .advise("atoll tools list")
            .of_kind(Kind::Denied),
        Refusal::Invalid(why) => Failure::new(format!("{name} does not take these arguments"))
            .because(printable(why.join("; ").as_bytes()))
            .advise(format!("atoll tools show {name}")),
        Refusal::Limited(exceeded) => {
            let failure = Failure::new(format!("{name} was not called")).because(exceeded.why);
            match exceeded.retry_after {
                Some(time) => failure.advise(format!("call it in {} s", time.as_secs() + 1)),
                None => failure.advise("atoll breakers list"),
            }
        }
        Refusal::NeedsApproval { asked, .. } => denied(session, name, &asked.reasons),
        Refusal::Denied(reasons) => denied(session, name, &reasons),
        Refusal::Failed(failure) => *failure,
    }
}

fn denied(session: &Session<LocalRunner>, name: &str, reasons: &[Reason]) -> Failure {
    let whys: Vec<String> = reasons.iter().map(told).collect();
    let failure = Failure::new(format!("the call of {name} is denied"))
        .because(whys.join("; "))
        .of_kind(Kind::Denied);
    let failure = match reasons.first() {
        Some(reason) => failure.advise(&reason.how_to_ask),
        None => failure,
    };
    failure.advise(format!("atoll why {}", session.id()))
}

fn may(
    session: &Session<LocalRunner>,
    name: &str,
    text: &str,
    as_json: bool,
    output: &Output,
) -> Result<u8, Failure> {
    let may = session.may(name, text);
    let may = may.map_err(|refusal| refused(session, name, refusal))?;
    let (verdict, reasons, status) = match may {
        May::Yes => ("allow", Vec::new(), 0),
        May::Ask(reasons) => ("ask", reasons, 0),
        May::No(reasons) => ("deny", reasons, STATUS_DENIED),
    };
    if as_json {
        let reasons = reasons.iter().map(|one| {
            json!({
                "what": one.what, "why": one.why, "rule": one.rule,
                "how_to_ask": one.how_to_ask,
            })
        });
        output.json(&json!({ "verdict": verdict, "reasons": reasons.collect::<Vec<_>>() }));
        return Ok(status);
    }
    output.result(&format!("{verdict}\n"));
    for one in &reasons {
        output.result(&format!("  {}\n", told(one)));
    }
    Ok(status)
}

/// Returns the arguments as JSON text.
fn text_of(tool: &Tool, arguments: &CallToolArguments) -> Result<String, Failure> {
    match arguments.whole.as_deref() {
        Some("-") => {
            let mut text = String::new();
            let mut stdin = std::io::stdin().lock().take(STDIN_BYTES_MAX);
            stdin
                .read_to_string(&mut text)
                .doing("standard input cannot be read")?;
            Ok(text)
        }
        Some(text) => Ok(text.to_owned()),
        None => pairs(tool, &arguments.arguments),
    }
}

/// Makes an object of `NAME=VALUE` pairs. A value is text where the schema takes text.
fn pairs(tool: &Tool, pairs: &[String]) -> Result<String, Failure> {
    let mut all = Map::new();
    for pair in pairs {
        let shown = printable(pair.as_bytes());
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            Failure::new(format!("{shown} is no argument"))
                .because("an argument is NAME=VALUE")
                .advise(format!("atoll tools show {}", tool.name))
        })?;
        let pointer = format!("/properties/{name}/type");
        let is_text = match tool.arguments.value().pointer(&pointer) {
            Some(Value::String(kind)) => kind == "string",
            Some(_) | None => serde_json::from_str::<Value>(value).is_err(),
        };
        let value = match is_text {
            true => json!(value),
            false => serde_json::from_str(value).map_err(|error| {
                Failure::new(format!("{shown} is not what {} takes", tool.name))
                    .because(format!("its value is no JSON: {error}"))
                    .advise(format!("atoll tools show {}", tool.name))
            })?,
        };
        if all.insert(name.to_owned(), value).is_some() {
            return Err(Failure::new(format!(
                "{shown}: this argument is given twice"
            )));
        }
    }
    Ok(Value::Object(all).to_string())
}
