//! Options of everyday use: further directories, dry runs, quiet runs, and discarding many runs.

use std::fs;

use e2e::World;

#[test]
fn further_directory_is_changed_in_a_layer_and_applied_with_the_run() {
    let world = World::new("further_directory_is_changed_in_a_layer_and_applied_with_the_run");
    let library = world.top().join("library");
    fs::create_dir(&library).unwrap();
    let file = library.join("new");
    let named = library.to_str().unwrap();
    let script = format!("echo written > '{0}/new'; cat '{0}/new'", library.display());
    let ran = world
        .run(["--keep", "--rw", named], &script)
        .run()
        .success();
    assert_eq!(ran.out(), "written\n");
    assert!(!file.exists(), "nothing changes before it is applied");
    let _ = world.atoll(["apply", "last"]).run().success();
    assert_eq!(fs::read_to_string(&file).unwrap(), "written\n");
    let _ = world.atoll(["undo", "last"]).run().success();
    assert!(!file.exists());
    let without = world.run(["--keep"], &script).run();
    assert!(without.code() != 0 && !file.exists(), "{without}");
    // A file in two layers would have two contents.
    let workspace = world.workspace();
    let within = workspace.join("within");
    fs::create_dir(&within).unwrap();
    for path in [workspace.as_path(), &within] {
        let refused = world.run(["--rw", path.to_str().unwrap()], "true").run();
        assert_eq!(refused.code(), 126, "{refused}");
        let _ = refused.says(["it is in the workspace or around it"]);
    }
}

#[test]
fn dry_run_tells_the_boundary_and_starts_nothing() {
    let world = World::new("dry_run_tells_the_boundary_and_starts_nothing");
    let ran = world
        .run(["--dry-run", "--allow", "example.com"], "touch made")
        .run();
    let ran = ran.success();
    assert!(
        ran.out().contains("\"example.com\",             # --allow"),
        "{ran}"
    );
    let _ = ran.says(["Nothing was started."]);
    let runs = world.atoll(["runs", "--json"]).run().success();
    assert_eq!(runs.out().trim(), "[]");
    let usr = ["--dry-run", "--rw", "/usr"];
    let denied = world.run(usr, "true").run();
    assert_eq!(denied.code(), 126, "{denied}");
    let _ = denied.says(["the policy would deny this run", "--rw /usr"]);
}

#[test]
fn quiet_run_says_what_its_program_says() {
    let world = World::new("quiet_run_says_what_its_program_says");
    let ran = world
        .run(["--quiet"], "echo out; echo err >&2; touch made; exit 3")
        .run();
    assert_eq!(
        (ran.code(), ran.out().as_str(), ran.err().as_str()),
        (3, "out\n", "err\n")
    );
    let _ = world.atoll(["apply", "last"]).run().success();
    assert!(
        world.workspace().join("made").exists(),
        "its changes were kept"
    );
}

#[test]
fn discard_of_many_leaves_what_was_applied() {
    let world = World::new("discard_of_many_leaves_what_was_applied");
    let states = || {
        let runs = world.atoll(["runs", "--json", "--all"]).run().success();
        let runs: serde_json::Value = serde_json::from_str(&runs.out()).unwrap();
        let state = |run: &serde_json::Value| run["state"].as_str().unwrap().to_owned();
        let mut states: Vec<_> = runs.as_array().unwrap().iter().map(state).collect();
        states.sort();
        states
    };
    for script in ["touch applied", "true", "touch kept"] {
        let _ = world.run(["--keep"], script).run().success();
        if script == "touch applied" {
            let _ = world.atoll(["apply", "last"]).run().success();
        }
    }
    let _ = world
        .atoll(["discard", "--empty"])
        .run()
        .success()
        .says(["1 run discarded."]);
    assert_eq!(states(), ["applied", "kept"]);
    let nobody = world.atoll(["discard", "--all"]).run();
    assert_eq!(nobody.code(), 125, "{nobody}");
    let _ = nobody.says(["there is nobody to ask", "--all --yes"]);
    let _ = world
        .atoll(["discard", "--all", "--yes"])
        .run()
        .success()
        .says(["1 run discarded."]);
    assert_eq!(states(), ["applied"]);
    assert!(world.workspace().join("applied").exists());
    let _ = world
        .atoll(["discard", "--all"])
        .run()
        .success()
        .says(["There is none to discard."]);
}
