//! The messages for a collector: OTLP in JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Attributes, Batch, DURATION_BOUNDS, Durations};

/// The failure status (OTLP's `StatusCode`).
const ERROR: u8 = 2;
/// Only the difference to the last message (OTLP's `AggregationTemporality`).
const DELTA: u8 = 1;

/// One message for a collector: the end of its URL, and the body.
pub struct Message {
    /// The end of the URL.
    pub path: &'static str,
    /// The body.
    pub body: Value,
}

/// The members all messages of a batch share.
struct About {
    resource: Value,
    scope: Value,
}

impl About {
    /// Builds a message. `names` are those of the lists: of resources, of scopes, of items.
    fn message(&self, path: &'static str, names: [&str; 3], items: Vec<Value>) -> Option<Message> {
        let [resources, scopes, name] = names;
        let within = json!({ "scope": self.scope, name: items });
        let is_empty = within.get(name).is_none_or(|items| items == &json!([]));
        let body = json!({ resources: [{ "resource": self.resource, scopes: [within] }] });
        (!is_empty).then_some(Message { path, body })
    }
}

impl Batch {
    /// Returns the batch as messages for a collector. `host` is the name of the machine.
    pub fn messages(self, host: &str) -> Vec<Message> {
        let about: Attributes = vec![
            ("service.name", json!("atoll")),
            ("service.version", json!(env!("CARGO_PKG_VERSION"))),
            ("host.name", json!(host)),
        ];
        let about = About {
            resource: json!({ "attributes": written(&about) }),
            scope: json!({ "name": "atoll", "version": env!("CARGO_PKG_VERSION") }),
        };
        let metrics = self.metrics();
        // Metrics last: what comes before them is the same when it is sent again, and they are
        // counted once.
        [
            about.message(
                "/v1/traces",
                ["resourceSpans", "scopeSpans", "spans"],
                self.spans,
            ),
            about.message(
                "/v1/logs",
                ["resourceLogs", "scopeLogs", "logRecords"],
                self.logs,
            ),
            about.message(
                "/v1/metrics",
                ["resourceMetrics", "scopeMetrics", "metrics"],
                metrics,
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn metrics(&self) -> Vec<Value> {
        let (first, last) = self.times.unwrap_or_default();
        let times = [first.to_string(), last.to_string()];
        let mut sums: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for ((name, _), (attributes, count)) in &self.counts {
            let point = json!({ "attributes": written(attributes), "asInt": count.to_string(),
                "startTimeUnixNano": times[0], "timeUnixNano": times[1] });
            sums.entry(name).or_default().push(point);
        }
        let sum = |(name, points): (&str, Vec<Value>)| {
            let unit = if name == "atoll.flow.io" { "By" } else { "1" };
            json!({ "name": name, "unit": unit, "sum": { "dataPoints": points,
                "aggregationTemporality": DELTA, "isMonotonic": true } })
        };
        let mut all: Vec<Value> = sums.into_iter().map(sum).collect();
        let mut histograms: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for ((name, _), one) in &self.durations {
            let points = histograms.entry(name).or_default();
            points.push(histogram(one, &times));
        }
        all.extend(histograms.into_iter().map(|(name, points)| {
            json!({ "name": name, "unit": "s",
                "histogram": { "dataPoints": points, "aggregationTemporality": DELTA } })
        }));
        all
    }
}

fn histogram((attributes, durations): &(Attributes, Durations), times: &[String; 2]) -> Value {
    let counts: Vec<String> = durations.counts.iter().map(u64::to_string).collect();
    let total: u64 = durations.counts.iter().sum();
    json!({ "attributes": written(attributes), "startTimeUnixNano": times[0],
        "timeUnixNano": times[1], "count": total.to_string(), "sum": durations.sum,
        "explicitBounds": DURATION_BOUNDS, "bucketCounts": counts })
}

pub(super) struct Span<'a> {
    pub(super) trace: &'a str,
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) name: String,
    pub(super) kind: u8,
    pub(super) times: (u64, u64),
    pub(super) attributes: Attributes,
    pub(super) failed: Option<String>,
}

impl Span<'_> {
    pub(super) fn written(self) -> Map<String, Value> {
        let (from, to) = self.times;
        let mut out = Map::new();
        out.insert("traceId".to_owned(), json!(self.trace));
        out.insert("spanId".to_owned(), json!(self.id));
        if let Some(parent) = self.parent {
            out.insert("parentSpanId".to_owned(), json!(parent));
        }
        out.insert("name".to_owned(), json!(self.name));
        out.insert("kind".to_owned(), json!(self.kind));
        out.insert("startTimeUnixNano".to_owned(), json!(from.to_string()));
        out.insert(
            "endTimeUnixNano".to_owned(),
            json!(to.max(from).to_string()),
        );
        out.insert(
            "attributes".to_owned(),
            Value::Array(written(&self.attributes)),
        );
        if let Some(why) = self.failed {
            out.insert(
                "status".to_owned(),
                json!({ "code": ERROR, "message": why }),
            );
        }
        out
    }
}

/// Attributes as OTLP has them in JSON: 64-bit numbers are texts.
pub(super) fn written(attributes: &Attributes) -> Vec<Value> {
    let one = |(key, value): &(&'static str, Value)| {
        let value = match value {
            Value::Number(number) => json!({ "intValue": number.to_string() }),
            Value::Bool(truth) => json!({ "boolValue": truth }),
            Value::String(text) => json!({ "stringValue": text }),
            other => json!({ "stringValue": other.to_string() }),
        };
        json!({ "key": key, "value": value })
    };
    attributes.iter().map(one).collect()
}
