//! A live workspace is added to a tree, sealed and pinned in places, while its directories and
//! links to the outside swap places as fast as possible.
//!
//! The model: a tree that is made shows nothing of what lies outside, and writing to all
//! that it shows changes nothing there; what was judged is shown, or nothing is made. The
//! control looks by name, mounts by the same name, and shows what lies outside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use atoll_frame::{Operation, Source};
use atoll_sys::{descriptor, mount};

use super::racing::{facts, race, seed};
use super::tree::{built, directory, source, within, writable};

/// Entries that change places, each with its directory.
const MOVED: [(&str, &str); 4] = [("", "d0"), ("", "out"), ("d0", "sub"), ("d0", "out")];
/// The most runs of a race until it has had both outcomes.
const RACES_MAX: u64 = 10;
const INSIDE: &str = "inside";
const OUTSIDE: &str = "outside";

struct Arena {
    _place: tempfile::TempDir,
    inside: PathBuf,
    outside: PathBuf,
    before: BTreeMap<PathBuf, [i64; 8]>,
}

impl Arena {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        let (inside, outside) = (top.join("inside"), top.join("outside"));
        for (top, content) in [(&inside, INSIDE), (&outside, OUTSIDE)] {
            for directory in ["d0", "d0/sub", "sub"] {
                fs::create_dir_all(top.join(directory)).unwrap();
                fs::write(top.join(directory).join("file"), content).unwrap();
            }
        }
        symlink(outside.join("d0"), inside.join("out")).unwrap();
        symlink("../../outside", inside.join("d0/out")).unwrap();
        let before = facts(&outside);
        Self {
            _place: place,
            inside,
            outside,
            before,
        }
    }

    fn inodes_outside(&self) -> BTreeSet<u64> {
        self.before.values().map(|one| one[0] as u64).collect()
    }

    /// Returns a view of a directory, described as it is at this moment.
    fn judged_now(&self) -> Option<Operation> {
        let path = self.inside.join("d0/sub");
        let found = path.symlink_metadata().ok()?;
        Some(Operation::Writable {
            path: b"view".to_vec(),
            source: Source {
                path: path.as_os_str().as_bytes().to_vec(),
                device: found.dev(),
                inode: found.ino(),
            },
            as_caller: true,
        })
    }

    fn is_untouched(&self) -> bool {
        facts(&self.outside) == self.before
    }
}

/// A file for the results of processes in namespaces of their own.
struct Told {
    path: PathBuf,
    file: File,
}

impl Told {
    fn new(arena: &Arena) -> Self {
        let path = arena.inside.with_file_name("told");
        let file = File::options().create(true).append(true).open(&path);
        Self {
            file: file.unwrap(),
            path,
        }
    }

    fn say(&mut self, what: &str) {
        writeln!(self.file, "{what}").unwrap();
    }

    fn count(&self, what: &str) -> usize {
        let text = fs::read_to_string(&self.path).unwrap();
        text.lines().filter(|line| *line == what).count()
    }

    /// Returns whether such processes can run here.
    fn can(&mut self) -> bool {
        within(|| self.say("here"));
        self.count("here") > 0
    }
}

/// Returns the plan of a live workspace: writable, with the way to its control files pinned, these
/// sealed and one of them covered; and a view of a directory in it.
fn plan(arena: &Arena, judged: &Operation) -> Vec<Operation> {
    let path = |text: &str| text.as_bytes().to_vec();
    vec![
        directory("w"),
        directory("view"),
        writable("w", &arena.inside),
        Operation::Pin { path: path("w/d0") },
        Operation::Seal {
            path: path("w/d0/sub"),
        },
        Operation::HideFile {
            path: path("w/d0/file"),
            null: source(Path::new("/dev/null")),
        },
        judged.clone(),
    ]
}

/// Inspects everything shown, and writes to it.
fn expect_nothing_of(outside: &BTreeSet<u64>) {
    let mut waiting = vec![PathBuf::from("/w"), PathBuf::from("/view")];
    while let Some(path) = waiting.pop() {
        let Ok(found) = path.symlink_metadata() else {
            continue;
        };
        assert!(!outside.contains(&found.ino()), "{path:?} is shown");
        if found.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            waiting.extend(entries.map(|entry| entry.path()));
            let _ = fs::write(path.join("new"), INSIDE);
        } else if found.is_file() {
            assert_ne!(fs::read_to_string(&path).ok().as_deref(), Some(OUTSIDE));
            // What is there now may be another thing: of the host's device that covers a
            // file nothing is changed.
            let file = File::options().write(true).open(&path);
            let plain = |file: &File| file.metadata().is_ok_and(|found| found.is_file());
            if let Some(mut file) = file.ok().filter(plain) {
                let _ = file.write_all(INSIDE.as_bytes());
                let _ = file.set_permissions(fs::Permissions::from_mode(0o600));
            }
        }
    }
}

#[test]
fn a_tree_in_a_live_workspace_shows_nothing_outside_whatever_moves() {
    let seed = seed();
    for more in 0..RACES_MAX {
        // A race leaves its tree with other names than the next one begins with.
        let arena = Arena::new();
        let outside = arena.inodes_outside();
        // What is judged stands in the description with its inode.
        let judged = writable("view", &arena.inside.join("d0"));
        let inode = fs::metadata(arena.inside.join("d0")).unwrap().ino();
        let mut told = Told::new(&arena);
        if !told.can() {
            return;
        }
        let moves = race(&arena.inside, &MOVED, seed.wrapping_add(more), |numbers| {
            // Judged before all moves, or just now, when the way to it may lead outside.
            let now = arena.judged_now().filter(|_| numbers.below(2) == 0);
            let is_fixed = now.is_none();
            built(plan(&arena, now.as_ref().unwrap_or(&judged)), |made| {
                told.say(if made.is_ok() { "made" } else { "not" });
                if made.is_ok() {
                    let shown = fs::metadata("/view").unwrap().ino();
                    assert!(!is_fixed || shown == inode);
                    expect_nothing_of(&outside);
                }
            });
        });
        let (made, not) = (told.count("made"), told.count("not"));
        println!("{made} made, {not} not, {moves} moves");
        assert!(arena.is_untouched(), "something outside was changed");
        if made > 0 && not > 0 && moves > 500 {
            return;
        }
    }
    panic!("no tree was made, or all");
}

/// A lookup by name followed by a mount by the same name escapes by the same race.
#[test]
fn mounting_by_name_is_led_out_by_the_same_race() {
    let seed = seed();
    for more in 0..RACES_MAX {
        // A race leaves its tree with other names than the next one begins with.
        let arena = Arena::new();
        let outside = arena.inodes_outside();
        let path = arena.inside.join("d0");
        let mut told = Told::new(&arena);
        if !told.can() {
            return;
        }
        let _ = race(&arena.inside, &MOVED, seed.wrapping_add(more), |_| {
            within(|| {
                for _ in 0..500 {
                    if path.symlink_metadata().is_ok_and(|found| found.is_dir())
                        && let Ok(opened) = File::open(&path)
                        && let Ok(copied) = mount::copy(opened.as_fd())
                        && outside.contains(&descriptor::identity(copied.as_fd()).unwrap().inode)
                    {
                        told.say("led out");
                        return;
                    }
                }
            });
        });
        if told.count("led out") > 0 {
            return;
        }
    }
    panic!("nothing outside was mounted");
}
