//! What every bench ends with: the targets that were missed, and those that nothing is known of.

use super::report::Verdict;

/// What was wanted and did not come about.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    missed: Vec<String>,
    unmeasured: Vec<String>,
}

impl Outcome {
    /// Takes up what became of a target.
    pub(crate) fn add(&mut self, target: &str, verdict: &Verdict) {
        match verdict {
            Verdict::Met(_) => {}
            Verdict::Missed(number) => self.missed.push(format!("{target}, was {number:.2}")),
            Verdict::NotMeasured(why) => self.unmeasured.push(format!("{target} ({why})")),
        }
    }

    /// Takes up what became of targets elsewhere.
    pub(crate) fn join(&mut self, other: Self) {
        self.missed.extend(other.missed);
        self.unmeasured.extend(other.unmeasured);
    }

    /// A line for each kind that there is.
    pub(crate) fn lines(&self) -> Vec<String> {
        [("missed", &self.missed), ("not measured", &self.unmeasured)]
            .into_iter()
            .filter(|(_, targets)| !targets.is_empty())
            .map(|(word, targets)| format!("{word}: {}", targets.join("; ")))
            .collect()
    }

    /// Whether the task ends well. Where a report is all that is wanted, misses are no failure;
    /// what could not be measured is one all the same.
    pub(crate) fn is_good(&self, report_only: bool) -> bool {
        self.unmeasured.is_empty() && (self.missed.is_empty() || report_only)
    }
}
