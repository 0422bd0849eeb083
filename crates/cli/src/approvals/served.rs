//! The approvals that sandboxes of a server wait for, by its API.

use std::fmt::Write as _;

use atoll_engine::configuration::Places;
use atoll_engine::printable::printable;
use serde_json::Value;

use crate::output::Output;
use crate::{sandbox, serve};

/// Returns the open questions of the server whose key is in the environment; none without a key. A
/// server that does not answer is a warning: the person's own runs are listed all the same.
pub fn approvals(output: &Output) -> Vec<Value> {
    if !sandbox::has_key() {
        return Vec::new();
    }
    sandbox::approvals().unwrap_or_else(|failure| {
        let why = failure
            .why
            .map_or_else(String::new, |why| format!(": {why}"));
        output.warn(&format!(
            "{}{why}; its approvals are left out",
            failure.what
        ));
        Vec::new()
    })
}

/// Returns a line for each question.
pub fn lines(all: &[Value]) -> String {
    let mut text = String::new();
    for one in all {
        let said = |pointer: &str| match one.pointer(pointer) {
            Some(Value::String(text)) => printable(text.as_bytes()),
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

/// Returns a line on what answers these; or, where a server runs here that nobody asked, on what
/// lists them.
pub fn more(all: &[Value], is_of_another: bool) -> String {
    if !all.is_empty() {
        return "Answer those of a server by POST /v1/sandboxes/ID/approvals/NUMBER (atoll help \
                serve); atoll approvals list --json has their digests.\n"
            .to_owned();
    }
    let runs = || Places::read().is_ok_and(|places| serve::is_running(&places));
    match is_of_another || sandbox::has_key() || !runs() {
        true => String::new(),
        false => "A server runs here. Set ATOLL_API_KEY to list what its sandboxes wait for, too \
                  (atoll serve keys create --scope read makes a key).\n"
            .to_owned(),
    }
}
