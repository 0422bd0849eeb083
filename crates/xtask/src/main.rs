//! Tasks of the project: `tidy`, `test`, `prover`, `dist` and `bench`.
//!
//! Nothing here is part of what users get. The tasks never change tracked
//! files, except for new result files of `bench run`.
//! Start reading at [`main`]; each task is one module with one `run`.

mod bench;
mod command;
mod person;
mod suite;
mod tidy;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of the Atoll project")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the rules that a compiler does not check
    Tidy {
        /// The list of executed tests that a run of the tests has written
        #[arg(long, value_name = "FILE")]
        ran: Option<PathBuf>,
    },
    /// Check formatting, lints and rules, then run every test
    Test(suite::Options),
    /// Build the prover, and say where it is
    Prover,
    /// Build the program as it is handed out, try it, and make its packages
    Dist(suite::dist::Options),
    /// Measure speed against peers and against work outside
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Tidy { ran } => tidy::run(ran.as_deref()),
        Task::Test(options) => suite::run(&options, tidy::run),
        Task::Prover => suite::prover::run(),
        Task::Dist(options) => suite::dist::run(&options),
        Task::Bench(arguments) => bench::run(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bench_takes_that_a_report_is_wanted_alone() {
        for bench in ["run", "egress", "identity", "ledger", "policy", "prove"] {
            let line = ["cargo xtask", "bench", bench, "--report-only"];
            let read = Arguments::try_parse_from(line);
            assert!(
                matches!(
                    read,
                    Ok(Arguments {
                        task: Task::Bench(_)
                    })
                ),
                "{bench}"
            );
        }
    }
}
