//! `atoll exec` and `atoll shell`: programs in a running sandbox, decided, recorded, and held like
//! its first.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use e2e::internet::{Seen, is_possible, on_internet};
use e2e::traces::events;
use e2e::{Outcome, Running, World, children_of, descendants_of, is_root, kill, wait_until};
use rustix::process::Signal;
use serde_json::json;

/// Starts a run that goes on until a file is made in its sandbox.
pub(crate) fn living(world: &World, options: &[&str], before: &str) -> Running {
    let script = format!("{before} echo up; while [ ! -e done ]; do sleep 0.05; done");
    let run = world.atoll(["run", "--keep"]).args(options);
    let running = run.args(["--", "sh", "-c", &script]).start();
    running.until_stdout("up");
    running
}

pub(crate) fn exec(world: &World, script: &str) -> Outcome {
    world
        .atoll(["exec", "last", "--", "sh", "-c", script])
        .run()
}

/// Ends the run from inside.
fn end(world: &World, running: Running) -> Outcome {
    // The run may end before the shell that made the file.
    let _ = exec(world, "touch done");
    running.wait()
}

#[test]
fn exec_shares_files_and_boundary() {
    let world = World::new("exec_shares_files_and_boundary");
    world.write(world.workspace().join("here"), "outside\n");
    let running = living(&world, &[], "echo inside > made;");
    let seen = exec(&world, "cat here made; pwd; echo told >&2; exit 7").expect_status(7);
    let expected = format!("outside\ninside\n{}\n", world.workspace().display());
    assert_eq!((seen.out(), seen.err()), (expected, "told\n".to_owned()));
    let with = [
        "exec",
        "last",
        "--env",
        "NEW=a b",
        "--directory",
        "/tmp",
        "--",
    ];
    let script = "cat; printf '%s|%s|%s\\n' \"$NEW\" \"$PWD\" \"$ATOLL_RUN\"";
    let seen = world
        .atoll(with)
        .args(["sh", "-c", script])
        .stdin("typed\n")
        .run();
    let out = seen.success().out();
    assert!(out.starts_with("typed\na b|/tmp|"), "{out}");
    assert!(
        !out.ends_with("|\n"),
        "the run's own variables are there: {out}"
    );
    // The boundary is the run's: no network, and nothing outside is written.
    let outside = world.top().join("outside");
    let script = format!("echo x > {} ; echo $?", outside.display());
    exec(&world, &script);
    assert!(!outside.exists());
    let ended = end(&world, running).success();
    assert!(ended.err().contains("made"), "{ended}");
}

/// Makes a file, a directory and a file that lets nobody else in, and shows the mask.
const MADE: &str = "umask; : > f$1; mkdir d$1; (umask 0077; : > own$1)";

#[test]
fn mask_of_the_caller_holds_inside() {
    let world = World::new("mask_of_the_caller_holds_inside");
    let masked = |mask: &str, call: &[&str]| {
        let front = format!("umask {mask}; exec \"$@\"");
        world.atoll(call).under(["sh", "-c", &front, "sh"])
    };
    let script = format!("set -- 1; {MADE}; echo up; while [ ! -e done ]; do sleep 0.05; done");
    let run = masked("077", &["run", "--apply", "--", "sh", "-c", &script]).start();
    let out = run.until_stdout("up");
    assert!(out.starts_with("0077\n"), "{out}");
    for (number, mask) in [("2", "002"), ("3", "027"), ("4", "000")] {
        let script = format!("set -- {number}; {MADE}");
        let seen = masked(mask, &["exec", "last", "--", "sh", "-c", &script]).run();
        let expected = format!("{:0>4}\n", mask.trim_start_matches('0'));
        assert_eq!(seen.success().out(), expected);
    }
    let _ = end(&world, run).success();
    let mode = |name: &str| {
        let facts = std::fs::symlink_metadata(world.path(name));
        facts.unwrap().permissions().mode() & 0o7777
    };
    for (number, file, directory) in [
        (1, 0o600, 0o700),
        (2, 0o664, 0o775),
        (3, 0o640, 0o750),
        (4, 0o666, 0o777),
    ] {
        assert_eq!(mode(&format!("f{number}")), file, "f{number}");
        assert_eq!(mode(&format!("d{number}")), directory, "d{number}");
        assert_eq!(mode(&format!("own{number}")), 0o600, "own{number}");
    }
}

/// A loop that reads goes on where the program stopped reading.
#[test]
fn input_that_is_not_read_stays_the_callers() {
    let world = World::new("input_that_is_not_read_stays_the_callers");
    let lines: String = (0..6).map(|at| format!("line {at}\n")).collect();
    world.write("lines", &lines);
    let loops = "while read -r one; do echo \"had $one\"; $CALL; done";
    let programs = [
        ("true", 1),
        ("sh -c 'read -r two; echo \"took $two\"'", 2),
        ("sh -c 'exec <&-'", 1),
    ];
    let mut running = Some(living(&world, &[], ""));
    for call in ["exec last", "run"] {
        for (program, reads) in programs {
            let call = format!("\"$ATOLL\" {call} -- {program}");
            let script = loops.replace("$CALL", &call);
            let from_file = format!("{script} <lines");
            let from_pipe = format!("cat lines | {script}");
            for script in [from_file, from_pipe] {
                let seen = world.host_shell(&script).run().success().out();
                let had = seen.lines().filter(|line| line.starts_with("had")).count();
                assert_eq!(had, 6 / reads, "{script}: {seen}");
                let took = seen.lines().filter(|line| line.starts_with("took")).count();
                assert_eq!(took, 6 - 6 / reads, "{script}: {seen}");
            }
        }
        running = running.and_then(|running| {
            let _ = end(&world, running).success();
            None
        });
    }
    // What is read is read to its end, however much it is.
    let script = "head -c 3000000 /dev/zero | \"$ATOLL\" run -- wc -c; \
         head -c 3000000 /dev/zero >big; \"$ATOLL\" run -- wc -c <big; \
         (\"$ATOLL\" run -- head -c 5 >&2; wc -c) <big";
    let seen = world.host_shell(script).run().success().out();
    assert_eq!(seen, "3000000\n3000000\n2999995\n", "{seen}");
}

/// Each domain of a program's process grants what its files' rules grant.
#[test]
fn links_and_moves_across_directories_work() {
    let world = World::new("links_and_moves_across_directories_work");
    let script = "mkdir -p $1/a $1/b && echo x > $1/a/f && ln $1/a/f $1/b/g && \
         mv $1/a/f $1/b/h && cat $1/b/g $1/b/h && cd $1 && mv b/h /tmp/h$1 && cat /tmp/h$1";
    let script = format!("set -- {{}}; {script}");
    let first = format!("{};", script.replace("{}", "one"));
    let running = living(&world, &[], &format!("({first}) > seen 2>&1;"));
    let seen = exec(&world, "cat seen").success();
    assert_eq!(seen.out(), "x\nx\nx\n", "{seen}");
    let seen = exec(&world, &script.replace("{}", "two")).success();
    assert_eq!(seen.out(), "x\nx\nx\n", "{seen}");
    let _ = end(&world, running).success();
}

#[test]
fn exec_is_recorded_with_its_end() {
    let world = World::new("exec_is_recorded_with_its_end");
    let running = living(&world, &[], "");
    let _ = exec(&world, "exit 0").success();
    let _ = exec(&world, "exit 3").expect_status(3);
    let _ = exec(&world, "kill -9 $$").expect_status(137);
    let _ = world
        .atoll(["exec", "last", "--", "no-such-program"])
        .run()
        .expect_status(127);
    let long = world
        .atoll(["exec", "last", "--", "sh", "-c", "echo on; sleep 100"])
        .start();
    long.until_stdout("on");
    let _ = end(&world, running).success();
    // It ends with its run.
    let _ = long.wait().expect_status(137);
    let all = events(&world);
    let of = |kind: &str| -> Vec<_> { all.iter().filter(|one| one["type"] == kind).collect() };
    let opened = of("exec.opened");
    assert_eq!(opened.len(), 6);
    for (at, one) in opened.iter().enumerate() {
        assert_eq!(one["body"]["exec"], json!(at + 1));
        assert_eq!(one["body"]["verdict"], "allow");
        assert!(one["body"]["decision"]["policy"].is_string());
        assert!(one["body"]["by"]["pid"].as_u64().is_some_and(|pid| pid > 1));
    }
    let ends: Vec<_> = of("exec.closed")
        .iter()
        .map(|one| one["body"]["ending"].clone())
        .collect();
    assert_eq!(ends.len(), 6, "{ends:?}");
    for ending in [
        json!({ "how": "exited", "status": 3 }),
        json!({ "how": "signalled", "signal": 9 }),
        json!({ "how": "not-found" }),
        json!({ "how": "exited", "status": 0 }),
    ] {
        assert!(ends.contains(&ending), "{ending} of {ends:?}");
    }
    let closed = all
        .iter()
        .position(|one| one["type"] == "run.closed")
        .unwrap();
    let last = all
        .iter()
        .rposition(|one| one["type"] == "exec.closed")
        .unwrap();
    assert!(last < closed, "every exec is closed before its run");
    let _ = world.atoll(["ledger", "verify"]).run().success();
}

#[test]
fn exec_denied_by_policy_is_not_started() {
    let world = World::new("exec_denied_by_policy_is_not_started");
    let policies = "@id(\"none\") @reason(\"no touching\") \
         forbid(principal, action == Action::\"exec\", resource in Program::\"touch\");\n";
    world.write(world.config().join("atoll/own.cedar"), policies);
    let running = living(&world, &[], "");
    let denied = world
        .atoll(["exec", "last", "--", "touch", "touched"])
        .run();
    denied.is_clear_error(["no touching"]);
    // By its path too, and not by what a shell does.
    let path = exec(&world, "command -v touch").success().out();
    let by_path = world
        .atoll(["exec", "last", "--", path.trim(), "touched"])
        .run();
    by_path.is_clear_error(["no touching"]);
    let _ = exec(&world, "test ! -e touched").success();
    let ended = end(&world, running).success();
    assert!(!ended.err().contains("touched"), "{ended}");
    let all = events(&world);
    let denied: Vec<_> = all
        .iter()
        .filter(|one| one["type"] == "exec.denied")
        .collect();
    assert_eq!(denied.len(), 2);
    assert_eq!(denied[0]["body"]["verdict"], "deny");
    assert!(
        denied[0]["body"]["reasons"]
            .to_string()
            .contains("no touching")
    );
}

#[test]
fn exec_gets_a_terminal_of_its_own() {
    let world = World::new("exec_gets_a_terminal_of_its_own");
    let running = living(&world, &[], "");
    let script = "tty; stty size; read line; echo \"got $line\"; stty size";
    let arguments = ["exec", "last", "--", "sh", "-c", script];
    let mut terminal = world.atoll(arguments).on_terminal(30, 90);
    terminal.expect("/dev/pts/");
    terminal.expect("30 90");
    terminal.resize(40, 100);
    // The size is passed on before the line is.
    std::thread::sleep(Duration::from_millis(100));
    terminal.line("this");
    terminal.expect("got this");
    terminal.expect("40 100");
    assert_eq!(terminal.wait().code(), 0);
    let mut shell = world
        .atoll(["shell", "last"])
        .env("SHELL", "/no/such/shell")
        .on_terminal(24, 80);
    shell.expect(if is_root() { "# " } else { "$ " });
    shell.line("echo in-$((40+2))-it; exit 5");
    shell.expect("in-42-it");
    assert_eq!(shell.wait().code(), 5);
    // What a program writes cannot reach the person's clipboard.
    let arguments = ["exec", "last", "--", "printf", "a\\033]52;c;AAAA\\007b"];
    let mut filtered = world.atoll(arguments).on_terminal(24, 80);
    filtered.expect("ab");
    let _ = filtered.wait();
    let _ = end(&world, running).success();
}

#[test]
fn exec_ends_when_its_caller_hangs_up() {
    let world = World::new("exec_ends_when_its_caller_hangs_up");
    let running = living(&world, &[], "");
    let caller = world
        .atoll(["exec", "last", "--", "sh", "-c", "echo on; sleep 1000"])
        .start();
    caller.until_stdout("on");
    kill(caller.pid(), Signal::KILL);
    let over = || {
        let out = exec(&world, "ps ax").out();
        (!out.contains("sleep 1000")).then_some(())
    };
    wait_until("the exec has ended", Duration::from_secs(20), over);
    // A signal to the caller is the program's.
    let script = "trap 'echo caught; exit 9' TERM; echo on; while :; do sleep 0.05; done";
    let caller = world
        .atoll(["exec", "last", "--", "sh", "-c", script])
        .start();
    caller.until_stdout("on");
    caller.signal(Signal::TERM);
    let outcome = caller.wait().expect_status(9);
    assert!(outcome.out().contains("caught"), "{outcome}");
    let _ = end(&world, running).success();
}

/// A program reaches neither the exec server, nor what waits to become an exec, nor other execs.
#[test]
fn exec_server_is_out_of_reach() {
    let world = World::new("exec_server_is_out_of_reach");
    let running = living(&world, &[], "");
    // Every process but its own: by signals, by their memory, descriptors and environment.
    let script = "for pid in $(ls /proc | grep '^[0-9]*$'); do \
         case $pid in 1|$$) continue;; esac; \
         grep -q \"PPid:.*$$\" /proc/$pid/status 2>&- && continue; \
         kill -9 $pid 2>&- && echo killed $pid; \
         cat /proc/$pid/environ >/dev/null 2>&- && echo read environ of $pid; \
         cat /proc/$pid/maps >/dev/null 2>&- && echo read maps of $pid; \
         readlink /proc/$pid/fd/0 2>&- && echo read fd of $pid; \
         (: > /proc/$pid/mem) 2>&- && echo opened mem of $pid; done; echo tried";
    let seen = exec(&world, script).success();
    assert_eq!(seen.out(), "tried\n", "{seen}");
    let _ = exec(&world, "true").success();
    let _ = end(&world, running).success();
}

/// One more program can be started where all processes are used up: to look, and to end it.
#[test]
fn exec_starts_amid_a_fork_bomb() {
    let world = World::new("exec_starts_amid_a_fork_bomb");
    let bomb = "(i=0; while [ $i -lt 400 ]; do sleep 1000 & i=$((i+1)); done) 2>/dev/null;";
    // A shell that cannot fork ends: this one waits without.
    let script = format!("mkfifo /tmp/wait; {bomb} echo up; read line </tmp/wait");
    let run = world.atoll(["run", "--keep", "--limit", "processes=64", "--", "sh", "-c"]);
    let running = run.arg(script).start();
    running.until_stdout("up");
    let seen = world.atoll(["exec", "last", "--", "echo", "there"]).run();
    assert_eq!(seen.success().out(), "there\n");
    let _ = world.atoll(["stop", "last"]).run().success();
    let _ = running.wait();
}

/// A program that makes the first process its tracer, and takes a signal, goes on.
#[test]
fn traced_by_first_process_goes_on() {
    let world = World::new("traced_by_first_process_goes_on");
    let script = "import ctypes, os, signal\n\
         libc = ctypes.CDLL(None)\n\
         print(libc.ptrace(0, 0, 0, 0), flush=True)\n\
         signal.signal(signal.SIGUSR1, lambda *_: print('caught', flush=True))\n\
         os.kill(os.getpid(), signal.SIGUSR1)\n\
         os.execvp('echo', ['echo', 'went on'])\n";
    let run = world.atoll(["run", "--discard", "--", "python3", "-c", script]);
    let seen = run.within(Duration::from_secs(30)).run().success();
    assert_eq!(seen.out(), "0\ncaught\nwent on\n", "{seen}");
}

#[test]
fn exec_server_end_leaves_the_run() {
    let world = World::new("exec_server_end_leaves_the_run");
    let running = living(&world, &[], "");
    let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let all = descendants_of(running.pid());
    let servers: Vec<u32> = all
        .iter()
        .map(|one| one.pid)
        .filter(|pid| name(*pid).trim() == "atoll-exec")
        .collect();
    assert!(!servers.is_empty(), "the exec server and what waits");
    servers.iter().for_each(|pid| kill(*pid, Signal::KILL));
    let refused = || {
        let seen = world.atoll(["exec", "last", "--", "true"]).run();
        (seen.code() != 0).then_some(seen)
    };
    let seen = wait_until(
        "no exec is started any more",
        Duration::from_secs(20),
        refused,
    );
    seen.is_clear_error(["exec server has ended"]);
    // The run itself goes on to its own end.
    assert!(!children_of(running.pid()).is_empty());
    let _ = world.atoll(["stop", "last"]).run().success();
    let _ = running.wait();
}

#[test]
fn exec_in_a_fence_is_held_like_its_run() {
    let world = World::new("exec_in_a_fence_is_held_like_its_run");
    if is_root() {
        // Root is fenced only where it may make no namespaces at all.
        return;
    }
    let script = "echo up; while [ ! -e done ]; do sleep 0.05; done";
    let run = world.atoll(["run", "--keep", "--", "sh", "-c", script]);
    let running = run.without_namespaces().start();
    running.until_stdout("up");
    let outside = world.top().join("outside");
    let script = format!(
        "echo in > made; cat made; echo x > {}; exit 4",
        outside.display()
    );
    let seen = exec(&world, &script).expect_status(4);
    assert_eq!(seen.out(), "in\n", "{seen}");
    assert!(!outside.exists());
    let mut terminal = world
        .atoll(["exec", "last", "--", "sh", "-c", "stty size"])
        .on_terminal(30, 90);
    terminal.expect("30 90");
    assert_eq!(terminal.wait().code(), 0);
    let _ = end(&world, running).success();
}

#[test]
fn exec_without_a_run_is_a_clear_error() {
    let world = World::new("exec_without_a_run_is_a_clear_error");
    let none = world.atoll(["exec", "last", "--", "true"]).run();
    none.is_clear_error(["no run goes on"]);
    let no_value = world
        .atoll(["exec", "last", "--env", "NAME", "--", "true"])
        .run();
    no_value.is_clear_error(["NAME", "--env NAME=VALUE"]);
    let no_terminal = world.atoll(["shell", "last"]).run();
    no_terminal.is_clear_error(["terminal"]);
    let _ = world
        .atoll(["run", "--discard", "--", "true"])
        .run()
        .success();
    let over = world.atoll(["exec", "last", "--", "true"]).run();
    over.is_clear_error(["no run goes on"]);
}

/// The changes of a running sandbox are of one moment: it stands still while they are read.
#[test]
fn diff_of_a_running_sandbox_is_of_one_moment() {
    let world = World::new("diff_of_a_running_sandbox_is_of_one_moment");
    // Two files are always written in the same order.
    let busy = "(i=0; while :; do i=$((i+1)); echo $i > one; echo $i > two; done) & ";
    let running = living(&world, &[], busy);
    let _ = exec(&world, "until test -s two; do sleep 0.01; done").success();
    for _ in 0..10 {
        let seen = world.atoll(["diff", "last"]).run().success().out();
        let number = |name: &str| -> i64 {
            // One that is being written is empty.
            let part = seen.split(&format!("+++ b/{name}")).nth(1).unwrap_or("");
            let line = part
                .lines()
                .find(|line| line.starts_with('+') && line.len() > 1);
            line.map_or(0, |line| line[1..].parse().unwrap())
        };
        let (one, two) = (number("one"), number("two"));
        assert!(
            one == two || one == two + 1 || one == 0 || two == 0,
            "{one} {two}: {seen}"
        );
    }
    // It goes on afterwards.
    let before = exec(&world, "cat one").success().out();
    let goes_on = || (exec(&world, "cat one").success().out() != before).then_some(());
    wait_until("it goes on", Duration::from_secs(20), goes_on);
    let _ = world.atoll(["stop", "last"]).run().success();
    let _ = running.wait();
}

/// Whoever starts a program by vfork(2), as shells do, cannot stop before that is executed.
#[test]
fn programs_that_are_just_being_started_stand_still() {
    let world = World::new("programs_that_are_just_being_started_stand_still");
    let spawn = "import os, threading
start = lambda: os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, 'fifo', os.O_RDONLY, 0)])
os.mkfifo('fifo')
open('begun', 'w').close()
one = threading.Thread(target=start)
one.start()
one.join()
start()
open('done', 'w').close()";
    world.write("spawn.py", spawn);
    let running = living(&world, &[], "python3 spawn.py & ");
    let _ = exec(
        &world,
        "until test -e begun; do sleep 0.01; done; echo x > seen",
    )
    .success();
    let seen = world.atoll(["diff", "last"]).run().success().out();
    assert!(seen.contains("+++ b/seen"), "{seen}");
    // They go on afterwards: each opens its end.
    // The run may end before the shell that saw the last of them.
    let _ = exec(&world, "until test -e done; do sleep 0.01 <>fifo; done");
    assert!(running.wait().success().err().contains("fifo"));
}

/// Any program that links the engine makes sandboxes, works in them and ends them.
#[test]
fn engine_library_makes_and_ends_sandboxes() {
    let world = World::new("engine_library_makes_and_ends_sandboxes");
    let program = std::env::var("ATOLL_BIN_SANDBOX").expect("the example is built");
    // Its state is where that of `atoll` would be.
    let script = format!("'{program}' '{}'", world.workspace().display());
    let seen = world.host_shell(&script).run().success();
    let expected = "Exited { status: 0 } first\nExited { status: 3 } one\n\
         Exited { status: 0 } from outside\nread one\nchanged given\nchanged made\n";
    assert_eq!(seen.out(), expected, "{seen}");
    assert!(!world.workspace().join("made").exists());
    let kinds: Vec<String> = events(&world)
        .iter()
        .map(|one| one["type"].as_str().unwrap().to_owned())
        .collect();
    let opened = kinds.iter().filter(|kind| *kind == "exec.opened").count();
    let closed = kinds.iter().filter(|kind| *kind == "exec.closed").count();
    assert_eq!((opened, closed), (3, 3), "{kinds:?}");
    assert_eq!(kinds.last().map(String::as_str), Some("run.closed"));
    let _ = world.atoll(["ledger", "verify"]).run().success();
}

/// A sandbox of a program's own reaches the host that it was made with, and no other.
#[test]
fn engine_library_gives_a_sandbox_its_network() {
    let world = World::new("engine_library_gives_a_sandbox_its_network");
    if !is_possible(&world, &[]) {
        return;
    }
    let program = std::env::var("ATOLL_BIN_SANDBOX").expect("the example is built");
    let program = world.as_the_user("sandbox-as-the-user", Path::new(&program));
    let run = on_internet(&world, "\"$SANDBOX\" \"$@\"").env("SANDBOX", program);
    let urls = ["http://example.com/free", "http://other.example/other"];
    let run = run
        .arg("sh")
        .arg(world.workspace())
        .arg("example.com")
        .args(urls);
    let seen = Seen::of(&world, run.run());
    let outcome = &seen.outcome;
    assert!(outcome.out().contains("read one"), "{outcome}");
    assert!(seen.first.contains("GET /free"), "{} {outcome}", seen.first);
    assert!(!seen.first.contains("/other"), "{} {outcome}", seen.first);
    assert!(
        !seen.asked.iter().any(|name| name.contains("other")),
        "{outcome}"
    );
    let events = events(&world);
    let recorded = |kind, host| {
        let of = |one: &serde_json::Value| one["type"] == kind && one["body"]["host"] == host;
        events.iter().any(of)
    };
    assert!(recorded("flow.opened", "example.com"), "{events:?}");
    assert!(recorded("flow.refused", "other.example"), "{events:?}");
    let _ = world.atoll(["ledger", "verify"]).run().success();
}
