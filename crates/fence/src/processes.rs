//! The processes of a fence, which no namespace counts or kills.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// The most rounds of killing at a fence's end. Each round kills the processes that it finds;
/// those just started by them are found in the next.
const LOOKS_MAX: u32 = 10_000;
/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(1);

/// Makes this process the parent of descendants that lose theirs.
///
/// # Errors
/// The kernel's error.
pub fn become_reaper() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Returns every descendant of this process.
#[must_use]
pub fn descendants() -> Vec<u32> {
    let own = std::process::id();
    let mut parents = BTreeMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        parents.extend(parent(pid).map(|parent| (pid, parent)));
    }
    let is_below = |pid: &u32| {
        let above = |pid: &u32| parents.get(pid).copied();
        let mut line = std::iter::successors(above(pid), above).take(parents.len());
        line.any(|one| one == own)
    };
    parents.keys().copied().filter(is_below).collect()
}

/// Returns whether a process, or the one that a thread belongs to, is a descendant of this one.
pub(crate) fn is_below(pid: u32) -> bool {
    /// More than the number of processes there can be.
    const DEPTH_MAX: usize = 1 << 22;
    let own = std::process::id();
    let mut line = std::iter::successors(parent(pid), |pid| parent(*pid)).take(DEPTH_MAX);
    line.any(|one| one == own)
}

/// Returns the parent of a process, or of the one that a thread belongs to.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    field(pid, 1)
}

/// Returns the process group of a process.
pub(crate) fn group(pid: u32) -> Option<u32> {
    field(pid, 2)
}

/// Returns a number after the name in /proc/PID/stat (proc_pid_stat(5)); the name may hold any
/// byte.
fn field(pid: u32, position: usize) -> Option<u32> {
    let line = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(line.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(position)?.parse().ok()
}

/// Kills every descendant of this process. An orphan becomes this process's child before its
/// parent can be waited for, so that none is left once there is no child.
pub fn end_descendants() {
    for _ in 0..LOOKS_MAX {
        let below = descendants().into_iter().chain(children());
        for pid in below.filter_map(|pid| Pid::from_raw(pid as i32)) {
            // It may have ended since.
            let _ = kill_process(pid, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the children of this process, also those that may not be inspected.
fn children() -> Vec<u32> {
    let list = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let numbers = list.split_ascii_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}
