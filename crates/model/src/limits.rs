use std::fmt;
use std::time::Duration;

use crate::quantity::{InvalidQuantity, format_bytes, parse_bytes, parse_duration};

/// Resource limits of one execution. `None` means no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of all processes together, page cache and tmpfs included, bytes.
    pub memory_bytes: u64,
    /// Swap in addition, bytes.
    pub swap_bytes: u64,
    /// Processes and threads at once.
    pub processes: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// Bytes written to copy-on-write layers.
    pub disk_bytes: u64,
    /// Files and directories created in copy-on-write layers.
    pub inodes: u64,
    /// Bytes that can be written to memory: the private /tmp, /dev/shm and the home together.
    pub tmp_bytes: u64,
    /// Processor time per time, in thousandths of a processor (1,500 = one and a half).
    pub cpu_millis: Option<u64>,
    /// The time from start to end.
    pub wall_clock: Option<Duration>,
    /// The time without output or input.
    pub idle: Option<Duration>,
    /// The output of each stream that is kept, bytes; all of it is still shown.
    pub output_bytes: u64,
    /// Bytes that its connections carry, in both directions together.
    pub network_bytes: Option<u64>,
    /// Bytes that its connections carry a second, in each direction.
    pub network_rate: Option<u64>,
    /// Connections, and requests in flight, at once.
    pub connections: Option<u64>,
    /// Starts even where this host cannot enforce one of these limits; recorded.
    pub dangerous_unenforced_limits: bool,
}

/// The name of a limit, as written in profiles, on the command line and in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum LimitKey {
    Memory,
    Swap,
    Processes,
    OpenFiles,
    Disk,
    Inodes,
    Tmp,
    Cpu,
    WallClock,
    Idle,
    Output,
    NetworkBytes,
    NetworkRate,
    Connections,
}

/// Splits `KEY=VALUE`, as given to `--limit`.
///
/// # Errors
/// [`InvalidLimit::Form`] or [`InvalidLimit::Unknown`].
pub fn parse_limit(text: &str) -> Result<(LimitKey, &str), InvalidLimit> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| InvalidLimit::Form(text.to_owned()))?;
    Ok((LimitKey::parse(key)?, value))
}

/// A limit that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLimit {
    /// No limit has this name.
    #[error("there is no limit {0:?}; the limits are {known}", known = LimitKey::names().join(", "))]
    Unknown(String),
    /// The text is not `KEY=VALUE`.
    #[error("{0:?} is not of the form KEY=VALUE, as memory=2GiB")]
    Form(String),
    /// The value is not usable for that limit.
    #[error("limit {key}: {why}")]
    Value {
        /// The limit.
        key: LimitKey,
        /// The reason, in words.
        why: String,
    },
}

impl LimitKey {
    /// All limits, in the order in which they are shown.
    pub const ALL: [Self; 14] = [
        Self::Memory,
        Self::Swap,
        Self::Processes,
        Self::OpenFiles,
        Self::Disk,
        Self::Inodes,
        Self::Tmp,
        Self::Cpu,
        Self::WallClock,
        Self::Idle,
        Self::Output,
        Self::NetworkBytes,
        Self::NetworkRate,
        Self::Connections,
    ];

    /// Returns the name as written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Swap => "swap",
            Self::Processes => "processes",
            Self::OpenFiles => "open-files",
            Self::Disk => "disk",
            Self::Inodes => "inodes",
            Self::Tmp => "tmp",
            Self::Cpu => "cpu",
            Self::WallClock => "wall-clock",
            Self::Idle => "idle",
            Self::Output => "output",
            Self::NetworkBytes => "network-bytes",
            Self::NetworkRate => "network-rate",
            Self::Connections => "connections",
        }
    }

    /// Returns all names.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|key| key.name()).collect()
    }

    /// Returns the limit of that name.
    ///
    /// # Errors
    /// [`InvalidLimit::Unknown`].
    pub fn parse(name: &str) -> Result<Self, InvalidLimit> {
        Self::ALL
            .into_iter()
            .find(|key| key.name() == name)
            .ok_or_else(|| InvalidLimit::Unknown(name.to_owned()))
    }
}

impl fmt::Display for LimitKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl Limits {
    /// Returns the defaults of `atoll run` on a host with this much memory.
    #[must_use]
    pub fn for_run(host_memory_bytes: u64) -> Self {
        Self {
            memory_bytes: host_memory_bytes / 4 * 3,
            swap_bytes: 0,
            processes: 4_096,
            open_files: 65_536,
            disk_bytes: 20 << 30,
            inodes: 2_000_000,
            tmp_bytes: host_memory_bytes / 4,
            cpu_millis: None,
            wall_clock: None,
            idle: None,
            output_bytes: 64 << 20,
            network_bytes: None,
            network_rate: None,
            connections: None,
            dangerous_unenforced_limits: false,
        }
    }

    /// Sets one limit from its text. `memory` and `tmp` also take a percentage
    /// of the host's memory (`50%`); `cpu` takes processors (`1.5`); `wall-clock`
    /// and `idle` take a duration; `network-rate` bytes a second (`1MiB/s`); those that
    /// can be absent take `none`.
    ///
    /// # Errors
    /// [`InvalidLimit::Value`] when the value is of another kind, zero where zero
    /// would let nothing start, or too large.
    pub fn set(
        &mut self,
        key: LimitKey,
        value: &str,
        host_memory_bytes: u64,
    ) -> Result<(), InvalidLimit> {
        let wrong = |why: String| InvalidLimit::Value { key, why };
        let quantity = |error: InvalidQuantity| wrong(error.to_string());
        let at_least = |number: u64, least: u64, shown: fn(u64) -> String| {
            if number < least {
                let (number, least) = (shown(number), shown(least));
                Err(wrong(format!(
                    "{number} is too small to start anything; at least {least}"
                )))
            } else {
                Ok(number)
            }
        };
        let bytes = |least: u64| match value.strip_suffix('%') {
            None => at_least(parse_bytes(value).map_err(quantity)?, least, format_bytes),
            Some(percent) => match percent.parse::<u64>() {
                Ok(percent @ 1..=100) => {
                    at_least(host_memory_bytes / 100 * percent, least, format_bytes)
                }
                _ => Err(wrong(format!(
                    "{value:?} is not a percentage from 1% to 100%"
                ))),
            },
        };
        let count = |least: u64| match value.replace(['_', ','], "").parse::<u64>() {
            Ok(number) => at_least(number, least, |number| number.to_string()),
            Err(_) => Err(wrong(format!("{value:?} is not a whole number"))),
        };
        let duration = || match value {
            "none" => Ok(None),
            _ => parse_duration(value).map(Some).map_err(quantity),
        };
        let unless_none = |amount: &dyn Fn() -> Result<u64, InvalidLimit>| match value {
            "none" => Ok(None),
            _ => amount().map(Some),
        };
        let rate = || {
            let amount = value.strip_suffix("/s").unwrap_or(value);
            at_least(parse_bytes(amount).map_err(quantity)?, 1, format_bytes)
        };
        match key {
            LimitKey::Memory => self.memory_bytes = bytes(4 << 20)?,
            LimitKey::Swap => self.swap_bytes = bytes(0)?,
            LimitKey::Processes => self.processes = count(2)?,
            LimitKey::OpenFiles => self.open_files = count(16)?,
            LimitKey::Disk => self.disk_bytes = bytes(0)?,
            LimitKey::Inodes => self.inodes = count(0)?,
            LimitKey::Tmp => self.tmp_bytes = bytes(4_096)?,
            LimitKey::Cpu => self.cpu_millis = parse_processors(value).map_err(wrong)?,
            LimitKey::WallClock => self.wall_clock = duration()?,
            LimitKey::Idle => self.idle = duration()?,
            LimitKey::Output => self.output_bytes = bytes(0)?,
            LimitKey::NetworkBytes => self.network_bytes = unless_none(&|| bytes(1))?,
            LimitKey::NetworkRate => self.network_rate = unless_none(&rate)?,
            LimitKey::Connections => self.connections = unless_none(&|| count(1))?,
        }
        Ok(())
    }

    /// Makes every limit at least as tight as `other`'s: a higher level of settings bounds a lower
    /// one with it.
    pub fn tighten(&mut self, other: &Self) {
        self.memory_bytes = self.memory_bytes.min(other.memory_bytes);
        self.swap_bytes = self.swap_bytes.min(other.swap_bytes);
        self.processes = self.processes.min(other.processes);
        self.open_files = self.open_files.min(other.open_files);
        self.disk_bytes = self.disk_bytes.min(other.disk_bytes);
        self.inodes = self.inodes.min(other.inodes);
        self.tmp_bytes = self.tmp_bytes.min(other.tmp_bytes);
        self.cpu_millis = tighter(self.cpu_millis, other.cpu_millis);
        self.wall_clock = tighter(self.wall_clock, other.wall_clock);
        self.idle = tighter(self.idle, other.idle);
        self.output_bytes = self.output_bytes.min(other.output_bytes);
        self.network_bytes = tighter(self.network_bytes, other.network_bytes);
        self.network_rate = tighter(self.network_rate, other.network_rate);
        self.connections = tighter(self.connections, other.connections);
        self.dangerous_unenforced_limits &= other.dangerous_unenforced_limits;
    }
}

fn tighter<T: Ord>(left: Option<T>, right: Option<T>) -> Option<T> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.min(right)),
        (left, right) => left.or(right),
    }
}

fn parse_processors(value: &str) -> Result<Option<u64>, String> {
    if value == "none" {
        return Ok(None);
    }
    match value.parse::<f64>() {
        Ok(number) if number.is_finite() && (0.01..=4_096.0).contains(&number) => {
            Ok(Some((number * 1_000.0).round() as u64))
        }
        _ => Err(format!(
            "{value:?} is not a number of processors, as 1.5, or none"
        )),
    }
}
