//! The disk usage of a sandbox, without file system quotas. The layers are counted at a pace
//! set by the cost of counting, and sooner when the file system's free space shrinks. Other
//! processes free space too, so free space that does not shrink only delays a count, and never
//! replaces it.

mod volumes;

pub use volumes::volume_usage;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use atoll_model::LimitHit;
use atoll_sys::process::{look_until_none_is_new, share_files};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::launcher::children_of;

/// The interval of looking at the file system's free space.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// The divisor of the time that counting may take: one part in this many.
const COUNT_SHARE: u32 = 10;
/// The divisor while the file systems show no growth.
const QUIET_SHARE: u32 = 50;
/// The shortest time by which a count is put off while there is no growth: with thousands of
/// sandboxes on a host, all of them together must not take its processors.
const QUIET_MIN: Duration = Duration::from_secs(1);
/// The longest time by which a count is put off while there is no growth.
const QUIET_MAX: Duration = Duration::from_secs(10);

/// The unit of a file's disk usage, bytes (stat(2)).
const BLOCK_BYTES: u64 = 512;
/// The most descriptors inspected: the supervisor watches nothing else meanwhile. The rest
/// counts as hidden.
const ENTRIES_MAX: usize = 200_000;
/// The length of a path from an open directory at which the next directory is opened, bytes:
/// half of what the kernel takes, so that any name fits behind it.
const PATH_BYTES_MAX: usize = 2_000;
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Bytes and inodes, free or used.
type Room = (u64, u64);

/// Returns the free space of the file system at a path.
pub(crate) type FreeOf = fn(&Path) -> Option<Room>;

/// The disk watch over the layers of one run.
#[derive(Debug)]
pub(crate) struct DiskWatch {
    layers: Vec<PathBuf>,
    launcher: Option<u32>,
    /// The directory of their control group, if they have one.
    group: Option<PathBuf>,
    bytes_max: u64,
    inodes_max: u64,
    free_of: FreeOf,
    /// The usage of the layers at the last complete count.
    counted: Room,
    /// The most free space since then, of each layer's file system: layers may lie on several.
    most_free: Vec<Option<Room>>,
    next_look: Instant,
    /// The earliest time of the next count.
    next_count: Instant,
    /// The time of the next count even if the free space shows no growth.
    next_quiet_count: Instant,
    /// True if something was hidden from the last count.
    was_hidden: bool,
    /// Those of the volumes that it changes.
    volumes: Vec<Self>,
}

impl DiskWatch {
    pub(crate) fn new(layers: Vec<PathBuf>, bytes_max: u64, inodes_max: u64, now: Instant) -> Self {
        Self::by(free, layers, bytes_max, inodes_max, now)
    }

    /// Creates a watch with another source of the free space.
    pub(crate) fn by(
        free_of: FreeOf,
        layers: Vec<PathBuf>,
        bytes_max: u64,
        inodes_max: u64,
        now: Instant,
    ) -> Self {
        let most_free = layers.iter().map(|layer| free_of(layer)).collect();
        Self {
            layers,
            launcher: None,
            group: None,
            bytes_max,
            inodes_max,
            free_of,
            counted: (0, 0),
            most_free,
            next_look: now + LOOK_INTERVAL,
            next_count: now,
            next_quiet_count: now,
            was_hidden: false,
            volumes: Vec::new(),
        }
    }

    /// Also watches a copy, or the workspace itself; its present content was not written by the
    /// program.
    pub(crate) fn and_grown(mut self, place: PathBuf) -> Self {
        self.most_free.push((self.free_of)(&place));
        let before = Count::of(std::slice::from_ref(&place), u64::MAX, u64::MAX);
        self.bytes_max = self.bytes_max.saturating_add(before.bytes);
        self.inodes_max = self.inodes_max.saturating_add(before.inodes);
        self.counted.0 += before.bytes;
        self.counted.1 += before.inodes;
        self.layers.push(place);
        self
    }

    /// Also watches deleted files that the processes beneath this launcher hold open; all of these
    /// are in a control group, if there is one.
    pub(crate) fn and_processes_of(mut self, launcher: u32, group: Option<PathBuf>) -> Self {
        (self.launcher, self.group) = (Some(launcher), group);
        self
    }

    /// Returns when to call [`DiskWatch::check`] again; `None` for never.
    pub(crate) fn next(&self) -> Option<Instant> {
        (!self.layers.is_empty()).then_some(self.next_look)
    }

    /// Returns the limit that is exceeded, if any.
    pub(crate) fn check(&mut self, now: Instant) -> Option<LimitHit> {
        let hit = self.check_own(now);
        hit.or_else(|| self.check_volumes(now))
    }

    fn check_own(&mut self, now: Instant) -> Option<LimitHit> {
        if self.layers.is_empty() || now < self.next_look {
            return None;
        }
        self.next_look = now + LOOK_INTERVAL;
        // Before the count: what is written meanwhile may count twice, and is not missed.
        let free: Vec<_> = self
            .layers
            .iter()
            .map(|path| (self.free_of)(path))
            .collect();
        let lost = self.lost(&free);
        let is_quiet = now < self.next_quiet_count && !self.is_suspicious(lost);
        if now < self.next_count || is_quiet {
            return None;
        }
        let mut count = Count::of(&self.layers, self.bytes_max, self.inodes_max);
        if let Some(launcher) = self.launcher {
            let family = Family::of(launcher, self.group.clone());
            count.add_deleted(family, &self.devices());
        }
        let is_hidden = count.hidden || count.passing;
        let was_hidden = std::mem::replace(&mut self.was_hidden, is_hidden);
        // What is on its way for a moment can be counted the next time.
        if count.hidden || (count.passing && was_hidden) {
            // What cannot be counted is as much as the whole file system has lost.
            let (bytes, inodes) = lost.unwrap_or_default();
            count.bytes = count.bytes.max(self.counted.0.saturating_add(bytes));
            count.inodes = count.inodes.max(self.counted.1.saturating_add(inodes));
        }
        if !is_hidden {
            self.counted = (count.bytes, count.inodes);
            self.most_free = free;
        }
        let took = now.elapsed();
        let (share, quiet) = match is_hidden && !was_hidden {
            // What is on its way has to be seen twice: soon.
            true => (took, took),
            false => (
                took * COUNT_SHARE,
                (took * QUIET_SHARE).clamp(QUIET_MIN, QUIET_MAX),
            ),
        };
        self.next_count = now + share;
        self.next_quiet_count = now + quiet;
        if count.bytes > self.bytes_max {
            Some(LimitHit::Disk)
        } else if count.inodes > self.inodes_max {
            Some(LimitHit::Inodes)
        } else {
            None
        }
    }

    /// Returns the devices of the layers.
    fn devices(&self) -> Vec<u64> {
        let facts = self.layers.iter().filter_map(|layer| layer.metadata().ok());
        facts.map(|facts| facts.dev()).collect()
    }

    /// Returns the most bytes and inodes that one of the file systems has lost since it had the
    /// most free. Space freed by others is not subtracted.
    fn lost(&mut self, free: &[Option<Room>]) -> Option<Room> {
        let mut lost = (0, 0);
        for (most, free) in self.most_free.iter_mut().zip(free) {
            let (most, free) = (most.as_mut()?, (*free)?);
            *most = (most.0.max(free.0), most.1.max(free.1));
            lost.0 = (most.0 - free.0).max(lost.0);
            lost.1 = (most.1 - free.1).max(lost.1);
        }
        Some(lost)
    }

    /// Returns whether a file system has lost more than half of what was left to the layers at
    /// the last count, or reports no inodes.
    fn is_suspicious(&self, lost: Option<Room>) -> bool {
        let tells_all = |most: &Option<Room>| most.is_some_and(|(_, inodes)| inodes > 0);
        !self.most_free.iter().all(tells_all)
            || lost.is_none_or(|(bytes, inodes)| {
                bytes > self.bytes_max.saturating_sub(self.counted.0) / 2
                    || inodes > self.inodes_max.saturating_sub(self.counted.1) / 2
            })
    }
}

/// Counts the bytes in layers.
pub(crate) fn bytes_in(layers: &[PathBuf]) -> u64 {
    Count::of(layers, u64::MAX, ENTRIES_MAX as u64).bytes
}

/// The result of counting, up to the limit.
#[derive(Debug, Default)]
struct Count {
    bytes: u64,
    inodes: u64,
    /// True if something could not be inspected.
    hidden: bool,
    /// True if a descriptor may have been in transit: through a socket, or between processes
    /// while new ones kept appearing.
    passing: bool,
    /// The number of descriptors inspected.
    entries: usize,
}

impl Count {
    /// Counts everything below these directories.
    fn of(layers: &[PathBuf], bytes_max: u64, inodes_max: u64) -> Self {
        let mut count = Self::default();
        let open = |path: &PathBuf| rustix::fs::open(path, DIRECTORY, Mode::empty());
        let bases = layers.iter().filter_map(|path| open(path).ok());
        let mut waiting: Vec<_> = bases.map(|base| (Rc::new(base), PathBuf::new())).collect();
        while let Some((base, path)) = waiting.pop() {
            // What vanishes while it is counted is not counted.
            match count.add_directory(&base, &path, &mut waiting) {
                Err(Errno::NOENT | Errno::NOTDIR) | Ok(()) => {}
                Err(_) => count.hidden = true,
            }
            if count.bytes > bytes_max || count.inodes > inodes_max {
                break;
            }
        }
        count
    }

    /// Adds a directory's entries. Paths start at an open directory that moves along, since a
    /// tree can be deeper than any path is long.
    fn add_directory(
        &mut self,
        base: &Rc<OwnedFd>,
        path: &Path,
        waiting: &mut Vec<(Rc<OwnedFd>, PathBuf)>,
    ) -> Result<(), Errno> {
        let here = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let directory = rustix::fs::openat(base.as_fd(), here, DIRECTORY, Mode::empty())?;
        let mut entries = Dir::read_from(&directory)?;
        let mut below = Vec::new();
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let Ok(facts) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            self.inodes += 1;
            self.bytes += facts.st_blocks.unsigned_abs() * BLOCK_BYTES;
            if FileType::from_raw_mode(facts.st_mode) == FileType::Directory {
                below.push(PathBuf::from(OsStr::from_bytes(name.to_bytes())));
            }
        }
        if path.as_os_str().len() > PATH_BYTES_MAX {
            let base = Rc::new(directory);
            waiting.extend(below.into_iter().map(|name| (Rc::clone(&base), name)));
        } else {
            let below = below.iter().map(|name| path.join(name));
            waiting.extend(below.map(|path| (Rc::clone(base), path)));
        }
        Ok(())
    }

    /// Adds the deleted files that the processes beneath a launcher hold open, each once. A
    /// process that cannot be inspected may hold any; threads may hold others than their
    /// process; and if new processes keep appearing they may pass on some unseen.
    fn add_deleted(&mut self, mut family: Family, devices: &[u64]) {
        let mut seen = HashSet::new();
        let is_complete = look_until_none_is_new(
            || family.tasks(),
            |(pid, thread)| {
                // A process's threads share their descriptors, unless one has asked for
                // its own.
                let is_own = pid == thread || !share_files(*pid, *thread);
                if !is_own || self.entries > ENTRIES_MAX {
                    return;
                }
                let task = PathBuf::from(format!("/proc/{pid}/task/{thread}"));
                match self.add_deleted_of(&task, devices, &mut seen) {
                    Err(error) if !is_gone(&error) && is_alive(&task) => self.hidden = true,
                    Err(_) | Ok(()) => {}
                }
            },
        );
        self.passing |= !is_complete;
    }

    fn add_deleted_of(
        &mut self,
        task: &Path,
        devices: &[u64],
        seen: &mut HashSet<(u64, u64)>,
    ) -> io::Result<()> {
        for entry in fs::read_dir(task.join("fd"))? {
            let entry = entry?;
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                self.hidden = true;
                return Ok(());
            }
            let path = entry.path();
            let facts = match fs::metadata(&path) {
                Err(error) if is_gone(&error) => continue,
                other => other?,
            };
            if facts.file_type().is_socket() {
                let told = match fs::read_to_string(task.join("fdinfo").join(entry.file_name())) {
                    Err(error) if is_gone(&error) => continue,
                    other => other?,
                };
                let mut lines = told.lines();
                let waiting = lines.find_map(|line| line.strip_prefix("scm_fds:"));
                self.passing |= waiting.is_some_and(|count| count.trim() != "0");
            }
            let is_deleted = facts.is_file() && facts.nlink() == 0;
            let is_on_disk = devices.contains(&facts.dev()) || !is_in_memory(&path);
            if is_deleted && is_on_disk && seen.insert((facts.dev(), facts.ino())) {
                self.inodes += 1;
                self.bytes += facts.blocks() * BLOCK_BYTES;
            }
        }
        Ok(())
    }
}

/// Returns whether a task still has memory: the files of one that has ended are closed.
fn is_alive(task: &Path) -> bool {
    fs::read_to_string(task.join("statm")).is_ok_and(|sizes| !sizes.starts_with("0 "))
}

/// Returns whether the error means that the task or the descriptor has vanished.
fn is_gone(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::NOENT | Errno::SRCH))
}

/// Returns whether a file is in memory, and so counts as memory; unless a layer lies there
/// itself.
fn is_in_memory(path: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const HUGETLBFS: u64 = 0x9584_58f6;
    rustix::fs::statfs(path)
        .is_ok_and(|facts| [TMPFS, HUGETLBFS].contains(&facts.f_type.unsigned_abs()))
}

/// The processes beneath the first process of a launcher: the program, and all that it started.
pub(crate) struct Family {
    /// The depth of each process below the launcher; `None` if it is not beneath it.
    depths: HashMap<u32, Option<u32>>,
    launcher: u32,
    group: Option<PathBuf>,
}

impl Family {
    pub(crate) fn of(launcher: u32, group: Option<PathBuf>) -> Self {
        Self {
            depths: HashMap::new(),
            launcher,
            group,
        }
    }

    /// Returns their threads, each with its process. A process that ended before its ancestry
    /// was known is included, as thread 0.
    pub(crate) fn tasks(&mut self) -> BTreeSet<(u32, u32)> {
        let of_group = self.group.as_deref().and_then(members);
        // One that the first process is not in is none of theirs.
        let first = children_of(self.launcher);
        let of_group = of_group.filter(|all| first.iter().any(|first| all.contains(first)));
        let listed = of_group.unwrap_or_else(|| numbers(Path::new("/proc")).collect());
        // What is gone may be another process the next time.
        self.depths.retain(|pid, _| listed.contains(pid));
        let mut tasks = BTreeSet::new();
        for pid in listed {
            match self.depth(pid) {
                // The launcher, and the first process, are Atoll's.
                Some(Some(0 | 1) | None) => {}
                Some(Some(_)) => {
                    let threads = numbers(Path::new(&format!("/proc/{pid}/task")));
                    tasks.extend(threads.map(|thread| (pid, thread)));
                }
                None => {
                    tasks.insert((pid, 0));
                }
            }
        }
        tasks
    }

    /// Returns the depth of a process below the launcher, if it is beneath it; the outer `None`
    /// if it has ended.
    fn depth(&mut self, pid: u32) -> Option<Option<u32>> {
        let mut line = Vec::new();
        let mut above = pid;
        let mut depth = loop {
            if above == self.launcher {
                break Some(0);
            }
            match self.depths.get(&above) {
                Some(known) => break *known,
                None if above <= 1 => break None,
                None => line.push(above),
            }
            above = parent(above)?;
        };
        for pid in line.into_iter().rev() {
            depth = depth.map(|depth| depth + 1);
            self.depths.insert(pid, depth);
        }
        Some(depth)
    }
}

/// Returns the processes in a control group (cgroups(7)); `None` where they cannot be read, or some
/// may be in groups beneath.
fn members(group: &Path) -> Option<HashSet<u32>> {
    let mut entries = fs::read_dir(group).ok()?;
    let is_group = |entry: io::Result<fs::DirEntry>| {
        let kind = entry.and_then(|entry| entry.file_type());
        kind.map_or(true, |kind| kind.is_dir())
    };
    if entries.any(is_group) {
        return None;
    }
    let list = fs::read_to_string(group.join("cgroup.procs")).ok()?;
    Some(list.lines().filter_map(|line| line.parse().ok()).collect())
}

/// Returns the parent of a process; `None` if it has ended.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold any other; the parent is the second after it.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the entries of a directory that are numbers.
fn numbers(directory: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn free(path: &Path) -> Option<Room> {
    let facts = rustix::fs::statvfs(path).ok()?;
    Some((facts.f_bfree * facts.f_frsize, facts.f_ffree))
}
