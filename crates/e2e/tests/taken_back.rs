//! Undo loses nothing of anybody's: files that others have made stay, overwritten ones come back.
//! And the run that `last` means, and the paths of an apply.

use std::fs;
use std::os::unix::net::UnixListener;

use e2e::{Outcome, World, fine};

fn atoll(world: &World, arguments: &[&str]) -> Outcome {
    world.atoll(arguments).run()
}

#[test]
fn undo_leaves_what_no_apply_has_written() {
    let world = World::new("undo_leaves_what_no_apply_has_written");
    let _ = world
        .run_inside("mkdir src src/deep; echo 1 > src/a; echo 2 > src/deep/b; echo 3 > c")
        .success();
    let _ = fine(&world, &["apply", "last"]);
    world.write("src/mine.c", "mywork\n");
    let undone = fine(&world, &["undo", "last"]);
    undone.says([
        "src stays",
        "not written by Atoll",
        "src/mine.c",
        "taken back",
    ]);
    assert_eq!(world.read("src/mine.c"), "mywork\n");
    for gone in ["src/a", "src/deep", "c"] {
        assert!(!world.exists(gone), "{gone} is left");
    }
    // Again, and with force, which means what changed and not what is others'.
    let _ = fine(&world, &["apply", "last"]);
    assert_eq!(world.read("src/deep/b"), "2\n");
    world.write("src/a", "edited\n");
    let _ = fine(&world, &["undo", "last", "--force"]);
    assert_eq!(world.read("src/mine.c"), "mywork\n");
    assert!(!world.exists("src/a") && !world.exists("src/deep"));
}

#[test]
fn an_undo_forgets_no_change_of_others() {
    let world = World::new("an_undo_forgets_no_change_of_others");
    world.write("a", "old\n");
    world.write("b", "old\n");
    let _ = world.run_inside("echo new > a; echo new > b").success();
    let _ = fine(&world, &["apply", "last", "a"]);
    world.write("b", "edited\n");
    let conflict = || atoll(&world, &["apply", "last"]).expect_status(125);
    conflict().says(["b"]);
    let _ = fine(&world, &["undo", "last"]);
    assert_eq!(
        (world.read("a"), world.read("b")),
        ("old\n".into(), "edited\n".into())
    );
    conflict().says(["b"]);
    assert_eq!(world.read("b"), "edited\n");
    // Where there is none, it can be applied again.
    world.write("b", "old\n");
    let _ = fine(&world, &["apply", "last", "--force"]);
    let _ = fine(&world, &["undo", "last"]);
    let _ = fine(&world, &["apply", "last"]);
    assert_eq!(world.read("b"), "new\n");
}

#[test]
fn an_undo_whose_end_was_not_noted_is_taken_back_too() {
    let world = World::new("an_undo_whose_end_was_not_noted_is_taken_back_too");
    world.write("a", "old\n");
    let _ = world.run(["--apply"], "echo new > a").run().success();
    world.write("a", "edited\n");
    let _ = fine(&world, &["undo", "last", "--force"]);
    assert_eq!(world.read("a"), "old\n");
    // As a kill would leave it, between the journal's word and the record's.
    let run = world.last_run();
    let record = world
        .state()
        .join("atoll/runs")
        .join(&run)
        .join("record.json");
    let text = fs::read_to_string(&record).unwrap();
    let unnoted = text.replace("\"undone\"", "\"applied\"");
    assert_ne!(text, unnoted);
    fs::write(&record, unnoted).unwrap();
    let _ = fine(&world, &["undo", "last", "--take-back"]);
    assert_eq!(world.read("a"), "edited\n");
    // Once.
    let again = atoll(&world, &["undo", "last", "--take-back"]).expect_status(125);
    again.says(["there is no undo to take back"]);
}

#[test]
fn a_directory_that_is_gone_is_no_runs_workspace() {
    let world = World::new("a_directory_that_is_gone_is_no_runs_workspace");
    let _ = world.run_inside("echo new > a").success();
    let script = "mkdir gone && cd gone && rmdir ../gone && \"$ATOLL\" discard last </dev/null";
    let refused = world.host("sh").args(["-c", script]).run();
    let refused = refused.expect_status(125);
    assert!(!world.runs().is_empty(), "{refused}");
}

#[test]
fn what_undo_overwrites_by_force_is_named_and_comes_back() {
    let world = World::new("what_undo_overwrites_by_force_is_named_and_comes_back");
    world.write("old", "old\n");
    let script = "echo new > old; mkdir d; for n in $(seq 12); do echo $n > d/$n; done";
    let _ = world.run(["--apply"], script).run().success();
    world.write("old", "edited\n");
    for number in 1..=12 {
        world.write(format!("d/{number}"), "edited\n");
    }
    let refused = atoll(&world, &["undo", "last"]).expect_status(125);
    let words = [
        "nothing was written",
        "d/1: it changed",
        "and 3 more: atoll undo",
        "--list names all",
        "--force",
        "--take-back",
    ];
    refused.is_clear_error(words);
    assert_eq!(world.read("old"), "edited\n");
    let forced = fine(&world, &["undo", "last", "--force"]);
    forced.says([
        "13 paths changed since",
        "13 paths had changed since",
        "--take-back",
        "d/1",
    ]);
    assert_eq!(world.read("old"), "old\n");
    assert!(!world.exists("d"));
    fine(&world, &["undo", "last", "--take-back"]).says(["applied again"]);
    assert_eq!(world.read("old"), "edited\n");
    assert_eq!(world.read("d/12"), "edited\n");
    assert_eq!(world.runs()[0]["state"], "applied");
    let story = fine(&world, &["why", "last"]).out();
    assert!(story.contains("the undo was taken back"), "{story}");
    let nothing = atoll(&world, &["undo", "last", "--take-back"]).expect_status(125);
    nothing.is_clear_error(["no undo to take back"]);
    // As often as somebody likes.
    let _ = fine(&world, &["undo", "last", "--force"]);
    let _ = fine(&world, &["undo", "last", "--take-back"]);
    assert_eq!(world.read("d/7"), "edited\n");
}

/// Returns one list of these by `--list`, as paths.
fn listed(world: &World, arguments: &[&str], member: &str) -> Vec<String> {
    let told = fine(world, &[arguments, &["--list", "--json"]].concat()).json();
    let each = told[member].as_array().unwrap().iter();
    let each = each.map(|one| one["path"].as_str().unwrap().to_owned());
    each.collect()
}

#[test]
fn all_that_an_undo_meets_is_listed_before_and_after() {
    for option in ["--apply", "--live"] {
        let world = World::new("all_that_an_undo_meets_is_listed_before_and_after");
        let script =
            "mkdir d; for n in $(seq 10 30); do echo $n > d/$n; done; mkdir e; echo 1 > e/1";
        let _ = world.run([option], script).run().success();
        let expected: Vec<String> = (10..=30).map(|number| format!("d/{number}")).collect();
        for path in &expected {
            world.write(path, "edited\n");
        }
        world.write("e/mine", "mywork\n");
        let undo = ["undo", "last"];
        assert_eq!(listed(&world, &undo, "changed"), expected, "{option}");
        let text = fine(&world, &["undo", "last", "--list"]).out();
        assert!(
            text.contains("d/30: it changed") && text.contains("e/mine"),
            "{text}"
        );
        assert_eq!(world.read("d/30"), "edited\n");
        let done = fine(&world, &["undo", "last", "--force", "--json"]).json();
        assert_eq!(done["state"], "undone", "{done}");
        assert_eq!(done["changed"].as_array().unwrap().len(), 21, "{done}");
        assert_eq!(done["stays"][0]["holds"][0], "e/mine", "{done}");
        assert_eq!(listed(&world, &undo, "changed"), expected, "{option}");
        let _ = fine(&world, &["undo", "last", "--take-back", "--json"]).json();
        assert_eq!(world.read("d/30"), "edited\n");
    }
}

#[test]
fn what_a_forced_undo_cannot_take_back_is_told() {
    let world = World::new("what_a_forced_undo_cannot_take_back_is_told");
    world.write("a", "old\n");
    world.write("b", "old\n");
    let _ = world
        .run(["--apply"], "chmod 700 a; echo new > b")
        .run()
        .success();
    fs::remove_file(world.path("a")).unwrap();
    let refused = atoll(&world, &["undo", "last"]).expect_status(125);
    refused.is_clear_error(["nothing was written", "a: "]);
    let forced = fine(&world, &["undo", "last", "--force"]);
    forced.says(["not taken back: a: ", "taken back, but for 1 path"]);
    assert_eq!(world.read("b"), "old\n");
    assert_eq!(listed(&world, &["undo", "last"], "skipped"), ["a"]);
}

#[test]
fn a_special_file_over_what_was_applied_is_never_removed() {
    for option in ["--apply", "--live"] {
        let world = World::new("a_special_file_over_what_was_applied_is_never_removed");
        let _ = world
            .run([option], "mkdir d; echo 1 > d/a; echo 1 > d/b")
            .run()
            .success();
        fs::remove_file(world.path("d/a")).unwrap();
        let socket = UnixListener::bind(world.path("d/a")).unwrap();
        for options in [&["undo", "last"][..], &["undo", "last", "--force"]] {
            let refused = atoll(&world, options).expect_status(125);
            let why = "d/a: a socket, FIFO or device is there now";
            refused.is_clear_error(["nothing was written", why]);
            assert!(world.exists("d/a") && world.exists("d/b"), "{refused}");
        }
        let in_the_way = listed(&world, &["undo", "last"], "in-the-way");
        assert_eq!(in_the_way, ["d/a"], "{option}");
        drop(socket);
        fs::remove_file(world.path("d/a")).unwrap();
        let _ = fine(&world, &["undo", "last"]);
        assert!(!world.exists("d"), "{option}");
    }
}

#[test]
fn what_undo_of_a_live_run_overwrites_comes_back() {
    let world = World::new("what_undo_of_a_live_run_overwrites_comes_back");
    world.write("old", "old\n");
    let script = "echo new > old; mkdir made; echo 1 > made/one";
    let _ = world.run(["--live"], script).run().success();
    world.write("made/mine", "mywork\n");
    world.write("old", "edited\n");
    let refused = atoll(&world, &["undo", "last"]).expect_status(125);
    refused.is_clear_error(["old: it changed", "--force", "--take-back"]);
    let _ = fine(&world, &["undo", "last", "--force"]);
    assert_eq!(world.read("old"), "old\n");
    assert_eq!(world.read("made/mine"), "mywork\n");
    assert!(!world.exists("made/one"));
    let _ = fine(&world, &["undo", "last", "--take-back"]);
    assert_eq!(world.read("old"), "edited\n");
    assert_eq!(world.read("made/one"), "1\n");
    assert_eq!(world.read("made/mine"), "mywork\n");
    assert_eq!(world.runs()[0]["state"], "written");
}

#[test]
fn nothing_is_put_back_over_others_files() {
    let world = World::new("nothing_is_put_back_over_others_files");
    world.write("a", "old\n");
    let script = "rm a; mkdir a; echo 1 > a/one; echo 2 > b";
    let _ = world.run(["--apply"], script).run().success();
    world.write("a/mine", "mywork\n");
    for options in [&["undo", "last"][..], &["undo", "last", "--force"][..]] {
        let refused = atoll(&world, options).expect_status(125);
        refused.is_clear_error(["nothing was written", "a: a directory", "elsewhere"]);
        assert_eq!(world.read("a/one"), "1\n");
        assert!(world.exists("b"));
    }
    fs::rename(world.path("a/mine"), world.path("mine")).unwrap();
    let _ = fine(&world, &["undo", "last"]);
    assert_eq!(world.read("a"), "old\n");
}

#[test]
fn an_apply_in_steps_is_undone_as_one() {
    let world = World::new("an_apply_in_steps_is_undone_as_one");
    let script = "mkdir .git .git/hooks d; echo x > .git/hooks/pre-commit; echo y > f; \
                  echo a > d/a; echo b > d/b";
    let _ = world.run_inside(script).success();
    let _ = fine(&world, &["apply", "last", "d/a"]);
    let _ = fine(&world, &["apply", "last"]);
    let _ = fine(&world, &["apply", "last", "--control"]);
    assert_eq!(world.read(".git/hooks/pre-commit"), "x\n");
    world.write("d/b", "edited\n");
    let refused = atoll(&world, &["undo", "last"]).expect_status(125);
    refused.is_clear_error(["d/b: it changed"]);
    assert!(!refused.err().contains(".git"), "{refused}");
    assert!(world.exists(".git/hooks/pre-commit"));
    world.write("d/b", "b\n");
    let _ = fine(&world, &["undo", "last"]);
    for gone in [".git", "d", "f"] {
        assert!(!world.exists(gone), "{gone} is left");
    }
    let _ = fine(&world, &["undo", "last", "--take-back"]);
    assert_eq!(world.read("d/a") + &world.read("f"), "a\ny\n");
    assert_eq!(world.read(".git/hooks/pre-commit"), "x\n");
}

#[test]
fn a_path_at_which_nothing_changed_is_an_error() {
    let world = World::new("a_path_at_which_nothing_changed_is_an_error");
    world.write("same", "same\n");
    let _ = world
        .run_inside("mkdir d; echo 1 > d/first; echo 2 > other")
        .success();
    let run = world.last_run();
    let refused = atoll(&world, &["apply", "last", "other", "d/fisrt"]).expect_status(125);
    let near = format!("atoll apply {run} d/first");
    refused.is_clear_error(["changed nothing at d/fisrt", near.as_str()]);
    assert!(!world.exists("other") && !world.exists("d"));
    let refused = atoll(&world, &["apply", "last", "same"]).expect_status(125);
    refused.is_clear_error(["changed nothing at same", "--stat"]);
    let _ = fine(&world, &["apply", "last", "d/first"]);
    // What is applied already is no mistake.
    fine(&world, &["apply", "last", "d/first"]).says(["nothing to apply"]);
}

#[test]
fn what_is_proposed_after_an_apply_in_part_does_something() {
    let world = World::new("what_is_proposed_after_an_apply_in_part_does_something");
    let ended = world
        .run(
            ["--apply"],
            "mkdir .git .git/hooks; echo x > .git/hooks/pre-commit",
        )
        .run();
    let run = world.last_run();
    let next = format!("atoll apply {run} --control");
    ended.says(["applied in part", next.as_str()]);
    let _ = fine(&world, &["apply", &run, "--control"]);
    assert!(world.exists(".git/hooks/pre-commit"));
}

#[test]
fn last_is_the_last_run_of_the_present_directory() {
    let world = World::new("last_is_the_last_run_of_the_present_directory");
    let other = world.top().join("other");
    world.write(other.join("sub/old"), "old\n");
    let run_in = |directory, script: &str| {
        let run = world.run(["--keep"], script).dir(directory).run();
        let _ = run.success();
        world.last_run()
    };
    let first = run_in(other.clone(), "echo 1 > one");
    let second = run_in(world.workspace(), "echo 2 > two");
    // Below its workspace a run is the last one there, whatever ran elsewhere since.
    let shown = world
        .atoll(["diff", "--no-pager"])
        .dir(other.join("sub"))
        .run();
    let shown = shown.success();
    assert!(
        shown.out().contains("one") && !shown.err().contains("none worked here"),
        "{shown}"
    );
    let apply = world.atoll(["apply", "last"]).dir(other.join("sub")).run();
    let applied = apply.success();
    applied.says([first.as_str(), "applied."]);
    assert_eq!(world.read(other.join("one")), "1\n");
    assert!(!world.exists("two"));
    // Where none has worked, it is the last one of all: told, and not decided about unasked.
    let place = world.workspace();
    let place = place.to_str().unwrap();
    let nowhere = world.top().join("nowhere");
    fs::create_dir(&nowhere).unwrap();
    let shown = world.atoll(["diff", "--no-pager"]).dir(&nowhere).run();
    shown
        .success()
        .says([second.as_str(), place, "none worked here"]);
    let shred = ["ledger", "shred", "last"];
    for line in [
        &["apply", "last"][..],
        &["undo", "last"],
        &["discard", "last"],
        &shred,
    ] {
        let refused = world.atoll(line).dir(&nowhere).run().expect_status(125);
        refused.is_clear_error([second.as_str(), place, "if that is meant"]);
    }
    assert!(!world.exists("two"));
    for (answer, is_applied) in [("n", false), ("y", true)] {
        let mut terminal = world
            .atoll(["apply", "last"])
            .dir(&nowhere)
            .on_terminal(24, 120);
        terminal.expect("[y/N]");
        terminal.line(answer);
        let ended = terminal.wait();
        assert_eq!(ended.code() == 0, is_applied, "{ended}");
        assert_eq!(world.exists("two"), is_applied);
    }
    // By its id it can be decided about from anywhere, and where is told.
    let undone = world.atoll(["undo", &second]).dir(&nowhere).run();
    undone.success().says([place]);
    assert!(!world.exists("two"));
}

#[test]
fn a_run_with_discard_that_goes_on_is_listed() {
    let world = World::new("a_run_with_discard_that_goes_on_is_listed");
    let _ = world.run(["--keep"], "echo 1 > one").run().success();
    let kept = world.last_run();
    let mut running = world.run(["--discard"], "echo begun; read line").start();
    running.until_stdout("begun");
    let listed = fine(&world, &["runs", "--json", "--state", "running"]).json();
    let run = listed[0]["run"].as_str().unwrap().to_owned();
    assert_ne!(run, kept);
    assert_eq!(listed[0]["command"][0], "sh", "{listed:#}");
    let table = fine(&world, &["runs"]).out();
    let first = table.lines().nth(1).unwrap_or_default();
    assert!(first.contains(&run) && first.contains("running"), "{table}");
    for line in [
        &["diff", "last"][..],
        &["apply", "last"],
        &["discard", &run],
    ] {
        let refused = atoll(&world, line).expect_status(125);
        refused.is_clear_error([run.as_str(), "goes on", "--discard", "atoll stop"]);
        assert!(!refused.err().contains("was discarded"), "{refused}");
    }
    running.send("\n");
    let _ = running.wait().success();
    assert_eq!(
        fine(&world, &["runs", "--json"])
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let gone = atoll(&world, &["diff", "last"]).expect_status(125);
    gone.is_clear_error([run.as_str(), "was discarded"]);
}
