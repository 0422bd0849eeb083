//! `cargo xtask bench identity`: measures the cost of keeping credentials outside.
//!
//! Masking is measured by an example of `atoll-egress`, in one process and on one thread; the time
//! of a request with an injected credential, and of a turn of an agent, is a part of
//! `bench egress`, and needs root.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::egress::{self, Group};
use super::outcome::Outcome;
use super::report::Verdict;
use super::statistics::summarise;
use super::{machine, report};
use crate::{command, person, tree};

/// The lowest rate of masking allowed for each kind of stream, MB/s on one core.
const MASKED_MB_S_MIN: f64 = 400.0;
/// The most memory that masking may add after its first 16 MiB, KiB.
const GROWN_KIB_MAX: u64 = 1_024;
/// The kind of stream that is nothing but escapes, each of which could hide a secret's byte; no
/// real stream is like that.
const WORST: &str = "all percent-encoded";

#[derive(Serialize, Deserialize)]
struct Kind {
    name: String,
    masked_mb_s: Vec<f64>,
    searched_mb_s: Vec<f64>,
    grown_kib: u64,
}

#[derive(Serialize, Deserialize)]
struct Masking {
    kinds: Vec<Kind>,
    /// The times of a small request and its answer, nanoseconds each.
    request_ns: Vec<f64>,
    memory_kib: u64,
}

pub(crate) fn run() -> Result<Outcome> {
    let mut outcome = masking()?;
    if person::caller_id()? != 0 {
        let why = Verdict::NotMeasured("this needs root".to_owned());
        outcome.add("injected requests, and a turn of an agent", &why);
        return Ok(outcome);
    }
    for group in [Group::Identity, Group::Agent] {
        outcome.join(egress::run(&egress::Options::only(group))?);
    }
    Ok(outcome)
}

fn masking() -> Result<Outcome> {
    let root = tree::root()?;
    let arguments = [
        "run",
        "--quiet",
        "--release",
        "--package",
        "atoll-egress",
        "--example",
        "masking",
    ];
    let measured = command::output(command::cargo().args(arguments).current_dir(&root))?;
    let measured: Masking = serde_json::from_str(&measured).context("reading what was measured")?;
    let mut outcome = Outcome::default();
    println!("200 secrets in all forms, 1 GiB of each kind, one core; medians:\n");
    println!("| stream | masked MB/s | searched MB/s | more memory KiB | aim |");
    println!("|---|---|---|---|---|");
    for kind in &measured.kinds {
        let median = |values: &[f64]| summarise(values).map_or(f64::NAN, |all| all.median);
        let masked = median(&kind.masked_mb_s);
        let is_flat = kind.grown_kib <= GROWN_KIB_MAX;
        let is_met = masked >= MASKED_MB_S_MIN && is_flat;
        let verdict = match (kind.name == WORST, is_met) {
            (true, _) if is_flat => "none: the worst case",
            (_, true) => "≥ 400, flat: met",
            (_, false) => {
                let target = format!("masked MB/s of {}, ≥ 400 and flat", kind.name);
                outcome.add(&target, &Verdict::Missed(masked));
                "≥ 400, flat: missed"
            }
        };
        println!(
            "| {} | {masked:.0} | {:.0} | {} | {verdict} |",
            kind.name,
            median(&kind.searched_mb_s),
            kind.grown_kib
        );
    }
    let machine = machine::describe(&root, Path::new("/var/tmp"))?;
    let date = machine.date.clone();
    let path = report::free_name(&root.join("bench/results"), &format!("{date}-masking"))?;
    let whole = json!({ "benchmark": "masking", "machine": machine, "measured": measured });
    fs::write(&path, format!("{whole}\n"))?;
    let shown = path.strip_prefix(&root).unwrap_or(&path).display();
    println!("\nraw numbers: {shown}\n");
    Ok(outcome)
}
