use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Attempt;

/// How one execution ended and what it used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// What it used.
    pub usage: Usage,
    /// How each limit was held, for the record.
    pub enforcement: Vec<Enforcement>,
    /// What it tried in order to get out, in the order in which it first did.
    pub attempts: Vec<Attempt>,
}

/// How an execution ended.
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
    /// A limit ended it.
    Limited {
        /// Which.
        limit: LimitHit,
    },
    /// The program was not found inside.
    NotFound,
    /// The program was found but could not be executed.
    NotExecutable,
    /// Atoll itself ended before it could see how the program did.
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
}

/// What an execution used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// From the program's start to its end.
    pub wall_clock: Duration,
    /// Processor time of all processes, user and system.
    pub cpu: Duration,
    /// The most memory at once, bytes: of the whole sandbox where a cgroup
    /// counts it, else of its largest process.
    pub memory_peak_bytes: u64,
    /// Whether the figure above is the whole sandbox's.
    pub memory_is_whole: bool,
    /// How many processes the kernel ended because memory ran out, where a cgroup
    /// counts them.
    pub memory_kills: u64,
    /// How often a new process was refused because there were too many, where a
    /// cgroup counts it.
    pub processes_refused: u64,
}

/// How a limit is held on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// The limit's name.
    pub limit: String,
    /// By what: `cgroup-v2`, `cgroup-v1`, `rlimit`, `tmpfs`, `supervisor`, `none`.
    pub by: String,
}

impl Ending {
    /// The exit status that a shell sees: the program's own, 124 for a time
    /// limit, 126 and 127 as shells do, 128 + n for a signal, 125 for Atoll's
    /// own failure.
    #[must_use]
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Exited { status } => status,
            Self::Signalled { signal } => 128_u8.saturating_add(signal),
            Self::Limited {
                limit: LimitHit::WallClock | LimitHit::Idle,
            } => 124,
            Self::Limited {
                limit: LimitHit::Memory | LimitHit::Disk | LimitHit::Inodes,
            } => 137,
            Self::NotFound => 127,
            Self::NotExecutable => 126,
            Self::Interrupted => 125,
        }
    }
}
