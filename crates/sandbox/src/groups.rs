//! The control groups of one sandbox (cgroups(7)): created, limited, read, removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use atoll_model::{Limits, RunId};

use crate::held::{CONTROLLERS, First, Held, ON, Unified};

/// The sibling group for Atoll's own processes, if they had to leave the delegated one. It
/// stays: its members cannot remove it.
const OWN_GROUP: &str = "atoll";
const ESRCH: i32 = 3;

/// The records' name for groups of version 2.
pub(crate) const UNIFIED: &str = "cgroup-v2";
/// The records' name for groups of version 1.
pub(crate) const SEPARATE: &str = "cgroup-v1";
/// The weight of a sandbox, which leaves the larger part of a busy processor to the person's
/// own programs: these have 100, or 1,024 shares in version 1. A sandbox also counts as one,
/// however many sessions it has.
const LOW_WEIGHT: &str = "50";
const LOW_SHARES: &str = "512";

/// The divisor of the memory limit that internet sockets may use in addition, in version 1.
const SOCKETS_SHARE: u64 = 4;

/// The exec server, and the process that waits to become an exec: no part of a program's limit.
pub(crate) const SERVER_PROCESSES: u64 = 2;

/// Returns the number of processes that a sandbox has at most.
fn processes(limits: &Limits) -> u64 {
    limits.processes.saturating_add(SERVER_PROCESSES)
}

/// The groups of one sandbox; removed by [`Groups::remove`].
#[derive(Debug)]
pub(crate) struct Groups {
    memory: PathBuf,
    all: Vec<PathBuf>,
    unified: Option<Unified>,
    limits_cpu: bool,
}

/// The counters of a sandbox's groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) memory_peak_bytes: Option<u64>,
    pub(crate) memory_kills: u64,
    pub(crate) processes_refused: u64,
    pub(crate) cpu_us: Option<u64>,
}

impl Groups {
    /// Plans the groups of a run without making them; `None` if none can be made.
    pub(crate) fn plan(held: &Held, run: &RunId) -> Option<Self> {
        let name = group_name(run);
        let groups = match held {
            Held::Nowhere(_) => return None,
            Held::Unified(unified) => {
                let group = unified.parent.join(&name);
                Self {
                    memory: group.clone(),
                    all: vec![group],
                    limits_cpu: unified.cpu,
                    unified: Some(unified.clone()),
                }
            }
            Held::Separate { memory, pids, cpu } => {
                let all = [Some(memory), Some(pids), cpu.as_ref()];
                let all: Vec<PathBuf> = all
                    .into_iter()
                    .flatten()
                    .map(|parent| parent.join(&name))
                    .collect();
                Self {
                    memory: memory.join(&name),
                    all,
                    limits_cpu: cpu.is_some(),
                    unified: None,
                }
            }
        };
        Some(groups)
    }

    /// Moves Atoll's own processes out of the way if necessary: a group passes no controllers
    /// on while it has processes of its own. To be called before the launcher has children,
    /// which would have to move too.
    pub(crate) fn leave(&self, processes: impl Iterator<Item = u32>) -> io::Result<()> {
        let Some(unified) = &self.unified else {
            return Ok(());
        };
        match unified.first {
            First::Nothing | First::SwitchOn => return Ok(()),
            First::Leave => {}
        }
        let own = unified.parent.join(OWN_GROUP);
        match fs::create_dir(&own) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for pid in processes {
            match write_existing(&own.join("cgroup.procs"), &pid.to_string()) {
                // One that has ended meanwhile is out of the way.
                Err(error) if error.raw_os_error() == Some(ESRCH) => {}
                moved => moved?,
            }
        }
        Ok(())
    }

    /// Makes the groups; none is left if that fails.
    pub(crate) fn make(&self, limits: &Limits) -> io::Result<()> {
        let made = self.create(limits);
        if made.is_err() {
            self.remove();
        }
        made
    }

    fn create(&self, limits: &Limits) -> io::Result<()> {
        if let Some(unified) = &self.unified {
            match unified.first {
                First::Nothing => {}
                First::SwitchOn | First::Leave => switch_on(&unified.parent)?,
            }
        }
        for directory in &self.all {
            fs::create_dir(directory)?;
        }
        if self.unified.is_some() {
            self.limit_unified(limits)
        } else {
            self.limit_separate(limits)
        }
    }

    fn limit_unified(&self, limits: &Limits) -> io::Result<()> {
        self.set("memory.max", &limits.memory_bytes.to_string())?;
        self.set_where_known("memory.swap.max", &limits.swap_bytes.to_string())?;
        self.set_where_known("memory.oom.group", "1")?;
        self.set("pids.max", &processes(limits).to_string())?;
        match limits.cpu_millis.filter(|_| self.limits_cpu) {
            Some(millis) => self.set("cpu.max", &format!("{} 100000", millis * 100)),
            None => self.set_where_known("cpu.weight", LOW_WEIGHT),
        }
    }

    fn limit_separate(&self, limits: &Limits) -> io::Result<()> {
        let memory = limits.memory_bytes;
        self.set("memory.limit_in_bytes", &memory.to_string())?;
        let with_swap = memory.saturating_add(limits.swap_bytes);
        self.set_where_known("memory.memsw.limit_in_bytes", &with_swap.to_string())?;
        // What internet sockets hold is counted apart here, and only where it is limited.
        let sockets = memory / SOCKETS_SHARE;
        self.set_where_known("memory.kmem.tcp.limit_in_bytes", &sockets.to_string())?;
        self.set("pids.max", &processes(limits).to_string())?;
        match limits.cpu_millis {
            _ if !self.limits_cpu => Ok(()),
            None => self.set("cpu.shares", LOW_SHARES),
            Some(millis) => {
                self.set("cpu.cfs_period_us", "100000")?;
                self.set("cpu.cfs_quota_us", &(millis * 100).to_string())
            }
        }
    }

    /// Changes limits of groups that are in use.
    pub(crate) fn resize(
        &self,
        memory_bytes: Option<u64>,
        cpu_millis: Option<u64>,
    ) -> io::Result<()> {
        if cpu_millis.is_some() && !self.limits_cpu {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if let Some(memory) = memory_bytes {
            // The kernel would end processes for it.
            if self.memory_now().is_none_or(|used| used > memory) {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            self.resize_memory(memory)?;
        }
        match cpu_millis {
            None => Ok(()),
            Some(millis) if self.unified.is_some() => {
                self.set("cpu.max", &format!("{} 100000", millis * 100))
            }
            Some(millis) => {
                self.set("cpu.cfs_period_us", "100000")?;
                self.set("cpu.cfs_quota_us", &(millis * 100).to_string())
            }
        }
    }

    fn resize_memory(&self, memory: u64) -> io::Result<()> {
        let value = memory.to_string();
        if self.unified.is_some() {
            return self.set("memory.max", &value);
        }
        const MEMORY: &str = "memory.limit_in_bytes";
        const WITH_SWAP: &str = "memory.memsw.limit_in_bytes";
        let number = |file: &str| -> Option<u64> {
            let text = fs::read_to_string(self.memory.join(file)).ok()?;
            text.trim().parse().ok()
        };
        let now = number(MEMORY).ok_or(io::ErrorKind::InvalidData)?;
        let swap = number(WITH_SWAP).map_or(0, |both| both.saturating_sub(now));
        let both = memory.saturating_add(swap).to_string();
        // At no time is it more than memory and swap together, which the kernel refuses.
        if memory > now {
            self.set_where_known(WITH_SWAP, &both)?;
            self.set(MEMORY, &value)?;
        } else {
            self.set(MEMORY, &value)?;
            self.set_where_known(WITH_SWAP, &both)?;
        }
        let sockets = memory / SOCKETS_SHARE;
        self.set_where_known("memory.kmem.tcp.limit_in_bytes", &sockets.to_string())
    }

    /// Writes a value into the group that has this file.
    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        let controller = file.split('.').next().unwrap_or_default();
        let directory = match controller {
            _ if self.unified.is_some() => self.all.first(),
            "memory" => self.all.first(),
            "pids" => self.all.get(1),
            _ => self.all.get(2),
        };
        let directory = directory.ok_or(io::ErrorKind::NotFound)?;
        write_existing(&directory.join(file), value)
    }

    /// Writes a value into a file that some kernels lack.
    fn set_where_known(&self, file: &str, value: &str) -> io::Result<()> {
        match self.set(file, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Returns whether the kernel counts swap for these groups; they must exist.
    pub(crate) fn counts_swap(&self) -> bool {
        let file = if self.unified.is_some() {
            "memory.swap.max"
        } else {
            "memory.memsw.limit_in_bytes"
        };
        self.memory.join(file).exists()
    }

    /// Returns the directory to start in, in version 2.
    pub(crate) fn unified(&self) -> Option<&Path> {
        self.all
            .first()
            .filter(|_| self.unified.is_some())
            .map(PathBuf::as_path)
    }

    /// Returns the `tasks` files to join, in version 1.
    pub(crate) fn tasks(&self) -> Vec<PathBuf> {
        if self.unified.is_some() {
            return Vec::new();
        }
        self.all
            .iter()
            .map(|directory| directory.join("tasks"))
            .collect()
    }

    /// Returns all directories.
    pub(crate) fn directories(&self) -> &[PathBuf] {
        &self.all
    }

    /// Returns the name of the version that enforces the limits.
    pub(crate) fn name(&self) -> &'static str {
        if self.unified.is_some() {
            UNIFIED
        } else {
            SEPARATE
        }
    }

    /// Returns the name of the version that limits processor time, or `none`.
    pub(crate) fn cpu_by(&self) -> &'static str {
        if self.limits_cpu { self.name() } else { "none" }
    }

    /// Returns whether the limits still exist: a controller that is switched off above takes
    /// its limit along, without notice.
    pub(crate) fn hold(&self) -> bool {
        let file = |name: &str| self.all.iter().any(|group| group.join(name).exists());
        let cpu = !self.limits_cpu || file("cpu.max");
        self.unified.is_none() || (file("memory.max") && file("pids.max") && cpu)
    }

    /// Returns the usage so far.
    pub(crate) fn counted(&self) -> Counted {
        let number = |file: &str| -> Option<u64> {
            fs::read_to_string(self.memory.join(file))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        let field = |file: &str, name: &str| -> Option<u64> {
            let text = fs::read_to_string(self.memory.join(file)).ok()?;
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        let refused = |group: &PathBuf| -> Option<u64> {
            let text = fs::read_to_string(group.join("pids.events")).ok()?;
            let counts = text.lines().find_map(|line| line.strip_prefix("max "));
            counts?.trim().parse().ok()
        };
        // Version 1 has it where `cpu` and `cpuacct` are one hierarchy, in nanoseconds.
        let spent_us = |group: &PathBuf| -> Option<u64> {
            let text = fs::read_to_string(group.join("cpuacct.usage")).ok()?;
            Some(text.trim().parse::<u64>().ok()? / 1_000)
        };
        let processes_refused = self.all.iter().find_map(refused).unwrap_or(0);
        if self.unified.is_some() {
            Counted {
                processes_refused,
                memory_peak_bytes: number("memory.peak"),
                memory_kills: field("memory.events", "oom_kill ").unwrap_or(0),
                cpu_us: field("cpu.stat", "usage_usec "),
            }
        } else {
            Counted {
                processes_refused,
                memory_peak_bytes: number("memory.max_usage_in_bytes"),
                memory_kills: field("memory.oom_control", "oom_kill ").unwrap_or(0),
                cpu_us: self.all.iter().find_map(spent_us),
            }
        }
    }

    /// Returns a directory that lists the processes.
    pub(crate) fn directory(&self) -> PathBuf {
        self.memory.clone()
    }

    /// Returns the memory in use now, bytes.
    pub(crate) fn memory_now(&self) -> Option<u64> {
        let file = match self.unified {
            Some(_) => "memory.current",
            None => "memory.usage_in_bytes",
        };
        let text = fs::read_to_string(self.memory.join(file)).ok()?;
        text.trim().parse().ok()
    }

    /// Removes the groups; their processes must be gone.
    pub(crate) fn remove(&self) {
        for directory in &self.all {
            let _ = remove_when_free(directory);
        }
    }
}

/// Switches the controllers on for the groups beneath a directory.
fn switch_on(parent: &Path) -> io::Result<()> {
    let list = parent.join(ON);
    let on = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
    patiently(|| write_existing(&list, &on))?;
    // Not every limit needs it, and tasks with real-time priority can stand against it.
    let _ = write_existing(&list, "+cpu");
    Ok(())
}

/// Removes a group, and returns whether it did; one whose last process has just ended is busy
/// for a moment. A group that does not exist, or is not ours, is left alone.
pub(crate) fn remove_when_free(directory: &Path) -> bool {
    patiently(|| fs::remove_dir(directory)).is_ok()
}

/// Retries while a group is busy: with processes that are ending, or with those of another
/// Atoll that is leaving it.
fn patiently(mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    const TRIES: u32 = 250;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(2);
    for _ in 1..TRIES {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
    attempt()
}

/// The prefix of groups' names; the run's id follows.
pub(crate) const PREFIX: &str = "atoll-";

fn group_name(run: &RunId) -> String {
    format!("{PREFIX}{run}")
}

/// Writes to a file that must exist: `create` would fail differently on cgroupfs.
fn write_existing(path: &Path, value: &str) -> io::Result<()> {
    use std::io::Write;
    fs::File::options()
        .write(true)
        .open(path)?
        .write_all(value.as_bytes())
}
