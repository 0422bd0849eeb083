//! `atoll tools pin`: what an upstream offers, shown and approved.

use std::sync::Arc;

use atoll_engine::failure::{Failure, Kind};
use atoll_engine::printable::{printable, quoted};
use atoll_tools::{Difference, Form, Kind as Differs, Offered, Pins, ToolSwitches};
use serde_json::{Value, json};

use super::{calling, session};
use crate::arguments::PinToolsArguments;
use crate::consent::consent;
use crate::output::Output;
use crate::status::STATUS_DENIED;

/// Shows what an upstream offers, and approves it if the person agrees.
pub(super) fn pin(
    tools: &Arc<ToolSwitches>,
    arguments: &PinToolsArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let registry = tools.registry();
    let name = &arguments.name;
    let upstream = registry.upstream(name).ok_or_else(|| {
        Failure::new(format!(
            "there is no upstream {}",
            printable(name.as_bytes())
        ))
        .because("no file of tools describes it, or the description has a mistake")
        .advise("atoll tools check")
    })?;
    let session = session(
        tools,
        &calling::workspace(arguments.workspace.as_deref())?,
        &[],
    )?;
    let offered = session.offered(upstream);
    session.end();
    session.runner().end();
    let offered = offered?;
    let pinned = tools.pins(upstream)?;
    let command = pinned.as_ref().map(|pins| pins.command.clone());
    let before = pinned.filter(|pins| pins.are_of(upstream));
    let none = Pins::of(upstream, Vec::new());
    let differences = before.as_ref().unwrap_or(&none).differences(&offered);
    let is_same = before.is_some() && differences.is_empty();
    let after = Pins::of(upstream, offered);
    if arguments.json {
        let differences: Vec<Value> = differences.iter().map(described).collect();
        output.json(&json!({ "tools": after.tools, "differences": differences }));
    }
    if is_same {
        output.say(&format!("{name} offers its tools as they were approved.\n"));
        return Ok(0);
    }
    let agreed = match (arguments.yes, arguments.json || !output.can_ask) {
        (true, _) => Ok(()),
        (false, true) => Err("nobody can be asked here"),
        (false, false) => {
            let mut all = words(command.as_deref(), &after);
            all.extend(rows(name, &differences, before.as_ref(), &after));
            consent(&all, "approve them", output)?
        }
    };
    match agreed {
        Ok(()) => {
            tools.pin(upstream, &after)?;
            output.say(&format!("{} of {name} are approved.\n", counted(&after)));
            Ok(0)
        }
        Err(_) if arguments.json => Ok(STATUS_DENIED),
        Err(why) => Err(
            Failure::new(format!("the tools of {name} are not approved"))
                .because(why)
                .advise(format!("atoll tools pin {name}, at a terminal"))
                .of_kind(Kind::Denied),
        ),
    }
}

fn described(difference: &Difference) -> Value {
    let Difference { kind, form, name } = difference;
    let kind = match kind {
        Differs::Added => "added",
        Differs::Removed => "removed",
        Differs::Changed => "changed",
    };
    // Tools have their name as ever.
    json!({ "kind": kind, "form": form.name(), "tool": name })
}

/// Returns the rows about the program.
fn words(before: Option<&[String]>, after: &Pins) -> Vec<String> {
    let line = |mark: &str, words: &[String]| {
        let words: Vec<String> = words.iter().map(|word| quoted(word.as_bytes())).collect();
        format!("{mark} {}", words.join(" "))
    };
    match before {
        Some(before) if *before != after.command => {
            vec![
                line("command was", before),
                line("        is ", &after.command),
            ]
        }
        _ => vec![line("command", &after.command)],
    }
}

/// Returns the rows shown to the person: nothing in them can be a line of its own, or hide.
fn rows(
    upstream: &str,
    differences: &[Difference],
    before: Option<&Pins>,
    after: &Pins,
) -> Vec<String> {
    let mut rows = vec![format!(
        "{upstream} offers tools that you have not approved:"
    )];
    for difference in differences {
        let mark = match difference.kind {
            Differs::Added => "+",
            Differs::Removed => "-",
            Differs::Changed => "~",
        };
        let form = match difference.form {
            Form::Tool => String::new(),
            form => format!("{} ", form.name()),
        };
        let find = |all: &[Offered]| {
            let same = |one: &&Offered| one.form == difference.form && one.name == difference.name;
            all.iter().find(same).cloned()
        };
        rows.push(format!(
            "{mark} {form}{}",
            quoted(difference.name.as_bytes())
        ));
        let was = before.and_then(|before| find(&before.tools));
        match (was, find(&after.tools)) {
            (Some(was), Some(is)) if was == is => rows.push("    another place".to_owned()),
            (was, Some(is)) => {
                let (was, is) = (was.map(|one| texts(&one)).unwrap_or_default(), texts(&is));
                // What is as it was needs no second look.
                let old = was.iter().filter(|text| !is.contains(text));
                rows.extend(old.map(|text| format!("    was {text}")));
                let new = is.iter().filter(|text| !was.contains(text));
                rows.extend(new.map(|text| format!("    is  {text}")));
            }
            (_, None) => {}
        }
    }
    rows
}

/// Counts what an upstream offers: its tools, and the rest where there is any.
fn counted(pins: &Pins) -> String {
    let count = |form: Form| pins.tools.iter().filter(|one| one.form == form).count();
    let mut all = vec![format!("{} tools", count(Form::Tool))];
    for form in [Form::Prompt, Form::Resource, Form::Template] {
        if let more @ 1.. = count(form) {
            all.push(format!("{more} {}s", form.name()));
        }
    }
    all.join(", ")
}

fn texts(tool: &Offered) -> Vec<String> {
    let text = |text: &Option<String>| quoted(text.as_deref().unwrap_or_default().as_bytes());
    let schema = tool.arguments.to_string();
    let mut all = vec![
        format!("description {}", text(&tool.description)),
        format!("arguments {}", printable(schema.as_bytes())),
    ];
    if tool.title.is_some() {
        all.insert(0, format!("title {}", text(&tool.title)));
    }
    if let Some(result) = &tool.result {
        all.push(format!(
            "result {}",
            printable(result.to_string().as_bytes())
        ));
    }
    all
}
