//! The threads of a sandbox, as the host sees them: whether all have stopped.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::launcher::{children_of, children_of_all, lists_children, threads};

/// The most processes that are looked at.
const PROCESSES_MAX: usize = 100_000;

/// The threads of a sandbox that has stopped, with the number of times that each was switched to.
pub(super) type Threads = BTreeMap<u32, u64>;

/// The time until every thread that was seen to stop has left its processor, even on a busy machine,
/// and the most switches for that: the kernel says that one has stopped before it has (schedule()).
const SETTLES_WITHIN: Duration = Duration::from_secs(1);
const LATE_SWITCHES_MAX: u64 = 4;

/// The threads of a sandbox that stands still.
pub(super) struct Stopped {
    threads: RefCell<Threads>,
    /// The time from which on none of them runs, until one has looked after it.
    settles_at: RefCell<Option<Instant>>,
}

impl Stopped {
    pub(super) fn new(threads: Threads, now: Instant) -> Self {
        Self {
            threads: RefCell::new(threads),
            settles_at: RefCell::new(now.checked_add(SETTLES_WITHIN)),
        }
    }

    /// Returns whether they stand still as before.
    pub(super) fn has_held(&self, seen: Option<Threads>, now: Instant) -> bool {
        let Some(seen) = seen else {
            return false;
        };
        let mut before = self.threads.borrow_mut();
        let mut settles_at = self.settles_at.borrow_mut();
        let late = if settles_at.is_some() {
            LATE_SWITCHES_MAX
        } else {
            0
        };
        let is_near = |(thread, count): (&u32, &u64)| {
            let had = before.get(thread);
            had.is_some_and(|had| (*had..=had.saturating_add(late)).contains(count))
        };
        let has_held = seen.len() == before.len() && seen.iter().all(is_near);
        if has_held && settles_at.is_some_and(|at| now >= at) {
            *settles_at = None;
            *before = seen;
        }
        has_held
    }
}

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

/// Returns a thread that has stopped, with its switches (proc_pid_status(5)); none if it has ended.
/// `None` if it goes on.
fn stopped_thread(pid: u32, thread: u32) -> Option<Option<(u32, u64)>> {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")) else {
        return Some(None);
    };
    let field = |name: &str| field(&status, name);
    match state(&status) {
        Some('T' | 't') => {}
        // It has ended, and the first process, which goes on, may reap it.
        Some('Z' | 'X') => return Some(None),
        Some('D') if waits_for_stopped_child(pid, thread) => {}
        _ => return None,
    }
    let switches = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
    let switches = switches.map(|name| field(name)?.trim().parse::<u64>().ok());
    let [Some(one), Some(other)] = switches else {
        return None;
    };
    Some(Some((thread, one.saturating_add(other))))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

fn state(status: &str) -> Option<char> {
    field(status, "State:")?.trim_start().chars().next()
}

/// Returns whether a thread waits, in vfork(2), for a child that was told to stop before it executed a
/// program: it stops once that goes on, and does nothing before.
fn waits_for_stopped_child(pid: u32, thread: u32) -> bool {
    let task = format!("/proc/{pid}/task/{thread}");
    let read = |name: &str| fs::read_to_string(format!("{task}/{name}")).unwrap_or_default();
    // Who may not know it is told 0.
    let waits_in = read("wchan");
    let is_stopped = |child: &str| {
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        matches!(state(&status), Some('T' | 't'))
    };
    ["kernel_clone", "wait_for_vfork_done", "0"].contains(&waits_in.trim())
        && read("children").split_ascii_whitespace().any(is_stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_switches_count_as_standing_still_at_first() {
        let begin = Instant::now();
        let later = begin + SETTLES_WITHIN;
        let threads = |count| Some(Threads::from([(1, 7), (2, count)]));
        let stopped = Stopped::new(Threads::from([(1, 7), (2, 10)]), begin);
        let cases = [
            (threads(11), begin, true),
            (threads(10), begin, true),
            (threads(10 + LATE_SWITCHES_MAX + 1), begin, false),
            (Some(Threads::from([(1, 7)])), begin, false),
            (None, begin, false),
            // From here on nothing is late.
            (threads(11), later, true),
            (threads(12), later, false),
            (threads(11), later, true),
        ];
        for (seen, now, expected) in cases {
            assert_eq!(stopped.has_held(seen.clone(), now), expected, "{seen:?}");
        }
    }
}
