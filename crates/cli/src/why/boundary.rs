//! The boundary of a run in a few lines.

use std::ffi::OsString;
use std::path::Path;

use atoll_ledger::read_host_text;
use atoll_model::{format_bytes, format_duration};
use serde_json::Value;

use super::{Story, text};
use crate::render::Report;

/// Names that are shown of each list; the rest are counted.
const NAMES_SHOWN_MAX: usize = 6;

impl Story<'_> {
    /// Adds the signer of the organisation's layer, if a signature was required.
    pub(super) fn tell_signed(&self, report: &mut Report) {
        let signed = self.decision("organisation");
        let said = |member: &str| text(signed?.get(member));
        let serial = signed.and_then(|signed| signed.get("serial"));
        if let (Some(name), Some(serial), Some(key)) = (said("name"), serial, said("key")) {
            let by = format!("the organisation's layer, by {name}, number {serial} (key {key})");
            report.line("signed", &by);
        }
    }

    pub(super) fn boundary(&self) -> Vec<String> {
        let Some(mode) = text(self.decision("workspace-mode")) else {
            return Vec::new();
        };
        let workspace = self
            .said("run.opened", "/workspace")
            .and_then(read_host_text);
        let workspace = workspace.unwrap_or_default();
        let network = self.decision("network").map(network).unwrap_or_default();
        let held = match text(self.decision("mode")).as_deref() {
            Some("fence") => "a fence, no namespaces: ",
            Some(_) | None => "",
        };
        let system = match self.decision("root").and_then(Value::as_bool) {
            Some(true) => "root inside, the system copy-on-write",
            Some(false) | None => "the system read-only",
        };
        let mut lines = vec![format!(
            "{held}{} {mode}; {system}; network: {network}",
            workspace.to_string_lossy()
        )];
        if self.is_nesting() {
            lines.push("may make namespaces and mounts of its own (nesting)".to_owned());
        }
        lines.push(self.home());
        for (member, words) in [
            ("files-read", "may also read"),
            ("programs", "may execute only"),
            ("terminal", "on the terminal, may use"),
            ("syscalls", "refused besides"),
        ] {
            let names = self.names(member);
            if !names.is_empty() {
                lines.push(format!("{words}: {}", in_short(&names)));
            }
        }
        lines.push(self.limits());
        lines.extend(self.not_held());
        lines
    }

    /// Returns a list of names, with paths in the home relative to it.
    fn names(&self, member: &str) -> Vec<OsString> {
        let names = self.decision(member).and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(read_host_text);
        let shown = |name: OsString| match Path::new(&name).strip_prefix(self.home) {
            Ok(rest) => Path::new("~").join(rest).into_os_string(),
            Err(_) => name,
        };
        names.map(shown).collect()
    }

    fn home(&self) -> String {
        let of = |member: &str, words: &str| {
            let names = self.names(member);
            (!names.is_empty()).then(|| format!("{words} {}", in_short(&names)))
        };
        let parts: Vec<String> = [
            of("home-read", "to read:"),
            of("home-layer", "to change in a layer:"),
            of("home-keep", "to change in a layer that is kept:"),
            of("home-cache", "as caches:"),
        ]
        .into_iter()
        .flatten()
        .collect();
        match parts.is_empty() {
            true => "the home is empty".to_owned(),
            false => format!("the home is empty but for these, {}", parts.join("; ")),
        }
    }

    /// Describes the limits that were requested; the others are the defaults.
    fn limits(&self) -> String {
        let asked_for = self.names("limits-asked-for");
        let by_policy = self.wall_clock_by();
        let keys = asked_for.iter().map(|key| key.to_string_lossy());
        let keys = keys.filter(|key| by_policy.is_none() || key != "wall-clock");
        let mut words: Vec<String> = keys.filter_map(|key| self.limit(&key)).collect();
        if let (Some(limit), Some(by)) = (self.limit("wall-clock"), by_policy) {
            words.push(format!("{limit} by {by}"));
        }
        match words.is_empty() {
            true => "limits: Atoll's defaults".to_owned(),
            false => format!("limits: {}; Atoll's defaults besides", words.join(", ")),
        }
    }

    /// Names the policies that limit the run's time: no option widens that.
    pub(super) fn wall_clock_by(&self) -> Option<String> {
        text(self.decision("wall-clock-by"))
    }

    fn limit(&self, key: &str) -> Option<String> {
        let limits = self.decision("limits")?;
        let number = |member: &str| limits.get(member)?.as_u64();
        let bytes = || number(&format!("{key}-bytes")).map(format_bytes);
        let time = || {
            let time = number(&format!("{key}-ms"))?;
            Some(format_duration(std::time::Duration::from_millis(time)))
        };
        let count = || number(key).map(|count| count.to_string());
        let processors =
            || number(&format!("{key}-millis")).map(|it| format!("{}", it as f64 / 1e3));
        let value = bytes().or_else(time).or_else(count).or_else(processors);
        Some(format!(
            "{key} {}",
            value.unwrap_or_else(|| "none".to_owned())
        ))
    }

    /// Describes the limits this host did not enforce, or only in part.
    fn not_held(&self) -> Option<String> {
        let held = self.said("run.closed", "/enforcement")?.as_object()?;
        let named = |is: fn(&str) -> bool| {
            let by = |value: &Value| value.as_str().is_some_and(is);
            let names = held.iter().filter(|(_, value)| by(value));
            names
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let not_at_all = named(|by| by == "none");
        let in_part = named(|by| by.ends_with(", in part"));
        let parts: Vec<String> = [("not held here", not_at_all), ("held in part", in_part)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(words, names)| format!("{words}: {names}"))
            .collect();
        (!parts.is_empty()).then(|| format!("limits {} (atoll doctor tells why)", parts.join("; ")))
    }
}

fn in_short(names: &[OsString]) -> String {
    let shown = names.iter().take(NAMES_SHOWN_MAX);
    let words: Vec<String> = shown
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => words.join(", "),
        more => format!("{} and {more} more", words.join(", ")),
    }
}

/// Describes the allowed network access in one line.
fn network(said: &Value) -> String {
    let list = |member: &str| -> Vec<&str> {
        let list = said.get(member).and_then(Value::as_array);
        let list = list.into_iter().flatten();
        list.filter_map(Value::as_str).collect()
    };
    if let Some(word) = said.as_str() {
        return word.to_owned();
    }
    let (mut allow, deny) = (list("allow"), list("deny"));
    if said.get("learn").and_then(Value::as_bool) == Some(true) {
        allow.push("everything else on the internet, to learn of it (--learn)");
    }
    let published = list("publish");
    let mut said = match (allow.is_empty(), deny.is_empty()) {
        (true, _) if !published.is_empty() => "none".to_owned(),
        (_, true) => allow.join(", "),
        (_, false) => format!("{}; not {}", allow.join(", "), deny.join(", ")),
    };
    let ask = list("ask");
    if !ask.is_empty() {
        said.push_str(&format!("; asked each time: {}", ask.join(", ")));
    }
    if !published.is_empty() {
        said.push_str(&format!("; published: {}", published.join(", ")));
    }
    said
}
