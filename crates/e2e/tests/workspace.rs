//! The promises of the workspace: nothing changes outside until it is applied, every kind of change
//! is applied right, and all of it can be undone.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use e2e::{
    Avoidable, Kind, Outcome, World, can_be_ordinary_root, expect_same, fine, is_root,
    program_exists, tree, wait_until,
};

const NONE: [&str; 0] = [];

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Returns a workspace with an entry of each kind.
fn furnished(name: &str) -> World {
    let world = World::new(name);
    world.write("text", "one\n");
    world.write("gone", "gone\n");
    world.write("script", "#!/bin/sh\n");
    world.write("old-dir/a", "a\n");
    world.write("old-dir/deep/b", "b\n");
    world.write("gone-dir/c", "c\n");
    world.write("replaced/in", "in\n");
    world.write("file-to-dir", "file\n");
    symlink("text", world.path("link")).unwrap();
    fs::create_dir(world.path("was-empty")).unwrap();
    world
}

/// Changes of every kind to it.
const CHANGES: &str = r#"
set -e
echo two >> text
rm gone
chmod 755 script
mv old-dir new-dir
echo more >> new-dir/a
rm -r gone-dir
rm -r replaced; mkdir replaced; echo other > replaced/other
rm file-to-dir; mkdir file-to-dir; echo x > file-to-dir/x
ln -sfn nowhere link
ln -s text link-2
mkdir -p empty/inner
chmod 750 empty
rmdir was-empty
printf 'in\tname' > "$(printf 'tab\tand\nnewline')"
printf 'bytes' > "$(printf '\377\376')"
echo spaces > ' spaces and "quotes" '
head -c 300000 /dev/urandom > big
truncate -s 5M sparse
echo linked > hard-1; ln hard-1 hard-2
"#;

fn check_applied(world: &World) {
    assert_eq!(world.read("text"), "one\ntwo\n");
    assert!(!world.exists("gone") && !world.exists("gone-dir") && !world.exists("was-empty"));
    assert_eq!(mode(&world.path("script")), 0o755);
    assert!(!world.exists("old-dir"));
    assert_eq!(world.read("new-dir/a"), "a\nmore\n");
    assert_eq!(world.read("new-dir/deep/b"), "b\n");
    assert!(
        !world.exists("replaced/in"),
        "what was in the replaced directory came back"
    );
    assert_eq!(world.read("replaced/other"), "other\n");
    assert_eq!(world.read("file-to-dir/x"), "x\n");
    assert_eq!(
        fs::read_link(world.path("link")).unwrap(),
        Path::new("nowhere")
    );
    assert_eq!(
        fs::read_link(world.path("link-2")).unwrap(),
        Path::new("text")
    );
    assert!(world.path("empty/inner").is_dir());
    assert_eq!(mode(&world.path("empty")), 0o750);
    assert_eq!(world.read("tab\tand\nnewline"), "in\tname");
    assert_eq!(
        fs::read(world.path(OsStr::from_bytes(b"\xff\xfe"))).unwrap(),
        b"bytes"
    );
    assert_eq!(world.read(" spaces and \"quotes\" "), "spaces\n");
    assert_eq!(fs::metadata(world.path("big")).unwrap().len(), 300_000);
    assert_eq!(fs::metadata(world.path("sparse")).unwrap().len(), 5 << 20);
    assert_eq!(world.read("hard-1"), "linked\n");
    assert_eq!(world.read("hard-2"), "linked\n");
    let owner = e2e::id();
    for (path, entry) in tree(&world.workspace()) {
        assert_eq!(
            entry.owner,
            owner,
            "{} belongs to someone else",
            path.display()
        );
    }
}

#[test]
fn nothing_changes_outside_until_it_is_applied() {
    let world = furnished("nothing_changes_outside_until_it_is_applied");
    let before = tree(&world.workspace());
    let _ = world.run_inside(CHANGES).success();
    assert!(tree(&world.workspace()) == before, "the workspace changed");
    let _ = fine(&world, &["diff"]);
    let _ = fine(&world, &["discard", "last"]);
    assert!(tree(&world.workspace()) == before, "the workspace changed");
}

#[test]
fn every_kind_of_change_is_applied_and_undone() {
    let world = furnished("every_kind_of_change_is_applied_and_undone");
    let before = tree(&world.workspace());
    let _ = world.run_inside(CHANGES).success();
    let _ = fine(&world, &["diff"]);
    let _ = fine(&world, &["apply", "last"]);
    check_applied(&world);
    let _ = fine(&world, &["undo", "last"]);
    expect_same(&before, &world.workspace());
}

#[test]
fn a_live_run_changes_the_workspace_at_once_and_can_be_undone() {
    let world = furnished("a_live_run_changes_the_workspace_at_once_and_can_be_undone");
    let before = tree(&world.workspace());
    let script = format!("{CHANGES}\necho ready; read x");
    let mut running = world.run(["--live"], &script).start();
    running.until_stdout("ready");
    assert_eq!(
        world.read("text"),
        "one\ntwo\n",
        "the change cannot be seen at once"
    );
    running.send("\n");
    let _ = running.wait().success();
    check_applied(&world);
    let apply = world.atoll(["apply", "last"]).run().expect_status(125);
    apply.is_clear_error(["--live", "undo"]);
    let _ = fine(&world, &["undo", "last"]);
    expect_same(&before, &world.workspace());
}

#[test]
fn control_files_are_read_only_in_a_live_run() {
    let world = World::new("control_files_are_read_only_in_a_live_run");
    world.write(".git/hooks/pre-commit", "#!/bin/sh\n");
    world.write(".git/config", "[core]\n");
    world.write(".envrc", "true\n");
    world.write(".github/workflows/ci.yml", "on: push\n");
    let before = tree(&world.workspace());
    let script = "for f in .git/hooks/pre-commit .git/hooks/post-commit .git/config .envrc \
                  .github/workflows/ci.yml .github/workflows/new.yml; do echo evil > $f; done; \
                  rm -rf .git/hooks .envrc .github; mv .git .git2; true";
    let _ = world.run(["--live"], script).run();
    let after = tree(&world.workspace());
    for (path, entry) in &before {
        assert_eq!(
            after.get(path),
            Some(entry),
            "{} was changed",
            path.display()
        );
    }
    assert!(!world.exists(".git/hooks/post-commit"), "a hook was added");
    assert!(
        !world.exists(".github/workflows/new.yml"),
        "a workflow was added"
    );
}

#[test]
fn new_control_files_of_a_live_run_are_warned_of_and_taken_back() {
    let world = World::new("new_control_files_of_a_live_run_are_warned_of_and_taken_back");
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    let told = world.top().join("told.json");
    let script = "mkdir -p .vscode .git/hooks; echo evil > .vscode/tasks.json; \
                  echo evil > .git/hooks/pre-commit; echo evil > .envrc; echo fine > fine";
    let options = ["--live", "--json", told.to_str().unwrap()];
    let ended = world.run(options, script).run().success();
    ended.says([
        "control",
        "warning: in the workspace already, and run or trusted by programs outside",
        ".envrc",
        ".git/hooks/pre-commit",
        "atoll undo",
    ]);
    let told: serde_json::Value = serde_json::from_str(&world.read(&told)).unwrap();
    assert_eq!(told["state"], "written");
    let planted: Vec<&str> = told["control-files-in-workspace"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(serde_json::Value::as_str)
        .collect();
    for path in [".envrc", ".git/hooks/pre-commit", ".vscode/tasks.json"] {
        assert!(planted.contains(&path), "{planted:?}");
    }
    assert!(!planted.contains(&"fine"), "{planted:?}");
    let _ = fine(&world, &["undo", "last"]);
    for path in [".envrc", ".git/hooks", ".vscode", "fine"] {
        assert!(!world.exists(path), "{path} is left");
    }
    // Where the changes wait in a layer, nothing is in the workspace.
    let ended = world.run_inside("echo evil > .envrc").success();
    assert!(!ended.err().contains("in the workspace already"), "{ended}");
}

#[test]
fn control_files_wait_for_a_yes_of_their_own() {
    let world = World::new("control_files_wait_for_a_yes_of_their_own");
    world.write(".git/config", "[core]\n");
    let script = "mkdir -p .git/hooks .github/workflows .vscode; echo evil > .git/hooks/pre-commit; \
                  echo evil > .github/workflows/ci.yml; echo evil > .vscode/tasks.json; \
                  echo evil > .envrc; echo fine > fine";
    let ended = world.run_inside(script).success();
    ended.says(["control", "look closely", ".envrc"]);
    let applied = fine(&world, &["apply", "last"]);
    applied.says([
        "not applied without --control",
        ".git/hooks/pre-commit",
        ".envrc",
    ]);
    assert_eq!(world.read("fine"), "fine\n");
    for held in [
        ".git/hooks/pre-commit",
        ".github/workflows/ci.yml",
        ".vscode/tasks.json",
        ".envrc",
    ] {
        assert!(!world.exists(held), "{held} was applied");
    }
    let _ = fine(&world, &["apply", "last", "--control"]);
    for held in [
        ".git/hooks/pre-commit",
        ".github/workflows/ci.yml",
        ".vscode/tasks.json",
        ".envrc",
    ] {
        assert_eq!(world.read(held), "evil\n");
    }
}

#[test]
fn what_changed_on_the_host_meanwhile_is_a_conflict() {
    let world = furnished("what_changed_on_the_host_meanwhile_is_a_conflict");
    let _ = world
        .run_inside("echo inside >> text; rm gone; echo mine > both; echo new > new")
        .success();
    world.write("text", "one\noutside\n");
    world.write("both", "theirs\n");
    let before = tree(&world.workspace());
    let refused = world.atoll(["apply", "last"]).run().expect_status(125);
    refused.is_clear_error([
        "changed meanwhile",
        "nothing was written",
        "text",
        "both",
        "--force",
    ]);
    assert!(
        tree(&world.workspace()) == before,
        "something was written all the same"
    );

    let _ = fine(&world, &["apply", "last", "--force"]);
    assert_eq!(world.read("text"), "one\ninside\n");
    assert_eq!(world.read("both"), "mine\n");
    let _ = fine(&world, &["undo", "last"]);
    let after = tree(&world.workspace());
    assert_eq!(
        after.keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>()
    );
    assert!(
        after == before,
        "undo did not bring back what --force overwrote"
    );
}

#[test]
fn the_rest_applies_beside_a_conflict() {
    let world = furnished("the_rest_applies_beside_a_conflict");
    let _ = world
        .run_inside("echo inside >> text; echo new > new")
        .success();
    world.write("text", "outside\n");
    let _ = fine(&world, &["apply", "last", "new"]);
    assert_eq!(world.read("new"), "new\n");
    assert_eq!(world.read("text"), "outside\n");
}

#[test]
fn undo_does_not_destroy_later_work() {
    let world = furnished("undo_does_not_destroy_later_work");
    let _ = world
        .run(["--apply"], "echo inside >> text")
        .run()
        .success();
    world.write("text", "later work\n");
    let refused = world.atoll(["undo", "last"]).run().expect_status(125);
    refused.is_clear_error(["text", "--force"]);
    assert_eq!(world.read("text"), "later work\n");
    let _ = fine(&world, &["undo", "last", "--force"]);
    assert_eq!(world.read("text"), "one\n");
}

#[test]
fn apply_follows_no_link_out_of_the_workspace() {
    let world = World::new("apply_follows_no_link_out_of_the_workspace");
    let outside = world.top().join("outside");
    world.write(outside.join("victim"), "safe\n");
    world.write("dir/victim", "inside\n");
    let _ = world
        .run_inside("echo evil > dir/victim; echo evil > dir/planted")
        .success();
    fs::rename(world.path("dir"), world.path("moved")).unwrap();
    symlink(&outside, world.path("dir")).unwrap();
    let _ = world.atoll(["apply", "last"]).run();
    let _ = world.atoll(["apply", "last", "--force"]).run();
    assert_eq!(world.read(outside.join("victim")), "safe\n");
    assert!(
        !outside.join("planted").exists(),
        "written outside the workspace"
    );
}

#[test]
fn a_link_made_inside_leads_no_apply_outside() {
    let world = World::new("a_link_made_inside_leads_no_apply_outside");
    let outside = world.top().join("outside");
    world.write(outside.join("victim"), "safe\n");
    let script = format!(
        "ln -s {0} out; ln -s {0}/victim file; ln -s ../../../../../../etc up",
        outside.display()
    );
    let _ = world.run_inside(&script).success();
    let _ = fine(&world, &["apply", "last"]);
    assert_eq!(fs::read_link(world.path("out")).unwrap(), outside);
    let _ = world
        .run(["--apply"], "rm file; echo evil > file")
        .run()
        .success();
    assert_eq!(world.read(outside.join("victim")), "safe\n");
}

#[test]
fn applying_twice_changes_nothing_more() {
    let world = furnished("applying_twice_changes_nothing_more");
    let _ = world.run_inside("echo two >> text").success();
    let _ = fine(&world, &["apply", "last"]);
    let once = tree(&world.workspace());
    let again = world.atoll(["apply", "last"]).run();
    assert!(!again.err().contains("panicked"), "{again}");
    assert!(tree(&world.workspace()) == once, "{again}");
    let _ = fine(&world, &["undo", "last"]);
    assert_eq!(world.read("text"), "one\n");
}

#[test]
fn undone_changes_can_be_applied_again() {
    let world = furnished("undone_changes_can_be_applied_again");
    let _ = world.run_inside("echo two >> text").success();
    let _ = fine(&world, &["apply", "last"]);
    let _ = fine(&world, &["undo", "last"]);
    let _ = fine(&world, &["apply", "last"]);
    assert_eq!(world.read("text"), "one\ntwo\n");
    let _ = fine(&world, &["undo", "last"]);
    assert_eq!(world.read("text"), "one\n");
}

#[test]
fn several_runs_are_applied_one_after_the_other() {
    let world = furnished("several_runs_are_applied_one_after_the_other");
    let _ = world.run_inside("echo 1 > one").success();
    let first = world.last_run();
    let _ = world.run_inside("test ! -e one && echo 2 > two").success();
    let second = world.last_run();
    let _ = fine(&world, &["apply", &second]);
    let _ = fine(&world, &["apply", &first]);
    assert!(world.exists("one") && world.exists("two"));
    let _ = fine(&world, &["undo", &second]);
    assert!(world.exists("one") && !world.exists("two"));
}

#[test]
fn a_resumed_run_goes_on_in_the_layer() {
    let world = furnished("a_resumed_run_goes_on_in_the_layer");
    let _ = world
        .run_inside("echo 1 > one; rm gone; echo two >> text; rm -r old-dir")
        .success();
    let script =
        "set -e; cat one; test ! -e gone; test ! -e old-dir; echo three >> text; echo 2 > two";
    let first = world.last_run();
    let resumed = world.run(["--resume", &first], script).run().success();
    assert_eq!(resumed.out(), "1\n");
    assert!(!world.exists("one"));
    let _ = fine(&world, &["apply", &world.last_run()]);
    assert_eq!(world.read("text"), "one\ntwo\nthree\n");
    assert!(world.exists("one") && world.exists("two") && !world.exists("gone"));
    let again = world
        .run(["--resume", &first], "true")
        .run()
        .expect_status(125);
    again.is_clear_error([first.as_str()]);
}

#[test]
fn ignored_files_come_apart() {
    let world = World::new("ignored_files_come_apart");
    if program_exists("git") {
        let _ = world.host_shell("git init -q .").run().success();
    }
    world.write(".gitignore", "*.log\nbuild/\n");
    let ended = world
        .run_inside("echo x > a.log; mkdir build; echo y > build/out; echo z > src")
        .success();
    ended.says(["ignored"]);
    let shown = fine(&world, &["diff"]);
    assert!(!shown.out().contains("a.log"), "{shown}");
    shown.says(["ignored by git", "not shown"]);
    let _ = fine(&world, &["apply", "last"]);
    assert!(world.exists("src") && !world.exists("a.log") && !world.exists("build"));
    let _ = fine(&world, &["apply", "last", "--ignored"]);
    assert!(world.exists("a.log") && world.exists("build/out"));
}

#[test]
fn build_caches_come_apart() {
    let world = World::new("build_caches_come_apart");
    world.write("package.json", "{}\n");
    world.write("Cargo.toml", "[package]\nname = \"x\"\n");
    let script = "mkdir -p node_modules/x target/debug; echo x > node_modules/x/i.js; echo y > target/debug/o; echo z > src";
    let ended = world.run_inside(script).success();
    ended.says(["caches"]);
    let _ = fine(&world, &["apply", "last"]);
    assert!(world.exists("src") && !world.exists("node_modules") && !world.exists("target"));
}

#[test]
fn a_cache_of_the_home_is_a_layer_that_its_profile_can_keep() {
    let world = World::new("a_cache_of_the_home_is_a_layer_that_its_profile_can_keep");
    world.write(world.home().join(".npm/host"), "host\n");
    let text = "description = \"keeps\"\n[home]\ncache = [\".npm\"]\nkeep-caches = true\n";
    world.profile("keeper", text);
    let script = "cat ~/.npm/host; echo added > ~/.npm/added; echo changed > ~/.npm/host";
    for name in ["node", "keeper"] {
        let ended = world.run(["--profile", name], script).run().success();
        assert_eq!(ended.out(), "host\n");
        assert_eq!(world.read(world.home().join(".npm/host")), "host\n");
        assert!(!world.home().join(".npm/added").exists());
        ended.says(["caches"]);
    }
    let again = world
        .run(["--profile", "keeper"], "cat ~/.npm/added ~/.npm/host")
        .run()
        .success();
    assert_eq!(again.out(), "added\nchanged\n");
    // What belongs to the run is not there for the next one, nor for other profiles.
    let fresh = world
        .run(["--profile", "node"], "ls ~/.npm; cat ~/.npm/host")
        .run()
        .success();
    assert_eq!(fresh.out(), "host\nhost\n");
}

#[test]
fn caches_are_kept_for_one_run_by_an_option() {
    let world = World::new("caches_are_kept_for_one_run_by_an_option");
    world.write(world.home().join(".npm/host"), "host\n");
    let run = |options: &[&str], script: &str| {
        let options = [&["--profile", "node"], options].concat();
        world.run(options, script).run().success().out()
    };
    let keep: &[&str] = &["--keep-caches"];
    let _ = run(keep, "echo added > ~/.npm/added");
    assert_eq!(run(keep, "cat ~/.npm/added"), "added\n");
    // Without the option it is not seen.
    assert_eq!(run(&[], "ls ~/.npm"), "host\n");
    assert!(!world.home().join(".npm/added").exists());
}

#[test]
fn an_apply_counts_what_it_leaves_and_takes_it_by_name() {
    let world = World::new("an_apply_counts_what_it_leaves_and_takes_it_by_name");
    world.write(".gitignore", "dist/\nsecret.env\n");
    fs::create_dir(world.path(".git")).unwrap();
    let script = "mkdir -p node_modules/x dist; echo x > node_modules/x/i.js; echo d > dist/out; \
                  echo s > secret.env; echo new > new";
    let _ = world.run_inside(script).success();
    let applied = fine(&world, &["apply", "last"]);
    applied.says([
        "Left out: 3 changes in caches (`atoll apply ",
        " --caches`), 3 changes ignored by git (`atoll apply ",
        " --ignored`).",
    ]);
    let again = fine(&world, &["apply", "last"]);
    again.says(["Nothing was applied.", "Left out: 3 changes in caches"]);
    // Whoever names such a path means it, in each spelling.
    for (path, file) in [
        ("secret.env", "secret.env"),
        ("./dist/", "dist/out"),
        ("node_modules/x/i.js", "node_modules/x/i.js"),
    ] {
        let named = fine(&world, &["apply", "last", path]);
        assert!(
            !named.err().contains("There was nothing to apply"),
            "{named}"
        );
        assert!(world.exists(file), "{path}: {named}");
    }
    let rest = fine(&world, &["apply", "last"]);
    rest.says(["There was nothing to apply."]);
}

#[test]
fn the_home_is_empty_and_forgotten() {
    let world = World::new("the_home_is_empty_and_forgotten");
    world.write(world.home().join(".ssh/id_ed25519"), "secret\n");
    world.write(world.home().join(".bash_history"), "secret\n");
    let first = world
        .run_inside("ls -A ~; echo x > ~/left && echo written")
        .success();
    assert_eq!(first.out(), "written\n");
    assert!(!world.home().join("left").exists());
    let second = world.run_inside("ls -A ~").success();
    assert_eq!(second.out(), "");
}

#[test]
fn a_discarded_run_leaves_nothing() {
    let world = furnished("a_discarded_run_leaves_nothing");
    let before = tree(&world.workspace());
    let _ = world.run(["--discard"], CHANGES).run().success();
    assert!(tree(&world.workspace()) == before);
    assert!(world.runs().is_empty());
}

#[test]
fn a_workspace_in_memory_works() {
    let world = World::new("a_workspace_in_memory_works");
    if !is_root() && !can_be_ordinary_root() {
        return world.skip("nobody but root can mount here", Avoidable::No);
    }
    // What is mounted is gone with the last process that sees it.
    let script = r#"
set -e
mount -t tmpfs tmpfs .
cd "$PWD"
echo one > text
"$ATOLL" run --keep -- sh -c 'echo two >> text; echo new > new'
cat text
"$ATOLL" apply last
cat text
"$ATOLL" undo last
cat text
test ! -e new
"#;
    let ended = world.mount_shell(script).run().success();
    assert_eq!(ended.out(), "one\none\ntwo\none\n", "{ended}");
}

#[test]
fn a_workspace_among_the_devices_is_refused() {
    let world = World::new("a_workspace_among_the_devices_is_refused");
    let shm = tempfile::Builder::new()
        .prefix("atoll-e2e-")
        .tempdir_in("/dev/shm");
    let Ok(shm) = shm else {
        return world.skip("there is no /dev/shm", Avoidable::No);
    };
    let refused = world
        .run(NONE, "true")
        .dir(shm.path())
        .run()
        .expect_status(126);
    refused.is_clear_error(["/dev", "--workspace"]);
}

#[test]
fn a_workspace_in_each_temporary_directory_works() {
    let world = World::new("a_workspace_in_each_temporary_directory_works");
    for base in ["/tmp", "/var/tmp"] {
        let there = tempfile::Builder::new()
            .prefix("atoll-e2e-")
            .tempdir_in(base)
            .unwrap();
        fs::write(there.path().join("text"), "one\n").unwrap();
        let ran = world
            .run(["--discard"], "cat text; pwd")
            .dir(there.path())
            .run()
            .success();
        assert_eq!(
            ran.out(),
            format!("one\n{}\n", there.path().display()),
            "{base}"
        );
    }
}

#[test]
fn two_applies_at_once_write_everything_once() {
    let world = World::new("two_applies_at_once_write_everything_once");
    let _ = world
        .run_inside("i=0; while [ $i -lt 300 ]; do echo $i > f$i; i=$((i+1)); done")
        .success();
    let run = world.last_run();
    let both = [
        world.atoll(["apply", &run]).start(),
        world.atoll(["apply", &run]).start(),
    ];
    let ended: Vec<Outcome> = both.into_iter().map(e2e::Running::wait).collect();
    assert!(
        ended.iter().any(|one| one.code() == 0),
        "{}\n{}",
        ended[0],
        ended[1]
    );
    for one in &ended {
        assert!(!one.err().contains("panicked"), "{one}");
    }
    for index in 0..300 {
        assert_eq!(world.read(format!("f{index}")), format!("{index}\n"));
    }
    let _ = fine(&world, &["undo", &run]);
    assert!(tree(&world.workspace()).is_empty());
}

#[test]
fn applies_of_two_runs_at_once_do_not_mix() {
    let world = World::new("applies_of_two_runs_at_once_do_not_mix");
    world.write("shared", "base\n");
    let mut runs = Vec::new();
    for name in ["a", "b"] {
        let _ = world
            .run_inside(&format!(
                "echo {name} > shared; for i in 1 2 3 4 5 6 7 8 9; do echo {name} > {name}$i; done"
            ))
            .success();
        runs.push(world.last_run());
    }
    let both: Vec<_> = runs
        .iter()
        .map(|run| world.atoll(["apply", run]).start())
        .collect();
    let ended: Vec<Outcome> = both.into_iter().map(e2e::Running::wait).collect();
    let shared = world.read("shared");
    assert!(shared == "a\n" || shared == "b\n", "{shared}");
    let succeeded = ended.iter().filter(|one| one.code() == 0).count();
    assert_eq!(
        succeeded, 1,
        "one of them has a conflict\n{}\n{}",
        ended[0], ended[1]
    );
}

#[test]
fn what_cannot_be_applied_is_refused_with_a_reason() {
    let world = World::new("what_cannot_be_applied_is_refused_with_a_reason");
    let script = "mkfifo pipe; echo x > suid; chmod 6755 suid; echo fine > fine; \
                  perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un(\"sock\")) or die'";
    let ended = world.run_inside(script).success();
    ended.says(["denied", "taking over pipe: it is a FIFO", "suid", "sock"]);
    fine(&world, &["diff", "last"]).says(["refused: pipe: it is a FIFO"]);
    let applied = world.atoll(["apply", "last"]).run();
    applied.says(["not applied", "pipe"]);
    assert!(!world.exists("pipe") && !world.exists("sock"));
    assert!(world.exists("fine"));
    if world.exists("suid") {
        assert_eq!(
            mode(&world.path("suid")) & 0o6000,
            0,
            "set-user-id came out of the sandbox"
        );
    }
}

#[test]
fn what_a_program_makes_unreadable_is_shown_and_not_hidden() {
    let world = World::new("what_a_program_makes_unreadable_is_shown_and_not_hidden");
    world.write("kept", "1\n");
    let told = world.top().join("told.json");
    let script = "mkdir -p closed/inner blind; echo secret > closed/inner/deep; \
                  echo evil > closed/.envrc; echo 2 > blind/file; \
                  chmod 000 closed/inner closed; chmod 300 blind; echo 2 >> kept";
    let options = ["--json", told.to_str().unwrap()];
    let ended = world.run(options, script).run().success();
    ended.says(["control", "closed/.envrc"]);
    let told: serde_json::Value = serde_json::from_str(&world.read(&told)).unwrap();
    assert_eq!(told["changes"]["workspace"]["added"], 5, "{told:#}");
    assert_eq!(told["changes"]["control"]["added"], 1, "{told:#}");
    let diff = fine(&world, &["diff", "last"]);
    for line in ["+secret", "+2", "+evil"] {
        assert!(diff.out().lines().any(|shown| shown == line), "{diff}");
    }
    let changes = fine(&world, &["diff", "last", "--json"]).json();
    let refused = changes["refused"].as_array().unwrap();
    if is_root() {
        assert!(refused.is_empty(), "root may read everything: {changes:#}");
    } else {
        ended.says(["denied", "taking over closed:", "(0000)", "atoll why"]);
        diff.says(["refused: closed:", "refused: blind:"]);
        assert_eq!(refused.len(), 3, "{changes:#}");
        let why = fine(&world, &["why", "last"]).out();
        assert!(
            why.contains("denied    taking over blind:") && why.contains("(0300)"),
            "{why}"
        );
    }
    // A program that goes on finds what it left.
    let script = "stat -c '%a %n' closed blind; chmod 700 closed; stat -c %a closed/inner";
    let resumed = world.run(["--resume", "last"], script).run().success();
    assert_eq!(resumed.out(), "0 closed\n300 blind\n0\n", "{resumed}");
    let applied = world.atoll(["apply", "last", "--control"]).run();
    let applied = applied.expect_status(if is_root() { 0 } else { 125 });
    assert_eq!(world.read("kept"), "1\n2\n");
    if is_root() {
        assert_eq!(mode(&world.path("closed/inner")), 0);
        assert_eq!(mode(&world.path("blind")), 0o300);
    } else {
        // The directory that it opened is taken over, but nothing unreadable.
        applied.says(["not applied: closed/inner", "partly applied"]);
        assert_eq!(world.read("closed/.envrc"), "evil\n");
        assert!(!world.exists("closed/inner") && !world.exists("blind"));
    }
    let _ = fine(&world, &["undo", "last"]);
    assert!(!world.exists("closed") && !world.exists("blind"));
    assert_eq!(world.read("kept"), "1\n");
}

#[test]
fn original_stays_where_the_new_file_is_unreadable() {
    let world = World::new("original_stays_where_the_new_file_is_unreadable");
    if is_root() {
        // Root reads whatever the mode is: there it is an error of the disk.
        return;
    }
    for bits in ["000", "100", "111", "200", "300"] {
        for (name, text) in [("f", "precious\n"), ("g", "precious\n"), ("o", "1\n")] {
            world.write(name, text);
        }
        let script =
            format!("echo new > f; chmod {bits} f; mv g moved; chmod {bits} moved; echo 2 > o");
        let _ = world.run(["--keep"], &script).run().success();
        let applied = world.atoll(["apply", "last"]).run().expect_status(125);
        applied.says([
            "not applied: f:",
            "not removed or replaced: g:",
            "partly applied",
        ]);
        assert_eq!(world.read("o"), "2\n");
        let _ = fine(&world, &["discard", "last", "--yes"]);
        for name in ["f", "g"] {
            assert_eq!(world.read(name), "precious\n", "{name} {bits}");
        }
        let ended = world.run(["--apply"], &script).run().expect_status(125);
        ended.says(["not applied: f:"]);
        assert_eq!(world.read("f"), "precious\n", "{bits}");
    }
}

#[test]
fn hard_links_out_of_workspace_refuse_a_live_run() {
    let world = World::new("hard_links_out_of_workspace_refuse_a_live_run");
    let outside = world.top().join("outside");
    world.write(&outside, "mine");
    fs::create_dir(world.path("deep")).unwrap();
    fs::hard_link(&outside, world.path("deep/file")).unwrap();
    let seen = world.run(["--live"], "echo evil > deep/file").run();
    assert_eq!(seen.code(), 125, "{seen}");
    seen.is_clear_error(["deep/file", "hard links", "cp -a"]);
    assert_eq!(world.read(&outside), "mine");
    // In a layer it is a file of its own; so is one whose names are all in the workspace.
    let _ = world
        .run(["--apply"], "echo new > deep/file")
        .run()
        .success();
    assert_eq!(world.read(&outside), "mine");
    fs::hard_link(world.path("deep/file"), world.path("twice")).unwrap();
    let _ = world.run(["--live"], "echo live > twice").run().success();
    assert_eq!(world.read("deep/file"), "live\n");
}

#[test]
fn files_that_others_may_not_read_stay_so() {
    let world = World::new("files_that_others_may_not_read_stay_so");
    world.write("private", "p\n");
    fs::set_permissions(world.path("private"), fs::Permissions::from_mode(0o600)).unwrap();
    let _ = world
        .run(
            ["--apply"],
            "cat private; echo q >> private; umask 077; echo k > key",
        )
        .run()
        .success();
    assert_eq!(mode(&world.path("private")), 0o600);
    assert_eq!(mode(&world.path("key")), 0o600);
    assert_eq!(world.read("private"), "p\nq\n");
}

#[test]
fn hard_links_and_times_are_as_inside() {
    let world = World::new("hard_links_and_times_are_as_inside");
    let _ = world
        .run(
            ["--apply"],
            "echo x > a; touch -d '2001-02-03 04:05:06 UTC' a",
        )
        .run()
        .success();
    assert_eq!(fs::metadata(world.path("a")).unwrap().mtime(), 981_173_106);
}

/// A change through one name of a file shows under the other or not, depending on how the workspace
/// is kept apart; an apply does what was seen either way.
#[test]
fn a_change_through_a_name_that_is_gone_is_applied_as_it_was_seen() {
    let world = World::new("a_change_through_a_name_that_is_gone_is_applied_as_it_was_seen");
    world.write("a", "one\n");
    fs::hard_link(world.path("a"), world.path("b")).unwrap();
    let before = tree(&world.workspace());
    let _ = world
        .run_inside("echo two >> b; rm b; cat a > seen")
        .success();
    let _ = fine(&world, &["apply", "last"]);
    assert!(!world.exists("b"));
    assert_eq!(world.read("a"), world.read("seen"));
    let _ = fine(&world, &["undo", "last"]);
    expect_same(&before, &world.workspace());
}

#[test]
fn a_change_of_nothing_but_content_of_the_same_length_is_seen() {
    let world = World::new("a_change_of_nothing_but_content_of_the_same_length_is_seen");
    world.write("text", "aaaa\n");
    let _ = world
        .run_inside("t=$(stat -c %y text); printf 'bbbb\\n' > text; touch -d \"$t\" text")
        .success();
    let shown = fine(&world, &["diff"]).out();
    assert!(shown.contains("+bbbb"), "{shown}");
    let _ = fine(&world, &["apply", "last"]);
    assert_eq!(world.read("text"), "bbbb\n");
}

#[test]
fn a_run_whose_atoll_was_killed_keeps_its_changes() {
    let world = World::new("a_run_whose_atoll_was_killed_keeps_its_changes");
    let running = world
        .run(NONE, "echo new > new; sync; echo ready; sleep 1000")
        .start();
    running.until_stdout("ready");
    let listed = |state: &str| {
        let rows = fine(&world, &["runs"]).out();
        let row = rows.lines().find(|row| row.contains(state)).unwrap();
        row.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(listed("running").contains(&"-".to_owned()));
    let below = e2e::descendants_of(running.pid());
    running.signal(rustix::process::Signal::KILL);
    let _ = running.wait();
    wait_until("the sandbox to end", e2e::BOUND, || {
        below
            .iter()
            .all(|one| !e2e::is_alive(one.pid))
            .then_some(())
    });
    // How many files it has changed is read from what it left.
    for _ in 0..2 {
        assert!(listed("interrupted").contains(&"1".to_owned()));
    }
    let told = world.run_inside("true").success();
    told.says(["interrupted", "atoll diff"]);
    let interrupted = world
        .runs()
        .into_iter()
        .find(|run| run["state"] == "interrupted")
        .unwrap();
    let counts = serde_json::json!({"added": 1, "changed": 0, "removed": 0});
    assert_eq!(interrupted["changes"], counts);
    let run = interrupted["run"].as_str().unwrap();
    assert!(fine(&world, &["diff", run]).out().contains("+new"));
    let _ = fine(&world, &["apply", run]);
    assert!(listed("applied").contains(&"1".to_owned()));
    assert_eq!(world.read("new"), "new\n");
}

#[test]
fn what_a_tree_is_made_of_is_told_apart() {
    // The harness itself: a wrong comparison would let everything else pass.
    let world = furnished("what_a_tree_is_made_of_is_told_apart");
    let before = tree(&world.workspace());
    assert_eq!(before[Path::new("link")].kind, Kind::Link("text".into()));
    world.write("text", "two\n");
    assert!(tree(&world.workspace()) != before);
}
