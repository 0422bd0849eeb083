//! The summary at the end of a run, on standard error.

use std::collections::BTreeMap;

use atoll_engine::changes::commits::Commit;
use atoll_engine::changes::{Change, Changes, Group};
use atoll_engine::decision::Afterwards;
use atoll_engine::printable::printable;
use atoll_model::{
    Attempt, Ending, Enforcement, LimitHit, LimitKey, RunId, Usage, format_bytes, format_duration,
    is_probe,
};

use super::walls::{describe_attempts, describe_probes};
use super::{Paint, Style, counted, grouped};
use crate::escape::Copied;

/// Names shown of each group; the rest are counted.
const NAMES_SHOWN_MAX: usize = 8;
/// Denials shown; the rest are counted.
const DENIALS_SHOWN_MAX: usize = 5;
/// The width of the names of lines.
const LABEL_COLUMNS: usize = 9;

/// The content of a summary.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The program's ending.
    pub ending: Ending,
    /// The resources it used.
    pub usage: Usage,
    /// The enforcement of each limit.
    pub enforcement: &'a [Enforcement],
    /// The limits that a file or an option has set: those of them that were not enforced are named.
    /// Defaults that a host never enforces are for `atoll doctor` and `atoll why`, not for the end
    /// of every run.
    pub asked_for: &'a [LimitKey],
    /// The changes it made.
    pub changes: &'a Changes,
    /// The accesses Atoll saw denied; those that only the kernel refused are not seen.
    pub denied: &'a [Denied],
    /// The violations it attempted.
    pub attempts: &'a [Attempt],
    /// The name of its profile.
    pub profile: &'a str,
    /// The traffic, if it reached anything.
    pub network: Option<Traffic>,
    /// The unpublished listeners in the sandbox, if any.
    pub listened: Option<String>,
    /// A line for each credential that was injected into requests.
    pub credentials: &'a [String],
    /// The failed connections that were allowed.
    pub failed: &'a [Denied],
    /// The number of these that are files.
    pub refused_files: u64,
    /// Escape sequences removed from its output, by kind.
    pub removed_sequences: &'a BTreeMap<&'static str, u64>,
    /// The writes to the clipboard.
    pub copied: Copied,
    /// The state of the changes.
    pub afterwards: Afterwards,
}

/// The traffic of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The connections it made.
    pub connections: u64,
    /// The requests it sent, where requests are inspected.
    pub requests: u64,
    /// The connections to published ports.
    pub visits: u64,
    /// The bytes it sent.
    pub up_bytes: u64,
    /// The bytes it received.
    pub down_bytes: u64,
}

/// Something that the program tried and was refused, or did not get done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The attempt, in words.
    pub what: String,
    /// The number of times.
    pub times: u64,
    /// The limit that it came up against, if it was one.
    pub limit: Option<LimitKey>,
}

impl Denied {
    /// Returns the number of times in words; empty if once.
    #[must_use]
    pub fn often(&self) -> String {
        match self.times {
            0 | 1 => String::new(),
            times => format!(" ({} times)", grouped(times)),
        }
    }
}

/// Formats the summary, several lines.
#[must_use]
pub fn summary(paint: Paint, summary: &Summary<'_>) -> String {
    let mut lines = vec![headline(paint, summary)];
    lines.push(line(paint, "time", &used(&summary.usage)));
    push_limits(paint, summary, &mut lines);
    // What was thrown away unseen was not counted.
    if summary.afterwards != Afterwards::Discarded || summary.changes.total() > 0 {
        push_changes(paint, summary, &mut lines);
    }
    if let Some(traffic) = &summary.network {
        lines.push(line(paint, "network", &describe_traffic(traffic)));
    }
    if let Some(listened) = &summary.listened {
        lines.push(line(paint, "ports", listened));
    }
    for used in summary.credentials {
        lines.push(line(paint, "used", used));
    }
    let (probes, attempts): (Vec<Attempt>, Vec<Attempt>) =
        summary.attempts.iter().partition(|one| is_probe(one.call));
    if !probes.is_empty() {
        let text = describe_probes(&probes, summary.profile);
        lines.push(line(paint, "denied", &text));
    }
    if !attempts.is_empty() {
        let text = describe_attempts(&attempts);
        lines.push(line(paint, "attempts", &paint.style(Style::Bad, &text)));
    }
    push_denied(paint, "denied", summary.denied, &mut lines);
    push_denied(paint, "failed", summary.failed, &mut lines);
    if summary.copied.times > 0 {
        let times = counted(summary.copied.times, "time", "times");
        let bytes = format_bytes(summary.copied.bytes);
        lines.push(line(
            paint,
            "copied",
            &format!("{bytes} to the clipboard, {times}"),
        ));
    }
    if !summary.removed_sequences.is_empty() {
        let text = removed_sequences(summary.removed_sequences);
        lines.push(line(paint, "terminal", &text));
    }
    push_next(paint, summary, &mut lines);
    lines.push(String::new());
    lines.join("\n")
}

fn describe_traffic(traffic: &Traffic) -> String {
    let made: Vec<String> = [
        (traffic.connections, "connection", "connections"),
        (traffic.requests, "request", "requests"),
        (traffic.visits, "visit", "visits"),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, one, several)| counted(count, one, several))
    .collect();
    format!(
        "{}, {} sent, {} received",
        made.join(", "),
        format_bytes(traffic.up_bytes),
        format_bytes(traffic.down_bytes)
    )
}

/// Adds the requested limits that a program could have exceeded.
fn push_limits(paint: Paint, summary: &Summary<'_>, lines: &mut Vec<String>) {
    let is_asked_for = |limit: &str| summary.asked_for.iter().any(|key| key.name() == limit);
    let named = |held: fn(&str) -> bool| -> String {
        let names: Vec<String> = summary
            .enforcement
            .iter()
            .filter(|enforcement| held(&enforcement.by) && is_asked_for(&enforcement.limit))
            .map(|enforcement| printable(enforcement.limit.as_bytes()))
            .collect();
        names.join(", ")
    };
    let not_at_all = named(|by| by == "none");
    let in_part = named(|by| by.ends_with(", in part"));
    let (style, text) = match (not_at_all.as_str(), in_part.as_str()) {
        ("", "") => return,
        ("", in_part) => (Style::Faint, format!("held in part: {in_part}")),
        (none, "") => (Style::Notable, format!("not held on this machine: {none}")),
        (none, in_part) => (
            Style::Notable,
            format!("not held on this machine: {none}; in part: {in_part}"),
        ),
    };
    lines.push(line(paint, "limits", &paint.style(style, &text)));
}

/// Describes a program's ending.
#[must_use]
pub fn describe_ending(ending: Ending) -> String {
    match ending {
        Ending::Exited { status: 0 } => "succeeded".to_owned(),
        Ending::Exited { status } => format!("failed with status {status}"),
        Ending::Signalled { signal } => match signal_name(signal) {
            Some(name) => format!("ended by {name}"),
            None => format!("ended by signal {signal}"),
        },
        Ending::Limited { limit } => match limit {
            LimitHit::WallClock => "ended: the time limit was reached",
            LimitHit::Idle => "ended: no input or output for the time allowed",
            LimitHit::Memory => "ended: the memory limit was reached",
            LimitHit::Disk => "ended: the disk limit was reached",
            LimitHit::Inodes => "ended: the limit of files was reached",
            LimitHit::Volume => "ended: the quota of a volume was reached",
        }
        .to_owned(),
        Ending::NotFound => "not found inside the boundary".to_owned(),
        Ending::NotExecutable => "found, but could not be executed".to_owned(),
        Ending::Interrupted => "interrupted: Atoll ended before the program".to_owned(),
    }
}

/// Returns the name of a limit in profiles and on the command line.
#[must_use]
pub fn limit_name(limit: LimitHit) -> &'static str {
    match limit {
        LimitHit::WallClock => "wall-clock",
        LimitHit::Idle => "idle",
        LimitHit::Memory => "memory",
        LimitHit::Disk => "disk",
        LimitHit::Inodes => "inodes",
        LimitHit::Volume => "volume",
    }
}

fn headline(paint: Paint, summary: &Summary<'_>) -> String {
    let style = match summary.ending {
        Ending::Exited { status: 0 } => Style::Good,
        Ending::Exited { .. }
        | Ending::Signalled { .. }
        | Ending::Limited { .. }
        | Ending::NotFound
        | Ending::NotExecutable
        | Ending::Interrupted => Style::Bad,
    };
    format!(
        "{} {} {}",
        paint.style(Style::Faint, "atoll:"),
        paint.style(Style::Strong, summary.run.as_str()),
        paint.style(style, &describe_ending(summary.ending))
    )
}

fn used(usage: &Usage) -> String {
    let whose = if usage.memory_is_whole {
        "at most"
    } else {
        "in its largest process"
    };
    format!(
        "{}, {} of processor, {} {whose}",
        format_duration(usage.wall_clock),
        format_duration(usage.cpu),
        format_bytes(usage.memory_peak_bytes)
    )
}

fn push_changes(paint: Paint, summary: &Summary<'_>, lines: &mut Vec<String>) {
    let changes = summary.changes;
    if changes.total() == 0 {
        let text = match summary.refused_files {
            0 => "nothing changed",
            _ => "nothing that can be taken over",
        };
        lines.push(line(paint, "files", text));
        return;
    }
    let note = |text: &str| paint.style(Style::Faint, text);
    for (label, group, note) in [
        ("files", &changes.workspace, String::new()),
        (
            "control",
            &changes.control,
            paint.style(Style::Notable, "  other programs run these; look closely"),
        ),
        ("caches", &changes.caches, note("  kept apart")),
        ("ignored", &changes.ignored, note("  by git, kept apart")),
    ] {
        if group.total() > 0 {
            let text = format!("{}{note}", count_changes(paint, group));
            lines.push(line(paint, label, &text));
            push_names(paint, group, lines);
        }
        if label == "files" {
            push_commits(paint, &changes.commits, lines);
        }
    }
}

/// Returns whether caches are all that changed: a plain apply would write nothing.
fn is_of_caches(changes: &Changes) -> bool {
    changes.caches.total() > 0 && changes.total() == changes.caches.total()
}

/// Lists the commits: the branch, and the first line of each message.
fn push_commits(paint: Paint, commits: &[Commit], lines: &mut Vec<String>) {
    let mut label = "commits";
    for commit in commits.iter().take(NAMES_SHOWN_MAX) {
        let (branch, subject) = (printable(&commit.branch), printable(&commit.subject));
        lines.push(line(paint, label, &format!("{branch}  {subject}")));
        label = "";
    }
    let more = commits.len().saturating_sub(NAMES_SHOWN_MAX) as u64;
    if more > 0 {
        let text = format!("… and {} more", grouped(more));
        lines.push(line(paint, "", &paint.style(Style::Faint, &text)));
    }
}

fn count_changes(paint: Paint, group: &Group) -> String {
    let parts: Vec<String> = [
        (group.added, Style::Good, "added"),
        (group.changed, Style::Notable, "changed"),
        (group.removed, Style::Bad, "removed"),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, style, what)| paint.style(style, &format!("{} {what}", grouped(count))))
    .collect();
    parts.join(", ")
}

fn push_names(paint: Paint, group: &Group, lines: &mut Vec<String>) {
    for (change, name) in group.names.iter().take(NAMES_SHOWN_MAX) {
        let (style, sign) = match change {
            Change::Added => (Style::Good, "+"),
            Change::Changed => (Style::Notable, "~"),
            Change::Removed => (Style::Bad, "-"),
        };
        let text = format!("  {} {}", paint.style(style, sign), printable(name));
        lines.push(line(paint, "", &text));
    }
    let shown = group.names.len().min(NAMES_SHOWN_MAX) as u64;
    let more = group.total().saturating_sub(shown + group.in_git);
    if group.in_git > 0 {
        let text = format!("  … and {} in .git", grouped(group.in_git));
        lines.push(line(paint, "", &paint.style(Style::Faint, &text)));
    }
    if shown > 0 && more > 0 {
        let text = format!("  … and {} more", grouped(more));
        lines.push(line(paint, "", &paint.style(Style::Faint, &text)));
    }
}

fn push_denied(paint: Paint, label: &'static str, denied: &[Denied], lines: &mut Vec<String>) {
    let mut label = label;
    for denial in denied.iter().take(DENIALS_SHOWN_MAX) {
        let text = paint.style(Style::Bad, &printable(denial.what.as_bytes()));
        lines.push(line(paint, label, &format!("{text}{}", denial.often())));
        label = "";
    }
    let more = denied.len().saturating_sub(DENIALS_SHOWN_MAX) as u64;
    if more > 0 {
        let text = format!("… and {} more", grouped(more));
        lines.push(line(paint, "", &paint.style(Style::Faint, &text)));
    }
}

fn removed_sequences(kinds: &BTreeMap<&'static str, u64>) -> String {
    let total = kinds
        .values()
        .fold(0_u64, |sum, &count| sum.saturating_add(count));
    let named: Vec<String> = kinds
        .iter()
        .map(|(kind, &count)| format!("{} {kind}", grouped(count)))
        .collect();
    format!(
        "{} removed from its output: {}",
        counted(total, "sequence", "sequences"),
        named.join(", ")
    )
}

fn push_next(paint: Paint, summary: &Summary<'_>, lines: &mut Vec<String>) {
    let changed = summary.changes.total() > 0;
    let (state, mut commands): (&str, Vec<&str>) = match summary.afterwards {
        Afterwards::Kept if !changed && summary.refused_files > 0 => {
            ("kept", vec!["diff", "discard"])
        }
        Afterwards::Kept if changed => ("kept, not applied", vec!["diff", "apply", "discard"]),
        Afterwards::Applied if changed => ("applied", vec!["undo"]),
        // All but control files: the same once more would do nothing.
        Afterwards::PartlyApplied => ("applied in part", vec!["diff", "apply", "undo"]),
        Afterwards::Live if changed => ("written to the workspace", vec!["diff", "undo"]),
        Afterwards::Discarded if changed => ("discarded", vec![]),
        Afterwards::Undecided
        | Afterwards::Kept
        | Afterwards::Applied
        | Afterwards::Live
        | Afterwards::Discarded => ("", vec![]),
    };
    if !summary.denied.is_empty() || !summary.attempts.is_empty() {
        commands.push("why");
    }
    if !state.is_empty() {
        lines.push(line(paint, "state", state));
    }
    let mut label = "next";
    for command in commands {
        let only = match (summary.afterwards, command) {
            (Afterwards::PartlyApplied, "apply") => " --control",
            (Afterwards::Kept, "apply") if is_of_caches(summary.changes) => " --caches",
            _ => "",
        };
        let text = format!("atoll {command} {}{only}", summary.run);
        lines.push(line(paint, label, &paint.style(Style::Command, &text)));
        label = "";
    }
}

fn line(paint: Paint, label: &str, text: &str) -> String {
    let padded = format!("{label:LABEL_COLUMNS$}");
    format!("  {}{text}", paint.style(Style::Faint, &padded))
        .trim_end()
        .to_owned()
}

/// Returns the name of a signal that ends programs, by its number on Linux (the same on x86-64 and
/// arm64).
fn signal_name(signal: u8) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}
