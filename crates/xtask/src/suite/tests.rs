//! The readers of what cargo, the test harness and the tests say.

use std::time::Instant;

use super::dist::glibc;
use super::events::{End, Finished, Skip, filter, finished, listed, person_of, same_test, skips};
use super::flaky::Known;
use super::fuzzing::{judge, targets};
use super::tally::Tally;

fn ended(end: End) -> Finished {
    Finished { end, seconds: 0.5 }
}

fn skip(test: &str, avoidable: bool) -> Skip {
    Skip {
        test: test.to_owned(),
        reason: "reason".to_owned(),
        avoidable,
    }
}

fn nothing_known() -> Known {
    Known::parse("most = 0").unwrap()
}

#[test]
fn events_of_tests_are_read() {
    let cases = [
        (
            r#"{"type":"test","event":"ok","name":"a::b$c::d","exec_time":0.5}"#,
            Some(End::Passed),
        ),
        (
            r#"{"type":"test","event":"failed","name":"a::b$c::d","exec_time":0.5}"#,
            Some(End::Failed),
        ),
        (
            r#"{"type":"test","event":"timeout","name":"a::b$c::d","exec_time":0.5}"#,
            Some(End::Failed),
        ),
        (
            r#"{"type":"test","event":"ignored","name":"a::b$c::d","exec_time":0.5}"#,
            Some(End::Ignored),
        ),
        (
            r#"{"type":"test","event":"started","name":"a::b$c::d"}"#,
            None,
        ),
        (
            r#"{"type":"suite","event":"ok","passed":1,"failed":0}"#,
            None,
        ),
        ("", None),
    ];
    for (output, expected) in cases {
        let mut read = finished(output).unwrap();
        assert_eq!(read.remove("a::b$c::d"), expected.map(ended), "{output}");
        assert!(read.is_empty(), "{output}");
    }
    assert!(finished("{").is_err());
}

#[test]
fn filter_of_names_selects_exactly_these() {
    let names = ["e2e::e2e$kept::one".to_owned(), "x::user-y$two".to_owned()];
    assert_eq!(
        filter(&names).unwrap(),
        "(package(=e2e) and binary(=e2e) and not kind(=user) and test(=kept::one)) or \
         (package(=x) and kind(=user) and test(=two))"
    );
    assert!(filter(&["nameless".to_owned()]).is_err());
}

#[test]
fn a_name_tells_who_a_test_ran_as() {
    let cases = [
        ("x::y$a::b", (false, "x::y$a::b")),
        ("x::user-y$a::b", (true, "x::y$a::b")),
        ("x::y$user-a", (false, "x::y$user-a")),
    ];
    for (name, (is_ordinary, own)) in cases {
        assert_eq!(
            person_of(&name.to_owned()),
            (is_ordinary, own.to_owned()),
            "{name}"
        );
    }
}

#[test]
fn tests_of_other_tiers_are_left_out() {
    let text = r#"{"rust-suites":{"x":{"package-name":"x","binary-name":"y","testcases":{
        "a":{"filter-match":{"status":"matches"}},
        "b":{"filter-match":{"status":"mismatch","reason":"default-filter"}},
        "c":{"filter-match":{"status":"mismatch","reason":"ignored"}}}}}}"#;
    let (selected, left_out) = listed(&serde_json::from_str(text).unwrap());
    assert_eq!(selected, ["x::y$a", "x::y$c"]);
    assert_eq!(left_out, ["x::y$b"]);
}

#[test]
fn skips_are_read_once() {
    let text = "a\treason\tavoidable\nb\treason\tunavoidable\na\treason\tavoidable\n\nc\treason\n";
    assert_eq!(
        skips(text),
        [skip("a", true), skip("b", false), skip("c", true)]
    );
}

#[test]
fn a_test_may_leave_out_its_modules() {
    let cases = [
        ("x::y$a::b", "b", true),
        ("x::y$a::b", "a::b", true),
        ("x::y$b", "b", true),
        ("x::y$a::cb", "b", false),
        ("x::y$b", "a::b", false),
    ];
    for (printed, given, expected) in cases {
        assert_eq!(same_test(printed, given), expected, "{printed} {given}");
    }
}

#[test]
fn a_run_without_tests_fails() {
    assert!(!Tally::new(Instant::now(), false).close(&nothing_known()));
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
        let skips = [skip("a", avoidable)];
        for name in ["x::y$m::a", "x::y$b"] {
            tally.add("root", &name.to_owned(), &ended(End::Passed), &skips);
        }
        assert_eq!(tally.close(&nothing_known()), expected, "{ci} {avoidable}");
    }
}

#[test]
fn a_flaky_test_does_not_fail_the_run() {
    let mut tally = Tally::new(Instant::now(), true);
    tally.add_flaky("root", &"x::y$a".to_owned());
    assert!(tally.close(&nothing_known()));
}

#[test]
fn a_skipped_test_was_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("list");
    let mut tally = Tally::new(Instant::now(), false);
    let skips = [skip("a", false)];
    let tests = [
        ("x::y$m::a", End::Passed),
        ("x::y$b", End::Failed),
        ("x::y$c", End::Ignored),
        ("x::y$d", End::Passed),
    ];
    for (name, end) in tests {
        tally.add("root", &name.to_owned(), &ended(end), &skips);
    }
    tally.add_flaky("root", &"x::y$e".to_owned());
    tally.add_rows("row-one\n");
    tally.add_left_out("x::y$f".to_owned());
    tally.write_list("full", &path).unwrap();
    assert_eq!(
        std::fs::read_to_string(path).unwrap(),
        "full\nran row-one\nran x::y$d\nran x::y$e\nleft-out x::y$f\n"
    );
}

#[test]
fn flaky_list_has_dates_causes_and_a_bound() {
    let entry = "[[test]]\nname = 'm::a'\nsince = '2026-01-02'\ncause = 'waits for a guess'\n";
    let known = Known::parse(&format!("most = 1\n{entry}")).unwrap();
    assert_eq!(known.since("root: x::y$m::a"), Some("2026-01-02"));
    assert_eq!(known.since("root: x::y$m::b"), None);
    let refused = [
        format!("most = 0\n{entry}"),
        "most = 1\n[[test]]\nname = 'a'\nsince = 'lately'\ncause = 'c'\n".to_owned(),
        "most = 1\n[[test]]\nname = 'a'\nsince = '2026-01-02'\ncause = ''\n".to_owned(),
        "most = 1\n[[test]]\nname = 'a'\n".to_owned(),
    ];
    for text in refused {
        assert!(Known::parse(&text).is_err(), "{text}");
    }
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

#[test]
fn a_newer_c_library_than_the_oldest_is_seen() {
    let cases: [(&str, &[&str]); 5] = [
        (
            "0000 DF *UND* 0000 (GLIBC_2.2.5) printf\n0 GLIBC_2.31 f",
            &[],
        ),
        ("0x069691b1 0x00 05 GLIBC_2.31\n0 (GLIBC_2.4) g", &[]),
        (
            "0 (GLIBC_2.34) f\n0 (GLIBC_2.4) g\n0 (GLIBC_2.34) h\n0 GLIBC_3 i",
            &["GLIBC_2.34", "GLIBC_3"],
        ),
        ("0x0fd0 0x00 09 GLIBC_ABI_DT_RELR\n", &["GLIBC_ABI_DT_RELR"]),
        ("0 (GCC_3.0) _Unwind_Resume\n", &[]),
    ];
    for (listed, expected) in cases {
        assert_eq!(glibc::newer(listed), expected, "{listed}");
    }
}
