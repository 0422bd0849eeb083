//! Running test executables as one person.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Options;
use super::binaries::{Programs, TestBinary};
use super::libtest;
use super::tally::Tally;
use crate::command;
use crate::person::{Person, Stage};
use crate::tree;

/// No single test executable takes longer, or something in it hangs.
const BINARY_SECONDS_MAX: u64 = 20 * 60;
const NIGHTLY_BINARY_SECONDS_MAX: u64 = 6 * 60 * 60;

/// What is the same whoever starts it: in a guest the tests are root themselves, and
/// an ordinary user.
const RUN_ONCE: [&str; 1] = ["e2e/guest"];

pub(crate) struct Runner<'a> {
    options: &'a Options,
    stage: &'a Stage,
    person: Person,
    /// What every test sees in its environment.
    environment: Vec<(&'static str, PathBuf)>,
    /// The project, and the same where the person can read it.
    project: PathBuf,
    root: PathBuf,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(
        options: &'a Options,
        stage: &'a Stage,
        mut person: Person,
        cache: &Path,
        toolchain: &Path,
        root: &Path,
    ) -> Result<Self> {
        person.prefer(&toolchain.join("bin"));
        let project = root.to_path_buf();
        let root = readable_copy(stage, &person, root)?;
        Ok(Self {
            project,
            options,
            stage,
            person,
            environment: vec![
                ("ATOLL_TEST_CACHE", cache.to_path_buf()),
                ("ATOLL_TEST_TOOLCHAIN", toolchain.to_path_buf()),
            ],
            root,
        })
    }

    /// Runs all of them one after the other and prints one line for the stage.
    pub(crate) fn run(
        &self,
        stage: &str,
        binaries: &[TestBinary],
        programs: Option<&Programs>,
        tally: &mut Tally,
    ) -> Result<()> {
        let mut sums = libtest::Sums::default();
        let mut times: Vec<(Duration, &str)> = Vec::new();
        let is_repeated = self.person.is_another();
        let again = |binary: &&TestBinary| !RUN_ONCE.contains(&binary.name.as_str());
        for binary in binaries.iter().filter(|one| !is_repeated || again(one)) {
            let began = Instant::now();
            let one = self.run_one(binary, programs, tally)?;
            times.push((began.elapsed(), &binary.name));
            sums.passed += one.passed;
            sums.failed += one.failed;
            sums.filtered_out += one.filtered_out;
        }
        let result = format!(
            "{} passed, {} failed, {} left out by name; longest: {}",
            sums.passed,
            sums.failed,
            sums.filtered_out,
            longest(times)
        );
        tally.progress(&format!("{stage} as {}", self.person.label), &result);
        Ok(())
    }

    fn run_one(
        &self,
        binary: &TestBinary,
        programs: Option<&Programs>,
        tally: &mut Tally,
    ) -> Result<libtest::Sums> {
        let label = format!("{} as {}", binary.name, self.person.label);
        let staged = self
            .stage
            .place(&binary.executable, &binary.name.replace('/', "-"))?;
        let reports = tempfile::tempdir_in(&self.person.temporary)?;
        self.person.own(reports.path())?;
        let (skip_file, ran_file) = (reports.path().join("skips"), reports.path().join("rows"));
        let output_path = self.stage.path().join("output");
        let output = File::create(&output_path)?;

        let mut command = self.person.command(&staged);
        command
            .args(self.arguments())
            .args(programs.is_some().then(threads))
            .current_dir(self.package(binary))
            .env("CARGO_MANIFEST_DIR", self.package(binary))
            .env("ATOLL_SKIP_FILE", &skip_file)
            .env("ATOLL_RAN_FILE", &ran_file)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(programs.map(|programs| ("ATOLL_BIN", &programs.ordinary)))
            .envs(programs.map(|programs| ("ATOLL_BIN_WITHOUT", &programs.weakened)))
            .envs(programs.map(|programs| ("ATOLL_BIN_SPAWNER", &programs.spawner)))
            .envs(self.options.nightly.then_some(("ATOLL_NIGHTLY", "1")))
            .stdout(output.try_clone()?)
            .stderr(output);
        let status = self.wait(&mut command)?;

        let printed = String::from_utf8_lossy(&fs::read(&output_path)?).into_owned();
        let skips = libtest::skips(&fs::read_to_string(&skip_file).unwrap_or_default());
        let lines = libtest::lines(&printed);
        let sums = libtest::sums(&printed);
        let succeeded = status.is_some_and(|status| status.success());
        if !succeeded {
            println!("{}", printed.trim_end());
        }
        tally.add(&label, &lines, &skips);
        tally.add_rows(&label, &fs::read_to_string(&ran_file).unwrap_or_default());
        if let Some(reason) = disbelief(status, &lines, &sums) {
            tally.fail(&label, &reason);
        }
        fs::remove_file(staged)?;
        Ok(sums)
    }

    fn arguments(&self) -> Vec<&str> {
        let mut arguments = vec!["--color=never", "--format=pretty"];
        arguments.extend(self.options.filter.as_deref());
        if !self.options.nightly {
            arguments.extend(["--skip", "_nightly"]);
        }
        if self.options.quick {
            arguments.extend(["--skip", "_slow"]);
        }
        arguments
    }

    fn package(&self, binary: &TestBinary) -> PathBuf {
        let within = binary.package.strip_prefix(&self.project);
        self.root.join(within.unwrap_or(&binary.package))
    }

    /// Waits for the end; nothing when it had to be killed.
    fn wait(&self, command: &mut Command) -> Result<Option<ExitStatus>> {
        let seconds_max = if self.options.nightly {
            NIGHTLY_BINARY_SECONDS_MAX
        } else {
            BINARY_SECONDS_MAX
        };
        command::wait(command, Duration::from_secs(seconds_max))
    }
}

/// Tests of the whole program wait for others more than they work: some more of them than there
/// are processors run at once.
fn threads() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!("--test-threads={}", processors + processors.div_ceil(2))
}

/// Where most of the time went, in seconds.
fn longest(mut times: Vec<(Duration, &str)>) -> String {
    const TOLD: usize = 8;
    times.sort_unstable_by(|one, other| other.cmp(one));
    let told = times.iter().take(TOLD);
    let told = told.map(|(time, name)| format!("{name} {:.0}", time.as_secs_f64()));
    told.collect::<Vec<_>>().join(", ")
}

/// Why the printed lines do not tell the whole story, if they do not.
fn disbelief(
    status: Option<ExitStatus>,
    lines: &[libtest::Line],
    sums: &libtest::Sums,
) -> Option<String> {
    let Some(status) = status else {
        return Some("killed, because it did not end".to_owned());
    };
    if sums.count == 0 {
        return Some(format!("ended without a result: {status}"));
    }
    if sums.passed + sums.failed + sums.ignored != lines.len() {
        return Some(format!(
            "{} tests were told, {} seen",
            sums.passed + sums.failed,
            lines.len()
        ));
    }
    (!status.success() && sums.failed == 0).then(|| format!("failed: {status}"))
}

/// The project's own directory, or a copy of its files where the person can
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
