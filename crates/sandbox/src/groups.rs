//! Control groups (cgroups(7)): version 2 where it has the controllers, version
//! 1 where those are there (also on hybrid hosts), none where neither is ours.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use atoll_model::{Limits, RunId};

use crate::{Host, MountPoint};

/// Where groups can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// Version 2, beneath this directory.
    Unified(PathBuf),
    /// Version 1: the directories of the controllers that are there.
    Separate {
        /// `memory`.
        memory: PathBuf,
        /// `pids`.
        pids: PathBuf,
        /// `cpu`, which only some limits need.
        cpu: Option<PathBuf>,
    },
    /// Nowhere, and why.
    Nowhere(String),
}

impl Held {
    /// Why time of the processor cannot be limited, where that is so.
    #[must_use]
    pub fn without_cpu(&self) -> Option<String> {
        match self {
            Self::Unified(_) | Self::Separate { cpu: Some(_), .. } => None,
            Self::Separate { cpu: None, .. } => {
                Some("no control group of the cpu controller can be used".to_owned())
            }
            Self::Nowhere(why) => Some(why.clone()),
        }
    }
}

/// Finds out where this process can make control groups. Nothing is made.
#[must_use]
pub fn detect(host: &Host) -> Held {
    if let Some(parent) = unified_parent(host) {
        return Held::Unified(parent);
    }
    let separate = |controller: &str| -> Option<PathBuf> {
        let mount = host
            .mounts
            .iter()
            .rev()
            .find(|mount| mount.kind == "cgroup" && mount.has_option(controller))?;
        let (_, group) = host
            .groups
            .iter()
            .find(|(controllers, _)| controllers.split(',').any(|one| one == controller))?;
        let directory = within(mount, group)?;
        is_writable(&directory).then_some(directory)
    };
    match (separate("memory"), separate("pids")) {
        (Some(memory), Some(pids)) => Held::Separate {
            memory,
            pids,
            cpu: separate("cpu"),
        },
        _ if host.uid == 0 => Held::Nowhere("no memory and pids controllers were found".to_owned()),
        _ => Held::Nowhere("no control group is delegated to this user".to_owned()),
    }
}

/// The directory of version 2 beneath which a group with the controllers can be
/// made: as root the top, else the nearest group that systemd has delegated.
fn unified_parent(host: &Host) -> Option<PathBuf> {
    let mount = host
        .mounts
        .iter()
        .rev()
        .find(|mount| mount.kind == "cgroup2")?;
    let (_, own) = host
        .groups
        .iter()
        .find(|(controllers, _)| controllers.is_empty())?;
    let has_controllers = |directory: &Path| {
        let Ok(list) = fs::read_to_string(directory.join("cgroup.subtree_control")) else {
            return false;
        };
        ["memory", "pids"]
            .iter()
            .all(|wanted| list.split_whitespace().any(|one| one == *wanted))
    };
    let own = within(mount, own)?;
    own.ancestors()
        .take_while(|directory| directory.starts_with(&mount.path))
        .find(|directory| has_controllers(directory) && is_writable(directory))
        .map(Path::to_path_buf)
}

/// Where a group is, if it is in what is mounted there: one outside of the own
/// namespace of groups has a name that leads up (cgroup_namespaces(7)).
fn within(mount: &MountPoint, group: &Path) -> Option<PathBuf> {
    let below = group.strip_prefix("/").ok()?;
    let leads_up = below.components().any(|part| part == Component::ParentDir);
    (!leads_up).then(|| mount.path.join(below))
}

fn is_writable(directory: &Path) -> bool {
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

/// The groups of one sandbox; removed by [`Groups::remove`].
#[derive(Debug)]
pub(crate) struct Groups {
    memory: PathBuf,
    all: Vec<PathBuf>,
    unified: bool,
}

/// What a sandbox's groups counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) memory_peak_bytes: Option<u64>,
    pub(crate) memory_kills: u64,
    pub(crate) processes_refused: u64,
    pub(crate) cpu_us: Option<u64>,
}

impl Groups {
    /// The groups that a run gets, not made yet; `None` where none can be made.
    pub(crate) fn plan(held: &Held, run: &RunId, limits: &Limits) -> Option<Self> {
        let name = group_name(run);
        let groups = match held {
            Held::Nowhere(_) => return None,
            Held::Unified(parent) => {
                let group = parent.join(&name);
                Self {
                    memory: group.clone(),
                    all: vec![group],
                    unified: true,
                }
            }
            Held::Separate { memory, pids, cpu } => {
                let cpu = cpu.as_ref().filter(|_| limits.cpu_millis.is_some());
                let all = [Some(memory), Some(pids), cpu];
                let all: Vec<PathBuf> = all
                    .into_iter()
                    .flatten()
                    .map(|parent| parent.join(&name))
                    .collect();
                Self {
                    memory: memory.join(&name),
                    all,
                    unified: false,
                }
            }
        };
        Some(groups)
    }

    /// Makes them; nothing is left of them when that fails.
    pub(crate) fn make(&self, limits: &Limits) -> io::Result<()> {
        let made = self.create(limits);
        if made.is_err() {
            self.remove();
        }
        made
    }

    fn create(&self, limits: &Limits) -> io::Result<()> {
        for directory in &self.all {
            fs::create_dir(directory)?;
        }
        if self.unified {
            self.limit_unified(limits)
        } else {
            self.limit_separate(limits)
        }
    }

    fn limit_unified(&self, limits: &Limits) -> io::Result<()> {
        self.set("memory.max", &limits.memory_bytes.to_string())?;
        self.set_where_known("memory.swap.max", &limits.swap_bytes.to_string())?;
        self.set_where_known("memory.oom.group", "1")?;
        self.set("pids.max", &limits.processes.to_string())?;
        match limits.cpu_millis {
            Some(millis) => self.set("cpu.max", &format!("{} 100000", millis * 100)),
            // A busy sandbox leaves the person's own programs the larger part.
            None => self.set_where_known("cpu.weight", "50"),
        }
    }

    fn limit_separate(&self, limits: &Limits) -> io::Result<()> {
        let memory = limits.memory_bytes;
        self.set("memory.limit_in_bytes", &memory.to_string())?;
        let with_swap = memory.saturating_add(limits.swap_bytes);
        self.set_where_known("memory.memsw.limit_in_bytes", &with_swap.to_string())?;
        self.set("pids.max", &limits.processes.to_string())?;
        match limits.cpu_millis {
            None => Ok(()),
            // Started all the same where that was chosen knowingly.
            Some(_) if self.all.len() < 3 => Ok(()),
            Some(millis) => {
                self.set("cpu.cfs_period_us", "100000")?;
                self.set("cpu.cfs_quota_us", &(millis * 100).to_string())
            }
        }
    }

    /// Writes a value into whichever of the groups has that file.
    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        let controller = file.split('.').next().unwrap_or_default();
        let directory = match controller {
            _ if self.unified => self.all.first(),
            "memory" => self.all.first(),
            "pids" => self.all.get(1),
            _ => self.all.get(2),
        };
        let directory = directory.ok_or(io::ErrorKind::NotFound)?;
        write_existing(&directory.join(file), value)
    }

    /// The same for a file that some kernels do not have.
    fn set_where_known(&self, file: &str, value: &str) -> io::Result<()> {
        match self.set(file, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Whether the kernel counts swap for these groups; they must have been made.
    pub(crate) fn counts_swap(&self) -> bool {
        let file = if self.unified {
            "memory.swap.max"
        } else {
            "memory.memsw.limit_in_bytes"
        };
        self.memory.join(file).exists()
    }

    /// Of version 2: the directory to start in.
    pub(crate) fn unified(&self) -> Option<&Path> {
        self.all
            .first()
            .filter(|_| self.unified)
            .map(PathBuf::as_path)
    }

    /// Of version 1: the `tasks` files to join.
    pub(crate) fn tasks(&self) -> Vec<PathBuf> {
        if self.unified {
            return Vec::new();
        }
        self.all
            .iter()
            .map(|directory| directory.join("tasks"))
            .collect()
    }

    /// All directories.
    pub(crate) fn directories(&self) -> &[PathBuf] {
        &self.all
    }

    /// Who holds the limits.
    pub(crate) fn name(&self) -> &'static str {
        if self.unified {
            "cgroup-v2"
        } else {
            "cgroup-v1"
        }
    }

    /// What was used so far.
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
        let processes_refused = self.all.iter().find_map(refused).unwrap_or(0);
        if self.unified {
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
                cpu_us: None,
            }
        }
    }

    /// Removes the groups; their processes must be gone.
    pub(crate) fn remove(&self) {
        for directory in &self.all {
            let _ = remove_when_free(directory);
        }
    }
}

/// Removes a group, and tells whether it did; one whose last process has just gone is busy for a moment.
pub(crate) fn remove_when_free(directory: &Path) -> bool {
    const TRIES: u32 = 250;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(2);
    for _ in 0..TRIES {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(PAUSE);
            }
            done => return done.is_ok(),
        }
    }
    false
}

/// What the names of groups begin with; the run's id follows.
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
