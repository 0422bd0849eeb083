//! Leftover control groups of runs whose Atoll and launcher both ended before removing them.
//! All hierarchies are searched, because the next Atoll may itself be in another group.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atoll_model::RunId;

use crate::groups::{PREFIX, remove_when_free};
use crate::{Host, MountPoint};

/// The most groups examined on a host.
const LOOKED_AT_MAX: usize = 200_000;

/// The controllers for which version 1 has groups of a run.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// A control group that is named after a run and belongs to this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunGroup {
    /// The run.
    pub run: RunId,
    path: PathBuf,
}

impl RunGroup {
    /// Removes the group, and returns whether that has succeeded; the kernel refuses while
    /// there is a process in it.
    ///
    /// The run must be over: a group that was just made has no process yet.
    #[must_use]
    pub fn remove(&self) -> bool {
        remove_when_free(&self.path)
    }
}

/// Returns the groups of all runs of this user, including live ones and those recorded in other
/// state directories.
#[must_use]
pub fn run_groups(host: &Host) -> Vec<RunGroup> {
    let mounts = host.mounts.iter().filter(|mount| is_of_groups(mount));
    let mut found: Vec<RunGroup> = mounts
        .flat_map(|mount| groups_beneath(&mount.path, host.uid))
        .collect();
    // The same controllers may be mounted at several places.
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found.dedup();
    found
}

/// Returns whether control groups are mounted there and visible: a later mount hides an earlier
/// one at the same place.
fn is_of_groups(mount: &MountPoint) -> bool {
    const MAGIC: i64 = 0x27_e0eb;
    const MAGIC_UNIFIED: i64 = 0x6367_7270;
    let magic = match mount.kind.as_str() {
        "cgroup2" => MAGIC_UNIFIED,
        "cgroup" if CONTROLLERS.iter().any(|one| mount.has_option(one)) => MAGIC,
        _ => return false,
    };
    rustix::fs::statfs(&mount.path).is_ok_and(|facts| facts.f_type == magic)
}

/// Returns the groups of runs beneath a directory, on the same file system, that belong to a
/// user.
pub(crate) fn groups_beneath(top: &Path, uid: u32) -> Vec<RunGroup> {
    let Ok(device) = fs::metadata(top).map(|facts| facts.dev()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut waiting = vec![top.to_path_buf()];
    for _ in 0..LOOKED_AT_MAX {
        let Some(directory) = waiting.pop() else {
            break;
        };
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name();
            let run = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let Some(run) = run.and_then(|run| RunId::parse(run).ok()) else {
                waiting.push(entry.path());
                continue;
            };
            let is_own = |facts: fs::Metadata| facts.uid() == uid && facts.dev() == device;
            if entry.metadata().is_ok_and(is_own) {
                let path = entry.path();
                found.push(RunGroup { run, path });
            }
        }
    }
    found
}
