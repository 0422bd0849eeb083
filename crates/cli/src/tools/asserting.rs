//! `atoll tools assert`: the calls of a session beside those of a recording.

use std::collections::BTreeMap;

use atoll_engine::configuration::Places;
use atoll_engine::events::{events_of, seals};
use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_ledger::{Event, Filter, Ledger, StateDir};
use atoll_model::RunId;
use atoll_tools::RecordedCall;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::arguments::AssertToolsArguments;
use crate::output::Output;

/// Shows how they differ: status 1 if they do.
pub(super) fn assert(arguments: &AssertToolsArguments, output: &Output) -> Result<u8, Failure> {
    let expected = RecordedCall::read_all(&arguments.file)?;
    let expected: Vec<String> = expected.iter().map(RecordedCall::line).collect();
    let state = Places::read()?.read_state()?;
    let session = match &arguments.session {
        Some(session) => RunId::parse(session).doing("there is no such session")?,
        None => last(&state)?,
    };
    let made = calls(&state, &session)?;
    if made == expected {
        output.say(&format!(
            "The {} calls of {session} are as recorded.\n",
            made.len()
        ));
        return Ok(0);
    }
    let (expected, made) = (lines(&expected), lines(&made));
    for change in TextDiff::from_lines(&expected, &made).iter_all_changes() {
        let sign = match change.tag() {
            ChangeTag::Equal => ' ',
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        let line = printable(change.value().trim_end().as_bytes());
        output.result(&format!("{sign} {line}\n"));
    }
    Ok(1)
}

fn lines(calls: &[String]) -> String {
    calls.iter().map(|call| format!("{call}\n")).collect()
}

/// Returns the last session with a call.
fn last(state: &StateDir) -> Result<RunId, Failure> {
    let unread = "the ledger cannot be read";
    let filter = Filter {
        mentions: vec!["tool.".to_owned()],
        ..Filter::default()
    };
    let mut last = None;
    for event in Ledger::events(state, filter).doing(unread)? {
        let event = event.doing(unread)?;
        last = event
            .run
            .filter(|_| event.kind.starts_with("tool."))
            .or(last);
    }
    let none = || Failure::new("no session has made a call").advise("atoll mcp");
    last.ok_or_else(none)
}

/// Returns the calls of a session, a line each.
fn calls(state: &StateDir, session: &RunId) -> Result<Vec<String>, Failure> {
    let seals = seals(state)?;
    let mut calls = BTreeMap::<u64, RecordedCall>::new();
    for event in events_of(state, session)? {
        let verdict = match event.kind.as_str() {
            "tool.opened" => "allowed",
            "tool.denied" => "denied",
            "tool.rejected" => "rejected",
            _ => continue,
        };
        let Event { body, .. } = seals.open(event);
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let arguments = serde_json::from_str(text("arguments"));
        let number = body.get("call").and_then(Value::as_u64);
        let call = RecordedCall {
            tool: text("tool").to_owned(),
            arguments: arguments.unwrap_or_default(),
            verdict: verdict.to_owned(),
            answer: None,
        };
        // What was asked for is there before what was decided.
        let call = calls.entry(number.unwrap_or_default()).or_insert(call);
        verdict.clone_into(&mut call.verdict);
    }
    Ok(calls.values().map(RecordedCall::line).collect())
}
