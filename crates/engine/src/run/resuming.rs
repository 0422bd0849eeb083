//! `atoll run --resume`: the run whose layers another continues.

use atoll_ledger::StateDir;
use atoll_model::{RunId, WorkspaceMode};
use atoll_store::{RunRecord, RunState, list_runs, settle_run};

use super::RunRequest;
use crate::failure::{Doing, Failure};
use crate::finding::Taking;

/// Returns the run whose layers this one continues.
///
/// # Errors
/// When there is none, or its changes were decided on already.
pub fn resumed(
    request: &RunRequest<'_>,
    state: &StateDir,
    taking: Taking<'_>,
) -> Result<Option<RunRecord>, Failure> {
    let Some(text) = request.resume else {
        return Ok(None);
    };
    if request.discard {
        return Err(Failure::new("--resume and --discard contradict each other")
            .because("the earlier run's changes would be thrown away with this one's")
            .advise("atoll discard RUN throws them away knowingly"));
    }
    let run = crate::finding::find(state, text, taking)
        .map_err(|failure| failure.advise("atoll run --resume RUN goes on with one of them"))?;
    let earlier = settle_run(state, &run)
        .doing("there is no run to resume")
        .map_err(|failure| failure.advise("atoll runs lists those that can be resumed"))?;
    refuse_to_resume(state, &earlier)?;
    Ok(Some(earlier))
}

/// Refuses a run whose changes were decided on already, with remedies.
fn refuse_to_resume(state: &StateDir, earlier: &RunRecord) -> Result<(), Failure> {
    let run = &earlier.run;
    let refused = |why: &str| Failure::new(format!("run {run} cannot be resumed")).because(why);
    let afresh = "atoll run -- COMMAND starts a new run there";
    Err(match earlier.state {
        RunState::Kept | RunState::Interrupted if earlier.mode == WorkspaceMode::Live => {
            refused("it wrote straight to its workspace (--live, or a fence): its changes are in the workspace already")
                .advise(afresh)
        }
        RunState::Kept | RunState::Interrupted => return Ok(()),
        RunState::Running => refused("it is still running").advise("wait for its end"),
        RunState::Applied => refused("it was applied: its changes are in the workspace already")
            .advise(afresh)
            .advise(format!("atoll undo {run} takes its changes back")),
        RunState::PartlyApplied => refused("a part of its changes was applied to the workspace")
            .advise(format!("atoll apply {run} --control applies the rest"))
            .advise(afresh),
        RunState::Undone => refused("it was applied and taken back")
            .advise(format!("atoll apply {run} applies it again"))
            .advise(afresh),
        RunState::Failed => {
            refused("it was never carried out").advise(format!("atoll why {run} tells why"))
        }
        RunState::Discarded => match later(state, run) {
            Some(later) => refused("a later run went on with its changes").advise(format!(
                "atoll run --resume {later} -- COMMAND goes on there"
            )),
            None => refused("it was discarded").advise(afresh),
        },
    })
}

/// Returns the run that continued in the layers of this one.
fn later(state: &StateDir, run: &RunId) -> Option<RunId> {
    let records = list_runs(state).ok()?.records;
    let goes_on = |record: &RunRecord| record.resumed_from.as_ref() == Some(run);
    Some(records.into_iter().find(goes_on)?.run)
}
