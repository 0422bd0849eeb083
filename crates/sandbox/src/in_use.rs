//! The resources that a living sandbox uses now.

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

/// Measures a run whose workspace's layer has this upper directory.
#[must_use]
pub fn in_use(host: &Host, run: &RunId, upper: PathBuf) -> InUse {
    let groups = Groups::plan(&detect_groups(host), run);
    let groups = groups.as_ref();
    InUse {
        memory_bytes: groups.and_then(Groups::memory_now),
        cpu_us: groups.and_then(|groups| groups.counted().cpu_us),
        disk_bytes: disk::bytes_in(upper),
    }
}
