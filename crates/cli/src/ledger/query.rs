use std::collections::BTreeSet;

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_ledger::{Event, Filter, Ledger, StateDir};
use atoll_policy::misspelt;
use serde_json::Value;

use crate::arguments::QueryLedgerArguments;
use crate::output::Output;

/// The most of one member, and of a whole body, that a line shows, characters.
const WORD_CHARS_MAX: usize = 80;
const SAID_CHARS_MAX: usize = 240;
/// The most event types that are listed.
const KINDS_MAX: usize = 100;
/// The most characters in which a mistyped event type differs from the intended one: no two types
/// are as close.
const TYPE_SLIPS_MAX: usize = 2;
/// Members of bodies that name hosts.
const HOSTS: [&str; 3] = ["host", "address", "via"];
/// Members of bodies that name paths.
const PATHS: [&str; 4] = ["path", "workspace", "directory", "command"];

/// Prints the events that are asked for, by one pass over all.
pub fn query(
    state: &StateDir,
    arguments: &QueryLedgerArguments,
    output: &Output,
) -> Result<u8, Failure> {
    let (since, until) = between(arguments)?;
    let run = match &arguments.run {
        None => None,
        Some(text) => Some(crate::finding::find_in_ledger(state, text)?),
    };
    let session = match &arguments.session {
        None => None,
        Some(text) => Some(atoll_engine::finding::sessions::find(state, text)?.id),
    };
    let filter = Filter {
        run,
        session,
        principal: arguments.principal.clone(),
        kind: arguments.kind.clone(),
        since,
        until,
        // Paths are sealed, and what refuses says so by its type too.
        mentions: arguments.host.iter().cloned().collect(),
    };
    let seals = atoll_engine::events::seals(state)?;
    let mut has_one = false;
    for event in Ledger::events(state, filter).doing("the ledger cannot be read")? {
        let event = seals.open(event.doing("the ledger is damaged there")?);
        if !fits(arguments, &event) {
            continue;
        }
        has_one = true;
        match arguments.json {
            true => super::write_event(&event, output),
            false => output.result(&line(&event)),
        }
    }
    if has_one {
        return Ok(0);
    }
    let unknown = match &arguments.kind {
        Some(kind) => unknown_type(state, kind)?,
        None => String::new(),
    };
    if !arguments.json {
        output.say("No event of the ledger fits.\n");
        output.say(&unknown);
    }
    Ok(0)
}

/// Lists the event types there are, if the requested one is none of them.
///
/// # Errors
/// When one of them is nearly the requested one.
fn unknown_type(state: &StateDir, kind: &str) -> Result<String, Failure> {
    let mut kinds = BTreeSet::new();
    for event in Ledger::events(state, Filter::default()).doing("the ledger cannot be read")? {
        let event = event.doing("the ledger is damaged there")?;
        if kinds.len() < KINDS_MAX {
            kinds.insert(event.kind);
        }
    }
    let begins = |one: &String| one == kind || one.starts_with(&format!("{kind}."));
    if kinds.iter().any(begins) {
        return Ok(String::new());
    }
    let known = kinds.iter().map(String::as_str);
    if let Some(meant) = misspelt(kind, known, TYPE_SLIPS_MAX) {
        let kind = printable(kind.as_bytes());
        return Err(
            Failure::new(format!("the ledger has no event of type {kind}"))
                .advise(format!("did you mean {}?", printable(meant.as_bytes()))),
        );
    }
    let kinds: Vec<String> = kinds.iter().map(|one| printable(one.as_bytes())).collect();
    let kind = printable(kind.as_bytes());
    Ok(format!(
        "It has no event of type {kind}, but of these: {}\n",
        kinds.join(", ")
    ))
}

/// Reads the time range: times as events have them, perhaps truncated.
fn between(arguments: &QueryLedgerArguments) -> Result<(Option<String>, Option<String>), Failure> {
    let read = |option: &str, said: &Option<String>| {
        let Some(text) = said else {
            return Ok(None);
        };
        let unusable = || {
            Failure::new(format!(
                "{option} {} is not usable",
                printable(text.as_bytes())
            ))
            .because(
                "it is neither the beginning of a time such as 2026-11-21T09:30:12, nor a \
                     duration before now such as 90d",
            )
            .advise(format!("atoll ledger query {option} 2026-11-21"))
        };
        atoll_engine::events::beginning(text)
            .map(Some)
            .ok_or_else(unusable)
    };
    let since = read("--since", &arguments.since)?;
    let until = read("--until", &arguments.until)?;
    match (&arguments.since, &arguments.until) {
        (Some(from), Some(to)) if is_after(since.as_deref(), until.as_deref()) => Err(
            Failure::new(format!("--since {from} is after --until {to}"))
                .because("no event is in between")
                .advise(format!("atoll ledger query --since {to} --until {from}")),
        ),
        (_, _) => Ok((since, until)),
    }
}

/// Returns whether one time, perhaps truncated, is after all of another.
fn is_after(since: Option<&str>, until: Option<&str>) -> bool {
    let (since, until) = (since.unwrap_or_default(), until.unwrap_or_default());
    let least = since.len().min(until.len());
    since.get(..least) > until.get(..least)
}

/// Returns the verdict, by its word or by an event's type: `flow.refused` has no such word.
pub(super) fn verdict(event: &Event) -> Option<&str> {
    let said = event.body.get("verdict").and_then(Value::as_str);
    said.or(match event.kind.as_str() {
        "flow.refused" | "port.refused" => Some("deny"),
        "flow.opened" | "port.published" => Some("allow"),
        "approval.asked" => Some("ask"),
        _ => None,
    })
}

fn fits(arguments: &QueryLedgerArguments, event: &Event) -> bool {
    let says = |names: &[&str], text: &str| {
        let named = names.iter().filter_map(|name| event.body.get(name));
        named.into_iter().any(|value| contains(value, text))
    };
    arguments
        .verdict
        .as_deref()
        .is_none_or(|wanted| verdict(event) == Some(wanted))
        && arguments
            .host
            .as_deref()
            .is_none_or(|text| says(&HOSTS, text))
        && arguments
            .path
            .as_deref()
            .is_none_or(|text| says(&PATHS, text))
        && arguments
            .action
            .as_deref()
            .is_none_or(|action| is_about(action, event))
}

/// Returns whether an event is about an action of policies: that it was done, asked about or
/// refused.
fn is_about(action: &str, event: &Event) -> bool {
    let said = |member: &str| event.body.get(member).and_then(Value::as_str);
    let kind = event.kind.as_str();
    let is_flow = kind.starts_with("flow.") || kind == "approval.asked";
    let is_published = said("kind") == Some("published");
    let is_request = said("method").is_some() || said("kind") == Some("request");
    let refused = |doing: &str| {
        let reasons = event.body.get("reasons").and_then(Value::as_array);
        let mut what = reasons
            .into_iter()
            .flatten()
            .filter_map(|one| one.get("what").and_then(Value::as_str));
        kind == "run.denied" && what.any(|what| what.starts_with(doing))
    };
    match action {
        "run" => kind == "run.opened" || refused("running "),
        "read" => refused("showing "),
        "write" => refused("changing "),
        "use_credential" => said("credential").is_some() || refused("credential "),
        "publish" => kind.starts_with("port.") || (is_flow && is_published),
        "resolve" => is_flow && said("kind") == Some("name"),
        "request" => is_flow && is_request,
        "connect" => {
            is_flow
                && said("host").is_some()
                && !(is_request || is_published || said("kind") == Some("name"))
        }
        "promote" => {
            kind.starts_with("apply.")
                || kind.starts_with("promotion.")
                || said("action") == Some("promote")
        }
        "restore" => {
            kind.starts_with("undo.")
                || kind.starts_with("restore.")
                || said("action") == Some("restore")
        }
        _ => false,
    }
}

fn contains(value: &Value, text: &str) -> bool {
    match value {
        Value::String(own) => own.contains(text),
        Value::Array(all) => all.iter().any(|value| contains(value, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// Formats an event for people: number, time, run, type and body.
fn line(event: &Event) -> String {
    let run = event.run.as_ref().map_or("-", |run| run.as_str());
    let text = format!(
        "{:>6}  {}  {run:<18}  {:<16}  {}",
        event.position.seq,
        event.time,
        event.kind,
        said(&event.body)
    );
    format!("{}\n", printable(text.as_bytes()))
}

/// Formats a body, one member after another; --json has all of it.
pub(super) fn said(body: &Value) -> String {
    let members = body.as_object().into_iter().flatten();
    let words = members.filter_map(|(name, value)| Some(format!("{name} {}", word(value)?)));
    let all = words.collect::<Vec<_>>().join("; ");
    atoll_engine::printable::shortened(&all, SAID_CHARS_MAX)
}

/// Formats a value for a line; `None` if it is empty.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(atoll_engine::printable::shortened(text, WORD_CHARS_MAX)),
        Value::Array(all) => {
            let words: Vec<String> = all.iter().filter_map(word).collect();
            let words = words.join(" ");
            (!words.is_empty()).then(|| atoll_engine::printable::shortened(&words, WORD_CHARS_MAX))
        }
        Value::Object(members) => {
            let of = |(name, value): (&String, &Value)| Some(format!("{name} {}", word(value)?));
            let words: Vec<String> = members.iter().filter_map(of).collect();
            (!words.is_empty()).then(|| format!("({})", words.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{is_after, said};

    #[test]
    fn an_event_is_a_line_of_words() {
        let body = json!({
            "command": ["make", "all"], "decision": { "profile": "default", "extends": [] },
            "exit": 0, "flag": true, "nothing": null,
        });
        assert_eq!(
            said(&body),
            "command make all; decision (profile default); exit 0; flag true"
        );
        let long = said(&json!({ "a": "x".repeat(1_000), "b": "y" }));
        assert!(
            long.ends_with("; b y") && long.chars().count() < 100,
            "{long}"
        );
        assert_eq!(said(&json!({})), "");
    }

    #[test]
    fn what_begins_after_its_end_is_told() {
        assert!(is_after(Some("2026-11-22"), Some("2026-11-21T10")));
        assert!(is_after(Some("2026-12"), Some("2026-11-21")));
        for (since, until) in [
            ("2026-11-21", "2026-11"),
            ("2026", "2026-11"),
            ("2026-11-21", "2026-11-21"),
        ] {
            assert!(!is_after(Some(since), Some(until)), "{since} {until}");
        }
    }
}
