//! The walls of a sandbox, in words for people.

use atoll_model::{Attempt, ViolationKind};

use super::counted;

/// Returns what a program tries that goes against a wall, by the wall's name in the ledger.
pub fn aim(wall: &str) -> &'static str {
    match wall {
        "mounts" => "change the file tree",
        "namespaces" => "create a namespace",
        "keys" => "use the kernel's keyrings",
        "kernel-programs" => "load a program into the kernel",
        "page-faults" => "handle page faults",
        "machine" => "change the machine",
        "handles" => "open files by handle",
        "watching" => "watch a file system",
        "descriptors" => "take descriptors of other processes",
        "debugging" => "debug other processes",
        "sockets" => "open a socket to the kernel or a device",
        "terminal" => "type into the terminal",
        "first-process" => "change the sandbox's first process",
        "services" => "connect to services of the host",
        "processes" => "signal processes outside",
        _ => "leave the sandbox",
    }
}

/// Returns what stands against such a try.
pub fn guard(wall: &str) -> &'static str {
    match wall {
        "mounts" => "mount isolation",
        "namespaces" => "namespace isolation",
        "keys" => "keyring isolation",
        "kernel-programs" => "the ban on kernel programs",
        "page-faults" => "the ban on page fault handlers",
        "machine" => "machine isolation",
        "handles" => "the ban on file handles",
        "watching" => "the ban on watching file systems",
        "descriptors" => "descriptor isolation",
        "debugging" => "the ban on debugging",
        "sockets" => "socket isolation",
        "terminal" => "terminal isolation",
        "first-process" => "the guard of the first process",
        "services" => "service isolation",
        "processes" => "process isolation",
        _ => "the sandbox",
    }
}

/// Calls named in one line; the rest are counted.
const CALLS_SHOWN_MAX: usize = 6;

/// Agents that make a sandbox of their own for what they start, by the profile's name, with the
/// option that leaves it out.
const OWN_SANDBOXES: [(&str, &str); 3] = [
    ("codex", "codex --sandbox danger-full-access"),
    ("gemini", "gemini --sandbox=false"),
    (
        "claude",
        "\"sandbox\": {\"enabled\": false} in its settings",
    ),
];

/// Describes calls by which ordinary tools find out what they may, in a line.
#[must_use]
pub fn describe_probes(probes: &[Attempt], profile: &str) -> String {
    let mut calls: Vec<&str> = probes.iter().map(|one| one.call).collect();
    calls.dedup();
    let calls = calls.join(", ");
    if !probes
        .iter()
        .any(|one| one.wall == ViolationKind::Namespaces)
    {
        return format!("{calls}, which ordinary tools try; nothing to do if all works");
    }
    let known = OWN_SANDBOXES.iter().find(|(name, _)| *name == profile);
    match known {
        Some((name, option)) => format!(
            "{calls}: a sandbox that {name} makes for itself does not start in this one, which holds \
             it anyway; try {option}, or atoll run --nesting"
        ),
        None => format!(
            "{calls}, which programs try that make a sandbox for a part of themselves; \
             --nesting lets them"
        ),
    }
}

/// Describes the violations a program attempted, in a line.
#[must_use]
pub fn describe_attempts(attempts: &[Attempt]) -> String {
    let total = attempts
        .iter()
        .fold(0_u64, |sum, one| sum.saturating_add(one.count));
    let mut calls: Vec<&str> = attempts.iter().map(|one| one.call).collect();
    let more = calls.split_off(calls.len().min(CALLS_SHOWN_MAX)).len();
    let mut calls = calls.join(", ");
    if more > 0 {
        calls.push_str(&format!(" and {more} more"));
    }
    let mut techniques: Vec<&str> = attempts.iter().map(|one| one.wall.technique().id).collect();
    techniques.sort_unstable();
    techniques.dedup();
    let mut walls: Vec<&str> = attempts.iter().map(|one| one.wall.name()).collect();
    walls.dedup();
    let aim = match walls[..] {
        [wall] => aim(wall),
        _ => "leave the sandbox",
    };
    format!(
        "{} to {aim}: {calls} (MITRE ATLAS {})",
        counted(total, "blocked attempt", "blocked attempts"),
        techniques.join(", ")
    )
}
