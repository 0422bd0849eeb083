//! The trace of a request: its id, which the ledger has too, and a line of JSON on standard error.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Instant, SystemTime};

use atoll_ledger::{hex, random};
use atoll_model::mask_secrets;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::Response;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The characters of a trace id (W3C Trace Context, 3.2.2.3).
const ID_CHARACTERS: usize = 32;
/// The most lines that wait to be written.
const LINES_MAX: usize = 4_096;
/// The header of an answer that has it.
const HEADER: &str = "atoll-trace-id";

tokio::task_local! {
    static CURRENT: String;
}

/// The log, which a thread of its own writes: whoever reads it slowly holds up no request.
static LOG: OnceLock<Log> = OnceLock::new();

struct Log {
    lines: SyncSender<String>,
    /// The lines that were left out, since too many waited.
    lost: AtomicU64,
}

fn log() -> Log {
    let (lines, written) = sync_channel::<String>(LINES_MAX);
    let write = move || {
        for line in written {
            // Nobody may read it any more.
            let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
        }
    };
    // Without a thread nothing is logged: the lines end where they are sent.
    let _ = std::thread::Builder::new().spawn(write);
    Log {
        lines,
        lost: AtomicU64::new(0),
    }
}

impl Log {
    fn send(&self, line: String) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let told = match lost {
            0 => Ok(()),
            _ => self.lines.try_send(json!({ "lost": lost }).to_string()),
        };
        if told.and_then(|()| self.lines.try_send(line)).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

/// Returns the trace id of the request that this task answers.
pub(crate) fn current() -> Option<String> {
    CURRENT.try_with(Clone::clone).ok()
}

/// A request, from its begin.
pub(super) struct Trace {
    id: String,
    method: Method,
    /// The part of the target that is logged: neither a query, which can hold a signature, nor the path of
    /// a program's own.
    target: String,
    begun: Instant,
}

impl Trace {
    /// Begins one; a caller's own trace goes on.
    pub(super) fn begin(headers: &HeaderMap, method: &Method, target: String) -> Self {
        let told = headers
            .get("traceparent")
            .and_then(|value| value.to_str().ok());
        let told = told
            .and_then(|text| text.split('-').nth(1))
            .filter(|id| is_id(id));
        Self {
            id: told.map_or_else(made, str::to_owned),
            method: method.clone(),
            target,
            begun: Instant::now(),
        }
    }

    /// Answers the request within it.
    pub(super) async fn within(
        self,
        is_logged: bool,
        answer: impl Future<Output = Response>,
    ) -> Response {
        let mut response = CURRENT.scope(self.id.clone(), answer).await;
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            response.headers_mut().insert(HEADER, id);
        }
        if is_logged {
            self.log(&response);
        }
        response
    }

    fn log(&self, response: &Response) {
        let line = json!({
            "time": OffsetDateTime::from(SystemTime::now()).format(&Rfc3339).unwrap_or_default(),
            "trace": self.id,
            "method": self.method.as_str(),
            "target": self.target,
            "status": response.status().as_u16(),
            "ms": self.begun.elapsed().as_millis() as u64,
        });
        LOG.get_or_init(log)
            .send(mask_secrets(&line.to_string()).into_owned());
    }
}

fn is_id(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == ID_CHARACTERS && text.bytes().all(is_digit) && text.bytes().any(|one| one != b'0')
}

fn made() -> String {
    let mut bytes = [0; ID_CHARACTERS / 2];
    // Without random bytes there is an id that says so.
    let _ = random::fill(&mut bytes);
    hex(&bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_callers_trace_goes_on_if_it_is_one() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (told, is_taken) in [
            (format!("00-{id}-00f067aa0ba902b7-01"), true),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), false),
            (
                format!("00-{}-00f067aa0ba902b7-01", id.to_uppercase()),
                false,
            ),
            (format!("00-{id}0-00f067aa0ba902b7-01"), false),
            (id.to_owned(), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", told.parse().unwrap());
            let trace = Trace::begin(&headers, &Method::GET, String::new());
            assert_eq!(trace.id == id, is_taken, "{told}");
            assert!(is_id(&trace.id), "{}", trace.id);
        }
    }
}
