use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Attempt;

/// The result of one execution, and the resources it used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The way that it ended.
    pub ending: Ending,
    /// The resources that it used.
    pub usage: Usage,
    /// The mechanism that enforced each limit, for the record.
    pub enforcement: Vec<Enforcement>,
    /// Its violations, in the order of their first occurrence.
    pub attempts: Vec<Attempt>,
}

/// The way that an execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "how")]
pub enum Ending {
    /// The program returned this status.
    Exited {
        /// The status, 0 to 255.
        status: u8,
    },
    /// A signal ended the program.
    Signalled {
        /// The signal's number.
        signal: u8,
    },
    /// A limit ended the execution.
    Limited {
        /// The limit.
        limit: LimitHit,
    },
    /// The program was not found in the sandbox.
    NotFound,
    /// The program was found but could not be executed.
    NotExecutable,
    /// Atoll itself ended before it could observe the program's end.
    Interrupted,
}

/// A limit that ended an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum LimitHit {
    WallClock,
    Idle,
    Memory,
    Disk,
    Inodes,
    Volume,
}

/// The resources that an execution used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The time from the program's start to its end.
    pub wall_clock: Duration,
    /// Processor time of all processes, user and system.
    pub cpu: Duration,
    /// The highest memory use, bytes: of the whole sandbox if a cgroup counts it, else of its
    /// largest process.
    pub memory_peak_bytes: u64,
    /// Set when `memory_peak_bytes` is of the whole sandbox.
    pub memory_is_whole: bool,
    /// The number of processes that the kernel ended for lack of memory, where a cgroup counts
    /// them.
    pub memory_kills: u64,
    /// The number of new processes refused because there were too many, where a cgroup counts them.
    pub processes_refused: u64,
}

/// The enforcement of a limit on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// The limit's name.
    pub limit: String,
    /// The mechanism: `cgroup-v2`, `cgroup-v1`, `rlimit`, `tmpfs`, `supervisor`, `none`.
    pub by: String,
}

impl Ending {
    /// Returns whether the program was ended in the middle of its work, by a signal or a limit.
    #[must_use]
    pub fn is_cut_off(self) -> bool {
        match self {
            Self::Signalled { .. } | Self::Limited { .. } | Self::Interrupted => true,
            Self::Exited { .. } | Self::NotFound | Self::NotExecutable => false,
        }
    }

    /// Returns the exit status that a shell sees: the program's own, 124 for a time limit, 126 and
    /// 127 as shells do, 128 + n for a signal, 125 for Atoll's own failure.
    #[must_use]
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Exited { status } => status,
            Self::Signalled { signal } => 128_u8.saturating_add(signal),
            Self::Limited {
                limit: LimitHit::WallClock | LimitHit::Idle,
            } => 124,
            Self::Limited {
                limit: LimitHit::Memory | LimitHit::Disk | LimitHit::Inodes | LimitHit::Volume,
            } => 137,
            Self::NotFound => 127,
            Self::NotExecutable => 126,
            Self::Interrupted => 125,
        }
    }
}
