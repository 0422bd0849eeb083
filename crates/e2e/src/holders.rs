//! A search for the processes of a run that hold a value in their memory, arguments or environment,
//! by a program of the host while the run goes on.

use std::fs;
use std::path::PathBuf;

use crate::{Avoidable, Invocation, World, is_root};

const SEARCH: &str = include_str!("../tests/credentials/search.py");
const RUN: &str = include_str!("../tests/credentials/run.sh");
const CORES: &str = include_str!("../tests/credentials/cores.py");

/// Returns the file with the value to search for.
#[must_use]
pub fn sought(world: &World) -> PathBuf {
    world.top().join("sought/real")
}

/// Prepares a search for the value in [`sought`] once the program in the sandbox has written
/// `READY`; returns the shell command that takes the options of `atoll run`. The value that the
/// program writes as `KEY=` is searched for, too: it is the control.
#[must_use]
pub fn searching(world: &World) -> String {
    prepared(world, SEARCH)
}

/// As [`searching`], but ends the processes by a signal that makes core dumps. Atoll itself is
/// started where core dumps are allowed without bounds.
#[must_use]
pub fn dumping(world: &World) -> String {
    fs::create_dir(world.top().join("dumped")).unwrap();
    format!(
        "sh -c 'ulimit -c unlimited && exec \"$@\"' sh {}",
        prepared(world, CORES)
    )
}

fn prepared(world: &World, program: &str) -> String {
    world.write(world.top().join("search.py"), program);
    let run = RUN.replace(
        "\"$world/real\" \"$world/placeholder\"",
        "\"$world/sought/real\" \"$world/placeholder\"",
    );
    assert_ne!(run, RUN);
    world.write(world.top().join("run.sh"), run);
    format!("sh '{0}/run.sh' '{0}' \"$@\"", world.top().display())
}

/// As [`searching`], for a command of `atoll` other than `run`.
#[must_use]
pub fn searching_beside(world: &World) -> String {
    let prepared = prepared(world, SEARCH);
    let path = world.top().join("run.sh");
    let text = fs::read_to_string(&path).unwrap();
    let other = text.replace(" run --discard \"$@\"", " \"$@\"");
    assert_ne!(other, text);
    world.write(&path, other);
    prepared
}

/// Ends a running command of Atoll's that reads or holds the value, as [`dumping`] ends the
/// processes of a run, and checks the same of it except for locked memory. It has to have been
/// started where core dumps are allowed without bounds ([`UNBOUNDED`]).
///
/// # Panics
/// When that is not so.
pub fn expect_no_dump_of_command(world: &World, pid: u32) {
    let look = looking(world);
    let looked = world.host_shell(&look).arg("sh").arg(pid.to_string()).run();
    expect_no_dump_of_looked_at(world, &looked.to_string());
}

/// Returns a shell script that does the same to the process of its argument; its findings are for
/// [`expect_no_dump_of_looked_at`].
#[must_use]
pub fn looking(world: &World) -> String {
    fs::create_dir_all(world.top().join("dumped")).unwrap();
    // By a name that no core dump has.
    let look = world.top().join("look.py");
    world.write(&look, CORES);
    format!(
        "ulimit -c unlimited; HOLDERS=atoll python3 '{}' \"$1\" '{}' >'{}' 2>&1",
        look.display(),
        sought(world).display(),
        world.top().join("searched").display()
    )
}

/// Checks the findings of [`looking`].
///
/// # Panics
/// As [`expect_no_dump_of_command`].
pub fn expect_no_dump_of_looked_at(world: &World, what: &str) {
    expect_closed(world, &["atoll"], what);
}

/// Shell words that start a command where core dumps are allowed without bounds.
pub const UNBOUNDED: &str = "ulimit -c unlimited && exec \"$@\"";

/// Checks the findings of [`dumping`]: these processes were ended and left no core dump, where one
/// of the test's own did; nobody else could inspect them; and the first of them, which holds the
/// value, has locked memory.
///
/// # Panics
/// When that is not so.
pub fn expect_no_dump_of(world: &World, holders: &[&str], what: &str) {
    expect_closed(world, holders, what);
    let searched = searched(world);
    let start = format!("{} locks", holders[0]);
    let locked = searched.lines().find_map(|line| line.strip_prefix(&start));
    let locked: u64 = locked.unwrap().trim().parse().unwrap();
    assert!(locked > 0, "{what}\n{searched}");
}

/// Checks that these processes were ended and left no core dump, where one of the test's own did,
/// and that nobody else could inspect them.
fn expect_closed(world: &World, holders: &[&str], what: &str) {
    let searched = searched(world);
    let what = format!("{what}\n{searched}");
    let has = |line: &str| searched.lines().any(|one| one == line);
    for control in ["dumped it", "open", "locks 0"] {
        assert!(has(&format!("control {control}")), "{control}: {what}");
    }
    for holder in holders {
        for line in ["limit 0 0", "closed", "ended"] {
            assert!(has(&format!("{holder} {line}")), "{line}: {what}");
        }
        assert!(!searched.contains(&format!("{holder} dumped")), "{what}");
    }
}

/// Returns whether the kernel writes core dumps into the ended process's directory, so that a test
/// finds them; else the test is skipped.
#[must_use]
pub fn dumps_are_files(world: &World) -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let are_files = !pattern.starts_with(['|', '@', '/']);
    if !are_files {
        world.skip("core dumps are given to a program here", Avoidable::No);
    }
    are_files
}

/// Delays the search until the program in the sandbox is ready, and leaves out the variable of the
/// key.
pub fn without_variable(world: &World, run: Invocation) -> Invocation {
    world.write(world.top().join("printed"), "");
    run.env("KEYLESS", "1")
}

/// Returns the findings, a line each.
#[must_use]
pub fn searched(world: &World) -> String {
    fs::read_to_string(world.top().join("searched")).unwrap_or_default()
}

/// Checks that these processes alone hold the value, and that all others were read. A holder may be
/// read by root alone, so for other users that is what is checked.
///
/// # Panics
/// When that is not so.
pub fn expect_held_by(world: &World, holders: &[&str], what: &str) {
    let searched = searched(world);
    let has = |line: &str| searched.lines().any(|one| one == line);
    for process in ["atoll", "atoll-egress", "atoll-jail", "sh"] {
        let read = format!("read {process}");
        assert!(has(&read), "{process} was not read: {what}\n{searched}");
    }
    let mut found: Vec<&str> = searched
        .lines()
        .filter(|line| line.starts_with("real "))
        .collect();
    found.sort_unstable();
    let mut expected: Vec<String> = Vec::new();
    for holder in holders {
        match is_root() {
            true => expected.push(format!("real {holder} memory")),
            false => assert!(
                has(&format!("unread {holder} memory")),
                "{what}\n{searched}"
            ),
        }
    }
    assert_eq!(found, expected, "{what}\n{searched}");
    // The search finds what there is.
    assert!(
        searched
            .lines()
            .any(|line| line.starts_with("placeholder sh ")),
        "{what}\n{searched}"
    );
}
