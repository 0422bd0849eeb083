//! Every lookup by path in this crate, against a model, while the tree is changed beneath it:
//! directories, files and links to outside take each other's places as fast as possible.
//!
//! The model: every entry found is one of the tree's own inodes, or nothing; every text read is the
//! content of one of its own files; and outside not an inode, a byte, a time or a link count
//! differs afterwards. The controls do the same by plain paths, and are led outside.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

use super::racing::{Numbers, facts, race, seed};
use super::support::*;
use crate::engine::Engine;
use crate::entries::Walker;
use crate::journal::{Journal, Work};
use crate::path::Bytes;
use crate::plan::{Act, Content, Entry, Node};
use crate::steps::PlanWriter;
use crate::tree::{Tree, path_bytes};
use crate::*;

/// Entries that change places, each with its directory: directories, files, and links
/// that lead out.
const MOVED: [(&str, &str); 8] = [
    ("", "d0"),
    ("", "d1"),
    ("d0", "sub"),
    ("d1", "sub"),
    ("d0", "f0"),
    ("d1", "f0"),
    ("", "out0"),
    ("", "out1"),
];
/// The paths that are looked for.
const SOUGHT: [&str; 9] = [
    "d0",
    "d0/f0",
    "d0/sub",
    "d0/sub/f1",
    "d1/f1",
    "d1/sub/f0",
    "out0",
    "out1",
    "out0/f0",
];
/// A file and a directory that take each other's place.
const KINDS: [(&str, &str); 2] = [("", "f0"), ("", "d0")];
/// The modes of directories and files, and those that files are to get.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
const CHANGED_MODE: u32 = 0o600;
/// The extended attribute that files are to be marked with.
const MARK: &str = "user.mark";
/// A control file, of which there are some outside and none inside.
const CONTROL: &str = ".envrc";
const INSIDE: &str = "inside";
const OUTSIDE: &str = "outside";
/// The most races that are run until one had both outcomes.
const RACES_MAX: u64 = 10;

/// Fills a tree with the same names inside and outside, so that whoever is led out finds what was
/// sought.
fn fill(top: &Path, content: &str) {
    for directory in ["d0", "d1", "d0/sub", "d1/sub", "sub"] {
        fs::create_dir_all(top.join(directory)).unwrap();
        for file in ["f0", "f1"] {
            fs::write(top.join(directory).join(file), content).unwrap();
        }
    }
    for file in ["f0", "f1"] {
        fs::write(top.join(file), content).unwrap();
    }
    for (path, _) in facts(top) {
        let mode = if path.is_dir() {
            DIRECTORY_MODE
        } else {
            FILE_MODE
        };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

struct Arena {
    place: tempfile::TempDir,
    own: BTreeSet<u64>,
    outside: BTreeMap<PathBuf, [i64; 8]>,
}

impl Arena {
    fn new() -> Self {
        let place = Stand::bare();
        let (host, outside) = (place.path().join("host"), place.path().join("outside"));
        fill(&host, INSIDE);
        fill(&outside, OUTSIDE);
        symlink(outside.join("d0"), host.join("out0")).unwrap();
        symlink("../outside", host.join("out1")).unwrap();
        for directory in ["", "d0", "d0/sub"] {
            fs::write(outside.join(directory).join(CONTROL), OUTSIDE).unwrap();
        }
        let own = facts(&host).values().map(|one| one[0] as u64).collect();
        let outside = facts(&outside);
        Self {
            place,
            own,
            outside,
        }
    }

    fn host(&self) -> PathBuf {
        self.place.path().join("host")
    }

    fn is_untouched(&self) -> bool {
        let outside = self.place.path().join("outside");
        let content = |path: &PathBuf| fs::read_to_string(path).ok();
        let is_same = |path: &PathBuf| content(path).is_none_or(|text| text == OUTSIDE);
        facts(&outside) == self.outside && self.outside.keys().all(is_same)
    }

    /// Runs `act` while entries change places; returns how often they did.
    fn race(&self, seed: u64, act: impl FnMut(&mut Numbers)) -> u64 {
        self.race_of(&MOVED, seed, act)
    }

    fn race_of(
        &self,
        moved: &[(&str, &'static str)],
        seed: u64,
        act: impl FnMut(&mut Numbers),
    ) -> u64 {
        race(&self.host(), moved, seed, act)
    }
}

/// Asserts that a text was read from a file of the tree's own.
fn expect_own(text: &str, by: &str) {
    assert_eq!(text, INSIDE, "{by} was led out");
}

/// Asserts that everything in a copy is of the tree's own: no file holds content from outside, and
/// no metadata meant for a file (its mode, its mark) has reached a directory.
fn expect_own_copy(copy: &Path, by: &str) {
    for path in facts(copy).keys() {
        let found = fs::symlink_metadata(path).unwrap();
        let mode = found.mode() & 0o7777;
        if found.is_file() {
            expect_own(&fs::read_to_string(path).unwrap(), by);
            let known = mode == FILE_MODE || mode == CHANGED_MODE;
            assert!(known, "{by}: the file {path:?} has {mode:o}");
        } else if found.is_dir() {
            // What was being prepared when its directory moved away stays behind.
            let is_prepared = path.to_string_lossy().contains("/.atoll-") && mode == 0o700;
            let is_known = mode == DIRECTORY_MODE || is_prepared;
            assert!(is_known, "{by}: the directory {path:?} has {mode:o}");
            let marked = rustix::fs::lgetxattr_query(path, MARK);
            assert!(
                marked.is_err(),
                "{by}: the directory {path:?} has a file's mark"
            );
        }
    }
}

#[test]
fn what_is_found_by_a_path_is_the_trees_own_whatever_moves() {
    let (arena, seed) = (Arena::new(), seed());
    let tree = Tree::open(&arena.host()).unwrap();
    let root = tree.root().try_clone_to_owned().unwrap();
    let top = rustix::fs::fstat(&root).unwrap().st_ino;
    let (mut found, mut nothing) = (0, 0);
    let moves = arena.race(seed, |numbers| {
        let sought = path(SOUGHT[numbers.below(SOUGHT.len())]);
        let own = |inode: u64, by: &str| {
            assert!(inode == top || arena.own.contains(&inode), "{by}: {sought}");
        };
        let inode = |fd: &_| rustix::fs::fstat(fd).unwrap().st_ino;
        let result: io::Result<()> = match numbers.below(6) {
            0 => tree.facts(&sought).map(|facts| {
                facts
                    .into_iter()
                    .for_each(|facts| own(facts.inode, "facts"));
            }),
            1 => tree.file(&sought).map(|(mut file, facts)| {
                own(facts.inode, "file");
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                expect_own(&text, "file");
            }),
            2 => tree
                .directory(&sought)
                .map(|fd| own(inode(&fd), "directory")),
            3 => tree.place_of(&sought).map(|fd| own(inode(&fd), "place")),
            4 => tree.handle(&sought).map(|fd| own(inode(&fd), "handle")),
            _ => tree.link_target(&sought).map(|target| {
                let target = String::from_utf8(target).unwrap();
                assert!(target.ends_with("/outside") || target.ends_with("/outside/d0"));
            }),
        };
        match result {
            Ok(()) => found += 1,
            Err(_) => nothing += 1,
        }
    });
    println!("{found} found, {nothing} not, {moves} moves");
    assert!(found > 500 && nothing > 500 && moves > 500);
    assert!(arena.is_untouched());
}

/// Returns a copy of the arena in which a program has changed all files' modes and marks.
fn changed_copy(arena: &Arena) -> (PathBuf, SystemTime) {
    let layer = arena.place.path().join("layer");
    let finished = checkpoint(&arena.host(), &layer, IdShift::None, &mut |_| {})
        .unwrap()
        .finished;
    for file in facts(&layer).keys().filter(|path| path.is_file()) {
        fs::set_permissions(file, fs::Permissions::from_mode(CHANGED_MODE)).unwrap();
        rustix::fs::lsetxattr(file, MARK, b"file", rustix::fs::XattrFlags::empty()).unwrap();
    }
    (layer, finished)
}

/// Applies and undoes the changes in a copy, over whatever changed outside; returns whether it was
/// done. `look` is called at every step.
fn apply_and_undo(
    arena: &Arena,
    (layer, finished): &(PathBuf, SystemTime),
    round: u64,
    look: &dyn Fn(&str),
) -> bool {
    let paths = LayerPaths {
        put_back: None,
        before: arena.host(),
        after: AfterTree::Copy {
            path: layer.clone(),
            finished: *finished,
        },
        since: SystemTime::now(),
        ids: IdShift::None,
    };
    let force = Selection {
        force: true,
        ..everything()
    };
    let planned = changes(&paths, &Bounds::default())
        .ok()
        .and_then(|set| plan_apply(&paths, &set, &force).ok());
    let journal = arena.place.path().join(format!("journal{round}"));
    let done = planned.is_some_and(|plan| apply(plan, &journal, &mut |_| look("apply")).is_ok());
    look("what was applied or taken back");
    if done {
        let _ = undo(&journal, true);
        look("undo");
    }
    done
}

#[test]
fn what_is_copied_applied_and_taken_back_stays_within_whatever_moves() {
    let (arena, seed) = (Arena::new(), seed());
    let host = arena.host();
    // What the program has made of its copy besides: some files removed and added.
    let layer = changed_copy(&arena);
    fs::write(layer.0.join("d0/sub/new"), INSIDE).unwrap();
    fs::write(layer.0.join("d1/new"), INSIDE).unwrap();
    fs::remove_file(layer.0.join("d1/sub/f1")).unwrap();
    let (mut round, mut done, mut refused, mut copies) = (0, 0, 0, 0);
    let moves = arena.race(seed, |numbers| {
        round += 1;
        if numbers.below(3) == 0 {
            let copy = arena.place.path().join(format!("copy{round}"));
            if checkpoint(&host, &copy, IdShift::None, &mut |_| {}).is_ok() {
                copies += 1;
            }
            expect_own_copy(&copy, "checkpoint");
            fs::remove_dir_all(&copy).unwrap();
            return;
        }
        match apply_and_undo(&arena, &layer, round, &|_| {}) {
            true => done += 1,
            false => refused += 1,
        }
        assert!(arena.is_untouched(), "round {round}");
    });
    println!("{done} applied, {refused} refused, {copies} copies, {moves} moves");
    assert!(done + refused > 3 && moves > 500);
    assert!(arena.is_untouched());
    expect_own_copy(&host, "apply");
}

/// Metadata meant for a file changes files only, and the inode that is looked at is the one that is
/// changed: a directory that takes the file's place at that moment keeps its mode.
#[test]
fn a_mode_never_meets_what_took_the_place_of_what_it_was_for() {
    let (arena, seed) = (Arena::new(), seed());
    let layer = changed_copy(&arena);
    for file in facts(&layer.0).keys().filter(|path| path.is_file()) {
        if *file != layer.0.join("f0") {
            fs::remove_file(file).unwrap();
            fs::remove_file(arena.host().join(file.strip_prefix(&layer.0).unwrap())).unwrap();
        }
    }
    let directory = fs::File::open(arena.host().join("d0")).unwrap();
    let expect_its_own_mode = |by: &str| {
        let mode = directory.metadata().unwrap().mode() & 0o7777;
        assert_eq!(mode, DIRECTORY_MODE, "{by} met the directory");
        let marked = rustix::fs::fgetxattr_query(&directory, MARK);
        assert!(marked.is_err(), "{by} marked the directory");
    };
    let (mut round, mut done) = (0, 0);
    for more in 0..RACES_MAX {
        let moves = arena.race_of(&KINDS, seed.wrapping_add(more), |_| {
            round += 1;
            let applied = apply_and_undo(&arena, &layer, round, &expect_its_own_mode);
            done += u64::from(applied);
        });
        println!("{done} of {round} applied, {moves} moves");
        if done > 0 && round > done && moves > 500 {
            break;
        }
    }
    assert!(done > 0 && round > done, "nothing was applied, or all");
    expect_own_copy(&arena.host(), "apply");
}

/// The control: a lookup and a change by name, which must not be; the directory gets the mode meant
/// for the file.
#[test]
fn a_look_by_name_is_led_to_another_kind_by_the_same_race() {
    until_lost("no directory got a file's mode", |seed| {
        let arena = Arena::new();
        let place = fs::File::open(arena.host()).unwrap();
        let directory = fs::File::open(arena.host().join("d0")).unwrap();
        let mut met = 0;
        let _ = arena.race_of(&KINDS, seed, |_| {
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            let seen = rustix::fs::statat(&place, "f0", flags).unwrap();
            if rustix::fs::FileType::from_raw_mode(seen.st_mode).is_file() {
                let mode = rustix::fs::Mode::from_raw_mode(CHANGED_MODE);
                let _ = rustix::fs::chmodat(&place, "f0", mode, rustix::fs::AtFlags::empty());
            }
            met += u64::from(directory.metadata().unwrap().mode() & 0o7777 == CHANGED_MODE);
        });
        met > 0
    });
}

#[test]
fn control_files_are_found_in_the_workspace_alone_whatever_moves() {
    let (arena, seed) = (Arena::new(), seed());
    let mut rounds = 0;
    let moves = arena.race(seed, |_| {
        rounds += 1;
        assert_eq!(
            control_paths(&arena.host(), &GitEnvironment::default()),
            Ok(Vec::new())
        );
    });
    assert!(rounds > 20 && moves > 500, "{rounds} rounds, {moves} moves");
    // Where there is one it is found.
    fs::write(arena.host().join(CONTROL), INSIDE).unwrap();
    assert_eq!(
        control_paths(&arena.host(), &GitEnvironment::default())
            .unwrap()
            .len(),
        1
    );
}

/// The control: a search by plain paths is led out by the same race.
#[test]
fn a_search_by_plain_paths_is_led_out_by_the_same_race() {
    until_lost("nothing outside was found", |seed| {
        let arena = Arena::new();
        let mut led_out = 0;
        let _ = arena.race(seed, |_| {
            let mut waiting = vec![arena.host()];
            while let Some(directory) = waiting.pop() {
                let entries = fs::read_dir(directory).into_iter().flatten().flatten();
                for entry in entries {
                    led_out += u64::from(entry.file_name() == CONTROL);
                    if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                        waiting.push(entry.path());
                    }
                }
            }
        });
        led_out > 0
    });
}

/// By plain paths the same race leads out: reading finds what lies outside, and changing
/// a mode changes it there.
#[test]
fn plain_paths_are_led_out_by_the_same_race() {
    until_lost("nothing outside was read and changed", |seed| {
        let arena = Arena::new();
        let mut led_out = 0;
        let _ = arena.race(seed, |numbers| {
            let sought = arena.host().join(SOUGHT[numbers.below(SOUGHT.len())]);
            if fs::read_to_string(&sought).is_ok_and(|text| text == OUTSIDE) {
                led_out += 1;
            }
            let _ = fs::set_permissions(&sought, fs::Permissions::from_mode(0o751));
        });
        led_out > 0 && !arena.is_untouched()
    });
}

/// Repeats a race that has to be lost for others to mean something, each on a tree of its own: the
/// loser may not get the processor in time.
fn until_lost(otherwise: &str, lost: impl Fn(u64) -> bool) {
    let seed = seed();
    let is_lost = (0..RACES_MAX).any(|more| lost(seed.wrapping_add(more)));
    assert!(is_lost, "{otherwise}");
}

/// Returns the work of one step, as a journal records it, with the host directory open.
fn engine(place: &Path, act: Act, at: &str, loose: bool) -> Engine {
    let host = match place.ends_with("journal") {
        true => place.with_file_name("host"),
        false => place.join("host"),
    };
    let facts = fs::metadata(&host).unwrap();
    let work = Work {
        begun: None,
        put_back: None,
        root: Bytes(path_bytes(&host)),
        root_identity: (facts.dev(), facts.ino()),
        content: Bytes(path_bytes(&host)),
        work: None,
        repository: None,
        tag: "tag".into(),
        loose,
    };
    let journal = Journal::open(&place.join("journal"), true).unwrap();
    let mut plan = PlanWriter::begin(journal, work).unwrap();
    let path = path(at);
    plan.push(&Step { path, act }).unwrap();
    Engine::begin(plan).unwrap()
}

fn described(host: &Path, at: &str) -> Entry {
    let tree = Tree::open(host).unwrap();
    let mut walker = Walker::new(Bounds::default());
    walker.one(&tree, &path(at), Content::Untouched).unwrap()
}

/// Between a swap and the look at what was swapped out somebody puts a file over the new
/// content: theirs is the newest, and the one that stays.
#[test]
fn what_is_put_over_new_content_survives_the_swap_back() {
    let place = Stand::bare();
    let host = place.path().join("host");
    fs::create_dir_all(&host).unwrap();
    fs::write(host.join("file"), "original").unwrap();
    let old = described(&host, "file");
    let act = Act::Replace {
        old: vec![old.clone()],
        new: vec![old],
    };
    for is_newest_theirs in [true, false] {
        let engine = engine(place.path(), act.clone(), "file", false);
        let step = &engine.steps.get(0).unwrap();
        let temporary = engine.temporary(0, step);
        // As after the swap: what was there, changed meanwhile, is aside.
        fs::write(at(&host, &temporary), "changed meanwhile").unwrap();
        fs::write(host.join("new"), "new content").unwrap();
        let prepared = described(&host, "new").stamp;
        fs::rename(host.join("new"), host.join("file")).unwrap();
        if is_newest_theirs {
            fs::write(host.join("theirs"), "newest").unwrap();
            fs::rename(host.join("theirs"), host.join("file")).unwrap();
        }
        let directory = engine.tree.place_of(&step.path).unwrap();
        let back = engine.swap_back(step, &temporary, directory.as_fd(), prepared);
        back.unwrap();
        let expected = match is_newest_theirs {
            true => ["newest", "changed meanwhile"],
            false => ["changed meanwhile", "new content"],
        };
        let found = [host.join("file"), at(&host, &temporary)];
        let found = found.map(|path| fs::read_to_string(path).unwrap());
        assert_eq!(found, expected);
        drop(engine);
        fs::remove_dir_all(place.path().join("journal")).unwrap();
    }
}

/// An entry that somebody writes while their directory is rolled back is in no journal: it stays.
#[test]
fn what_is_written_while_something_is_taken_back_stays() {
    let place = Stand::bare();
    let host = place.path().join("host");
    let cases: [(&[Edit], &str); 3] = [
        (&[], "original"),
        (&[append("file", ", newer")], "applied, newer"),
        (&[write("other", "newer"), rename("other", "file")], "newer"),
    ];
    for (edits, expected) in cases {
        perform(&host, &[write("file", "original")]);
        let mut original = described(&host, "file");
        let kept = place.path().join("journal/kept/1");
        perform(&host, &[remove("file"), write("file", "applied")]);
        let applied = described(&host, "file");
        let Node::File { content, .. } = &mut original.node else {
            unreachable!();
        };
        *content = Content::Outer { number: 1 };
        let act = Act::Replace {
            old: vec![applied],
            new: vec![original],
        };
        let outer = engine(place.path(), act.clone(), "file", false);
        fs::write(kept, "original").unwrap();
        let within = engine(&place.path().join("journal"), act, "file", true);
        perform(&host, edits);
        within.run(&mut |_| {}).unwrap();
        let found = fs::read_to_string(host.join("file")).unwrap();
        assert_eq!(found, expected, "{edits:?}");
        assert_eq!(fs::read_dir(&host).unwrap().count(), 1, "{edits:?}");
        drop((outer, within));
        fs::remove_dir_all(place.path().join("journal")).unwrap();
        fs::remove_dir_all(&host).unwrap();
    }
}

/// A rollback gives a mode back to the file that lost it, and to nothing that took its place.
#[test]
fn taking_back_leaves_alone_what_took_the_place_of_a_file() {
    let place = Stand::bare();
    let host = place.path().join("host");
    let cases: [(&[Edit], u32); 3] = [
        (&[], FILE_MODE),
        (
            &[remove("file"), directory("file"), mode("file", 0o751)],
            0o751,
        ),
        (
            &[
                write("other", "x"),
                mode("other", 0o640),
                rename("other", "file"),
            ],
            0o640,
        ),
    ];
    for (edits, expected) in cases {
        perform(&host, &[write("file", "text"), mode("file", FILE_MODE)]);
        let original = described(&host, "file");
        perform(&host, &[mode("file", CHANGED_MODE)]);
        let changed = described(&host, "file");
        let act = Act::Facts {
            old: Box::new(changed),
            new: Box::new(original),
        };
        let engine = engine(place.path(), act, "file", true);
        perform(&host, edits);
        engine.run(&mut |_| {}).unwrap();
        let found = fs::metadata(host.join("file")).unwrap().mode() & 0o7777;
        assert_eq!(found, expected, "{edits:?}");
        drop(engine);
        fs::remove_dir_all(place.path().join("journal")).unwrap();
        fs::remove_dir_all(&host).unwrap();
    }
}
