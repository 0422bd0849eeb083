//! Sessions: logs of a task that outlive its runs, its processes, and its records.

use std::fs;
use std::time::Duration;

use e2e::{Running, World, descendants_of, fine, kill, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const BOUND: Duration = Duration::from_secs(60);

fn sessions(world: &World) -> Vec<Value> {
    let all = fine(world, &["sessions", "--json"]).json();
    all.as_array().unwrap().clone()
}

fn states(session: &Value) -> Vec<&str> {
    let runs = session["runs"].as_array().unwrap().iter();
    runs.map(|run| run["state"].as_str().unwrap()).collect()
}

/// Starts a run of a session that goes on until somebody ends it.
fn going_on(world: &World, name: &str) -> Running {
    let options = ["--session", name, "--no-tty", "--keep"];
    let run = world.run(options, "echo begun; sleep 600").start();
    let _ = run.until_stdout("begun");
    run
}

#[test]
fn a_session_goes_on_after_everything_was_killed() {
    let world = World::new("a_session_goes_on_after_everything_was_killed");
    assert!(sessions(&world).is_empty());
    let _ = fine(&world, &["sessions"]).says(["No sessions yet"]);
    let _ = world.run(["--session", "fix"], "true").run().success();
    let _ = world.run(["--discard"], "true").run().success();
    let mut run = going_on(&world, "fix");
    let listed = sessions(&world);
    assert_eq!(states(&listed[0]), ["ended", "running"], "{listed:?}");
    // All that carries it: the command line, the launcher, what is inside, what connects.
    let all: Vec<u32> = descendants_of(run.pid())
        .iter()
        .map(|one| one.pid)
        .collect();
    assert!(!all.is_empty());
    kill(run.pid(), Signal::KILL);
    for pid in all {
        kill(pid, Signal::KILL);
    }
    wait_until("its end", BOUND, || run.status());
    let listed = sessions(&world);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(states(&listed[0]), ["ended", "interrupted"], "{listed:?}");
    // Nor does it need what is kept of runs, or the file that tells where it began.
    fs::remove_dir_all(world.state().join("atoll/sessions")).unwrap();
    let runs: Vec<&str> = listed[0]["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["run"].as_str().unwrap())
        .collect();
    let _ = fine(&world, &["discard", runs[0]]);
    let again = world.run(["--session", "fix"], "exit 3").run();
    assert_eq!(again.code(), 3, "{again}");
    let after = sessions(&world);
    assert_eq!(after[0]["session"], listed[0]["session"]);
    assert_eq!(
        states(&after[0]),
        ["ended", "interrupted", "ended"],
        "{after:?}"
    );
    let _ = fine(&world, &["ledger", "verify"]);

    // A line each, with an end of its own.
    let _ = world.run(["--session", "other"], "true").run().success();
    let told = fine(&world, &["sessions"]).out();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(
        lines[0].starts_with("other ") && lines[1].starts_with("fix "),
        "{told}"
    );
    assert!(!told.contains("\\n"), "{told}");

    let query = ["ledger", "query", "--session", "fix", "--json"];
    let found = fine(&world, &query).out();
    let found: Vec<Value> = found
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds = |run: &str| {
        let of_run = found.iter().filter(|event| event["run"] == run);
        of_run
            .map(|event| event["type"].as_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(found[0]["type"], "session.opened");
    assert_eq!(found[0]["body"]["name"], "fix");
    assert_eq!(kinds(runs[1]), ["run.opened", "run.interrupted"]);
    let named = |event: &Value| event["run"].as_str().map(str::to_owned);
    let of: std::collections::BTreeSet<String> = found.iter().filter_map(named).collect();
    assert_eq!(of.len(), 3, "the run that is of none is not there: {of:?}");
    let id = after[0]["session"].as_str().unwrap();
    let by_id = fine(&world, &["ledger", "query", "--session", id, "--json"]).out();
    assert_eq!(by_id.lines().count(), found.len());

    let told = fine(&world, &["why", "--session", "fix"]).out();
    for run in &runs {
        assert!(told.contains(run), "{told}");
    }
    for line in [
        "succeeded: sh -c",
        "interrupted: sh -c",
        "failed with status 3: sh -c",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert!(told.contains(" UTC"), "{told}");
    let newest = after[0]["runs"][2]["run"].as_str().unwrap();
    let told = fine(&world, &["why", newest]).out();
    assert!(
        told.contains("session   fix (atoll why --session fix)"),
        "{told}"
    );
    let json = fine(&world, &["why", "--session", id, "--json"]).json();
    assert_eq!(json["name"], "fix");
    let listed = fine(&world, &["sessions"]).out();
    assert!(
        listed.contains("fix") && listed.contains("3 runs"),
        "{listed}"
    );
}

#[test]
fn a_session_is_stopped_as_a_whole() {
    let world = World::new("a_session_is_stopped_as_a_whole");
    let first = going_on(&world, "one");
    let second = going_on(&world, "one");
    let mut other = going_on(&world, "two");
    let stopped = fine(&world, &["stop", "--session", "one"]);
    assert_eq!(
        format!("{stopped}").matches("Stopped ").count(),
        2,
        "{stopped}"
    );
    assert_ne!(first.wait().code(), 0);
    assert_ne!(second.wait().code(), 0);
    assert!(other.status().is_none(), "another session goes on");
    let none = fine(&world, &["stop", "--session", "one"]);
    let _ = none.says(["No run of session one goes on"]);
    let _ = fine(&world, &["stop", "--session", "two"]);
    assert_ne!(other.wait().code(), 0);
}

#[test]
fn a_session_that_is_none_is_told() {
    let world = World::new("a_session_that_is_none_is_told");
    for name in ["", "../x", "a b", ".x", "s-261121-093012-k7qd"] {
        let refused = world.run(["--session", name], "true").run();
        let refused = refused.expect_status(125);
        assert!(refused.err().contains("session"), "{refused}");
    }
    assert!(world.runs().is_empty(), "nothing was started");
    let _ = world.run(["--session", "real"], "true").run().success();
    for command in [
        ["ledger", "query", "--session", "unreal"].as_slice(),
        &["why", "--session", "unreal"],
        &["stop", "--session", "unreal"],
    ] {
        let refused = world.atoll(command).run();
        let _ = refused.is_clear_error(["there is no session unreal", "there is only real"]);
    }
}
