//! Events in the form of the Open Cybersecurity Schema Framework (OCSF), as security monitoring
//! reads them: one JSON object an event, with the whole event in `unmapped`.

use atoll_ledger::Event;
use serde_json::{Map, Value, json};

use crate::events::microseconds;

/// The version of the schema whose words these are.
const VERSION: &str = "1.6.0";

const INFORMATIONAL: u64 = 1;
const MEDIUM: u64 = 3;
const HIGH: u64 = 4;
const SUCCESS: u64 = 1;
const FAILURE: u64 = 2;

/// A class and an activity of it.
#[derive(Clone, Copy)]
struct Class {
    uid: u64,
    activity: u64,
}

const fn class(uid: u64, activity: u64) -> Class {
    Class { uid, activity }
}

const LAUNCH: Class = class(1007, 1);
const TERMINATE: Class = class(1007, 2);
const FINDING: Class = class(2004, 1);
const ENTITY_CREATED: Class = class(3004, 1);
const ENTITY_DELETED: Class = class(3004, 4);
const ENTITY_ENABLED: Class = class(3004, 8);
const ENTITY_DISABLED: Class = class(3004, 9);
const OPEN: Class = class(4001, 1);
const CLOSE: Class = class(4001, 2);
const FAIL: Class = class(4001, 4);
const REFUSE: Class = class(4001, 5);
const QUERY: Class = class(4003, 1);
/// The base class, for events no other class covers.
const BASE: Class = class(0, 99);

/// Converts one event. `host` is the name of the machine.
pub fn ocsf(event: &Event, host: &str) -> Value {
    let run = event.run.as_ref().map(|run| run.as_str());
    let told = Told { event, host, run };
    let mut out = match event.kind.as_str() {
        "run.opened" | "run.denied" => told.launch(),
        "run.closed" | "run.failed" | "run.interrupted" => told.terminate(),
        "flow.opened" if told.text("kind") == Some("request") => told.request(),
        "flow.opened" if told.text("kind") == Some("name") => {
            let mut out = told.network(QUERY, None);
            out.insert("query".to_owned(), json!({ "hostname": told.text("host") }));
            out
        }
        "flow.opened" => told.network(OPEN, None),
        "flow.closed" => told.flow_closed(),
        "flow.refused" => told.network(REFUSE, Some(false)),
        "attempt.seen" => told.finding(),
        "login.written" => told.entity(ENTITY_CREATED, "login file", "file"),
        "secret.set" => told.entity(ENTITY_CREATED, "secret", "name"),
        "secret.removed" => told.entity(ENTITY_DELETED, "secret", "name"),
        "trust.given" => told.entity(ENTITY_ENABLED, "project file", "path"),
        "trust.revoked" => told.entity(ENTITY_DISABLED, "project file", "path"),
        _ => told.base(BASE, INFORMATIONAL, None),
    };
    out.insert("unmapped".to_owned(), event.body.clone());
    Value::Object(out)
}

struct Told<'a> {
    event: &'a Event,
    host: &'a str,
    run: Option<&'a str>,
}

impl<'a> Told<'a> {
    fn text(&self, member: &str) -> Option<&'a str> {
        self.event.body.get(member).and_then(Value::as_str)
    }

    fn number(&self, member: &str) -> Option<u64> {
        self.event.body.get(member).and_then(Value::as_u64)
    }

    /// Returns the members every class has. `allowed` is the verdict, if there was one.
    fn base(&self, class: Class, severity: u64, allowed: Option<bool>) -> Map<String, Value> {
        let mut metadata = json!({
            "version": VERSION,
            "product": { "name": "Atoll", "vendor_name": "Atoll", "version": env!("CARGO_PKG_VERSION") },
            "uid": self.event.position.leaf.to_string(),
            "sequence": self.event.position.seq,
            "event_code": self.event.kind,
            "original_time": self.event.time,
        });
        let mut out = json!({
            "activity_id": class.activity,
            "category_uid": class.uid / 1_000,
            "class_uid": class.uid,
            "type_uid": class.uid * 100 + class.activity,
            "severity_id": severity,
            "time": microseconds(&self.event.time) / 1_000,
            "message": self.event.kind,
        });
        if let Some(run) = self.run {
            put(&mut metadata, "correlation_uid", json!(run));
        }
        if let Some(allowed) = allowed {
            put(&mut metadata, "profiles", json!(["security_control"]));
            put(&mut out, "action_id", json!(if allowed { 1 } else { 2 }));
            put(
                &mut out,
                "disposition_id",
                json!(if allowed { 1 } else { 2 }),
            );
            put(
                &mut out,
                "status_id",
                json!(if allowed { SUCCESS } else { FAILURE }),
            );
        }
        put(&mut out, "metadata", metadata);
        match out {
            Value::Object(out) => out,
            _ => Map::new(),
        }
    }

    /// Returns the members of a process of this run. Its pid in the sandbox means nothing on the
    /// host.
    fn process(&self, class: Class, severity: u64, allowed: Option<bool>) -> Map<String, Value> {
        let mut out = self.base(class, severity, allowed);
        let words: Vec<String> = match self.event.body.get("command").and_then(Value::as_array) {
            Some(words) => words.iter().map(plain).collect(),
            None => Vec::new(),
        };
        let mut process = json!({ "uid": self.run.unwrap_or("-") });
        if let Some(program) = words.first() {
            put(&mut process, "name", json!(program.rsplit('/').next()));
            put(&mut process, "cmd_line", json!(words.join(" ")));
        }
        let mut actor = json!({ "app_name": "atoll" });
        if let Some(principal) = self.event.body.get("principal") {
            let uid = principal.get("uid").map(Value::to_string);
            put(
                &mut actor,
                "user",
                json!({ "name": principal.get("name"), "uid": uid }),
            );
        }
        out.insert("process".to_owned(), process);
        out.insert("actor".to_owned(), actor);
        out.insert(
            "device".to_owned(),
            json!({ "hostname": self.host, "type_id": 0 }),
        );
        out
    }

    fn launch(&self) -> Map<String, Value> {
        let allowed = self.text("verdict") == Some("allow");
        let severity = if allowed { INFORMATIONAL } else { MEDIUM };
        self.process(LAUNCH, severity, Some(allowed))
    }

    fn terminate(&self) -> Map<String, Value> {
        let is_closed = self.event.kind == "run.closed";
        let severity = if is_closed { INFORMATIONAL } else { MEDIUM };
        let mut out = self.process(TERMINATE, severity, None);
        let status = if is_closed { SUCCESS } else { FAILURE };
        out.insert("status_id".to_owned(), json!(status));
        if let Some(status) = self.number("status") {
            out.insert("exit_code".to_owned(), json!(status));
        }
        out
    }

    /// Returns the members of a connection out of a sandbox, or to one of its published ports.
    fn network(&self, class: Class, allowed: Option<bool>) -> Map<String, Value> {
        let severity = if allowed == Some(false) {
            MEDIUM
        } else {
            INFORMATIONAL
        };
        let mut out = self.base(class, severity, allowed);
        let sandbox = json!({ "uid": self.run.unwrap_or("-"), "name": "sandbox" });
        let mut other = Map::new();
        for (member, to) in [("host", "hostname"), ("address", "ip"), ("port", "port")] {
            if let Some(value) = self.event.body.get(member) {
                other.insert(to.to_owned(), value.clone());
            }
        }
        let is_inbound = self.text("kind") == Some("published");
        let (from, to) = match is_inbound {
            true => ("dst_endpoint", "src_endpoint"),
            false => ("src_endpoint", "dst_endpoint"),
        };
        out.insert(from.to_owned(), sandbox);
        if other.contains_key("hostname") || other.contains_key("ip") {
            out.insert(to.to_owned(), Value::Object(other));
        }
        if class.uid == OPEN.uid {
            let mut connection = json!({ "direction_id": if is_inbound { 1 } else { 2 } });
            if let (Some(run), Some(flow)) = (self.run, self.number("flow")) {
                put(&mut connection, "uid", json!(format!("{run}/{flow}")));
            }
            out.insert("connection_info".to_owned(), connection);
        }
        if let (Some(rule), Some(_)) = (self.text("rule"), allowed) {
            out.insert("firewall_rule".to_owned(), json!({ "name": rule }));
        }
        out
    }

    fn request(&self) -> Map<String, Value> {
        let method = self.text("method").unwrap_or_default();
        let activity = match method {
            "CONNECT" => 1,
            "DELETE" => 2,
            "GET" => 3,
            "HEAD" => 4,
            "OPTIONS" => 5,
            "POST" => 6,
            "PUT" => 7,
            "TRACE" => 8,
            "PATCH" => 9,
            _ => 99,
        };
        let mut out = self.network(class(4002, activity), None);
        let mut url = Map::new();
        for (member, to) in [
            ("host", "hostname"),
            ("path", "path"),
            ("port", "port"),
            ("scheme", "scheme"),
        ] {
            if let Some(value) = self.event.body.get(member) {
                url.insert(to.to_owned(), value.clone());
            }
        }
        let is_sealed = self.event.body.get("sealed").is_some();
        let unsaid = if is_sealed { "(sealed)" } else { "/" };
        url.entry("path").or_insert_with(|| json!(unsaid));
        let mut request = json!({ "url": url });
        // Of others it knows no word.
        if activity != 99 {
            put(&mut request, "http_method", json!(method));
        }
        out.insert("http_request".to_owned(), request);
        out
    }

    fn flow_closed(&self) -> Map<String, Value> {
        let failure = self.text("failure");
        let class = if failure.is_some() { FAIL } else { CLOSE };
        let mut out = self.network(class, None);
        let status = if failure.is_some() { FAILURE } else { SUCCESS };
        out.insert("status_id".to_owned(), json!(status));
        if let Some(why) = failure {
            out.insert("status_detail".to_owned(), json!(why));
        }
        let traffic = json!({
            "bytes_in": self.number("down_bytes").unwrap_or(0),
            "bytes_out": self.number("up_bytes").unwrap_or(0),
        });
        out.insert("traffic".to_owned(), traffic);
        if let Some(duration_us) = self.number("duration_us") {
            out.insert("duration".to_owned(), json!(duration_us / 1_000));
        }
        out
    }

    /// Returns the members of a violation.
    fn finding(&self) -> Map<String, Value> {
        let mut out = self.base(FINDING, HIGH, Some(false));
        let wall = self.text("wall").unwrap_or("-");
        let technique = json!({ "technique": { "uid": self.text("atlas").unwrap_or("-") } });
        let finding = json!({
            "uid": self.event.position.leaf.to_string(),
            "title": format!("an attempt at the wall {wall}"),
            "attacks": [technique],
        });
        out.insert("finding_info".to_owned(), finding);
        out
    }

    fn entity(&self, class: Class, kind: &str, member: &str) -> Map<String, Value> {
        let mut out = self.base(class, INFORMATIONAL, None);
        let name = self
            .event
            .body
            .get(member)
            .map_or_else(|| "-".to_owned(), plain);
        out.insert("entity".to_owned(), json!({ "name": name, "type": kind }));
        out
    }
}

/// Adds a member to an object.
fn put(to: &mut Value, member: &str, value: Value) {
    if let Value::Object(members) = to {
        members.insert(member.to_owned(), value);
    }
}

/// Returns a text of the host; one that is not UTF-8 in its JSON form.
fn plain(text: &Value) -> String {
    match text {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
