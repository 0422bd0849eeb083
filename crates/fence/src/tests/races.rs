//! Tests of the judge against a program that moves the target of a judged path: directories,
//! files, sockets and links to the outside are exchanged as fast as possible while calls are
//! judged and made.
//!
//! The model: outside, no inode, mode, owner, attribute or time has changed afterwards, nothing
//! is watched, and no listener is reached. The control judges the path and then makes the call
//! by the same path, and is led outside.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use atoll_sys::judging::Answer;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::racing::{Numbers, facts, race, seed};
use crate::caller::Caller;
use crate::sockets::{self, Own};
use crate::{Attribute, Places, Refused, Target, attributes};

/// Entries that are moved during a race, each with its directory.
const MOVED: [(&str, &str); 10] = [
    ("", "d0"),
    ("", "d1"),
    ("d0", "sub"),
    ("d1", "sub"),
    ("d0", "f0"),
    ("d1", "f0"),
    ("d0", "socket"),
    ("d1", "socket"),
    ("", "out0"),
    ("", "out1"),
];
const SOUGHT: [&str; 8] = [
    "d0",
    "d0/f0",
    "d0/sub",
    "d1/sub/f0",
    "d1/f0",
    "out0",
    "out0/f0",
    "out1/d0/f0",
];
/// The most races run until one is lost, which shows that the others mean something.
const RACES_MAX: u64 = 10;
const SOCKETS: [&str; 4] = ["d0/socket", "d1/socket", "out0/socket", "out1/d0/socket"];
const NAME: &[u8] = b"user.race\0";
const SYMLINK_NOFOLLOW: u64 = 0x100;
const HERE: u64 = -100_i64 as u64;

/// Creates the same names in both trees, so that a judge who is led out finds the path it
/// sought. Returns the sockets that listen there.
fn fill(top: &Path) -> Vec<UnixListener> {
    let mut listeners = Vec::new();
    for directory in ["d0", "d1", "d0/sub", "d1/sub"] {
        fs::create_dir_all(top.join(directory)).unwrap();
        fs::write(top.join(directory).join("f0"), "text").unwrap();
    }
    for directory in ["d0", "d1"] {
        let listener = UnixListener::bind(top.join(directory).join("socket")).unwrap();
        listener.set_nonblocking(true).unwrap();
        listeners.push(listener);
    }
    listeners
}

struct Arena {
    _place: tempfile::TempDir,
    inside: PathBuf,
    outside: PathBuf,
    before: BTreeMap<PathBuf, [i64; 8]>,
    own: Vec<UnixListener>,
    foreign: Vec<UnixListener>,
}

impl Arena {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        let (inside, outside) = (top.join("inside"), top.join("outside"));
        let (own, foreign) = (fill(&inside), fill(&outside));
        symlink(outside.join("d0"), inside.join("out0")).unwrap();
        symlink("../outside", inside.join("out1")).unwrap();
        let before = facts(&outside);
        Self {
            _place: place,
            inside,
            outside,
            before,
            own,
            foreign,
        }
    }

    fn places(&self) -> Places {
        let inside = vec![self.inside.as_os_str().as_bytes().to_vec()];
        Places {
            readable: inside.clone(),
            writable: inside,
            services: Vec::new(),
        }
    }

    fn is_untouched(&self) -> bool {
        facts(&self.outside) == self.before
    }

    /// Returns the number of connections that reached the foreign sockets.
    fn heard(&self) -> usize {
        let all = self.foreign.iter();
        all.filter(|one| one.accept().is_ok()).count()
    }

    fn sought(&self, numbers: &mut Numbers, among: &[&str]) -> Vec<u8> {
        let path = self.inside.join(among[numbers.below(among.len())]);
        [path.as_os_str().as_bytes(), b"\0"].concat()
    }
}

fn caller() -> Caller {
    let Ok(caller) = Caller::new(super::thread()) else {
        panic!("one's own memory");
    };
    caller
}

fn at(bytes: &[u8]) -> u64 {
    bytes.as_ptr() as u64
}

/// Changes one attribute by a random one of the calls that can.
fn change(
    arena: &Arena,
    places: &Places,
    directory: &OwnedFd,
    numbers: &mut Numbers,
) -> Result<Answer, Refused> {
    let path = arena.sought(numbers, &SOUGHT);
    let beneath = &path[arena.inside.as_os_str().len() + 1..];
    let (by_path, by_name) = (at(&path), at(beneath));
    let start = directory.as_raw_fd() as u64;
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let owner = [u64::from(user.as_raw()), u64::from(group.as_raw())];
    let mode = [0o700_u64, 0o750, 0o755][numbers.below(3)];
    let value = b"value";
    let (target, attribute, arguments) = match numbers.below(7) {
        0 => (Target::Path, Attribute::Mode, [by_path, mode, 0, 0, 0, 0]),
        1 => (
            Target::At(None),
            Attribute::Mode,
            [start, by_name, mode, 0, 0, 0],
        ),
        2 => (
            Target::At(Some(3)),
            Attribute::Nanoseconds,
            [HERE, by_path, 0, 0, 0, 0],
        ),
        3 => (
            Target::At(Some(4)),
            Attribute::Owner,
            [start, by_name, owner[0], owner[1], SYMLINK_NOFOLLOW, 0],
        ),
        4 => (
            Target::Link,
            Attribute::Owner,
            [by_path, owner[0], owner[1], 0, 0, 0],
        ),
        5 => (
            Target::Path,
            Attribute::Set,
            [by_path, at(NAME), at(value), value.len() as u64, 0, 0],
        ),
        _ => (
            Target::Path,
            Attribute::Remove,
            [by_path, at(NAME), 0, 0, 0, 0],
        ),
    };
    attributes::change(&caller(), target, attribute, &arguments, places, || Ok(()))
}

#[test]
fn a_judge_changes_nothing_outside_whatever_moves() {
    let (arena, seed) = (Arena::new(), seed());
    let places = arena.places();
    let directory: OwnedFd = fs::File::open(&arena.inside).unwrap().into();
    let (mut done, mut refused, mut round) = (0, 0, 0);
    let moves = race(&arena.inside, &MOVED, seed, |numbers| {
        match change(&arena, &places, &directory, numbers) {
            Ok(_) => done += 1,
            Err(_) => refused += 1,
        }
        round += 1;
        if round % 64 == 0 {
            assert!(arena.is_untouched(), "the judge was led out");
        }
    });
    println!("{done} done, {refused} refused, {moves} moves");
    assert!(done > 100 && refused > 100 && moves > 500);
    assert!(arena.is_untouched(), "the judge was led out");
}

#[test]
fn a_judge_lets_nobody_watch_outside_whatever_moves() {
    let (arena, seed) = (Arena::new(), seed());
    let places = arena.places();
    let (mut done, mut refused) = (0, 0);
    let moves = race(&arena.inside, &MOVED, seed, |numbers| {
        let flags = rustix::fs::inotify::CreateFlags::CLOEXEC;
        let events: OwnedFd = rustix::fs::inotify::init(flags).unwrap();
        let path = arena.sought(numbers, &SOUGHT);
        const IN_ATTRIB: u64 = 4;
        let arguments = [events.as_raw_fd() as u64, at(&path), IN_ATTRIB, 0, 0, 0];
        match attributes::watch(&caller(), &arguments, &places, || Ok(())) {
            Err(_) => refused += 1,
            Ok(_) => {
                done += 1;
                // proc(5): the inode's number, in hexadecimal.
                let told = format!("/proc/self/fdinfo/{}", events.as_raw_fd());
                let told = fs::read_to_string(told).unwrap();
                let inode = told.split(" ino:").nth(1).unwrap();
                let inode = inode.split(' ').next().unwrap();
                let inode = i64::from_str_radix(inode, 16).unwrap();
                let is_outside = arena.before.values().any(|one| one[0] == inode);
                assert!(!is_outside, "something outside is watched");
            }
        }
    });
    println!("{done} watched, {refused} refused, {moves} moves");
    assert!(done > 10 && refused > 10 && moves > 500);
}

#[test]
fn a_judge_connects_to_nobody_outside_whatever_moves() {
    let (arena, seed) = (Arena::new(), seed());
    let places = arena.places();
    let mut own = Own::default();
    for listener in &arena.own {
        let arguments = [listener.as_raw_fd() as u64, 16, 0, 0, 0, 0];
        let listens = sockets::listen(&caller(), &arguments, &mut own, || Ok(()));
        assert!(listens.is_ok());
    }
    let (mut done, mut refused) = (0, 0);
    let moves = race(&arena.inside, &MOVED, seed, |numbers| {
        let (kind, flags) = (SocketType::STREAM, SocketFlags::NONBLOCK);
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
        let path = arena.sought(numbers, &SOCKETS);
        let address = [&1_u16.to_ne_bytes()[..], &path].concat();
        let number = socket.as_raw_fd() as u64;
        let arguments = [number, at(&address), address.len() as u64, 0, 0, 0];
        match sockets::connect(&caller(), &arguments, &own, None, &places, || Ok(())) {
            Ok(Answer::Value(_)) => done += 1,
            Ok(_) | Err(_) => refused += 1,
        }
        assert_eq!(arena.heard(), 0, "the judge was led out to {path:?}");
        arena.own.iter().for_each(|one| drop(one.accept()));
    });
    println!("{done} connected, {refused} refused, {moves} moves");
    assert!(done > 20 && refused > 20 && moves > 500);
}

/// A judge that checks a path and then acts by the path loses the same race.
#[test]
fn a_judge_of_paths_is_led_out_by_the_same_race() {
    let seed = seed();
    // Who is to lose it may not get the processor in time.
    let is_lost = (0..RACES_MAX).any(|more| is_led_out(seed.wrapping_add(more)));
    assert!(
        is_lost,
        "nobody outside was connected to, or nothing changed"
    );
}

fn is_led_out(seed: u64) -> bool {
    let arena = Arena::new();
    let mut heard = 0;
    let _ = race(&arena.inside, &MOVED, seed, |numbers| {
        let is_within = |path: &Path| {
            path.canonicalize()
                .is_ok_and(|place| place.starts_with(&arena.inside))
        };
        let path = arena.inside.join(SOUGHT[numbers.below(SOUGHT.len())]);
        if is_within(&path) {
            let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o751));
        }
        let path = arena.inside.join(SOCKETS[numbers.below(SOCKETS.len())]);
        if is_within(&path) && arena.own[0].set_nonblocking(true).is_ok() {
            arena.own.iter().for_each(|one| drop(one.accept()));
            let _ = UnixStream::connect(&path);
        }
        heard += arena.heard();
    });
    heard > 0 && !arena.is_untouched()
}
