//! The outcome of every bench: the targets that were missed, and those that were not measured.

use super::report::Verdict;

/// The targets that were not met, in words.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    missed: Vec<String>,
    unmeasured: Vec<String>,
}

impl Outcome {
    /// Adds the verdict on a target.
    pub(crate) fn add(&mut self, target: &str, verdict: &Verdict) {
        match verdict {
            Verdict::Met(_) => {}
            Verdict::Missed(number) => self.missed.push(format!("{target}, was {number:.2}")),
            Verdict::NotMeasured(why) => self.unmeasured.push(format!("{target} ({why})")),
        }
    }

    /// Adds the outcome of other targets.
    pub(crate) fn join(&mut self, other: Self) {
        self.missed.extend(other.missed);
        self.unmeasured.extend(other.unmeasured);
    }

    /// Returns a line for each kind that is not empty.
    pub(crate) fn lines(&self) -> Vec<String> {
        [("missed", &self.missed), ("not measured", &self.unmeasured)]
            .into_iter()
            .filter(|(_, targets)| !targets.is_empty())
            .map(|(word, targets)| format!("{word}: {}", targets.join("; ")))
            .collect()
    }

    /// Returns whether the task succeeds. With `report_only`, a missed target is no failure; one
    /// that could not be measured still is.
    pub(crate) fn is_good(&self, report_only: bool) -> bool {
        self.unmeasured.is_empty() && (self.missed.is_empty() || report_only)
    }
}
