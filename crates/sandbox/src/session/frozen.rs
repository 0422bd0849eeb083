//! The threads of a sandbox, as the host sees them: whether all have stopped.

use std::fs;

use crate::launcher::{children_of, lists_children};

/// The most processes that are looked at.
const PROCESSES_MAX: usize = 100_000;

/// Returns whether every thread of a sandbox has stopped, but those of its first process. Orphans
/// are children of that, so that its descendants are all of them (pid_namespaces(7)); and none
/// begins while all are told to stop: a fork with a signal waiting is begun anew (fork(2)).
pub(super) fn all_stopped(launcher: u32) -> bool {
    if !lists_children() {
        return false;
    }
    // The first process goes on.
    let first = children_of(launcher).into_iter();
    let mut left: Vec<u32> = first.flat_map(children_of_all).collect();
    let mut seen = 0;
    while let Some(pid) = left.pop() {
        seen += 1;
        if seen > PROCESSES_MAX || !is_stopped(pid) {
            return false;
        }
        left.extend(children_of_all(pid));
    }
    true
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

/// Returns whether every thread of a process has stopped, or is gone (proc_pid_stat(5)).
fn is_stopped(pid: u32) -> bool {
    threads(pid).into_iter().all(|thread| {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")) else {
            return true;
        };
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, Some('T' | 't' | 'Z' | 'X'))
    })
}
