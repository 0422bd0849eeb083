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

/// Checks what [`dumping`] has found out: these processes were ended and left no core dump,
/// where one of the test's own did; nobody else could look into them; and the first of them,
/// which holds the value, has locked memory.
///
/// # Panics
/// When that is not so.
pub fn expect_no_dump_of(world: &World, holders: &[&str], what: &str) {
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
        let of_it = |word: &str| {
            let start = format!("{holder} {word}");
            let lines = searched.lines().filter_map(move |one| {
                let rest = one.strip_prefix(start.as_str())?;
                Some(rest.trim().to_owned())
            });
            lines.collect::<Vec<String>>()
        };
        assert_eq!(of_it("dumped"), [""; 0], "{what}");
        let locked: u64 = of_it("locks")[0].parse().unwrap();
        assert!(locked > 0 || Some(holder) != holders.first(), "{what}");
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
