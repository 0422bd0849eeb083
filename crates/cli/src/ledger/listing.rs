//! Events as rows of a table, or as JSON.

use std::ffi::OsString;

use atoll_engine::printable::{printable, shortened};
use atoll_engine::shell::command_line;
use atoll_ledger::{Event, read_host_text};
use serde_json::Value;

use super::query::{said, verdict};
use super::write_event;
use crate::output::Output;
use crate::render::{self, Style};
use crate::terminal::terminal_size;

/// The columns of events' types; a longer one moves its row's end on.
const KIND_COLUMNS: usize = 18;
/// The columns of a run's id.
const RUN_COLUMNS: usize = 18;
/// The columns before what is told of an event.
const TAKEN_COLUMNS: usize = 6 + 2 + 23 + 2 + KIND_COLUMNS + 2 + RUN_COLUMNS + 2;
/// The least that is told of an event, however narrow the terminal, columns.
const TOLD_COLUMNS_MIN: usize = 30;
/// The most that is told of an event where nothing limits it, characters.
const TOLD_CHARS_MAX: usize = 240;

/// The output of events, one after the other.
pub struct Listing<'a> {
    is_json: bool,
    /// The most that is told of an event, characters.
    room: usize,
    output: &'a Output,
}

impl<'a> Listing<'a> {
    /// Creates the output, and prints the heading of a table.
    pub fn new(is_json: bool, output: &'a Output) -> Self {
        let columns = terminal_size().filter(|_| output.is_terminal);
        let room = columns.map_or(TOLD_CHARS_MAX, |size| {
            usize::from(size.columns).saturating_sub(TAKEN_COLUMNS)
        });
        if !is_json {
            let heading = row("SEQ", "TIME", "EVENT", "RUN", "OUTCOME");
            output.result(&(output.paint.style(Style::Strong, heading.trim_end()) + "\n"));
        }
        Self {
            is_json,
            room: room.max(TOLD_COLUMNS_MIN),
            output,
        }
    }

    /// Writes an event.
    pub fn write(&self, event: &Event) {
        if self.is_json {
            return write_event(event, self.output);
        }
        let run = event.run.as_ref().map_or("-", |run| run.as_str());
        let time = render::readable_time(&event.time);
        let seq = event.position.seq.to_string();
        let told = shortened(&told(event), self.room);
        let text = row(&seq, &time, &event.kind, run, &told);
        let text = printable(text.trim_end().as_bytes());
        let text = match verdict(event) {
            Some("deny") => self.output.paint.style(Style::Bad, &text),
            Some(_) | None => text,
        };
        self.output.result(&(text + "\n"));
    }
}

fn row(seq: &str, time: &str, kind: &str, run: &str, told: &str) -> String {
    format!("{seq:>6}  {time:<23}  {kind:<KIND_COLUMNS$}  {run:<RUN_COLUMNS$}  {told}")
}

/// Describes what came of an event's subject: a verdict and its subject, an ending, or the body.
fn told(event: &Event) -> String {
    let body = &event.body;
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    match event.kind.as_str() {
        "run.opened" => {
            let words = body.get("command").and_then(Value::as_array);
            let words: Vec<OsString> = words
                .into_iter()
                .flatten()
                .filter_map(read_host_text)
                .collect();
            joined(&[text("verdict"), Some(&command_line(&words))], ": ")
        }
        "run.closed" => match body.get("ending").cloned().map(serde_json::from_value) {
            Some(Ok(ending)) => render::describe_ending(ending),
            Some(Err(_)) | None => said(body),
        },
        "run.denied" => {
            let reason = body.pointer("/reasons/0");
            let part = |name: &str| reason.and_then(|one| one.get(name)?.as_str());
            joined(&[text("verdict"), part("what"), part("why")], ": ")
        }
        "sandbox.assigned" => {
            let caller = body.pointer("/served/caller").and_then(Value::as_str);
            joined(&[text("verdict"), caller], ": ")
        }
        kind if kind.starts_with("flow.") && text("host").is_some() => {
            let port = body.get("port").and_then(Value::as_u64);
            let host = text("host").unwrap_or_default();
            let host = port.map_or(host.to_owned(), |port| format!("{host}:{port}"));
            let request = joined(&[text("method"), text("path")], " ");
            let request = Some(request.as_str()).filter(|request| !request.is_empty());
            joined(&[verdict(event), Some(&host), request, text("why")], ": ")
        }
        _ => said(body),
    }
}

fn joined(parts: &[Option<&str>], between: &str) -> String {
    let parts: Vec<&str> = parts.iter().flatten().copied().collect();
    parts.join(between)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::why::event;

    #[test]
    fn event_is_told_by_its_outcome() {
        let check = |kind: &str, body: Value, expected: &str| {
            assert_eq!(told(&event(kind, body)), expected);
        };
        let opened = json!({ "verdict": "allow", "command": ["npm", "t e"], "decision": {} });
        check("run.opened", opened, "allow: npm 't e'");
        let closed = json!({ "ending": { "how": "exited", "status": 4 }, "details": {} });
        check("run.closed", closed, "failed with status 4");
        let reasons = json!([{ "what": "running x", "why": "it is denied", "rule": "y" }]);
        let denied = json!({ "verdict": "deny", "reasons": reasons });
        check("run.denied", denied, "deny: running x: it is denied");
        let refused = json!({ "host": "h.example", "port": 443, "why": "no rule allows it" });
        check(
            "flow.refused",
            refused,
            "deny: h.example:443: no rule allows it",
        );
        let request = json!({ "host": "h", "port": 80, "method": "GET", "path": "/a" });
        check("flow.opened", request, "allow: h:80: GET /a");
        let assigned = json!({ "verdict": "allow", "served": { "caller": "ana" }, "policy": "p" });
        check("sandbox.assigned", assigned, "allow: ana");
        check("apply.started", json!({ "steps": 1 }), "steps 1");
    }
}
