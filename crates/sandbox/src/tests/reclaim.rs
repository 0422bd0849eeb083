//! Tests that a walk through a tree that is still being changed stays in it.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat};

use super::skipping::{Avoidable, note_skip};
use crate::reclaim::{give_back, take_all};

/// The owner of the files that must not be reached.
const OTHER: u32 = 54_321;
/// The number of names that exist both in the tree, on the way to the moved directory, and
/// beside the tree.
const NAMES: u32 = 8;
const ROUNDS_MAX: u32 = 3_000;
const LONG: Duration = Duration::from_secs(60);

/// Reclaims a tree whose lowest directory is moved up and down all the time, until a file
/// beside the tree has another owner, or for `rounds_max` rounds. Returns the number of rounds
/// and whether one has.
fn race(rounds_max: u32, take: impl Fn(OwnedFd) -> std::io::Result<()>) -> (u32, bool) {
    let place = tempfile::tempdir().unwrap();
    let beside = place.path().join("beside");
    let top = beside.join("top");
    let (deep, high) = (top.join("a/b/c/moved"), top.join("moved"));
    fs::create_dir_all(&deep).unwrap();
    for number in 0..300 {
        fs::write(deep.join(number.to_string()), "").unwrap();
    }
    let canaries: Vec<_> = (0..NAMES)
        .map(|number| {
            let name = format!("name-{number}");
            fs::create_dir(top.join("a/b").join(&name)).unwrap();
            fs::create_dir(beside.join(&name)).unwrap();
            let canary = beside.join(name).join("canary");
            fs::write(&canary, "").unwrap();
            chown(&canary, Some(OTHER), Some(OTHER)).unwrap();
            canary
        })
        .collect();
    let (over, started) = (AtomicBool::new(false), Instant::now());
    let is_taken = |canary: &std::path::PathBuf| fs::metadata(canary).unwrap().uid() != OTHER;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fs::rename(&deep, &high).unwrap();
                std::thread::sleep(Duration::from_micros(200));
                fs::rename(&high, &deep).unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let mut rounds = 0;
        while rounds < rounds_max && started.elapsed() < LONG && !canaries.iter().any(is_taken) {
            // That it is refused is what it should be.
            let _ = take(File::open(&top).unwrap().into());
            rounds += 1;
        }
        over.store(true, Ordering::Relaxed);
        (rounds, canaries.iter().any(is_taken))
    })
}

/// Reclaims without checking where `..` leads.
fn trusting(top: OwnedFd) -> std::io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here = top;
    let mut waiting: Vec<Vec<CString>> = vec![take_all(&here)?];
    while let Some(directories) = waiting.last_mut() {
        match directories.pop() {
            Some(name) => {
                here = openat(&here, &name, flags, Mode::empty())?;
                waiting.push(take_all(&here)?);
            }
            None => {
                waiting.pop();
                if !waiting.is_empty() {
                    here = openat(&here, "..", flags, Mode::empty())?;
                }
            }
        }
    }
    Ok(())
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        let why = "only root has files of others to lose";
        println!("skipped: {why}");
        note_skip(why, Avoidable::No);
    }
    is_root
}

#[test]
fn what_is_moved_leads_no_reclaim_outside() {
    if !is_root() {
        return;
    }
    let (rounds, led_out) = race(ROUNDS_MAX, trusting);
    assert!(led_out, "the race was not won once in {rounds} rounds");
    let (tried, led_out) = race(rounds.saturating_mul(10).clamp(200, ROUNDS_MAX), |top| {
        give_back(&top)
    });
    assert!(!led_out, "led out after {tried} rounds; trusting: {rounds}");
}

#[test]
fn everything_that_stays_where_it_is_is_reclaimed() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let paths = ["a", "a/b", "a/b/c", "a/file", "a/b/file", "d", "d/link"];
    for path in ["a/b/c", "d"] {
        fs::create_dir_all(place.path().join(path)).unwrap();
    }
    for path in ["a/file", "a/b/file"] {
        fs::write(place.path().join(path), "").unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", place.path().join("d/link")).unwrap();
    let own = |path: &Path| std::os::unix::fs::lchown(path, Some(OTHER), Some(OTHER)).unwrap();
    paths.iter().for_each(|path| own(&place.path().join(path)));
    give_back(&File::open(place.path()).unwrap().into()).unwrap();
    for path in paths {
        let facts = fs::symlink_metadata(place.path().join(path)).unwrap();
        assert_eq!((facts.uid(), facts.gid()), (0, 0), "{path}");
    }
}
