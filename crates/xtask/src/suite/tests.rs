//! The readers of what cargo, the test harness and the tests say.

use std::path::PathBuf;
use std::time::Instant;

use super::binaries::{TestBinary, tests_in};
use super::fuzzing::{judge, targets};
use super::libtest::{End, Line, Skip, Sums, lines, same_test, skips, sums};
use super::tally::Tally;

fn line(test: &str, end: End) -> Line {
    Line {
        test: test.to_owned(),
        end,
    }
}

fn skip(test: &str, avoidable: bool) -> Skip {
    Skip {
        test: test.to_owned(),
        reason: "reason".to_owned(),
        avoidable,
    }
}

#[test]
fn lines_of_the_harness_are_read() {
    let cases = [
        ("test a::b ... ok", Some(line("a::b", End::Passed))),
        ("test a ... FAILED", Some(line("a", End::Failed))),
        (
            "test a ... ignored",
            Some(line("a", End::Ignored(String::new()))),
        ),
        (
            "test a ... ignored, needs b",
            Some(line("a", End::Ignored("needs b".to_owned()))),
        ),
        ("test a - should panic ... ok", Some(line("a", End::Passed))),
        (
            "test src/lib.rs - a (line 3) ... ok",
            Some(line("src/lib.rs - a (line 3)", End::Passed)),
        ),
        (
            "noise of a childtest a::b ... ok",
            Some(line("a::b", End::Passed)),
        ),
        ("test a has been running for over 60 seconds", None),
        ("test result: ok. 3 passed; 0 failed", None),
        ("running 3 tests", None),
    ];
    for (input, expected) in cases {
        assert_eq!(lines(input).pop(), expected, "{input}");
    }
}

#[test]
fn sums_are_read() {
    let output = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; \
                  finished in 0.01s\ntest result: FAILED. 1 passed; 4 failed; 0 ignored; \
                  0 measured; 0 filtered out; finished in 0.01s\n";
    let expected = Sums {
        passed: 4,
        failed: 4,
        ignored: 1,
        filtered_out: 2,
        count: 2,
    };
    assert_eq!(sums(output), expected);
    assert_eq!(sums("Segmentation fault"), Sums::default());
}

#[test]
fn skips_are_read_once() {
    let text = "a\treason\tavoidable\nb\treason\tunavoidable\na\tanother\tavoidable\n\nc\treason\n";
    assert_eq!(
        skips(text),
        [skip("a", true), skip("b", false), skip("c", true)]
    );
}

#[test]
fn names_match_by_their_end() {
    let cases = [
        ("a::b", "b", true),
        ("a::b", "a::b", true),
        ("a::cb", "b", false),
        ("b", "a::b", false),
    ];
    for (printed, given, expected) in cases {
        assert_eq!(same_test(printed, given), expected, "{printed} {given}");
    }
}

#[test]
fn only_test_executables_are_taken() {
    let text = r#"
{"reason":"compiler-artifact","manifest_path":"/a/crates/model/Cargo.toml","target":{"name":"atoll_model","kind":["lib"]},"profile":{"test":true},"executable":"/t/model-1"}
{"reason":"compiler-artifact","manifest_path":"/a/crates/app/Cargo.toml","target":{"name":"atoll","kind":["bin"]},"profile":{"test":false},"executable":"/t/atoll"}
{"reason":"compiler-artifact","manifest_path":"/a/crates/app/Cargo.toml","target":{"name":"cli","kind":["test"]},"profile":{"test":true},"executable":"/t/cli-1"}
{"reason":"build-finished","success":true}"#;
    let expected = |name: &str, executable: &str, package: &str| TestBinary {
        name: name.to_owned(),
        executable: PathBuf::from(executable),
        package: PathBuf::from(package),
    };
    assert_eq!(
        tests_in(text).unwrap(),
        [
            expected("app/cli", "/t/cli-1", "/a/crates/app"),
            expected("model/lib", "/t/model-1", "/a/crates/model"),
        ]
    );
}

#[test]
fn a_run_without_tests_fails() {
    assert!(!Tally::new(Instant::now(), false).close());
}

#[test]
fn only_an_avoidable_skip_on_ci_fails() {
    let cases = [
        (false, true, true),
        (true, false, true),
        (true, true, false),
    ];
    for (ci, avoidable, expected) in cases {
        let mut tally = Tally::new(Instant::now(), ci);
        let lines = [line("m::a", End::Passed), line("b", End::Passed)];
        tally.add("x", &lines, &[skip("a", avoidable)]);
        assert_eq!(tally.close(), expected, "{ci} {avoidable}");
    }
}

#[test]
fn a_skipped_test_was_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("list");
    let mut tally = Tally::new(Instant::now(), false);
    let lines = [
        line("m::a", End::Passed),
        line("b", End::Failed),
        line("c", End::Ignored(String::new())),
        line("d", End::Passed),
    ];
    tally.add("x", &lines, &[skip("a", false)]);
    tally.add_rows("x", "row-one\n");
    tally.write_list("full", &path).unwrap();
    assert_eq!(
        std::fs::read_to_string(path).unwrap(),
        "full\nx b\nx d\nx row-one\n"
    );
}

#[test]
fn the_fuzz_targets_are_read_from_their_manifest() {
    let manifest = "[package]\nname = 'x'\n[[bin]]\nname = 'a'\npath = 'p'\n[[bin]]\nname = 'b'";
    assert_eq!(targets(manifest).unwrap(), ["a", "b"]);
    assert!(targets("[package]\nname = 'x'").is_err());
}

#[test]
fn a_fuzz_target_has_to_say_that_it_tried_something() {
    let ended = "INFO: Seed: 1\n#2\tINITED\nDone 300 runs in 2 second(s)\n";
    let crashed =
        "panicked at x\nartifact_prefix='/t/'; Test unit written to /t/crash-1\nBase64: \n";
    let cases = [
        (true, ended, Ok("300 runs in 2 second(s)")),
        (true, "INFO: Seed: 1\n", Err("FAILED: it tried nothing")),
        (false, ended, Err("FAILED: it did not end as it should")),
        (false, crashed, Err("FAILED on the input /t/crash-1")),
    ];
    for (succeeded, printed, expected) in cases {
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(judge(succeeded, printed), expected, "{printed}");
    }
}
