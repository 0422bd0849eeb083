use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// A process as /proc shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its process id on the host.
    pub pid: u32,
    /// Its parent's process id.
    pub parent: u32,
    /// Its name.
    pub name: String,
    /// One letter, `Z` for a zombie.
    pub state: char,
}

/// Returns all processes of the host.
fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(read)
        .collect()
}

fn read(pid: u32) -> Option<Process> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name stands in parentheses and may hold any of its own.
    let (start, rest) = stat.rsplit_once(')')?;
    let name = start.split_once('(')?.1.to_owned();
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Process {
        pid,
        parent,
        name,
        state,
    })
}

/// Returns the children of a process.
#[must_use]
pub fn children_of(pid: u32) -> Vec<Process> {
    all().into_iter().filter(|one| one.parent == pid).collect()
}

/// Returns a process's children, theirs, and so on; not the process itself.
#[must_use]
pub fn descendants_of(pid: u32) -> Vec<Process> {
    let all = all();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for one in all.iter().filter(|one| one.parent == parent) {
            parents.push(one.pid);
            found.push(one.clone());
        }
    }
    found
}

/// Returns whether a process exists and is not a zombie.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    read(pid).is_some_and(|process| !matches!(process.state, 'Z' | 'X'))
}

/// Returns a field of `/proc/PID/status`, as `Uid`, without the blanks around it.
#[must_use]
pub fn status_field(pid: u32, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name == field).then(|| value.trim().to_owned())
    })
}

/// Returns the processes of the host whose command line holds a text; a text that is unique to a
/// test finds those that it left behind.
#[must_use]
pub fn pids_of_command(text: &str) -> Vec<u32> {
    let holds = |process: &Process| {
        fs::read(format!("/proc/{}/cmdline", process.pid)).is_ok_and(|line| {
            String::from_utf8_lossy(&line)
                .replace('\0', " ")
                .contains(text)
        })
    };
    all()
        .into_iter()
        .filter(holds)
        .map(|process| process.pid)
        .collect()
}

/// Sends a signal to one process that the test started.
pub fn kill(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

/// Ends a child that still runs, with everything that it started.
pub fn end(child: &mut std::process::Child) {
    if matches!(child.try_wait(), Ok(None)) {
        let below = descendants_of(child.id());
        let _ = child.kill();
        let _ = child.wait();
        for one in below {
            kill(one.pid, rustix::process::Signal::KILL);
        }
    }
}
