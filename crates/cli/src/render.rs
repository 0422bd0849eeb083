//! The formatting of output for people: summaries, tables, errors, progress. Text goes in, text
//! comes out; nothing is decided here.
//!
//! Untrusted text (names, arguments, reasons) passes through [`printable`], so that it cannot
//! control the terminal. This module must never read the file system, the environment or a clock:
//! those are arguments. Start reading at [`summary`].

mod excerpt;
mod progress;
mod report;
mod summary;
mod table;
mod walls;
mod wrap;

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};

use atoll_engine::printable::printable;

pub use excerpt::excerpt;
pub use progress::Progress;
pub use report::{Report, fold};
pub use summary::{Denied, Summary, Traffic, describe_ending, limit_name, summary};
pub use table::{RunRow, runs_table, state_name, state_word};
pub use walls::guard;
pub(crate) use wrap::{MARK, ascii, wrapped};

/// The digits of a version shown to people.
const VERSION_DIGITS: usize = 12;

/// Shortens a version of policies, leaving enough to tell two of them apart.
pub(crate) fn short_version(version: &str) -> String {
    let digits = version.strip_prefix("sha256:").unwrap_or(version);
    let digits = printable(digits.as_bytes());
    format!(
        "version {}",
        digits.chars().take(VERSION_DIGITS).collect::<String>()
    )
}

/// Colours, or none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    on: bool,
}

/// The meaning of a piece of text; each has a look of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Something that went wrong, or was removed.
    Bad,
    /// Something that went right, or was added.
    Good,
    /// Something to look at, or that was changed.
    Notable,
    /// A name.
    Strong,
    /// Text that can be skipped.
    Faint,
    /// A command to type.
    Command,
}

impl Paint {
    /// Creates a painter with colours or without.
    #[must_use]
    pub fn new(on: bool) -> Self {
        Self { on }
    }

    /// Colours when the output is a terminal that has them, as `NO_COLOR`,
    /// `CLICOLOR_FORCE`, `CLICOLOR` and `TERM` have it, the first of these before
    /// the others. `variable` looks one up in the environment.
    #[must_use]
    pub fn choose(terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let zero = OsStr::new("0");
        let on = if set("NO_COLOR").is_some() {
            false
        } else if set("CLICOLOR_FORCE").is_some_and(|value| value != zero) {
            true
        } else {
            terminal
                && set("CLICOLOR").is_none_or(|value| value != zero)
                && set("TERM").is_none_or(|value| value != OsStr::new("dumb"))
        };
        Self { on }
    }

    /// Returns whether there are colours.
    #[must_use]
    pub fn is_on(self) -> bool {
        self.on
    }

    /// Styles a text, which must be printable already.
    #[must_use]
    pub fn style(self, style: Style, text: &str) -> String {
        if !self.on || text.is_empty() {
            return text.to_owned();
        }
        let code = match style {
            Style::Bad => "31",
            Style::Good => "32",
            Style::Notable => "33",
            Style::Strong => "1",
            Style::Faint => "2",
            Style::Command => "36",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Formats an error: what failed, why, what to do. Texts of several lines are indented.
#[must_use]
pub fn problem(paint: Paint, error: &str, whys: &[&str], tries: &[&str]) -> String {
    let mut shown = labelled(paint, Style::Bad, "error:", error);
    for why in whys {
        shown.push_str(&labelled(paint, Style::Strong, "  why:", why));
    }
    for attempt in tries {
        shown.push_str(&labelled(paint, Style::Good, "  try:", attempt));
    }
    shown
}

/// Formats a warning, on one line or several.
#[must_use]
pub fn warning(paint: Paint, text: &str) -> String {
    labelled(paint, Style::Notable, "warning:", text)
}

fn labelled(paint: Paint, style: Style, label: &str, text: &str) -> String {
    let indent = " ".repeat(label.len() + 1);
    let mut shown = paint.style(style, label);
    let mut lines = text.lines();
    shown.push(' ');
    shown.push_str(&printable(lines.next().unwrap_or_default().as_bytes()));
    shown.push('\n');
    for line in lines {
        shown.push_str(&indent);
        shown.push_str(&printable(line.as_bytes()));
        shown.push('\n');
    }
    shown
}

/// Formats a number with commas between thousands.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Formats a number and its unit: `1 file`, `2,000 files`.
#[must_use]
pub fn counted(number: u64, one: &str, several: &str) -> String {
    format!(
        "{} {}",
        grouped(number),
        if number == 1 { one } else { several }
    )
}

/// Formats `2026-11-21T09:30:12.123456Z` to the second, as people write it.
pub(crate) fn readable_time(time: &str) -> String {
    let second = time.split('.').next().unwrap_or(time);
    format!("{} UTC", second.replace('T', " "))
}
