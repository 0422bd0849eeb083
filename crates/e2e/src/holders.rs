//! Which processes of a run hold a value in their memory, arguments or environment, looked
//! for by a program of the host while the run goes on.

use std::fs;
use std::path::PathBuf;

use crate::{Avoidable, Invocation, World, is_root};

const SEARCH: &str = include_str!("../tests/credentials/search.py");
const RUN: &str = include_str!("../tests/credentials/run.sh");
const CORES: &str = include_str!("../tests/credentials/cores.py");

/// The file with the value that is sought.
#[must_use]
pub fn sought(world: &World) -> PathBuf {
    world.top().join("sought/real")
}

/// Prepares a search for what is in [`sought`] when the program
/// inside has written `READY`; returns the shell command that takes the options of
/// `atoll run`. What the program writes as `KEY=` is looked for, too: it is the control.
#[must_use]
pub fn searching(world: &World) -> String {
    prepared(world, SEARCH)
}

/// The same for what ends processes by a signal that makes core dumps. Where that is
/// allowed without bounds is Atoll itself started.
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

/// The same for a command of `atoll` other than `run`.
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

/// Ends a command of Atoll's that is started and reads or holds the value, as [`dumping`] ends those
/// of a run, and checks the same of it but for its memory being locked. It has to have been started
/// where core dumps are allowed without bounds ([`UNBOUNDED`]).
///
/// # Panics
/// When that is not so.
pub fn expect_no_dump_of_command(world: &World, pid: u32) {
    let look = looking(world);
    let looked = world.host_shell(&look).arg("sh").arg(pid.to_string()).run();
    expect_no_dump_of_looked_at(world, &looked.to_string());
}

/// A shell script that does the same to the process of its argument; what it finds out is for
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

/// Checks what [`looking`] has found out.
///
/// # Panics
/// As [`expect_no_dump_of_command`].
pub fn expect_no_dump_of_looked_at(world: &World, what: &str) {
    expect_closed(world, &["atoll"], what);
}

/// Shell words that start a command where core dumps are allowed without bounds.
pub const UNBOUNDED: &str = "ulimit -c unlimited && exec \"$@\"";

/// Checks what [`dumping`] has found out: these processes were ended and left no core dump,
/// where one of the test's own did; nobody else could look into them; and the first of them,
/// which holds the value, has locked memory.
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

/// That these processes were ended and left no core dump, where one of the test's own did, and
/// that nobody else could look into them.
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

/// Whether the kernel writes core dumps into the directory of who ends, so that a test finds
/// them; else the test is skipped.
#[must_use]
pub fn dumps_are_files(world: &World) -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let are_files = !pattern.starts_with(['|', '@', '/']);
    if !are_files {
        world.skip("core dumps are given to a program here", Avoidable::No);
    }
    are_files
}

/// Starts no search before the program inside is ready, with no variable of a key.
pub fn without_variable(world: &World, run: Invocation) -> Invocation {
    world.write(world.top().join("printed"), "");
    run.env("KEYLESS", "1")
}

/// What was found, a line each.
#[must_use]
pub fn searched(world: &World) -> String {
    fs::read_to_string(world.top().join("searched")).unwrap_or_default()
}

/// Checks that these processes alone hold the value, and that all others were read. What
/// holds it may be read by root alone, so for others that is what is checked.
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
