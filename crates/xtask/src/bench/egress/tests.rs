//! The reading of what others wrote, and verdicts.

use super::figures::{ATOLL, Group, STRAIGHT, loaded};
use super::report::{FIGURES, table};
use super::series::Series;
use crate::bench::report::Verdict;

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

const TOLD: &str = "\
finished in 4.00s, 12345.50 req/s, 14.70MB/s
requests: 49382 total, 49446 started, 49382 done, 49382 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 49382 2xx, 0 3xx, 0 4xx, 0 5xx";

#[test]
fn a_load_counts_only_without_a_failure() {
    let turn = loaded(&lines(TOLD)).unwrap();
    assert_eq!((turn.values, turn.work), (vec![12345.5], Some(49382.0)));
    let spoiled = [
        ("0 errored", "2 errored"),
        ("0 4xx", "7 4xx"),
        ("49382 2xx", "0 2xx"),
        ("req/s", ""),
        ("status", "other"),
    ];
    for (from, to) in spoiled {
        assert!(loaded(&lines(&TOLD.replace(from, to))).is_err(), "{to}");
    }
}

fn series(contender: &str, values: &[f64]) -> Series {
    Series {
        values: values.to_vec(),
        ..Series::new("request", contender, "ms")
    }
}

#[test]
fn figures_are_met_missed_or_not_measured() {
    let figure = FIGURES
        .iter()
        .find(|figure| figure.name.starts_with("added to a request"))
        .unwrap();
    let check = |atoll: &[f64], straight: &[f64]| {
        figure.verdict(&[series(ATOLL, atoll), series(STRAIGHT, straight)])
    };
    assert_eq!(check(&[1.0, 9.0, 1.0], &[1.0]), Verdict::Met(0.0));
    assert_eq!(check(&[2.0], &[1.0]), Verdict::Missed(1.0));
    assert!(matches!(check(&[], &[1.0]), Verdict::NotMeasured(_)));
    let failed = Series {
        failure: Some("why".to_owned()),
        ..series(ATOLL, &[1.0])
    };
    let all = [failed, series(STRAIGHT, &[1.0])];
    assert_eq!(
        figure.verdict(&all),
        Verdict::NotMeasured("atoll: why".to_owned())
    );
    let told = table(&all, Some(Group::Latency));
    assert!(told.contains("not measured: atoll: why"), "{told}");
}

#[test]
fn work_for_a_second_of_the_processor_needs_both() {
    let mut one = series(ATOLL, &[1.0]);
    assert_eq!(one.work_for_a_second(), None);
    one.work = vec![10.0, 20.0];
    one.carrier_seconds = vec![0.5, 1.0];
    assert_eq!(one.work_for_a_second(), Some(20.0));
}
