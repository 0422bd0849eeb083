//! Races of paths: entries of a directory change places as fast as possible while something looks
//! for them. Used by the tests of more than one crate.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{RenameFlags, renameat_with};

const MOVERS: u64 = 2;

/// Numbers that follow from a seed (xorshift), so that a failure can be reproduced.
pub struct Numbers(u64);

impl Numbers {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

pub fn seed() -> u64 {
    let named = std::env::var("ATOLL_RACES_SEED").ok();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = named.map_or(now.unwrap().as_micros() as u64, |text| {
        text.parse().unwrap()
    });
    println!("ATOLL_RACES_SEED={seed}");
    seed
}

/// Returns the length of one race.
fn length() -> Duration {
    let is_night = std::env::var_os("ATOLL_NIGHTLY").is_some();
    Duration::from_secs(if is_night { 120 } else { 2 })
}

/// Runs `act` while entries of `top`, each given by its directory and its name there, change places
/// with each other; returns how often they did.
pub fn race(
    top: &Path,
    moved: &[(&str, &'static str)],
    seed: u64,
    mut act: impl FnMut(&mut Numbers),
) -> u64 {
    let (stop, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    // By their descriptors, or who moves would be led out itself.
    let open = |(directory, name): &(&str, &'static str)| {
        (fs::File::open(top.join(directory)).unwrap(), *name)
    };
    let moved: Vec<_> = moved.iter().map(open).collect();
    std::thread::scope(|scope| {
        for mover in 1..=MOVERS {
            let (stop, moves, moved) = (&stop, &moves, &moved);
            scope.spawn(move || {
                let mut numbers = Numbers(seed.wrapping_mul(2 * mover + 1) | 1);
                while !stop.load(Ordering::Relaxed) {
                    let (from, one) = &moved[numbers.below(moved.len())];
                    let (to, other) = &moved[numbers.below(moved.len())];
                    if renameat_with(from, *one, to, *other, RenameFlags::EXCHANGE).is_ok() {
                        moves.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let (mut numbers, begun) = (Numbers(seed | 1), Instant::now());
        let acted = std::panic::AssertUnwindSafe(|| {
            while begun.elapsed() < length() {
                act(&mut numbers);
            }
        });
        let ended = std::panic::catch_unwind(acted);
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
    moves.load(Ordering::Relaxed)
}

/// Returns the metadata of all entries beneath a directory, links as themselves: inode, mode,
/// owner, size, links, times.
pub fn facts(top: &Path) -> BTreeMap<PathBuf, [i64; 8]> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![top.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let one = fs::symlink_metadata(&path).unwrap();
        if one.is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        let numbers = [
            one.ino() as i64,
            i64::from(one.mode()),
            i64::from(one.uid()),
            one.size() as i64,
            one.nlink() as i64,
            one.mtime() ^ one.mtime_nsec(),
            one.ctime(),
            one.ctime_nsec(),
        ];
        found.insert(path, numbers);
    }
    found
}
