//! `cargo xtask test`: everything that has to hold, as root and as an ordinary
//! user, with every test that was left out told.
//!
//! [`run`] is the whole path, top to bottom. What a test may expect of its
//! environment is told in CONTRIBUTING.md.

mod binaries;
pub(crate) mod fuzzing;
mod guest;
mod libtest;
mod needs;
pub(crate) mod prover;
mod runner;
mod solver;
mod tally;
mod toolchain;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

use crate::command;
use crate::person::{self, Stage, Who};
use crate::tree;
use binaries::{Built, Programs};
use runner::Runner;
use tally::Tally;

/// The tests of the whole program live in this crate.
const END_TO_END: &str = "e2e";

#[derive(Args)]
pub(crate) struct Options {
    /// Leave out tests named `…_slow` and the repetition of unit tests
    #[arg(long, conflicts_with = "nightly")]
    pub(crate) quick: bool,
    /// Run the tests named `…_nightly` too, and the fuzz targets
    #[arg(long)]
    pub(crate) nightly: bool,
    /// How long each fuzz target runs, seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        requires = "nightly"
    )]
    pub(crate) fuzz_seconds: u32,
    /// Install what is missing
    #[arg(long)]
    pub(crate) install: bool,
    /// Run only tests whose name contains this; no lints, no rules
    pub(crate) filter: Option<String>,
}

impl Options {
    /// The first line of the list of executed tests.
    fn mode(&self) -> &'static str {
        match (&self.filter, self.quick, self.nightly) {
            (Some(_), _, _) => "filtered",
            (None, true, _) => "quick",
            (None, false, true) => "nightly",
            (None, false, false) => "full",
        }
    }

    /// Whether the filter can match fuzz targets alone: no test has a space in its name.
    fn is_fuzzing_alone(&self) -> bool {
        let named = |filter: &String| filter.starts_with(fuzzing::LABEL);
        self.nightly && self.filter.as_ref().is_some_and(named)
    }
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let started = Instant::now();
    let root = tree::root()?;
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    let cache = needs::provide(options.install || ci, options.nightly)?;
    let mut tally = Tally::new(started, ci);

    if options.filter.is_none() {
        tally.gate("format", &mut cargo(&root, &["fmt", "--all", "--check"]))?;
        let fuzz = ["fmt", "--manifest-path", fuzzing::MANIFEST, "--check"];
        tally.gate("format of fuzz targets", &mut cargo(&root, &fuzz))?;
        let lint = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ];
        tally.gate("lints", &mut cargo(&root, &lint))?;
        prover::gates(&root, &mut tally)?;
    }
    let end_to_end = root.join("crates").join(END_TO_END).is_dir();
    if !options.is_fuzzing_alone()
        && let Some(built) = build(&root, end_to_end, &mut tally)?
    {
        run_tests(options, &root, &cache, &built, &mut tally)?;
    }
    if options.nightly {
        let below = built_below(&root)?.join("fuzz");
        fuzzing::run(options, &root, &cache, &below, &mut tally)?;
    }
    let list = built_below(&root)?.join("atoll-tests-ran.txt");
    tally.write_list(options.mode(), &list)?;
    if options.filter.is_none() {
        let program = std::env::current_exe()?;
        let mut tidy = std::process::Command::new(program);
        tally.gate(
            "rules",
            tidy.current_dir(&root).arg("tidy").arg("--ran").arg(&list),
        )?;
    }
    Ok(tally.close())
}

/// Builds everything that is run later; a failure is counted and told.
fn build(root: &Path, end_to_end: bool, tally: &mut Tally) -> Result<Option<Built>> {
    let unit = binaries::unit_tests(root, end_to_end);
    let mut unit = tally.built("build unit tests", unit);
    let of_prover = tally.built("build unit tests of the prover", prover::unit_tests(root));
    if let Some(unit) = &mut unit {
        unit.extend(of_prover.into_iter().flatten());
    }
    if !end_to_end {
        return Ok(unit.map(|unit| Built {
            unit,
            end_to_end: None,
        }));
    }
    let program = tally.built("build atoll", binaries::programs(root));
    let tests = tally.built("build end-to-end tests", binaries::end_to_end_tests(root));
    Ok(unit.map(|unit| Built {
        unit,
        end_to_end: program.zip(tests),
    }))
}

fn run_tests(
    options: &Options,
    root: &Path,
    cache: &Path,
    built: &Built,
    tally: &mut Tally,
) -> Result<()> {
    let base = std::env::temp_dir();
    let stage = Stage::below(&base, "atoll-test-")?;
    let toolchain = toolchain::reachable(cache)?;
    let everyone = person::everyone()?;
    if everyone == [Who::Caller] && person::caller_id()? == 0 {
        tally.leave_out(
            "everything as an ordinary user",
            "setpriv of util-linux is missing",
        );
    }
    for who in &everyone {
        let person = stage.person(*who)?;
        let runner = Runner::new(options, &stage, person, cache, &toolchain, root)?;
        if *who == Who::Caller || !options.quick {
            runner.run("unit tests", &built.unit, None, tally)?;
        }
        if *who == Who::Caller {
            tally.doc_tests(root, options.filter.as_deref())?;
        }
        if let Some((programs, tests)) = &built.end_to_end {
            let staged = Programs {
                ordinary: stage.place(&programs.ordinary, "atoll")?,
                weakened: stage.place(&programs.weakened, "atoll-without-defences")?,
                spawner: stage.place(&programs.spawner, "spawner")?,
                prover: stage.place(&programs.prover, "atoll-prove")?,
            };
            runner.run("end-to-end tests", tests, Some(&staged), tally)?;
        }
    }
    if let Err(error) = stage.close() {
        tally.fail("nothing of a test is left behind", &format!("{error:#}"));
    }
    Ok(())
}

pub(crate) use binaries::{AS_USERS, figures, program, share, spawner, weakened};
pub(crate) use needs::{cache_directory, npm_program, provide_peers};

fn cargo(root: &Path, arguments: &[impl AsRef<std::ffi::OsStr>]) -> std::process::Command {
    let mut command = command::cargo();
    command.current_dir(root).args(arguments);
    command
}

/// The directory that cargo builds in.
fn built_below(root: &Path) -> Result<PathBuf> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1"];
    let text = command::output(&mut cargo(root, &arguments))?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    let directory = metadata
        .get("target_directory")
        .and_then(serde_json::Value::as_str);
    directory
        .map(PathBuf::from)
        .context("cargo metadata names no target directory")
}
