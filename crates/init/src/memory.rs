//! The memory of a whole sandbox, added up where no cgroup counts it.
//!
//! The kernel reports the resident memory of each process. A file in memory without a name
//! (memfd_create(2), shared mappings) can be reached through a descriptor alone, which may be in a
//! process that cannot be inspected, in transit through a socket, or closed while pages stay mapped
//! that nobody touches. So the machine's own sum bounds the unseen memory, whenever something in
//! the sandbox could hold it: only then does it include memory that others on the machine allocate
//! in the meantime.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use atoll_sys::{descriptor, process};

const PAGE_BYTES: u64 = 4096;
const BLOCK_BYTES: u64 = 512;

/// The most descriptors to look at: a longer look would keep the watcher from everything else.
/// Those beyond count as hidden.
const ENTRIES_MAX: usize = 50_000;

/// The interval of full looks, which count everything, milliseconds.
const LOOK_INTERVAL_MS: u64 = 100;
/// The shortest interval of quick looks in between, which add up private memory alone,
/// milliseconds. A limit can be exceeded by what is allocated in this time.
const QUICK_INTERVAL_MS: u64 = 10;
/// The rate at which processes are assumed to fill memory at most, bytes a millisecond.
const FILL_RATE: u64 = 4 << 20;
/// The most of the processor's time that quick looks take, as a divisor.
const QUICK_SHARE: u32 = 10;
/// The intervals of close looks, in looks: the first if files in memory have grown by a part of the
/// limit, the second in any case.
const CLOSE_LOOKS: [u32; 2] = [5, 50];
const GROWN_PART: u64 = 8;
/// The longest time in which a close look reads the maps of processes.
const CLOSE_LOOK_MAX: Duration = Duration::from_secs(2);
/// The number of complete close looks in a row after which unseen memory is attributed to others:
/// one look can miss memory that moves between processes in the meantime.
const COMPLETE_LOOKS: u32 = 8;

/// The watch over the memory of one sandbox. An unreadable figure counts as more than any limit: a
/// program that keeps process 1 from looking has a reason.
pub(crate) struct Watch {
    limit_bytes: u64,
    /// Set in a fence: only the processes below this one count; no memory has a name there.
    fenced: bool,
    /// Set if the program may mount: it can hide files in memory from everybody.
    mounts: bool,
    /// The upper bound of files in memory on the machine that are not the sandbox's.
    others_bytes: u64,
    /// The minimum of that over the last complete looks, and their number.
    complete: (u64, u32),
    was_over: bool,
    look_at: Instant,
    quick_look_at: Instant,
    looks: u32,
    /// Set if the machine swaps: what is swapped out counts too.
    swaps: bool,
}

impl Watch {
    /// Creates a watch over a program that has not started yet.
    pub(crate) fn new(limit_bytes: u64, fenced: bool, mounts: bool) -> Self {
        let machine = in_files_of_machine(mounts);
        Self {
            limit_bytes,
            fenced,
            mounts,
            others_bytes: if machine == u64::MAX { 0 } else { machine },
            complete: (u64::MAX, 0),
            was_over: false,
            look_at: Instant::now(),
            quick_look_at: Instant::now(),
            looks: 0,
            // An unreadable table may have lines.
            swaps: fs::read_to_string("/proc/swaps").map_or(true, |text| text.lines().count() > 1),
        }
    }

    /// Returns the time until the next look.
    pub(crate) fn pause(&self) -> Duration {
        let next = self.look_at.min(self.quick_look_at);
        next.saturating_duration_since(Instant::now())
    }

    /// Returns whether the sandbox exceeds its limit; looks when it is time to.
    ///
    /// Resident memory counts shared pages once per process: quick to read and never too little.
    /// Only above the limit the exact shares are read.
    pub(crate) fn is_over(&mut self) -> bool {
        let now = Instant::now();
        let is_full = now >= self.look_at;
        if !is_full && now < self.quick_look_at {
            return false;
        }
        let Ok(pids) = self.processes() else {
            return true;
        };
        let mut alive: Vec<(String, u64)> = pids.into_iter().filter_map(alive).collect();
        if self.swaps {
            for (task, used) in &mut alive {
                *used = used.saturating_add(swapped_bytes(task));
            }
        }
        let resident: u64 = alive.iter().map(|(_, resident)| resident).sum();
        let over = if is_full {
            self.look_at = now + Duration::from_millis(LOOK_INTERVAL_MS);
            self.look(&alive, resident)
        } else {
            let shares = || {
                alive
                    .iter()
                    .map(|(task, _)| private_bytes(task))
                    .sum::<u64>()
            };
            resident > self.limit_bytes && shares() > self.limit_bytes
        };
        let left = self.limit_bytes.saturating_sub(resident) / FILL_RATE;
        let after = Duration::from_millis(left.max(QUICK_INTERVAL_MS));
        self.quick_look_at = Instant::now() + after.max(now.elapsed() * QUICK_SHARE);
        over
    }

    fn look(&mut self, alive: &[(String, u64)], resident: u64) -> bool {
        self.looks = self.looks.wrapping_add(1);
        let room = self.room();
        let grown = self.grown(in_files_of_machine(self.mounts), room);
        let [often, always] = CLOSE_LOOKS.map(|count| self.looks.is_multiple_of(count));
        let at_most = resident.saturating_add(room.max(grown));
        let is_close = often && grown > self.limit_bytes / GROWN_PART || always;
        let over = (at_most > self.limit_bytes || is_close) && self.look_closely(alive);
        self.was_over &= at_most > self.limit_bytes;
        over
    }

    fn processes(&self) -> io::Result<Vec<String>> {
        match self.fenced {
            false => numbers("/proc"),
            true => Ok(atoll_fence::descendants()
                .iter()
                .map(u32::to_string)
                .collect()),
        }
    }

    /// Reads the exact shares. Unseen memory never ends a sandbox at the first look: a descriptor
    /// may have been in transit for a moment, and can be seen once it has arrived.
    fn look_closely(&mut self, alive: &[(String, u64)]) -> bool {
        let before = in_files_of_machine(self.mounts);
        let mut seen = Seen::default();
        let (mut own, until) = (0_u64, Instant::now() + CLOSE_LOOK_MAX);
        for (task, _) in alive {
            // Maps can be made too long to read: what is not looked at counts as hidden.
            if Instant::now() > until {
                seen.hidden = true;
                own = own.saturating_add(anonymous_bytes(task));
            } else {
                own = own.saturating_add(seen.add_mapped(task));
            }
            if own > self.limit_bytes {
                return true;
            }
        }
        let is_complete = process::look_until_none_is_new(
            || {
                let pids = self.processes().unwrap_or_default();
                let of = |pid: String| tasks(&pid).into_iter().map(move |task| (pid.clone(), task));
                pids.into_iter().flat_map(of).collect()
            },
            |(pid, task)| {
                if seen.entries <= ENTRIES_MAX {
                    seen.add_open(task);
                }
                // Of processes that came meanwhile only what others may have handed them.
                if pid == task && !alive.iter().any(|(one, _)| one == task) {
                    seen.add_mapped(task);
                }
            },
        );
        seen.hidden |= !is_complete;
        let files: u64 = seen.files.values().sum();
        let (mapped, mapped_at_most) = seen.mapped();
        let found = files.saturating_add(mapped).saturating_add(self.room());
        let after = in_files_of_machine(self.mounts);
        let grown = self.grown(after, found);
        let mut possible = u64::MAX;
        if self.mounts || seen.hidden || before.max(after) == u64::MAX {
            self.complete = (u64::MAX, 0);
        } else {
            possible = found.saturating_add(mapped_at_most);
            let others = before.min(after).saturating_sub(possible);
            self.complete = (others.min(self.complete.0), self.complete.1 + 1);
        }
        if self.complete.1 >= COMPLETE_LOOKS {
            self.others_bytes = self.others_bytes.max(self.complete.0);
            self.complete = (u64::MAX, 0);
        }
        let over = |files: u64| own.saturating_add(files) > self.limit_bytes;
        let (was_over, is_over) = (self.was_over, over(grown.min(possible).max(found)));
        self.was_over = is_over;
        over(found) || (is_over && was_over)
    }

    /// Returns the growth of files in memory on the machine, of which this much was found here.
    /// Memory that others free in the meantime is no allowance for the sandbox.
    fn grown(&mut self, machine: u64, found: u64) -> u64 {
        self.others_bytes = self.others_bytes.min(machine.saturating_sub(found));
        machine.saturating_sub(self.others_bytes)
    }

    /// Returns the size of named files in memory, and of System V segments.
    fn room(&self) -> u64 {
        if self.fenced {
            return 0;
        }
        let room = descriptor::bytes_in_use(c"/tmp").unwrap_or(u64::MAX);
        room.saturating_add(segment_bytes().unwrap_or(0))
    }
}

/// The nameless files in memory that the processes of a sandbox hold.
#[derive(Default)]
struct Seen {
    /// The open ones, by device and inode: bytes.
    files: BTreeMap<(u64, u64), u64>,
    /// The mapped ones, by inode: the resident bytes, and the most bytes that the mappings can
    /// have.
    mapped: BTreeMap<u64, (u64, u64)>,
    /// Set when something could not be inspected, or is in transit through a socket.
    hidden: bool,
    /// The number of descriptors looked at.
    entries: usize,
}

impl Seen {
    /// Adds the open files of a task. One closed in the meantime is skipped.
    fn add_open(&mut self, task: &str) {
        let Ok(entries) = fs::read_dir(format!("/proc/{task}/fd")) else {
            // That of a task which is ending cannot be read either.
            self.hidden |= resident_bytes(task).is_some();
            return;
        };
        for entry in entries.flatten() {
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                self.hidden = true;
                return;
            }
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let target = target.as_os_str().as_encoded_bytes();
            if target.starts_with(b"/memfd:") {
                if let Ok(facts) = fs::metadata(entry.path()) {
                    let file = (facts.dev(), facts.ino());
                    self.files.insert(file, facts.blocks() * BLOCK_BYTES);
                }
            } else if target.starts_with(b"socket:") {
                let number = entry.file_name();
                let path = format!("/proc/{task}/fdinfo/{}", number.to_string_lossy());
                let facts = fs::read_to_string(path).unwrap_or_default();
                let mut lines = facts.lines();
                let on_way = lines.find_map(|line| line.strip_prefix("scm_fds:"));
                self.hidden |= on_way.is_some_and(|count| count.trim() != "0");
            }
        }
    }

    /// Adds a process's mappings of nameless files, and returns its share of other memory
    /// (proc_pid_smaps(5)): pages shared by several processes count in parts. Other mapped files
    /// can be evicted at any time and are not counted. For a process that hides its maps the kernel
    /// still reports a sum to everybody.
    fn add_mapped(&mut self, task: &str) -> u64 {
        let maps = fs::read_to_string(format!("/proc/{task}/smaps")).ok();
        self.hidden |= maps.is_none() && resident_bytes(task).is_some();
        let mut mapping: Option<(u64, u64)> = None;
        for line in maps.iter().flat_map(|maps| maps.lines()) {
            if let Some(share) = kilobytes(line, "Pss:") {
                if let Some((inode, bytes)) = mapping {
                    let (resident, most) = self.mapped.entry(inode).or_default();
                    *resident = resident.saturating_add(share);
                    *most = bytes.max(*most);
                }
            } else if !line.split(' ').next().unwrap_or_default().ends_with(':') {
                mapping = nameless(line);
            }
        }
        private_bytes(task)
    }

    /// Returns the sizes of mapped files that no process was seen to have open: the resident bytes,
    /// and the most bytes that they can have.
    fn mapped(&self) -> (u64, u64) {
        let open: BTreeSet<u64> = self.files.keys().map(|(_, inode)| *inode).collect();
        let others = self
            .mapped
            .iter()
            .filter(|(inode, _)| !open.contains(inode));
        let add = |sum: (u64, u64), one: &(u64, u64)| {
            (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
        };
        others.map(|(_, sizes)| sizes).fold((0, 0), add)
    }
}

/// Parses a mapping, `start-end rights offset device inode path`: returns the inode, if it is a
/// nameless file in memory, and the mapping's end in it. A program can choose the name under which
/// its shared memory is listed.
pub(crate) fn nameless(line: &str) -> Option<(u64, u64)> {
    const NAMES: [&str; 3] = [" /dev/zero (deleted)", " /memfd:", " [anon_shmem:"];
    let mut words = line.split_whitespace();
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = words.next()?.split_once('-')?;
    let bytes = number(end)?.checked_sub(number(start)?)?;
    let offset = number(words.nth(1)?)?;
    let inode = words.nth(1)?.parse().ok()?;
    let is_nameless = NAMES.iter().any(|name| line.contains(name));
    is_nameless.then_some((inode, offset.saturating_add(bytes)))
}

/// Returns the size of files in memory on the whole machine (proc_meminfo(5)), bytes; if that
/// cannot be read, more than any number. Those of ramfs, which only a program that may mount can
/// create, are part of the unevictable memory.
fn in_files_of_machine(mounts: bool) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let of = |key: &str| kilobytes(&text, key).unwrap_or(u64::MAX);
    let pinned = if mounts { of("Unevictable:") } else { 0 };
    of("Shmem:").saturating_add(pinned)
}

/// Returns a live task of a process, and its resident memory. The first task can end while others
/// go on: /proc then has no data under its number.
fn alive(pid: String) -> Option<(String, u64)> {
    let of = |task: String| resident_bytes(&task).map(|resident| (task, resident));
    of(pid.clone()).or_else(|| tasks(&pid).into_iter().find_map(of))
}

/// Returns the tasks of a process: each can have descriptors of its own.
fn tasks(pid: &str) -> Vec<String> {
    numbers(&format!("/proc/{pid}/task")).unwrap_or_default()
}

/// Returns the entries that are numbers, except this process, whose memory is Atoll's own.
fn numbers(directory: &str) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_other = |name: &String| name.parse().is_ok_and(|pid: u32| pid != std::process::id());
    Ok(names.filter(is_other).collect())
}

/// Returns the resident memory of a task; `None` if it has no memory any more.
fn resident_bytes(task: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{task}/statm")).ok()?;
    let mut words = text.split(' ');
    words.next().filter(|size| *size != "0")?;
    Some(words.next()?.parse::<u64>().ok()? * PAGE_BYTES)
}

/// Returns a task's share of memory that no file has, without files' pages that can be evicted
/// (proc_pid_smaps(5)). For a process that hides its maps the kernel still reports a sum.
fn private_bytes(task: &str) -> u64 {
    let of = |name: &str, key: &str| {
        let text = fs::read_to_string(format!("/proc/{task}/{name}")).ok()?;
        kilobytes(&text, key)
    };
    let swapped = || swapped_bytes(task);
    let own = of("smaps_rollup", "Pss_Anon:")
        .map(|own| own.saturating_add(of("smaps_rollup", "SwapPss:").unwrap_or_else(swapped)));
    let own = own.or_else(|| Some(of("status", "RssAnon:")?.saturating_add(swapped())));
    own.or_else(|| resident_bytes(task)).unwrap_or(0)
}

/// Returns the resident memory of a task that no file has, as the kernel counts it at no cost
/// (proc_pid_statm(5)): pages that processes share count for each.
fn anonymous_bytes(task: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{task}/statm")).unwrap_or_default();
    let mut words = text.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (words.nth(1).unwrap_or(0), words.next().unwrap_or(0));
    resident.saturating_sub(shared).saturating_mul(PAGE_BYTES)
}

/// Returns the memory of a task that is swapped out (proc_pid_status(5)).
fn swapped_bytes(task: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{task}/status")).unwrap_or_default();
    kilobytes(&text, "VmSwap:").unwrap_or(0)
}

/// Returns the resident size of System V segments (proc_sysvipc(5)).
fn segment_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/sysvipc/shm").ok()?;
    let mut lines = text.lines();
    let mut names = lines.next()?.split_whitespace();
    let column = names.position(|name| name == "rss")?;
    let resident = |line: &str| line.split_whitespace().nth(column)?.parse::<u64>().ok();
    Some(lines.filter_map(resident).sum())
}

/// Returns the bytes of the line that begins with this key.
fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(
        value
            .trim()
            .strip_suffix("kB")?
            .trim()
            .parse::<u64>()
            .ok()?
            * 1024,
    )
}
