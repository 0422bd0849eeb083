//! The room that is left on the host. With little left no sandbox is made; with less no file is
//! written for a caller; and where memory runs out, the sandbox that holds most of it ends, then the
//! next. The ledger needs the rest.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use crate::configuration::Reserve;
use crate::protocol::{Kind, Refusal};

/// The time for which a look at the disk and the memory is good.
pub(super) const LOOKED: Duration = Duration::from_millis(500);
const MIB: u64 = 1 << 20;
/// The times of the reserve that are kept from further sandboxes.
pub(super) const FURTHER: u64 = 2;

/// The room that is left.
#[derive(Debug)]
pub(super) struct Room {
    /// A directory on the disk that sandboxes write to.
    below: PathBuf,
    reserve: Reserve,
    looked: Mutex<Option<(Instant, Left)>>,
}

/// The room that is left, bytes; `None` where the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Left {
    disk: Option<u64>,
    memory: Option<u64>,
}

/// The uses that need room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// A further sandbox.
    Sandbox,
    /// A sandbox that nobody has asked for yet.
    Ahead,
    /// A file.
    File,
}

impl Room {
    pub(super) fn new(below: &Path, reserve: Reserve) -> Self {
        Self {
            below: below.to_path_buf(),
            reserve,
            looked: Mutex::new(None),
        }
    }

    /// Refuses what there is no room for.
    pub(super) fn check(&self, wanted: For) -> Result<(), Refusal> {
        lacks(self.left(), &self.reserve, wanted).map_or(Ok(()), Err)
    }

    fn left(&self) -> Left {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match *looked {
            Some((at, left)) if now.duration_since(at) < LOOKED => left,
            _ => {
                let left = Left {
                    disk: statvfs(&self.below)
                        .ok()
                        .map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
                    memory: available_memory(),
                };
                *looked = Some((now, left));
                left
            }
        }
    }

    /// Returns whether less memory is left than so many times the reserve: with less than once, a
    /// sandbox has to end.
    pub(super) fn is_short_of_memory(&self, factor: u64) -> bool {
        let kept = self.reserve.memory_mib.saturating_mul(factor);
        let memory = self.left().memory;
        memory.is_some_and(|left| left < kept.saturating_mul(MIB))
    }
}

/// Returns the refusal where too little is left; twice as much is kept from further sandboxes, and
/// four times as much from those that nobody has asked for.
fn lacks(left: Left, reserve: &Reserve, wanted: For) -> Option<Refusal> {
    let factor = match wanted {
        For::Ahead => 4,
        For::Sandbox => FURTHER,
        For::File => 1,
    };
    let is_short = |left: Option<u64>, reserve_mib: u64| {
        let kept = reserve_mib.saturating_mul(factor).saturating_mul(MIB);
        left.is_some_and(|left| left < kept)
    };
    if is_short(left.disk, reserve.disk_mib) {
        let what = "the server's disk is nearly full";
        return Some(
            Refusal::new(Kind::NoSpace, what).advise(
                "end sandboxes, or make room; reserve.disk_mib in serve.toml says how much",
            ),
        );
    }
    if wanted != For::File && is_short(left.memory, reserve.memory_mib) {
        let what = "the server's memory is nearly used up";
        return Some(Refusal {
            retry_after_s: Some(5),
            ..Refusal::new(Kind::Unavailable, what)
                .advise("end sandboxes; reserve.memory_mib in serve.toml says how much is kept")
        });
    }
    None
}

/// Returns the memory that can be had without swapping, bytes (proc_meminfo(5)).
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_sandboxes_are_refused_before_files() {
        let reserve = Reserve {
            disk_mib: 100,
            memory_mib: 10,
        };
        let kind = |disk_mib: u64, memory_mib: u64, wanted| {
            let left = Left {
                disk: Some(disk_mib * MIB),
                memory: Some(memory_mib * MIB),
            };
            lacks(left, &reserve, wanted).map(|refusal| refusal.kind)
        };
        let (disk, memory) = (Kind::NoSpace, Kind::Unavailable);
        assert_eq!(kind(400, 40, For::Ahead), None);
        assert_eq!(kind(399, 40, For::Ahead), Some(disk));
        assert_eq!(kind(400, 39, For::Ahead), Some(memory));
        for (disk, memory, sandbox, file) in [
            (200, 20, None, None),
            (199, 20, Some(Kind::NoSpace), None),
            (99, 20, Some(Kind::NoSpace), Some(Kind::NoSpace)),
            (200, 19, Some(Kind::Unavailable), None),
            (200, 9, Some(Kind::Unavailable), None),
        ] {
            assert_eq!(kind(disk, memory, For::Sandbox), sandbox, "{disk} {memory}");
            assert_eq!(kind(disk, memory, For::File), file, "{disk} {memory}");
        }
        assert_eq!(lacks(Left::default(), &reserve, For::Sandbox), None);
    }
}
