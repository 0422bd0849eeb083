//! `cargo xtask bench ledger`: measures the cost of the ledger, also at a large size.
//!
//! The work is in `crates/store/examples/figures.rs`, which is built as users get the program; this
//! module calls it and has the targets. Start reading at [`run`].

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::machine;
use super::outcome::Outcome;
use super::report::{Verdict, free_name};
use super::statistics::summarise;
use crate::command;
use crate::person::Stage;
use crate::suite;
use crate::tree;

/// The number of events in the ledger that is verified and searched.
const EVENTS: u64 = 1_000_000;
/// The number of events in the ledger that is opened.
const EVENTS_OF_OLD: u64 = 10_000_000;
/// The number of durable appends of one writer, and of runs.
const APPENDS: u64 = 1_000;
/// The number of durable appends of many writers.
const APPENDS_OF_MANY: u64 = 200_000;

#[derive(Args)]
pub(crate) struct Options {
    /// Leave out the ledger of ten million events (some 3 GB for a moment)
    #[arg(long)]
    small: bool,
    /// How often what takes long is done
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// A directory on the disk that is measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    below: std::path::PathBuf,
}

/// The values measured under one name.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) values: Vec<f64>,
}

/// A target for the median of one measurement, or for its ratio to another's.
#[derive(Clone)]
pub(super) struct Figure {
    name: &'static str,
    against: Option<&'static str>,
    wanted: Wanted,
}

#[derive(Clone, Copy)]
pub(super) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

const LEDGERS_SHARE: &str = "the ledger's share of a run";
const DECISIONS_SHARE: &str = "the decision's share of a run";
const BOTH_SHARES: &str = "policy and ledger together in a run";

const OPENED: &str = "opened, added to and signed";
const MEMORY: &str = "most memory";
/// The measurements on the ledger of ten million events.
const OF_OLD: [&str; 2] = [OPENED, MEMORY];

const FIGURES: [Figure; 10] = [
    Figure {
        name: "durable append",
        against: Some("bare write and fdatasync"),
        wanted: Wanted::AtMost(1.5),
    },
    Figure {
        name: "durable appends of 64 writers",
        against: None,
        wanted: Wanted::AtLeast(40_000.0),
    },
    Figure {
        name: "events verified",
        against: None,
        wanted: Wanted::AtLeast(400_000.0),
    },
    Figure {
        name: "search by host",
        against: None,
        wanted: Wanted::AtMost(1_000.0),
    },
    Figure {
        name: "search by type",
        against: None,
        wanted: Wanted::AtMost(1_000.0),
    },
    Figure {
        name: "search by run",
        against: None,
        wanted: Wanted::AtMost(1_000.0),
    },
    Figure {
        name: OPENED,
        against: None,
        wanted: Wanted::AtMost(1_000.0),
    },
    Figure {
        name: MEMORY,
        against: None,
        wanted: Wanted::AtMost(32.0),
    },
    Figure {
        name: LEDGERS_SHARE,
        against: None,
        wanted: Wanted::AtMost(1.0),
    },
    Figure {
        name: BOTH_SHARES,
        against: None,
        wanted: Wanted::AtMost(1.0),
    },
];

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let root = tree::root()?;
    let program = suite::figures(&root)?;
    let stage = Stage::below(&options.below, "atoll-bench-")?;
    let mut all: Vec<Measured> = Vec::new();
    let measure = |figure: &str, directory: &str, count: u64, all: &mut Vec<Measured>| {
        eprintln!("{figure}: {count}");
        let directory = stage.path().join(directory);
        fs::create_dir_all(&directory)?;
        figures(&program, figure, &directory, count, all)
    };
    measure("append", "append", APPENDS, &mut all)?;
    measure("run", "run", APPENDS, &mut all)?;
    let directory = stage.path().join("share");
    fs::create_dir_all(&directory)?;
    share(&suite::share(&root)?, &directory, &mut all)?;
    for round in 0..options.rounds {
        let directory = format!("writers-{round}");
        measure("writers", &directory, APPENDS_OF_MANY, &mut all)?;
    }
    measure("make", "million", EVENTS, &mut all)?;
    for _ in 0..options.rounds {
        measure("verify", "million", EVENTS, &mut all)?;
        measure("query", "million", EVENTS, &mut all)?;
    }
    if !options.small {
        measure("make", "old", EVENTS_OF_OLD, &mut all)?;
        for _ in 0..options.rounds {
            measure("restart", "old", 0, &mut all)?;
            measure("open", "old", 0, &mut all)?;
        }
    }
    print!("{}", table_of(&FIGURES, &all));
    let machine = machine::describe(&root, stage.path())?;
    let content = json!({
        "benchmark": "ledger",
        "what": "durable appends, verification, search and opening of the ledger",
        "how": "one process for each figure; a durable append and a bare one take turns",
        "rounds": options.rounds,
        "machine": machine,
        "load": fs::read_to_string("/proc/loadavg")?.trim(),
        "measured": all,
    });
    let path = free_name(
        &root.join("bench/results"),
        &format!("{}-ledger", machine.date),
    )?;
    fs::write(&path, format!("{content}\n"))?;
    println!(
        "\nraw numbers: {}",
        path.strip_prefix(&root).unwrap_or(&path).display()
    );
    stage.close()?;
    Ok(outcome(&all, options.small))
}

/// Measures the decision's share of a run, and adds it to the ledger's.
fn share(program: &Path, directory: &Path, all: &mut Vec<Measured>) -> Result<()> {
    let mut command = Command::new(program);
    command.arg(directory).arg(APPENDS.to_string());
    taken(&mut command, all)?;
    let values = |name: &str| {
        let one = all.iter().find(|one| one.name == name);
        one.map(|one| one.values.clone()).unwrap_or_default()
    };
    // Each was measured alone, as often: any pair of two is as good as another.
    let pairs = values(LEDGERS_SHARE).into_iter();
    let pairs = pairs.zip(values(DECISIONS_SHARE));
    let values = pairs.map(|(ledger, decision)| ledger + decision).collect();
    all.push(Measured {
        name: BOTH_SHARES.to_owned(),
        unit: "ms".to_owned(),
        values,
    });
    Ok(())
}

/// Measures one figure, in a process of its own.
fn figures(
    program: &Path,
    figure: &str,
    directory: &Path,
    count: u64,
    all: &mut Vec<Measured>,
) -> Result<()> {
    let mut command = Command::new(program);
    command.arg(figure).arg(directory).arg(count.to_string());
    taken(&mut command, all)
}

/// Runs a program that measures, and adds its values to those of the same name.
fn taken(command: &mut Command, all: &mut Vec<Measured>) -> Result<()> {
    for line in command::output(command)?.lines() {
        let measured: Measured =
            serde_json::from_str(line).context("the measured numbers have an unexpected form")?;
        match all.iter_mut().find(|one| one.name == measured.name) {
            Some(one) => one.values.extend(measured.values),
            None => all.push(measured),
        }
    }
    Ok(())
}

/// Returns the numbers and the verdicts on these targets.
pub(super) fn table_of(figures: &[Figure], all: &[Measured]) -> String {
    let mut table = "\n| figure | median | min | p99 | unit |\n|---|---|---|---|---|\n".to_owned();
    for one in all {
        if let Some(summary) = summarise(&one.values) {
            let _ = writeln!(
                table,
                "| {} | {:.2} | {:.2} | {:.2} | {} |",
                one.name, summary.median, summary.min, summary.p99, one.unit
            );
        }
    }
    table.push_str("\n| wanted | measured | verdict |\n|---|---|---|\n");
    for figure in figures {
        let (measured, word) = match figure.verdict(all) {
            Verdict::Met(number) => (format!("{number:.2}"), "met"),
            Verdict::Missed(number) => (format!("{number:.2}"), "missed"),
            Verdict::NotMeasured(_) => (String::new(), "not measured"),
        };
        let _ = writeln!(table, "| {} | {measured} | {word} |", figure.told());
    }
    table
}

/// Returns the outcome of all targets; without those of the large ledger if it was left out
/// (`small`).
fn outcome(all: &[Measured], small: bool) -> Outcome {
    let mut outcome = Outcome::default();
    for figure in FIGURES
        .iter()
        .filter(|figure| !(small && OF_OLD.contains(&figure.name)))
    {
        outcome.add(&figure.told(), &figure.verdict(all));
    }
    outcome
}

/// Returns the outcome of these targets.
pub(super) fn outcome_of(figures: &[Figure], all: &[Measured]) -> Outcome {
    let mut outcome = Outcome::default();
    for figure in figures {
        outcome.add(&figure.told(), &figure.verdict(all));
    }
    outcome
}

impl Figure {
    /// A target for the median of one measurement.
    pub(super) const fn of(name: &'static str, wanted: Wanted) -> Self {
        Self {
            name,
            against: None,
            wanted,
        }
    }

    fn measured(&self, all: &[Measured]) -> Option<f64> {
        let median = |name: &str| {
            let one = all.iter().find(|one| one.name == name)?;
            Some(summarise(&one.values)?.median)
        };
        match self.against {
            None => median(self.name),
            Some(other) => Some(median(self.name)? / median(other)?),
        }
    }

    fn verdict(&self, all: &[Measured]) -> Verdict {
        let Some(number) = self.measured(all) else {
            return Verdict::NotMeasured("it has no numbers".to_owned());
        };
        let is_met = match self.wanted {
            Wanted::AtLeast(limit) => number >= limit,
            Wanted::AtMost(limit) => number <= limit,
        };
        match is_met {
            true => Verdict::Met(number),
            false => Verdict::Missed(number),
        }
    }

    /// Returns the target in words.
    fn told(&self) -> String {
        let (sign, limit) = match self.wanted {
            Wanted::AtLeast(limit) => ('≥', limit),
            Wanted::AtMost(limit) => ('≤', limit),
        };
        let against = self.against.map(|name| format!(" / {name}"));
        let against = against.unwrap_or_default();
        format!("{}{against} {sign} {limit}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_met_missed_or_not_measured() {
        let all = [
            ("durable append", vec![2.0, 3.0, 4.0]),
            ("bare write and fdatasync", vec![2.0]),
            ("events verified", vec![1.0]),
        ];
        let all = all.map(|(name, values)| Measured {
            name: name.to_owned(),
            unit: "µs".to_owned(),
            values,
        });
        let table = table_of(&FIGURES, &all);
        for line in [
            "| durable append | 3.00 | 2.00 | 4.00 | µs |",
            "| durable append / bare write and fdatasync ≤ 1.5 | 1.50 | met |",
            "| events verified ≥ 400000 | 1.00 | missed |",
            "| search by run ≤ 1000 |  | not measured |",
        ] {
            assert!(table.contains(line), "{table}");
        }
        let [missed, unmeasured] = <[String; 2]>::try_from(outcome(&all, true).lines()).unwrap();
        assert_eq!(missed, "missed: events verified ≥ 400000, was 1.00");
        assert!(unmeasured.starts_with("not measured: durable appends of 64"));
        assert!(!unmeasured.contains(MEMORY), "{unmeasured}");
        let whole = outcome(&all, false).lines().join("\n");
        assert!(whole.contains(MEMORY) && whole.contains(OPENED), "{whole}");
    }
}
