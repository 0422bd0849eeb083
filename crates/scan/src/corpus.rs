//! Labelled samples, made from a seed, and how well the scanners do on them.
//!
//! A sample has one line that a careful person would call a secret, or personal data, or none at all.
//! The labels follow from how a sample was made, never from a scanner.

mod benign;
mod kinds;
mod personal;
mod random;
mod secrets;

use std::collections::BTreeMap;

use crate::{Rules, RulesError, Scanner, Unscanned, scan};
use random::Random;

/// The seed of the samples that are measured.
const SEED: u64 = 0x5eed_a701_1000_0001;

/// A text with its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The kind, as `github-classic in json`.
    pub kind: String,
    /// The text.
    pub text: String,
    /// The line that a scanner has to find, from 1; `None` where there is nothing to find.
    pub line: Option<usize>,
}

/// The result of a scanner on labelled samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The samples whose line was found.
    pub found: usize,
    /// The samples whose line was not found.
    pub missed: usize,
    /// The samples with a finding on a line where there is nothing.
    pub false_alarms: usize,
    /// The samples without anything to find.
    pub benign: usize,
    /// The share of lines that were found.
    pub recall: f64,
    /// The share of findings that were right.
    pub precision: f64,
}

/// The figures of a scanner, and the samples that it got wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The figures.
    pub figures: Figures,
    /// The samples that were missed.
    pub misses: Vec<Sample>,
    /// The samples with a false alarm, each with the rule.
    pub alarms: Vec<(String, Sample)>,
}

/// Failed to measure a scanner.
#[derive(Debug, thiserror::Error)]
pub enum Unmeasured {
    /// The rules cannot be used.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// A sample cannot be scanned.
    #[error(transparent)]
    Scan(#[from] Unscanned),
    /// There are no samples for this scanner.
    #[error("there are no samples for the scanner {}", .0.name())]
    NoSamples(Scanner),
}

/// Makes the samples for a scanner; the same for a seed, always. Empty where there are none for it.
#[must_use]
pub fn samples(scanner: Scanner, seed: u64) -> Vec<Sample> {
    let mut random = Random::new(seed);
    match scanner {
        Scanner::Secrets => {
            let mut all = secrets::samples(&mut random);
            all.extend(benign::samples(&mut random));
            all
        }
        Scanner::PersonalData => personal::samples(&mut random),
        _ => Vec::new(),
    }
}

/// Measures a scanner on the samples of the usual seed.
///
/// # Errors
/// [`Unmeasured`].
pub fn measure(scanner: Scanner) -> Result<Measured, Unmeasured> {
    measure_on(scanner, samples(scanner, SEED))
}

/// Measures a scanner on samples.
///
/// # Errors
/// [`Unmeasured`].
pub fn measure_on(scanner: Scanner, samples: Vec<Sample>) -> Result<Measured, Unmeasured> {
    if samples.is_empty() {
        return Err(Unmeasured::NoSamples(scanner));
    }
    let rules = Rules::built_in()?;
    let (mut misses, mut alarms) = (Vec::new(), Vec::new());
    let (mut found, mut benign) = (0, 0);
    for sample in samples {
        let findings = scan(scanner, sample.text.as_bytes(), &rules)?;
        let expected = sample.line.map(|line| format!("line {line}"));
        let is_there = |place: &str| Some(place) == expected.as_deref();
        benign += usize::from(expected.is_none());
        if let Some(alarm) = findings.iter().find(|one| !is_there(&one.place)) {
            alarms.push((alarm.rule.clone(), sample.clone()));
        }
        if findings.iter().any(|one| is_there(&one.place)) {
            found += 1;
        } else if expected.is_some() {
            misses.push(sample);
        }
    }
    let share = |of: usize, and: usize| of as f64 / (of + and).max(1) as f64;
    let figures = Figures {
        found,
        missed: misses.len(),
        false_alarms: alarms.len(),
        benign,
        recall: share(found, misses.len()),
        precision: share(found, alarms.len()),
    };
    Ok(Measured {
        figures,
        misses,
        alarms,
    })
}

impl Measured {
    /// Returns the kinds of the samples that were missed, and how many of each.
    #[must_use]
    pub fn missed_kinds(&self) -> BTreeMap<&str, usize> {
        counted(self.misses.iter().map(|one| one.kind.as_str()))
    }

    /// Returns the kinds of the samples with a false alarm, and how many of each.
    #[must_use]
    pub fn alarmed_kinds(&self) -> BTreeMap<&str, usize> {
        counted(self.alarms.iter().map(|(_, one)| one.kind.as_str()))
    }
}

fn counted<'a>(kinds: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for kind in kinds {
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

/// A text around lines, and the line that they begin at.
fn surrounded(
    random: &mut Random,
    before: &[&str],
    lines: &str,
    after: &[&str],
) -> (String, usize) {
    let skipped = random.below(before.len() + 1);
    let before = before.get(skipped..).unwrap_or_default();
    let mut text: String = before.iter().map(|line| format!("{line}\n")).collect();
    text.push_str(lines);
    text.push('\n');
    after.iter().for_each(|line| {
        text.push_str(line);
        text.push('\n');
    });
    (text, before.len() + 1)
}

#[cfg(test)]
mod tests;
