//! Two sandboxes at once, of which one attacks the other.

use std::path::Path;

use e2e::World;
use rustix::process::Signal;

use super::harness::{SWITCH, note_row, program, weakened, world};

/// Two sandboxes: the script of the first one until it reads a line, after it has printed `ready`,
/// and that of the second one meanwhile. The attack succeeds if the first one heard something, or
/// the second one took something.
struct Pair {
    id: &'static str,
    first: &'static str,
    second: &'static str,
    /// The defences without which they meet; `None` where it is the shape alone, and both are tried
    /// outside.
    without: Option<&'static str>,
}

const PAIRS: &[Pair] = &[
    Pair {
        id: "neighbour-by-an-abstract-socket",
        first: "./attack listen @atoll-attacks-{key} & read x; kill $!",
        second: "./attack unix 1 @atoll-attacks-{key} evil",
        without: Some("network,landlock"),
    },
    Pair {
        id: "neighbour-by-a-port",
        first: "./attack listen {port} & read x; kill $!",
        second: "./attack internet tcp 127.0.0.1 {port} evil",
        without: Some("network"),
    },
    Pair {
        id: "neighbour-by-shared-memory",
        first: "./attack shm-make {key} secret && echo ready; read x; ./attack shm-remove {key}",
        second: "./attack shm-read {key}",
        without: Some("ipc"),
    },
    Pair {
        id: "neighbour-by-a-semaphore",
        first: "./attack semaphore-make {key} && echo ready; read x; ./attack semaphore-remove {key}",
        second: "./attack semaphore-set {key} && echo taken",
        without: Some("ipc"),
    },
    Pair {
        id: "neighbour-by-temporary-files",
        first: "for d in /tmp /var/tmp /dev/shm; do echo secret > $d/atoll-attacks-{key}; done; echo ready; read x; \
                rm /tmp/atoll-attacks-{key} /var/tmp/atoll-attacks-{key} /dev/shm/atoll-attacks-{key}",
        second: "grep -qs secret /tmp/atoll-attacks-{key} /var/tmp/atoll-attacks-{key} /dev/shm/atoll-attacks-{key} && echo taken",
        without: None,
    },
    Pair {
        id: "neighbour-by-its-processes",
        first: "sleep 7{key} & echo ready; read x; kill $!",
        second: "grep -qs 7{key} $(ls -d /proc/[0-9]*/cmdline | grep -v /$$/) && echo taken",
        without: None,
    },
    Pair {
        id: "neighbour-by-its-workspace",
        first: "echo secret > left; echo ready; read x; rm left",
        second: "grep -qs secret left && echo taken",
        without: None,
    },
];

/// Runs both, and returns whether the second one reached the first, with the output.
fn meet(test: &str, pair: &Pair, program: Option<&Path>, without: &str) -> (bool, String) {
    let world = world(test);
    let key = format!("{}1", std::process::id());
    let port = (20_000 + std::process::id() % 10_000).to_string();
    let start = |world: &World, script: &str| {
        let script = script.replace("{key}", &key).replace("{port}", &port);
        let host = match program {
            Some(program) => world
                .host_shell("exec \"$ATOLL\" run --discard -- sh -c \"$SCRIPT\"")
                .env("ATOLL", program),
            None => world.host_shell("exec sh -c \"$SCRIPT\""),
        };
        host.env(SWITCH, without).env("SCRIPT", script)
    };
    let mut first = start(&world, pair.first).start();
    first.until_stdout("ready");
    let second = start(&world, pair.second).run();
    first.send("\n");
    first.close_stdin();
    let first = first.wait();
    let met = first.out().contains("heard") || second.out().contains("taken");
    (met, format!("{first}\n{second}"))
}

#[test]
fn neighbours_do_not_meet() {
    const TEST: &str = "neighbours_do_not_meet";
    let Some(weakened) = weakened(TEST) else {
        return;
    };
    for pair in PAIRS {
        let id = pair.id;
        let (met, told) = meet(TEST, pair, Some(&program()), pair.without.unwrap_or(""));
        assert!(!met, "{id} GOT THROUGH: {told}");
        let control = pair.without.map(|_| weakened.as_path());
        let (met, told) = meet(TEST, pair, control, pair.without.unwrap_or(""));
        assert!(met, "{id} tests nothing: {told}");
        let how = pair
            .without
            .map_or("outside".to_owned(), |one| format!("without {one}"));
        println!("{id} [AML.T0037]: held; succeeds {how}");
        note_row(id);
    }
}

/// A neighbour that is killed in the middle leaves no traces either.
#[test]
fn a_killed_neighbour_leaves_nothing_to_find() {
    const TEST: &str = "a_killed_neighbour_leaves_nothing_to_find";
    if weakened(TEST).is_none() {
        return;
    }
    let world = world(TEST);
    // Not the one of the test beside it.
    let key = format!("{}2", std::process::id());
    let make = format!(
        "./attack shm-make {key} secret; echo secret > /tmp/atoll-attacks-{key}; echo ready; sleep 1000"
    );
    let look =
        format!("./attack shm-read {key}; test -e /tmp/atoll-attacks-{key} && echo taken; true");
    let running = world.run(["--discard"], &make).start();
    running.until_stdout("ready");
    running.signal(Signal::KILL);
    let _ = running.wait();
    let seen = world.run(["--discard"], &look).run();
    assert!(!seen.out().contains("taken"), "{seen}");
    let seen = world.host_shell(&look).run();
    assert!(!seen.out().contains("taken"), "{seen}");
    // Within one sandbox it is found.
    let both = format!("{}; {look}", make.replace("; sleep 1000", ""));
    let seen = world.run(["--discard"], &both).run();
    assert!(seen.out().contains("taken secret"), "{seen}");
}
