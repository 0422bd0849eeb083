//! Code that runs as one of Atoll's own processes, once that has confined itself: its abilities are
//! checked from outside, by canaries. With the defences left out the same code succeeds. See
//! docs/takeover.md.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::{Avoidable, World, descendants_of, is_root, wait_until};

const SOON: Duration = Duration::from_secs(30);
const SECRET: &str = "sesame-of-a-takeover";

/// One takeover: its process, its place, the defences left out, and the effects that it has.
struct Row {
    id: &'static str,
    who: &'static str,
    without: &'static str,
    /// The effects seen from outside.
    taken: &'static [&'static str],
    /// The report of the code itself, where nothing outside changes.
    done: &'static [&'static str],
}

impl Row {
    /// Returns whether the process may read files: an ordinary user's first process counts memory
    /// itself where no control group does, so it reads what the program may read.
    fn may_look(&self) -> bool {
        self.id == "init" && !is_root()
    }

    /// Returns whether the program can reach something outside.
    fn leads_outside(&self) -> bool {
        self.id.starts_with("router") || self.who == "egress"
    }
}

/// All attempts that are seen from outside.
const ALL: &[&str] = &[
    "execute", "kill", "made", "mkdir", "mode", "read", "rmdir", "tcp", "unix", "unlink",
];
/// All attempts that change nothing outside. Those that no process of an ordinary user or of a
/// sandbox can make anyway are not among them: they only must not succeed.
const INNER: &[&str] = &["code", "key", "root", "vsock"];

const LAUNCHER: &[Row] = &[
    Row {
        id: "launcher",
        who: "jail",
        without: "",
        taken: &[],
        done: &[],
    },
    // Each wall alone.
    Row {
        id: "launcher-landlock",
        who: "jail",
        without: "jail-filter",
        taken: &["kill", "mode", "unix"],
        done: &["code", "key", "namespace", "vsock"],
    },
    Row {
        id: "launcher-filter",
        who: "jail",
        without: "landlock",
        taken: &["rmdir"],
        done: &[],
    },
    Row {
        id: "launcher-open",
        who: "jail",
        without: "jail-filter,landlock",
        taken: ALL,
        done: &["code", "key", "namespace", "vsock"],
    },
];

/// The first process, in the workspace of a live run: the only place of the host that it sees.
const INIT: &[Row] = &[
    Row {
        id: "init",
        who: "init",
        without: "",
        taken: &[],
        done: &[],
    },
    Row {
        id: "init-open",
        who: "init",
        without: "init-filter",
        taken: &[
            "execute", "made", "mkdir", "mode", "read", "rmdir", "unlink",
        ],
        done: INNER,
    },
];

const FENCE: &[Row] = &[
    Row {
        id: "fence-launcher",
        who: "jail",
        without: "",
        taken: &[],
        done: &[],
    },
    Row {
        id: "fence-launcher-landlock",
        who: "jail",
        without: "jail-filter",
        taken: &["mode", "unix"],
        done: &["code", "key", "vsock"],
    },
    Row {
        id: "fence-launcher-open",
        who: "jail",
        without: "jail-filter,landlock",
        taken: ALL,
        done: &["code", "key", "vsock"],
    },
    // It changes attributes of files for the program, by their paths.
    Row {
        id: "judge",
        who: "init",
        without: "",
        taken: &["mode"],
        done: &[],
    },
    Row {
        id: "judge-landlock",
        who: "init",
        without: "init-filter",
        taken: &["mode", "tcp", "unix"],
        done: &["code", "key", "vsock"],
    },
    // Where something outside is allowed, the judge has a few calls more.
    Row {
        id: "router",
        who: "init",
        without: "",
        taken: &["mode"],
        done: &[],
    },
    Row {
        id: "router-landlock",
        who: "init",
        without: "init-filter",
        taken: &["mode", "tcp", "unix"],
        done: &["code", "key", "vsock"],
    },
    Row {
        id: "judge-open",
        who: "init",
        without: "init-filter,landlock",
        taken: ALL,
        done: &["code", "key", "vsock"],
    },
];

/// The egress process: to connect is its purpose, also to listeners on this host. It has no file,
/// wherever it tries.
const EGRESS: &[Row] = &[
    Row {
        id: "egress",
        who: "egress",
        without: "",
        taken: &["tcp"],
        done: &["code"],
    },
    // Each wall alone.
    Row {
        id: "egress-landlock",
        who: "egress",
        without: "egress-filter",
        taken: &["mode", "tcp", "unix"],
        done: &["code", "key", "vsock"],
    },
    Row {
        id: "egress-filter",
        who: "egress",
        without: "landlock",
        taken: &["tcp"],
        done: &["code"],
    },
    Row {
        id: "egress-open",
        who: "egress",
        without: "egress-filter,landlock",
        taken: ALL,
        done: &["code", "key", "vsock"],
    },
];

#[test]
fn what_carries_connections_reaches_nothing_else_when_taken_over() {
    try_all(
        "what_carries_connections_reaches_nothing_else_when_taken_over",
        EGRESS,
        Where::Outside,
    );
}

#[test]
fn a_taken_over_launcher_reaches_nothing() {
    try_all(
        "a_taken_over_launcher_reaches_nothing",
        LAUNCHER,
        Where::Outside,
    );
}

#[test]
fn a_taken_over_first_process_reaches_nothing() {
    try_all(
        "a_taken_over_first_process_reaches_nothing",
        INIT,
        Where::Workspace,
    );
}

#[test]
fn a_taken_over_process_of_a_fence_reaches_what_it_judges() {
    const TEST: &str = "a_taken_over_process_of_a_fence_reaches_what_it_judges";
    if is_root() {
        World::new(TEST).skip("root always has namespaces", Avoidable::No);
        return;
    }
    try_all(TEST, FENCE, Where::Fence);
}

/// The place where a takeover is tried, and that of its canaries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// In a sandbox, with canaries beside the workspace.
    Outside,
    /// In the sandbox of a live run, with canaries in its workspace.
    Workspace,
    /// In a fence, with canaries beside the workspace.
    Fence,
}

fn try_all(test: &str, rows: &[Row], place: Where) {
    let Some(weakened) = std::env::var_os("ATOLL_BIN_WITHOUT").map(PathBuf::from) else {
        World::new(test).skip("ATOLL_BIN_WITHOUT names no program", Avoidable::Yes);
        return;
    };
    for row in rows {
        let (mut taken, report) = take_over(test, row, place, &weakened);
        taken.retain(|name| row.taken.contains(name) || !row.may_look() || *name != "read");
        let Row { id, who, .. } = row;
        let mut expected: BTreeSet<&str> = row.taken.iter().copied().collect();
        if is_root() && place == Where::Outside && row.who != "egress" {
            // Root's launcher has left the host's network for the sandbox's.
            expected.remove("tcp");
        }
        assert_eq!(taken, expected, "{id}: {report}");
        assert!(report.contains(&format!("{who}: read=")), "{id}: {report}");
        let succeeded: BTreeSet<&str> = report
            .split_whitespace()
            .filter_map(|word| word.strip_suffix("=0"))
            .filter(|name| !row.taken.contains(name))
            .filter(|name| !row.may_look() || !["read", "root"].contains(name))
            .collect();
        let mut done: BTreeSet<&str> = row.done.iter().copied().collect();
        // From within a namespace nobody writes into what is outside of it anyway.
        if row.id == "launcher-open" && !is_root() && !is_yama_there() {
            done.insert("write");
        }
        if row.without.is_empty() || row.without == "landlock" {
            assert_eq!(succeeded, done, "{id}: {report}");
        }
        assert!(succeeded.is_superset(&done), "{id}: {report}");
        println!("{id}: taken {taken:?}");
    }
}

/// Returns the effects of a takeover, seen from outside, and its report.
fn take_over(
    test: &str,
    row: &Row,
    place: Where,
    weakened: &Path,
) -> (BTreeSet<&'static str>, String) {
    let world = World::new(test);
    let at = match place {
        Where::Workspace => world.path("at"),
        Where::Outside | Where::Fence => world.top().join("at"),
    };
    fs::create_dir_all(at.join("empty")).unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        fs::write(at.join(name), text).unwrap();
        fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    file("secret", SECRET, 0o644);
    file("mode", "", 0o644);
    file("doomed", "", 0o644);
    let script = format!("#!/bin/sh\necho > '{}/executed'\n", at.display());
    file("script", &script, 0o755);
    let socket = UnixListener::bind(at.join("socket")).unwrap();
    socket.set_nonblocking(true).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    port.set_nonblocking(true).unwrap();
    let mut victim = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let asked = format!(
        "takeover-{},{},at={},victim={},memory={},port={}",
        row.who,
        row.without,
        at.display(),
        victim.id(),
        stack(victim.id()),
        port.local_addr().unwrap().port()
    );
    let kept = if place == Where::Workspace {
        "--live"
    } else {
        "--discard"
    };
    // A fence writes to the workspace itself.
    let options: &[&str] = if place == Where::Fence { &[] } else { &[kept] };
    let run = world
        .host(weakened)
        .arg("run")
        .args(options)
        .args(row.leads_outside().then_some("--allow=example.com"))
        // A question for a name, with which what carries connections is started.
        .args(["--", "sh", "-c", "getent hosts example.com; sleep 0.2"])
        .env("ATOLL_TEST_WITHOUT", asked)
        .within(SOON);
    let run = if place == Where::Fence {
        run.without_namespaces()
    } else {
        run
    };
    let outcome = run.run();
    let told = e2e::internet::events(&world, "flow.refused");
    let told: String = told.iter().filter_map(|one| one["why"].as_str()).collect();
    // It ends by itself after a minute, or has just been killed.
    let killed = wait_until_killed(&mut victim);
    let mode = fs::metadata(at.join("mode")).unwrap().permissions().mode();
    let facts = [
        ("read", (outcome.err() + &told).contains(SECRET)),
        ("made", at.join("made").exists()),
        ("mode", mode & 0o777 == 0o777),
        ("mkdir", at.join("directory").exists()),
        ("unlink", !at.join("doomed").exists()),
        ("rmdir", !at.join("empty").exists()),
        ("execute", at.join("executed").exists()),
        ("unix", socket.accept().is_ok()),
        ("tcp", port.accept().is_ok()),
        ("kill", killed),
    ];
    let taken = facts
        .into_iter()
        .filter_map(|(name, is)| is.then_some(name));
    (taken.collect(), outcome.err() + &told)
}

/// Returns the lowest address of a process's stack, once it has one of its own.
fn stack(pid: u32) -> usize {
    wait_until("the victim's stack", SOON, || {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        let line = maps.lines().find(|line| line.ends_with("[stack]"))?;
        usize::from_str_radix(line.split_once('-')?.0, 16).ok()
    })
}

/// Returns whether processes of the same user are kept from each other's memory anyway.
fn is_yama_there() -> bool {
    let setting = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    setting.is_ok_and(|scope| scope.trim() != "0")
}

/// Returns whether somebody has ended the victim; it is ended now.
fn wait_until_killed(victim: &mut std::process::Child) -> bool {
    let ended = victim.try_wait().unwrap().is_some();
    e2e::end(victim);
    ended
}

#[test]
fn nothing_of_the_host_stays_in_the_memory_of_a_sandbox() {
    const TEST: &str = "nothing_of_the_host_stays_in_the_memory_of_a_sandbox";
    const VARIABLE: &str = "canary-of-the-environment";
    const ARGUMENT: &str = "canary-of-the-arguments";
    let world = World::new(TEST);
    if !is_root() {
        world.skip("only root can look into processes that hide", Avoidable::No);
        return;
    }
    let running = world
        .run(
            ["--discard", "--allow", "example.com"],
            &format!(": {ARGUMENT}; getent hosts example.com; echo ready; sleep 300"),
        )
        .env("CANARY", VARIABLE)
        .start();
    running.until_stdout("ready");
    let state = world.state().to_str().unwrap().to_owned();
    let workspace = world.workspace().to_str().unwrap().to_owned();
    let named = |name: &str| {
        wait_until("a process of the sandbox", SOON, || {
            let all = descendants_of(running.pid());
            all.into_iter().find(|one| one.name == name)
        })
        .pid
    };
    // Who knows all of it, so that the search finds what there is.
    for text in [VARIABLE, ARGUMENT, &state, &workspace] {
        assert!(
            holds(running.pid(), text),
            "the search does not find {text}"
        );
    }
    for name in ["atoll-jail", "atoll-init", "atoll-egress"] {
        let pid = named(name);
        assert!(holds(pid, "/proc/"), "{name} cannot be searched");
        for text in [VARIABLE, ARGUMENT, &state, &workspace] {
            assert!(!holds(pid, text), "{name} still holds {text}");
        }
    }
    running.signal(rustix::process::Signal::TERM);
    let _ = running.wait();
}

#[test]
fn the_list_of_mounts_names_no_path_of_the_host() {
    let world = World::new("the_list_of_mounts_names_no_path_of_the_host");
    let seen = world.run(["--discard"], "cat /proc/self/mountinfo").run();
    let list = seen.success().out();
    let workspace = world.workspace();
    // What it does name.
    assert!(list.contains(workspace.to_str().unwrap()), "{list}");
    for path in [world.state(), world.config()] {
        assert!(!list.contains(path.to_str().unwrap()), "{list}");
    }
    let layers: Vec<&str> = list
        .lines()
        .filter(|line| line.contains("lowerdir="))
        .collect();
    assert!(!layers.is_empty(), "{list}");
    for line in layers {
        let mut places = line
            .split(['=', ':', ','])
            .filter(|part| part.starts_with('/'));
        let of_host = |place: &&str| !place.starts_with("/proc/self/fd/");
        assert_eq!(places.find(of_host), None, "{line}");
    }
}

/// Returns whether a process has this text anywhere in its memory.
fn holds(pid: u32, text: &str) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let ranges = maps.lines().filter_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        Some((number(start)?, number(end)?))
    });
    ranges.into_iter().any(|(start, end)| {
        let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
        let read = memory.read_exact_at(&mut bytes, start).is_ok();
        let found = |bytes: &[u8]| bytes.windows(text.len()).any(|one| one == text.as_bytes());
        read && found(&bytes)
    })
}
