//! Changes that are applied at the end of a run once the profile's checks have passed, as the profile
//! asks.

use atoll_engine::changes::{Changes, LayerChanges};
use atoll_engine::checks::{CheckResult, Checked, changed_judge, needs_person};
use atoll_engine::decision::{Afterwards, Decision, Work};
use atoll_engine::failure::Failure;
use atoll_engine::printable::printable;
use atoll_layer::Selection;
use atoll_model::{Ending, WorkspaceMode};
use atoll_policy::checks;
use atoll_store::RunRecord;

use super::{Conclusion, Went};
use crate::left_out;
use crate::requested::requested;

/// The checks that have passed, or why the changes are kept.
pub(super) type ByChecks = Result<Checked, String>;

/// Returns the decision that checks make.
pub(super) fn decision(checked: &ByChecks) -> Decision {
    match checked {
        Ok(_) => Decision::Apply,
        Err(_) => Decision::Keep,
    }
}

impl Conclusion<'_> {
    /// Runs the checks, where the profile has them decide and nothing else has: `None` elsewhere.
    pub(super) fn by_checks(
        &self,
        record: &RunRecord,
        went: &Went,
        all: &[LayerChanges],
    ) -> Option<ByChecks> {
        let arguments = self.arguments;
        let is_decided = arguments.apply || arguments.keep || arguments.discard;
        let has_ended = went.outcome.ending == Ending::Exited { status: 0 };
        let is_layer = record.mode == WorkspaceMode::CopyOnWrite;
        let decides = checks(self.rules).applies && !is_decided && has_ended && is_layer;
        (decides && went.groups.total() > 0).then(|| self.checked(record, all))
    }

    fn checked(&self, record: &RunRecord, all: &[LayerChanges]) -> ByChecks {
        self.rules.applies_unseen()?;
        if let Some(why) = needs_person(all) {
            return Err(why.to_owned());
        }
        let output = (!self.arguments.quiet).then_some(self.output);
        let run =
            |requested| crate::checks::run(record, all, &Selection::default(), requested, output);
        match requested(self.arguments).and_then(run) {
            Ok(CheckResult::Nothing(checked) | CheckResult::Passed(checked)) => {
                changed_judge(&checked).map_or(Ok(checked), Err)
            }
            Ok(CheckResult::Failed(failed)) => {
                let (command, why) = (failed.command, failed.why);
                Err(format!("a check has not passed: {command}: {why}"))
            }
            Err(failure) => Err(on_one_line(&failure)),
        }
    }

    /// Carries out a decision. Returns a line on what it leaves out, or where checks were to decide on
    /// why the changes are kept.
    pub(super) fn carry_out(
        &self,
        decision: Decision,
        checked: Option<ByChecks>,
        record: &mut RunRecord,
        all: &[LayerChanges],
        groups: &Changes,
    ) -> Result<(Afterwards, String), Failure> {
        let work = self.work();
        let left = left_out::by(decision, record, all);
        let why = match checked {
            None => return Ok((work.carry_out(decision, record, all, groups)?, left)),
            Some(Err(why)) => why,
            Some(Ok(checked)) => {
                let work = Work {
                    checked: Some(&checked),
                    is_unseen: true,
                    is_unattended: true,
                    ..work
                };
                match work.carry_out(decision, record, all, groups) {
                    Ok(afterwards) => return Ok((afterwards, left)),
                    Err(failure) => on_one_line(&failure),
                }
            }
        };
        let afterwards = work.carry_out(Decision::Keep, record, all, groups)?;
        let run = &record.run;
        let told = format!("Not applied by checks: {why}. Try `atoll apply --checks {run}`.\n");
        Ok((afterwards, told))
    }
}

fn on_one_line(failure: &Failure) -> String {
    let why = failure.why.as_deref().unwrap_or_default();
    let parts = [failure.what.as_str()].into_iter().chain(why.lines());
    let all: Vec<String> = parts.map(|part| printable(part.as_bytes())).collect();
    all.join(": ")
}
