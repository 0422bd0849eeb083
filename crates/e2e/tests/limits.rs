//! Every limit, reached by a program that takes without end the resource that it limits; each with
//! a control, in which a higher limit lets the same program reach a stated mark. In the end nothing
//! of it is left, and the host has had memory and disk all the time.
//!
//! Start reading at [`ROWS`]. The program is `limits/bomb.c`; the same one is shipped into guests,
//! whose control groups are of version 2.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use e2e::traces::{Traces, alone};
use e2e::{Avoidable, Invocation, Outcome, World, is_root, program_exists};

/// The expected end of a bomb.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// Atoll or the kernel ends the run, and the outcome names this limit.
    Ended(&'static str),
    /// The program is refused more than so many, with this error, and goes on.
    Refused(u64, &'static str),
    /// As [`End::Refused`]; the outcome counts it as denied by this limit.
    Denied(u64, &'static str, &'static str),
    /// The program gets everything: its own use gives way, or is nobody's loss.
    Goes,
    /// The program gets everything, since nothing on such a host counts it. That is reported: this
    /// enforces the limit only in part.
    NotCounted(&'static str),
}

use End::{Denied, Ended, Goes, NotCounted, Refused};

/// One way to take too much.
struct Row {
    id: &'static str,
    /// The arguments of the program: the kind of thing, and the rest after the time that it holds
    /// it.
    kind: &'static str,
    amount: u64,
    how: &'static str,
    /// The limit that it runs into.
    limit: &'static [&'static str],
    /// Its end where control groups enforce limits, without them, and in a fence.
    ends: [End; 3],
    /// A limit that it does not run into, and the amount that it gets then.
    lifted: &'static [&'static str],
    mark: u64,
}

/// As [`End::Refused`] in all three places.
const fn refused(at_most: u64, error: &'static str) -> [End; 3] {
    [Refused(at_most, error); 3]
}

const fn ended(limit: &'static str) -> [End; 3] {
    [Ended(limit); 3]
}

const fn row(
    id: &'static str,
    kind: &'static str,
    amount: u64,
    limit: &'static [&'static str],
    ends: [End; 3],
    lifted: &'static [&'static str],
) -> Row {
    Row {
        id,
        kind,
        amount,
        how: "",
        limit,
        ends,
        lifted,
        mark: amount,
    }
}

impl Row {
    const fn that(mut self, how: &'static str) -> Self {
        self.how = how;
        self
    }

    const fn reaching(mut self, mark: u64) -> Self {
        self.mark = mark;
        self
    }
}

const MEMORY: &[&str] = &["--limit", "memory=64MiB"];
const MUCH_MEMORY: &[&str] = &["--limit", "memory=1GiB"];
const DISK: &[&str] = &["--limit", "disk=8MiB"];
const MUCH_DISK: &[&str] = &["--limit", "disk=4GiB"];
const FILES: &[&str] = &["--limit", "inodes=300"];
const MANY_FILES: &[&str] = &["--limit", "inodes=100000"];
const FEW: &[&str] = &["--limit", "processes=32"];
const MANY: &[&str] = &["--limit", "processes=512"];
const SHORT: &[&str] = &["--timeout", "500ms"];
const MINUTE: &[&str] = &["--timeout", "60s"];

/// Limits that count all processes of a sandbox together.
const PROCESSES: &[Row] = &[
    // The limit counts the sandbox's first process; in a fence, roughly, others of the
    // user's too.
    row(
        "processes",
        "processes",
        200,
        FEW,
        [
            Denied(31, "EAGAIN", "processes"),
            Refused(31, "EAGAIN"),
            Refused(60, "EAGAIN"),
        ],
        MANY,
    ),
    row(
        "threads",
        "threads",
        200,
        FEW,
        [
            Denied(31, "EAGAIN", "processes"),
            Refused(31, "EAGAIN"),
            Refused(60, "EAGAIN"),
        ],
        MANY,
    ),
    // Whoever is forked twice, in a session of its own and deaf, counts and ends as others.
    row(
        "daemons",
        "daemons",
        200,
        FEW,
        [
            Denied(31, "EAGAIN", "processes"),
            Refused(31, "EAGAIN"),
            Refused(60, "EAGAIN"),
        ],
        MANY,
    ),
];

const IN_MEMORY: &[Row] = &[
    row(
        "memory",
        "memory",
        160,
        MEMORY,
        ended("memory"),
        MUCH_MEMORY,
    ),
    // What is reserved and not used does not count.
    row(
        "addresses-reserved",
        "reserved",
        64,
        MEMORY,
        [Goes; 3],
        MUCH_MEMORY,
    ),
    row(
        "memory-of-several",
        "shares",
        8,
        MEMORY,
        ended("memory"),
        MUCH_MEMORY,
    ),
    // What no process shows: the machine's own sum bounds it.
    row(
        "memory-of-opaque-processes",
        "opaque",
        160,
        MEMORY,
        ended("memory"),
        MUCH_MEMORY,
    ),
    row(
        "memory-on-its-way",
        "flying",
        20,
        MEMORY,
        ended("memory"),
        MUCH_MEMORY,
    ),
    row(
        "memory-out-of-view",
        "unseen",
        160,
        MEMORY,
        ended("memory"),
        MUCH_MEMORY,
    ),
    row(
        "memory-by-another-name",
        "named",
        160,
        MEMORY,
        ended("memory"),
        MUCH_MEMORY,
    ),
    row(
        "memory-of-a-process-without-its-first-thread",
        "leaderless",
        8,
        MEMORY,
        ended("memory"),
        MUCH_MEMORY,
    ),
    row(
        "memory-of-a-thread-apart",
        "apart",
        20,
        MEMORY,
        ended("memory"),
        MUCH_MEMORY,
    ),
    // What is handed on faster than anybody can look.
    row(
        "memory-handed-on",
        "ending",
        1,
        MEMORY,
        ended("memory"),
        MUCH_MEMORY,
    ),
    row(
        "memory-handed-on-beside-others",
        "lingering",
        1,
        MEMORY,
        ended("memory"),
        MUCH_MEMORY,
    ),
    row(
        "memory-in-tmp",
        "tmp",
        160,
        MEMORY,
        // A fence has a directory of the disk in its place.
        [Ended("memory"), Ended("memory"), Refused(0, "EACCES")],
        MUCH_MEMORY,
    ),
    row(
        "tmp",
        "tmp",
        40,
        &["--limit", "tmp=8MiB"],
        [
            Refused(8, "ENOSPC"),
            Refused(8, "ENOSPC"),
            Refused(0, "EACCES"),
        ],
        &["--limit", "tmp=64MiB"],
    ),
    // What is written to files waits in memory for the disk, and gives way.
    row(
        "memory-of-files",
        "disk",
        160,
        MEMORY,
        [Goes; 3],
        MUCH_MEMORY,
    ),
    row(
        "regions",
        "regions",
        30_000,
        MEMORY,
        [Ended("memory"), NotCounted("memory"), NotCounted("memory")],
        MUCH_MEMORY,
    ),
    row(
        "pipes",
        "pipes",
        300,
        MEMORY,
        [Ended("memory"), NotCounted("memory"), NotCounted("memory")],
        MUCH_MEMORY,
    ),
    row(
        "pairs",
        "pairs",
        60,
        MEMORY,
        [Ended("memory"), NotCounted("memory"), NotCounted("memory")],
        MUCH_MEMORY,
    ),
    // Internet sockets count apart, and are refused.
    row(
        "connections",
        "connections",
        60,
        MEMORY,
        [
            Refused(12, "EAGAIN"),
            NotCounted("memory"),
            NotCounted("memory"),
        ],
        &["--limit", "memory=8GiB"],
    ),
    row(
        "datagrams",
        "datagrams",
        60,
        MEMORY,
        [
            Refused(12, "ENOBUFS"),
            NotCounted("memory"),
            Refused(0, "EPROTONOSUPPORT"),
        ],
        &["--limit", "memory=4GiB"],
    ),
];

const ON_DISK: &[Row] = &[
    row("disk", "disk", 40, DISK, ended("disk"), MUCH_DISK),
    row(
        "disk-deleted",
        "deleted",
        40,
        DISK,
        ended("disk"),
        MUCH_DISK,
    ),
    row(
        "disk-deleted-in-a-thread-apart",
        "deleted-apart",
        1,
        DISK,
        ended("disk"),
        MUCH_DISK,
    ),
    // Where nobody can look, all that the file system has lost counts.
    row(
        "disk-deleted-in-an-opaque-process",
        "deleted-opaque",
        200,
        DISK,
        ended("disk"),
        MUCH_DISK,
    ),
    row(
        "disk-deleted-on-its-way",
        "deleted-flying",
        100,
        DISK,
        ended("disk"),
        MUCH_DISK,
    ),
    row(
        "disk-deleted-and-handed-on",
        "deleted-ending",
        1,
        DISK,
        ended("disk"),
        MUCH_DISK,
    ),
    row(
        "disk-deleted-and-handed-on-beside-others",
        "deleted-lingering",
        1,
        DISK,
        ended("disk"),
        MUCH_DISK,
    ),
    row("disk-hidden", "hidden", 200, DISK, ended("disk"), MUCH_DISK),
    row(
        "disk-in-the-deep",
        "depth",
        130,
        DISK,
        ended("disk"),
        MUCH_DISK,
    ),
    row("inodes", "files", 1_000, FILES, ended("inodes"), MANY_FILES),
    row(
        "inodes-with-huge-names",
        "names",
        1_000,
        FILES,
        ended("inodes"),
        MANY_FILES,
    ),
];

const OF_ONE: &[Row] = &[
    row(
        "descriptors",
        "descriptors",
        400,
        &["--limit", "open-files=64"],
        refused(61, "EMFILE"),
        &["--limit", "open-files=1024"],
    ),
    // 64 terminals, whoever asks for more; their number on the host stays.
    row(
        "terminals",
        "terminals",
        200,
        &[],
        [
            Refused(64, "ENOSPC"),
            Refused(64, "ENOSPC"),
            Refused(0, "EACCES"),
        ],
        &[],
    )
    .reaching(0),
    // No image of memory is ever left; a signal ends the child, the program goes on.
    row("images", "images", 5, &[], [Goes; 3], &[]),
];

const IN_TIME: &[Row] = &[
    row("time", "time", 30_000, SHORT, ended("wall-clock"), MINUTE).reaching(700),
    row(
        "time-deaf",
        "time",
        30_000,
        SHORT,
        ended("wall-clock"),
        MINUTE,
    )
    .that("deaf")
    .reaching(700),
    row(
        "time-stopped",
        "stopped",
        20,
        SHORT,
        ended("wall-clock"),
        MINUTE,
    ),
    row(
        "time-of-daemons",
        "daemons",
        20,
        SHORT,
        ended("wall-clock"),
        MINUTE,
    ),
    row(
        "time-of-processors",
        "processors",
        4,
        SHORT,
        ended("wall-clock"),
        MINUTE,
    ),
    row(
        "idle",
        "time",
        30_000,
        &["--limit", "idle=500ms"],
        ended("idle"),
        &["--limit", "idle=60s"],
    )
    .reaching(700),
];

/// The time for which a row keeps its resources where it is to be ended, ms.
const UNTIL_ENDED_MS: u64 = 30_000;
/// The time for which a control keeps them, ms: longer than an observer takes to look, and than the
/// short limit of time.
const SEEN_MS: u64 = 700;

/// Hides control groups from root, in a mount namespace of its own.
pub(crate) const WITHOUT_GROUPS: [&str; 9] = [
    "unshare",
    "--mount",
    "--propagation",
    "private",
    "--",
    "sh",
    "-c",
    "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"",
    "sh",
];

/// A kind of host, by the means that enforce limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Groups,
    Without,
    Fence,
}

/// Returns the hosts that this machine can be for this user.
fn hosts(world: &World) -> Vec<Host> {
    let plain = run(world, Host::Groups, &[], "time 1 0").outcome;
    let told = json(world, &plain);
    assert_eq!(told["mode"], "full", "{plain}");
    let has_groups = held_by(&told, "memory").starts_with("cgroup");
    // Root always has namespaces, and can do without groups.
    match (is_root(), has_groups) {
        (true, true) => vec![Host::Groups, Host::Without],
        (true, false) => vec![Host::Without],
        (false, true) => vec![Host::Groups, Host::Fence],
        (false, false) => vec![Host::Without, Host::Fence],
    }
}

fn held_by(told: &serde_json::Value, limit: &str) -> String {
    let all = told["limits-held-by"].as_array().unwrap().iter();
    let mut found = all.filter(|one| one["limit"] == limit);
    let one = found.next().unwrap_or_else(|| panic!("{limit}: {told:#}"));
    one["by"].as_str().unwrap().to_owned()
}

/// Returns the summary for machines.
fn json(world: &World, outcome: &Outcome) -> serde_json::Value {
    let text = world.read(world.top().join("outcome.json"));
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {outcome}"))
}

/// A run of the bomb, with the least that the host had left meanwhile.
struct Tried {
    outcome: Outcome,
    memory_left: u64,
    disk_left: u64,
}

fn run(world: &World, host: Host, options: &[&str], words: &str) -> Tried {
    let summary = world.top().join("outcome.json");
    let bomb = world.top().join("bomb/bomb");
    let invocation: Invocation = world
        .atoll(["run", "--discard", "--json"])
        .arg(&summary)
        .args(["--ro"])
        .arg(bomb.parent().unwrap())
        .args(options)
        .arg("--")
        .arg(&bomb)
        .args(words.split_whitespace())
        .within(Duration::from_secs(90));
    let invocation = match host {
        Host::Without if is_root() => invocation.under(WITHOUT_GROUPS),
        Host::Groups | Host::Without => invocation,
        Host::Fence => invocation.without_namespaces(),
    };
    let (memory, disk) = (AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX));
    let over = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                memory.fetch_min(memory_left(), Ordering::Relaxed);
                disk.fetch_min(disk_left(world), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let outcome = invocation.run();
        over.store(true, Ordering::Relaxed);
        outcome
    });
    // What nobody can look into is not taken back from a workspace that is the person's
    // own: the run says so, and its owner can.
    let hidden = world.workspace().join("bomb-hidden");
    if host == Host::Fence && hidden.exists() {
        outcome.says(["not taken back: bomb-hidden"]);
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_dir_all(&hidden).unwrap();
    }
    Tried {
        outcome,
        memory_left: memory.into_inner(),
        disk_left: disk.into_inner(),
    }
}

fn memory_left() -> u64 {
    e2e::remains::memory("MemAvailable")
}

fn disk_left(world: &World) -> u64 {
    let facts = rustix::fs::statvfs(world.top()).unwrap();
    facts.f_bavail * facts.f_frsize
}

/// Returns the amount that the bomb reports to have got, and the error that ended it; `None` when
/// it was killed.
fn reached(outcome: &Outcome) -> Option<(u64, String)> {
    let out = outcome.out();
    let line = out
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("reached "))?;
    let (number, end) = line.split_once(' ').unwrap();
    Some((number.parse().unwrap(), end.to_owned()))
}

/// Returns the limits that the outcome names as reached.
fn named(told: &serde_json::Value) -> Vec<String> {
    let denied = told["denied"].as_array().unwrap().iter();
    let names = denied.filter_map(|one| one["limit"].as_str());
    names.map(str::to_owned).collect()
}

impl Row {
    fn end(&self, host: Host) -> End {
        let [groups, without, fence] = self.ends;
        match host {
            Host::Groups => groups,
            Host::Without => without,
            Host::Fence => fence,
        }
    }

    fn words(&self, amount: u64, hold_ms: u64) -> String {
        format!("{} {amount} {hold_ms} {}", self.kind, self.how)
    }

    fn check(&self, world: &World, traces: &Traces, host: Host) {
        let id = self.id;
        let before = (memory_left(), disk_left(world));
        let started = Instant::now();
        let end = self.end(host);
        let hold_ms = match end {
            Ended(_) => UNTIL_ENDED_MS,
            Refused(..) | Denied(..) | Goes | NotCounted(_) => 0,
        };
        let tried = run(world, host, self.limit, &self.words(self.amount, hold_ms));
        self.judge(world, host, &tried.outcome);
        self.expect_room(host, before, &tried);
        traces.expect_same(world, &format!("{id} {host:?}"));
        let took = started.elapsed();
        if self.mark > 0 && matches!(end, Ended(_) | Refused(1.., _) | Denied(..)) {
            self.control(world, host);
        }
        println!("{id} {host:?}: {end:?} after {took:?}");
    }

    /// Checks its end: as the program saw it, and as the outcome and the ledger name it.
    fn judge(&self, world: &World, host: Host, outcome: &Outcome) {
        let told = json(world, outcome);
        let what = format!("{} {host:?}: {outcome}\n{told:#}", self.id);
        let (ending, limits) = (&told["ending"], named(&told));
        match self.end(host) {
            Ended(limit) => {
                assert_eq!(ending["how"], "limited", "{what}");
                assert_eq!(ending["limit"], limit, "{what}");
                assert!(limits.iter().any(|one| one == limit), "{what}");
                outcome.says(["denied", &format!("beyond the limit {limit}")]);
                let closed = closed(world);
                assert_eq!(closed["ending"]["limit"], limit, "{what}\n{closed:#}");
            }
            Refused(at_most, error) | Denied(at_most, error, _) => {
                let (got, end) = reached(outcome).expect(&what);
                assert!(got <= at_most && end == error, "{what}");
                assert_eq!(ending["status"], 0, "{what}");
            }
            Goes | NotCounted(_) => {
                assert_eq!(
                    reached(outcome),
                    Some((self.amount, "all".to_owned())),
                    "{what}"
                );
                assert_eq!(ending["status"], 0, "{what}");
            }
        }
        match self.end(host) {
            Denied(_, _, limit) => assert_eq!(limits, [limit], "{what}"),
            NotCounted(limit) => {
                assert!(held_by(&told, limit).ends_with(", in part"), "{what}");
            }
            Refused(..) | Goes => assert!(limits.is_empty(), "{what}"),
            Ended(_) => {}
        }
        let peak = told["memory-peak-bytes"].as_u64().unwrap();
        if host == Host::Groups && self.limit == MEMORY {
            assert!(peak <= 64 << 20, "{what}");
        }
    }

    /// Checks that the host has had room all the time. Others work on it too: a bomb may take far
    /// less than is asked for here.
    fn expect_room(&self, host: Host, before: (u64, u64), tried: &Tried) {
        let least = (before.0 / 2, before.1.saturating_sub(before.1 / 8));
        let left = (tried.memory_left, tried.disk_left);
        let what = format!("{} {host:?}: {before:?}, then {left:?}", self.id);
        assert!(left.0 >= least.0 && left.1 >= least.1, "{what}");
    }

    /// Checks that with a higher limit the same program reaches its mark, so it was the limit.
    fn control(&self, world: &World, host: Host) {
        let words = self.words(self.mark, SEEN_MS);
        let tried = run(world, host, self.lifted, &words);
        let told = json(world, &tried.outcome);
        let what = format!("{} {host:?}, lifted: {}\n{told:#}", self.id, tried.outcome);
        let all = Some((self.mark, "all".to_owned()));
        assert_eq!(reached(&tried.outcome), all, "{what}");
        assert_eq!(told["ending"]["how"], "exited", "{what}");
        assert_eq!(named(&told), [""; 0], "{what}");
    }
}

/// Waits until the bomb itself runs, and not only its parent.
fn until_it_goes_on(world: &World, words: &str) {
    let bomb = world.top().join("bomb/bomb").display().to_string();
    let is_bomb = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(&bomb))
    };
    e2e::wait_until("the bomb", e2e::BOUND, || {
        let found = e2e::pids_of_command(&format!("{bomb} {words}"));
        found.iter().any(is_bomb).then_some(())
    });
}

/// Data that others write to the same disk meanwhile is not the sandbox's, also where its processes
/// come and go.
#[test]
fn what_others_write_ends_nobody() {
    alone();
    let Some(world) = world("what_others_write_ends_nobody") else {
        return;
    };
    for host in hosts(&world) {
        let tried = std::thread::scope(|scope| {
            let run = scope.spawn(|| run(&world, host, DISK, "short 3000 0"));
            until_it_goes_on(&world, "short 3000 0");
            let path = world.top().join("written-by-another");
            let mut file = fs::File::create(&path).unwrap();
            for _ in 0..50 {
                std::io::Write::write_all(&mut file, &vec![1; 1 << 20]).unwrap();
                file.sync_data().unwrap();
            }
            let tried = run.join().unwrap();
            fs::remove_file(path).unwrap();
            tried
        });
        let told = json(&world, &tried.outcome);
        let what = format!("{host:?}: {}\n{told:#}", tried.outcome);
        assert_eq!(told["ending"]["how"], "exited", "{what}");
        assert_eq!(named(&told), [""; 0], "{what}");
    }
}

/// The life of a bomb that is to be ended, ms: less than the time after which a count was made in
/// any case, when the space of others still decided on it.
const UNTIL_COUNTED_MS: u64 = 20_000;

/// Space that others free on the same disk meanwhile hides nothing.
#[test]
fn growth_while_others_free_space_is_ended() {
    alone();
    let Some(world) = world("growth_while_others_free_space_is_ended") else {
        return;
    };
    let bomb = world.top().join("bomb/bomb");
    let summary = world.top().join("outcome.json");
    let others = world.top().join("others");
    for (limit, words, name) in [(FILES, "files 1000", "inodes"), (DISK, "disk 40", "disk")] {
        for host in hosts(&world) {
            fs::create_dir(&others).unwrap();
            for number in 0..3_000 {
                fs::write(others.join(number.to_string()), vec![1; 40 << 10]).unwrap();
            }
            let script = format!(
                "echo ready; read x; exec {} {words} {UNTIL_COUNTED_MS}",
                bomb.display()
            );
            let invocation = world
                .atoll(["run", "--discard", "--json"])
                .arg(&summary)
                .arg("--ro")
                .arg(bomb.parent().unwrap())
                .args(limit)
                .args(["--", "sh", "-c", &script])
                .within(Duration::from_secs(90));
            let invocation = match host {
                Host::Without if is_root() => invocation.under(WITHOUT_GROUPS),
                Host::Groups | Host::Without => invocation,
                Host::Fence => invocation.without_namespaces(),
            };
            let mut running = invocation.start();
            running.until_stdout("ready");
            fs::remove_dir_all(&others).unwrap();
            running.send("\n");
            let outcome = running.wait();
            let told = json(&world, &outcome);
            let what = format!("{host:?}: {outcome}\n{told:#}");
            assert_eq!(told["ending"]["limit"], name, "{what}");
        }
    }
}

/// Memory of others is not the sandbox's: not where it hides nothing, even if it shares memory and
/// passes descriptors on.
#[test]
fn memory_of_others_ends_nobody() {
    alone();
    let Some(world) = world("memory_of_others_ends_nobody") else {
        return;
    };
    for host in hosts(&world) {
        for words in [
            "time 6000 0",
            "short 3000 0",
            "named 8 4000",
            "unseen 8 4000",
            "apart 2 4000",
        ] {
            let tried = std::thread::scope(|scope| {
                let run = scope.spawn(|| run(&world, host, MEMORY, words));
                until_it_goes_on(&world, words);
                let name = c"memory of somebody else";
                let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC);
                let mut file = fs::File::from(file.unwrap());
                let part = vec![1; 1 << 20];
                for _ in 0..200 {
                    std::io::Write::write_all(&mut file, &part).unwrap();
                }
                run.join().unwrap()
            });
            let told = json(&world, &tried.outcome);
            let what = format!("{host:?} {words}: {}\n{told:#}", tried.outcome);
            assert_eq!(told["ending"]["how"], "exited", "{what}");
            assert_eq!(named(&told), [""; 0], "{what}");
        }
    }
}

/// A limit that is not a matter of more or less: it does not end or refuse anything.
#[test]
fn a_flood_of_output_is_shown_and_kept_up_to_its_limit() {
    alone();
    let Some(world) = world("a_flood_of_output_is_shown_and_kept_up_to_its_limit") else {
        return;
    };
    let bomb = world.path("bomb");
    fs::copy(world.top().join("bomb/bomb"), bomb).unwrap();
    for (kind, file) in [("output", "stdout"), ("errors", "stderr")] {
        for (limit, kept, name) in [("1MiB", 1 << 20, "output"), ("64MiB", 8 << 20, "")] {
            let limit = format!("output={limit}");
            let summary = world.top().join("outcome.json");
            let flood = world
                .atoll(["run", "--keep", "--limit", &limit, "--json"])
                .arg(&summary)
                .args(["--", "./bomb", kind, "8", "0"])
                .run()
                .success();
            let shown = if kind == "output" {
                &flood.stdout
            } else {
                &flood.stderr
            };
            assert!(shown.len() >= 8 << 20, "{kind} {limit}: {}", shown.len());
            let told = json(&world, &flood);
            let names: Vec<String> = [name.to_owned()]
                .into_iter()
                .filter(|it| !it.is_empty())
                .collect();
            assert_eq!(named(&told), names, "{kind} {limit}: {told:#}");
            let run = told["run"].as_str().unwrap();
            let file = world
                .state()
                .join(format!("atoll/runs/{run}/output/{file}"));
            let length = fs::metadata(file).unwrap().len();
            // With its last line, where all is kept.
            assert!(
                (kept..kept + 64).contains(&length),
                "{kind} {limit}: {length}"
            );
        }
    }
}

/// Endless output that nobody reads: Atoll does not keep it in memory.
#[test]
fn a_flood_that_nobody_reads_waits() {
    alone();
    let Some(world) = world("a_flood_that_nobody_reads_waits") else {
        return;
    };
    let bomb = world.top().join("bomb");
    let script = format!(
        "(\"$ATOLL\" run --discard --timeout 2s --ro {0} -- {0}/bomb output 4096 0; echo $? >&2) | sleep 4",
        bomb.display()
    );
    let running = world.host_shell(&script).start();
    let mut most = 0;
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        for one in e2e::descendants_of(running.pid()) {
            let memory = e2e::status_field(one.pid, "RssAnon").unwrap_or_default();
            let kilobytes: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
            most = kilobytes.max(most);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = running.wait();
    assert!(most > 0 && most < 48 << 10, "{most} kB: {ended}");
    ended.says(["beyond the limit wall-clock"]);
    assert!(ended.err().contains("\n124\n"), "{ended}");
}

/// The most tries of a control that a busy machine can spoil. Programs that spin get the processor
/// time that they may have, or nothing starts.
const TRIES: u32 = 10;

#[test]
fn time_of_the_processor_is_held_or_refused() {
    alone();
    let Some(world) = world("time_of_the_processor_is_held_or_refused") else {
        return;
    };
    let words = "processors 3 1800";
    for host in hosts(&world) {
        let limited = run(&world, host, &["--limit", "cpu=0.1"], words).outcome;
        let told = json(&world, &limited);
        if host != Host::Groups {
            assert_eq!(
                (limited.code(), &told["state"]),
                (125, &"failed".into()),
                "{limited}"
            );
            limited.is_clear_error(["cannot enforce the limit cpu"]);
            assert_eq!(limited.out(), "");
            continue;
        }
        let used = |told: &serde_json::Value| {
            let part = |name: &str| told[name].as_f64().unwrap();
            part("cpu-ms") / part("wall-clock-ms")
        };
        assert!(used(&told) < 0.2, "{told:#}");
        // The control, which a sandbox of low weight may not get beside others at once.
        let free = || json(&world, &run(&world, host, &[], words).outcome);
        let most = (0..TRIES).map(|_| used(&free())).find(|used| *used > 0.4);
        assert!(most.is_some(), "no more without the limit, {TRIES} times");
    }
}

/// A program that spins in a thousand sessions has the weight of one, and a low one.
#[test]
fn a_sandbox_weighs_as_one_and_little() {
    alone();
    let world = World::new("a_sandbox_weighs_as_one_and_little");
    let mut running = world.run([""; 0], "echo ready; read x").start();
    running.until_stdout("ready");
    let groups = e2e::remains::groups(&e2e::remains::recorded_runs(&world.state()));
    let weights: Vec<String> = ["cpu.shares", "cpu.weight"]
        .iter()
        .flat_map(|file| groups.iter().map(move |group| group.join(file)))
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect();
    running.send("\n");
    let _ = running.wait().success();
    if groups.is_empty() {
        return world.skip("no control groups can be made here", Avoidable::No);
    }
    assert!(
        matches!(weights.as_slice(), [one] if one == "512\n" || one == "50\n"),
        "{weights:?}"
    );
}

/// Without a control group, each of its processes weighs half of another, and cannot have more.
#[test]
fn a_sandbox_without_groups_weighs_little_too() {
    alone();
    let world = World::new("a_sandbox_without_groups_weighs_little_too");
    let script = "echo ready; read x; nice; nice -n -3 nice 2>/dev/null || true";
    let mut running = world.run([""; 0], script).start();
    running.until_stdout("ready");
    let groups = e2e::remains::groups(&e2e::remains::recorded_runs(&world.state()));
    running.send("\n");
    let ended = running.wait().success();
    let outside: i32 = world.host("nice").run().out().trim().parse().unwrap();
    let expected = match groups.is_empty() {
        true => (outside + 3).min(19),
        false => outside,
    };
    let said: Vec<i32> = ended
        .out()
        .lines()
        .skip(1)
        .map(|one| one.parse().unwrap())
        .collect();
    assert_eq!(said, [expected, expected], "{ended}");
}

/// Returns the ledger's record of the last run's end.
fn closed(world: &World) -> serde_json::Value {
    let events = e2e::traces::events(world);
    let mut closed = events.iter().filter(|event| event["type"] == "run.closed");
    closed.next_back().unwrap()["body"].clone()
}

/// Returns a world with the bomb in it, compiled there; `None` where that is impossible.
fn world(test: &str) -> Option<World> {
    let world = World::new(test);
    if !program_exists("cc") {
        world.skip("there is no C compiler", Avoidable::Yes);
        return None;
    }
    compile(&world, "bomb/bomb");
    Some(world)
}

fn compile(world: &World, path: &str) -> PathBuf {
    let bomb = world.top().join(path);
    fs::create_dir_all(bomb.parent().unwrap()).unwrap();
    let _ = world
        .host("cc")
        .args(["-O1", "-static", "-pthread", "-x", "c", "-", "-o"])
        .arg(&bomb)
        .stdin(include_str!("limits/bomb.c"))
        .run()
        .success();
    bomb
}

/// Checks all rows of a table, whatever the results of the first ones.
fn check_all(test: &str, rows: &[Row]) {
    alone();
    let Some(world) = world(test) else { return };
    let hosts = hosts(&world);
    let traces = Traces::take(&world);
    let mut failed = Vec::new();
    for row in rows {
        for host in &hosts {
            let tried = std::panic::AssertUnwindSafe(|| row.check(&world, &traces, *host));
            if let Err(broken) = std::panic::catch_unwind(tried) {
                let told = broken.downcast_ref::<String>().cloned();
                failed.push(told.unwrap_or_else(|| row.id.to_owned()));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn bombs_of_processes_are_refused_and_leave_nothing() {
    check_all(
        "bombs_of_processes_are_refused_and_leave_nothing",
        PROCESSES,
    );
}

#[test]
fn bombs_of_memory_are_ended_or_refused() {
    check_all("bombs_of_memory_are_ended_or_refused", IN_MEMORY);
}

#[test]
fn bombs_on_disk_are_ended_wherever_they_hide() {
    check_all("bombs_on_disk_are_ended_wherever_they_hide", ON_DISK);
}

#[test]
fn what_one_process_can_have_is_refused_beyond_its_limit() {
    check_all(
        "what_one_process_can_have_is_refused_beyond_its_limit",
        OF_ONE,
    );
}

#[test]
fn time_ends_whatever_stands_against_it() {
    check_all("time_ends_whatever_stands_against_it", IN_TIME);
}
