//! The contents of messages: of requests, as far as they count here, and of what answers them.

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::Spec;
use super::messages::{Request, VERSION};
use crate::front::dialect::*;
use crate::front::interpreter::Event;

/// The most lines of a traceback, and the most bytes of expressions beside the code.
const TRACEBACK_LINES_MAX: usize = 1_000;
const EXPRESSIONS_BYTES_MAX: usize = 16 * 1024;

/// The content of a request, as far as it counts here.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Content<'a> {
    pub(super) code: String,
    pub(super) silent: bool,
    pub(super) stop_on_error: Option<bool>,
    pub(super) restart: bool,
    pub(super) cursor_pos: u64,
    #[serde(borrow)]
    pub(super) user_expressions: Option<&'a RawValue>,
}

impl<'a> Content<'a> {
    pub(super) fn of(request: &'a Request) -> Result<Self, Refusal> {
        serde_json::from_str(&request.content).map_err(|error| {
            let what = format!("the content of {} is not understood: {error}", request.kind);
            Refusal::invalid(what)
        })
    }
}

/// Makes the message of a result: its kind and its content, in which its parts are as they came.
pub(super) fn result(event: &Event<'_>, count: u64) -> (&'static str, String) {
    let known = event.parts("text/plain").into_iter();
    let known = known.filter_map(|(kind, part)| Some(format!(r#""{kind}":{}"#, part?)));
    let known: Vec<String> = known.collect();
    let extra = event.extra.and_then(|extra| {
        let inner = extra.get().strip_prefix('{')?.strip_suffix('}')?.trim();
        Some(inner).filter(|inner| !inner.is_empty())
    });
    // Of two parts of one type the last one counts.
    let all = extra.into_iter().chain(known.iter().map(String::as_str));
    let data = all.collect::<Vec<_>>().join(",");
    match event.is_main_result {
        true => {
            let rest = format!(r#""metadata":{{}},"execution_count":{count}"#);
            ("execute_result", format!(r#"{{"data":{{{data}}},{rest}}}"#))
        }
        false => {
            let rest = r#""metadata":{},"transient":{}"#;
            ("display_data", format!(r#"{{"data":{{{data}}},{rest}}}"#))
        }
    }
}

/// Makes the content of an error.
pub(super) fn error(event: &Event<'_>) -> Value {
    let text = |raw: Option<&RawValue>| {
        let raw = raw.map_or("\"\"", RawValue::get);
        serde_json::from_str::<String>(raw).unwrap_or_default()
    };
    let traceback = text(event.traceback);
    let lines: Vec<&str> = traceback.lines().take(TRACEBACK_LINES_MAX).collect();
    json!({ "ename": text(event.name), "evalue": text(event.value), "traceback": lines })
}

/// Returns the content of a reply that says what is not done.
pub(super) fn failure(refusal: &Refusal) -> Value {
    let what = refusal.told();
    json!({ "status": "error", "ename": "AtollError", "evalue": what, "traceback": [what] })
}

/// Returns the answers to expressions beside the code, which are not evaluated here.
pub(super) fn unknown(asked: Option<&RawValue>) -> Map<String, Value> {
    let asked = asked.map(RawValue::get);
    let asked = asked.filter(|text| text.len() <= EXPRESSIONS_BYTES_MAX);
    let asked = asked.and_then(|text| serde_json::from_str(text).ok());
    let asked: BTreeMap<String, IgnoredAny> = asked.unwrap_or_default();
    let what = Refusal::invalid("expressions beside the code are not evaluated");
    let names = asked.into_keys();
    names.map(|name| (name, failure(&what))).collect()
}

pub(super) fn info(spec: &Spec) -> Value {
    json!({
        "status": "ok",
        "protocol_version": VERSION,
        "implementation": "atoll",
        "implementation_version": env!("CARGO_PKG_VERSION"),
        "language_info": {
            "name": spec.language,
            // The sandbox's own programs say which.
            "version": "",
            "mimetype": spec.kind,
            "file_extension": spec.extension,
        },
        "banner": format!("{} in a sandbox of Atoll", spec.title),
        "help_links": [],
        "debugger": false,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn results_are_bundles_by_type() {
        let text = r#"{"type":"result","text":"1","png":"iVBO","is_main_result":true,"chart":{},
            "extra":{"application/x":1,"text/plain":"other"}}"#;
        let event: Event<'_> = serde_json::from_str(text).unwrap();
        let (kind, content) = result(&event, 3);
        let content: Value = serde_json::from_str(&content).unwrap();
        let data = json!({ "application/x": 1, "text/plain": "1", "image/png": "iVBO" });
        let expected = json!({ "data": data, "metadata": {}, "execution_count": 3 });
        assert_eq!((kind, content), ("execute_result", expected));
        for extra in ["{}", "[1]", "\"}{\"", "null"] {
            let text = format!(r#"{{"type":"result","extra":{extra}}}"#);
            let event: Event<'_> = serde_json::from_str(&text).unwrap();
            let content: Value = serde_json::from_str(&result(&event, 0).1).unwrap();
            let expected = json!({ "data": {}, "metadata": {}, "transient": {} });
            assert_eq!(content, expected, "{extra}");
        }
    }

    #[test]
    fn errors_hold_so_many_lines() {
        let text = format!(
            r#"{{"type":"error","name":"E","value":1,"traceback":"{}"}}"#,
            "\\n".repeat(9_999)
        );
        let event: Event<'_> = serde_json::from_str(&text).unwrap();
        let error = error(&event);
        let lines = error
            .get("traceback")
            .and_then(Value::as_array)
            .map(Vec::len);
        assert_eq!(
            (lines, error.get("evalue")),
            (Some(TRACEBACK_LINES_MAX), Some(&json!("")))
        );
    }
}
