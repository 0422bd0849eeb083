//! Nothing is left behind, however a run ends, and nothing is lost.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use e2e::remains::{alive, descriptors, groups, memory, recorded_runs, sockets};
use e2e::traces::{Traces, alone, contents, end_of, events, until_none, verify_ledger};
use e2e::{Avoidable, World, children_of, is_alive, is_root, kill};
use rustix::process::Signal;

/// Runs that differ in how they end; none of them may leave anything.
const ENDINGS: [(&str, &[&str], &str, i32); 16] = [
    ("success", &[], "true", 0),
    ("failure", &[], "exit 3", 3),
    ("signal", &[], "kill -SEGV $$", 139),
    ("kills itself", &[], "kill -KILL $$", 137),
    ("time limit", &["--timeout", "150ms"], "sleep 1000", 124),
    ("idle limit", &["--limit", "idle=150ms"], "sleep 1000", 124),
    (
        "disk limit",
        &["--limit", "disk=1MiB"],
        "head -c 50M /dev/zero > a; sleep 1000",
        137,
    ),
    ("double fork", &[], "(sleep 1000 & ) ; true", 0),
    ("own session", &[], "setsid sleep 1000 & true", 0),
    (
        "own session and double fork",
        &[],
        "(setsid sh -c 'sleep 1000 & sleep 1001' &); true",
        0,
    ),
    ("nohup", &[], "nohup sleep 1000 > /dev/null 2>&1 & true", 0),
    (
        "deaf to every signal",
        &[],
        "(trap '' HUP INT TERM QUIT PIPE; sleep 1000) & true",
        0,
    ),
    (
        "deaf at the time limit",
        &["--timeout", "150ms"],
        "trap '' TERM; sleep 1000 & wait; wait",
        124,
    ),
    ("stopped", &[], "sh -c 'kill -STOP $$' & sleep 0.1; true", 0),
    (
        "many",
        &[],
        "i=0; while [ $i -lt 50 ]; do sleep 1000 & i=$((i+1)); done; true",
        0,
    ),
    ("listens", &[], LISTEN, 0),
];

const LISTEN: &str = "command -v python3 > /dev/null || exit 0; python3 -c '
import os, socket
tcp = socket.create_server((\"127.0.0.1\", 0))
unix = socket.socket(socket.AF_UNIX); unix.bind(\"listening\"); unix.listen()
if os.fork() == 0:
    os.setsid()
    tcp.accept()
'";

/// Runs that never get as far as a program.
const FAILURES: [(&str, &[&str], &[&str], i32); 8] = [
    ("not found", &[], &["no-such-program"], 127),
    ("not executable", &[], &["/etc/passwd"], 126),
    ("a directory", &[], &["/usr"], 126),
    ("no interpreter", &[], &["./script"], 127),
    ("unknown limit", &["--limit", "colour=3"], &["true"], 125),
    ("no such profile", &["--profile", "no-such"], &["true"], 125),
    ("no such input", &["--ro", "/no-such-place"], &["true"], 125),
    (
        "no processes left",
        &["--limit", "processes=1"],
        &["true"],
        125,
    ),
];

#[test]
fn runs_that_end_in_any_way_leave_nothing() {
    alone();
    let world = World::new("runs_that_end_in_any_way_leave_nothing");
    for (what, options, script, status) in ENDINGS {
        let before = Traces::take(&world);
        let options: Vec<&str> = ["--discard"].iter().chain(options).copied().collect();
        let ended = world.run(options, script).run();
        assert_eq!(ended.code(), status, "{what}: {ended}");
        before.expect_same(&world, what);
    }
}

#[test]
fn runs_that_fail_before_they_start_leave_nothing() {
    alone();
    let world = World::new("runs_that_fail_before_they_start_leave_nothing");
    world.write("script", "#!/no/such/interpreter\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(world.path("script"), executable).unwrap();
    for (what, options, command, status) in FAILURES {
        let before = Traces::take(&world);
        let invocation = world
            .atoll(["run", "--discard"])
            .args(options)
            .arg("--")
            .args(command);
        let ended = invocation.run();
        assert_eq!(ended.code(), status, "{what}: {ended}");
        before.expect_same(&world, what);
    }
}

#[test]
fn a_hundred_runs_leave_nothing() {
    alone();
    many_runs(&World::new("a_hundred_runs_leave_nothing"), 100);
}

#[test]
fn a_thousand_runs_leave_nothing_slow() {
    alone();
    many_runs(&World::new("a_thousand_runs_leave_nothing_slow"), 1_000);
}

fn many_runs(world: &World, count: u32) {
    let once = || {
        world
            .atoll(["run", "--discard", "--", "true"])
            .run()
            .success()
    };
    let before = Traces::take(world);
    let counted = Counted::take();
    for _ in 0..count {
        let _ = once();
    }
    before.expect_same(world, "many runs");
    counted.expect_no_trend(count);
    verify_ledger(world);
    let events = events(world);
    let closed = events
        .iter()
        .filter(|event| event["type"] == "run.closed")
        .count();
    assert_eq!(closed, usize::try_from(count).unwrap() + 1);
}

#[test]
fn two_runs_at_once_are_separate() {
    alone();
    let world = World::new("two_runs_at_once_are_separate");
    world.write("shared", "before\n");
    let before = contents(&world.workspace());
    let script = |me: &str| {
        format!(
            "echo {me} > shared; echo {me} > {me}; echo ready; read go; cat shared; ls; ps -e 2> /dev/null | wc -l"
        )
    };
    let mut one = world.run(["--keep"], &script("one")).start();
    let mut two = world.run(["--keep"], &script("two")).start();
    one.until_stdout("ready");
    two.until_stdout("ready");
    one.send("go\n");
    two.send("go\n");
    let (one, two) = (one.wait().success(), two.wait().success());
    assert!(one.out().starts_with("ready\none\none\nshared\n"), "{one}");
    assert!(two.out().starts_with("ready\ntwo\nshared\ntwo\n"), "{two}");
    assert_eq!(contents(&world.workspace()), before);
    let runs: Vec<String> = world
        .runs()
        .iter()
        .map(|run| run["run"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(runs.len(), 2);
    let diffs: Vec<String> = runs
        .iter()
        .map(|run| world.atoll(["diff", run]).run().success().out())
        .collect();
    let of = |name: &str| {
        diffs
            .iter()
            .position(|diff| diff.contains(&format!("b/{name}\n")))
            .unwrap()
    };
    assert_ne!(of("one"), of("two"), "{diffs:?}");
    // The second finds that the first has changed the same file.
    let _ = world.atoll(["apply", &runs[of("one")]]).run().success();
    let refused = world.atoll(["apply", &runs[of("two")]]).run();
    assert_ne!(refused.code(), 0, "{refused}");
    refused.says(["shared"]);
    assert_eq!(world.read("shared"), "one\n");
    assert!(!world.exists("two"));
}

/// A control group of the host that an Atoll can be started in, removed with everything beneath it.
struct OuterGroup(PathBuf);

impl OuterGroup {
    /// Makes one beneath the own group; with separate controllers, in that of memory. `None` where
    /// that is impossible.
    fn make() -> Option<Self> {
        let list = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = |controller: &str| {
            let mut lines = list.lines().filter_map(|line| line.split_once(':'));
            lines.find_map(|(_, rest)| rest.strip_prefix(controller)?.strip_prefix(":/"))
        };
        let memory = Path::new("/sys/fs/cgroup/memory");
        let above = match own("memory") {
            Some(own) => memory.join(own),
            None => Path::new("/sys/fs/cgroup").join(own("")?),
        };
        let path = above.join(format!("test-of-atoll-{}", std::process::id()));
        fs::create_dir(&path).ok().map(|()| Self(path))
    }

    /// Makes an empty group in it with the name of a run.
    fn with_group_of(&self, run: &str) -> PathBuf {
        let path = self.0.join(format!("atoll-{run}"));
        fs::create_dir(&path).unwrap();
        path
    }
}

impl Drop for OuterGroup {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn groups_of_an_atoll_that_was_in_another_group_are_removed() {
    alone();
    let world = World::new("groups_of_an_atoll_that_was_in_another_group_are_removed");
    let Some(outer) = OuterGroup::make() else {
        return world.skip("no control group can be made here", Avoidable::No);
    };
    for next in [&["run", "--discard", "--", "true"][..], &["gc"]] {
        let script = "echo $$ > \"$GROUP/cgroup.procs\" || exit 1
            exec \"$ATOLL\" run --discard -- sh -c 'echo ready; sleep 1000'";
        let mut running = world.host_shell(script).env("GROUP", &outer.0).start();
        running.until_stdout("ready");
        let launcher = children_of(running.pid()).first().unwrap().pid;
        // Nobody is left to remove anything.
        kill(running.pid(), Signal::KILL);
        kill(launcher, Signal::KILL);
        assert_eq!(end_of(&mut running), Some(137));
        let left = until_none(alive);
        assert!(left.is_empty(), "{next:?}: {left:?}");
        assert!(!groups(&recorded_runs(&world.state())).is_empty());
        let _ = world.atoll(next).run().success();
        let left = groups(&recorded_runs(&world.state()));
        assert!(left.is_empty(), "{next:?}: {left:?}");
    }
}

#[test]
fn groups_of_runs_that_may_be_alive_are_left_alone() {
    alone();
    let world = World::new("groups_of_runs_that_may_be_alive_are_left_alone");
    let Some(outer) = OuterGroup::make() else {
        return world.skip("no control group can be made here", Avoidable::No);
    };
    let discard = ["run", "--discard", "--", "true"];
    let _ = world.atoll(discard).run().success();
    let over = recorded_runs(&world.state()).pop_last().unwrap();
    let running = world.run(["--keep"], "echo ready; sleep 1000").start();
    running.until_stdout("ready");
    let mut both = recorded_runs(&world.state());
    both.remove(&over);
    let living = both.pop_last().unwrap();
    // The living run's group as it is before its first process, in another place.
    let of_living = outer.with_group_of(&living);
    let of_another_ledger = outer.with_group_of("261121-093012-k7qd");
    let of_none = outer.with_group_of("test");
    let of_over = outer.with_group_of(&over);
    let dry = world.atoll(["gc", "--dry-run"]).run().success();
    dry.says(["1 control group would be removed"]);
    assert!(of_over.exists());
    let done = world.atoll(["gc"]).run().success();
    done.says(["1 control group removed"]);
    assert!(!of_over.exists());
    if is_root() {
        // One of a run of that name which is another user's.
        let _ = outer.with_group_of(&over);
        chown(&of_over, Some(61_234), None).unwrap();
        let _ = world.atoll(["gc"]).run().success();
        assert!(of_over.exists());
    }
    for kept in [of_living, of_another_ledger, of_none] {
        assert!(kept.exists(), "{}", kept.display());
    }
    running.signal(Signal::TERM);
    let _ = running.wait();
}

/// Signals that ask a program to end: the signal, its name in a shell.
const ASKING: [(Signal, &str); 3] = [
    (Signal::TERM, "TERM"),
    (Signal::HUP, "HUP"),
    (Signal::INT, "INT"),
];

#[test]
fn signals_are_passed_on() {
    alone();
    for (signal, name) in ASKING {
        let world = World::new("signals_are_passed_on");
        let before = Traces::take(&world);
        let script = format!(
            "trap 'echo {name} > got; exit 9' {name}; echo ready; while :; do sleep 0.05; done"
        );
        let running = world.run(["--keep"], &script).start();
        running.until_stdout("ready");
        running.signal(signal);
        let ended = running.wait().expect_status(9);
        let diff = world.atoll(["diff", "last"]).run().success();
        assert!(
            diff.out().contains(&format!("+{name}\n")),
            "{ended}\n{diff}"
        );
        before.expect_no_processes(&world, name);
    }
}

#[test]
fn a_program_without_a_handler_ends_by_the_signal() {
    alone();
    for (signal, name) in ASKING {
        let world = World::new("a_program_without_a_handler_ends_by_the_signal");
        let before = Traces::take(&world);
        let running = world.atoll(["run", "--discard", "--", "sh", "-c"]);
        let running = running.arg("echo ready; exec sleep 1000").start();
        running.until_stdout("ready");
        running.signal(signal);
        let _ = running.wait().expect_status(128 + signal.as_raw());
        before.expect_same(&world, name);
    }
}

#[test]
fn a_deaf_program_lives_until_its_time_is_up() {
    alone();
    let world = World::new("a_deaf_program_lives_until_its_time_is_up");
    let before = Traces::take(&world);
    let script = "trap 'echo deaf' TERM HUP INT; echo ready; while :; do sleep 0.05; done";
    let running = world.run(["--discard", "--timeout", "1s"], script).start();
    running.until_stdout("ready");
    for (signal, _) in ASKING {
        running.signal(signal);
    }
    running.until_stdout("deaf");
    assert!(
        is_alive(running.pid()),
        "a signal that the program has handled ended Atoll"
    );
    let _ = running.wait().expect_status(124);
    before.expect_same(&world, "deaf");
}

#[test]
fn a_deaf_program_ends_with_the_command_line() {
    alone();
    let world = World::new("a_deaf_program_ends_with_the_command_line");
    let before = Traces::take(&world);
    let script = "trap '' TERM HUP INT QUIT USR1 USR2; echo ready; while :; do sleep 0.05; done";
    let mut running = world.run(["--discard"], script).start();
    running.until_stdout("ready");
    running.signal(Signal::TERM);
    running.signal(Signal::KILL);
    assert_eq!(end_of(&mut running), Some(137));
    before.expect_no_processes(&world, "deaf");
}

/// Counts for the whole machine, where others work too.
struct Counted {
    descriptors: usize,
    sockets: [usize; 3],
    available: u64,
    kernel: u64,
}

impl Counted {
    fn take() -> Self {
        Self {
            descriptors: descriptors(),
            sockets: sockets(),
            available: memory("MemAvailable"),
            kernel: memory("SUnreclaim"),
        }
    }

    /// Checks that nothing grows with the number of runs: remains of each would show as a multiple.
    fn expect_no_trend(&self, runs: u32) {
        /// The least cost of a network namespace, bytes.
        const KERNEL_BYTES_OF_RUN_MAX: u64 = 16 * 1024;
        const BYTES_OF_RUN_MAX: u64 = 512 * 1024;
        /// The most that others may take meanwhile, bytes.
        const KERNEL_BYTES_OF_OTHERS: u64 = 24 << 20;
        const BYTES_OF_OTHERS: u64 = 2 << 30;
        let now = Self::take();
        assert_eq!(
            now.descriptors, self.descriptors,
            "open descriptors of this test"
        );
        let noise = usize::try_from(runs / 5).unwrap();
        for (now, before) in now.sockets.iter().zip(self.sockets) {
            assert!(*now < before + noise, "{now} sockets, {before} before");
        }
        let grown = now.kernel.saturating_sub(self.kernel);
        let allowed = u64::from(runs) * KERNEL_BYTES_OF_RUN_MAX + KERNEL_BYTES_OF_OTHERS;
        assert!(
            grown < allowed,
            "the kernel holds {grown} bytes more after {runs} runs"
        );
        let grown = self.available.saturating_sub(now.available);
        let allowed = u64::from(runs) * BYTES_OF_RUN_MAX + BYTES_OF_OTHERS;
        assert!(
            grown < allowed,
            "{grown} bytes less are available after {runs} runs"
        );
    }
}
