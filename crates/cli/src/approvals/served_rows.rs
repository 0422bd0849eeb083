//! The rows of approvals that sandboxes of a server wait for.

use std::fmt::Write as _;

use atoll_engine::printable::printable_whole;
use serde_json::Value;

/// Returns a line for each question.
pub fn lines(all: &[Value]) -> String {
    let mut text = String::new();
    for one in all {
        let said = |pointer: &str| match one.pointer(pointer) {
            Some(Value::String(text)) => printable_whole(text.as_bytes()),
            Some(Value::Number(number)) => number.to_string(),
            Some(_) | None => String::new(),
        };
        let request = match said("/call/request/method") {
            method if method.is_empty() => String::new(),
            method => format!("{method} "),
        };
        let _ = writeln!(
            text,
            "{}.{}  waits ({} s left): {request}{}:{}{}",
            said("/sandbox"),
            said("/approval"),
            said("/left_s"),
            said("/call/host"),
            said("/call/port"),
            said("/call/request/path"),
        );
    }
    text
}
