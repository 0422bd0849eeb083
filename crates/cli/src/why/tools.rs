//! The calls of a session of tools.

use std::collections::BTreeMap;

use atoll_engine::printable::printable;
use atoll_ledger::Event;
use atoll_model::{RunId, format_duration};
use serde_json::{Value, json};

use super::text;
use crate::output::Output;
use crate::render::Report;

/// A call, as the ledger has it.
#[derive(Default)]
struct Call<'a> {
    opened: Option<&'a Event>,
    ended: Option<&'a Event>,
}

/// Returns whether events are those of a session of tools.
pub(super) fn are_of_tools(events: &[Event]) -> bool {
    let has = |is: fn(&Event) -> bool| events.iter().any(is);
    has(|event| event.kind.starts_with("tool.")) && !has(|event| event.kind == "run.opened")
}

/// Shows the calls of a session.
pub(super) fn show(session: &RunId, events: &[Event], as_json: bool, output: &Output) -> u8 {
    let mut calls = BTreeMap::<u64, Call<'_>>::new();
    for event in events.iter().filter(|one| one.kind.starts_with("tool.")) {
        let number = event.body.get("call").and_then(Value::as_u64);
        let call = calls.entry(number.unwrap_or_default()).or_default();
        match event.kind.as_str() {
            "tool.opened" => call.opened = Some(event),
            _ => call.ended = Some(event),
        }
    }
    if as_json {
        let calls = calls.iter().map(|(number, call)| call.json(*number));
        let calls: Vec<Value> = calls.collect();
        output.json(&json!({ "session": session.as_str(), "calls": calls }));
        return 0;
    }
    let mut report = Report::new(output.paint);
    report.title(&format!("Session {session} of tools"), "");
    for (number, call) in &calls {
        report.line("call", &format!("{number}: {}", call.line()));
        for reason in call.reasons() {
            report.line("", &reason);
        }
    }
    for event in events.iter().filter(|one| one.kind == "breaker.changed") {
        let member = |name: &str| text(event.body.get(name)).unwrap_or_default();
        let line = format!("that of {} is {}", member("of"), member("state"));
        report.line("breaker", &printable(line.as_bytes()));
    }
    let more = format!("atoll ledger show {session}");
    report.line("more", &more);
    output.result(&report.finish());
    0
}

impl Call<'_> {
    fn member(&self, name: &str) -> Option<&Value> {
        let opened = self.opened.and_then(|event| event.body.get(name));
        opened.or(self.ended.and_then(|event| event.body.get(name)))
    }

    /// Returns the way that it ended; `unknown` if nobody has recorded that.
    fn end(&self) -> String {
        match self.ended.map(|event| event.kind.as_str()) {
            Some("tool.denied") => "denied".to_owned(),
            Some("tool.rejected") => "rejected".to_owned(),
            Some(_) => text(self.member("end")).unwrap_or_default(),
            None => "unknown".to_owned(),
        }
    }

    fn line(&self) -> String {
        let tool = text(self.member("tool")).unwrap_or_default();
        let mut line = format!("{tool} {}: {}", self.arguments(), self.end());
        let took = self.member("wall_clock_us").and_then(Value::as_u64);
        if let Some(took) = took {
            let took = format_duration(std::time::Duration::from_micros(took));
            line.push_str(&format!(" in {took}"));
        }
        let run = self
            .member("details")
            .and_then(|details| details.get("run"));
        if let Some(run) = text(run) {
            line.push_str(&format!(" (atoll why {run})"));
        }
        printable(line.as_bytes())
    }

    fn arguments(&self) -> String {
        match self.member("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        }
    }

    fn reasons(&self) -> Vec<String> {
        let reasons = self.member("reasons").and_then(Value::as_array);
        let reason = |one: &Value| {
            let member = |name: &str| text(one.get(name)).unwrap_or_default();
            format!("{}: {} ({})", member("what"), member("why"), member("rule"))
        };
        let mut all: Vec<String> = reasons.into_iter().flatten().map(reason).collect();
        all.extend(text(self.member("why")));
        all.iter().map(|one| printable(one.as_bytes())).collect()
    }

    fn json(&self, number: u64) -> Value {
        json!({
            "call": number,
            "tool": self.member("tool"),
            "end": self.end(),
            "arguments": self.member("arguments"),
            "reasons": self.reasons(),
            "run": self.member("details").and_then(|details| details.get("run")),
            "opened": self.opened.map(|event| event.position.seq),
        })
    }
}
