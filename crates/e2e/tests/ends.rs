//! The ends of runs and execs: each has one, whatever becomes of the processes that start, watch and
//! report them.

use std::time::Duration;

use e2e::{World, descendants_of, kill, status_field, wait_until};
use rustix::process::Signal;
use serde_json::json;

use crate::execs::{exec, living};

/// Stopped by itself, it could otherwise be ended by SIGKILL to this side alone.
#[test]
fn stopped_program_is_ended_by_a_signal() {
    let world = World::new("stopped_program_is_ended_by_a_signal");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let script = "echo up; kill -STOP $$; echo goes on; sleep 1000";
        let running = world.atoll(["run", "--discard", "--", "sh", "-c", script]);
        let running = running.start();
        running.until_stdout("up");
        wait_until("it has stopped", Duration::from_secs(20), || {
            let all = descendants_of(running.pid());
            let mut states = all.iter().map(|one| status_field(one.pid, "State"));
            states
                .any(|state| state.is_some_and(|state| state.starts_with('T')))
                .then_some(())
        });
        running.signal(signal);
        let ended = running.wait();
        assert_eq!(ended.code(), 128 + signal.as_raw(), "{ended}");
        assert!(!ended.out().contains("goes on"), "{ended}");
    }
}

/// The launcher and the first process, stopped by somebody outside: a signal reaches the program, a
/// limit ends it, and the end of the program is the end of the run.
#[test]
fn run_with_stopped_helpers_ends() {
    let world = World::new("run_with_stopped_helpers_ends");
    for (stopped, options, asked, status) in [
        (&["atoll-jail"][..], &[][..], "signal", 143),
        (&["atoll-init"], &[], "signal", 143),
        (&["atoll-jail", "atoll-init"], &[], "signal", 143),
        (&["atoll-jail", "atoll-init"], &["--timeout", "1s"], "", 124),
        (&["atoll-jail"], &[], "end", 3),
    ] {
        let what = format!("{stopped:?} {asked}");
        let script = ["sh", "-c", "echo up; read x; exit 3"];
        let run = ["run", "--discard"].iter().chain(options).chain(&["--"]);
        let run = world
            .atoll(run.chain(&script))
            .within(Duration::from_secs(60));
        let mut running = run.start();
        running.until_stdout("up");
        for one in descendants_of(running.pid()) {
            let name = status_field(one.pid, "Name").unwrap_or_default();
            if stopped.contains(&name.as_str()) {
                kill(one.pid, Signal::STOP);
            }
        }
        match asked {
            "signal" => running.signal(Signal::TERM),
            "end" => running.send("go\n"),
            _ => {}
        }
        let ended = running.wait();
        assert_eq!(ended.code(), status, "{what}: {ended}");
    }
}

/// Each helper, at any moment.
#[test]
fn run_whose_helpers_are_killed_at_once_ends() {
    let world = World::new("run_whose_helpers_are_killed_at_once_ends");
    for round in 0..12 {
        let run = world.atoll(["run", "--discard", "--", "sleep", "0.1"]);
        let mut running = run.within(Duration::from_secs(60)).start();
        let helper = wait_until("a helper is there", Duration::from_secs(20), || {
            let all = descendants_of(running.pid());
            let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
            let is_helper = |pid: u32| name(pid).is_ok_and(|name| name.trim() == "atoll-exec");
            let mut helpers = all.iter().map(|one| one.pid).filter(|pid| is_helper(*pid));
            let has_ended = running.status().is_some();
            helpers.nth(round % 2).or(has_ended.then_some(0))
        });
        if helper > 0 {
            kill(helper, Signal::KILL);
        }
        // With whatever status: it ends.
        let ended = running.wait();
        assert!([0, 125, 137].contains(&ended.code()), "{ended}");
    }
}

#[test]
fn run_without_its_exec_server_is_applied() {
    let world = World::new("run_without_its_exec_server_is_applied");
    let script = "echo up; read x; echo done > made";
    let run = world.atoll(["run", "--apply", "--", "sh", "-c", script]);
    let mut running = run.start();
    running.until_stdout("up");
    for one in descendants_of(running.pid()) {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", one.pid));
        if name.is_ok_and(|name| name.trim() == "atoll-exec") {
            kill(one.pid, Signal::KILL);
        }
    }
    running.send("go\n");
    let ended = running.wait().success();
    assert!(ended.err().contains("applied"), "{ended}");
    assert!(world.workspace().join("made").exists());
}

/// A program left in the background can write for ever.
#[test]
fn exec_ends_though_its_background_writes_on() {
    let world = World::new("exec_ends_though_its_background_writes_on");
    let running = living(&world, &[], "");
    let seen = exec(&world, "yes & exit 3");
    assert_eq!(seen.code(), 3);
    let _ = world.atoll(["stop", "last"]).run().success();
    let _ = running.wait();
}

#[test]
fn socket_of_a_killed_run_is_swept() {
    let world = World::new("socket_of_a_killed_run_is_swept");
    let running = living(&world, &[], "");
    let sockets = || -> Vec<_> {
        let entries = std::fs::read_dir(world.state().join("atoll/control"));
        entries
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name())
            .collect()
    };
    wait_until("it listens", Duration::from_secs(20), || {
        (sockets().len() == 1).then_some(())
    });
    running.signal(Signal::KILL);
    let _ = running.wait();
    let _ = world.atoll(["run", "--discard", "true"]).run().success();
    assert_eq!(sockets(), Vec::<std::ffi::OsString>::new());
}

/// Starts a program that only ends so often in one sandbox, and expects each end.
fn many_execs(world: &World, number: u64, loops: &[u32]) {
    world.write("program.c", "int main(void) { return 0; }\n");
    let compiler = ["-O2", "-static", "-o", "program", "program.c"];
    let _ = world.host("cc").args(compiler).run().success();
    let program = std::env::var_os("ATOLL_BIN_SPAWNER").unwrap();
    let each = number / loops.len() as u64;
    for loops in loops {
        let ended = world
            .host(&program)
            .arg(world.path("many"))
            .arg(world.workspace().join("program"))
            .args(["execs", &each.to_string(), &loops.to_string()])
            .within(Duration::from_secs(3_000))
            .run()
            .success();
        assert_eq!(
            ended.json(),
            json!({ "done": each, "lost": [] }),
            "{loops} loops: {ended}"
        );
    }
}

#[test]
fn ten_thousand_execs_each_have_an_end() {
    let world = World::new("ten_thousand_execs_each_have_an_end");
    many_execs(&world, 10_000, &[4, 64]);
}

#[test]
fn a_million_execs_each_have_an_end_nightly() {
    let world = World::new("a_million_execs_each_have_an_end_nightly");
    many_execs(&world, 1_000_000, &[4, 8, 16, 32, 64]);
}
