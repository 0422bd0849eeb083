use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use atoll_model::{LimitHit, VolumeMount};

use super::skipping::{Avoidable, note_skip};
use crate::disk::{DiskWatch, volume_usage};

/// Late enough for a count, whatever the free space looks like.
const LATER: Duration = Duration::from_secs(11);

fn layers() -> (tempfile::TempDir, Vec<PathBuf>) {
    let place = tempfile::tempdir().unwrap();
    let layers = vec![place.path().join("one"), place.path().join("two")];
    for layer in &layers {
        fs::create_dir_all(layer.join("deep/er")).unwrap();
        fs::write(layer.join("deep/er/file"), vec![1; 40_000]).unwrap();
    }
    (place, layers)
}

fn check(bytes_max: u64, inodes_max: u64) -> Option<LimitHit> {
    let (_place, layers) = layers();
    let now = Instant::now();
    DiskWatch::new(layers, bytes_max, inodes_max, now).check(now + LATER)
}

#[test]
fn what_all_layers_hold_together_is_counted() {
    assert_eq!(check(1 << 30, 1_000), None);
    assert_eq!(
        check(60_000, 1_000),
        Some(LimitHit::Disk),
        "both layers together"
    );
    assert_eq!(check(1 << 30, 5), Some(LimitHit::Inodes));
    assert_eq!(check(1 << 30, 6), None, "three in each");
    assert_eq!(check(0, 0), Some(LimitHit::Disk));
}

#[test]
fn volume_beyond_its_quota_is_told_apart() {
    let (place, layers) = layers();
    let check = |bytes_max: u64, read_only: bool| {
        let mount = VolumeMount {
            id: "vol1".to_owned(),
            name: "models".to_owned(),
            host: layers[1].clone(),
            inside: "/mnt/models".into(),
            read_only,
            bytes_max,
        };
        let own = DiskWatch::new(vec![layers[0].clone()], 60_000, 100, Instant::now());
        own.and_volumes(&[mount]).check(Instant::now() + LATER)
    };
    assert_eq!(check(60_000, false), None, "each for itself");
    assert_eq!(check(30_000, false), Some(LimitHit::Volume));
    assert_eq!(check(30_000, true), None);
    let (bytes, inodes) = volume_usage(&layers[1], u64::MAX);
    assert!((40_000..60_000).contains(&bytes), "{bytes}");
    assert_eq!(inodes, 3);
    drop(place);
}

#[test]
fn links_are_counted_as_links() {
    let (place, layers) = layers();
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("large"), vec![1; 1_000_000]).unwrap();
    symlink(&outside, layers[0].join("directory")).unwrap();
    symlink(outside.join("large"), layers[0].join("file")).unwrap();
    symlink("..", layers[0].join("up")).unwrap();
    let now = Instant::now();
    assert_eq!(
        DiskWatch::new(layers, 500_000, 100, now).check(now + LATER),
        None
    );
}

#[test]
fn holes_are_not_counted() {
    let (_place, layers) = layers();
    let hole = fs::File::create(layers[0].join("hole")).unwrap();
    hole.set_len(1 << 40).unwrap();
    let now = Instant::now();
    assert_eq!(
        DiskWatch::new(layers, 1 << 20, 100, now).check(now + LATER),
        None
    );
}

#[test]
fn looks_have_their_pace() {
    let (_place, layers) = layers();
    let now = Instant::now();
    let mut watch = DiskWatch::new(layers, 0, 0, now);
    let first = watch.next().unwrap();
    assert!(first > now && first <= now + Duration::from_secs(1));
    assert_eq!(watch.check(now), None, "not yet");
    assert_eq!(watch.check(now + LATER), Some(LimitHit::Disk));
    assert!(watch.next().unwrap() > now + LATER);
    // Nothing to watch, nothing to wait for.
    let mut none = DiskWatch::new(Vec::new(), 0, 0, now);
    assert_eq!(none.next(), None);
    assert_eq!(none.check(now + LATER), None);
}

#[test]
fn what_vanishes_or_cannot_be_read_ends_nothing() {
    let (place, layers) = layers();
    let closed = layers[1].join("deep");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    fs::remove_dir_all(&layers[0]).unwrap();
    let now = Instant::now();
    assert_eq!(
        DiskWatch::new(layers, 1 << 20, 100, now).check(now + LATER),
        None
    );
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    drop(place);
}

#[test]
fn what_a_copy_held_before_is_not_counted() {
    let (_place, mut layers) = layers();
    let copy = layers.pop().unwrap();
    let now = Instant::now();
    let watch = |written: &[PathBuf]| {
        let watch = DiskWatch::new(written.to_vec(), 60_000, 3, now);
        watch.and_grown(copy.clone())
    };
    assert!(watch(&[]).next().is_some());
    assert_eq!(watch(&[]).check(now + LATER), None);
    assert_eq!(watch(&layers).check(now + LATER), None);
    let mut running = watch(&[]);
    fs::write(copy.join("deep/more"), vec![1; 80_000]).unwrap();
    assert_eq!(running.check(now + LATER), Some(LimitHit::Disk));
    let mut running = watch(&[]);
    for name in ["a", "b", "c", "d"] {
        fs::write(copy.join(name), "").unwrap();
    }
    assert_eq!(running.check(now + LATER), Some(LimitHit::Inodes));
}

#[test]
fn trees_deeper_than_a_path_are_counted() {
    let place = tempfile::tempdir().unwrap();
    let name = "a".repeat(200);
    let name = name.as_str();
    let mode = rustix::fs::Mode::RWXU;
    let open = |at: &dyn std::os::fd::AsFd, name: &str| {
        rustix::fs::openat(at, name, rustix::fs::OFlags::DIRECTORY, mode).unwrap()
    };
    let mut here = open(&rustix::fs::CWD, place.path().to_str().unwrap());
    for _ in 0..60 {
        rustix::fs::mkdirat(&here, name, mode).unwrap();
        here = open(&here, name);
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let file = rustix::fs::openat(&here, "file", flags, mode).unwrap();
    rustix::io::write(&file, &[1; 100_000]).unwrap();
    let check = |bytes, inodes| {
        let now = Instant::now();
        let layers = vec![place.path().to_path_buf()];
        DiskWatch::new(layers, bytes, inodes, now).check(now + LATER)
    };
    assert_eq!(check(1 << 30, 61), None);
    assert_eq!(check(1 << 30, 60), Some(LimitHit::Inodes));
    assert_eq!(
        check(340_000, 61),
        Some(LimitHit::Disk),
        "60 directories, a file"
    );
    assert_eq!(check(100_000, 61), Some(LimitHit::Disk));
}

#[test]
fn what_is_deleted_and_held_open_is_counted() {
    let place = tempfile::tempdir().unwrap();
    let layer = place.path().to_path_buf();
    // Of the program that is started by the first process of a launcher: this test's.
    let script =
        "exec 9> \"$0/file\"; rm \"$0/file\"; head -c 300000 /dev/zero >&9; echo ready; read x";
    let mut first = std::process::Command::new("sh")
        .args(["-c", "sh -c \"$1\" \"$0\"; true"])
        .arg(&layer)
        .arg(script)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    std::io::Read::read_exact(first.stdout.as_mut().unwrap(), &mut said).unwrap();
    let check = |bytes| {
        let now = Instant::now();
        DiskWatch::new(vec![layer.clone()], bytes, 100, now)
            .and_processes_of(std::process::id(), None)
            .check(now + LATER)
    };
    let held = [check(200_000), check(1 << 30)];
    drop(first.stdin.take());
    let _ = first.wait();
    assert_eq!(held, [Some(LimitHit::Disk), None]);
    assert_eq!(check(200_000), None);
}

/// The free space of a file system at first, bytes and inodes.
const FREE: (u64, u64) = (1 << 40, 1 << 30);

thread_local! {
    /// The present free space of a test's file systems.
    static LEFT: Cell<(u64, u64)> = const { Cell::new(FREE) };
}

fn left(_: &Path) -> Option<(u64, u64)> {
    Some(LEFT.get())
}

/// Makes one layer, watched from the returned time on.
fn watched(bytes_max: u64, inodes_max: u64) -> (tempfile::TempDir, DiskWatch, Instant) {
    let place = tempfile::tempdir().unwrap();
    let now = Instant::now();
    LEFT.set(FREE);
    let layers = vec![place.path().to_path_buf()];
    let watch = DiskWatch::by(left, layers, bytes_max, inodes_max, now);
    (place, watch, now)
}

/// Returns the limit exceeded at one of the looks within a second, if any.
fn within_a_second(watch: &mut DiskWatch, since: Instant) -> Option<LimitHit> {
    let end = since + Duration::from_secs(1);
    while watch.next().unwrap() <= end {
        let hit = watch.check(watch.next().unwrap());
        if hit.is_some() {
            return hit;
        }
    }
    None
}

fn write(place: &tempfile::TempDir, files: u64, bytes: usize) {
    for number in 0..files {
        fs::write(place.path().join(number.to_string()), vec![1; bytes]).unwrap();
    }
}

#[test]
fn growth_while_others_free_space_is_counted() {
    let freed = [FREE, (FREE.0 + (1 << 30), FREE.1 + 100_000)];
    for free in freed {
        let (place, mut watch, now) = watched(1 << 30, 300);
        LEFT.set(free);
        write(&place, 301, 0);
        let hit = within_a_second(&mut watch, now);
        assert_eq!(hit, Some(LimitHit::Inodes), "{free:?}");
        let (place, mut watch, now) = watched(100_000, 300);
        LEFT.set(free);
        write(&place, 2, 60_000);
        let hit = within_a_second(&mut watch, now);
        assert_eq!(hit, Some(LimitHit::Disk), "{free:?}");
        // The control.
        let (place, mut watch, now) = watched(1 << 30, 300);
        LEFT.set(free);
        write(&place, 300, 0);
        assert_eq!(within_a_second(&mut watch, now), None, "{free:?}");
    }
}

/// Hides a directory, if possible: not from root.
fn hide(place: &tempfile::TempDir) -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        let why = "nothing is hidden from root";
        println!("skipped: {why}");
        note_skip(why, Avoidable::No);
        return None;
    }
    let closed = place.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    Some(closed)
}

#[test]
fn hidden_growth_after_others_freed_is_counted() {
    let (place, mut watch, now) = watched(1 << 20, 300);
    LEFT.set((FREE.0 + (1 << 30), FREE.1));
    assert_eq!(within_a_second(&mut watch, now), None);
    let Some(closed) = hide(&place) else { return };
    LEFT.set((FREE.0 + (1 << 30) - (2 << 20), FREE.1));
    let hit = within_a_second(&mut watch, now + Duration::from_secs(1));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(hit, Some(LimitHit::Disk));
}

#[test]
fn hidden_growth_of_a_workspace_is_counted() {
    let place = tempfile::tempdir().unwrap();
    write(&place, 1, 4 << 20);
    let now = Instant::now();
    LEFT.set(FREE);
    let mut watch =
        DiskWatch::by(left, Vec::new(), 1 << 20, 300, now).and_grown(place.path().to_path_buf());
    let Some(closed) = hide(&place) else { return };
    LEFT.set((FREE.0 - (2 << 20), FREE.1));
    let hit = within_a_second(&mut watch, now);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(hit, Some(LimitHit::Disk));
}
