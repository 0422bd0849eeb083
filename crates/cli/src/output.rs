use std::io::{IsTerminal, Write};

use atoll_engine::failure::Failure;
use atoll_engine::printable::printable_json;

use crate::render::{Paint, problem, warning};

/// The output of a command for people: results to standard output, everything about the work itself
/// to standard error.
#[derive(Debug)]
pub struct Output {
    /// True if standard output is a terminal.
    pub is_terminal: bool,
    /// True if a person can be asked: standard input and error are terminals.
    pub can_ask: bool,
    /// The look of standard output.
    pub paint: Paint,
    /// The look of standard error.
    pub error_paint: Paint,
}

impl Output {
    /// Returns the output of this process.
    pub fn of_process() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let error_is_terminal = std::io::stderr().is_terminal();
        let variable = |name: &str| std::env::var_os(name);
        Self {
            is_terminal,
            can_ask: error_is_terminal && std::io::stdin().is_terminal(),
            paint: Paint::choose(is_terminal, variable),
            error_paint: Paint::choose(error_is_terminal, variable),
        }
    }

    /// Writes a result. A reader that has gone away (as `head`) ends the program
    /// quietly, as it does other programs.
    pub fn result(&self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Writes a result that is no text for a terminal, as it is.
    pub fn bytes(&self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }

    /// Writes a result for machines.
    pub fn json(&self, value: &serde_json::Value) {
        self.result(&json_text(value));
    }

    /// Says something about the work.
    pub fn say(&self, text: &str) {
        // Without standard error there is nobody to tell.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }

    /// Says something that is no error but should be known.
    pub fn warn(&self, text: &str) {
        self.say(&warning(self.error_paint, text));
    }

    /// Prints an error.
    pub fn failure(&self, failure: &Failure) {
        let advice = crate::hints::texts(&failure.hints);
        let whys: Vec<&str> = failure.why.as_deref().into_iter().collect();
        let tries: Vec<&str> = advice.iter().map(String::as_str).collect();
        self.say(&problem(self.error_paint, &failure.what, &whys, &tries));
        for notice in &failure.notices.0 {
            self.warn(notice);
        }
    }
}

/// Formats a value as JSON text, members in the order of their names. It can be shown at a terminal
/// as it is.
pub fn json_text(value: &serde_json::Value) -> String {
    // serde_json may be built to keep them in the order of insertion.
    let mut sorted = value.clone();
    sorted.sort_all_objects();
    printable_json(&format!("{sorted:#}\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::json_text;

    #[test]
    fn what_would_deceive_a_terminal_is_written_as_json_writes_it() {
        let value = json!({ "a\u{200b}": "x\u{202e}\u{e0041}\u{9b}\u{7f}\u{1b}\n\"\\é" });
        let text = json_text(&value);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert!(
            text.contains(r"x\u202e\udb40\udc41\u009b\u007f\u001b\n"),
            "{text}"
        );
        assert!(text.ends_with("}\n") && text.contains('é'), "{text}");
    }
}
