//! Obstacles to an apply, in words, with the next steps.

use std::path::Path;

use atoll_layer::{ApplyError, Conflict, Plan};
use atoll_model::RunId;
use atoll_store::RunRecord;

use crate::failure::{Failure, Hint};
use crate::shell::existing;

/// Returns the failure of an apply that would overwrite what changed meanwhile.
pub(crate) fn refuse_conflicts(plan: &Plan, record: &RunRecord) -> Result<(), Failure> {
    let run = &record.run;
    let mut failure = Failure::new("the directory changed meanwhile; nothing was written")
        .advise(format!("atoll diff {run} shows the run's side"));
    if !plan.steps.is_empty() {
        failure = failure.advise(format!("atoll apply {run} PATH… applies the rest"));
    }
    refuse_any(
        plan,
        failure.advise(format!(
            "atoll apply {run} --force overwrites; what is overwritten is kept for undo"
        )),
    )
}

/// Returns the failure with the conflicts of a plan, if it has any.
pub fn refuse_any(plan: &Plan, failure: Failure) -> Result<(), Failure> {
    let line = |one: &Conflict| format!("{}: {}", one.path, one.why);
    let lines: Vec<String> = plan.conflicts.iter().map(line).collect();
    match lines.as_slice() {
        [] => Ok(()),
        lines => Err(failure.because(lines.join("\n"))),
    }
}

/// Returns the next steps after changes could not be applied, the likeliest first.
pub fn apply_hints(error: &ApplyError, run: &RunId) -> Vec<Hint> {
    let cause = match error {
        ApplyError::TakenBack { cause } => cause.as_ref(),
        other => other,
    };
    let mut ways = Vec::new();
    if let ApplyError::Tree(error) = cause
        && error.source.kind() == std::io::ErrorKind::PermissionDenied
    {
        let text = format!(
            "ls -ld {{}} shows whose it is; atoll apply {run} PATH takes over others alone"
        );
        ways.push(Hint::Naming(
            text,
            existing(Path::new(&error.path)).to_owned(),
        ));
    }
    if let ApplyError::NoSpace(_) = cause {
        ways.push("df -h shows the space left, df -i the inodes".into());
    }
    ways.push(format!("atoll apply {run} tries again; the changes are kept").into());
    ways
}
