//! The processor time and memory of processes, as the kernel counts them.

use std::fs;

use anyhow::{Context, Result};

/// The ticks of a second, the unit of times in `/proc` (proc(5), `sysconf(_SC_CLK_TCK)`).
const TICKS: f64 = 100.0;

/// The name of the egress process.
const CARRIER: &str = "atoll-egress";

/// One line of `/proc/PID/stat`.
struct Status {
    name: String,
    parent: u32,
    /// The ticks of the process and of its children that have ended, in user and kernel mode.
    ticks: u64,
}

fn status(process: u32) -> Option<Status> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name is in parentheses and can hold some.
    let (before, after) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut fields = after.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let ticks = fields.skip(9).take(4);
    Some(Status {
        name: name.to_owned(),
        parent,
        ticks: ticks.map(|text| text.parse().unwrap_or(0_u64)).sum(),
    })
}

/// Returns this process and all below it.
pub(crate) fn with_descendants(process: u32) -> Vec<u32> {
    let all: Vec<(u32, Status)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|id| Some((id, status(id)?)))
        .collect();
    let mut found = vec![process];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        let below = all.iter().filter(|(_, status)| status.parent == parent);
        found.extend(below.map(|(id, _)| *id));
        at += 1;
    }
    found
}

/// Returns the egress process of the sandbox that this process has made.
pub(crate) fn carrier(process: u32) -> Result<u32> {
    let mut all = with_descendants(process).into_iter();
    let is_carrier = |id: &u32| status(*id).is_some_and(|status| status.name == CARRIER);
    all.find(is_carrier)
        .with_context(|| format!("there is no {CARRIER}"))
}

/// Returns the processor time that these have used, seconds.
pub(crate) fn seconds(processes: &[u32]) -> f64 {
    let ticks = processes.iter().filter_map(|id| status(*id));
    let ticks: u64 = ticks.map(|status| status.ticks).sum();
    u32::try_from(ticks).map_or(f64::NAN, f64::from) / TICKS
}

/// The memory of a process, KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) resident: f64,
    pub(crate) proportional: f64,
}

pub(crate) fn memory(process: u32) -> Result<Memory> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let number = |name: &str| -> Result<f64> {
        let text = crate::bench::machine::field(&text, name);
        let number = text.and_then(|text| text.split_whitespace().next()?.parse().ok());
        number.with_context(|| format!("{path} has no {name}"))
    };
    Ok(Memory {
        resident: number("Rss")?,
        proportional: number("Pss")?,
    })
}
