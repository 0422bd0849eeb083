//! `cargo xtask bench run`: measures speed against peers and against the same work outside.
//!
//! All contenders of one benchmark take turns, so that a slow moment of the
//! machine hits all of them. Each user measures in a process of its own.
//! Start reading at [`run`]; the benchmarks themselves are in `scenarios.rs`.

mod code;
mod data;
mod egress;
mod identity;
mod ledger;
mod machine;
mod measure;
mod neighbour;
mod outcome;
mod peers;
mod policy;
mod prove;
mod purpose;
mod report;
mod scenarios;
mod serve;
mod spawner;
mod statistics;
mod stop;
mod tools;

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::command;
use crate::person::{self, Person, Stage};
use crate::suite::{self, AS_USERS};
use crate::tree;
use measure::Measured;
use outcome::Outcome;
use report::Column;
use scenarios::{Benchmark, Place};

#[derive(Args)]
pub(crate) struct Arguments {
    /// End well where targets are missed
    #[arg(long, global = true)]
    report_only: bool,
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure everything, print a table, keep the raw numbers
    Run(Options),
    /// Measure sandboxes for code, made ahead and not, over HTTP (needs root)
    Code(code::Options),
    /// Measure the way out of a sandbox against peers (needs root)
    Egress(egress::Options),
    /// Measure what it costs that credentials stay outside (needs root)
    Identity,
    /// Measure what the ledger costs, and how it bears its size
    Ledger(ledger::Options),
    /// Measure served sandboxes, over HTTP (needs root)
    Serve(serve::Options),
    /// Measure what becomes of outputs
    Data(data::Options),
    /// Measure calls of tools, over MCP (needs root)
    Tools(tools::Options),
    /// Measure how long policies take to decide
    Policy,
    /// Measure how long it takes to prove all that ships
    Prove,
    /// Measure how well the shipped purposes narrow: labelled actions, decided
    Purpose,
    /// What one user measures; started by `run`
    #[command(hide = true)]
    Measure(Measurement),
    /// What is measured in a network of its own; started by `egress`
    #[command(hide = true)]
    MeasureEgress(egress::Measurement),
}

#[derive(Args)]
pub(crate) struct Options {
    /// Only this benchmark
    #[arg(long)]
    only: Option<Benchmark>,
    /// How often each contender takes its turn
    #[arg(long)]
    rounds: Option<usize>,
}

#[derive(Args)]
pub(crate) struct Measurement {
    benchmark: Benchmark,
    #[arg(long)]
    rounds: usize,
    /// The program to measure
    #[arg(long)]
    program: PathBuf,
    /// An empty directory on the disk that is measured
    #[arg(long)]
    directory: PathBuf,
    /// Where the numbers go
    #[arg(long)]
    out: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let outcome = match &arguments.task {
        Task::Run(options) => run_all(options),
        Task::Code(options) => code::run(options),
        Task::Egress(options) => egress::run(options),
        Task::Identity => identity::run(),
        Task::Ledger(options) => ledger::run(options),
        Task::Serve(options) => serve::run(options),
        Task::Data(options) => data::run(options),
        Task::Tools(options) => tools::run(options),
        Task::Policy => policy::run(),
        Task::Prove => prove::run(),
        Task::Purpose => purpose::run(),
        Task::Measure(measurement) => return measure_one(measurement),
        Task::MeasureEgress(measurement) => return egress::measure(measurement),
    }?;
    for line in outcome.lines() {
        println!("{line}");
    }
    Ok(outcome.is_good(arguments.report_only))
}

fn run_all(options: &Options) -> Result<Outcome> {
    let root = tree::root()?;
    let program = suite::program(&root)?;
    // `/tmp` may be memory; state and workspaces of users are on a disk.
    let stage = Stage::below(Path::new("/var/tmp"), "atoll-bench-")?;
    let program = stage.place(&program, "atoll")?;
    let many = stage.place(&suite::spawner(&root, AS_USERS)?, "spawner")?;
    let weakened = stage.place(&suite::weakened(&root, AS_USERS)?, "atoll-without-defences")?;
    let runner = stage.place(&std::env::current_exe()?, "xtask")?;
    let people: Vec<Person> = person::everyone()?
        .into_iter()
        .map(|who| stage.person(who))
        .collect::<Result<_>>()?;
    let machine = machine::describe(&root, stage.path())?;
    let mut outcome = Outcome::default();
    for benchmark in Benchmark::ALL {
        if options.only.is_some_and(|only| only != benchmark) {
            continue;
        }
        let rounds = options.rounds.unwrap_or(benchmark.rounds());
        let mut columns = Vec::new();
        for person in &people {
            eprintln!("{} as {}: {rounds} rounds", benchmark.name(), person.label);
            let program = match benchmark {
                Benchmark::Spawner => &many,
                Benchmark::Calls | Benchmark::CallsOfCompile => &weakened,
                _ => &program,
            };
            let measured = as_person(benchmark, rounds, person, &runner, program)?;
            columns.push(Column {
                user: person.label,
                measured,
            });
        }
        let result = report::Report {
            benchmark,
            rounds,
            machine: &machine,
            columns: &columns,
        };
        let path = result.write(&root.join("bench/results"))?;
        print!("{}", result.table());
        println!(
            "\nraw numbers: {}\n",
            path.strip_prefix(&root).unwrap_or(&path).display()
        );
        outcome.join(result.outcome());
    }
    stage.close()?;
    Ok(outcome)
}

fn as_person(
    benchmark: Benchmark,
    rounds: usize,
    person: &Person,
    runner: &Path,
    program: &Path,
) -> Result<Vec<Measured>> {
    let directory = person.temporary.join(benchmark.name());
    fs::create_dir(&directory)?;
    person.own(&directory)?;
    let out = directory.join("measured.json");
    let mut measure = person.command(runner);
    measure
        .args([
            "bench",
            "measure",
            benchmark.name(),
            "--rounds",
            &rounds.to_string(),
        ])
        .arg("--program")
        .arg(program)
        .arg("--directory")
        .arg(&directory)
        .arg("--out")
        .arg(&out);
    if !command::succeeds(&mut measure)? {
        bail!("measuring {} as {} failed", benchmark.name(), person.label);
    }
    let text = fs::read_to_string(&out)?;
    serde_json::from_str(&text).context("the measured numbers have an unexpected form")
}

/// Runs one benchmark, as the user whose numbers these are.
fn measure_one(measurement: &Measurement) -> Result<bool> {
    let place = Place::new(&measurement.program, &measurement.directory)?;
    let alone = match measurement.benchmark {
        Benchmark::Spawner => Some(spawner::measure(&place, measurement.rounds)?),
        Benchmark::Stop => Some(stop::measure(&place, measurement.rounds)?),
        _ => None,
    };
    if let Some(measured) = alone {
        fs::write(&measurement.out, serde_json::to_string(&measured)?)?;
        return Ok(true);
    }
    let prepared = scenarios::prepare(measurement.benchmark, &place)?;
    let mut measured = measure::take_turns(&prepared, measurement.rounds)?;
    if measurement.benchmark == Benchmark::Start {
        measured.extend(peers::hyperfine(&prepared, measurement.rounds)?);
    }
    fs::write(&measurement.out, serde_json::to_string(&measured)?)?;
    Ok(true)
}
