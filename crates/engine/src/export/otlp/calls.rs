//! Calls of tools, by the conventions for MCP: a session of tools is a trace, with the calls, and
//! beneath them the runs of their sandboxes.

use atoll_ledger::Event;
use serde_json::{Value, json};

use super::message::Span;
use super::{
    Attributes, Batch, Begun, Follower, OPEN_MAX, SERVER, number, span_of, text, trace_named,
};

/// The method of MCP that calls a tool.
const METHOD: &str = "tools/call";

/// The id of a call whose parts a body is about; `None` where it is no part of one.
pub(super) fn parent(body: &Value) -> Option<&str> {
    text(body, "parent").filter(|parent| parent.contains("/tool/"))
}

/// The id of the call of a tool that an event is about, if it is.
pub(super) fn of(event: &Event) -> Option<String> {
    let session = event.run.as_ref()?;
    let at = number(&event.body, "call").filter(|_| event.kind.starts_with("tool."))?;
    Some(format!("{session}/tool/{at}"))
}

impl Follower {
    /// Takes an event of a session of tools.
    pub(super) fn of_tools(&mut self, event: &Event, nanos: u64, batch: &mut Batch) {
        let Some(id) = of(event) else {
            return;
        };
        let now = || Begun {
            nanos,
            body: event.body.clone(),
        };
        let begun = match event.kind.as_str() {
            "tool.opened" if self.calls.len() < OPEN_MAX => {
                self.calls.insert(id, now());
                return;
            }
            "tool.closed" | "tool.denied" => self.calls.remove(&id),
            "tool.rejected" => Some(now()),
            _ => None,
        };
        if let Some(begun) = begun {
            batch.call(&begun, event, &id, nanos);
        }
    }
}

impl Batch {
    /// Adds a call that has ended, or was not made.
    fn call(&mut self, begun: &Begun, event: &Event, id: &str, nanos: u64) {
        let outcome = match event.kind.as_str() {
            "tool.closed" => text(&event.body, "end").unwrap_or("unknown"),
            other => other.trim_start_matches("tool."),
        };
        let failed = (outcome != "done").then(|| outcome.to_owned());
        let tool = text(&begun.body, "tool").unwrap_or("-");
        let mut counted: Attributes = vec![
            ("mcp.method.name", json!(METHOD)),
            ("gen_ai.operation.name", json!("execute_tool")),
            ("gen_ai.tool.name", json!(tool)),
        ];
        counted.extend(failed.as_ref().map(|why| ("error.type", json!(why))));
        let session = id.split('/').next().unwrap_or(id);
        let mut attributes = counted.clone();
        attributes.extend([
            ("mcp.session.id", json!(session)),
            ("gen_ai.tool.call.id", json!(id)),
            ("atoll.outcome", json!(outcome)),
        ]);
        for (member, key) in [
            ("effect", "atoll.tool.effect"),
            ("kind", "atoll.tool.kind"),
            ("verdict", "atoll.verdict"),
        ] {
            attributes.extend(text(&begun.body, member).map(|value| (key, json!(value))));
        }
        let trace = trace_named(session);
        let span = Span {
            trace: &trace,
            id: span_of(id),
            parent: None,
            name: format!("{METHOD} {tool}"),
            kind: SERVER,
            times: (begun.nanos, nanos),
            attributes,
            // Why is the ledger's to tell: the words can be those of who called.
            failed,
        };
        self.spans.push(Value::Object(span.written()));
        let seconds = nanos.saturating_sub(begun.nanos) as f64 / 1e9;
        self.took("mcp.server.operation.duration", counted, seconds);
    }
}
