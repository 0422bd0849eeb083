//! An undo, or the rollback of one, that is killed: a repeat ends it, and everything that it has
//! overwritten comes back, whichever part it was killed in. For runs with layers, live runs, and
//! kept layers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use e2e::{Outcome, World, fine, kill};
use rustix::process::Signal;

/// A number of files that leaves time for a kill while they are written.
const MANY: u32 = 600;

fn atoll(world: &World, arguments: &[&str]) -> Outcome {
    world.atoll(arguments).run()
}

/// Returns the only journal of this name.
fn journal(world: &World, name: &str) -> PathBuf {
    journal_if_any(world, name).unwrap_or_else(|| panic!("there is no journal {name}"))
}

fn journal_if_any(world: &World, name: &str) -> Option<PathBuf> {
    let mut waiting = vec![world.state()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let path = entry.path();
            if is_directory && path.ends_with(Path::new("journals").join(name)) {
                return Some(path);
            }
            if is_directory {
                waiting.push(path);
            }
        }
    }
    None
}

fn stage(journal: &Path) -> String {
    fs::read_to_string(journal.join("stage")).unwrap_or_default()
}

/// Runs a command and kills it as soon as a journal is at a stage.
fn killed_at(world: &World, arguments: &[&str], journal: &Path, wanted: &str) {
    let mut running = world.atoll(arguments).start();
    let begun = Instant::now();
    while stage(journal) != wanted {
        assert!(running.status().is_none(), "it ended before {wanted}");
        assert!(begun.elapsed() < Duration::from_secs(60), "never {wanted}");
        std::thread::sleep(Duration::from_micros(100));
    }
    kill(running.pid(), Signal::KILL);
    assert!(!running.wait().err().contains("aken back"));
}

/// Returns a run whose changes were applied in two steps, the first of which is small or large; `a`
/// was edited since.
fn applied_in_two(name: &str, is_first_small: bool) -> World {
    let world = World::new(name);
    world.write("a", "old\n");
    let script = format!("echo new > a; mkdir d; for n in $(seq {MANY}); do echo $n > d/$n; done");
    let _ = world.run_inside(&script).success();
    let (first, second) = match is_first_small {
        true => ("a", "d"),
        false => ("d", "a"),
    };
    let _ = fine(&world, &["apply", "last", first]);
    let _ = fine(&world, &["apply", "last", second]);
    world.write("a", "edited\n");
    world
}

fn last_file() -> String {
    format!("d/{MANY}")
}

fn expect_applied_and_edited(world: &World) {
    assert_eq!(world.read("a"), "edited\n");
    assert_eq!(world.read(last_file()), format!("{MANY}\n"));
    assert_eq!(
        fs::read_dir(world.path("d")).unwrap().count(),
        MANY as usize
    );
    assert_eq!(world.runs()[0]["state"], "partly-applied");
    let nothing = atoll(world, &["undo", "last", "--take-back"]).expect_status(125);
    nothing.says(["there is no undo to take back"]);
}

/// Returns a run with many changes, its id, and the journal of its first apply.
fn with_many(name: &str) -> (World, String, PathBuf) {
    let world = World::new(name);
    let script = format!("mkdir d; for n in $(seq {MANY}); do echo $n > d/$n; done");
    let _ = world.run_inside(&script).success();
    let run = world.last_run();
    let journals = world.state().join("atoll/runs").join(&run).join("journals");
    (world, run, journals.join("workspace-0"))
}

/// Writes the run's record as it was before its apply ended.
fn forget_apply(world: &World, run: &str) {
    let record = world
        .state()
        .join("atoll/runs")
        .join(run)
        .join("record.json");
    let text = fs::read_to_string(&record).unwrap();
    assert!(text.contains("\"applied\""), "{text}");
    fs::write(record, text.replace("\"applied\"", "\"kept\"")).unwrap();
}

#[test]
fn killed_apply_with_one_end_is_ended_by_the_next_command() {
    for command in ["runs", "diff", "apply", "undo", "discard"] {
        let (world, run, journal) =
            with_many("killed_apply_with_one_end_is_ended_by_the_next_command");
        killed_at(&world, &["apply", "last"], &journal, "preparing");
        if stage(&journal) != "preparing" {
            // The kill came too late for this one.
            continue;
        }
        let arguments = match command {
            "runs" => vec![command],
            _ => vec![command, &run],
        };
        let next = atoll(&world, &arguments);
        next.says(["was cut short before it changed anything, and is taken back"]);
        assert!(!atoll(&world, &["runs"]).err().contains("cut short"));
        assert_eq!(world.exists(last_file()), command == "apply", "{next}");
        let _ = next.expect_status(if command == "undo" { 125 } else { 0 });
    }
    // Killed before the run's record said so: the apply is over.
    for command in ["runs", "diff", "apply", "undo"] {
        let (world, run, journal) =
            with_many("killed_apply_with_one_end_is_ended_by_the_next_command");
        let _ = fine(&world, &["apply", "last"]);
        forget_apply(&world, &run);
        let arguments = match command {
            "runs" => vec![command],
            _ => vec![command, &run],
        };
        let next = fine(&world, &arguments);
        next.says(["was cut short after it had changed everything, and is finished"]);
        assert_eq!(stage(&journal) == "undone", command == "undo");
        assert_eq!(world.exists(last_file()), command != "undo", "{next}");
        if command != "undo" {
            assert_eq!(world.runs()[0]["state"], "applied");
        }
    }
    // What is applied is not discarded unawares.
    let (world, run, _) = with_many("killed_apply_with_one_end_is_ended_by_the_next_command");
    let _ = fine(&world, &["apply", "last"]);
    forget_apply(&world, &run);
    let _ = fine(&world, &["discard", "--empty"]);
    forget_apply(&world, &run);
    let refused = atoll(&world, &["discard", &run]).expect_status(125);
    refused.is_clear_error(["is finished", "applied and not discarded", "atoll undo"]);
    let _ = fine(&world, &["discard", &run]);
    // In between a person decides.
    let (world, _, journal) = with_many("killed_apply_with_one_end_is_ended_by_the_next_command");
    let _ = fine(&world, &["apply", "last"]);
    fs::write(journal.join("stage"), "committing").unwrap();
    let refused = atoll(&world, &["apply", "last"]).expect_status(125);
    refused.is_clear_error(["was cut short", "--take-back", "--finish"]);
}

#[test]
fn apply_of_an_interrupted_run_says_so() {
    let world = World::new("apply_of_an_interrupted_run_says_so");
    let running = world
        .run(["--keep"], "echo one > one; echo made; sleep 1000")
        .start();
    running.until_stdout("made");
    let _ = fine(&world, &["stop", "last"]);
    let _ = running.wait();
    let applied = fine(&world, &["apply", "last"]);
    applied.says(["it was interrupted (stopped by ", "until then is applied"]);
    assert_eq!(world.read("one"), "one\n");
}

#[test]
fn an_undo_that_is_killed_between_its_parts_is_taken_back_whole() {
    for is_repeated in [true, false] {
        let name = "an_undo_that_is_killed_between_its_parts_is_taken_back_whole";
        let world = applied_in_two(name, false);
        let small = journal(&world, "workspace-1");
        killed_at(&world, &["undo", "last", "--force"], &small, "undone");
        assert_eq!(world.read("a"), "old\n");
        // Nothing is applied over a part of it.
        let refused = atoll(&world, &["apply", "last"]).expect_status(125);
        refused.is_clear_error(["an undo of run", "cut short", "--take-back"]);
        if is_repeated {
            let _ = fine(&world, &["undo", "last"]);
            assert!(!world.exists("d"));
            assert_eq!(world.runs()[0]["state"], "undone");
        }
        let _ = fine(&world, &["undo", "last", "--take-back"]);
        expect_applied_and_edited(&world);
    }
}

#[test]
fn an_undo_that_is_killed_within_a_part_is_repeated_or_taken_back() {
    for is_repeated in [true, false] {
        let name = "an_undo_that_is_killed_within_a_part_is_repeated_or_taken_back";
        let world = applied_in_two(name, false);
        let large = journal(&world, "workspace-0");
        killed_at(&world, &["undo", "last", "--force"], &large, "undoing");
        // What ends an apply does not end it: the ledger would tell of an apply.
        for option in ["--finish", "--take-back"] {
            let refused = atoll(&world, &["apply", "last", option]).expect_status(125);
            refused.is_clear_error(["an undo of run", "cut short", "atoll undo"]);
        }
        assert_eq!(stage(&large), "undoing");
        if is_repeated {
            let _ = fine(&world, &["undo", "last"]);
            assert!(!world.exists("d"));
            assert_eq!(world.read("a"), "old\n");
        }
        let _ = fine(&world, &["undo", "last", "--take-back"]);
        expect_applied_and_edited(&world);
    }
}

#[test]
fn the_taking_back_of_an_undo_writes_all_or_nothing_and_can_be_repeated() {
    let name = "the_taking_back_of_an_undo_writes_all_or_nothing_and_can_be_repeated";
    let world = applied_in_two(name, true);
    let _ = fine(&world, &["undo", "last", "--force"]);
    // In the way of the part that would come last.
    world.write("d/7", "mine\n");
    let refused = atoll(&world, &["undo", "last", "--take-back"]).expect_status(125);
    refused.is_clear_error(["nothing was written", "d/7"]);
    assert_eq!(world.read("a"), "old\n");
    assert_eq!(fs::read_dir(world.path("d")).unwrap().count(), 1);
    fs::remove_dir_all(world.path("d")).unwrap();
    let [small, large] = ["workspace-0", "workspace-1"].map(|name| journal(&world, name));
    let take_back = ["undo", "last", "--take-back"];
    killed_at(&world, &take_back, &small, "done");
    assert_eq!(world.read("a"), "edited\n");
    assert_ne!(stage(&large), "done");
    killed_at(&world, &take_back, &large, "putting-back");
    let _ = fine(&world, &take_back);
    expect_applied_and_edited(&world);
}

#[test]
fn a_killed_undo_of_a_live_run_is_finished_repeated_or_taken_back() {
    for how in ["finish", "repeat", "take-back"] {
        let world = World::new("a_killed_undo_of_a_live_run_is_finished_repeated_or_taken_back");
        world.write("a", "old\n");
        // Each a step of its own, so that there is time for a kill among them.
        world.write("d/mine", "mywork\n");
        let script = format!("echo new > a; for n in $(seq {MANY}); do echo $n > d/$n; done");
        let _ = world.run(["--live"], &script).run().success();
        world.write("a", "edited\n");
        // The journal is the undo's own, so its place is known only then.
        let directory = world.state().join("atoll/runs").join(world.last_run());
        let journal = directory.join("journals/workspace-0");
        killed_at(&world, &["undo", "last", "--force"], &journal, "committing");
        let run = world.last_run();
        match how {
            "finish" => drop(fine(&world, &["apply", &run, "--finish"])),
            "repeat" => drop(fine(&world, &["undo", "last", "--force"])),
            _ => {}
        }
        if how != "take-back" {
            assert_eq!(world.read("a"), "old\n", "{how}");
            assert!(
                !world.exists(last_file()) && world.exists("d/mine"),
                "{how}"
            );
            assert_eq!(world.runs()[0]["state"], "undone", "{how}");
        }
        let _ = fine(&world, &["undo", "last", "--take-back"]);
        assert_eq!(world.read("a"), "edited\n", "{how}");
        assert_eq!(world.read(last_file()), format!("{MANY}\n"), "{how}");
        assert_eq!(world.runs()[0]["state"], "written", "{how}");
    }
}

#[test]
fn what_kept_undo_has_begun_is_ended_or_taken_back() {
    for (how, is_repeated) in [
        ("undone", true),
        ("undone", false),
        ("undoing", true),
        ("undoing", false),
    ] {
        let world = World::new("what_kept_undo_has_begun_is_ended_or_taken_back");
        world.profile("agent", "[home]\nkeep = [\".agent\"]\n");
        let own = world.home().join(".agent");
        world.write(own.join("history.jsonl"), "before\n");
        world.write(own.join("sessions/host.jsonl"), "outside\n");
        let run = |script: &str| {
            let run = world.run(["--keep", "--profile", "agent"], script).run();
            let _ = run.success();
        };
        let many = format!(
            "cd ~/.agent/sessions; mkdir new; for n in $(seq {MANY}); do echo $n > new/$n.jsonl; done"
        );
        run(&many);
        let _ = fine(&world, &["kept", "apply", "agent"]);
        run("echo asked >> ~/.agent/history.jsonl");
        let _ = fine(&world, &["kept", "apply", "agent"]);
        world.write(own.join("history.jsonl"), "edited\n");
        let history = || world.read(own.join("history.jsonl"));
        let [large, small] = ["0", "1"].map(|name| journal(&world, name));
        let killed = match how {
            "undone" => &small,
            _ => &large,
        };
        killed_at(&world, &["kept", "undo", "agent", "--force"], killed, how);
        assert_eq!(history(), "before\n");
        let refused = atoll(&world, &["kept", "apply", "agent"]).expect_status(125);
        refused.is_clear_error(["an undo of", "cut short", "--take-back"]);
        let made = own.join("sessions/new");
        if is_repeated {
            let _ = fine(&world, &["kept", "undo", "agent"]);
            assert!(!made.exists(), "{how}");
            assert_eq!(history(), "before\n");
        }
        let _ = fine(&world, &["kept", "undo", "agent", "--take-back"]);
        assert_eq!(history(), "edited\n");
        assert_eq!(fs::read_dir(&made).unwrap().count(), MANY as usize, "{how}");
        let nothing = atoll(&world, &["kept", "undo", "agent", "--take-back"]).expect_status(125);
        nothing.is_clear_error(["no undo to take back"]);
    }
}

/// Returns a run whose many changed files were applied, and whose undo was killed while it changed
/// them, with the name of a file that was undone by then.
fn undone_in_part(name: &str, force: &[&str]) -> (World, String) {
    undone_in_part_of(name, false, force)
}

/// As [`undone_in_part`], or for a live run.
fn undone_in_part_of(name: &str, is_live: bool, force: &[&str]) -> (World, String) {
    const FILES: u32 = 1500;
    for _ in 0..20 {
        let world = World::new(name);
        for number in 0..FILES {
            world.write(format!("f{number}"), format!("old {number}\n"));
        }
        let script = format!(
            "for n in $(seq 0 {}); do echo new $n > f$n; done",
            FILES - 1
        );
        if is_live {
            let _ = world.run(["--live"], &script).run().success();
        } else {
            let _ = world.run_inside(&script).success();
            let _ = fine(&world, &["apply", "last"]);
        }
        let mut undo = world.atoll([&["undo", "last"], force].concat()).start();
        // That of a live run is an apply of its own.
        let within = || {
            let journals = match is_live {
                true => journal_if_any(&world, "workspace-0"),
                false => Some(journal(&world, "workspace-0").join("undo")),
            };
            journals.unwrap_or_default()
        };
        let has_begun = || {
            let within = within();
            let log = fs::read_to_string(within.join("log")).unwrap_or_default();
            stage(&within) == "committing" && log.lines().count() > 10
        };
        while !has_begun() && undo.status().is_none() {
            std::thread::sleep(Duration::from_micros(100));
        }
        kill(undo.pid(), Signal::KILL);
        let _ = undo.wait();
        let is_old = |number: &u32| world.read(format!("f{number}")) == format!("old {number}\n");
        let old = (0..FILES).find(is_old);
        if let Some(old) = old.filter(|_| stage(&within()) == "committing") {
            return (world, format!("f{old}"));
        }
    }
    panic!("it was never killed in the middle");
}

#[test]
fn what_somebody_wrote_after_a_kill_is_never_lost() {
    let name = "what_somebody_wrote_after_a_kill_is_never_lost";
    for again in [
        &["undo", "last"][..],
        &["undo", "last", "--force"],
        &["undo", "last", "--take-back"],
    ] {
        let (world, file) = undone_in_part(name, &[]);
        world.write(&file, "MINE\n");
        for _ in 0..2 {
            let refused = atoll(&world, again).expect_status(125);
            refused.is_clear_error(["was cut short cannot be ended", &file, "elsewhere"]);
            assert_eq!(world.read(&file), "MINE\n");
        }
        fs::rename(world.path(&file), world.path("mine")).unwrap();
        let _ = fine(&world, again);
        let expected = if again.contains(&"--take-back") {
            "new"
        } else {
            "old"
        };
        let all = fs::read_dir(world.workspace()).unwrap().count();
        assert_eq!(all, 1501, "{again:?}");
        for number in [0, 7, 1499] {
            let text = world.read(format!("f{number}"));
            assert_eq!(text, format!("{expected} {number}\n"), "{again:?}");
        }
        let text = world.read(&file);
        assert!(text.starts_with(expected), "{again:?}: {text}");
        assert_eq!(world.read("mine"), "MINE\n");
    }
}

#[test]
fn what_a_cut_short_undo_has_set_aside_is_not_thrown_away() {
    let name = "what_a_cut_short_undo_has_set_aside_is_not_thrown_away";
    let (world, _) = undone_in_part(name, &["--force"]);
    let refused = atoll(&world, &["discard", "last"]).expect_status(125);
    refused.is_clear_error(["an undo of run", "cut short", "--take-back"]);
    for older in ["1ms", "1d"] {
        let stays = fine(&world, &["gc", "--older-than", older]);
        assert_eq!(world.runs().len(), 1, "{stays}");
        assert_eq!(stays.err().contains("cut short"), older == "1ms", "{stays}");
    }
    let _ = fine(&world, &["undo", "last", "--take-back"]);
    assert_eq!(world.read("f3"), "new 3\n");
    // The control.
    let _ = fine(&world, &["gc", "--older-than", "1ms"]);
    assert_eq!(world.runs().len(), 0);
}

#[test]
fn an_undo_of_a_live_run_that_was_killed_goes_on() {
    let name = "an_undo_of_a_live_run_that_was_killed_goes_on";
    let (world, _) = undone_in_part_of(name, true, &[]);
    let _ = fine(&world, &["undo", "last"]);
    for number in [0, 7, 1499] {
        let text = world.read(format!("f{number}"));
        assert_eq!(text, format!("old {number}\n"));
    }
    assert_eq!(world.runs()[0]["state"], "undone");
    assert_eq!(told(&world), ["apply.started", "apply.finished"]);
    let _ = fine(&world, &["undo", "last", "--take-back"]);
    assert_eq!(world.read("f7"), "new 7\n");
}

/// Returns the types of a run's events about applies and undos, in order.
fn told(world: &World) -> Vec<String> {
    let run = world.last_run();
    let shown = fine(world, &["ledger", "show", "--json", &run]).out();
    let kind = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        event["type"].as_str().unwrap().to_owned()
    };
    shown
        .lines()
        .map(kind)
        .filter(|kind| kind.starts_with("apply.") || kind.starts_with("undo."))
        .collect()
}

/// A kill at the very end leaves everything undone, but for the last record of it in a journal, in
/// the run's record, or in both.
#[test]
fn an_undo_that_is_killed_at_its_end_is_ended_by_a_repeat() {
    for is_in_the_journal in [true, false] {
        for again in [&["undo", "last"][..], &["undo", "last", "--take-back"]] {
            let world = World::new("an_undo_that_is_killed_at_its_end_is_ended_by_a_repeat");
            world.write("a", "old\n");
            let _ = world.run(["--apply"], "echo new > a").run().success();
            let record = world.state().join("atoll/runs").join(world.last_run());
            let record = record.join("record.json");
            let applied = fs::read(&record).unwrap();
            let _ = fine(&world, &["undo", "last"]);
            fs::write(&record, applied).unwrap();
            if !is_in_the_journal {
                let stage = journal(&world, "workspace-0").join("stage");
                fs::write(stage, "undoing").unwrap();
            }
            let _ = fine(&world, again);
            let is_undo = again.len() == 2;
            let expected = if is_undo {
                ("old\n", "undone")
            } else {
                ("new\n", "applied")
            };
            let state = world.runs()[0]["state"].as_str().unwrap().to_owned();
            assert_eq!((world.read("a").as_str(), state.as_str()), expected);
            let nothing = atoll(&world, again).expect_status(125);
            nothing.says(["there is "]);
            let mut all = vec![
                "apply.started",
                "apply.finished",
                "undo.started",
                "undo.finished",
            ];
            all.extend((!is_undo).then_some("undo.taken-back"));
            assert_eq!(told(&world), all);
        }
    }
}

/// The rollback of a killed apply overwrites nothing that somebody wrote since, and names all of
/// that.
#[test]
fn all_that_is_in_the_way_of_taking_an_apply_back_is_named() {
    const FILES: u32 = 1500;
    for is_kept in [true, false] {
        let name = "all_that_is_in_the_way_of_taking_an_apply_back_is_named";
        let (world, place) = (0..20)
            .find_map(|_| killed_apply(World::new(name), is_kept, FILES))
            .expect("it was never killed in the middle");
        let is_new = |number: &u32| world.exists(place.join(format!("f{number}")));
        let mut applied: Vec<u32> = (0..FILES).filter(is_new).take(2).collect();
        applied.sort_unstable();
        let files = applied.iter().map(|number| format!("f{number}"));
        let files: Vec<String> = files.collect();
        for file in &files {
            world.write(place.join(file), "MINE\n");
        }
        let run = world.last_run();
        let commands = match is_kept {
            true => vec![vec!["kept", "undo", "agent"]],
            false => vec![vec!["apply", &run, "--take-back"]],
        };
        for command in &commands {
            let refused = atoll(&world, command).expect_status(125);
            refused.is_clear_error([&files[0], &files[1], "elsewhere", &command.join(" ")]);
        }
        for file in &files {
            assert_eq!(world.read(place.join(file)), "MINE\n");
            fs::remove_file(place.join(file)).unwrap();
        }
        let _ = fine(&world, &commands[0]);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "{place:?}");
    }
}

/// Returns a killed apply of so many new files in an existing directory, killed while it renamed
/// them; `None` if the kill came at another time.
fn killed_apply(world: World, is_kept: bool, files: u32) -> Option<(World, PathBuf)> {
    let place = match is_kept {
        true => world.home().join(".agent/sessions"),
        false => world.path("d"),
    };
    world.write(place.join("own"), "own\n");
    world.profile("agent", "[home]\nkeep = [\".agent\"]\n");
    let directory = if is_kept { "~/.agent/sessions" } else { "d" };
    let script = format!("for n in $(seq 0 {files}); do echo $n > {directory}/f$n; done");
    let run = world.run(["--keep", "--profile", "agent"], &script).run();
    let _ = run.success();
    let mut applying = match is_kept {
        true => world.atoll(["kept", "apply", "agent"]).start(),
        false => world.atoll(["apply", "last"]).start(),
    };
    let named = if is_kept { "0" } else { "workspace-0" };
    let is_midway = || {
        let journal = journal_if_any(&world, named).unwrap_or_default();
        let log = fs::read_to_string(journal.join("log")).unwrap_or_default();
        stage(&journal) == "committing" && log.lines().count() > 10
    };
    while !is_midway() && applying.status().is_none() {
        std::thread::sleep(Duration::from_micros(100));
    }
    kill(applying.pid(), Signal::KILL);
    let _ = applying.wait();
    let is_cut_short = is_midway();
    is_cut_short.then_some((world, place))
}
