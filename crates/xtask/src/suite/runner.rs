//! Runs the test programs as one person, by cargo-nextest: each test is a process of its own.
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
use crate::person::{Person, Stage};
use crate::tree;

/// The number of retries after the first run alone of a test that failed.
const RETRIES: &str = "1";
/// The number of the longest tests that are printed.
const LONGEST: usize = 12;

pub(crate) struct Runner<'a> {
    options: &'a Options,
    person: Person,
    staged: &'a Staged,
    /// The variables that every test sees in its environment.
    environment: Vec<(&'static str, PathBuf)>,
    /// The project's directory, or a copy, where the person can read it.
    project: PathBuf,
    nextest: PathBuf,
}

/// The files that one run of cargo-nextest and its tests write to.
struct Reports {
    directory: tempfile::TempDir,
}

impl Reports {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.path(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl<'a> Runner<'a> {
    pub(crate) fn new(
        options: &'a Options,
        stage: &Stage,
        mut person: Person,
        staged: &'a Staged,
        cache: &Path,
        toolchain: &Path,
        root: &Path,
    ) -> Result<Self> {
        person.prefer(&toolchain.join("bin"));
        let environment = vec![
            ("ATOLL_TEST_CACHE", cache.to_path_buf()),
            ("ATOLL_TEST_TOOLCHAIN", toolchain.to_path_buf()),
        ];
        Ok(Self {
            options,
            project: readable_copy(stage, &person, root)?,
            person,
            staged,
            environment,
            nextest: needs::nextest(cache).context("cargo-nextest is missing; give --install")?,
        })
    }

    /// Runs a tier of the tests, and prints one line for it.
    pub(crate) fn run(&self, profile: &str, programs: &Programs, tally: &mut Tally) -> Result<()> {
        let reports = self.reports()?;
        let mut selection = vec!["--profile".to_owned(), profile.to_owned()];
        if let Some(filter) = &self.options.filter {
            // Who names a test wants it, whatever its tier.
            selection.extend(["--ignore-default-filter".to_owned(), filter.clone()]);
        }
        let selected = self.list(&selection, tally)?;
        let mut all = self.one(&selection, &reports, programs)?;
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
            let repeated = self.one(&selection, &reports, programs)?;
            flaky = names_of(&repeated, End::Passed);
        }
        let label = self.person.label;
        // An interrupted run says nothing about the rest.
        for name in selected.iter().filter(|name| !all.contains_key(*name)) {
            tally.fail(&format!("{label}: {name}"), "was not run to its end");
        }
        let skips = events::skips(&reports.read("skips"));
        for name in &flaky {
            all.remove(name);
            tally.add_flaky(label, name);
        }
        for (name, finished) in &all {
            tally.add(label, name, finished, &skips);
        }
        tally.add_skipped_rows(label, &skips);
        tally.add_rows(&reports.read("rows"));
        let result = format!(
            "{} passed, {} failed, {} flaky; longest: {}",
            names_of(&all, End::Passed).len(),
            names_of(&all, End::Failed).len(),
            flaky.len(),
            longest(&all)
        );
        tally.progress(&format!("{profile} tests as {label}"), &result);
        Ok(())
    }

    /// Runs tests to the end; returns how each ended.
    fn one(
        &self,
        selection: &[String],
        reports: &Reports,
        programs: &Programs,
    ) -> Result<BTreeMap<Name, Finished>> {
        let output = File::create(reports.path("events"))?;
        let threads = threads();
        let quietly = [
            "--no-fail-fast",
            "--status-level=fail",
            "--final-status-level=none",
            "--failure-output=immediate",
            "--no-tests=pass",
            "--color=never",
        ];
        let mut command = self.nextest("run");
        command
            .env("NEXTEST_EXPERIMENTAL_LIBTEST_JSON", "1")
            .args([
                "--message-format=libtest-json",
                "--message-format-version=0.1",
            ])
            .args(quietly)
            .args(selection)
            .env("NEXTEST_TEST_THREADS", threads)
            .env("ATOLL_SKIP_FILE", reports.path("skips"))
            .env("ATOLL_RAN_FILE", reports.path("rows"))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("ATOLL_BIN", &programs.ordinary)
            .env("ATOLL_BIN_WITHOUT", &programs.weakened)
            .env("ATOLL_BIN_SPAWNER", &programs.spawner)
            .env("ATOLL_BIN_SANDBOX", &programs.sandbox)
            .envs(self.options.nightly.then_some(("ATOLL_NIGHTLY", "1")))
            .stdout(output);
        let succeeded = command::succeeds(&mut command)?;
        let tests = events::finished(&reports.read("events"))?;
        let has_failed = tests.values().any(|test| test.end == End::Failed);
        anyhow::ensure!(
            succeeded || has_failed,
            "cargo-nextest failed, though no test did"
        );
        Ok(tests)
    }

    /// Notes the tests that this tier leaves out; returns the others.
    fn list(&self, selection: &[String], tally: &mut Tally) -> Result<Vec<Name>> {
        let mut command = self.nextest("list");
        command.args(["--message-format", "json"]).args(selection);
        let listed: serde_json::Value = serde_json::from_str(&command::output(&mut command)?)?;
        let (selected, left_out) = events::listed(&listed);
        for name in left_out {
            tally.add_left_out(name);
        }
        Ok(selected)
    }

    /// Returns a command of cargo-nextest with the metadata of the build.
    fn nextest(&self, verb: &str) -> Command {
        let mut command = self.person.caller_command(&self.nextest);
        command
            .args(["nextest", verb, "--binaries-metadata"])
            .arg(&self.staged.binaries)
            .arg("--cargo-metadata")
            .arg(&self.staged.cargo)
            .arg("--workspace-remap")
            .arg(&self.project)
            .current_dir(&self.project);
        command
    }

    /// Makes the files that tests append to, for this person to write.
    fn reports(&self) -> Result<Reports> {
        let directory = tempfile::tempdir_in(&self.person.temporary)?;
        self.person.own(directory.path())?;
        let reports = Reports { directory };
        for name in ["skips", "rows"] {
            File::create(reports.path(name))?;
            self.person.own(&reports.path(name))?;
        }
        Ok(reports)
    }
}

/// Returns how many tests run at once: those of the whole program wait for others more than
/// they work.
fn threads() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors + processors.div_ceil(2)).to_string()
}

fn names_of(tests: &BTreeMap<Name, Finished>, end: End) -> Vec<Name> {
    let those = tests.iter().filter(|(_, test)| test.end == end);
    those.map(|(name, _)| name.clone()).collect()
}

/// Returns where most of the time went, in seconds.
fn longest(tests: &BTreeMap<Name, Finished>) -> String {
    let mut times: Vec<(&Name, f64)> = tests
        .iter()
        .map(|(name, test)| (name, test.seconds))
        .collect();
    times.sort_by(|one, other| other.1.total_cmp(&one.1));
    let shown = times.iter().take(LONGEST);
    let shown = shown.map(|(name, seconds)| {
        let short = name
            .rsplit_once('$')
            .map_or(name.as_str(), |(_, test)| test);
        format!("{short} {seconds:.0}")
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Returns the project's own directory, or a copy of its files where the person can
/// read them: tests read golden files at run time.
fn readable_copy(stage: &Stage, person: &Person, root: &Path) -> Result<PathBuf> {
    if person.can_enter(root) {
        return Ok(root.to_path_buf());
    }
    let copy = stage.path().join("project");
    if !copy.is_dir() {
        for path in tree::paths(root)? {
            let (source, target) = (root.join(&path), copy.join(&path));
            fs::create_dir_all(target.parent().unwrap_or(&copy))?;
            if source.is_file() {
                fs::copy(source, target)?;
            }
        }
    }
    Ok(copy)
}
