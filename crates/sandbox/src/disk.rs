//! How much a sandbox has written to disk, without a quota of the file system:
//! a cheap look at the whole file system first, a count of the layers only when
//! that cannot rule a breach out.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use atoll_model::LimitHit;

/// How often the file system's free space is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// A count is made at least this often, however the free space looks.
const COUNT_INTERVAL_MAX: Duration = Duration::from_secs(30);
/// Counting may take this share of the time.
const COUNT_SHARE: u32 = 10;

/// Watches the layers of one run.
#[derive(Debug)]
pub(crate) struct DiskWatch {
    layers: Vec<PathBuf>,
    bytes_max: u64,
    inodes_max: u64,
    free_at_start: Option<(u64, u64)>,
    next_look: Instant,
    last_count: Instant,
    next_count: Instant,
}

impl DiskWatch {
    pub(crate) fn new(layers: Vec<PathBuf>, bytes_max: u64, inodes_max: u64, now: Instant) -> Self {
        let free_at_start = layers.first().and_then(|layer| free(layer));
        Self {
            layers,
            bytes_max,
            inodes_max,
            free_at_start,
            next_look: now + LOOK_INTERVAL,
            last_count: now,
            next_count: now,
        }
    }

    /// Watches a copy too: what is in it now was not written by the program.
    pub(crate) fn and_copy(mut self, copy: PathBuf) -> Self {
        let (bytes, inodes) = count(vec![copy.clone()], u64::MAX, u64::MAX);
        self.bytes_max = self.bytes_max.saturating_add(bytes);
        self.inodes_max = self.inodes_max.saturating_add(inodes);
        self.free_at_start = self.free_at_start.or_else(|| free(&copy));
        self.layers.push(copy);
        self
    }

    /// When to call [`DiskWatch::check`] again; `None` for never.
    pub(crate) fn next(&self) -> Option<Instant> {
        (!self.layers.is_empty()).then_some(self.next_look)
    }

    /// Which limit is breached, if any.
    pub(crate) fn check(&mut self, now: Instant) -> Option<LimitHit> {
        if self.layers.is_empty() || now < self.next_look {
            return None;
        }
        self.next_look = now + LOOK_INTERVAL;
        let overdue = now >= self.last_count + COUNT_INTERVAL_MAX;
        if now < self.next_count || !(overdue || self.is_suspicious()) {
            return None;
        }
        let (bytes, inodes) = count(self.layers.clone(), self.bytes_max, self.inodes_max);
        let took = now.elapsed();
        self.last_count = now;
        self.next_count = now + took * COUNT_SHARE;
        if bytes > self.bytes_max {
            Some(LimitHit::Disk)
        } else if inodes > self.inodes_max {
            Some(LimitHit::Inodes)
        } else {
            None
        }
    }

    /// Whether the file system has lost more than half of what is allowed.
    fn is_suspicious(&self) -> bool {
        let now = self.layers.first().and_then(|layer| free(layer));
        match (self.free_at_start, now) {
            (Some((bytes_then, inodes_then)), Some((bytes_now, inodes_now))) => {
                bytes_then.saturating_sub(bytes_now) > self.bytes_max / 2
                    || inodes_then.saturating_sub(inodes_now) > self.inodes_max / 2
                    // File systems without a fixed number of inodes report none.
                    || inodes_then == 0
            }
            _ => true,
        }
    }
}

/// Bytes and files below these directories, or enough of them to be over a limit.
fn count(mut waiting: Vec<PathBuf>, bytes_max: u64, inodes_max: u64) -> (u64, u64) {
    let mut bytes = 0;
    let mut inodes = 0;
    while let Some(directory) = waiting.pop() {
        // What vanishes or cannot be read while it is counted is not counted.
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(facts) = entry.metadata() else {
                continue;
            };
            inodes += 1;
            bytes += facts.blocks() * 512;
            if facts.is_dir() {
                waiting.push(entry.path());
            }
        }
        if bytes > bytes_max || inodes > inodes_max {
            break;
        }
    }
    (bytes, inodes)
}

fn free(path: &Path) -> Option<(u64, u64)> {
    let facts = rustix::fs::statvfs(path).ok()?;
    Some((facts.f_bfree * facts.f_frsize, facts.f_ffree))
}
