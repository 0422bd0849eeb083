//! The threads of a sandbox, as the host sees them: whether all have stopped.

use std::collections::BTreeMap;
use std::fs;

use crate::launcher::{children_of, lists_children};

/// The most processes that are looked at.
const PROCESSES_MAX: usize = 100_000;

/// The threads of a sandbox that has stopped, with the number of times that each was switched to.
pub(super) type Threads = BTreeMap<u32, u64>;

/// Returns the threads of a sandbox, but those of its first process, if every one has stopped.
/// Orphans are children of that, so that its descendants are all of them (pid_namespaces(7)); and
/// none begins while all are told to stop: a fork with a signal waiting is begun anew (fork(2)).
pub(super) fn stopped(launcher: u32) -> Option<Threads> {
    if !lists_children() {
        return None;
    }
    // The first process goes on.
    let first = children_of(launcher).into_iter();
    let mut left: Vec<u32> = first.flat_map(children_of_all).collect();
    let mut seen = 0;
    let mut all = Threads::new();
    while let Some(pid) = left.pop() {
        seen += 1;
        if seen > PROCESSES_MAX {
            return None;
        }
        for thread in threads(pid) {
            all.extend(stopped_thread(pid, thread)?);
        }
        left.extend(children_of_all(pid));
    }
    Some(all)
}

/// Returns the children of every thread of a process.
fn children_of_all(pid: u32) -> Vec<u32> {
    let threads = threads(pid).into_iter();
    let lists = threads.filter_map(|thread| {
        fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).ok()
    });
    let numbers = lists.flat_map(|list| {
        let numbers = list.split_ascii_whitespace().map(str::parse);
        numbers.filter_map(Result::ok).collect::<Vec<u32>>()
    });
    numbers.collect()
}

fn threads(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let names = tasks.flatten().map(|task| task.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

/// Returns a thread that has stopped, with its switches (proc_pid_status(5)); none if it is gone.
/// `None` if it goes on.
fn stopped_thread(pid: u32, thread: u32) -> Option<Option<(u32, u64)>> {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")) else {
        return Some(None);
    };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let state = field("State:").and_then(|state| state.trim_start().chars().next());
    if !matches!(state, Some('T' | 't' | 'Z' | 'X')) {
        return None;
    }
    let switches = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
    let switches = switches.map(|name| field(name)?.trim().parse::<u64>().ok());
    let [Some(one), Some(other)] = switches else {
        return None;
    };
    Some(Some((thread, one.saturating_add(other))))
}
