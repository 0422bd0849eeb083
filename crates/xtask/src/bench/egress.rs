//! `cargo xtask bench egress`: measures the cost of egress from a sandbox, against direct
//! connections and against other proxies.
//!
//! Needs root: it makes a network and mounts of its own, with a small internet on the loopback
//! device. [`run`] starts this program again in there, which then runs [`measure`]. The
//! measurements are in `egress/figures.rs`, the targets in `egress/report.rs`.

mod agent;
mod figures;
mod process;
mod report;
mod series;
mod shell;
mod world;

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;

pub(crate) use self::figures::Group;
use self::series::Series;
use self::world::World;
use super::machine;
use super::outcome::Outcome;
use super::report::free_name;
use crate::command;
use crate::person::{self, Stage};
use crate::tree;

/// The default number of turns of each contender.
const ROUNDS: usize = 5;

#[derive(Args)]
pub(crate) struct Options {
    /// Only this group of figures
    #[arg(long)]
    only: Option<Group>,
    /// How often each contender takes its turn
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// Install servers and other proxies that are missing
    #[arg(long)]
    install: bool,
    /// Another `atoll` than the one that is built from these sources
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Options {
    /// Returns the default options for one group.
    pub(crate) fn only(group: Group) -> Self {
        Self {
            only: Some(group),
            rounds: ROUNDS,
            install: false,
            program: None,
        }
    }
}

#[derive(Args)]
pub(crate) struct Measurement {
    #[arg(long)]
    only: Option<Group>,
    #[arg(long)]
    rounds: usize,
    /// The program to measure
    #[arg(long)]
    program: PathBuf,
    /// An empty directory
    #[arg(long)]
    directory: PathBuf,
}

/// The file of the numbers, in the directory.
const MEASURED: &str = "measured.json";

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if person::caller_id()? != 0 {
        bail!("this needs root: it makes a network of its own, with servers at public addresses");
    }
    crate::suite::provide_peers(options.install)?;
    let root = tree::root()?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => crate::suite::program(&root)?,
    };
    let stage = Stage::below(Path::new("/var/tmp"), "atoll-bench-")?;
    let program = stage.place(&program, "atoll")?;
    let person = stage.person(person::Who::Caller)?;
    let directory = person.temporary.join("egress");
    fs::create_dir(&directory)?;
    let mut apart = person.command(Path::new("unshare"));
    // Whatever is left of it at the end, or when it is killed, ends with it.
    apart.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    apart.args(["--mount", "--net", "--propagation", "private", "--"]);
    apart
        .arg(std::env::current_exe()?)
        .args(["bench", "measure-egress"]);
    apart.args(["--rounds", &options.rounds.to_string(), "--program"]);
    apart.arg(&program).arg("--directory").arg(&directory);
    let only = options.only.map(|only| format!("{only:?}").to_lowercase());
    if let Some(only) = &only {
        apart.args(["--only", only]);
    }
    if !command::succeeds(&mut apart)? {
        bail!("measuring failed");
    }
    let text = fs::read_to_string(directory.join(MEASURED))?;
    let all: Vec<Series> =
        serde_json::from_str(&text).context("the measured numbers have an unexpected form")?;
    print!("{}", report::table(&all, options.only));
    let machine = machine::describe(&root, stage.path())?;
    let content = json!({
        "benchmark": "egress",
        "what": "the way out of a sandbox, on a small internet of the loopback device",
        "how": "contenders take turns; the processor's time is that of what carries, alone",
        "rounds": options.rounds,
        "program": match options.program {
            Some(_) => "another one than of these sources",
            None => "of these sources",
        },
        "machine": machine,
        "programs": versions(),
        "load": fs::read_to_string("/proc/loadavg")?.trim(),
        "measured": report::content(&all, options.only),
    });
    let results = root.join("bench/results");
    let stem = match only {
        Some(only) => format!("{}-egress-{only}", machine.date),
        None => format!("{}-egress", machine.date),
    };
    let path = free_name(&results, &stem)?;
    fs::write(&path, format!("{content}\n"))?;
    let shown = path.strip_prefix(&root).unwrap_or(&path).display();
    println!("\nraw numbers: {shown}");
    stage.close()?;
    Ok(report::outcome(&all, options.only))
}

/// Takes the measurements, in a network of their own.
pub(crate) fn measure(measurement: &Measurement) -> Result<bool> {
    let mut world = World::new(&measurement.program, &measurement.directory)?;
    let mut all = Vec::new();
    for group in Group::ALL {
        if measurement.only.is_none_or(|only| only == group) {
            eprintln!("{group:?}: {} rounds", measurement.rounds);
            all.extend(group.measure(&mut world, measurement.rounds)?);
        }
    }
    let text = serde_json::to_string(&all)?;
    fs::write(measurement.directory.join(MEASURED), text)?;
    Ok(true)
}

/// Returns the versions of the programs that took part; some print theirs to standard error.
fn versions() -> Vec<String> {
    let asked = [
        ["nginx", "-v"],
        ["h2load", "--version"],
        ["mitmdump", "--version"],
        ["squid", "--version"],
        ["socat", "-V"],
    ];
    let version = |[program, option]: [&str; 2]| {
        let output = Command::new(command::find(program)?).arg(option).output();
        let output = output.ok()?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut lines = text
            .lines()
            .filter(|line| line.contains(|one: char| one.is_ascii_digit()));
        Some(format!("{program}: {}", lines.next()?.trim()))
    };
    asked.into_iter().filter_map(version).collect()
}
