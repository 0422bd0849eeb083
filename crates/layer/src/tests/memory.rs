//! The memory that an undo takes.

use std::fs;
use std::path::Path;

use super::modes::pause;
use super::support::*;
use crate::*;

/// Undoes as a child process, and records the most memory that it has had.
pub fn undo_measured(root: &Path) {
    undo(&root.join("journal"), false).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let peak = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib = peak.trim().strip_suffix(" kB").unwrap();
    fs::write(root.join("peak"), kib).unwrap();
}

/// Returns the memory of an undo of that many changed files, in KiB.
fn peak(files: usize) -> u64 {
    let names: Vec<String> = (0..files)
        .map(|at| format!("d{}/f{at}", at / 500))
        .collect();
    let before: Vec<Edit> = names.iter().map(|name| write(name, "old\n")).collect();
    let edits: Vec<Edit> = names.iter().map(|name| append(name, "new\n")).collect();
    let (mut stand, _) = Stand::copy(&before, &edits);
    stand.paths.put_back = Some(stand.place.path().join("put-back"));
    pause();
    stand.apply_all();
    let root = stand.place.path();
    let mut child = as_child(std::process::Command::new("env"), "undo-measured", root);
    assert!(child.output().unwrap().status.success());
    fs::read_to_string(root.join("peak"))
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn undo_of_many_files_takes_little_memory() {
    let (few, many) = (peak(100), peak(5_100));
    let bytes_per_file = many.saturating_sub(few) * 1024 / 5_000;
    assert!(bytes_per_file < 1_500, "{bytes_per_file} for each file");
}
