//! The resources that a living sandbox uses now.

use std::io;
use std::path::PathBuf;

use atoll_model::RunId;

use crate::groups::Groups;
use crate::{Host, detect_groups, disk};

/// The resources in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Memory, page cache included, bytes; `None` without control groups.
    pub memory_bytes: Option<u64>,
    /// Processor time since its begin, microseconds; `None` without control groups.
    pub cpu_us: Option<u64>,
    /// Bytes written to its layer.
    pub disk_bytes: u64,
}

/// Returns the memory that a run uses now, bytes; `None` without control groups.
#[must_use]
pub fn memory_in_use(host: &Host, run: &RunId) -> Option<u64> {
    Groups::plan(&detect_groups(host), run)?.memory_now()
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
pub fn in_use(host: &Host, run: &RunId, files: &[PathBuf]) -> InUse {
    let groups = Groups::plan(&detect_groups(host), run);
    let groups = groups.as_ref();
    InUse {
        memory_bytes: groups.and_then(Groups::memory_now),
        cpu_us: groups.and_then(|groups| groups.counted().cpu_us),
        disk_bytes: disk::bytes_in(files),
    }
}
