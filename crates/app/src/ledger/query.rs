use atoll_store::{Event, Filter, Ledger, StateDir};
use serde_json::Value;

use crate::arguments::QueryLedgerArguments;
use crate::escape::printable;
use crate::failure::{Doing, Failure};
use crate::output::Output;
use crate::render::shortened;

/// How a time is written in full.
const TIME_SHAPE: &str = "0000-00-00T00:00:00.000000Z";
/// How much of one member, and of a whole body, a line shows, characters.
const WORD_CHARS_MAX: usize = 80;
const SAID_CHARS_MAX: usize = 240;
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
    for (option, time) in [("--since", &arguments.since), ("--until", &arguments.until)] {
        if let Some(time) = time.as_deref().filter(|time| !begins_a_time(time)) {
            return Err(Failure::new(format!("{option} {time} is not usable"))
                .because("it is not the beginning of a time such as 2026-11-21T09:30:12")
                .advise(format!("atoll ledger query {option} 2026-11-21")));
        }
    }
    if let (Some(since), Some(until)) = (&arguments.since, &arguments.until)
        && is_after(since, until)
    {
        return Err(
            Failure::new(format!("--since {since} is after --until {until}"))
                .because("no event is in between")
                .advise(format!(
                    "atoll ledger query --since {until} --until {since}"
                )),
        );
    }
    let run = match &arguments.run {
        None => None,
        Some(text) => Some(crate::finding::find_in_ledger(state, text)?),
    };
    let session = match &arguments.session {
        None => None,
        Some(text) => Some(crate::sessions::find(state, text)?.id),
    };
    let filter = Filter {
        run,
        session,
        kind: arguments.kind.clone(),
        since: arguments.since.clone(),
        until: arguments.until.clone(),
        mentions: [&arguments.verdict, &arguments.host, &arguments.path]
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
    };
    let mut has_one = false;
    for event in Ledger::events(state, filter).doing("the ledger cannot be read")? {
        let event = event.doing("the ledger is damaged there")?;
        if !fits(arguments, &event) {
            continue;
        }
        has_one = true;
        match arguments.json {
            true => super::write_event(&event, output),
            false => output.result(&line(&event)),
        }
    }
    if !has_one && !arguments.json {
        output.say("No event of the ledger fits.\n");
    }
    Ok(0)
}

/// Whether one time, perhaps cut short, is after all of another.
fn is_after(since: &str, until: &str) -> bool {
    let least = since.len().min(until.len());
    since.get(..least) > until.get(..least)
}

fn begins_a_time(text: &str) -> bool {
    let fits = |(byte, shape): (u8, u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        shape => byte == shape,
    };
    // Months and days are counted from 1, hours and the rest from 0; what is cut short fits.
    let ranges = [
        (5, 1..=12),
        (8, 1..=31),
        (11, 0..=23),
        (14, 0..=59),
        (17, 0..=60),
    ];
    let is_there = ranges.iter().all(|(at, range)| {
        let number = text.get(*at..at + 2).and_then(|number| number.parse().ok());
        number.is_none_or(|number: u8| range.contains(&number))
    });
    let is_one = (4..=TIME_SHAPE.len()).contains(&text.len());
    is_one && is_there && text.bytes().zip(TIME_SHAPE.bytes()).all(fits)
}

fn fits(arguments: &QueryLedgerArguments, event: &Event) -> bool {
    let says = |names: &[&str], text: &str| {
        let named = names.iter().filter_map(|name| event.body.get(name));
        named.into_iter().any(|value| contains(value, text))
    };
    let verdict = event.body.get("verdict").and_then(Value::as_str);
    arguments
        .verdict
        .as_deref()
        .is_none_or(|wanted| verdict == Some(wanted))
        && arguments
            .host
            .as_deref()
            .is_none_or(|text| says(&HOSTS, text))
        && arguments
            .path
            .as_deref()
            .is_none_or(|text| says(&PATHS, text))
}

fn contains(value: &Value, text: &str) -> bool {
    match value {
        Value::String(own) => own.contains(text),
        Value::Array(all) => all.iter().any(|value| contains(value, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// Number, time, run, type and what it says, for people.
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

/// What a body says, a member after another; --json has all of it.
fn said(body: &Value) -> String {
    let members = body.as_object().into_iter().flatten();
    let words = members.filter_map(|(name, value)| Some(format!("{name} {}", word(value)?)));
    let all = words.collect::<Vec<_>>().join("; ");
    shortened(&all, SAID_CHARS_MAX)
}

/// A value in a line; nothing of what is empty.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(shortened(text, WORD_CHARS_MAX)),
        Value::Array(all) => {
            let words: Vec<String> = all.iter().filter_map(word).collect();
            let words = words.join(" ");
            (!words.is_empty()).then(|| shortened(&words, WORD_CHARS_MAX))
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

    use super::{begins_a_time, is_after, said};

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
        assert!(is_after("2026-11-22", "2026-11-21T10"));
        assert!(is_after("2026-12", "2026-11-21"));
        for (since, until) in [
            ("2026-11-21", "2026-11"),
            ("2026", "2026-11"),
            ("2026-11-21", "2026-11-21"),
        ] {
            assert!(!is_after(since, until), "{since} {until}");
        }
    }

    #[test]
    fn a_time_can_be_cut_short_and_has_to_be_one() {
        for (text, expected) in [
            ("2026", true),
            ("2026-1", true),
            ("2026-11-21T09:30", true),
            ("2026-11-21T09:30:12.000000Z", true),
            ("2026-13-01", false),
            ("2026-00", false),
            ("2026-11-45", false),
            ("2026-11-21T24", false),
            ("2026-11-21 09", false),
            ("202", false),
            ("yesterday", false),
        ] {
            assert_eq!(begins_a_time(text), expected, "{text}");
        }
    }
}
