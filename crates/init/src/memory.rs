//! Memory of a whole sandbox, added up where no control group counts it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use atoll_sys::descriptor;

const PAGE_BYTES: u64 = 4096;
const BLOCK_BYTES: u64 = 512;

/// Adds up memory, bytes. A figure that cannot be had counts as more than any
/// limit: a program that keeps process 1 from looking has a reason.
///
/// What processes have resident counts shared pages once for each: quick to read
/// and never too little. Only above the limit the exact shares are read. Memory
/// that no process maps (memfd_create(2), System V segments) takes longer to find
/// and is looked for where `thorough`.
///
/// In a fence only the processes below this one count; there is no memory that files
/// are written to, and System V segments cannot be made. `elsewhere` is what files in
/// memory that cannot be found here may hold besides.
pub(crate) fn in_use(limit_bytes: u64, thorough: bool, fenced: bool, elsewhere: u64) -> u64 {
    let pids = if fenced { below() } else { pids() };
    let Some(pids) = pids else { return u64::MAX };
    let (room, segments) = if fenced {
        (0, 0)
    } else {
        let room = descriptor::bytes_in_use(c"/tmp").unwrap_or(u64::MAX);
        (room, segment_bytes().unwrap_or(0))
    };
    let resident: u64 = pids.iter().filter_map(|pid| resident_bytes(pid)).sum();
    let in_files = |files: &BTreeMap<(u64, u64), u64>| {
        let found = files.values().sum::<u64>().saturating_add(segments);
        found.saturating_add(room).max(elsewhere)
    };
    let files = if thorough {
        files_in_memory(&pids)
    } else {
        BTreeMap::new()
    };
    let at_most = resident.saturating_add(in_files(&files));
    if at_most <= limit_bytes {
        return at_most;
    }
    let files = files_in_memory(&pids);
    let share = |pid: &String| {
        // A process that hides its maps is taken at its resident size.
        share_bytes(pid, &files).or_else(|| resident_bytes(pid))
    };
    let shares: u64 = pids.iter().filter_map(share).sum();
    shares.saturating_add(in_files(&files))
}

/// What files in memory hold on the whole machine (proc_meminfo(5)), bytes: whoever may
/// mount can hide its own from everybody. Those of ramfs are among what is never evicted.
pub(crate) fn in_files_of_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let of = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| kilobytes(line.strip_prefix(name)?))
    };
    Some(of("Shmem:")?.saturating_add(of("Unevictable:")?))
}

fn below() -> Option<Vec<String>> {
    let pids = atoll_fence::descendants();
    Some(pids.iter().map(u32::to_string).collect())
}

fn pids() -> Option<Vec<String>> {
    let entries = fs::read_dir("/proc").ok()?;
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    Some(
        names
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
            .collect(),
    )
}

fn resident_bytes(pid: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    Some(text.split(' ').nth(1)?.parse::<u64>().ok()? * PAGE_BYTES)
}

/// A process's part of the memory that it maps (proc_pid_smaps(5)): pages that
/// several have count in parts. Files that are mapped can be dropped at any time
/// and are no use of memory; those in memory are counted elsewhere.
fn share_bytes(pid: &str, files: &BTreeMap<(u64, u64), u64>) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let own = rollup
        .lines()
        .find_map(|line| kilobytes(line.strip_prefix("Pss_Anon:")?))?;
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?;
    let mut shared = 0;
    let mut counts = false;
    for line in maps.lines() {
        if let Some(share) = line.strip_prefix("Pss:") {
            shared += if counts { kilobytes(share)? } else { 0 };
        } else if is_mapping(line) {
            let inode = line
                .split_whitespace()
                .nth(4)
                .and_then(|word| word.parse::<u64>().ok());
            let known = files.keys().any(|(_, known)| Some(*known) == inode);
            counts = line.contains(" /dev/zero (deleted)") || (line.contains(" /memfd:") && !known);
        }
    }
    Some(own + shared)
}

/// Whether a line begins a mapping: `start-end rights offset device inode path`.
fn is_mapping(line: &str) -> bool {
    let first = line.split(' ').next().unwrap_or_default();
    first.contains('-') && !first.contains(':')
}

fn kilobytes(text: &str) -> Option<u64> {
    Some(text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Open files without a name, by device and inode.
fn files_in_memory(pids: &[String]) -> BTreeMap<(u64, u64), u64> {
    let mut files = BTreeMap::new();
    for pid in pids {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for path in descriptors.flatten().map(|entry| entry.path()) {
            let is_memory = fs::read_link(&path).is_ok_and(|target| {
                target
                    .as_os_str()
                    .as_encoded_bytes()
                    .starts_with(b"/memfd:")
            });
            if let (true, Ok(facts)) = (is_memory, fs::metadata(&path)) {
                files.insert((facts.dev(), facts.ino()), facts.blocks() * BLOCK_BYTES);
            }
        }
    }
    files
}

/// System V segments (proc_sysvipc(5)).
fn segment_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/sysvipc/shm").ok()?;
    let mut lines = text.lines();
    let column = lines
        .next()?
        .split_whitespace()
        .position(|name| name == "rss")?;
    let resident = |line: &str| line.split_whitespace().nth(column)?.parse::<u64>().ok();
    Some(lines.filter_map(resident).sum())
}
