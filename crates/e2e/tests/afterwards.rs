//! The commands that look at runs afterwards: a run's outcome, its changes, and applying, undoing
//! or discarding them.

use std::fs;
use std::path::PathBuf;

use e2e::{Avoidable, World, fine, is_root, program_exists};

const NONE: [&str; 0] = [];

#[test]
fn the_summary_tells_time_memory_files_and_what_to_do() {
    let world = World::new("the_summary_tells_time_memory_files_and_what_to_do");
    world.write("old", "old");
    world.write("gone", "gone");
    let ended = world
        .run_inside("echo new > new; echo more >> old; rm gone")
        .success();
    let run = world.last_run();
    ended.says([
        run.as_str(),
        "succeeded",
        "processor",
        "1 added",
        "1 changed",
        "1 removed",
    ]);
    ended.says(["atoll apply", "atoll diff"]);
    let nothing = world.run_inside("true").success();
    nothing.says(["nothing changed"]);
    let failed = world.run_inside("exit 9").expect_status(9);
    failed.says(["failed with status 9"]);
}

#[test]
fn no_color_and_no_terminal_mean_no_colours() {
    let world = World::new("no_color_and_no_terminal_mean_no_colours");
    let plain = world.run_inside("echo a > a").success();
    assert!(!plain.err().contains('\x1b'), "{plain}");
    let forced = world
        .run(NONE, "echo a > a")
        .env("CLICOLOR_FORCE", "1")
        .run()
        .success();
    assert!(forced.err().contains('\x1b'), "{forced}");
    let both = world
        .run(NONE, "echo a > a")
        .env("CLICOLOR_FORCE", "1")
        .env("NO_COLOR", "1")
        .run()
        .success();
    assert!(!both.err().contains('\x1b'), "{both}");
}

#[test]
fn runs_are_listed_for_people_and_for_machines() {
    let world = World::new("runs_are_listed_for_people_and_for_machines");
    let none = fine(&world, &["runs"]);
    none.says(["no runs"]);
    assert_eq!(
        fine(&world, &["runs", "--json"]).json(),
        serde_json::json!([])
    );
    let _ = world.run_inside("echo 1 > one").success();
    let _ = world.run_inside("exit 5").expect_status(5);
    let listed = fine(&world, &["runs", "--json"]).json();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 2, "{listed:#?}");
    assert_eq!(listed[0]["exit"], 5);
    assert_eq!(listed[1]["exit"], 0);
    let table = fine(&world, &["runs"]).out();
    for run in listed {
        assert!(table.contains(run["run"].as_str().unwrap()), "{table}");
    }
    assert!(table.contains("kept"), "{table}");
}

#[test]
fn the_last_run_is_the_one_started_last_even_within_a_second() {
    let world = World::new("the_last_run_is_the_one_started_last_even_within_a_second");
    for index in 0..8 {
        let _ = world
            .run_inside(&format!("echo {index} > made-{index}"))
            .success();
        let shown = fine(&world, &["diff", "last", "--stat"]).out();
        assert_eq!(shown, format!("A made-{index}\n"));
    }
}

#[test]
fn a_run_is_found_by_part_of_its_id() {
    let world = World::new("a_run_is_found_by_part_of_its_id");
    let _ = world.run_inside("echo 1 > one").success();
    let run = world.last_run();
    let part = run.rsplit('-').next().unwrap();
    assert!(fine(&world, &["diff", part]).out().contains("one"));
    let missing = world.atoll(["diff", "zzzzzzzz"]).run().expect_status(125);
    missing.is_clear_error(["zzzzzzzz", "atoll runs"]);
}

#[test]
fn diff_shows_text_names_binaries_and_counts() {
    let world = World::new("diff_shows_text_names_binaries_and_counts");
    world.write("text", "one\ntwo\nthree\n");
    world.write("binary", [0, 1, 2, 3]);
    world.write("gone", "bye\n");
    let script = "sed -i s/two/zwei/ text; printf '\\0\\1\\377' > binary; rm gone; echo new > new";
    let _ = world.run_inside(script).success();
    let shown = fine(&world, &["diff"]).out();
    for line in ["-two", "+zwei", " one", "+new", "-bye"] {
        assert!(
            shown.lines().any(|seen| seen == line),
            "{line:?} is not in\n{shown}"
        );
    }
    let binary = shown
        .split("diff --git ")
        .find(|part| part.starts_with("a/binary "));
    assert!(binary.unwrap().contains("\nGIT binary patch\n"), "{shown}");
    let one = fine(&world, &["diff", "last", "new"]).out();
    assert!(one.contains("+new") && !one.contains("zwei"), "{one}");
    let count = fine(&world, &["diff", "last", "--stat"]).out();
    for line in ["M text", "M binary", "D gone", "A new"] {
        assert!(
            count.lines().any(|seen| seen.starts_with(line)),
            "{line:?} is not in\n{count}"
        );
    }
}

#[test]
fn a_diff_is_a_patch_that_patch_understands() {
    let world = World::new("a_diff_is_a_patch_that_patch_understands");
    if !program_exists("patch") && !program_exists("git") {
        return world.skip("neither patch nor git is installed", Avoidable::Yes);
    }
    world.write("text", "one\ntwo\nthree\n");
    let _ = world
        .run_inside("sed -i s/two/zwei/ text; echo new > new")
        .success();
    let patch = world.top().join("changes.patch");
    world.write(&patch, fine(&world, &["diff", "last", "--no-pager"]).stdout);
    let apply = if program_exists("git") {
        "git apply -p1"
    } else {
        "patch -p1 -i"
    };
    let _ = world
        .host_shell(&format!("{apply} '{}'", patch.display()))
        .run()
        .success();
    assert_eq!(world.read("text"), "one\nzwei\nthree\n");
    assert_eq!(world.read("new"), "new\n");
}

#[test]
fn diff_as_json_names_each_change() {
    let world = World::new("diff_as_json_names_each_change");
    world.write("text", "one\n");
    let _ = world
        .run_inside("echo two >> text; echo 12345 > new")
        .success();
    let told = fine(&world, &["diff", "last", "--json"]).json();
    let changes = told["changes"].as_array().unwrap();
    let find = |path: &str| {
        changes
            .iter()
            .find(|one| one["path"] == path)
            .unwrap()
            .clone()
    };
    assert_eq!(find("text")["kind"], "modified");
    assert_eq!(find("new")["kind"], "added");
    assert_eq!(find("new")["bytes"], 6);
    assert_eq!(find("new")["class"], "ordinary");
    assert_eq!(changes.len(), 2, "{told:#}");
}

#[test]
fn apply_takes_all_changes_over_and_undo_takes_them_back() {
    let world = World::new("apply_takes_all_changes_over_and_undo_takes_them_back");
    world.write("text", "one\n");
    let _ = world
        .run_inside("echo two >> text; mkdir d; echo new > d/new")
        .success();
    assert_eq!(world.read("text"), "one\n");
    fine(&world, &["apply", "last"]).says(["applied", "atoll undo"]);
    assert_eq!(world.read("text"), "one\ntwo\n");
    assert_eq!(world.read("d/new"), "new\n");
    fine(&world, &["undo", "last"]).says(["taken back"]);
    assert_eq!(world.read("text"), "one\n");
    assert!(!world.exists("d"));
}

#[test]
fn apply_takes_only_the_named_paths_over() {
    let world = World::new("apply_takes_only_the_named_paths_over");
    let _ = world
        .run_inside("mkdir a b; echo 1 > a/one; echo 2 > a/two; echo 3 > b/three")
        .success();
    let _ = fine(&world, &["apply", "last", "a/one"]);
    assert!(world.exists("a/one") && !world.exists("a/two") && !world.exists("b"));
    let state = world.runs()[0]["state"].as_str().unwrap().to_owned();
    assert!(state.contains("part"), "{state}");
    let _ = fine(&world, &["apply", "last", "b"]);
    assert!(world.exists("b/three") && !world.exists("a/two"));
}

#[test]
fn what_was_applied_in_parts_is_undone_whole() {
    let world = World::new("what_was_applied_in_parts_is_undone_whole");
    let _ = world.run_inside("echo 1 > one; echo 2 > two").success();
    let _ = fine(&world, &["apply", "last", "one"]);
    let _ = fine(&world, &["apply", "last", "two"]);
    let _ = fine(&world, &["undo", "last"]);
    assert!(!world.exists("two"), "the second part is left");
    assert!(!world.exists("one"), "the first part is left");
}

#[test]
fn apply_at_the_end_of_a_run() {
    let world = World::new("apply_at_the_end_of_a_run");
    let _ = world.run(["--apply"], "echo new > new").run().success();
    assert_eq!(world.read("new"), "new\n");
    let _ = world
        .run(["--apply"], "echo newer > new; exit 4")
        .run()
        .expect_status(4);
    assert_eq!(world.read("new"), "newer\n");
}

#[test]
fn discard_throws_the_changes_away() {
    let world = World::new("discard_throws_the_changes_away");
    let _ = world.run_inside("echo new > new").success();
    let run = world.last_run();
    fine(&world, &["discard", &run]).says(["discarded"]);
    assert!(!world.exists("new"));
    assert!(world.runs().is_empty());
    let left: Vec<PathBuf> = fs::read_dir(world.state().join("atoll/runs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let gone = world.atoll(["apply", &run]).run().expect_status(125);
    gone.is_clear_error(["was discarded", "atoll why"]);
    let story = fine(&world, &["why", &run]).out();
    assert!(story.contains("after     discarded, 2"), "{story}");
}

#[test]
fn why_tells_the_story_of_a_run() {
    let world = World::new("why_tells_the_story_of_a_run");
    let _ = world.run_inside("exit 3").expect_status(3);
    let story = fine(&world, &["why"]).out();
    assert!(
        story.contains("profile default") && story.contains("failed with status 3"),
        "{story}"
    );
    let none = World::new("why_tells_the_story_of_a_run");
    let refused = none.atoll(["why"]).run().expect_status(125);
    refused.is_clear_error(["no runs"]);
}

#[test]
fn gc_removes_what_is_not_needed_and_says_it_before() {
    let world = World::new("gc_removes_what_is_not_needed_and_says_it_before");
    let _ = fine(&world, &["gc"]);
    let _ = world.run_inside("echo new > new").success();
    let run = world.last_run();
    let _ = fine(&world, &["gc"]);
    assert_eq!(world.last_run(), run, "kept changes are gone");
    let dry = fine(&world, &["gc", "--older-than", "1ms", "--dry-run"]);
    assert!(dry.out().contains(&run), "{dry}");
    dry.says(["would be removed"]);
    assert_eq!(world.last_run(), run, "a dry run removed it");
    let wet = fine(&world, &["gc", "--older-than", "1ms"]);
    wet.says(["1 run removed"]);
    assert!(world.runs().is_empty());
}

/// Each state behaves as `atoll gc --help` states.
#[test]
fn gc_keeps_to_what_its_help_says() {
    let world = World::new("gc_keeps_to_what_its_help_says");
    let made = |commands: &[&str], days: u32| {
        // A control file, so that an apply is one in part.
        let script = "echo $ATOLL_RUN > \"$ATOLL_RUN\"; echo $ATOLL_RUN > .envrc";
        let _ = world.run_inside(script).success();
        let run = world.last_run();
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            let (command, options) = words.split_first().unwrap();
            let words = [&[*command, run.as_str()], options].concat();
            let _ = fine(&world, &words);
        }
        let record = world
            .state()
            .join("atoll/runs")
            .join(&run)
            .join("record.json");
        let age = format!("--date={days} days ago");
        let _ = world.host("touch").arg(age).arg(record).run().success();
        run
    };
    let whole = "apply --control --force";
    let gone_on_with = made(&[], 0);
    let resume = ["--keep", "--resume", gone_on_with.as_str()];
    let _ = world.run(resume, "true").run().success();
    let going_on = world.last_run();
    let undone = made(&[whole, "undo"], 29);
    let undone_long_ago = made(&[whole, "undo"], 31);
    let applied = made(&[whole], 29);
    let applied_long_ago = made(&[whole], 31);
    let in_part_long_ago = made(&["apply"], 31);
    let kept = made(&[], 29);
    let kept_long_ago = made(&[], 31);
    let left = || -> Vec<String> {
        let runs = world.runs();
        let mut runs: Vec<_> = runs
            .iter()
            .map(|run| run["run"].as_str().unwrap().to_owned())
            .collect();
        runs.sort_unstable();
        runs
    };
    let sorted = |mut runs: Vec<&String>| {
        runs.sort_unstable();
        runs.into_iter().cloned().collect::<Vec<_>>()
    };
    let go = [&gone_on_with, &undone_long_ago, &applied_long_ago];
    let stay = vec![
        &going_on,
        &undone,
        &applied,
        &in_part_long_ago,
        &kept,
        &kept_long_ago,
    ];
    assert_eq!(left().len(), go.len() + stay.len());
    fine(&world, &["gc"]).says(["3 runs removed"]);
    assert_eq!(left(), sorted(stay));
    let _ = fine(&world, &["gc", "--older-than", "30d"]);
    assert_eq!(left(), sorted(vec![&going_on, &undone, &applied, &kept]));
    let _ = fine(&world, &["gc", "--older-than", "28d"]);
    assert_eq!(left(), [going_on]);
}

#[test]
fn undo_of_a_live_run_leaves_what_came_later() {
    let world = World::new("undo_of_a_live_run_leaves_what_came_later");
    world.write("m", "mine\n");
    world.write("shared/old", "old\n");
    world.write("gone", "gone\n");
    world.write("same", "same\n");
    let script = "echo agent > ag; mkdir made; echo 1 > made/one; echo new > shared/old; rm gone";
    let _ = world.run(["--live"], script).run().success();
    world.write("human/w", "work\n");
    world.write("m", "edited\n");
    world.write("shared/mine", "mine\n");
    let _ = fine(&world, &["undo", "last"]);
    for gone in ["ag", "made"] {
        assert!(!world.exists(gone), "{gone} is left");
    }
    assert_eq!(world.read("shared/old"), "old\n");
    assert_eq!(world.read("gone"), "gone\n");
    assert_eq!(world.read("human/w"), "work\n");
    assert_eq!(world.read("shared/mine"), "mine\n");
    assert_eq!(world.read("m"), "edited\n");
    let again = world.atoll(["undo", "last"]).run().expect_status(125);
    again.is_clear_error(["taken back already"]);
    // Nothing of it is in the workspace any more, so that discarding asks nothing.
    let _ = fine(&world, &["discard", "last"]);
    assert_eq!(world.read("m"), "edited\n");
}

#[test]
fn undo_of_a_live_run_refuses_what_changed_since_its_end() {
    let world = World::new("undo_of_a_live_run_refuses_what_changed_since_its_end");
    world.write("gone", "gone\n");
    world.write("olddir/a", "a\n");
    let script = "echo agent > ag; echo agent > edited; mkdir made; echo 1 > made/one; rm gone; \
                  rm -r olddir; mkdir kept; echo 1 > kept/one";
    let _ = world.run(["--live"], script).run().success();
    world.write("edited", "later\n");
    world.write("made/mine", "mine\n");
    world.write("gone", "back\n");
    world.write("olddir/b", "b\n");
    let refused = world.atoll(["undo", "last"]).run().expect_status(125);
    refused.is_clear_error(["edited", "gone", "olddir", "--force"]);
    assert!(!refused.err().contains("made"), "{refused}");
    assert!(!refused.err().contains("kept: "), "{refused}");
    for (path, text) in [
        ("ag", "agent\n"),
        ("edited", "later\n"),
        ("made/mine", "mine\n"),
        ("gone", "back\n"),
        ("olddir/b", "b\n"),
        ("kept/one", "1\n"),
    ] {
        assert_eq!(world.read(path), text, "{path}");
    }
    let _ = fine(&world, &["undo", "last", "--force"]);
    for gone in ["ag", "edited", "made/one", "kept"] {
        assert!(!world.exists(gone), "{gone} is left");
    }
    // What the run has not made is nothing to take back.
    assert_eq!(world.read("made/mine"), "mine\n");
    assert_eq!(world.read("olddir/b"), "b\n");
    assert_eq!(world.read("gone"), "gone\n");
    assert_eq!(world.read("olddir/a"), "a\n");
}

#[test]
fn a_live_run_whose_end_nobody_saw_is_undone_by_force_only() {
    let world = World::new("a_live_run_whose_end_nobody_saw_is_undone_by_force_only");
    world.write("m", "mine\n");
    let _ = world.run(["--live"], "echo agent > ag").run().success();
    world.write("m", "edited\n");
    let kept = world.state().join("atoll/runs").join(world.last_run());
    fs::remove_file(kept.join("left-workspace.json")).unwrap();
    let refused = world.atoll(["undo", "last"]).run().expect_status(125);
    refused.is_clear_error(["nobody saw its end", "--force"]);
    assert!(world.exists("ag"));
    assert_eq!(world.read("m"), "edited\n");
    fine(&world, &["undo", "last", "--force"]).says(["nobody saw the end"]);
    assert!(!world.exists("ag"));
    assert_eq!(world.read("m"), "mine\n");
}

#[test]
fn discard_does_not_touch_the_workspace_of_a_live_run() {
    let world = World::new("discard_does_not_touch_the_workspace_of_a_live_run");
    let _ = world.run(["--live"], "echo agent > ag").run().success();
    let refused = world.atoll(["discard", "last"]).run().expect_status(125);
    refused.is_clear_error(["--live", "atoll undo"]);
    assert_eq!(world.read("ag"), "agent\n");
    assert_eq!(world.runs().len(), 1);
    let _ = fine(&world, &["undo", "last"]);
    assert!(!world.exists("ag"));
    // At its own end, before anything can come later, it is asked for knowingly.
    let _ = world
        .run(["--live", "--discard"], "echo agent > ag")
        .run()
        .success();
    assert!(!world.exists("ag"));
}

#[test]
fn a_refused_undo_has_written_nothing() {
    let world = World::new("a_refused_undo_has_written_nothing");
    world.write(".gitignore", "*.log\n");
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    let _ = world
        .run_inside("echo a > a.txt; echo x > .envrc; echo l > b.log")
        .success();
    for options in [None, Some("--control"), Some("--ignored")] {
        let line: Vec<&str> = ["apply", "last"].into_iter().chain(options).collect();
        let _ = fine(&world, &line);
    }
    world.write("a.txt", "later\n");
    let refused = world.atoll(["undo", "last"]).run().expect_status(125);
    refused.is_clear_error(["a.txt", "--force"]);
    assert_eq!(world.read("a.txt"), "later\n");
    assert!(world.exists(".envrc"), "control files are taken back");
    assert!(world.exists("b.log"), "ignored files are taken back");
    let _ = fine(&world, &["undo", "last", "--force"]);
    for gone in ["a.txt", ".envrc", "b.log"] {
        assert!(!world.exists(gone), "{gone} is left");
    }
}

#[test]
fn last_is_the_last_run_whatever_became_of_it() {
    let world = World::new("last_is_the_last_run_whatever_became_of_it");
    let _ = world.run(["--keep"], "echo a > a").run().success();
    let kept = world.last_run();
    let _ = world.run(["--discard"], "echo b > b").run().success();
    for command in ["discard", "apply", "undo", "diff"] {
        let refused = world.atoll([command, "last"]).run().expect_status(125);
        refused.is_clear_error(["was discarded", kept.as_str()]);
    }
    let resumed = world
        .run(["--resume", "last"], "true")
        .run()
        .expect_status(125);
    resumed.is_clear_error(["was discarded", kept.as_str()]);
    assert!(!world.exists("a") && world.last_run() == kept);
    // What is done about an older run does not make it the last one.
    let _ = world.run_inside("echo c > c").success();
    let newest = world.last_run();
    let _ = fine(&world, &["apply", &kept]);
    let story = fine(&world, &["why", "last"]).out();
    assert!(!story.contains("applied"), "{story}");
    let shown = fine(&world, &["diff", "last", "--stat"]).out();
    assert_eq!(shown, "A c\n");
    let _ = fine(&world, &["discard", &newest]);
    let refused = world.atoll(["discard", "last"]).run().expect_status(125);
    refused.is_clear_error([newest.as_str(), "was discarded"]);
    assert_eq!(world.last_run(), kept);
}

#[test]
fn a_run_that_was_discarded_is_told_as_such() {
    let world = World::new("a_run_that_was_discarded_is_told_as_such");
    let _ = world.run_inside("echo 1 > one").success();
    let run = world.last_run();
    let _ = fine(&world, &["discard", &run]);
    for name in ["last", run.as_str(), run.rsplit('-').next().unwrap()] {
        let gone = world.atoll(["diff", name]).run().expect_status(125);
        gone.is_clear_error([run.as_str(), "was discarded", "atoll why"]);
    }
    let _ = world.run_inside("echo 2 > two").success();
    let gone = world.atoll(["apply", &run]).run().expect_status(125);
    gone.is_clear_error([run.as_str(), "was discarded"]);
    let never = world.atoll(["diff", "zzzzzzzz"]).run().expect_status(125);
    never.is_clear_error(["zzzzzzzz", "atoll runs"]);
}

/// Programs that git's configuration outside names are run by git: they wait for approval as a hook
/// in `.git` does, and a live run cannot write to existing ones.
#[test]
fn apply_programs_that_git_names_wait_for_control() {
    let world = World::new("apply_programs_that_git_names_wait_for_control");
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    for (setting, file) in [
        ("hooksPath = tools/hooks", "tools/hooks/pre-commit"),
        ("fsmonitor = ./watch.sh", "watch.sh"),
    ] {
        world.write(".git/config", format!("[core]\n\t{setting}\n"));
        let script = format!("mkdir -p tools/hooks; echo evil > {file}; echo fine > fine");
        let _ = world.run_inside(&script).success();
        let applied = fine(&world, &["apply", "last"]);
        applied.says(["not applied without --control", file]);
        assert!(!world.exists(file), "{file} was applied");
        assert_eq!(world.read("fine"), "fine\n");
        let _ = fine(&world, &["apply", "last", "--control"]);
        assert_eq!(world.read(file), "evil\n");

        let script = format!("echo worse > {file}; rm -f {file}; mv tools away; true");
        let _ = world.run(["--live"], &script).run();
        assert_eq!(world.read(file), "evil\n", "a live run wrote {file}");
    }
    // What is not there cannot be kept read-only: it is told of, and taken back.
    fs::remove_file(world.workspace().join("watch.sh")).unwrap();
    let ended = world.run(["--live"], "echo evil > watch.sh").run();
    ended
        .success()
        .says(["run or trusted by programs outside", "watch.sh"]);
    let _ = fine(&world, &["undo", "last"]);
    assert!(!world.exists("watch.sh"));
}

#[test]
fn git_takes_a_diff_with_control_files_directories_and_binaries() {
    let world = World::new("git_takes_a_diff_with_control_files_directories_and_binaries");
    if !program_exists("git") {
        return world.skip("git is not installed", Avoidable::Yes);
    }
    world.write("text", "one\n");
    world.write("tree/deep/gone", "1\n");
    world.write("moved/file", "1\n");
    let script = "echo two >> text; chmod 700 text; mkdir empty; printf '\\0\\1' > binary; \
                  echo run > .envrc; rm -r tree; mv moved there; ln -s text link";
    let _ = world.run_inside(script).success();
    let patch = world.top().join("changes.patch");
    world.write(&patch, fine(&world, &["diff", "last", "--no-pager"]).stdout);
    for check in ["--check", ""] {
        let command = format!("git apply {check} '{}'", patch.display());
        let _ = world.host_shell(&command).run().success();
    }
    assert_eq!(world.read("text"), "one\ntwo\n");
    assert_eq!(world.read(".envrc"), "run\n");
    assert_eq!(world.read("there/file"), "1\n");
    assert_eq!(fs::read(world.path("binary")).unwrap(), b"\0\x01");
    let _ = world
        .host_shell(
            "test -x text && test -L link && ! test -e tree/deep/gone && ! test -e moved/file",
        )
        .run()
        .success();
}

#[test]
fn mistakes_are_told_with_what_was_meant() {
    let world = World::new("mistakes_are_told_with_what_was_meant");
    for (options, told) in [
        (["--limit", "memry=1GiB"], "--limit memory=1GiB"),
        (["--profile", "rsut"], "did you mean \"rust\""),
        (["--env", "CI_*"], "wildcards are for profiles"),
    ] {
        let refused = world.run(options, "true").run().expect_status(125);
        refused.is_clear_error([told]);
    }
    let missing = world.atoll(["run", "--", "./nosuch"]).run();
    missing
        .expect_status(127)
        .says(["there is no file ./nosuch in"]);
    let passed = world
        .run(["--env", "NPM_TOKEN"], "true")
        .env("NPM_TOKEN", "t")
        .run()
        .success();
    passed.says(["NPM_TOKEN is passed on", "secret"]);
    let forgotten = world.run(["--env", "NPM_TOKEM"], "true").run().success();
    forgotten.says(["NPM_TOKEM is not set"]);
}

#[test]
fn runs_are_undone_one_after_the_other_by_content() {
    let world = World::new("runs_are_undone_one_after_the_other_by_content");
    world.write("text", "one\n");
    let script = "echo two >> text; mkdir d; echo 2 > d/f; ln -s f d/l";
    let _ = world.run(["--apply"], script).run().success();
    let first = world.last_run();
    let _ = world
        .run(["--apply"], "echo three >> text; echo 3 > d/f; rm d/l")
        .run()
        .success();
    let second = world.last_run();
    let _ = fine(&world, &["undo", &second]);
    assert_eq!(world.read("text"), "one\ntwo\n");
    // The same length and time, but not what the run wrote.
    let time = fs::metadata(world.path("text"))
        .unwrap()
        .modified()
        .unwrap();
    world.write("text", "one\nTWO\n");
    let file = fs::File::options()
        .write(true)
        .open(world.path("text"))
        .unwrap();
    file.set_modified(time).unwrap();
    drop(file);
    let refused = world.atoll(["undo", &first]).run().expect_status(125);
    refused.is_clear_error(["text", "--force"]);
    world.write("text", "one\ntwo\n");
    let _ = fine(&world, &["undo", &first]);
    assert_eq!(world.read("text"), "one\n");
    assert!(!world.exists("d"));
}

/// An apply meets a conflict with what somebody wrote, and none with what Atoll has put back.
#[test]
fn apply_meets_no_conflict_with_own_writes() {
    let world = World::new("apply_meets_no_conflict_with_own_writes");
    world.write("f", "0\n");
    world.write("d/g", "0\n");
    let first = ran(&world, "echo a > f; echo a > d/g; echo a > h");
    let second = ran(&world, "echo b > f; rm d/g; echo b > h");
    let _ = fine(&world, &["apply", &first]);
    let _ = fine(&world, &["undo", &first]);
    let _ = fine(&world, &["apply", &second]);
    assert_eq!(
        (world.read("f"), world.exists("d/g")),
        ("b\n".into(), false)
    );
    let _ = fine(&world, &["undo", &second]);
    let _ = fine(&world, &["apply", &first]);
    let _ = fine(&world, &["undo", &first]);
    assert_eq!(
        (world.read("f"), world.read("d/g")),
        ("0\n".into(), "0\n".into())
    );
    // A run that began while the first one's changes stood there has worked on those.
    let _ = fine(&world, &["apply", &first]);
    let third = ran(&world, "echo c > f");
    let _ = fine(&world, &["undo", &first]);
    let refused = world.atoll(["apply", &third]).run();
    refused.says(["f: it changed outside meanwhile"]);
    world.write("f", "mine\n");
    let refused = world.atoll(["apply", &second]).run();
    assert_eq!(refused.code(), 125, "{refused}");
    refused.says(["f: it changed outside meanwhile"]);
}

/// `git status` writes the index anew, which changes nothing of it.
#[test]
fn undo_ignores_an_index_that_git_status_wrote() {
    let world = World::new("undo_ignores_an_index_that_git_status_wrote");
    if !program_exists("git") {
        return world.skip("git is not installed", Avoidable::Yes);
    }
    let begun = "git init -q && echo 1 > f && git add f && \
                 git -c user.name=a -c user.email=a@h commit -qm one";
    let _ = world.host_shell(begun).run().success();
    let changed = "echo 2 > f; git add f; git -c user.name=a -c user.email=a@h commit -qm two";
    let run = ran(&world, changed);
    let _ = fine(&world, &["apply", &run]);
    let index = || fs::read(world.path(".git/index")).unwrap();
    let before = index();
    // Another time of the file: git looks at it, and writes what it has seen.
    let status = "touch -d '2 hours ago' f && git status --short";
    let _ = world.host_shell(status).run().success();
    assert_ne!(index(), before, "git status has written nothing");
    let _ = fine(&world, &["undo", &run]);
    assert_eq!(world.read("f"), "1\n");
}

/// Runs a script in a sandbox; returns the run.
fn ran(world: &World, script: &str) -> String {
    let _ = world.run_inside(script).success();
    world.last_run()
}

/// `--apply` is for work that came to its end: not where a signal or a limit cut it off.
#[test]
fn apply_at_the_end_leaves_what_was_cut_off() {
    let world = World::new("apply_at_the_end_leaves_what_was_cut_off");
    let killed = world.run(["--apply"], "echo half > f; kill -KILL $$").run();
    killed.says(["nothing is applied", "atoll apply"]);
    assert_eq!((killed.code(), world.exists("f")), (137, false), "{killed}");
    let options = ["--apply", "--timeout", "1s"];
    let late = world.run(options, "echo half > f; exec sleep 60").run();
    late.says(["nothing is applied"]);
    assert!(!world.exists("f"), "{late}");
    let _ = fine(&world, &["apply", "last"]);
    assert_eq!(world.read("f"), "half\n");
    // The control: a program that failed by itself has done its work.
    let failed = world.run(["--apply"], "echo whole > f; exit 3").run();
    assert_eq!(
        (failed.code(), world.read("f")),
        (3, "whole\n".into()),
        "{failed}"
    );
}

/// On a full disk runs can still be removed, which makes room again.
#[test]
fn runs_are_removed_from_a_full_disk() {
    let world = World::new("runs_are_removed_from_a_full_disk");
    if !is_root() {
        return world.skip("needs root, to mount a small disk", Avoidable::No);
    }
    let script = r#"
        mkdir -p "$XDG_STATE_HOME" && mount -t tmpfs -o size=2m,mode=700 none "$XDG_STATE_HOME" || exit 9
        for n in 1 2; do
            "$ATOLL" run --keep -- sh -c "head -c 300000 /dev/urandom > big$n" || exit 8
        done
        head -c 9000000 /dev/zero > "$XDG_STATE_HOME/fill"
        echo more > "$XDG_STATE_HOME/more" && exit 7
        for run in $(ls "$XDG_STATE_HOME/atoll/runs"); do
            "$ATOLL" discard $run && "$ATOLL" gc || exit 6
        done
        "$ATOLL" ledger verify > verified; echo "ended $?"
    "#;
    let seen = world.mount_shell(script).run();
    assert_eq!(seen.out().lines().last(), Some("ended 0"), "{seen}");
}

/// Whatever cannot be written for want of space or inodes, the error says so.
#[test]
fn full_disk_is_named_by_apply_and_undo() {
    let world = World::new("full_disk_is_named_by_apply_and_undo");
    if !is_root() {
        return world.skip("needs root, to mount a small disk", Avoidable::No);
    }
    for (option, fill) in [
        (
            "nr_inodes=400",
            "while true > \"$fill$n\"; do n=$((n + 1)); done",
        ),
        ("size=3m", "head -c 9000000 /dev/zero > \"$fill\""),
    ] {
        let script = format!(
            r#"
            mkdir -p "$XDG_STATE_HOME" && fill=$XDG_STATE_HOME/fill n=0
            mount -t tmpfs -o mode=700,{option} none "$XDG_STATE_HOME" || exit 9
            "$ATOLL" run --keep -- sh -c "echo $$ > f" || exit 8
            {fill} 2> /dev/null
            "$ATOLL" apply last 2> told && exit 7
            rm "$fill"*; "$ATOLL" apply last || exit 6
            {fill} 2> /dev/null
            "$ATOLL" undo last 2>> told && exit 5
            rm "$fill"*; "$ATOLL" undo last"#
        );
        let seen = world.mount_shell(&script).run().success();
        let told = world.read("told");
        let named = told.matches("no space").count();
        assert_eq!(named, 2, "{option}: {told}{seen}");
        assert!(!told.contains("the run is in use"), "{option}: {told}");
    }
}

/// Commits are told as commits, and git's own files by their number, after the sources.
#[test]
fn summary_and_stat_show_commits() {
    let world = World::new("summary_and_stat_show_commits");
    if !program_exists("git") {
        return world.skip("git is not installed", Avoidable::Yes);
    }
    let _ = world.host_shell("git init -q -b trunk").run().success();
    let commit = "git -c user.name=a -c user.email=a@h commit -qm";
    let script =
        format!("echo 1 > f; git add f; {commit} \"$(printf 'One\\033[31m: a\\n\\nMore')\"");
    let ran = world.run_inside(&script).success();
    ran.says(["+ f\n", "commits  trunk  one", " in .git\n"]);
    assert!(
        !ran.err().contains("objects") && !ran.err().contains("\u{1b}[31m"),
        "{ran}"
    );
    let stat = fine(&world, &["diff", "--stat", "last"]).out();
    let lines: Vec<&str> = stat.lines().collect();
    assert_eq!(lines[0], "A f", "{stat}");
    assert!(
        lines[1].starts_with("# commit on trunk: One") && lines[1].ends_with(": a"),
        "{stat}"
    );
    assert!(
        lines[2].contains("files of git not shown") && lines.len() == 3,
        "{stat}"
    );
    let all = fine(&world, &["diff", "--stat", "last", ".git"]).out();
    assert!(all.contains("A .git/objects/"), "{all}");
}

#[test]
fn discard_without_a_run_names_what_could_be_meant() {
    let world = World::new("discard_without_a_run_names_what_could_be_meant");
    let _ = world.run_inside("echo new > new").success();
    let run = world.last_run();
    let refused = world.atoll(["discard"]).run().expect_status(125);
    refused.is_clear_error([run.as_str(), "atoll discard last", "atoll discard --all"]);
    assert_eq!(world.last_run(), run);
}

#[test]
fn gc_says_what_is_held_and_what_frees_it() {
    let world = World::new("gc_says_what_is_held_and_what_frees_it");
    let _ = world
        .run_inside("head -c 3000000 /dev/urandom > big")
        .success();
    let kept = world.last_run();
    let _ = world.run_inside("echo 1 > one").success();
    let applied = world.last_run();
    let _ = fine(&world, &["apply", &applied]);
    for arguments in [&["gc"][..], &["gc", "--dry-run"]] {
        let told = fine(&world, arguments);
        let of_kept = format!("{kept} (kept, 2.9 MiB): atoll discard {kept} frees it");
        let of_applied = format!("{applied} (applied, ");
        told.says([
            "Held:",
            &of_kept,
            &of_applied,
            "says when it goes",
            "the ledger (",
        ]);
    }
}

#[test]
fn plain_approvals_list() {
    let world = World::new("plain_approvals_list");
    for arguments in [
        &["approvals"][..],
        &["approvals", "list"],
        &["approvals", "ls"],
    ] {
        fine(&world, arguments).says(["Nothing waits for an answer."]);
    }
}

#[test]
fn diff_of_an_applied_run_says_that_it_is_applied() {
    let world = World::new("diff_of_an_applied_run_says_that_it_is_applied");
    world.write("old", "old\n");
    let _ = world
        .run_inside("echo new > new; echo more >> old")
        .success();
    let _ = fine(&world, &["apply", "last"]);
    for arguments in [&["diff"][..], &["diff", "last", "new"], &["diff", "--stat"]] {
        let told = fine(&world, arguments);
        told.says(["is applied: the workspace has its changes. `atoll undo "]);
        assert!(!told.err().contains("changed nothing"), "{told}");
    }
    // The control: one that changed nothing.
    let _ = world.run_inside("true").success();
    fine(&world, &["diff"]).says(["No workspace changes."]);
}

#[test]
fn discard_of_a_partly_applied_run_asks() {
    let world = World::new("discard_of_a_partly_applied_run_asks");
    let partly = || {
        let _ = world
            .run_inside("echo $ATOLL_RUN > new; echo $ATOLL_RUN > .envrc")
            .success();
        let _ = fine(&world, &["apply", "last"]);
        assert_eq!(world.runs()[0]["state"], "partly-applied");
        world.last_run()
    };
    let run = partly();
    let why = fine(&world, &["why", &run]);
    assert!(why.out().contains("applied in part"), "{why}");
    let refused = world.atoll(["discard", &run]).run();
    assert_ne!(refused.code(), 0, "{refused}");
    refused.says(["applied in part", "--yes"]);
    assert_eq!(world.runs()[0]["state"], "partly-applied");
    let mut terminal = world.atoll(["discard", &run]).on_terminal(24, 100);
    terminal.expect("can no longer be undone");
    terminal.line("n");
    let _ = terminal.wait().expect_status(1);
    assert_eq!(world.runs()[0]["state"], "partly-applied");
    let mut terminal = world.atoll(["discard", &run]).on_terminal(24, 100);
    terminal.expect("can no longer be undone");
    terminal.line("y");
    let _ = terminal.wait().success();
    assert!(world.runs().is_empty());
    let run = partly();
    let _ = fine(&world, &["discard", &run, "--yes"]);
    assert!(world.runs().is_empty());
}

#[test]
fn a_run_that_was_refused_is_not_the_last() {
    let world = World::new("a_run_that_was_refused_is_not_the_last");
    let _ = world.run_inside("echo new > new").success();
    let run = world.last_run();
    let refused = world.run(["--ro", "/proc"], "true").run();
    assert_eq!(refused.code(), 126, "{refused}");
    let diff = fine(&world, &["diff", "last"]);
    assert!(diff.out().contains("+new"), "{diff}");
    // The refusal is explained all the same.
    let why = fine(&world, &["why", "last"]);
    assert!(why.out().contains("/proc"), "{why}");
    let applied = fine(&world, &["apply", "last"]);
    applied.says([run.as_str()]);
}

#[test]
fn diff_without_a_terminal_is_exact() {
    let world = World::new("diff_without_a_terminal_is_exact");
    if !program_exists("git") {
        return world.skip("git is not installed", Avoidable::Yes);
    }
    world.write("crlf", "one\r\ntwo\r\n");
    let script = "printf 'one\\r\\nzwei\\r\\n' > crlf; printf '\\377\\376\\n' > latin; \
                  printf 'a \\342\\200\\256b' > bidi; head -c 5000 /dev/zero | tr '\\0' x > long";
    let _ = world.run_inside(script).success();
    let command = "\"$ATOLL\" diff last > ../p && git apply ../p && git apply -R ../p && \"$ATOLL\" diff | git apply";
    let _ = world.host_shell(command).run().success();
    assert_eq!(fs::read(world.path("crlf")).unwrap(), b"one\r\nzwei\r\n");
    assert_eq!(fs::read(world.path("latin")).unwrap(), b"\xff\xfe\n");
    assert_eq!(world.read("bidi"), "a \u{202e}b");
    assert_eq!(world.read("long"), "x".repeat(5000));
    // On a terminal it is escaped.
    let mut terminal = world
        .atoll(["diff", "last", "--no-pager"])
        .on_terminal(40, 100);
    let shown = terminal.wait().out();
    assert!(!shown.contains('\u{202e}'), "{shown}");
    // One that is too large is named, and the status says that it is missing.
    let _ = world
        .run_inside("truncate -s 65M large; echo 1 > small")
        .success();
    let diff = world.atoll(["diff", "last"]).run().expect_status(125);
    diff.says(["large is not in this patch"]);
}
