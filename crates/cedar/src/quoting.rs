//! Texts as Cedar writes them.

use std::fmt::Write as _;

/// Returns a text as a Cedar string literal, in ASCII alone.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    escape(text, &mut out);
    out.push('"');
    out
}

pub(crate) fn escape(text: &str, out: &mut String) {
    for one in text.chars() {
        match one {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            ' '..='~' => out.push(one),
            other => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(other));
            }
        }
    }
}
