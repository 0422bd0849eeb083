//! An agent's directories that are kept from run to run: the parts that the next run sees, and how
//! a person applies or discards them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use e2e::{Avoidable, Outcome, World, fine, is_root};

const KEEP: &str = "[home]\nkeep = [\".agent\"]\n";
/// The profile that has the directory in a layer for one run alone.
const LAYER: &str = "[home]\nlayer = [\".agent\"]\n";

/// The files that an agent that was led astray leaves beside its history.
const PLANTED: &str = "cd ~/.agent; mkdir -p sessions/deep hooks projects/p/memory sessions/repository; \
    echo said > sessions/deep/one.jsonl; echo asked >> history.jsonl; echo kept > projects/p/one.jsonl; \
    echo planted > config.toml; echo planted > hooks/one.sh; echo planted > projects/p/memory/MEMORY.md; \
    echo planted > CLAUDE.md; ln -s ../elsewhere log; ln -s ../config.toml sessions/link; \
    mkfifo sessions/pipe; echo planted > sessions/repository/HEAD; echo planted > sessions/.envrc; \
    mkdir -p tmp/bin; echo planted > tmp/bin/rg; chmod +x tmp/bin/rg; \
    rm -f rules.md; cd - > /dev/null; ";
/// Prints everything in the agent's directory, as a program in a sandbox sees it.
const SHOW: &str = "cd ~/.agent; find . ! -type d | sort; cat history.jsonl config.toml; true";

/// Returns a world with an agent's directory, and profiles with this text.
fn world(name: &str, profile: &str) -> World {
    let world = World::new(name);
    for name in ["agent", "other"] {
        world.profile(name, profile);
    }
    world.write(own(&world).join("config.toml"), "mine\n");
    world.write(own(&world).join("rules.md"), "rules\n");
    world.write(own(&world).join("history.jsonl"), "before\n");
    world.write(own(&world).join("sessions/host.jsonl"), "outside\n");
    world
}

/// Applying a kept layer needs an approval where a policy requires it.
#[test]
fn a_policy_asks_before_what_is_kept_is_taken_over() {
    let world = world("a_policy_asks_before_what_is_kept_is_taken_over", KEEP);
    let asks = "@id(\"mine\") @approve(\"person\") permit(principal, action == Action::\"promote\", resource);\n";
    world.write(world.config().join("atoll/own.cedar"), asks);
    let _ = run(&world, "echo asked >> ~/.agent/history.jsonl");
    let apply = || world.atoll(["kept", "apply", "agent"]);
    let nobody = apply().run().expect_status(126);
    nobody.says([
        "nobody can be asked here",
        "atoll kept apply ",
        "policy mine",
    ]);
    let history = || world.read(own(&world).join("history.jsonl"));
    for (answer, status, expected) in [("d", 126, "before\n"), ("o", 0, "before\nasked\n")] {
        let mut asked = apply().on_terminal(24, 200);
        let shown = asked.expect("d deny: ");
        assert!(
            shown
                .contains("history.jsonl\", 13 bytes, mode 0644 (a person is asked by policy mine"),
            "{shown}"
        );
        asked.line(answer);
        let _ = asked.wait().expect_status(status);
        assert_eq!(history(), expected);
    }
    let told = world
        .atoll(["ledger", "query", "--action", "promote", "--json"])
        .run()
        .success();
    for (kind, count) in [("asked", 2), ("granted", 1), ("denied", 2)] {
        let kind = format!("\"type\":\"approval.{kind}\"");
        assert_eq!(told.out().matches(&kind).count(), count, "{kind} {told}");
    }
}

/// Nobody can tell which run made which part: so all of it is refused for the purpose of a later
/// run, and the refusal says what to do.
#[test]
fn what_a_narrowed_run_has_used_is_refused_with_what_to_do_next() {
    let world = world(
        "what_a_narrowed_run_has_used_is_refused_with_what_to_do_next",
        KEEP,
    );
    let history = || world.read(own(&world).join("history.jsonl"));
    let run = |options: &[&str], script: &str| {
        let run = world.atoll(["run", "--keep", "--profile", "agent"]);
        let run = run.args(options).args(["--", "sh", "-c", script]);
        run.run().success()
    };
    let _ = run(
        &[],
        "echo older >> ~/.agent/history.jsonl; echo made > made",
    );
    let query = ["ledger", "query", "--type", "run.opened", "--json"];
    let opened = world.atoll(query).run().success().out();
    let opened: serde_json::Value = serde_json::from_str(opened.lines().last().unwrap()).unwrap();
    let earlier = opened["run"].as_str().unwrap().to_owned();
    let _ = run(&["--purpose", "review"], "true");
    let refused = world.atoll(["kept", "apply", "agent"]).run();
    let refused = refused.expect_status(126);
    refused.says([
        "purpose-review-changes",
        "nobody has noted which run made what",
        "atoll kept diff ",
        "atoll kept discard ",
    ]);
    assert!(!refused.err().contains("atoll apply RUN"), "{refused}");
    assert_eq!(history(), "before\n");
    // The changes of the earlier run itself are its own.
    let _ = world.atoll(["apply", &earlier]).run().success();
    assert_eq!(world.read("made"), "made\n");
    // What the refusal says helps.
    let shown = world.atoll(["kept", "diff", "agent"]).run().success();
    assert!(shown.out().contains("older"), "{shown}");
    let _ = world.atoll(["kept", "discard", "agent"]).run().success();
    let _ = run(&[], "echo newer >> ~/.agent/history.jsonl");
    let _ = world.atoll(["kept", "apply", "agent"]).run().success();
    assert_eq!(history(), "before\nnewer\n");
}

/// The facts of each run that may have contributed to a kept layer count: of the one that found it
/// empty, and of all since.
#[test]
fn what_is_known_of_every_run_counts_when_what_is_kept_is_taken_over() {
    let world = world(
        "what_is_known_of_every_run_counts_when_what_is_kept_is_taken_over",
        KEEP,
    );
    let forbids = "@id(\"no\") forbid(principal, action == Action::\"promote\", resource) when { context has task && context.task == \"a\" };\n";
    world.write(world.config().join("atoll/own.cedar"), forbids);
    let run = |options: &[&str]| {
        let script = "echo more >> ~/.agent/history.jsonl";
        let run = world
            .atoll(["run", "--keep", "--profile", "agent"])
            .args(options);
        let _ = run.args(["--", "sh", "-c", script]).run().success();
    };
    let apply = || world.atoll(["kept", "apply", "agent"]).run();
    let history = || world.read(own(&world).join("history.jsonl"));
    run(&["--task", "a"]);
    run(&[]);
    apply().expect_status(126).says(["policy no"]);
    assert_eq!(history(), "before\n");
    // What an earlier one has put there is gone with it.
    let _ = world.atoll(["kept", "discard", "agent"]).run().success();
    run(&[]);
    let _ = apply().success();
    assert_eq!(history(), "before\nmore\n");
}

/// An approval covers both parts, also where they share a directory that neither has found: both
/// are written, and if anything takes the place of one meanwhile, neither is.
#[test]
fn a_yes_to_what_is_kept_is_to_all_of_it() {
    let world = world("a_yes_to_what_is_kept_is_to_all_of_it", KEEP);
    let asks = "@id(\"mine\") @approve(\"person\") permit(principal, action == Action::\"promote\", resource);\n";
    world.write(world.config().join("atoll/own.cedar"), asks);
    let _ = run(
        &world,
        "cd ~/.agent; mkdir -p sessions/new projects; echo said > sessions/new/one.jsonl; echo planted > sessions/new/.envrc; echo k > projects/k",
    );
    let parts = [
        "sessions/new/one.jsonl",
        "sessions/new/.envrc",
        "projects/k",
    ];
    let apply = || {
        world
            .atoll(["kept", "apply", "agent", "--control"])
            .on_terminal(24, 200)
    };
    let is_there = || parts.map(|name| own(&world).join(name).exists());
    let mut asked = apply();
    let shown = asked.expect("d deny: ");
    for name in parts {
        assert!(shown.contains(name), "{name}: {shown}");
    }
    world.write(own(&world).join("sessions/new/one.jsonl"), "another\n");
    asked.line("o");
    let _ = asked.wait().expect_status(126);
    fs::remove_dir_all(own(&world).join("sessions/new")).unwrap();
    assert_eq!(is_there(), [false; 3]);
    let mut asked = apply();
    let _ = asked.expect("d deny: ");
    asked.line("o");
    let _ = asked.wait().success();
    assert_eq!(is_there(), [true; 3]);
    let _ = fine(&world, &["kept", "undo", "agent"]);
    assert_eq!(is_there(), [false; 3]);
}

/// Returns the labels with which the last run of these began; `None` where none were recorded.
fn labels_of_run(world: &World, options: &[&str], script: &str) -> Option<Vec<String>> {
    let run = world.atoll(["run", "--profile", "agent"]).args(options);
    let _ = run.args(["--", "sh", "-c", script]).run().success();
    labels_of_last(world)
}

fn labels_of_last(world: &World) -> Option<Vec<String>> {
    let opened = e2e::internet::events(world, "run.opened");
    let labels = opened[0]["decision"]["labels"].as_array();
    let text = |label: &serde_json::Value| label.as_str().unwrap().to_owned();
    labels.map(|labels| labels.iter().map(text).collect())
}

/// The history of a run that was shown private data labels every run that is shown that history.
#[test]
fn kept_history_labels_the_runs_that_see_it() {
    let labelled = format!("{KEEP}[labels]\nprivate = [\"~/notes\"]\n");
    let world = world("kept_history_labels_the_runs_that_see_it", &labelled);
    let notes = world.home().join("notes");
    world.write(notes.join("one"), "secret\n");
    let shown = ["--keep", "--ro", notes.to_str().unwrap()];
    let private = Some(vec!["private".to_owned()]);
    let of = |options: &[&str], script: &str| labels_of_run(&world, options, script);
    // The control: what nobody has read is nobody's secret.
    assert_eq!(
        of(&["--keep"], "echo own >> ~/.agent/history.jsonl"),
        Some(vec![])
    );
    let copy = "cat ~/notes/one >> ~/.agent/history.jsonl";
    assert_eq!(of(&shown, copy), private);
    // Later ones see it, and have the label, and so on, whether they note labels by themselves.
    let see = "grep secret ~/.agent/history.jsonl";
    assert_eq!(of(&["--keep"], see), private);
    world.profile("agent", KEEP);
    assert_eq!(of(&["--keep"], see), private);
    assert_eq!(of(&["--keep"], see), private);
    world.profile("agent", &labelled);
    // Those that do not see it have none.
    let not = "! grep secret ~/.agent/history.jsonl";
    assert_eq!(of(&["--discard"], not), Some(vec![]));
    let other = world.run(["--discard", "--profile", "other"], not).run();
    let _ = other.success();
    assert_eq!(labels_of_last(&world), Some(vec![]));
    let _ = fine(&world, &["kept", "discard", "agent"]);
    assert_eq!(of(&["--keep"], not), Some(vec![]));
    // One that is killed has noted it before.
    let script = format!("{copy}; echo begun; sleep 1000");
    let killed = world.atoll(["run", "--profile", "agent"]).args(shown);
    let killed = killed.args(["--", "sh", "-c", &script]).start();
    let _ = killed.until_stdout("begun");
    killed.signal(rustix::process::Signal::KILL);
    let _ = killed.wait();
    assert_eq!(of(&["--keep"], see), private);
    // What nobody can tell the labels of is shown to no run.
    let record = kept_record(&world);
    let text = world.read(&record);
    let unsettled = text.replace("\"has_all_labels\": true", "\"has_all_labels\": false");
    assert_ne!(unsettled, text);
    world.write(&record, unsettled);
    fs::remove_dir_all(world.state().join("atoll/ledger")).unwrap();
    let apart = run(&world, not);
    apart.says(["nobody can tell what runs that have used what is kept of it have touched"]);
}

/// Returns the record of the one layer that is kept.
fn kept_record(world: &World) -> PathBuf {
    let mut all = fs::read_dir(world.state().join("atoll/kept")).unwrap();
    let path = all.next().unwrap().unwrap().path().join("record.json");
    assert!(all.next().is_none());
    path
}

fn own(world: &World) -> PathBuf {
    world.home().join(".agent")
}

fn run(world: &World, script: &str) -> Outcome {
    world
        .run(["--keep", "--profile", "agent"], script)
        .run()
        .success()
}

/// Returns the names that a program sees there.
fn seen(world: &World) -> String {
    run(world, SHOW).out()
}

/// Returns the list of all layers by `atoll kept`.
fn kept(world: &World) -> Vec<serde_json::Value> {
    let told = fine(world, &["kept", "--json"]).json();
    told.as_array().unwrap().clone()
}

const HOST: &str = "./config.toml\n./history.jsonl\n./rules.md\n./sessions/host.jsonl\n";

#[test]
fn the_next_run_sees_the_history_and_nothing_that_steers_it() {
    let name = "the_next_run_sees_the_history_and_nothing_that_steers_it";
    let world = world(name, KEEP);
    let first = run(&world, &format!("{PLANTED}{SHOW}"));
    assert!(first.out().contains("./hooks/one.sh"), "{first}");
    assert!(first.out().ends_with("before\nasked\nplanted\n"), "{first}");
    first.says([
        "Held back: ",
        " in ~/.agent. Review: `atoll kept diff agent`. ",
        "Accept: `atoll kept apply agent --control`.",
    ]);
    // It is no change of the run, and nothing outside has changed.
    let diff = fine(&world, &["diff", "last"]);
    assert_eq!(diff.out(), "");
    assert_eq!(world.read(own(&world).join("config.toml")), "mine\n");
    assert!(!own(&world).join("sessions/deep").exists());
    let expected = "./config.toml\n./history.jsonl\n./projects/p/one.jsonl\n./rules.md\n\
                    ./sessions/deep/one.jsonl\n./sessions/host.jsonl\nbefore\nasked\nmine\n";
    for _ in 0..2 {
        assert_eq!(seen(&world), expected);
    }
    // What is written outside meanwhile is seen, where the layer has nothing of its own.
    world.write(own(&world).join("config.toml"), "newer\n");
    world.write(own(&world).join("sessions/later.jsonl"), "later\n");
    let third = seen(&world);
    assert!(
        third.contains("./sessions/later.jsonl") && third.ends_with("newer\n"),
        "{third}"
    );
    // Other profiles have theirs.
    let other = world.run(["--keep", "--profile", "other"], SHOW).run();
    assert!(!other.success().out().contains("one.jsonl"));
}

#[test]
fn a_layer_of_one_run_is_not_seen_by_the_next() {
    // What the test before would see if nothing were kept, and if all were.
    let world = world("a_layer_of_one_run_is_not_seen_by_the_next", LAYER);
    let _ = run(&world, PLANTED);
    assert!(fine(&world, &["diff", "last"]).out().contains("one.jsonl"));
    assert_eq!(seen(&world), format!("{HOST}before\nmine\n"));
    assert!(kept(&world).is_empty());
}

#[test]
fn what_is_kept_is_looked_at_and_taken_over_apart() {
    let world = world("what_is_kept_is_looked_at_and_taken_over_apart", KEEP);
    let _ = fine(&world, &["kept"]);
    let _ = run(&world, PLANTED);
    let listed = kept(&world);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["profile"], "agent");
    assert_eq!(listed[0]["directory"], own(&world).to_str().unwrap());
    assert_eq!(listed[0]["last_run"], world.last_run());
    let name = listed[0]["name"].as_str().unwrap();
    let table = fine(&world, &["kept", "list"]).out();
    assert!(table.starts_with("PROFILE "), "{table}");
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with("agent ") && row.contains(" ago "), "{row}");
    assert!(row.contains(name), "{row}");
    let text = fine(&world, &["kept", "diff", name]).out();
    assert!(
        text.contains("+asked") && text.contains("+planted"),
        "{text}"
    );
    let json = fine(&world, &["kept", "diff", "agent", "--json"]).json();
    assert!(json[0]["changes"].as_array().unwrap().len() > 5, "{json}");
    let stat = fine(&world, &["kept", "diff", "agent", "--stat"]).out();
    for (file, is_control) in [
        ("sessions/deep/one.jsonl", false),
        ("history.jsonl", false),
        ("config.toml", true),
        ("hooks/one.sh", true),
        ("rules.md", true),
        ("memory/MEMORY.md", true),
        ("/log", true),
    ] {
        let mut lines = stat.lines();
        let line = lines.find(|line| line.contains(file));
        let line = line.unwrap_or_else(|| panic!("{file}: {stat}"));
        assert_eq!(line.contains("control:"), is_control, "{line}");
    }
    // History first, the rest after a yes of its own.
    let applied = fine(&world, &["kept", "apply", "agent"]);
    applied.says(["not applied without --control", "config.toml"]);
    assert_eq!(
        world.read(own(&world).join("sessions/deep/one.jsonl")),
        "said\n"
    );
    assert_eq!(
        world.read(own(&world).join("history.jsonl")),
        "before\nasked\n"
    );
    assert_eq!(world.read(own(&world).join("config.toml")), "mine\n");
    assert!(own(&world).join("rules.md").exists() && !own(&world).join("hooks").exists());
    let _ = fine(&world, &["kept", "apply", "agent", "--control"]);
    assert_eq!(world.read(own(&world).join("config.toml")), "planted\n");
    assert!(own(&world).join("hooks/one.sh").exists() && !own(&world).join("rules.md").exists());
    // Now it is the person's own, and the next run sees it.
    assert!(seen(&world).contains("./hooks/one.sh"));
    let _ = fine(&world, &["kept", "undo", "agent"]);
    assert_eq!(world.read(own(&world).join("config.toml")), "mine\n");
    assert_eq!(world.read(own(&world).join("history.jsonl")), "before\n");
    assert!(own(&world).join("rules.md").exists() && !own(&world).join("hooks").exists());
    assert!(!seen(&world).contains("hooks"));
    // Thrown away, the next run begins anew.
    assert!(seen(&world).contains("./sessions/deep/one.jsonl"));
    let _ = fine(&world, &["gc"]);
    assert!(seen(&world).contains("./sessions/deep/one.jsonl"));
    let discarded = fine(&world, &["kept", "discard", "agent"]);
    assert!(!discarded.err().contains("taken back"), "{discarded}");
    assert!(kept(&world).is_empty());
    assert_eq!(seen(&world), format!("{HOST}before\nmine\n"));
    let none = world.atoll(["kept", "diff", "nobody"]).run();
    none.is_clear_error(["nothing is kept", "atoll kept"]);
    let verified = fine(&world, &["ledger", "verify"]);
    assert_eq!(verified.code(), 0);
}

#[test]
fn what_atoll_wrote_itself_is_no_conflict_later() {
    let world = world("what_atoll_wrote_itself_is_no_conflict_later", KEEP);
    let _ = run(
        &world,
        "echo asked >> ~/.agent/history.jsonl; echo planted > ~/.agent/config.toml",
    );
    // The settings are held back, and the history goes on.
    for turn in ["one", "two"] {
        let applied = fine(&world, &["kept", "apply", "agent"]);
        applied.says(["not applied without --control", "config.toml"]);
        let _ = run(&world, &format!("echo {turn} >> ~/.agent/history.jsonl"));
    }
    let _ = fine(&world, &["kept", "apply", "agent"]);
    let history = own(&world).join("history.jsonl");
    assert_eq!(world.read(&history), "before\nasked\none\ntwo\n");
    // What was held back is still seen to have changed outside after that.
    world.write(own(&world).join("config.toml"), "newer\n");
    let refused = world.atoll(["kept", "apply", "agent", "--control"]).run();
    refused.is_clear_error(["changed meanwhile", "config.toml", "--force"]);
    // And with that change there, an apply forgets nothing of it.
    let _ = run(&world, "echo three >> ~/.agent/history.jsonl");
    let _ = fine(&world, &["kept", "apply", "agent"]);
    let refused = world.atoll(["kept", "apply", "agent", "--control"]).run();
    refused.is_clear_error(["changed meanwhile", "config.toml", "--force"]);
    assert_eq!(world.read(own(&world).join("config.toml")), "newer\n");
}

#[test]
fn what_is_set_aside_of_any_directory_is_applied_with_a_yes_of_its_own() {
    let name = "what_is_set_aside_of_any_directory_is_applied_with_a_yes_of_its_own";
    let world = World::new(name);
    // No name of a directory that agents are known to have.
    world.profile("mine", "[home]\nkeep = [\".own\"]\n");
    let own = world.home().join(".own");
    world.write(own.join("notes"), "mine\n");
    let script = "cd ~/.own; mkdir sessions; echo said > sessions/one.jsonl; mkdir -p tmp/bin; \
        echo '#!/bin/sh' > tmp/bin/run.sh; chmod 755 tmp/bin/run.sh; ln -s /etc/passwd link; \
        echo '{}' > settings.json; rm notes";
    let outcome = world.run(["--keep", "--profile", "mine"], script).run();
    let _ = outcome.success();
    let held = ["tmp/bin/run.sh", "link", "settings.json", "notes"];
    let stat = fine(&world, &["kept", "diff", "mine", "--stat"]).out();
    for file in held {
        let line = stat.lines().find(|line| line.contains(file));
        assert!(line.is_some_and(|line| line.contains("control:")), "{stat}");
    }
    let applied = fine(&world, &["kept", "apply", "mine"]);
    applied.says(["not applied without --control"]);
    applied.says(held);
    assert_eq!(world.read(own.join("sessions/one.jsonl")), "said\n");
    assert_eq!(world.read(own.join("notes")), "mine\n");
    for file in &held[..3] {
        assert!(own.join(file).symlink_metadata().is_err(), "{file}");
    }
    let _ = fine(&world, &["kept", "apply", "mine", "--control"]);
    for file in &held[..3] {
        assert!(own.join(file).symlink_metadata().is_ok(), "{file}");
    }
    assert!(!own.join("notes").exists());
    // What is written outside stays there, and that nothing brings it back is said.
    let discarded = fine(&world, &["kept", "discard", "mine"]);
    discarded.says(["can no longer be taken back"]);
    assert!(!own.join("notes").exists() && own.join("settings.json").exists());
}

#[test]
fn a_directory_that_is_not_there_is_told() {
    let world = World::new("a_directory_that_is_not_there_is_told");
    world.profile("mine", "[home]\nkeep = [\".own\", \".other/own\"]\n");
    world.write(world.home().join(".own/notes"), "mine\n");
    let told = |further: &[&str]| {
        let options = [further, &["--profile", "mine"]].concat();
        world.run(options, "true").run().success()
    };
    let missing = told(&["--keep"]);
    missing.says(["~/.other/own is not there", "mkdir -p ~/.other/own"]);
    assert!(!missing.err().contains("~/.own"), "{missing}");
    // Nothing would be kept of it in any case.
    let discarded = told(&["--discard"]);
    assert!(!discarded.err().contains("not there"), "{discarded}");
    fs::create_dir_all(world.home().join(".other/own")).unwrap();
    let there = told(&["--keep"]);
    assert!(!there.err().contains("not there"), "{there}");
}

#[test]
fn two_runs_at_once_do_not_share_what_is_kept() {
    let world = world("two_runs_at_once_do_not_share_what_is_kept", KEEP);
    let script =
        "echo one > ~/.agent/sessions/one.jsonl; echo begun; read line; cat ~/.agent/sessions/*";
    let mut first = world.run(["--keep", "--profile", "agent"], script).start();
    let _ = first.until_stdout("begun");
    let in_use = world.atoll(["kept", "diff", "agent"]).run();
    in_use.is_clear_error(["in use"]);
    let second = run(
        &world,
        "ls ~/.agent/sessions; echo two > ~/.agent/sessions/two.jsonl",
    );
    assert_eq!(second.out(), "host.jsonl\n");
    second.says(["another run is using", "part of its changes"]);
    assert!(fine(&world, &["diff", "last"]).out().contains("+two"));
    first.send("go on\n");
    let first = first.wait().success();
    assert_eq!(first.out(), "begun\noutside\none\n");
    let third = seen(&world);
    assert!(
        third.contains("one.jsonl") && !third.contains("two.jsonl"),
        "{third}"
    );
}

#[test]
fn what_a_killed_run_left_is_sorted_out_before_the_next() {
    let world = world("what_a_killed_run_left_is_sorted_out_before_the_next", KEEP);
    let script = format!("{PLANTED}echo begun; sleep 1000");
    let begun = world.run(["--keep", "--profile", "agent"], &script).start();
    let _ = begun.until_stdout("begun");
    begun.signal(rustix::process::Signal::KILL);
    let _ = begun.wait();
    let next = run(&world, SHOW);
    assert!(next.out().contains("./sessions/deep/one.jsonl"), "{next}");
    assert!(next.out().ends_with("before\nasked\nmine\n"), "{next}");
    assert!(
        !next.out().contains("hooks") && !next.out().contains("MEMORY"),
        "{next}"
    );
    next.says([" in ~/.agent. Review: "]);
    let stat = fine(&world, &["kept", "diff", "agent", "--stat"]).out();
    assert!(stat.contains("hooks/one.sh"), "{stat}");
}

#[test]
fn a_discarded_run_neither_sees_nor_writes_what_is_kept() {
    let name = "a_discarded_run_neither_sees_nor_writes_what_is_kept";
    let world = world(name, KEEP);
    let _ = run(&world, "echo said > ~/.agent/sessions/one.jsonl");
    for further in [&["--discard"][..], &["--discard", "--json", "-"]] {
        let options = [further, &["--profile", "agent"]].concat();
        let script = "ls ~/.agent/sessions; echo gone > ~/.agent/sessions/gone.jsonl; echo gone > ~/.agent/sessions/one.jsonl";
        let outcome = world.run(options, script).run().success();
        assert_eq!(outcome.out(), "host.jsonl\n");
    }
    let after = run(
        &world,
        "ls ~/.agent/sessions; cat ~/.agent/sessions/one.jsonl",
    );
    assert_eq!(after.out(), "host.jsonl\none.jsonl\nsaid\n");
}

#[test]
fn what_changes_outside_meanwhile_is_told_and_a_conflict() {
    let world = world(
        "what_changes_outside_meanwhile_is_told_and_a_conflict",
        KEEP,
    );
    let first = run(&world, "echo inside >> ~/.agent/history.jsonl");
    assert!(!first.err().contains("written outside"), "{first}");
    let second = run(&world, "cat ~/.agent/history.jsonl");
    assert!(!second.err().contains("written outside"), "{second}");
    world.write(own(&world).join("history.jsonl"), "before\noutside\n");
    let third = run(&world, "cat ~/.agent/history.jsonl");
    assert_eq!(third.out(), "before\ninside\n");
    third.says(["history.jsonl", "written outside since"]);
    let refused = world.atoll(["kept", "apply", "agent"]).run();
    refused.is_clear_error(["changed meanwhile", "history.jsonl", "--force"]);
    assert_eq!(
        world.read(own(&world).join("history.jsonl")),
        "before\noutside\n"
    );
    let _ = fine(&world, &["kept", "apply", "agent", "--force"]);
    assert_eq!(
        world.read(own(&world).join("history.jsonl")),
        "before\ninside\n"
    );
    let _ = fine(&world, &["kept", "undo", "agent"]);
    assert_eq!(
        world.read(own(&world).join("history.jsonl")),
        "before\noutside\n"
    );
    // Another directory in its place is one to begin over, and the history stays.
    fs::remove_dir_all(own(&world)).unwrap();
    world.write(own(&world).join("config.toml"), "another\n");
    assert_eq!(
        seen(&world),
        "./config.toml\n./history.jsonl\nbefore\ninside\nanother\n"
    );
}

#[test]
fn what_stands_for_a_login_is_made_anew_and_never_kept() {
    let with = "[network]\nallow = [\"example.com\"]\n[home]\nkeep = [\".agent\"]\n\
        [login.agent]\nfile = \"~/.agent/auth.json\"\nkeep = [\"mode\"]\n\
        [credential.agent]\nsource = { login = \"agent\", field = \"access\" }\nto = \"example.com\"\n\
        place = { header = \"authorization\", form = \"Bearer {}\" }\n";
    let world = world("what_stands_for_a_login_is_made_anew_and_never_kept", with);
    let real = "sk-ant-oat01-r3alK3yOfTh1sT3stWh1chN0bodyM4yS33in";
    world.canary(real, &["home/.agent/auth.json"]);
    let login = format!("{{\"mode\": \"chat\", \"access\": \"{real}\"}}\n");
    let file = own(&world).join("auth.json");
    world.write(&file, &login);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let show = "sed 's/.*\"access\":\"\\([^\"]*\\)\".*/\\1/' ~/.agent/auth.json; ";
    let mut stood = Vec::new();
    for script in [
        "echo said > ~/.agent/sessions/one.jsonl",
        "echo own > ~/.agent/auth.json",
        "rm ~/.agent/auth.json; mkdir ~/.agent/auth.json; touch ~/.agent/auth.json/in",
        "cat ~/.agent/sessions/one.jsonl",
    ] {
        let outcome = run(&world, &format!("{show}{script}"));
        let first = outcome.out().lines().next().unwrap_or_default().to_owned();
        assert!(
            first.starts_with("sk-ant-oat01-") && first != real,
            "{outcome}"
        );
        assert!(!stood.contains(&first), "{outcome}");
        stood.push(first);
        let find = world
            .host("find")
            .arg(world.state())
            .args(["-name", "auth.json"]);
        // Nobody may look into what overlayfs works with.
        assert_eq!(find.run().out(), "", "{script}");
        let stat = fine(&world, &["kept", "diff", "agent", "--stat"]).out();
        assert!(
            stat.contains("one.jsonl") && !stat.contains("auth.json"),
            "{stat}"
        );
    }
    let _ = fine(&world, &["kept", "apply", "agent", "--control"]);
    assert_eq!(world.read(&file), login);
    assert_eq!(world.read(own(&world).join("sessions/one.jsonl")), "said\n");
}

/// A login whose file does not exist outside: a file that a program makes in its place is not kept,
/// as it is where there is no such login.
#[test]
fn what_is_made_in_the_place_of_a_login_that_is_not_there_is_never_kept() {
    let before = "[network]\nallow = [\"example.com\"]\n[home]\nkeep = [\".agent\"]\n";
    let name = "what_is_made_in_the_place_of_a_login_that_is_not_there_is_never_kept";
    let world = world(name, before);
    let stat = || fine(&world, &["kept", "diff", "agent", "--stat"]).out();
    let make = "echo planted > ~/.agent/auth.json; echo said > ~/.agent/sessions/one.jsonl";
    let _ = run(&world, make);
    // As any other file it waits for a person.
    assert!(stat().contains("auth.json"), "{}", stat());
    let _ = fine(&world, &["kept", "discard", "agent"]);
    let with = format!(
        "{before}[login.agent]\nfile = \"~/.agent/auth.json\"\noptional = true\n\
        [credential.agent]\nsource = {{ login = \"agent\", field = \"access\" }}\noptional = true\n\
        to = \"example.com\"\nplace = {{ header = \"authorization\", form = \"Bearer {{}}\" }}\n"
    );
    world.profile("agent", &with);
    for _ in 0..2 {
        let _ = run(&world, make);
        let stat = stat();
        assert!(
            stat.contains("one.jsonl") && !stat.contains("auth.json"),
            "{stat}"
        );
    }
    let _ = fine(&world, &["kept", "apply", "agent", "--control"]);
    assert!(!own(&world).join("auth.json").exists());
}

#[test]
fn in_a_fence_nothing_is_kept() {
    let world = world("in_a_fence_nothing_is_kept", KEEP);
    if is_root() {
        return world.skip("root always has namespaces", Avoidable::No);
    }
    let script = "cat ~/.agent/config.toml; cat \"$OWN/config.toml\"; echo said > \"$OWN/sessions/one.jsonl\"; true";
    let script = script.replace("$OWN", own(&world).to_str().unwrap());
    let fenced = world
        .run(["--keep", "--profile", "agent"], &script)
        .without_namespaces()
        .run()
        .success();
    assert!(fenced.out().contains("mine"), "{fenced}");
    fenced.says([".agent can be read and not changed"]);
    assert!(!own(&world).join("sessions/one.jsonl").exists());
    assert!(kept(&world).is_empty());
}

#[test]
fn what_is_kept_counts_within_the_limit_of_the_disk() {
    let world = world("what_is_kept_counts_within_the_limit_of_the_disk", KEEP);
    let limits = "\n[limits]\ndisk = \"8MiB\"\n";
    let fill = "head -c 5M /dev/urandom > ~/.agent/sessions/$0.jsonl; sync; sleep 3; echo through";
    world.profile("agent", &format!("{KEEP}{limits}"));
    let first = run(&world, &fill.replace("$0", "one"));
    assert_eq!(first.out(), "through\n");
    // It is ended long before, however busy the machine is.
    let patient = fill.replace("$0", "two").replace("sleep 3", "sleep 60");
    let second = world.run(["--keep", "--profile", "agent"], &patient).run();
    assert!(
        second.code() != 0 && second.err().contains("disk"),
        "{second}"
    );
    let _ = fine(&world, &["kept", "discard", "agent"]);
    let again = run(&world, &fill.replace("$0", "two"));
    assert_eq!(again.out(), "through\n");
}

#[test]
fn with_root_inside_nothing_is_kept() {
    let world = world("with_root_inside_nothing_is_kept", KEEP);
    let script = "echo said > ~/.agent/sessions/one.jsonl";
    let outcome = world
        .run(["--keep", "--root", "--profile", "agent"], script)
        .run()
        .success();
    outcome.says(["with root inside", "part of its changes"]);
    assert!(fine(&world, &["diff", "last"]).out().contains("+said"));
    assert!(kept(&world).is_empty());
    assert!(!seen(&world).contains("one.jsonl"));
}

#[test]
fn a_repository_outside_is_not_configured_by_a_run() {
    let world = world("a_repository_outside_is_not_configured_by_a_run", KEEP);
    let config = own(&world).join("snapshot/one/config");
    world.write(
        own(&world).join("snapshot/one/HEAD"),
        "ref: refs/heads/main\n",
    );
    world.write(&config, "mine\n");
    let _ = run(
        &world,
        "echo planted > ~/.agent/snapshot/one/config; echo said > ~/.agent/sessions/one.jsonl",
    );
    let next = run(&world, "cat ~/.agent/snapshot/one/config");
    assert_eq!(next.out(), "mine\n");
    let _ = fine(&world, &["kept", "apply", "agent"]);
    assert_eq!(world.read(own(&world).join("sessions/one.jsonl")), "said\n");
    assert_eq!(world.read(&config), "mine\n");
    let _ = fine(&world, &["kept", "apply", "agent", "--control"]);
    assert_eq!(world.read(&config), "planted\n");
}

#[test]
fn a_database_never_meets_the_log_of_another() {
    let world = world("a_database_never_meets_the_log_of_another", KEEP);
    let (database, log) = (
        own(&world).join("state.sqlite"),
        own(&world).join("state.sqlite-wal"),
    );
    world.write(&database, "outside\n");
    let _ = run(&world, "echo inside > ~/.agent/state.sqlite");
    // The agent outside goes on with its own, and the database itself is as it was.
    world.write(&log, "log\n");
    let next = run(&world, "cd ~/.agent; cat state.sqlite; ls state.*");
    assert_eq!(next.out(), "inside\nstate.sqlite\n");
    let refused = world.atoll(["kept", "apply", "agent"]).run();
    refused.is_clear_error(["changed meanwhile", "state.sqlite-wal", "--force"]);
    assert_eq!(world.read(&database), "outside\n");
    fs::remove_file(&log).unwrap();
    let _ = fine(&world, &["kept", "apply", "agent"]);
    assert_eq!(world.read(&database), "inside\n");
}

#[test]
fn memories_are_not_removed_with_the_history_around_them() {
    let world = world(
        "memories_are_not_removed_with_the_history_around_them",
        KEEP,
    );
    let memory = own(&world).join("projects/p/memory/MEMORY.md");
    world.write(&memory, "remembered\n");
    let _ = run(&world, "rm -r ~/.agent/projects");
    let next = run(&world, "cat ~/.agent/projects/p/memory/MEMORY.md");
    assert_eq!(next.out(), "remembered\n");
    let _ = fine(&world, &["kept", "apply", "agent"]);
    assert!(memory.exists());
    let _ = fine(&world, &["kept", "apply", "agent", "--control"]);
    assert!(!memory.exists());
}

#[test]
fn what_kept_undo_overwrites_by_force_comes_back() {
    let world = world("what_kept_undo_overwrites_by_force_comes_back", KEEP);
    let _ = run(&world, "echo asked >> ~/.agent/history.jsonl");
    let _ = fine(&world, &["kept", "apply", "agent"]);
    let history = || world.read(own(&world).join("history.jsonl"));
    assert_eq!(history(), "before\nasked\n");
    world.write(own(&world).join("history.jsonl"), "edited\n");
    let undo = |options: &[&str]| world.atoll(["kept", "undo", "agent"]).args(options).run();
    let refused = undo(&[]).expect_status(125);
    refused.is_clear_error(["history.jsonl: it changed", "--force", "--take-back"]);
    assert_eq!(history(), "edited\n");
    let listed = || {
        let told = undo(&["--list", "--json"]).success().json();
        let path = told["changed"][0]["path"].as_str().unwrap();
        assert!(path.ends_with(".agent/history.jsonl"), "{told}");
    };
    listed();
    let forced = undo(&["--force"]).success();
    listed();
    forced.says(["history.jsonl", "atoll kept undo agent --take-back"]);
    assert_eq!(history(), "before\n");
    let _ = undo(&["--take-back"]).success();
    assert_eq!(history(), "edited\n");
    let nothing = undo(&["--take-back"]).expect_status(125);
    nothing.is_clear_error(["no undo to take back"]);
}
