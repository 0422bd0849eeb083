//! Numbers, verdicts and the reading of what others wrote.

use super::machine::{Machine, date, field};
use super::measure::{Contender, Measured, Prepared, elapsed_ms, take_turns};
use super::outcome::Outcome;
use super::peers::times;
use super::report::{Column, Report, Verdict, verdict};
use super::scenarios::{Benchmark, Statistic, Target, c_source};
use super::statistics::summarise;

fn measured(name: &str, numbers: &[f64]) -> Measured {
    Measured {
        name: name.to_owned(),
        whole_ms: numbers.to_vec(),
        ..Measured::default()
    }
}

#[test]
fn summaries_are_right() {
    assert_eq!(summarise(&[]), None);
    let odd = summarise(&[3.0, 1.0, 2.0]).unwrap();
    assert_eq!(
        (odd.median, odd.min, odd.max, odd.mean),
        (2.0, 1.0, 3.0, 2.0)
    );
    let numbers: Vec<f64> = (1..=100).map(f64::from).collect();
    let hundred = summarise(&numbers).unwrap();
    assert_eq!(
        (hundred.median, hundred.p95, hundred.p99, hundred.count),
        (50.5, 95.0, 99.0, 100)
    );
}

#[test]
fn verdicts_need_numbers_of_both() {
    let target = Target {
        of: "a",
        to: Some("b"),
        at_most: 1.5,
        by: Statistic::Median,
    };
    let b = || measured("b", &[2.0]);
    assert_eq!(
        verdict(&[measured("a", &[3.0]), b()], &target),
        Verdict::Met(1.5)
    );
    assert_eq!(
        verdict(&[measured("a", &[4.0]), b()], &target),
        Verdict::Missed(2.0)
    );
    let failed = Measured {
        failure: Some("exit status: 1".to_owned()),
        ..measured("a", &[1.0])
    };
    let cases = [vec![failed, b()], vec![b()], vec![measured("a", &[]), b()]];
    for all in cases {
        assert!(
            matches!(verdict(&all, &target), Verdict::NotMeasured(_)),
            "{all:?}"
        );
    }
}

#[test]
fn a_target_can_be_in_milliseconds() {
    let target = Target {
        of: "a",
        to: None,
        at_most: 100.0,
        by: Statistic::Median,
    };
    let judged = |ms: f64| verdict(&[measured("a", &[ms])], &target);
    assert_eq!(judged(100.0), Verdict::Met(100.0));
    assert_eq!(judged(100.5), Verdict::Missed(100.5));
    assert!(matches!(verdict(&[], &target), Verdict::NotMeasured(_)));
}

#[test]
fn a_target_can_be_for_the_slowest_in_hundred() {
    let target = |by| Target {
        of: "a",
        to: Some("b"),
        at_most: 1.5,
        by,
    };
    let mut slow = vec![1.0; 98];
    slow.extend([2.0, 9.0]);
    let all = [measured("a", &slow), measured("b", &[1.0; 100])];
    assert_eq!(verdict(&all, &target(Statistic::Median)), Verdict::Met(1.0));
    assert_eq!(verdict(&all, &target(Statistic::P99)), Verdict::Missed(2.0));
}

#[test]
fn a_bench_says_what_it_missed_and_fails() {
    let mut outcome = Outcome::default();
    outcome.add("a / b ≤ 1.5", &Verdict::Met(1.4));
    assert!(outcome.lines().is_empty() && outcome.is_good(false));
    outcome.add("a / b ≤ 1.2", &Verdict::Missed(1.4));
    outcome.add("c ≤ 1 ms", &Verdict::Missed(2.0));
    let missed = "missed: a / b ≤ 1.2, was 1.40; c ≤ 1 ms, was 2.00";
    assert_eq!(outcome.lines(), [missed]);
    assert!(!outcome.is_good(false) && outcome.is_good(true));
    // A report that is not whole is no success.
    let mut other = Outcome::default();
    other.add("d", &Verdict::NotMeasured("not installed".to_owned()));
    assert!(!other.is_good(false) && !other.is_good(true));
    outcome.join(other);
    assert_eq!(outcome.lines(), [missed, "not measured: d (not installed)"]);
    assert!(!outcome.is_good(true));
}

#[test]
fn a_benchmark_names_the_user_and_the_target_that_was_missed() {
    let told = |inside: Measured| {
        let columns = [Column {
            user: "root",
            measured: vec![inside, measured("outside", &[100.0])],
        }];
        let report = Report {
            benchmark: Benchmark::Compile,
            rounds: 1,
            machine: &Machine::default(),
            columns: &columns,
        };
        report.outcome().lines()
    };
    assert!(told(measured("inside", &[104.0])).is_empty());
    let slow = told(measured("inside", &[110.0]));
    assert_eq!(
        slow,
        ["missed: compile as root: inside / outside ≤ 1.05, was 1.10"]
    );
    let failed = Measured {
        failure: Some("exit status: 1".to_owned()),
        ..measured("inside", &[])
    };
    let failed = told(failed).join("\n");
    assert!(failed.starts_with("not measured: compile as root: inside (exit status: 1)"));
}

#[test]
fn work_decides_where_it_was_measured() {
    let target = Target {
        of: "a",
        to: Some("b"),
        at_most: 1.0,
        by: Statistic::Median,
    };
    let inside = Measured {
        work_ms: vec![1.0],
        ..measured("a", &[9.0])
    };
    assert_eq!(
        verdict(&[inside, measured("b", &[1.0])], &target),
        Verdict::Met(1.0)
    );
}

#[test]
fn turns_are_taken_and_failures_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let contender = |name, script: &str, times_itself| Contender {
        name,
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        directory: directory.path().to_path_buf(),
        afterwards: None,
        times_itself,
    };
    let prepared = Prepared {
        contenders: vec![
            contender("good", "exit 0", false),
            contender("bad", "echo why >&2; exit 3", false),
            contender("timed", "echo elapsed-nanoseconds 1500000", true),
            contender("silent", "exit 0", true),
        ],
        absent: vec![("gone", "not installed".to_owned())],
        directory: directory.path().to_path_buf(),
    };
    let all = take_turns(&prepared, 2).unwrap();
    let seen: Vec<_> = all
        .iter()
        .map(|one| {
            (
                one.name.as_str(),
                one.whole_ms.len(),
                one.work_ms.clone(),
                one.failure.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("good", 2, vec![], None),
            ("bad", 0, vec![], Some("exit status: 3: why")),
            ("timed", 2, vec![1.5, 1.5], None),
            (
                "silent",
                0,
                vec![],
                Some("the script did not print its time")
            ),
            ("gone", 0, vec![], Some("not installed")),
        ]
    );
}

#[test]
fn dates_and_fields_are_read() {
    let cases = [
        (0, "1970-01-01"),
        (951_782_400, "2000-02-29"),
        (1_795_219_200, "2026-11-21"),
        (4_107_542_400, "2100-03-01"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(date(seconds), expected);
    }
    assert_eq!(
        field("a\t: 1\nmodel name\t: x y\n", "model name"),
        Some("x y")
    );
    assert_eq!(
        elapsed_ms("noise\nelapsed-nanoseconds 2000000\r\nelapsed-nanoseconds 500000\n"),
        [2.0, 0.5]
    );
    assert_eq!(
        times(r#"{"results":[{"times":[0.001,0.002]}]}"#).unwrap(),
        [1.0, 2.0]
    );
}

#[test]
fn generated_sources_are_the_same_each_time() {
    assert_eq!(c_source(1), c_source(1));
    assert!(c_source(1).starts_with("int part1_0(int x)"));
}
