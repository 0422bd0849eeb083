//! Retention: what is kept, what goes by the rules, what holds keep, and what is shredded for good.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use e2e::traces::verify_ledger;
use e2e::{Outcome, World, fine};
use rustix::process::Signal;
use serde_json::Value;

/// Rules by which everything goes at once.
const NOTHING_STAYS: &str = r#"
artifact.age = "1ms"
layer.age = "1ms"
log.age = "1ms"
evidence.age = "1ms"
event.age = "1ms"
"#;

const TOOLS: &str = r#"
[tool.open]
description = "Opens a ticket."
kind = "command"
command = ["echo", "17"]
effect = "send"
inverse = { tool = "close", arguments = { who = "{arguments.who}" } }
arguments = { properties = { who = { type = "string" } }, required = ["who"] }

[tool.close]
description = "Closes it."
kind = "command"
command = ["true"]
effect = "write"
idempotent = true
arguments = { properties = { who = { type = "string" } } }
"#;

fn rules(world: &World, text: &str) {
    world.write(world.config().join("atoll/retention.toml"), text);
}

/// Makes a run of a session, of which changes, artifacts and a checkpoint are kept; returns it.
fn made(world: &World, session: &str) -> String {
    let options = ["run", "--keep", "--outputs", "--session", session, "--"];
    let script = "echo change > change; echo result > /outputs/result";
    let run = world.atoll(options).args(["sh", "-c", script]).run();
    let _ = run.success();
    world.last_run()
}

/// Calls a tool whose inverse has an argument of the call's; returns its session.
fn called(world: &World, who: &str) -> String {
    world.write(world.config().join("atoll/tools.toml"), TOOLS);
    let who = format!("who={who}");
    let called = fine(world, &["tools", "call", "open", &who, "--json"]).json();
    let call = called["call"].as_str().unwrap();
    call.split('/').next().unwrap().to_owned()
}

/// The kinds of what is kept of such a session, with the sandbox of its call.
const OF_SESSION: [&str; 3] = ["undo notes", "sealed content", "sealed content"];

/// Has the files of a hook about an agent's session, whose sandbox was this run.
fn hook(world: &World, name: &str, run: &str) {
    let place = world.state().join("atoll/hooks").join(name);
    for (file, text) in [("lock", ""), ("said", "words"), ("run", run)] {
        world.write(place.join(file), text);
    }
}

fn about(world: &World, what: &str) -> Value {
    fine(world, &["data", "about", what, "--json"]).json()
}

/// Returns the kinds of what is kept about something.
fn kinds(world: &World, what: &str) -> Vec<String> {
    let told = about(world, what);
    let kinds = told["items"].as_array().unwrap().iter();
    kinds
        .map(|one| one["kind"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns them without sealed content: a run's name has whole seconds, and its key may be too young.
fn things(world: &World, what: &str) -> Vec<String> {
    let mut kinds = kinds(world, what);
    kinds.retain(|one| one != "sealed content");
    kinds
}

fn events(world: &World, kind: &str) -> Vec<Value> {
    let found = fine(world, &["ledger", "query", "--type", kind, "--json"]).out();
    let lines = found.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn all_that_is_kept_is_listed_and_goes_by_its_class() {
    let world = World::new("all_that_is_kept_is_listed_and_goes_by_its_class");
    let run = made(&world, "audit");
    hook(&world, "claude-one", &run);
    let of_run = ["artifacts", "sealed content", "hook", "changes"];
    let mut listed = kinds(&world, &run);
    listed.sort_unstable();
    let mut expected = of_run.map(str::to_owned);
    expected.sort_unstable();
    assert_eq!(listed, expected);
    assert_eq!(kinds(&world, "audit").len(), of_run.len());
    let session = called(&world, "ann");
    assert_eq!(kinds(&world, &session), OF_SESSION);
    let unknown = world.atoll(["data", "about", "nobody"]).run();
    unknown.is_clear_error(["no session and no run nobody", "atoll runs"]);
    for wrong in ["evidence.size = \"1GiB\"", "layers.age = \"1d\""] {
        rules(&world, wrong);
        let refused = world.atoll(["gc"]).run();
        refused.is_clear_error(["retention.toml is invalid", "atoll help retention"]);
    }
    // By its rule a class goes, and no other.
    rules(&world, "artifact.age = \"1ms\"\nlog.age = \"1ms\"\n");
    let dry = fine(&world, &["gc", "--dry-run", "--json"]).json();
    assert_eq!(dry["classes"]["artifact"]["count"], 1, "{dry}");
    assert_eq!(dry["classes"]["log"]["count"], 1, "{dry}");
    assert_eq!(dry["classes"]["layer"]["count"], 0, "{dry}");
    assert_eq!(kinds(&world, &run).len(), of_run.len());
    fine(&world, &["gc"]).says(["1 run's artifacts destroyed", "1 hook's directory removed"]);
    assert_eq!(kinds(&world, &run), ["changes", "sealed content"]);
    let removed = events(&world, "data.removed");
    let classes: Vec<&str> = removed
        .iter()
        .map(|one| one["body"]["class"].as_str().unwrap())
        .collect();
    assert_eq!(classes, ["artifact", "log"]);
    let listed = fine(&world, &["artifacts", "list", "--json"]).json();
    assert_eq!(listed[0]["destroyed"], true, "{listed}");
    fine(&world, &["gc"]).says(["0 runs removed"]);
    // A class that takes too much loses its oldest, and nothing that nobody has decided about.
    let newer = made(&world, "other");
    let notes = world.state().join(format!("atoll/undo/{session}.jsonl"));
    assert!(notes.exists());
    rules(&world, "layer.size = \"1\"");
    let _ = fine(&world, &["gc"]);
    assert!(!notes.exists());
    assert_eq!(world.runs().len(), 2, "{newer}");
    verify_ledger(&world);
}

#[test]
fn a_hold_keeps_everything_until_it_is_released() {
    let world = World::new("a_hold_keeps_everything_until_it_is_released");
    let (held, other) = (made(&world, "held"), made(&world, "other"));
    let tools = called(&world, "ann");
    hook(&world, "claude-held", &held);
    let before = kinds(&world, "held");
    for what in ["held", tools.as_str()] {
        fine(&world, &["ledger", "hold", what]).says(["Nothing of it is removed"]);
    }
    rules(&world, NOTHING_STAYS);
    fine(&world, &["gc"]).says(["under a hold", "1 run removed"]);
    assert_eq!(kinds(&world, "held"), before);
    assert_eq!(kinds(&world, &tools), OF_SESSION);
    assert_eq!(about(&world, "held")["held"], true);
    // The control.
    assert_eq!(things(&world, &other), [""; 0]);
    // Nor does anybody remove it by hand; a run to come is held too.
    let later = made(&world, "held");
    let denied = world.atoll(["discard", &later]).run().expect_status(126);
    denied.says(["is held", "atoll ledger release"]);
    let refused = world.atoll(["ledger", "shred", &later]).run();
    refused.is_clear_error(["is held"]);
    let _ = fine(&world, &["gc", "--older-than", "1ms"]);
    assert_eq!(world.runs().len(), 2);
    let _ = fine(&world, &["ledger", "release", "held"]);
    let _ = fine(&world, &["gc"]);
    assert_eq!(things(&world, "held"), [""; 0]);
    // The keys that were too young for the sweep.
    let _ = world.atoll(["ledger", "shred", "held"]).run();
    assert_eq!(kinds(&world, "held"), [""; 0]);
    assert_eq!(kinds(&world, &tools), OF_SESSION);
    verify_ledger(&world);
}

/// The key, the artifacts' content and the arguments of inverses are gone; digests are there.
#[test]
fn what_is_shredded_is_proven_to_be() {
    let world = World::new("what_is_shredded_is_proven_to_be");
    let (run, tools) = (made(&world, "audit"), called(&world, "unheard-of"));
    let notes = world.state().join(format!("atoll/undo/{tools}.jsonl"));
    assert!(fs::read_to_string(&notes).unwrap().contains("unheard-of"));
    let keys = world.state().join("atoll/seals/keys");
    let backup = fs::read(&keys).unwrap();
    for what in ["audit", tools.as_str()] {
        let _ = fine(&world, &["ledger", "shred", what]);
    }
    assert!(!notes.exists());
    let slots = fs::read_to_string(&keys).unwrap();
    for id in [&run, &tools] {
        let slot = slots.lines().find(|line| line.contains(id.as_str()));
        assert!(slot.unwrap().ends_with(&"0".repeat(64)), "{id}");
    }
    let listed = fine(&world, &["artifacts", "list", "--json"]).json();
    assert_eq!(listed[0]["destroyed"], true, "{listed}");
    assert_eq!(listed[0]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(kinds(&world, &run), ["changes"]);
    assert_eq!(about(&world, &run)["shredded"][0], run.as_str());
    let opened = events(&world, "tool.opened");
    assert_eq!(opened[0]["body"]["arguments"], "(shredded)");
    assert!(opened[0]["body"]["digest"].is_string());
    let whole = fine(&world, &["ledger", "verify"]);
    // The run, the session, and the sandbox of its call.
    assert!(whole.out().contains("of 3 runs"), "{whole}");
    let gone = world.atoll(["ledger", "hold", &run]).run();
    gone.is_clear_error([
        "the hold is not set",
        "shredded already",
        "atoll data about",
    ]);
    // Keys from a backup are no proof, and do not stay unseen.
    fs::write(&keys, backup).unwrap();
    let back = world.atoll(["ledger", "verify"]).run().expect_status(1);
    back.says(["keys of 3 runs are there again"]);
}

/// Either the hold is refused, since the content is gone, or all of it is kept.
#[test]
fn a_hold_raced_by_shredding_keeps_all_or_is_refused() {
    let world = World::new("a_hold_raced_by_shredding_keeps_all_or_is_refused");
    let mut outcomes = [0, 0];
    for round in 0..8 {
        let run = made(&world, "raced");
        let hold = ["ledger", "hold", run.as_str()];
        let shred = ["ledger", "shred", run.as_str()];
        let (first, second) = match round % 2 {
            0 => (&hold, &shred),
            _ => (&shred, &hold),
        };
        let first = world.atoll(first).start();
        let second = world.atoll(second).start();
        let (first, second): (Outcome, Outcome) = (first.wait(), second.wait());
        let (hold, shred) = match round % 2 {
            0 => (first, second),
            _ => (second, first),
        };
        let told = kinds(&world, &run);
        let is_whole =
            told.contains(&"sealed content".to_owned()) && told.contains(&"artifacts".to_owned());
        assert_eq!(hold.code() == 0, is_whole, "{told:?}\n{hold}\n{shred}");
        assert_eq!(shred.code() == 0, !is_whole, "{told:?}\n{hold}\n{shred}");
        assert_eq!(told.len(), if is_whole { 3 } else { 1 }, "{told:?}");
        outcomes[usize::from(is_whole)] += 1;
    }
    assert_eq!(outcomes.iter().sum::<i32>(), 8);
    verify_ledger(&world);
}

/// Links where things are kept lead a sweep nowhere.
#[test]
fn a_sweep_follows_no_link_out() {
    let world = World::new("a_sweep_follows_no_link_out");
    for place in ["own/lock", "own/run", "own/deep/file"] {
        world.write(place, "mine");
    }
    let own = world.path("own");
    let script = format!("ln -s {} link", own.display());
    let _ = world
        .atoll(["run", "--keep", "--", "sh", "-c", &script])
        .run()
        .success();
    let run = world.last_run();
    let session = called(&world, "ann");
    hook(&world, "claude-one", &run);
    let state = world.state().join("atoll");
    symlink(&own, state.join("hooks/claude-one/out")).unwrap();
    symlink(&own, state.join("hooks/claude-two")).unwrap();
    let notes = state.join(format!("undo/{session}.jsonl"));
    fs::remove_file(&notes).unwrap();
    symlink(own.join("deep/file"), &notes).unwrap();
    rules(&world, NOTHING_STAYS);
    let _ = fine(&world, &["gc"]);
    assert_eq!(world.runs().len(), 0);
    assert!(!state.join("hooks/claude-one").exists());
    assert!(notes.symlink_metadata().is_err());
    for place in ["own/lock", "own/run", "own/deep/file"] {
        assert_eq!(world.read(place), "mine");
    }
}

/// The next sweep removes all that a killed one has left, and everything is on record.
#[test]
fn a_sweep_that_was_cut_short_goes_on() {
    let world = World::new("a_sweep_that_was_cut_short_goes_on");
    let runs: Vec<String> = (0..6).map(|_| made(&world, "audit")).collect();
    rules(&world, NOTHING_STAYS);
    for step in 1..6 {
        let sweep = world.atoll(["gc"]).start();
        std::thread::sleep(Duration::from_millis(7 * step));
        sweep.signal(Signal::KILL);
        let _ = sweep.wait();
    }
    // As a sweep leaves it whose power went between a record and its removal.
    let left = world
        .state()
        .join("atoll/runs")
        .join(format!(".removed-{}", runs[0]));
    fs::create_dir_all(left.join("deep")).unwrap();
    let _ = fine(&world, &["gc"]);
    assert_eq!(things(&world, "audit"), [""; 0]);
    assert!(!left.exists());
    let packs = fs::read_dir(world.state().join("atoll/artifacts")).unwrap();
    let names = packs.map(|one| one.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| !name.ends_with(".pack")));
    let mut collected: Vec<String> = events(&world, "run.collected")
        .iter()
        .map(|one| one["run"].as_str().unwrap().to_owned())
        .collect();
    collected.sort_unstable();
    collected.dedup();
    assert_eq!(collected.len(), runs.len());
    verify_ledger(&world);
}
