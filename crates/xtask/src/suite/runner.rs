//! Runs the test programs, by cargo-nextest: each test is a process of its own. Those of the
//! ordinary user are among those of the caller, so that neither waits for the other.
//!
//! A test that fails is run again alone, up to twice; one that then passes is flaky.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::binaries::{Programs, Staged};
use super::events::{self, End, Finished, Name};
use super::tally::Tally;
use super::{Options, needs};
use crate::command;
use crate::person::{Person, Reports, Stage};
use crate::tree;

/// The number of retries after the first run alone of a test that failed.
const RETRIES: &str = "1";
/// Tests that run at once on each processor: most wait for processes and disks.
const PER_PROCESSOR: usize = 4;

pub(crate) struct Runner<'a> {
    options: &'a Options,
    /// The caller, and the ordinary user where tests run as that one too.
    people: &'a [Person],
    staged: &'a Staged,
    /// The variables that every test sees in its environment.
    environment: Vec<(&'static str, PathBuf)>,
    /// The project's directory, or a copy, where every person can read it.
    project: PathBuf,
    nextest: PathBuf,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(
        options: &'a Options,
        stage: &Stage,
        people: &'a [Person],
        staged: &'a Staged,
        cache: &Path,
        toolchain: &Path,
        root: &Path,
    ) -> Result<Self> {
        let environment = vec![
            ("ATOLL_TEST_CACHE", cache.to_path_buf()),
            ("ATOLL_TEST_TOOLCHAIN", toolchain.to_path_buf()),
        ];
        Ok(Self {
            options,
            project: readable_copy(stage, people, root)?,
            people,
            staged,
            environment,
            nextest: needs::nextest(cache).context("cargo-nextest is missing; give --install")?,
        })
    }

    /// Runs a tier of the tests, and prints one line for it.
    pub(crate) fn run(&self, profile: &str, programs: &Programs, tally: &mut Tally) -> Result<()> {
        let mut selection = vec!["--profile".to_owned(), profile.to_owned()];
        if let Some(filter) = &self.options.filter {
            // Who names a test wants it, whatever its tier.
            selection.extend(["--ignore-default-filter".to_owned(), filter.clone()]);
        }
        let selected = self.list(&selection, tally)?;
        let mut all = self.one(&selection, programs)?;
        tally.progress(&format!("{profile} tests"), &counts(&all));
        let failed = names_of(&all, End::Failed);
        let mut flaky = Vec::new();
        if !failed.is_empty() {
            let again = ["--profile", profile, "--ignore-default-filter"];
            let alone = ["--test-threads", "1", "--retries", RETRIES, "-E"];
            let mut selection: Vec<String> = [again.as_slice(), alone.as_slice()]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect();
            selection.push(events::filter(&failed)?);
            let repeated = self.one(&selection, programs)?;
            flaky = names_of(&repeated, End::Passed);
            flaky.retain(|name| failed.contains(name));
            tally.progress("what failed, alone", &counts(&repeated));
        }
        // An interrupted run says nothing about the rest.
        for name in selected.iter().filter(|name| !all.contains_key(*name)) {
            let (label, name) = self.label(name)?;
            tally.fail(&format!("{label}: {name}"), "was not run to its end");
        }
        for name in &flaky {
            all.remove(name);
            let (label, name) = self.label(name)?;
            tally.add_flaky(label, &name);
        }
        let skips = self.people.iter().map(|person| {
            let skips = events::skips(&Reports::read(&person.reports().skips));
            tally.add_skipped_rows(person.label, &skips);
            tally.add_rows(&Reports::read(&person.reports().rows));
            (person.label, skips)
        });
        let skips: BTreeMap<&str, _> = skips.collect();
        for (name, finished) in &all {
            let (label, name) = self.label(name)?;
            let skips = skips.get(label).map_or(&[][..], Vec::as_slice);
            tally.add(label, &name, finished, skips);
        }
        Ok(())
    }

    /// Returns who a test ran as, and its name without that.
    fn label(&self, name: &Name) -> Result<(&'static str, Name)> {
        let (is_ordinary, name) = events::person_of(name);
        let person = match is_ordinary {
            true => self.people.get(1),
            false => self.people.first(),
        };
        Ok((person.context("a test of nobody's")?.label, name))
    }

    /// Runs tests to the end; returns how each ended.
    fn one(&self, selection: &[String], programs: &Programs) -> Result<BTreeMap<Name, Finished>> {
        let path = self.staged.events();
        let caller = self.people.first().context("nobody runs tests")?.reports();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let quietly = [
            "--no-fail-fast",
            "--status-level=fail",
            "--final-status-level=none",
            "--failure-output=immediate",
            "--no-tests=pass",
            "--color=never",
        ];
        let mut command = self.nextest("run")?;
        command
            .env("NEXTEST_EXPERIMENTAL_LIBTEST_JSON", "1")
            .args([
                "--message-format=libtest-json",
                "--message-format-version=0.1",
            ])
            .args(quietly)
            .args(selection)
            .env(
                "NEXTEST_TEST_THREADS",
                (processors * PER_PROCESSOR).to_string(),
            )
            .env("ATOLL_SKIP_FILE", &caller.skips)
            .env("ATOLL_RAN_FILE", &caller.rows)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("ATOLL_BIN", &programs.ordinary)
            .env("ATOLL_BIN_WITHOUT", &programs.weakened)
            .env("ATOLL_BIN_SPAWNER", &programs.spawner)
            .env("ATOLL_BIN_SANDBOX", &programs.sandbox)
            .envs(self.options.nightly.then_some(("ATOLL_NIGHTLY", "1")))
            .envs(
                programs
                    .packages
                    .iter()
                    .map(|path| ("ATOLL_TEST_PACKAGES", path)),
            )
            .stdout(File::create(&path)?);
        let succeeded = command::succeeds(&mut command)?;
        let tests = events::finished(&fs::read_to_string(&path)?)?;
        let has_failed = tests.values().any(|test| test.end == End::Failed);
        anyhow::ensure!(
            succeeded || has_failed,
            "cargo-nextest failed, though no test did"
        );
        Ok(tests)
    }

    /// Notes the tests that this tier leaves out; returns the others.
    fn list(&self, selection: &[String], tally: &mut Tally) -> Result<Vec<Name>> {
        let mut command = self.nextest("list")?;
        command.args(["--message-format", "json"]).args(selection);
        let listed: serde_json::Value = serde_json::from_str(&command::output(&mut command)?)?;
        let (selected, left_out) = events::listed(&listed);
        for name in left_out {
            tally.add_left_out(events::person_of(&name).1);
        }
        Ok(selected)
    }

    /// Returns a command of cargo-nextest with the metadata of the build.
    fn nextest(&self, verb: &str) -> Result<Command> {
        let caller = self.people.first().context("nobody runs tests")?;
        let mut command = caller.command(&self.nextest);
        command
            .args(["nextest", verb, "--binaries-metadata"])
            .arg(&self.staged.binaries)
            .arg("--cargo-metadata")
            .arg(&self.staged.cargo)
            .arg("--workspace-remap")
            .arg(&self.project)
            .current_dir(&self.project);
        Ok(command)
    }
}

fn names_of(tests: &BTreeMap<Name, Finished>, end: End) -> Vec<Name> {
    let those = tests.iter().filter(|(_, test)| test.end == end);
    those.map(|(name, _)| name.clone()).collect()
}

fn counts(tests: &BTreeMap<Name, Finished>) -> String {
    let of = |end| names_of(tests, end).len();
    format!("{} passed, {} failed", of(End::Passed), of(End::Failed))
}

/// Returns the project's own directory, or a copy of its files where every person can
/// read them: tests read golden files at run time.
fn readable_copy(stage: &Stage, people: &[Person], root: &Path) -> Result<PathBuf> {
    if people.iter().all(|person| person.can_enter(root)) {
        return Ok(root.to_path_buf());
    }
    let copy = stage.path().join("project");
    tree::copy(root, &copy)?;
    Ok(copy)
}
