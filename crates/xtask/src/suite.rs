//! `cargo xtask test`: all checks and tests, as root and as an ordinary user, with a report of
//! every test that was skipped.
//!
//! [`run`] is the whole path, top to bottom. CONTRIBUTING.md describes what a test may expect of
//! its environment.

mod binaries;
pub(crate) mod dist;
mod events;
mod flaky;
pub(crate) mod fuzzing;
mod guest;
mod mirror;
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
use flaky::Known;
use runner::Runner;
use tally::Tally;

#[derive(Args)]
pub(crate) struct Options {
    /// Run unit tests, golden files and some end-to-end tests, as this user alone
    #[arg(long, conflicts_with = "nightly")]
    pub(crate) quick: bool,
    /// Run all tests, also slow ones, kills, races and guests, the fuzz targets and the prover's
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
    /// Run only tests whose name contains this, of any tier; no lints, no rules
    pub(crate) filter: Option<String>,
}

impl Options {
    /// Returns the first line of the list of executed tests.
    fn mode(&self) -> &'static str {
        match (&self.filter, self.quick, self.nightly) {
            (Some(_), _, _) => "filtered",
            (None, true, _) => "quick",
            (None, false, true) => "nightly",
            (None, false, false) => "full",
        }
    }

    /// Returns the profile of `.config/nextest.toml`.
    fn profile(&self) -> &'static str {
        match (self.quick, self.nightly) {
            (true, _) => "quick",
            (false, true) => "nightly",
            (false, false) => "default",
        }
    }

    /// Returns whether tests may be wanted that need the prover, which takes minutes to build:
    /// all of them, or ones that a filter like `proofs::` or `proven` names.
    fn wants_prover(&self) -> bool {
        let named = |filter: &String| filter.contains("pro");
        self.nightly || self.filter.as_ref().is_some_and(named)
    }

    /// Returns whether tests may be wanted that need the packages, which take long to build.
    fn wants_packages(&self) -> bool {
        match &self.filter {
            Some(filter) => filter.contains("package"),
            None => self.nightly,
        }
    }

    /// Returns whether the filter can match fuzz targets alone: no test has a space in its name.
    fn is_fuzzing_alone(&self) -> bool {
        let named = |filter: &String| filter.starts_with(fuzzing::LABEL);
        self.nightly && self.filter.as_ref().is_some_and(named)
    }
}

/// Runs all of it; `rules` checks those that a compiler does not, by the list of executed tests.
pub(crate) fn run(options: &Options, rules: fn(Option<&Path>) -> Result<bool>) -> Result<bool> {
    let started = Instant::now();
    let root = tree::root()?;
    let known = Known::read(&root)?;
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    let any = options.nightly || options.filter.is_some();
    let mut tally = Tally::new(started, ci);
    needs::provide_build(options.install || ci)?;
    // Installing waits for the network, and lints for processors.
    let cache = std::thread::scope(|scope| {
        let needs = || needs::provide(options.install || ci, any, options.nightly);
        let needs = scope.spawn(needs);
        let checked = match options.filter {
            None => gates(options, &root, &mut tally),
            Some(_) => Ok(()),
        };
        let cache = needs
            .join()
            .map_err(|_| anyhow::anyhow!("the installation broke off"));
        checked.and(cache?)
    })?;
    tally.progress("what tests need", "looked at");

    if !options.is_fuzzing_alone() {
        run_tests(options, &root, &cache, &mut tally)?;
    }
    if options.nightly {
        let below = built_below(&root)?.join("fuzz");
        fuzzing::run(options, &root, &cache, &below, &mut tally)?;
    }
    let list = built_below(&root)?.join("atoll-tests-ran.txt");
    tally.write_list(options.mode(), &list)?;
    if options.filter.is_none() {
        // Not as a process: the build may have replaced this program.
        let is_right = rules(Some(&list))?;
        tally.judged("rules", is_right);
    }
    Ok(tally.close(&known))
}

/// Checks format and lints; the prover's too where its tests run.
fn gates(options: &Options, root: &Path, tally: &mut Tally) -> Result<()> {
    tally.gate("format", &mut cargo(root, &["fmt", "--all", "--check"]))?;
    let fuzz = ["fmt", "--manifest-path", fuzzing::MANIFEST, "--check"];
    tally.gate("format of fuzz targets", &mut cargo(root, &fuzz))?;
    prover::format(root, tally)?;
    let lint = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    tally.gate("lints", &mut cargo(root, &lint))?;
    if options.nightly {
        prover::gates(root, tally)?;
    }
    Ok(())
}

/// Builds the tests and the programs that they start, and runs all tests as the caller. Root also
/// runs those that depend on the user as an ordinary one.
fn run_tests(options: &Options, root: &Path, cache: &Path, tally: &mut Tally) -> Result<()> {
    let nextest = needs::nextest(cache).context("cargo-nextest is missing; give --install")?;
    let built = binaries::build(root, &nextest, options.wants_prover());
    let Some((listed, programs)) = tally.built("build tests and atoll", built) else {
        return Ok(());
    };
    let stage = Stage::below(&std::env::temp_dir(), "atoll-test-")?;
    let mut programs = programs.placed(&stage)?;
    // Without what they need, the tests of them are skipped.
    if options.wants_packages() && dist::obstacle(cache).is_none() {
        programs.packages = tally.built("packages", dist::make(root, cache));
    }
    let toolchain = toolchain::reachable(cache)?;
    let mut everyone = person::everyone()?;
    if everyone == [Who::Caller] && person::caller_id()? == 0 {
        tally.leave_out(
            "everything as an ordinary user",
            "setpriv of util-linux is missing",
        );
    }
    if options.quick {
        everyone.truncate(1);
    }
    let mut people = Vec::new();
    for who in everyone {
        let mut person = stage.person(who)?;
        person.prefer(&toolchain.join("bin"));
        people.push(person);
    }
    let staged = binaries::stage(root, &stage, listed, people.get(1))?;
    let runner = Runner::new(options, &stage, &people, &staged, cache, &toolchain, root)?;
    runner.run(options.profile(), &programs, tally)?;
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

/// Returns the directory that cargo builds in.
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
