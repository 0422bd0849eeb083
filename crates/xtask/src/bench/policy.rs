//! The time of a decision by policies, measured by an example of `atoll-cedar`, in one process and
//! on one thread.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::outcome::Outcome;
use super::report::Verdict;
use super::{machine, report};
use crate::{command, tree};

/// The targets: name, median and 99th percentile, microseconds.
const TARGETS: [(&str, Option<f64>, f64); 3] = [
    ("100 policies", Some(15.0), 60.0),
    ("100 policies in each of 3 layers", None, 60.0),
    ("2,000 policies, 10,000 entities", None, 150.0),
];

pub(crate) fn run() -> Result<Outcome> {
    let root = tree::root()?;
    let arguments = [
        "run",
        "--quiet",
        "--release",
        "--package",
        "atoll-cedar",
        "--example",
        "decide",
    ];
    let measured = command::output(command::cargo().args(arguments).current_dir(&root))?;
    let measured: Value = serde_json::from_str(&measured).context("reading what was measured")?;
    let mut outcome = Outcome::default();
    println!("| decided on | median µs | p99 | aim | compiled in ms |\n|---|---|---|---|---|");
    for (name, median_us, p99_us) in TARGETS {
        let case = measured.as_array().into_iter().flatten();
        let case = case.clone().find(|one| one["name"] == name);
        let Some(case) = case else {
            bail!("{name} was not measured");
        };
        let numbers = case["decide_ns"].as_array().into_iter().flatten();
        let mut times: Vec<f64> = numbers.filter_map(Value::as_f64).collect();
        times.sort_by(f64::total_cmp);
        let at = |part: usize| {
            times
                .get(times.len() * part / 100)
                .map_or(f64::NAN, |ns| ns / 1e3)
        };
        let (median, p99) = (at(50), at(99));
        let is_met = judged(name, (median, median_us), (p99, p99_us), &mut outcome);
        let aim = median_us.map_or(String::new(), |aim| format!("{aim} / "));
        let verdict = if is_met { "met" } else { "missed" };
        let compiled = case["compile_ns"].as_f64().unwrap_or(f64::NAN) / 1e6;
        println!("| {name} | {median:.1} | {p99:.1} | {aim}{p99_us}: {verdict} | {compiled:.1} |");
    }
    let machine = machine::describe(&root, Path::new("/var/tmp"))?;
    let date = machine.date.clone();
    let results = root.join("bench/results");
    let path = report::free_name(&results, &format!("{date}-policy"))?;
    // What was built otherwise than releases are is told with what it took.
    let lto = std::env::var("CARGO_PROFILE_RELEASE_LTO").unwrap_or_else(|_| "fat".to_owned());
    let whole = json!({ "benchmark": "policy", "lto": lto, "machine": machine, "cases": measured });
    fs::write(&path, format!("{whole}\n"))?;
    println!(
        "\nraw numbers: {}",
        path.strip_prefix(&root).unwrap_or(&path).display()
    );
    Ok(outcome)
}

/// Returns whether median and 99th percentile, microseconds each, are within their limits.
fn judged(
    name: &str,
    (median, median_most): (f64, Option<f64>),
    (p99, p99_most): (f64, f64),
    outcome: &mut Outcome,
) -> bool {
    let median_most = median_most.map(|most| ("median", median, most));
    let mut is_met = true;
    for (which, measured, most) in median_most.into_iter().chain([("p99", p99, p99_most)]) {
        // What is no number is missed too.
        let verdict = match measured <= most {
            true => Verdict::Met(measured),
            false => Verdict::Missed(measured),
        };
        is_met &= matches!(verdict, Verdict::Met(_));
        outcome.add(&format!("{name}: {which} ≤ {most} µs"), &verdict);
    }
    is_met
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_that_takes_too_long_is_named() {
        let told = |median, p99| {
            let mut outcome = Outcome::default();
            let is_met = judged("few", (median, Some(15.0)), (p99, 60.0), &mut outcome);
            assert_eq!(is_met, outcome.lines().is_empty());
            outcome.lines().join("")
        };
        assert_eq!(told(15.0, 60.0), "");
        assert_eq!(told(15.5, 60.0), "missed: few: median ≤ 15 µs, was 15.50");
        assert_eq!(told(1.0, 61.0), "missed: few: p99 ≤ 60 µs, was 61.00");
        assert!(told(f64::NAN, 1.0).starts_with("missed: few: median"));
    }
}
