//! Counts what passed, failed, was flaky and was skipped, and prints the sums.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::events::{self, End, Finished, Name, Skip};
use super::flaky::Known;
use crate::command;

/// The prefix of the names of skips of one row of a test's table.
const ROW: &str = "row ";

/// The number of the slowest tests that are printed.
const SLOWEST: usize = 20;

/// A test's name with who it ran as, and the time that it took, seconds.
struct Timed {
    test: String,
    seconds: f64,
}

pub(crate) struct Tally {
    started: Instant,
    /// The ends of the phases so far, seconds after the begin.
    phases: RefCell<Vec<Timed>>,
    times: Vec<Timed>,
    ci: bool,
    passed: usize,
    failed: Vec<String>,
    /// Tests that failed, and passed when they were run again alone.
    flaky: Vec<String>,
    skipped: Vec<Skip>,
    /// Tests and rows that were executed.
    ran: BTreeSet<String>,
    /// Tests that this tier does not run.
    left_out: BTreeSet<String>,
}

impl Tally {
    pub(crate) fn new(started: Instant, ci: bool) -> Self {
        Self {
            started,
            phases: RefCell::default(),
            times: Vec::new(),
            ci,
            passed: 0,
            failed: Vec::new(),
            flaky: Vec::new(),
            skipped: Vec::new(),
            ran: BTreeSet::new(),
            left_out: BTreeSet::new(),
        }
    }

    /// Prints one line for one finished stage.
    pub(crate) fn progress(&self, stage: &str, result: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        println!("[{seconds:7.1} s] {stage}: {result}");
        let test = stage.to_owned();
        self.phases.borrow_mut().push(Timed { test, seconds });
    }

    /// Prints the seconds of each phase, and the slowest tests.
    fn print_times(&mut self) {
        let mut before = 0.0;
        println!("Seconds of each phase:");
        for phase in self.phases.borrow().iter() {
            println!("{:8.1} {}", phase.seconds - before, phase.test);
            before = phase.seconds;
        }
        println!("The slowest tests, seconds:");
        let slower = |one: &Timed, other: &Timed| other.seconds.total_cmp(&one.seconds);
        self.times.sort_by(slower);
        for slow in self.times.iter().take(SLOWEST) {
            println!("{:8.1} {}", slow.seconds, slow.test);
        }
    }

    /// Runs a check that passes or fails as a whole.
    pub(crate) fn gate(&mut self, stage: &str, check: &mut Command) -> Result<()> {
        let is_right = command::succeeds(check)?;
        self.judged(stage, is_right);
        Ok(())
    }

    /// Counts a check that was made.
    pub(crate) fn judged(&mut self, stage: &str, is_right: bool) {
        if is_right {
            self.passed += 1;
            self.progress(stage, "ok");
        } else {
            self.failed.push(stage.to_owned());
            self.progress(stage, "FAILED");
        }
    }

    /// Counts a build that later stages need.
    pub(crate) fn built<T>(&mut self, stage: &str, result: Result<T>) -> Option<T> {
        match result {
            Ok(built) => {
                self.progress(stage, "ok");
                Some(built)
            }
            Err(error) => {
                self.fail(stage, &format!("{error:#}"));
                None
            }
        }
    }

    pub(crate) fn fail(&mut self, what: &str, reason: &str) {
        self.progress(what, &format!("FAILED: {reason}"));
        self.failed.push(what.to_owned());
    }

    /// Counts a skip of something that this host could have run, had it been set up for it.
    pub(crate) fn leave_out(&mut self, test: &str, reason: &str) {
        self.skip(Skip {
            test: test.to_owned(),
            reason: reason.to_owned(),
            avoidable: true,
        });
    }

    /// Counts one test.
    pub(crate) fn add(&mut self, label: &str, test: &Name, finished: &Finished, skips: &[Skip]) {
        let is_skipped = |skip: &&Skip| events::same_test(test, &skip.test);
        let label = format!("{label}: {test}");
        self.times.push(Timed {
            test: label.clone(),
            seconds: finished.seconds,
        });
        match (finished.end, skips.iter().find(is_skipped)) {
            (End::Failed, _) => self.failed.push(label),
            (End::Passed, Some(skip)) => self.skip(Skip {
                test: label,
                ..skip.clone()
            }),
            (End::Ignored, _) => self.leave_out(&label, "ignored"),
            (End::Passed, None) => {
                self.passed += 1;
                let _ = self.ran.insert(test.clone());
            }
        }
    }

    /// Counts rows of tables that could not be tried here.
    pub(crate) fn add_skipped_rows(&mut self, label: &str, skips: &[Skip]) {
        for skip in skips.iter().filter(|skip| skip.test.starts_with(ROW)) {
            self.skip(Skip {
                test: format!("{label}: {}", skip.test),
                ..skip.clone()
            });
        }
    }

    /// Notes the ids of rows of tables that tests went through.
    pub(crate) fn add_rows(&mut self, ids: &str) {
        self.ran.extend(ids.lines().map(str::to_owned));
    }

    /// Notes a test that this tier does not run.
    pub(crate) fn add_left_out(&mut self, test: String) {
        let _ = self.left_out.insert(test);
    }

    /// Counts a test that failed first, and then passed alone.
    pub(crate) fn add_flaky(&mut self, label: &str, test: &Name) {
        self.passed += 1;
        let _ = self.ran.insert(test.clone());
        self.flaky.push(format!("{label}: {test}"));
    }

    /// Writes what was executed, for the check of the specification.
    pub(crate) fn write_list(&self, mode: &str, path: &Path) -> Result<()> {
        let lines = |mark: &str, names: &BTreeSet<String>| -> String {
            names
                .iter()
                .map(|name| format!("{mark} {name}\n"))
                .collect()
        };
        let text = format!(
            "{mode}\n{}{}",
            lines("ran", &self.ran),
            lines("left-out", &self.left_out)
        );
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Prints the end of the report; returns whether nothing failed.
    pub(crate) fn close(mut self, known: &Known) -> bool {
        if self.ran.is_empty() {
            self.failed.push("no test was run".to_owned());
        }
        self.print_times();
        for skip in &self.skipped {
            let kind = if skip.avoidable { " [avoidable]" } else { "" };
            println!("SKIP {}: {}{kind}", skip.test, skip.reason);
        }
        for flaky in &self.flaky {
            match known.since(flaky) {
                Some(since) => println!("FLAKY {flaky}: known since {since}"),
                None => println!(
                    "FLAKY {flaky}: mend it, or add it to {}",
                    super::flaky::FILE
                ),
            }
        }
        for failed in &self.failed {
            println!("FAILED {failed}");
        }
        println!(
            "{} flaky, in {:.1} minutes",
            self.flaky.len(),
            self.started.elapsed().as_secs_f64() / 60.0
        );
        println!(
            "{} passed, {} failed, {} skipped",
            self.passed,
            self.failed.len(),
            self.skipped.len()
        );
        self.failed.is_empty()
    }

    fn skip(&mut self, skip: Skip) {
        if self.ci && skip.avoidable {
            let reason = format!(
                "{}: skipped, though this host could run it: {}",
                skip.test, skip.reason
            );
            self.failed.push(reason);
        } else {
            self.skipped.push(skip);
        }
    }
}
