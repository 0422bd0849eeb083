//! The execs of a run that a limit has ended, from the ledger.

use std::ffi::OsString;

use atoll_engine::shell::command_line;
use atoll_ledger::{Event, read_host_text};
use atoll_model::{Ending, LimitHit};
use serde_json::Value;

use super::Story;
use crate::render::{self, Report, Style};

/// The most that are shown.
const SHOWN_MAX: usize = 8;

impl Story<'_> {
    /// Adds the execs that a limit has ended.
    pub(super) fn tell_limited_execs(&self, report: &mut Report) {
        let all: Vec<_> = self.limited_execs().collect();
        for (event, limit) in all.iter().take(SHOWN_MAX) {
            let exec = event.body.get("exec").unwrap_or(&Value::Null);
            let ended = render::describe_ending(Ending::Limited { limit: *limit });
            let line = format!("exec {exec} {}{ended}", self.words_of(exec));
            report.styled("limit", &line, Some(Style::Bad));
        }
        if let Some(more @ 1..) = all.len().checked_sub(SHOWN_MAX) {
            report.line("limit", &format!("… and {more} more"));
        }
    }

    /// Returns the ends of execs by a limit.
    pub(super) fn limited_execs(&self) -> impl Iterator<Item = (&Event, LimitHit)> {
        let closed = self.events.iter().filter(|one| one.kind == "exec.closed");
        closed.filter_map(|one| {
            let ending = serde_json::from_value(one.body.get("ending")?.clone());
            match ending {
                Ok(Ending::Limited { limit }) => Some((one, limit)),
                Ok(_) | Err(_) => None,
            }
        })
    }

    /// Returns the command of an exec, in parentheses.
    fn words_of(&self, exec: &Value) -> String {
        let mut opened = self.events.iter().filter(|one| one.kind == "exec.opened");
        let opened = opened.find(|one| one.body.get("exec") == Some(exec));
        let words = opened.and_then(|one| one.body.get("command")?.as_array());
        let words: Vec<OsString> = words
            .into_iter()
            .flatten()
            .filter_map(read_host_text)
            .collect();
        match words.is_empty() {
            true => String::new(),
            false => format!("({}) ", command_line(&words)),
        }
    }
}
