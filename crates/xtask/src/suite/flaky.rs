//! The list of tests that are known to fail now and then: each is a defect with a date.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The list's path, relative to the project's root.
pub(crate) const FILE: &str = "flaky.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    /// The largest number of entries allowed. It only falls.
    #[serde(rename = "most")]
    pub(crate) count_max: usize,
    #[serde(default, rename = "test")]
    pub(crate) tests: Vec<Flaky>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flaky {
    /// The test's name, with its modules.
    pub(crate) name: String,
    /// The day on which its failure was first seen, as year-month-day.
    pub(crate) since: String,
    /// The cause, as far as it is known. Only its presence is checked.
    pub(crate) cause: String,
}

impl Known {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("no {FILE}"))?;
        Self::parse(&text)
    }

    /// Parses the list, and refuses one that has grown.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let known: Self = toml::from_str(text).with_context(|| FILE.to_owned())?;
        anyhow::ensure!(
            known.tests.len() <= known.count_max,
            "{FILE} has {} tests, and may have {}: mend one before another is added",
            known.tests.len(),
            known.count_max
        );
        for test in &known.tests {
            let is_date = test.since.len() == 10 && test.since.split('-').count() == 3;
            anyhow::ensure!(
                is_date && !test.cause.is_empty(),
                "{FILE}: {} needs a date (year-month-day) and a cause",
                test.name
            );
        }
        Ok(known)
    }

    /// Returns the day since which a test is known as flaky, by a label that ends in its name.
    pub(crate) fn since(&self, label: &str) -> Option<&str> {
        let is_it = |test: &&Flaky| super::events::same_test(label, &test.name);
        self.tests
            .iter()
            .find(is_it)
            .map(|test| test.since.as_str())
    }
}
