//! The resources that a living sandbox uses now.

use std::io;
use std::path::PathBuf;

use atoll_model::RunId;

use crate::groups::Groups;
use crate::launcher::{children_of, children_of_all};
use crate::{Host, detect_groups, disk};

/// The resources in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Memory, bytes: page cache included where control groups count it, else the share of each
    /// process; `None` where it is unknown.
    pub memory_bytes: Option<u64>,
    /// Processor time since its begin, microseconds; `None` without control groups.
    pub cpu_us: Option<u64>,
    /// Bytes written to its layer.
    pub disk_bytes: u64,
}

/// The most processes whose memory is added up.
const PROCESSES_MAX: usize = 10_000;

/// Returns the memory that a run uses now, bytes, where it is known. Without control groups the
/// memory of the processes beneath its launcher is added up.
#[must_use]
pub fn memory_in_use(host: &Host, run: &RunId, launcher: Option<u32>) -> Option<u64> {
    let groups = Groups::plan(&detect_groups(host), run);
    memory_of(groups.as_ref(), launcher)
}

fn memory_of(groups: Option<&Groups>, launcher: Option<u32>) -> Option<u64> {
    let counted = groups.and_then(Groups::memory_now);
    counted.or_else(|| launcher.map(memory_of_processes))
}

/// Adds up the memory of a sandbox's processes, but of its first, which is Atoll's. Pages that
/// several of them share count once (proc_pid_smaps(5)), or for each where a process shows no more
/// than its own sum.
fn memory_of_processes(launcher: u32) -> u64 {
    let first = children_of(launcher).into_iter();
    let mut left: Vec<u32> = first.flat_map(children_of_all).collect();
    let mut bytes = 0_u64;
    for _ in 0..PROCESSES_MAX {
        let Some(pid) = left.pop() else { break };
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let of = |name: &str, key: &str| kilobytes(&read(name)?, key);
        let own = of("smaps_rollup", "Pss:").or_else(|| of("status", "VmRSS:"));
        bytes = bytes.saturating_add(own.unwrap_or(0) << 10);
        left.extend(children_of_all(pid));
    }
    bytes
}

fn kilobytes(facts: &str, key: &str) -> Option<u64> {
    let figure = facts.lines().find_map(|line| line.strip_prefix(key))?;
    figure.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Changes what a run's processes may use together, while they run: memory, bytes, and processor
/// time, thousandths of a processor.
///
/// # Errors
/// The kernel's; `Unsupported` without control groups that hold it, `ResourceBusy` where more memory
/// is in use than that.
pub fn resize(
    host: &Host,
    run: &RunId,
    memory_bytes: Option<u64>,
    cpu_millis: Option<u64>,
) -> io::Result<()> {
    let groups = Groups::plan(&detect_groups(host), run);
    let groups = groups.ok_or(io::ErrorKind::Unsupported)?;
    groups.resize(memory_bytes, cpu_millis)
}

/// Counts the bytes that directories take on the disk, which no program works in.
#[must_use]
pub fn disk_bytes(all: &[PathBuf]) -> u64 {
    disk::bytes_in(all)
}

/// Measures a run whose workspace's files lie in these directories.
#[must_use]
pub fn in_use(host: &Host, run: &RunId, launcher: Option<u32>, files: &[PathBuf]) -> InUse {
    let groups = Groups::plan(&detect_groups(host), run);
    let groups = groups.as_ref();
    InUse {
        memory_bytes: memory_of(groups, launcher),
        cpu_us: groups.and_then(|groups| groups.counted().cpu_us),
        disk_bytes: disk::bytes_in(files),
    }
}
