//! Checks and shadow runs as evidence: which changes they were about, and what came of them.

use std::path::{Path, PathBuf};

use atoll_layer::PlanDigest;
use atoll_ledger::{Event, Ledger};
use atoll_policy::ShadowFacts;
use serde_json::Value;

use super::{Agreed, AskedChange, By, Meant, Question, Taking, Written, digests};
use crate::failure::{Doing, Failure, Kind};

/// The event of checks that have passed.
pub(crate) const PASSED: &str = "checks.passed";
/// The event of checks that have not.
pub(crate) const FAILED: &str = "checks.failed";
/// The place that asks a person, in records and questions.
const RULE: &str = "[checks] judge";
/// The place that asks about the change set of a shadow run, and the reasons.
pub(super) const SHADOW: &str = "shadow";
const CONTROL: &str = "other programs run it";
pub(super) const UNRULED: &str = "no policy decides about it";

/// Changes that alone are applied: they have passed checks, or are those of a shadow run.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The digests of the plans that would make exactly this result.
    pub plans: Vec<PlanDigest>,
    /// The facts about the change set, if a shadow run made it and no check has passed.
    pub shadowed: Option<ShadowFacts>,
    /// The changed files that decide what passes, absolute: the checks ran with these as they were
    /// before.
    pub judge: Vec<PathBuf>,
}

impl Checked {
    /// Returns what a person is asked about before these changes are applied; of a shadow run's also
    /// all of them, where no policy decides about changes (`is_ruled`).
    pub(super) fn asked(
        &self,
        written: &Written,
        directory: &Path,
        is_ruled: bool,
    ) -> Vec<AskedChange> {
        let of = |path: &Path, why: &str, rule: &str| AskedChange {
            path: path.to_owned(),
            why: why.to_owned(),
            rule: rule.to_owned(),
        };
        let why = "it decides whether checks pass: they ran with what was there before";
        let mut asked: Vec<AskedChange> =
            self.judge.iter().map(|path| of(path, why, RULE)).collect();
        if self.shadowed.is_some() {
            let control = written.iter().filter(|(_, (is_control, _))| *is_control);
            let control = control.map(|(path, _)| of(path, CONTROL, SHADOW));
            asked.extend(control);
            if !is_ruled {
                asked.push(of(directory, UNRULED, SHADOW));
            }
        }
        asked
    }

    /// Returns the failure where what is meant is not this.
    pub(super) fn other(&self) -> Failure {
        let (than, advice) = match self.shadowed {
            None => ("were checked", "check them again: atoll apply --checks"),
            Some(_) => ("its shadow run made", "call the tool again"),
        };
        Failure::new(format!(
            "these changes are other ones than {than}; nothing was applied"
        ))
        .because("something of them, or where they would be written, changed meanwhile")
        .advise(advice)
        .of_kind(Kind::Denied)
    }
}

/// Returns the result of the checks of exactly these changes, if they ran.
///
/// # Errors
/// When others were checked than are meant, or the ledger cannot be read.
pub(super) fn result(meant: &Meant<'_>) -> Result<Option<&'static str>, Failure> {
    if let Some(checked) = meant.checked {
        return match digests(meant.plans)? == checked.plans {
            true => Ok(checked.shadowed.is_none().then_some("passed")),
            false => Err(checked.other()),
        };
    }
    let By::Run(state, record, _) = meant.by else {
        return Ok(None);
    };
    let unread = "the ledger cannot tell whether the changes were checked";
    let is_of_checks = |event: &Event| [PASSED, FAILED].contains(&event.kind.as_str());
    let events = Ledger::show(state, &record.run).doing(unread)?;
    let events = events.filter(|event| event.as_ref().map_or(true, is_of_checks));
    let events: Vec<Event> = events.collect::<Result<_, _>>().doing(unread)?;
    if events.is_empty() || meant.is_undo {
        return Ok(None);
    }
    let plans: Vec<Value> = digests(meant.plans)?
        .iter()
        .map(|one| one.to_string().into())
        .collect();
    let is_of_these =
        |event: &&Event| event.body.get("plans") == Some(&Value::Array(plans.clone()));
    let last = events.iter().rfind(is_of_these);
    Ok(last.and_then(|event| match event.kind.as_str() {
        FAILED => Some("failed"),
        // Where the run has changed what decides, only a person's yes makes it count, each time.
        _ if event.body.get("judge").and_then(Value::as_u64) == Some(0) => Some("passed"),
        _ => None,
    }))
}

/// Asks the person, if there is anything to ask about: by policies of this version, or without them by
/// checks alone.
pub(super) fn agreed(
    asked: &[AskedChange],
    policies: Option<&str>,
    written: &Written,
    meant: &Meant<'_>,
    taking: &Taking<'_>,
) -> Result<Option<Agreed>, Failure> {
    let question = (!asked.is_empty()).then(|| Question {
        taking,
        asked,
        policies,
        written: written.clone(),
        meant,
    });
    let agreed = question.map(|question| taking.surface.agreed(question));
    agreed.transpose()
}
