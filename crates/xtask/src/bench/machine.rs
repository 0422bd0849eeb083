//! The machine that the numbers come from.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::Serialize;

use crate::command;

#[derive(Default, Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    processor: String,
    cores: usize,
    kernel: String,
    memory_kib: u64,
    file_system: String,
    /// The versions of the programs that took part.
    programs: Vec<String>,
    revision: String,
}

const PROGRAMS: [[&str; 2]; 7] = [
    ["bwrap", "--version"],
    ["runc", "--version"],
    ["hyperfine", "--version"],
    ["cc", "--version"],
    ["git", "--version"],
    ["tar", "--version"],
    ["rustc", "--version"],
];

pub(crate) fn describe(root: &Path, measured: &Path) -> Result<Machine> {
    let cpus = fs::read_to_string("/proc/cpuinfo")?;
    let memory = fs::read_to_string("/proc/meminfo")?;
    let mut stat = Command::new("stat");
    let file_system = command::output(stat.args(["-f", "-c", "%T"]).arg(measured));
    let mut git = Command::new("git");
    git.arg("-C")
        .arg(root)
        .args(["describe", "--always", "--dirty"]);
    let first = |text: String| text.lines().next().unwrap_or_default().trim().to_owned();
    Ok(Machine {
        date: today()?,
        processor: field(&cpus, "model name").unwrap_or("unknown").to_owned(),
        cores: std::thread::available_parallelism()?.get(),
        kernel: first(fs::read_to_string("/proc/sys/kernel/osrelease")?),
        memory_kib: field(&memory, "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .unwrap_or(0),
        file_system: file_system.map_or_else(|_| "unknown".to_owned(), first),
        programs: PROGRAMS
            .iter()
            .filter_map(|[program, version]| {
                command::output(Command::new(command::find(program)?).arg(version)).ok()
            })
            .map(first)
            .collect(),
        revision: command::output(&mut git).map_or_else(|_| "unknown".to_owned(), first),
    })
}

pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

fn today() -> Result<String> {
    Ok(date(
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    ))
}

/// Returns the day in UTC, as `2026-11-21`.
pub(crate) fn date(seconds: u64) -> String {
    let mut days = seconds / 86_400;
    let mut year = 1970;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", days + 1)
}
