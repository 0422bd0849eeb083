//! Checks before a run's changes are taken over: what is applied is what has passed, and the run
//! never writes its own marks.

use std::fs;
use std::os::unix::fs::symlink;

use e2e::traces::{events, verify_ledger};
use e2e::{Invocation, Outcome, World};
use serde_json::Value;

/// A project in Python whose check runs every file of its tests.
fn project(name: &str) -> World {
    let world = World::new(name);
    world.profile(
        "checked",
        "[checks]\ncommands = [\"sh run-tests.sh\"]\njudge = [\"judged/**\"]\n",
    );
    world.write("add.py", "def add(a, b):\n    return a - b\n");
    world.write(
        "run-tests.sh",
        "for one in tests/test_*.py; do python3 \"$one\" || exit 1; done\n\
         test ! -e conftest.py || . ./conftest.py\n",
    );
    for directory in ["tests", "pkg/tests"] {
        fs::create_dir_all(world.workspace().join(directory)).unwrap();
    }
    world.write(
        "tests/test_add.py",
        "import sys\nsys.path.insert(0, '.')\nfrom add import add\n\
         assert add(1, 2) == 3, 'one and two are %d' % add(1, 2)\n",
    );
    world.write("pkg/tests/test_pkg.py", "");
    world.write("pkg/code.py", "");
    world
}

const RIGHT: &str = "sed -i 's/a - b/a + b/' add.py; ";
const WRONG: &str = "sed -i 's/a - b/a - b - b/' add.py; ";

fn changed(world: &World, script: &str) -> Outcome {
    let keep = ["run", "--keep", "--profile", "checked", "--", "sh", "-c"];
    world.atoll(keep).arg(script).run().success()
}

fn apply_checked(world: &World) -> Invocation {
    world.atoll(["apply", "--checks"])
}

fn of_checks(world: &World) -> Vec<Value> {
    let mut all = events(world);
    all.retain(|event| event["type"].as_str().unwrap().starts_with("checks."));
    all
}

#[test]
fn changes_that_pass_are_applied() {
    let world = project("changes_that_pass_are_applied");
    let _ = changed(&world, &format!("{RIGHT} mkdir -p a/b; echo 1 >a/b/c"));
    let applied = apply_checked(&world).run().success();
    applied.says(["Check 1 of 1: sh run-tests.sh", "All checks have passed"]);
    assert!(world.read("add.py").contains("a + b"));
    assert_eq!(world.read("a/b/c"), "1\n");
    let noted = of_checks(&world);
    assert_eq!(noted.len(), 1, "{noted:?}");
    assert_eq!(noted[0]["type"], "checks.passed");
    assert_eq!(noted[0]["body"]["judge"], 0);
    assert_eq!(noted[0]["body"]["plans"].as_array().unwrap().len(), 1);
    // Nothing of the checks is left: not in the workspace, not in the state.
    assert!(!world.exists("__pycache__"));
    let run = world.state().join("atoll/runs").join(world.last_run());
    assert!(!run.join("checks").exists());
    verify_ledger(&world);
}

#[test]
fn change_that_fails_a_check_is_not_applied() {
    let world = project("change_that_fails_a_check_is_not_applied");
    let _ = changed(&world, &format!("{WRONG} echo 1 >new"));
    let refused = apply_checked(&world).run().expect_status(1);
    refused.is_clear_error(["has not passed", "run-tests.sh", "one and two are -3"]);
    assert!(world.read("add.py").contains("a - b\n"));
    assert!(!world.exists("new"));
    assert_eq!(of_checks(&world)[0]["type"], "checks.failed");
    // What checks write is thrown away, and a terminal gets none of their sequences.
    let _ = changed(
        &world,
        "printf '\\033[2Jodd' >add.py; printf 'print(\"\\033[2J\")\\nexit(3)' >>add.py",
    );
    let refused = apply_checked(&world).run().expect_status(1);
    assert!(!refused.err().contains('\u{1b}'), "{refused}");
    verify_ledger(&world);
}

/// Each makes the tests pass for a program that is wrong, were they the run's. The control is the
/// same without the checks' own files.
#[test]
fn weakened_tests_do_not_count() {
    let world = project("weakened_tests_do_not_count");
    let attempts = [
        "echo >tests/test_add.py",
        "rm -r tests; mkdir tests; echo >tests/test_a.py",
        "rm -r tests; mkdir other; echo >other/test_a.py; ln -s other tests",
        "echo 'exit 0' >run-tests.sh",
        "rm run-tests.sh; ln -s /bin/true run-tests.sh",
        "mv tests/test_add.py was; ln -s ../was tests/test_add.py; echo >was",
        "rm tests/test_add.py; ln add.py tests/test_add.py; echo >tests/test_add.py; \
         echo 'def add(a, b): return 0' >add.py",
    ];
    for attempt in attempts {
        let _ = changed(&world, &format!("{WRONG} {attempt}"));
        let refused = apply_checked(&world).run().expect_status(1);
        refused.is_clear_error(["has not passed", "one and two are"]);
        assert!(world.read("add.py").contains("a - b\n"), "{attempt}");
        let noted = of_checks(&world).pop().unwrap();
        assert_ne!(noted["body"]["judge"], 0, "{attempt}: {noted}");
    }
    // The control: what is not of the checks counts.
    let _ = changed(&world, &format!("{RIGHT} echo >other.py"));
    let _ = apply_checked(&world).run().success();
}

/// A program that is right, with tests that were changed: somebody has to say yes.
#[test]
fn changed_tests_need_a_person() {
    let world = project("changed_tests_need_a_person");
    let attempts = [
        ("echo '# more' >>tests/test_add.py", "tests/test_add.py"),
        ("echo true >conftest.py", "conftest.py"),
        ("echo true >CONFTEST.py", "CONFTEST.py"),
        ("mkdir judged; echo 1 >judged/new", "judged"),
        ("rm -r pkg", "pkg/tests"),
        ("rm -r tests", "tests"),
        (
            "mkdir -p new/deep/tests; echo >new/deep/tests/a",
            "new/deep/tests",
        ),
    ];
    for (attempt, named) in attempts {
        let _ = changed(&world, &format!("{RIGHT} {attempt}"));
        let refused = apply_checked(&world).run().expect_status(126);
        refused.is_clear_error(["nobody can be asked", named, "--checks"]);
        assert!(world.read("add.py").contains("a - b\n"), "{attempt}");
    }
    let mut asked = apply_checked(&world).on_terminal(24, 200);
    let shown = asked.expect("d deny: ");
    assert!(shown.contains("new/deep/tests"), "{shown}");
    asked.line("d");
    assert_eq!(asked.wait().code(), 126);
    assert!(!world.exists("new"));
    let mut asked = apply_checked(&world).on_terminal(24, 200);
    let _ = asked.expect("d deny: ");
    asked.line("o");
    assert_eq!(asked.wait().code(), 0);
    assert!(world.exists("new/deep/tests/a"));
    assert!(world.read("add.py").contains("a + b"));
    verify_ledger(&world);
}

/// Nothing runs where the deciding files cannot be put back exactly.
#[test]
fn directory_above_tests_that_became_a_link_is_refused() {
    let world = project("directory_above_tests_that_became_a_link_is_refused");
    let _ = changed(&world, &format!("{RIGHT} mv pkg pkg2; ln -s pkg2 pkg"));
    let refused = apply_checked(&world).run().expect_status(125);
    refused.is_clear_error(["cannot run", "pkg"]);
    assert!(of_checks(&world).is_empty());
    assert!(world.read("add.py").contains("a - b\n"));
    // Root's layers keep a directory that was moved as one; elsewhere it is copied, and put back.
    let moved = "mv tests tests_old; mkdir tests; echo >tests/test_a.py";
    let _ = changed(&world, &format!("{WRONG} {moved}"));
    let refused = apply_checked(&world).run();
    assert!([1, 125].contains(&refused.code()), "{refused}");
    assert!(world.read("add.py").contains("a - b\n"));
}

/// A link among the tests makes what it stands for one of them.
#[test]
fn target_of_a_link_among_the_tests_decides() {
    let world = project("target_of_a_link_among_the_tests_decides");
    world.write("suite.py", world.read("tests/test_add.py"));
    fs::remove_file(world.path("tests/test_add.py")).unwrap();
    symlink("../suite.py", world.path("tests/test_add.py")).unwrap();
    let _ = changed(&world, &format!("{WRONG} echo >suite.py"));
    let refused = apply_checked(&world).run().expect_status(1);
    refused.is_clear_error(["has not passed"]);
    assert_eq!(of_checks(&world)[0]["body"]["judge"], 1);
}

/// Caches, ignored files and control files that are not applied are not there for the checks.
#[test]
fn checks_see_what_would_be_applied_and_nothing_else() {
    let world = project("checks_see_what_would_be_applied_and_nothing_else");
    world.write(".gitignore", "ignored\n");
    world.profile(
        "checked",
        "[checks]\ncommands = [\"test ! -e ignored && test ! -e node_modules && test ! -e .envrc\", \
         \"test -e new\"]\n",
    );
    let script = "echo 1 >new; echo 1 >ignored; mkdir node_modules; echo 1 >node_modules/a; \
                  echo 1 >.envrc";
    let _ = changed(&world, script);
    let _ = apply_checked(&world).run().success();
    let _ = changed(&world, "echo 2 >new; echo 2 >ignored");
    let ignored = apply_checked(&world).arg("--ignored").run();
    // What git ignores can run the checks: it is as on the host, and a person decides.
    ignored
        .expect_status(126)
        .is_clear_error(["a person decides", "ignored"]);
}

#[test]
fn other_changes_than_were_checked_are_not_applied() {
    let world = project("other_changes_than_were_checked_are_not_applied");
    world.profile(
        "checked",
        "[checks]\ncommands = [\"echo begun; sleep 3; sh run-tests.sh\"]\n",
    );
    let _ = changed(&world, RIGHT);
    let running = apply_checked(&world).start();
    let _ = running.until_stderr("Check 1 of 1");
    // Somebody else's change, of the same content.
    let content = world.read("add.py");
    world.write("add.py", content);
    let refused = running.wait();
    assert_ne!(refused.code(), 0, "{refused}");
    assert!(world.read("add.py").contains("a - b\n"));
}

#[test]
fn checks_have_a_time() {
    let world = project("checks_have_a_time");
    world.profile(
        "checked",
        "[checks]\ncommands = [\"sleep 600\"]\ntimeout = \"2s\"\n",
    );
    let _ = changed(&world, RIGHT);
    let refused = apply_checked(&world).run().expect_status(1);
    refused.is_clear_error(["sleep 600", "longer than 2 s"]);
}

/// At the end of a run: checks decide, where the profile says so and nothing needs a person.
#[test]
fn profile_applies_what_passes() {
    let world = project("profile_applies_what_passes");
    let checks = "[checks]\ncommands = [\"sh run-tests.sh\"]\n[apply]\nwhen = \"checks\"\n";
    world.profile("checked", checks);
    let run = |script: &str| {
        let run = ["run", "--profile", "checked", "--", "sh", "-c"];
        world.atoll(run).arg(script).run()
    };
    let kept = [
        (WRONG.to_owned(), "a check has not passed"),
        (
            format!("{RIGHT} echo true >conftest.py"),
            "decide the checks",
        ),
        (format!("{RIGHT} echo 1 >.envrc"), "control files"),
    ];
    for (script, why) in kept {
        let told = run(&script).success();
        told.says(["Not applied by checks", why]);
        assert!(world.read("add.py").contains("a - b\n"), "{script}");
    }
    let failed = run(&format!("{RIGHT} exit 4")).expect_status(4);
    assert!(!failed.err().contains("Check 1"), "{failed}");
    assert!(world.read("add.py").contains("a - b\n"));
    world.write(
        world.config().join("atoll/own.cedar"),
        "@approve(\"person\") permit(principal, action == Action::\"promote\", resource);\n\
         permit(principal, action, resource);",
    );
    run(RIGHT).success().says(["Not applied by checks"]);
    assert!(world.read("add.py").contains("a - b\n"));
    fs::remove_file(world.config().join("atoll/own.cedar")).unwrap();
    run(RIGHT).success().says(["Check 1 of 1"]);
    assert!(world.read("add.py").contains("a + b"));
    verify_ledger(&world);
}

#[test]
fn profile_that_applies_by_no_checks_is_refused() {
    let world = project("profile_that_applies_by_no_checks_is_refused");
    world.profile("checked", "apply = { when = \"checks\" }\n");
    let run = ["run", "--profile", "checked", "--", "true"];
    let refused = world.atoll(run).run().expect_status(125);
    refused.is_clear_error(["every change would pass"]);
}

/// Policies see what came of the checks, of exactly these changes.
#[test]
fn policies_see_the_checks() {
    let world = project("policies_see_the_checks");
    world.write(
        world.config().join("atoll/own.cedar"),
        "@id(\"checked\") @reason(\"unchecked\")\n\
         forbid(principal, action == Action::\"promote\", resource)\n\
         unless { context has checks && context.checks == \"passed\" };\n\
         permit(principal, action, resource);",
    );
    let _ = changed(&world, WRONG);
    let plain = || world.atoll(["apply", "last"]).run();
    plain().expect_status(126).is_clear_error(["unchecked"]);
    let _ = apply_checked(&world).run().expect_status(1);
    plain().expect_status(126).is_clear_error(["unchecked"]);
    // With tests that were changed: passing is not enough without a person.
    let _ = changed(&world, &format!("{RIGHT} echo true >conftest.py"));
    let _ = apply_checked(&world).run().expect_status(126);
    plain().expect_status(126).is_clear_error(["unchecked"]);
    let _ = changed(&world, RIGHT);
    let _ = apply_checked(&world).run().success();
    assert!(world.read("add.py").contains("a + b"));
}
