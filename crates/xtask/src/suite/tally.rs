//! Counting what passed, failed and was skipped, and saying so.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::libtest::{self, End, Line, Skip};
use crate::command;

pub(crate) struct Tally {
    started: Instant,
    ci: bool,
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<Skip>,
    /// Tests that were executed, as `binary test`.
    ran: Vec<String>,
}

impl Tally {
    pub(crate) fn new(started: Instant, ci: bool) -> Self {
        Self {
            started,
            ci,
            passed: 0,
            failed: Vec::new(),
            skipped: Vec::new(),
            ran: Vec::new(),
        }
    }

    /// One line for one finished stage.
    pub(crate) fn progress(&self, stage: &str, result: &str) {
        println!(
            "[{:7.1} s] {stage}: {result}",
            self.started.elapsed().as_secs_f64()
        );
    }

    /// A check that passes or fails as a whole.
    pub(crate) fn gate(&mut self, stage: &str, check: &mut Command) -> Result<()> {
        if command::succeeds(check)? {
            self.passed += 1;
            self.progress(stage, "ok");
        } else {
            self.failed.push(stage.to_owned());
            self.progress(stage, "FAILED");
        }
        Ok(())
    }

    /// A build that later stages need.
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

    /// Something this host could have run, had it been set up for it.
    pub(crate) fn leave_out(&mut self, test: &str, reason: &str) {
        self.skip(Skip {
            test: test.to_owned(),
            reason: reason.to_owned(),
            avoidable: true,
        });
    }

    /// Takes over what one test executable printed and wrote.
    pub(crate) fn add(&mut self, label: &str, lines: &[Line], skips: &[Skip]) {
        let name = |test: &str| format!("{label} {test}");
        for line in lines {
            let skipped = skips
                .iter()
                .any(|skip| libtest::same_test(&line.test, &skip.test));
            match &line.end {
                End::Failed => self.failed.push(name(&line.test)),
                End::Passed if skipped => {}
                End::Passed => self.passed += 1,
                End::Ignored(reason) => self.leave_out(
                    &name(&line.test),
                    if reason.is_empty() { "ignored" } else { reason },
                ),
            }
            if !skipped && !matches!(line.end, End::Ignored(_)) {
                self.ran.push(name(&line.test));
            }
        }
        for skip in skips {
            // A test that failed after all has been counted.
            let failed =
                |line: &Line| line.end == End::Failed && libtest::same_test(&line.test, &skip.test);
            if !lines.iter().any(failed) {
                self.skip(Skip {
                    test: name(&skip.test),
                    ..skip.clone()
                });
            }
        }
    }

    /// Rows of tables that tests went through, by their ids.
    pub(crate) fn add_rows(&mut self, label: &str, ids: &str) {
        self.ran
            .extend(ids.lines().map(|id| format!("{label} {id}")));
    }

    pub(crate) fn doc_tests(&mut self, root: &Path, filter: Option<&str>) -> Result<()> {
        let mut command = command::cargo();
        command
            .current_dir(root)
            .args(["test", "--workspace", "--doc", "--", "--color=never"]);
        command.arg("--format=pretty").args(filter);
        let output = command.output().context("cannot start cargo")?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = libtest::lines(&printed);
        let sums = libtest::sums(&printed);
        self.add("doc", &lines, &[]);
        if !output.status.success() {
            print!("{printed}{}", String::from_utf8_lossy(&output.stderr));
            if sums.failed == 0 {
                self.fail("doc tests", "cargo failed");
            }
        }
        self.progress(
            "doc tests",
            &format!("{} passed, {} failed", sums.passed, sums.failed),
        );
        Ok(())
    }

    /// Writes what was executed, for the check of the specification.
    pub(crate) fn write_list(&self, mode: &str, path: &Path) -> Result<()> {
        let text = format!("{mode}\n{}\n", self.ran.join("\n"));
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Prints the end of the report; `false` when anything failed.
    pub(crate) fn close(mut self) -> bool {
        if self.ran.is_empty() {
            self.failed.push("no test was run".to_owned());
        }
        for skip in &self.skipped {
            let kind = if skip.avoidable { " [avoidable]" } else { "" };
            println!("SKIP {}: {}{kind}", skip.test, skip.reason);
        }
        for failed in &self.failed {
            println!("FAILED {failed}");
        }
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
