//! The checks of a profile, before a run's changes are applied.

use atoll_engine::changes::LayerChanges;
use atoll_engine::checks::{
    CheckRequest, CheckResult, Checked, FailedCheck, Progress, check, requested,
};
use atoll_engine::failure::Failure;
use atoll_engine::printable::printable;
use atoll_engine::sandboxes::Engine;
use atoll_layer::Selection;
use atoll_ledger::StateDir;
use atoll_policy::Requested;
use atoll_store::RunRecord;

use crate::LAUNCHER;
use crate::output::Output;
use crate::requested::of_line;

/// The status of an apply whose checks have not passed.
pub const STATUS_UNCHECKED: u8 = 1;

/// Runs the checks on changes that would be applied. Returns that they have passed; otherwise what
/// failed was told.
///
/// # Errors
/// When they cannot run.
pub fn before_apply(
    state: &StateDir,
    record: &RunRecord,
    all: &[LayerChanges],
    selection: &Selection,
    output: &Output,
) -> Result<Option<Checked>, Failure> {
    let requested = requested(state, &record.run, &of_line)?;
    match run(record, all, selection, requested, Some(output))? {
        CheckResult::Passed(checked) => {
            output.say("All checks have passed.\n");
            Ok(Some(checked))
        }
        // The apply says so.
        CheckResult::Nothing(checked) => Ok(Some(checked)),
        CheckResult::Failed(failed) => {
            output.failure(&failure(record, &failed));
            Ok(None)
        }
    }
}

/// Runs the checks, with a line for each where there is an output.
///
/// # Errors
/// When they cannot run.
pub fn run(
    record: &RunRecord,
    all: &[LayerChanges],
    selection: &Selection,
    requested: Requested,
    output: Option<&Output>,
) -> Result<CheckResult, Failure> {
    let progress = |begun: Progress<'_>| {
        let Progress {
            number,
            of,
            command,
        } = begun;
        if let Some(output) = output {
            let command = printable(command.as_bytes());
            output.say(&format!("Check {number} of {of}: {command}\n"));
        }
    };
    check(CheckRequest {
        engine: &Engine::open(LAUNCHER)?,
        record,
        all,
        selection,
        requested,
        progress: &progress,
    })
}

fn failure(record: &RunRecord, failed: &FailedCheck) -> Failure {
    let mut lines = vec![format!("{}: {}", failed.command, failed.why)];
    if !failed.output.is_empty() {
        lines.push("the last of its output:".to_owned());
        lines.extend(failed.output.iter().map(|line| format!("| {line}")));
    }
    let run = &record.run;
    Failure::new("a check has not passed; nothing was applied")
        .because(lines.join("\n"))
        .advise(format!("atoll diff {run} shows what the run changed"))
        .advise(format!(
            "atoll run --resume {run} -- COMMAND goes on with it"
        ))
}
