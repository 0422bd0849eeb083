//! Policies that are reloaded while a run goes on.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use e2e::internet::{Seen, events, is_possible, on_internet, without_namespaces};
use e2e::{Avoidable, World, cache, is_root};
use serde_json::Value;

const OUTSIDE: &str = include_str!("reload/outside.py");
/// Prints the status of a request.
const CURL: &str = "curl -s -m 20 --noproxy '*' -o answer -w '%{http_code}\\n'";
const TUNNEL: &str = "import socket\n\
    one = socket.create_connection((\"example.com\", 7))\n\
    one.sendall(b\"x\"); assert one.recv(1) == b\"x\"\n\
    open(\"open\", \"w\").close()\n\
    try: print(\"tunnel ended\", one.recv(1) == b\"\")\n\
    except OSError: print(\"tunnel ended\", True)\n";

/// Has a person act out a scene with a run of this script.
fn scene(world: &World, scene: &str, options: &str, script: &str, atoll: Option<&str>) -> Seen {
    scene_with(world, scene, options, script, atoll, "")
}

fn scene_with(
    world: &World,
    scene: &str,
    options: &str,
    script: &str,
    atoll: Option<&str>,
    forbidden: &str,
) -> Seen {
    let outside = world.top().join("outside.py");
    fs::write(&outside, OUTSIDE).unwrap();
    let command = format!("python3 '{}' \"$@\"", outside.display());
    let mut run = on_internet(world, &command);
    run = run.env("ATOLL_BIN", std::env::var("ATOLL_BIN").unwrap());
    run = run.env("FORBIDDEN", forbidden);
    if let Some(solver) = solver() {
        run = run.env("CVC5", solver);
    }
    if let Some(atoll) = atoll {
        run = run.env("ATOLL", atoll);
    }
    let run = run.args(["sh", options, script, scene]);
    Seen::of(world, run.within(Duration::from_secs(400)).run())
}

/// Returns the solver, where it and the prover are installed.
fn solver() -> Option<PathBuf> {
    let program = PathBuf::from(std::env::var_os("ATOLL_BIN").unwrap());
    let solver = cache()?.join("solver/cvc5");
    (program.with_file_name("atoll-prove").is_file() && solver.is_file()).then_some(solver)
}

fn has(seen: &Seen, lines: &[&str]) {
    let out = seen.output();
    for line in lines {
        let is_there = out.lines().any(|one| one == *line);
        assert!(is_there, "{line}: {}", seen.outcome);
    }
}

fn text<'a>(event: &'a Value, member: &str) -> &'a str {
    event[member].as_str().unwrap_or_default()
}

/// Returns the policies that decided on a path, event by event.
fn decided_by(world: &World, kind: &str, path: &str) -> Vec<Option<String>> {
    let told = events(world, kind);
    let its = told.iter().filter(|one| text(one, "path") == path);
    its.map(|one| one["policy"].as_str().map(str::to_owned))
        .collect()
}

fn changed(world: &World, atoll: Option<&str>) {
    world.write("tunnel.py", TUNNEL);
    let script = format!(
        "echo before $({CURL} http://example.com/after); \
         python3 tunnel.py & while [ ! -e kept ]; do sleep 0.05; done; \
         echo kept $({CURL} http://example.com/after); touch 'kept too'; \
         while [ ! -e reloaded ]; do sleep 0.05; done; wait; \
         echo after $({CURL} http://example.com/after); \
         echo other $({CURL} http://example.com/other); touch second; \
         while [ ! -e third ]; do sleep 0.05; done; \
         echo again $({CURL} http://example.com/after)"
    );
    let options = "--live --allow example.com --tunnel example.com:7";
    let seen = scene(world, "changed", options, &script, atoll);
    has(
        &seen,
        &[
            "before 200",
            "same 0 True",
            "broken 125 True True",
            "where True",
            "long 125 True True",
            "half 125 True True",
            "labels 125 True",
            "kept 200",
            "changed 0 True",
            "tunnel ended True",
            "after 403",
            "other 200",
            "back 0",
            "again 200",
            "ended 0",
        ],
    );
    if is_root() {
        has(&seen, &["other user True"]);
    }
    let opened = events(world, "run.opened");
    let begun = opened[0]["decision"]["policy"].as_str().unwrap();
    let reloaded = events(world, "policy.reloaded");
    assert_eq!(reloaded.len(), 2, "{reloaded:?}");
    assert_eq!(text(&reloaded[0], "from"), begun);
    let between = text(&reloaded[0], "to").to_owned();
    assert!(
        between.starts_with("sha256:") && between != begun,
        "{between}"
    );
    assert_eq!(text(&reloaded[1], "from"), between);
    // By what is in them: the same files are the same version.
    assert_eq!(text(&reloaded[1], "to"), begun);
    let refused = events(world, "policy.reload-refused");
    assert_eq!(refused.len(), 4, "{refused:?}");
    assert!(refused.iter().all(|one| text(one, "policy") == begun));
    assert!(
        text(&refused[0], "why").contains("own.cedar:2:"),
        "{refused:?}"
    );
    // Those of the beginning are named as well, before and after.
    assert_eq!(
        decided_by(world, "flow.opened", "/after"),
        [begun, begun, begun].map(|one| Some(one.to_owned()))
    );
    let of_between = [Some(between)];
    assert_eq!(decided_by(world, "flow.refused", "/after"), of_between);
    assert_eq!(decided_by(world, "flow.opened", "/other"), of_between);
    let closed = events(world, "flow.closed");
    let is_ended = |one: &&Value| text(one, "failure").contains("policy echo");
    assert_eq!(closed.iter().filter(is_ended).count(), 1, "{closed:?}");
    let why = world.atoll(["why", "last"]).run().success();
    assert!(why.out().contains("reloaded"), "{why}");
}

#[test]
fn what_begins_after_a_reload_is_decided_by_the_new_policies_and_says_so() {
    let world = World::new("what_begins_after_a_reload_is_decided_by_the_new_policies_and_says_so");
    if is_possible(&world, &[]) {
        changed(&world, None);
    }
}

#[test]
fn policies_are_reloaded_in_a_fence_too() {
    let world = World::new("policies_are_reloaded_in_a_fence_too");
    if is_root() {
        return world.skip("root has namespaces", Avoidable::No);
    }
    if is_possible(&world, &[]) {
        let atoll = without_namespaces(&world);
        changed(&world, Some(atoll.to_str().unwrap()));
    }
}

#[test]
fn a_run_without_policies_gets_its_first_and_loses_its_last() {
    let world = World::new("a_run_without_policies_gets_its_first_and_loses_its_last");
    if !is_possible(&world, &[]) {
        return;
    }
    // Where something was carried before, and where nothing was.
    for (before, count) in [("", 0), ("http://example.com/before", 1)] {
        let script = format!(
            "for one in {before}; do echo before $({CURL} $one); done; touch open; \
             while [ ! -e reloaded ]; do sleep 0.05; done; \
             echo after $({CURL} http://example.com/after); touch second; \
             while [ ! -e third ]; do sleep 0.05; done; \
             echo again $({CURL} http://example.com/after); rm open reloaded second third"
        );
        let seen = scene(&world, "first", "--live --allow example.com", &script, None);
        has(
            &seen,
            &["first 0", "after 403", "none 0", "again 200", "ended 0"],
        );
        let before = seen.output().matches("before 200").count();
        assert_eq!(before, count, "{}", seen.outcome);
    }
}

/// Each request is decided by one of two versions, and by the one that its record names.
#[test]
fn requests_during_many_reloads_are_each_decided_by_one_version() {
    let world = World::new("requests_during_many_reloads_are_each_decided_by_one_version");
    if !is_possible(&world, &[]) {
        return;
    }
    let asking = "for path in a b; do (while [ ! -e calm ]; do \
                  echo $path $(curl -s -m 20 --noproxy '*' -o /dev/null -w '%{http_code}' \
                  http://example.com/$path); done) & done; touch open; wait";
    let seen = scene(&world, "storm", "--live --allow example.com", asking, None);
    has(&seen, &["ended 0"]);
    let out = seen.output();
    assert!(!out.contains("not reloaded"), "{}", seen.outcome);
    let opened = events(&world, "run.opened");
    let begun = text(&opened[0]["decision"], "policy").to_owned();
    let reloaded = events(&world, "policy.reloaded");
    assert!(reloaded.len() >= 50, "{}", reloaded.len());
    let mut versions: Vec<&str> = reloaded.iter().map(|one| text(one, "to")).collect();
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), 2, "{versions:?}");
    let mut counts = BTreeMap::new();
    for kind in ["flow.opened", "flow.refused"] {
        for (path, denies_at_first) in [("/a", true), ("/b", false)] {
            for by in decided_by(&world, kind, path) {
                let is_first = by.is_none_or(|by| by == begun);
                let is_denied = kind == "flow.refused";
                assert_eq!(is_first == denies_at_first, is_denied, "{kind} {path}");
                *counts.entry((kind, path)).or_insert(0) += 1;
            }
        }
    }
    assert_eq!(counts.len(), 4, "{counts:?}");
    assert!(counts.values().sum::<u32>() > 20, "{counts:?}");
}

#[test]
fn a_yes_to_what_was_forbidden_meanwhile_is_none() {
    let world = World::new("a_yes_to_what_was_forbidden_meanwhile_is_none");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!("{CURL} http://example.com/later");
    let options = "--discard --ask example.com";
    // The control: policies that forbid something else.
    for (forbidden, is_sent) in [("/later", false), ("/else", true)] {
        let _ = fs::remove_file(world.config().join("atoll/own.cedar"));
        let seen = scene_with(&world, "question", options, &script, None, forbidden);
        has(&seen, &["reloaded 0", "granted 0", "ended 0"]);
        let came = seen.first.contains("GET /later");
        assert_eq!(came, is_sent, "{}", seen.outcome);
        assert_eq!(seen.output().contains("403"), !is_sent, "{}", seen.outcome);
    }
}

#[test]
fn a_project_loses_no_policy_that_held_a_run() {
    let world = World::new("a_project_loses_no_policy_that_held_a_run");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = format!(
        "echo before $({CURL} http://example.com/after); touch open; \
         while [ ! -e reloaded ]; do sleep 0.05; done; \
         echo still $({CURL} http://example.com/after); touch second; \
         while [ ! -e third ]; do sleep 0.05; done; \
         echo again $({CURL} http://example.com/after); \
         echo other $({CURL} http://example.com/other)"
    );
    let options = "--live --session fix-login --allow example.com";
    let seen = scene(&world, "project", options, &script, None);
    has(
        &seen,
        &[
            "before 403",
            "untrusted 125 True",
            "still 403",
            "project 0",
            "again 200",
            "other 403",
            "ended 0",
        ],
    );
    assert_eq!(seen.output().matches("untrusted 125 True").count(), 2);
}

#[test]
fn a_program_inside_reloads_nothing() {
    let world = World::new("a_program_inside_reloads_nothing");
    if !is_possible(&world, &[]) {
        return;
    }
    let script = "for what in last --all \"$ATOLL_RUN\"; do \
         if ./atoll-inside policy reload $what 2> told && ! grep -q 'No run' told; \
         then echo taken; else echo declined; fi; done; \
         touch tried; while [ ! -e done ]; do sleep 0.05; done";
    let seen = scene(&world, "inside", "--live --allow example.com", script, None);
    has(&seen, &["outside 0", "ended 0"]);
    let out = seen.output();
    assert_eq!(out.matches("declined").count(), 3, "{}", seen.outcome);
    assert!(!out.contains("taken"), "{}", seen.outcome);
    // The one from outside alone.
    assert_eq!(events(&world, "policy.reloaded").len(), 1);
    assert_eq!(events(&world, "policy.reload-refused").len(), 0);
}

#[test]
fn whether_more_is_allowed_is_proven_at_a_reload_nightly() {
    let world = World::new("whether_more_is_allowed_is_proven_at_a_reload_nightly");
    if !is_possible(&world, &[]) {
        return;
    }
    if !is_root() {
        // An ordinary user's network here is in a namespace in which nobody is root, and no
        // program is believed that might be somebody else's.
        return world.skip(
            "only root has a network here without another namespace of users",
            Avoidable::No,
        );
    }
    if solver().is_none() {
        let why = "the prover is not beside atoll, or the solver cvc5 not installed";
        return world.skip(why, Avoidable::Yes);
    }
    let script = "touch open; while [ ! -e done ]; do sleep 0.05; done";
    let seen = scene(&world, "proof", "--live --allow example.com", script, None);
    has(
        &seen,
        &[
            "tighter 0",
            "proven 0 True",
            "wider 125 True True",
            "unknown 125 True True",
            "compared True True",
            "further True",
            "another from True",
            "another to True",
            "told 0 True",
            "redacted 0",
            "again 0",
            "seen 125 True True",
            "denied 0",
            "sent 125 True True",
            "in parts 125 True",
            "checked 0",
            "not so 1 0",
            "ended 0",
        ],
    );
    // What was not proven was not even asked for, but for two versions that nobody has read.
    assert_eq!(events(&world, "policy.reloaded").len(), 6);
    assert_eq!(events(&world, "policy.reload-refused").len(), 2);
}
