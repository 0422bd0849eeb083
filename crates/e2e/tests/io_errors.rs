//! Errors of the disk while changes are applied or undone, one at a time: every file is as it was or
//! as it was to be, the exit status and the summary agree with that, and a second try succeeds.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use e2e::{Entry, Outcome, World, fine, tree};

const BEFORE: [(&str, &str); 8] = [
    ("f", "old\n"),
    ("d/a", "1\n"),
    ("d/b/c", "2\n"),
    ("t/x", "3\n"),
    ("t/v/y", "4\n"),
    ("m", "5\n"),
    ("r", "6\n"),
    ("k/9", "9\n"),
];
const EDITS: &str = "echo new > f; rm -r d; mv t u; mkdir -p n/o; echo 1 > n/o/p; ln -s x n/l; \
                     chmod 711 m; mv r s; echo 10 >> k/9";

/// The calls by which trees are read.
const READING: [&str; 6] = [
    "newfstatat",
    "openat",
    "openat2",
    "fgetxattr",
    "flistxattr",
    "statx",
];
/// All others that an apply or an undo makes on files. What is printed is not among them.
const WORKING: [&str; 21] = [
    "fstat",
    "getdents64",
    "read",
    "pread64",
    "pwrite64",
    "readlinkat",
    "lseek",
    "renameat2",
    "rename",
    "mkdirat",
    "symlinkat",
    "linkat",
    "unlinkat",
    "unlink",
    "chmod",
    "utimensat",
    "fsync",
    "fdatasync",
    "syncfs",
    "flock",
    "name_to_handle_at",
];

type Tree = BTreeMap<PathBuf, Entry>;

/// A run with changes of many kinds, and the workspace before and after.
struct Subject {
    world: World,
    before: Tree,
    after: Tree,
}

impl Subject {
    fn new(name: &str) -> Self {
        let world = World::new(name);
        for (path, text) in BEFORE {
            world.write(path, text);
        }
        let before = tree(&world.workspace());
        let _ = world.run(["--keep"], EDITS).run().success();
        let _ = fine(&world, &["apply", "last"]);
        let after = tree(&world.workspace());
        let _ = fine(&world, &["undo", "last"]);
        assert_eq!(tree(&world.workspace()), before);
        Self {
            world,
            before,
            after,
        }
    }

    /// Runs a command whose n-th call of this name fails. `None` where it makes fewer of them.
    fn faulted(&self, command: &[&str], call: &str, nth: usize) -> Option<Outcome> {
        let log = self.world.top().join("strace.log");
        let (trace, inject) = (
            format!("trace={call}"),
            format!("inject={call}:error=EIO:when={nth}"),
        );
        let log_text = log.to_str().unwrap();
        let front = [
            "strace", "-f", "-qq", "-o", log_text, "-e", &trace, "-e", &inject,
        ];
        let outcome = self.world.atoll(command).under(front).run();
        let log = fs::read_to_string(log).unwrap_or_default();
        log.contains("INJECTED").then_some(outcome)
    }

    /// Fails the n-th calls of a name within a command, and expects what holds after each. Returns
    /// the number of them.
    fn sweep(&self, command: &str, call: &str, points: impl Iterator<Item = usize>) -> usize {
        let (from, to, back) = match command {
            "apply" => (&self.before, &self.after, "undo"),
            _ => (&self.after, &self.before, "apply"),
        };
        let mut count = 0;
        for nth in points {
            let what = format!("{command} with {call} {nth}");
            let outcome = self.faulted(&[command, "last"], call, nth);
            let now = tree(&self.world.workspace());
            let Some(outcome) = outcome else {
                break;
            };
            count += 1;
            let is_part = outcome.err().contains("artly applied");
            match outcome.code() {
                0 => assert!(same(&now, to) && !is_part, "{what}\n{outcome}\n{now:#?}"),
                _ => {
                    let mut paths = now.keys().chain(from.keys()).chain(to.keys());
                    let is_whole = |path: &PathBuf| {
                        let entry = content(&now, path);
                        entry == content(from, path) || entry == content(to, path)
                    };
                    assert!(paths.all(is_whole), "{what}\n{outcome}\n{now:#?}");
                    // All may be done, but for a note of it: the second try says so.
                    let is_known = same(&now, from) || same(&now, to) || is_part;
                    assert!(is_known, "{what}\n{outcome}\n{now:#?}");
                }
            }
            if outcome.code() != 0 {
                let is_cut = outcome
                    .err()
                    .contains("the changes could not be taken back");
                let is_told = outcome.err().contains("try: atoll undo");
                assert!(is_told || !is_cut, "{what}\n{outcome}");
                let again = self.world.atoll([command, "last"]).run();
                assert_eq!(again.code(), 0, "{what}\n{outcome}\n{again}");
            }
            let now = tree(&self.world.workspace());
            assert!(same(&now, to), "{what}\n{outcome}\n{now:#?}");
            let _ = fine(&self.world, &[back, "last"]);
            let now = tree(&self.world.workspace());
            assert!(same(&now, from), "{what}\n{outcome}\n{now:#?}");
        }
        count
    }
}

fn content<'a>(tree: &'a Tree, path: &PathBuf) -> Option<(&'a e2e::Kind, u32)> {
    tree.get(path).map(|entry| (&entry.kind, entry.mode))
}

fn same(left: &Tree, right: &Tree) -> bool {
    let mut paths = left.keys().chain(right.keys());
    paths.all(|path| content(left, path) == content(right, path))
}

fn commands(name: &str, mut sweep: impl FnMut(&Subject, &str)) {
    let subject = Subject::new(name);
    sweep(&subject, "apply");
    let _ = fine(&subject.world, &["apply", "last"]);
    sweep(&subject, "undo");
}

#[test]
fn error_of_the_disk_leaves_nothing_half_done() {
    let name = "error_of_the_disk_leaves_nothing_half_done";
    // Some early, where the layer is read; some in the middle; some late, where it is written.
    let points = [
        ("newfstatat", [20, 60]),
        ("openat2", [12, 45]),
        ("flistxattr", [5, 30]),
        ("openat", [40, 60]),
        ("renameat2", [2, 5]),
        ("fsync", [2, 5]),
    ];
    commands(name, |subject, command| {
        let mut met = 0;
        for (call, points) in points {
            met += subject.sweep(command, call, points.into_iter());
        }
        assert!(met >= points.len(), "{command}: {met}");
    });
}

#[test]
fn own_writes_are_no_conflict_after_a_roll_back() {
    let world = World::new("own_writes_are_no_conflict_after_a_roll_back");
    for (path, text) in [("r", "1\n"), ("h1", "2\n"), ("f", "3\n"), ("t/x", "4\n")] {
        world.write(path, text);
    }
    fs::hard_link(world.path("h1"), world.path("h2")).unwrap();
    let edits = "mv r s; echo more >> h1; echo new > f; mv t u; rm h2";
    let _ = world.run(["--keep"], edits).run().success();
    let before = tree(&world.workspace());
    for how in ["error=EIO", "signal=KILL"] {
        // The first one tries whether the file system exchanges names.
        for nth in 2..=5 {
            let inject = format!("inject=renameat2:{how}:when={nth}");
            let front = [
                "strace",
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                "trace=renameat2",
            ];
            let front = front.into_iter().chain(["-e", &inject]);
            let outcome = world.atoll(["apply", "last"]).under(front).run();
            assert_ne!(outcome.code(), 0, "{inject}\n{outcome}");
            if how == "signal=KILL" {
                let _ = world.atoll(["apply", "last", "--take-back"]).run();
            }
            assert!(same(&tree(&world.workspace()), &before), "{inject}");
            let _ = fine(&world, &["apply", "last"]);
            assert_eq!(world.read("s"), "1\n");
            let _ = fine(&world, &["undo", "last"]);
            assert!(same(&tree(&world.workspace()), &before), "{inject}");
        }
    }
}

#[test]
fn error_of_the_disk_anywhere_is_survived_nightly() {
    let name = "error_of_the_disk_anywhere_is_survived_nightly";
    for command in ["apply", "undo"] {
        for call in READING.into_iter().chain(WORKING) {
            let mut met = 0;
            // Each apply leaves a journal that the next one reads: so there is a new run now and then.
            loop {
                let subject = Subject::new(name);
                if command == "undo" {
                    let _ = fine(&subject.world, &["apply", "last"]);
                }
                let points = met + 1..met + 11;
                let count = subject.sweep(command, call, points.clone());
                met += count;
                if count < points.len() {
                    break;
                }
            }
            println!("{command} {call}: {met} points");
        }
    }
}

#[test]
fn error_of_the_disk_never_spoils_a_removal_nightly() {
    let name = "error_of_the_disk_never_spoils_a_removal_nightly";
    for command in [&["discard", "last"][..], &["gc", "--older-than", "1ms"]] {
        for call in READING.into_iter().chain(WORKING) {
            for nth in (1..).step_by(7) {
                let subject = Subject::new(name);
                let what = format!("{command:?} with {call} {nth}");
                let Some(outcome) = subject.faulted(command, call, nth) else {
                    break;
                };
                let now = tree(&subject.world.workspace());
                assert!(same(&now, &subject.before), "{what}\n{outcome}\n{now:#?}");
                let again = subject.world.atoll(command).run();
                let is_gone = again.err().contains("was discarded");
                assert!(again.code() == 0 || is_gone, "{what}\n{outcome}\n{again}");
                let _ = fine(&subject.world, &["gc"]);
                let left = fs::read_dir(subject.world.state().join("atoll/runs"));
                assert_eq!(left.map_or(0, Iterator::count), 0, "{what}\n{outcome}");
            }
        }
    }
}
