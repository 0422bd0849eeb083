//! Tables for people, files for later comparison.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use super::machine::Machine;
use super::measure::Measured;
use super::outcome::Outcome;
use super::scenarios::{Benchmark, Statistic, Target};
use super::statistics::{Summary, summarise};

/// The measurements of one user.
pub(crate) struct Column {
    pub(crate) user: &'static str,
    pub(crate) measured: Vec<Measured>,
}

pub(crate) struct Report<'a> {
    pub(crate) benchmark: Benchmark,
    pub(crate) rounds: usize,
    pub(crate) machine: &'a Machine,
    pub(crate) columns: &'a [Column],
}

/// The verdict on a target; a failed contender never meets one.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Met(f64),
    Missed(f64),
    NotMeasured(String),
}

impl Report<'_> {
    /// Returns the verdicts on all targets, and the contenders that failed.
    pub(crate) fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::default();
        for column in self.columns {
            let place = format!("{} as {}", self.benchmark.name(), column.user);
            if column.measured.is_empty() {
                outcome.add(&place, &Verdict::NotMeasured("nobody took part".to_owned()));
            }
            for measured in &column.measured {
                if let Some(failure) = &measured.failure {
                    let contender = format!("{place}: {}", measured.name);
                    outcome.add(&contender, &Verdict::NotMeasured(failure.clone()));
                }
            }
            for target in self.benchmark.targets() {
                let verdict = verdict(&column.measured, &target);
                let told = format!("{place}: {} {}", target.ratio(), target.limit());
                outcome.add(&told, &verdict);
            }
        }
        outcome
    }

    pub(crate) fn table(&self) -> String {
        let mut table = format!(
            "\n**{}**: {}\n\n",
            self.benchmark.name(),
            self.benchmark.what()
        );
        table.push_str(
            "| user | contender | median ms | min | p95 | p99 | max | whole process ms |\n",
        );
        table.push_str("|---|---|---|---|---|---|---|---|\n");
        for column in self.columns {
            for measured in &column.measured {
                let _ = writeln!(table, "| {} | {} |", column.user, row(measured));
            }
        }
        for column in self.columns {
            for fact in column.measured.iter().flat_map(|measured| &measured.facts) {
                let _ = writeln!(table, "\n{}: {fact}", column.user);
            }
        }
        table.push_str("\n| user | ratio | target | measured | verdict |\n|---|---|---|---|---|\n");
        for column in self.columns {
            for target in self.benchmark.targets() {
                let (measured, word) = match verdict(&column.measured, &target) {
                    Verdict::Met(ratio) => (format!("{ratio:.2}"), "met".to_owned()),
                    Verdict::Missed(ratio) => (format!("{ratio:.2}"), "missed".to_owned()),
                    Verdict::NotMeasured(reason) => {
                        (String::new(), format!("not measured: {reason}"))
                    }
                };
                let _ = writeln!(
                    table,
                    "| {} | {} | {} | {measured} | {word} |",
                    column.user,
                    target.ratio(),
                    target.limit()
                );
            }
        }
        table
    }

    /// Writes every single number to a new file, never over an earlier one; returns its path.
    pub(crate) fn write(&self, directory: &Path) -> Result<PathBuf> {
        fs::create_dir_all(directory)?;
        let columns: Vec<_> = self
            .columns
            .iter()
            .map(|column| json!({"user": column.user, "contenders": contenders(column)}))
            .collect();
        let content = json!({
            "benchmark": self.benchmark.name(),
            "what": self.benchmark.what(),
            "how": "contenders take turns; `whole_ms` is spawn to wait; `work_ms` is what the \
                    script measured itself, without the start of the sandbox",
            "rounds": self.rounds,
            "machine": self.machine,
            "users": columns,
        });
        let stem = format!("{}-{}", self.machine.date, self.benchmark.name());
        let path = free_name(directory, &stem)?;
        fs::write(&path, format!("{content}\n"))?;
        Ok(path)
    }
}

/// Returns the first file name for results that begins with `stem` and is not taken.
pub(crate) fn free_name(directory: &Path, stem: &str) -> Result<PathBuf> {
    (1..)
        .map(|number| match number {
            1 => directory.join(format!("{stem}.json")),
            _ => directory.join(format!("{stem}-{number}.json")),
        })
        .find(|path| !path.exists())
        .context("no free name for the results")
}

fn contenders(column: &Column) -> Vec<serde_json::Value> {
    let one = |measured: &Measured| {
        json!({
            "measured": measured,
            "whole": summarise(&measured.whole_ms),
            "work": summarise(&measured.work_ms),
        })
    };
    column.measured.iter().map(one).collect()
}

/// Summarises the times of the work alone where a script measured them, else of the whole process.
fn decisive(measured: &Measured) -> Option<Summary> {
    summarise(&measured.work_ms).or_else(|| summarise(&measured.whole_ms))
}

fn row(measured: &Measured) -> String {
    if let Some(failure) = &measured.failure {
        return format!("{} | failed: {failure} | | | | |", measured.name);
    }
    let Some(summary) = decisive(measured) else {
        return format!("{} | not measured | | | | |", measured.name);
    };
    let whole = summarise(&measured.whole_ms).map_or(f64::NAN, |whole| whole.median);
    format!(
        "{} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {whole:.2}",
        measured.name, summary.median, summary.min, summary.p95, summary.p99, summary.max
    )
}

pub(crate) fn verdict(all: &[Measured], target: &Target) -> Verdict {
    let number = |name: &str| -> Result<f64, String> {
        let measured = all.iter().find(|measured| measured.name == name);
        let measured = measured.ok_or_else(|| format!("{name} did not take part"))?;
        if let Some(failure) = &measured.failure {
            return Err(format!("{name}: {failure}"));
        }
        let summary = decisive(measured).ok_or_else(|| format!("{name} has no numbers"))?;
        Ok(match target.by {
            Statistic::Median => summary.median,
            Statistic::P99 => summary.p99,
        })
    };
    let to = target.to.map_or(Ok(1.0), number);
    match (number(target.of), to) {
        (Ok(of), Ok(to)) if of / to <= target.at_most => Verdict::Met(of / to),
        (Ok(of), Ok(to)) => Verdict::Missed(of / to),
        (Err(reason), _) | (_, Err(reason)) => Verdict::NotMeasured(reason),
    }
}
