//! The mechanism that enforces each limit: of a run, for its record, and as a forecast.

use atoll_model::{Enforcement, Mode};

use crate::groups::{self, Groups};
use crate::held::Held;
use crate::native::Native;

/// Lists what enforces each limit of a run, for the record.
pub(crate) fn enforcement(groups: Option<&Groups>, native: &Native<'_>) -> Vec<Enforcement> {
    held_by(
        groups.map(Groups::name),
        groups.map_or("none", Groups::cpu_by),
        Swap::of(groups),
        native.placement.mode(),
        native.host.unmapped,
    )
}

/// Lists what would enforce each limit of a run, as its record would; makes no group.
#[must_use]
pub fn forecast(held: &Held, mode: Mode, unmapped: bool) -> Vec<Enforcement> {
    let (by_groups, cpu) = match held {
        Held::Nowhere(_) => (None, "none"),
        Held::Unified(place) => (
            Some(groups::UNIFIED),
            if place.cpu { groups::UNIFIED } else { "none" },
        ),
        Held::Separate { cpu, .. } => (
            Some(groups::SEPARATE),
            cpu.as_ref().map_or("none", |_| groups::SEPARATE),
        ),
    };
    held_by(by_groups, cpu, Swap::forecast(held), mode, unmapped)
}

fn held_by(
    by_groups: Option<&str>,
    cpu: &str,
    swap: Swap,
    mode: Mode,
    unmapped: bool,
) -> Vec<Enforcement> {
    let swap = match swap {
        Swap::ByGroups => by_groups.unwrap_or("none"),
        Swap::HostHasNone => "host without swap",
        Swap::NotHeld => "none",
    };
    // A fence has no namespace in which its processes would be counted alone, and no
    // memory of its own to write to: its directories count as disk.
    let (processes, tmp) = match mode {
        Mode::Fence => ("rlimit, in part", "none"),
        Mode::Full => ("rlimit", "tmpfs"),
    };
    let one = |limit: &str, by: &str| Enforcement {
        limit: limit.to_owned(),
        by: by.to_owned(),
    };
    let mut all = vec![
        one("memory", by_groups.unwrap_or("supervisor, in part")),
        one("swap", swap),
        one("processes", by_groups.unwrap_or(processes)),
        one("cpu", cpu),
        one("open-files", "rlimit"),
        one("tmp", tmp),
        one("disk", "supervisor, in part"),
        one("inodes", "supervisor, in part"),
        one("wall-clock", "supervisor"),
        one("idle", "supervisor"),
    ];
    if unmapped {
        // Of what else holds a program, the one thing that is missing.
        all.push(one(USER_NAMESPACE, "none"));
    }
    all
}

/// The record's name for a missing user namespace.
pub const USER_NAMESPACE: &str = "user-namespace";

/// The mechanism that limits swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swap {
    /// The sandbox's control group.
    ByGroups,
    /// None is needed: the host has no swap.
    HostHasNone,
    /// None: the limit is not enforced.
    NotHeld,
}

impl Swap {
    pub(crate) fn of(groups: Option<&Groups>) -> Self {
        Self::read(groups.is_some_and(Groups::counts_swap))
    }

    /// Predicts the mechanism before a group is made.
    fn forecast(held: &Held) -> Self {
        Self::read(match held {
            Held::Nowhere(_) => false,
            // The top group, where root's are made, has no such file itself.
            Held::Unified(_) => !std::fs::read_to_string("/proc/cmdline")
                .is_ok_and(|words| words.split_whitespace().any(|word| word == "swapaccount=0")),
            Held::Separate { memory, .. } => memory.join("memory.memsw.limit_in_bytes").exists(),
        })
    }

    fn read(counted: bool) -> Self {
        let swaps = (!counted)
            .then(|| std::fs::read_to_string("/proc/swaps").ok())
            .flatten();
        Self::from_facts(counted, swaps.as_deref())
    }

    /// Decides from the facts. `swaps` is the table of proc_swaps(5); without it there may be
    /// any.
    pub(crate) fn from_facts(counted: bool, swaps: Option<&str>) -> Self {
        match (counted, swaps) {
            (true, _) => Self::ByGroups,
            (false, Some(table)) if table.lines().nth(1).is_none() => Self::HostHasNone,
            (false, _) => Self::NotHeld,
        }
    }
}
