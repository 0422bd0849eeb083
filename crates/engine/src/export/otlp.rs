//! Events in the form of OpenTelemetry: a run is a span, with the spans of its flows and approval
//! questions beneath, and so is a call of a tool; every event is a log record; counts are metrics.
//!
//! Names are those of OpenTelemetry's semantic conventions (GenAI, MCP, HTTP, network, process) if there
//! are any, else `atoll.…`. Neither arguments nor paths nor contents are exported. A span's id is a
//! digest of what it stands for, so that what is sent twice is the same.

mod calls;
mod message;

use std::collections::{BTreeMap, HashMap};

use atoll_ledger::{Event, TreeHash};
use serde_json::{Value, json};

pub use message::Message;
use message::{Span, written};

/// The most flows and questions without an end; further ones are not exported.
const OPEN_MAX: usize = 65_536;
/// The most violations a run span reports.
const ATTEMPTS_MAX: usize = 128;
/// Bounds of durations, seconds.
const DURATION_BOUNDS: [f64; 10] = [
    0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0,
];
/// Kinds of spans (OTLP's `SpanKind`).
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// Severities of a log (OTLP's `SeverityNumber`).
const INFO: u8 = 9;
const WARN: u8 = 13;
/// The technique of sending a credential's placeholder to another origin (MITRE ATLAS:
/// exfiltration).
const EXFILTRATION: &str = "AML.T0025";
/// Profiles that are those of agents.
const AGENTS: [&str; 5] = ["claude", "codex", "gemini", "openclaw", "opencode"];

/// Attributes: keys with strings, numbers, booleans.
type Attributes = Vec<(&'static str, Value)>;

/// The beginning of a run, a flow or an approval.
struct Begun {
    nanos: u64,
    body: Value,
}

/// A run that has begun.
struct Run {
    trace: String,
    begun: Begun,
    /// Flows and questions that go on, by `flow/1` or `approval/1`.
    open: HashMap<String, Begun>,
    attempts: Vec<Value>,
}

/// Follows the ledger from its first event.
#[derive(Default)]
pub struct Follower {
    runs: HashMap<String, Run>,
    /// Calls of tools that go on, by their ids.
    calls: HashMap<String, Begun>,
    open: usize,
}

/// The spans and log records of one export.
#[derive(Default)]
pub struct Batch {
    spans: Vec<Value>,
    logs: Vec<Value>,
    counts: BTreeMap<(&'static str, String), (Attributes, u64)>,
    durations: BTreeMap<(&'static str, String), (Attributes, Durations)>,
    times: Option<(u64, u64)>,
}

#[derive(Default)]
struct Durations {
    counts: [u64; DURATION_BOUNDS.len() + 1],
    sum: f64,
}

/// Returns the id of a trace: its session's or else its run's.
fn trace_of(run: &Event, id: &str) -> String {
    let of_tools = calls::parent(&run.body).and_then(|call| call.split('/').next());
    let session = of_tools.or_else(|| text(&run.body, "session"));
    trace_named(session.unwrap_or(id))
}

fn trace_named(name: &str) -> String {
    digits(&format!("trace {name}"), 16)
}

fn span_of(name: &str) -> String {
    digits(&format!("span {name}"), 8)
}

/// Returns the first bytes of a digest, in hexadecimal.
fn digits(of: &str, bytes: usize) -> String {
    let digest = TreeHash::of_leaf(of.as_bytes()).to_string();
    digest.chars().take(2 * bytes).collect()
}

fn text<'a>(body: &'a Value, member: &str) -> Option<&'a str> {
    body.get(member).and_then(Value::as_str)
}

fn number(body: &Value, member: &str) -> Option<u64> {
    body.get(member).and_then(Value::as_u64)
}

impl Follower {
    /// Takes the next event into the batch if there is one; an event without a batch is only
    /// remembered, as the beginning of a later span.
    pub fn follow(&mut self, event: &Event, to: Option<&mut Batch>) {
        let nanos = crate::events::microseconds(&event.time).saturating_mul(1_000);
        let run = event.run.as_ref().map(|run| run.as_str());
        let mut unheard = Batch::default();
        let batch = to.unwrap_or(&mut unheard);
        batch.note(nanos);
        if let Some(run) = run {
            self.of_run(event, run, nanos, batch);
        }
        let call = calls::of(event);
        let trace = match &call {
            Some(_) => run.map(trace_named),
            None => run.and_then(|run| self.trace(run)),
        };
        let of = call.as_deref().or(run).unwrap_or("-");
        batch.log(event, nanos, trace.map(|trace| (trace, of)));
        if let Some(run) = run
            && matches!(
                event.kind.as_str(),
                "run.closed" | "run.failed" | "run.interrupted" | "run.denied"
            )
            && let Some(ended) = self.runs.remove(run)
        {
            self.open -= ended.open.len();
        }
    }

    fn trace(&self, run: &str) -> Option<String> {
        self.runs.get(run).map(|known| known.trace.clone())
    }

    fn of_run(&mut self, event: &Event, run: &str, nanos: u64, batch: &mut Batch) {
        match event.kind.as_str() {
            "run.opened" => self.begin(event, run, nanos),
            "run.closed" | "run.failed" | "run.interrupted" | "run.denied" => {
                if let Some(known) = self.runs.get(run) {
                    batch.run(known, event, run, nanos);
                }
            }
            kind if kind.starts_with("tool.") => self.of_tools(event, nanos, batch),
            "flow.opened" => self.open(event, run, nanos, "flow"),
            "approval.asked" => self.open(event, run, nanos, "approval"),
            "flow.closed" => {
                let begun = self.take(event, run, "flow");
                if let Some((begun, trace)) = begun {
                    batch.flow(&begun, event, (run, &trace), nanos);
                }
            }
            "approval.granted" | "approval.denied" => {
                let begun = self.take(event, run, "approval");
                if let Some((begun, trace)) = begun {
                    batch.approval(&begun, event, (run, &trace), nanos);
                }
            }
            "flow.refused" => {
                if let Some(trace) = self.trace(run) {
                    batch.refused(event, (run, &trace), nanos);
                }
            }
            "attempt.seen" => {
                let attributes = attempt(&event.body);
                batch.count("atoll.attempts", &attributes, 1);
                if let Some(known) = self.runs.get_mut(run)
                    && known.attempts.len() < ATTEMPTS_MAX
                {
                    let told = json!({ "name": "atoll.attempt", "timeUnixNano": nanos.to_string(),
                        "attributes": written(&attributes) });
                    known.attempts.push(told);
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, event: &Event, run: &str, nanos: u64) {
        let body = event.body.clone();
        let begun = Run {
            trace: trace_of(event, run),
            begun: Begun { nanos, body },
            open: HashMap::new(),
            attempts: Vec::new(),
        };
        self.runs.insert(run.to_owned(), begun);
    }

    fn open(&mut self, event: &Event, run: &str, nanos: u64, kind: &str) {
        if self.open >= OPEN_MAX {
            return;
        }
        if let (Some(known), Some(at)) = (self.runs.get_mut(run), number(&event.body, kind)) {
            let body = event.body.clone();
            let begun = Begun { nanos, body };
            let before = known.open.insert(format!("{kind}/{at}"), begun);
            self.open += usize::from(before.is_none());
        }
    }

    fn take(&mut self, event: &Event, run: &str, kind: &str) -> Option<(Begun, String)> {
        let trace = self.trace(run)?;
        let at = number(&event.body, kind)?;
        let begun = self
            .runs
            .get_mut(run)?
            .open
            .remove(&format!("{kind}/{at}"))?;
        self.open -= 1;
        Some((begun, trace))
    }
}

/// Returns the attributes of a violation.
fn attempt(body: &Value) -> Attributes {
    let mut out = Vec::new();
    for (member, key) in [
        ("wall", "atoll.wall"),
        ("call", "atoll.call"),
        ("atlas", "atoll.atlas.technique"),
    ] {
        out.extend(text(body, member).map(|value| (key, json!(value))));
    }
    out
}

/// Returns the attributes of a flow's peer.
fn place(body: &Value) -> Attributes {
    let mut out = Vec::new();
    for (member, key) in [
        ("kind", "atoll.flow.kind"),
        ("host", "server.address"),
        ("address", "network.peer.address"),
        ("rule", "atoll.rule"),
        ("scheme", "url.scheme"),
        ("method", "http.request.method"),
    ] {
        out.extend(text(body, member).map(|value| (key, json!(value))));
    }
    out.extend(number(body, "port").map(|port| ("server.port", json!(port))));
    out
}

impl Batch {
    /// Returns the number of events in it.
    #[must_use]
    pub fn events(&self) -> usize {
        self.logs.len()
    }

    fn note(&mut self, nanos: u64) {
        let (first, last) = self.times.unwrap_or((nanos, nanos));
        self.times = Some((first.min(nanos), last.max(nanos)));
    }

    fn count(&mut self, name: &'static str, attributes: &Attributes, by: u64) {
        let key = (name, Value::Array(written(attributes)).to_string());
        let counted = self.counts.entry(key);
        counted.or_insert_with(|| (attributes.clone(), 0)).1 += by;
    }

    fn log(&mut self, event: &Event, nanos: u64, trace: Option<(String, &str)>) {
        let is_bad = matches!(
            event.kind.as_str(),
            "attempt.seen"
                | "flow.refused"
                | "run.denied"
                | "run.failed"
                | "run.interrupted"
                | "denials.seen"
                | "tool.denied"
                | "tool.rejected"
                | "ledger.repaired"
        );
        let mut attributes: Attributes = vec![
            ("atoll.event.leaf", json!(event.position.leaf.to_string())),
            ("atoll.event.seq", json!(event.position.seq)),
        ];
        attributes.extend(
            event
                .run
                .as_ref()
                .map(|run| ("atoll.run", json!(run.as_str()))),
        );
        if event.kind == "attempt.seen" {
            attributes.extend(attempt(&event.body));
        } else {
            attributes.extend(place(&event.body));
        }
        let mut record = json!({
            "timeUnixNano": nanos.to_string(),
            "observedTimeUnixNano": nanos.to_string(),
            "eventName": format!("atoll.{}", event.kind),
            "severityNumber": if is_bad { WARN } else { INFO },
            "severityText": if is_bad { "WARN" } else { "INFO" },
            "body": { "stringValue": event.kind },
            "attributes": written(&attributes),
        });
        if let (Some((trace, run)), Value::Object(members)) = (trace, &mut record) {
            members.insert("traceId".to_owned(), json!(trace));
            members.insert("spanId".to_owned(), json!(span_of(run)));
        }
        self.logs.push(record);
    }

    /// Adds a run that has ended.
    fn run(&mut self, known: &Run, event: &Event, run: &str, nanos: u64) {
        let opened = &known.begun.body;
        let words = opened.get("command").and_then(Value::as_array);
        let program = words.and_then(|words| words.first()?.as_str());
        let program = program.and_then(|program| program.rsplit('/').next());
        let decision = opened.get("decision").unwrap_or(&Value::Null);
        let profile = text(decision, "profile").unwrap_or("-");
        let agent = AGENTS.contains(&profile).then_some(profile);
        let outcome = event.kind.trim_start_matches("run.");
        let status = number(&event.body, "status");
        let operation = if agent.is_some() {
            "invoke_agent"
        } else {
            "execute_tool"
        };
        let subject = agent.or(program).unwrap_or("-");
        let mut attributes: Attributes = vec![
            ("gen_ai.operation.name", json!(operation)),
            ("atoll.run", json!(run)),
            ("atoll.profile", json!(profile)),
            ("atoll.outcome", json!(outcome)),
        ];
        let name = match agent {
            Some(agent) => ("gen_ai.agent.name", json!(agent)),
            None => ("gen_ai.tool.name", json!(subject)),
        };
        attributes.push(name);
        let session = text(opened, "session");
        attributes.extend(session.map(|id| ("gen_ai.conversation.id", json!(id))));
        attributes.extend(status.map(|status| ("process.exit.code", json!(status))));
        let mut decided: Attributes = Vec::new();
        for (at, member, key) in [
            (opened, "verdict", "atoll.verdict"),
            (decision, "policy", "atoll.policy"),
            (decision, "mode", "atoll.mode"),
        ] {
            decided.extend(text(at, member).map(|value| (key, json!(value))));
        }
        let mut happened = vec![json!({ "name": "atoll.decision",
            "timeUnixNano": known.begun.nanos.to_string(), "attributes": written(&decided) })];
        happened.extend(known.attempts.iter().cloned());
        let failed = match (event.kind.as_str(), status) {
            ("run.closed", Some(0) | None) => None,
            ("run.closed", Some(status)) => Some(format!("it ended with {status}")),
            _ => Some(outcome.to_owned()),
        };
        let mut span = Span {
            trace: &known.trace,
            id: span_of(run),
            parent: calls::parent(opened).map(span_of),
            name: format!("{operation} {subject}"),
            kind: INTERNAL,
            times: (known.begun.nanos, nanos),
            attributes,
            failed,
        }
        .written();
        span.insert("events".to_owned(), Value::Array(happened));
        self.spans.push(Value::Object(span));
        let seconds = nanos.saturating_sub(known.begun.nanos) as f64 / 1e9;
        self.runs(outcome, profile, seconds);
    }

    /// Counts a run that took that long.
    fn runs(&mut self, outcome: &str, profile: &str, seconds: f64) {
        let told: Attributes = vec![
            ("atoll.outcome", json!(outcome)),
            ("atoll.profile", json!(profile)),
        ];
        self.count("atoll.runs", &told, 1);
        self.took("atoll.run.duration", told, seconds);
    }

    fn took(&mut self, name: &'static str, told: Attributes, seconds: f64) {
        let key = Value::Array(written(&told)).to_string();
        let durations = self.durations.entry((name, key));
        let (_, durations) = durations.or_insert_with(|| (told, Durations::default()));
        durations.sum += seconds;
        let at = DURATION_BOUNDS.iter().position(|bound| seconds <= *bound);
        if let Some(count) = durations
            .counts
            .get_mut(at.unwrap_or(DURATION_BOUNDS.len()))
        {
            *count += 1;
        }
    }

    fn flow(&mut self, begun: &Begun, event: &Event, (run, trace): (&str, &str), nanos: u64) {
        let at = number(&event.body, "flow").unwrap_or(0);
        let mut attributes = place(&begun.body);
        let status = number(&event.body, "status");
        attributes.extend(status.map(|status| ("http.response.status_code", json!(status))));
        let kind = text(&begun.body, "kind").unwrap_or("flow");
        for (member, key, direction) in [
            ("up_bytes", "atoll.flow.sent_bytes", "transmit"),
            ("down_bytes", "atoll.flow.received_bytes", "receive"),
        ] {
            let bytes = number(&event.body, member).unwrap_or(0);
            attributes.push((key, json!(bytes)));
            let counted = vec![
                ("network.io.direction", json!(direction)),
                ("atoll.flow.kind", json!(kind)),
            ];
            self.count("atoll.flow.io", &counted, bytes);
        }
        let failure = text(&event.body, "failure");
        attributes.extend(failure.map(|_| ("error.type", json!("failed"))));
        let name = text(&begun.body, "method").unwrap_or(kind).to_owned();
        let span = Span {
            trace,
            id: span_of(&format!("{run}/flow/{at}")),
            parent: Some(span_of(run)),
            name,
            kind: if kind == "published" { SERVER } else { CLIENT },
            times: (begun.nanos, nanos),
            attributes,
            // Why is the ledger's to tell: the words can be those of who was asked.
            failed: failure.map(|_| "failed".to_owned()),
        };
        self.spans.push(Value::Object(span.written()));
        self.flows(kind, "allow");
    }

    fn flows(&mut self, kind: &str, verdict: &str) {
        let told = vec![
            ("atoll.flow.kind", json!(kind)),
            ("atoll.verdict", json!(verdict)),
        ];
        self.count("atoll.flows", &told, 1);
    }

    /// Adds a refused flow: recorded at its first time, and at the end with its count.
    fn refused(&mut self, event: &Event, (run, trace): (&str, &str), nanos: u64) {
        let kind = text(&event.body, "kind").unwrap_or("flow");
        if number(&event.body, "count").is_some_and(|count| count > 1) {
            return;
        }
        self.flows(kind, "deny");
        let mut attributes = place(&event.body);
        attributes.push(("error.type", json!("denied")));
        if event.body.get("credential").is_some() {
            attributes.push(("atoll.atlas.technique", json!(EXFILTRATION)));
        }
        let span = Span {
            trace,
            id: span_of(&format!("{run}/refused/{}", event.position.seq)),
            parent: Some(span_of(run)),
            name: text(&event.body, "method").unwrap_or(kind).to_owned(),
            kind: CLIENT,
            times: (nanos, nanos),
            attributes,
            // Not why: that quotes what the program asked for.
            failed: Some("denied".to_owned()),
        };
        self.spans.push(Value::Object(span.written()));
    }

    /// Adds an approval: the question, and how long the answer took.
    fn approval(&mut self, begun: &Begun, event: &Event, (run, trace): (&str, &str), nanos: u64) {
        let at = number(&event.body, "approval").unwrap_or(0);
        let is_granted = event.kind == "approval.granted";
        let answer = if is_granted { "granted" } else { "denied" };
        let mut attributes = place(&begun.body);
        attributes.push(("atoll.approval.answer", json!(answer)));
        let why = text(&event.body, "why");
        attributes.extend(why.map(|why| ("atoll.approval.why", json!(why))));
        let span = Span {
            trace,
            id: span_of(&format!("{run}/approval/{at}")),
            parent: Some(span_of(run)),
            name: "atoll.approval".to_owned(),
            kind: INTERNAL,
            times: (begun.nanos, nanos),
            attributes,
            failed: (!is_granted).then(|| answer.to_owned()),
        };
        self.spans.push(Value::Object(span.written()));
        let told = vec![("atoll.approval.answer", json!(answer))];
        self.count("atoll.approvals", &told, 1);
    }
}
