//! Logs of a sandbox: what the ledger has of it, a line for each event.

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use utoipa::ToSchema;

use super::dialect::*;

/// The events that are read at once.
const PART: usize = 1_000;
/// The most lines that are returned.
const LINES_MAX: usize = 1_000;
/// The longest command in a line, characters.
const COMMAND_CHARS_MAX: usize = 200;

/// A line of a sandbox's log.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct LogLine {
    /// The number of its event in the ledger.
    pub(crate) number: u64,
    /// The time (RFC 3339).
    pub(crate) time: String,
    /// `info`, `warn` for what was refused, `error` for what a limit has ended.
    pub(crate) level: &'static str,
    pub(crate) message: String,
    /// Single facts of the event.
    pub(crate) fields: BTreeMap<String, String>,
}

impl LogLine {
    /// Reads an event of the ledger.
    pub(crate) fn of(event: &Value) -> Self {
        let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        let body = event.get("body").unwrap_or(&Value::Null);
        let (kind, fields) = (text("type"), fields(body));
        Self {
            number: event.get("number").and_then(Value::as_u64).unwrap_or(0),
            time: text("time").to_owned(),
            level: level(kind, body),
            message: message(kind, body, &fields),
            fields,
        }
    }

    /// Returns its time, milliseconds since 1970.
    fn at_ms(&self) -> i128 {
        let time = OffsetDateTime::parse(&self.time, &Rfc3339);
        time.map_or(0, |time| time.unix_timestamp_nanos() / 1_000_000)
    }
}

/// Returns the facts of an event that are single values.
fn fields(body: &Value) -> BTreeMap<String, String> {
    let single = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Some((name.clone(), text.clone())),
        Value::Number(_) | Value::Bool(_) => Some((name.clone(), value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    let all = body.as_object().into_iter().flatten();
    all.filter_map(single).collect()
}

fn level(kind: &str, body: &Value) -> &'static str {
    let is = |name: &str, value: &str| body.get(name).is_some_and(|found| found == value);
    let how = body.pointer("/ending/how");
    let is_limited = how.is_some_and(|how| how == "limited");
    let last = kind.rsplit('.').next().unwrap_or_default();
    match last {
        _ if is_limited => "error",
        "refused" | "denied" | "attempted" | "violation" => "warn",
        _ if is("verdict", "deny") => "warn",
        _ => "info",
    }
}

fn message(kind: &str, body: &Value, fields: &BTreeMap<String, String>) -> String {
    let exec = fields.get("exec").map_or("?", String::as_str);
    match kind {
        "run.opened" => format!("sandbox opened: {}", field(fields, "verdict")),
        "sandbox.assigned" => format!("sandbox assigned: {}", field(fields, "verdict")),
        "exec.opened" => format!("exec {exec}: {}", command(body)),
        "exec.closed" => format!("exec {exec} ended: {}", ending(body)),
        "run.closed" => format!("sandbox ended: {}", ending(body)),
        _ => {
            let facts = fields.iter().map(|(name, value)| format!("{name}={value}"));
            let facts: Vec<String> = facts.collect();
            format!("{kind} {}", facts.join(" ")).trim_end().to_owned()
        }
    }
}

fn field<'a>(fields: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    fields.get(name).map_or("", String::as_str)
}

/// Writes a command as one line.
fn command(body: &Value) -> String {
    let words = body.get("command").and_then(Value::as_array);
    let words = words.into_iter().flatten().filter_map(Value::as_str);
    let line = words.collect::<Vec<_>>().join(" ");
    line.chars().take(COMMAND_CHARS_MAX).collect()
}

/// Writes the way that something ended: its kind, then the number or the limit.
fn ending(body: &Value) -> String {
    let ending = body.get("ending").unwrap_or(&Value::Null);
    let of = |name: &str| match ending.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let all = ["how", "status", "signal", "limit"].map(of);
    let all = all.into_iter().filter(|one| !one.is_empty());
    all.collect::<Vec<_>>().join(" ")
}

/// Reads lines of a sandbox's log, the oldest first, from an event on.
pub(crate) async fn lines(
    caller: &Caller,
    sandbox: &str,
    from: u64,
    limit: usize,
) -> Result<(Vec<LogLine>, Option<u64>), Refusal> {
    let ask = ListEvents(EventsAsk {
        sandbox: Some(sandbox.to_owned()),
        from,
        limit,
        ..EventsAsk::default()
    });
    let EventList { events, next } = caller.call(ask).await?;
    Ok((events.iter().map(LogLine::of).collect(), next))
}

/// Answers in the form of E2B's control API: `cursor` and `start` are times, milliseconds since
/// 1970.
pub(crate) async fn logs(caller: &Caller, sandbox: &str, query: &Query, is_v2: bool) -> Answered {
    let limit = query.number::<i128>("limit");
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(LINES_MAX).clamp(1, LINES_MAX);
    let is_backward = query.one("direction").as_deref() == Some("backward");
    let cursor = query.number(if is_v2 { "cursor" } else { "start" });
    let (level, search) = (query.one("level"), query.one("search"));
    let is_wanted = |line: &LogLine| {
        let is_there = cursor.is_none_or(|cursor| match is_backward {
            true => line.at_ms() <= cursor,
            false => line.at_ms() >= cursor,
        });
        let reaches = |least: &String| rank(line.level) >= rank(least);
        let has = |text: &String| line.message.contains(text);
        is_there && level.as_ref().is_none_or(reaches) && search.as_ref().is_none_or(has)
    };
    let (mut found, mut from) = (Vec::new(), Some(0));
    while let Some(number) = from {
        let (part, next) = lines(caller, sandbox, number, PART).await?;
        found.extend(part.into_iter().filter(is_wanted));
        if is_backward {
            found.drain(..found.len().saturating_sub(limit));
        }
        from = next.filter(|_| is_backward || found.len() < limit);
    }
    found.truncate(limit);
    if is_backward {
        found.reverse();
    }
    let entry = |line: &LogLine| {
        json!({
            "timestamp": line.time,
            "level": line.level,
            "message": line.message,
            "fields": line.fields,
        })
    };
    let entries: Vec<Value> = found.iter().map(entry).collect();
    if is_v2 {
        return ok(&json!({ "logs": entries }));
    }
    let line = |line: &LogLine| json!({ "timestamp": line.time, "line": line.message });
    let plain: Vec<Value> = found.iter().map(line).collect();
    ok(&json!({ "logs": plain, "logEntries": entries }))
}

fn rank(level: &str) -> u8 {
    match level {
        "debug" => 0,
        "info" => 1,
        "warn" => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_lines_with_a_level() {
        let cases = [
            (
                "exec.opened",
                json!({ "exec": 1, "command": ["sh", "-c", "true"], "verdict": "allow" }),
                "info",
                "exec 1: sh -c true",
            ),
            (
                "exec.opened",
                json!({ "exec": 2, "command": ["sh"], "verdict": "deny" }),
                "warn",
                "exec 2: sh",
            ),
            (
                "exec.closed",
                json!({ "exec": 1, "ending": { "how": "exited", "status": 3 } }),
                "info",
                "exec 1 ended: exited 3",
            ),
            (
                "run.closed",
                json!({ "ending": { "how": "limited", "limit": "memory" } }),
                "error",
                "sandbox ended: limited memory",
            ),
            (
                "flow.refused",
                json!({ "host": "example.com", "port": 443 }),
                "warn",
                "flow.refused host=example.com port=443",
            ),
        ];
        for (kind, body, level, message) in cases {
            let line = LogLine::of(&json!({
                "number": 7,
                "time": "2026-01-02T03:04:05.678Z",
                "type": kind,
                "body": body,
            }));
            assert_eq!((line.level, line.message.as_str()), (level, message));
            assert_eq!((line.number, line.at_ms()), (7, 1_767_323_045_678));
        }
    }
}
