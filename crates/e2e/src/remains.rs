//! The remains that a run could leave on the host, and how to find them.
//!
//! Everything is found from outside, without asking Atoll: processes by their descent from this
//! test, namespaces by their numbers, control groups by the ids of the runs in the ledger, mounts
//! and files by their paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};

use crate::processes::{Process, children_of, descendants_of, is_alive};

/// The kinds of namespaces that a sandbox has of its own.
const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// Makes this process adopt every orphan beneath it from now on, so that nothing hides behind a
/// double fork.
///
/// # Panics
/// When the kernel does not allow it.
pub fn adopt_orphans() {
    set_child_subreaper(Some(getpid())).unwrap();
}

/// Returns the living descendants of this process.
#[must_use]
pub fn alive() -> Vec<Process> {
    let mut all = descendants_of(std::process::id());
    all.retain(|process| !matches!(process.state, 'Z' | 'X'));
    all
}

/// Reaps every child of this process that has ended, and so was adopted, except for the one that
/// somebody else waits for.
pub fn collect_all_but(other: u32) {
    for child in children_of(std::process::id()) {
        let pid = i32::try_from(child.pid).ok().and_then(Pid::from_raw);
        if child.state == 'Z' && child.pid != other {
            // It may have been collected meanwhile.
            let _ = waitpid(pid, WaitOptions::NOHANG);
        }
    }
}

/// Returns the namespaces of a process that this one is not in; none for a process that may not be
/// inspected.
#[must_use]
pub fn foreign_namespaces(pid: u32) -> BTreeSet<PathBuf> {
    let link = |of: &str, kind: &str| fs::read_link(format!("/proc/{of}/ns/{kind}")).ok();
    NAMESPACES
        .iter()
        .filter_map(|kind| {
            let theirs = link(&pid.to_string(), kind)?;
            (Some(&theirs) != link("self", kind).as_ref()).then_some(theirs)
        })
        .collect()
}

/// Returns the machine's uptime, in hundredths of a second.
///
/// # Panics
/// Where the kernel does not say so (proc_uptime(5)).
#[must_use]
pub fn uptime() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap();
    let first = text.split_ascii_whitespace().next().unwrap();
    first.replace('.', "").parse().unwrap()
}

/// Returns the living processes of the machine that are in one of these namespaces and had begun by
/// the time `at`: once those are gone, the kernel gives the namespaces' numbers to others.
#[must_use]
pub fn inhabitants(namespaces: &BTreeSet<PathBuf>, at: u64) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| is_alive(*pid) && began(*pid).is_none_or(|began| began <= at))
        .filter(|pid| !foreign_namespaces(*pid).is_disjoint(namespaces))
        .collect()
}

/// Returns the start of a process, in the clock ticks of [`uptime`] (proc_pid_stat(5)).
fn began(pid: u32) -> Option<u64> {
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(line.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Returns the ids of all runs that the ledger in a state directory records.
#[must_use]
pub fn recorded_runs(state: &Path) -> BTreeSet<String> {
    const MEMBER: &str = "\"run\":\"";
    let mut runs = BTreeSet::new();
    for entry in fs::read_dir(state.join("atoll/ledger"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let text = fs::read(entry.path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let ids = text
            .split(MEMBER)
            .skip(1)
            .filter_map(|rest| rest.split_once('"'));
        runs.extend(ids.map(|(run, _)| run.to_owned()));
    }
    runs
}

/// Returns the control groups of these runs.
#[must_use]
pub fn groups(runs: &BTreeSet<String>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if name
                .strip_prefix("atoll-")
                .is_some_and(|run| runs.contains(run))
            {
                found.push(entry.path());
            } else {
                waiting.push(entry.path());
            }
        }
    }
    found
}

/// Returns the mounts that this process sees and that name a directory, or a layer made from open
/// files, as the launcher makes them.
#[must_use]
pub fn mounts(directory: &Path) -> Vec<String> {
    let directory = directory.to_string_lossy().into_owned();
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_ours = |line: &&str| line.contains(&directory) || line.contains("/proc/self/fd/");
    text.lines().filter(is_ours).map(str::to_owned).collect()
}

/// Returns everything beneath a directory, with the lengths of files.
#[must_use]
pub fn files(directory: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(one) = waiting.pop() {
        for entry in fs::read_dir(&one).into_iter().flatten().flatten() {
            let Ok(facts) = entry.metadata() else {
                continue;
            };
            if facts.is_dir() {
                waiting.push(entry.path());
            }
            found.insert(entry.path(), facts.len());
        }
    }
    found
}

/// Returns the numbers of sockets in this network namespace: Unix, TCP, TCP over IPv6.
#[must_use]
pub fn sockets() -> [usize; 3] {
    ["unix", "tcp", "tcp6"].map(|kind| {
        let text = fs::read_to_string(format!("/proc/self/net/{kind}")).unwrap_or_default();
        text.lines().count().saturating_sub(1)
    })
}

/// Returns the number of open descriptors of this process.
#[must_use]
pub fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Returns one number of `/proc/meminfo`, bytes.
#[must_use]
pub fn memory(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let number = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix(name)?.strip_prefix(':')?;
        rest.trim().trim_end_matches(" kB").parse().ok()
    };
    text.lines()
        .find_map(number)
        .unwrap_or(0)
        .saturating_mul(1024)
}

/// Returns the metadata that would show that the host's system was changed.
///
/// # Panics
/// When its directories cannot be read.
#[must_use]
pub fn facts_of_the_system() -> Vec<(PathBuf, u32, u64, i64)> {
    let of = |top: &str| fs::read_dir(top).unwrap().flatten().map(|one| one.path());
    let tops = ["/etc", "/usr", "/opt", "/usr/bin"].map(PathBuf::from);
    let paths = of("/etc").chain(of("/usr/bin")).chain(tops);
    let mut facts: Vec<_> = paths
        .filter_map(|path| {
            let facts = path.symlink_metadata().ok()?;
            Some((path, facts.mode(), facts.len(), facts.mtime()))
        })
        .collect();
    facts.sort();
    facts
}
