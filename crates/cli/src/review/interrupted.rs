//! Endings of what was interrupted: applies that a kill has cut short, and runs that did not come
//! to their end.

use atoll_engine::configuration::Places;
use atoll_engine::decision::Work;
use atoll_engine::decision::killed::{Ended, may_be_cut_short};
use atoll_engine::failure::Failure;
use atoll_ledger::{Event, StateDir};
use atoll_model::Ending;
use atoll_store::{RunRecord, RunState};

use crate::answered::stopped_of_event;
use crate::output::Output;
use crate::render::describe_ending;

/// Ends an apply of the run that was cut short, where only one end is right, and says so. Returns
/// which end that was.
///
/// # Errors
/// When it cannot be recorded.
pub fn end_cut_short(
    work: &Work<'_>,
    record: &mut RunRecord,
    output: &Output,
) -> Result<Option<Ended>, Failure> {
    let ended = work.end_cut_short(record)?;
    let told = match ended {
        None => return Ok(None),
        Some(Ended::TakenBack) => "before it changed anything, and is taken back",
        Some(Ended::Finished) => "after it had changed everything, and is finished",
    };
    let run = &record.run;
    output.say(&format!("An apply of run {run} was cut short {told}.\n"));
    Ok(ended)
}

/// Does the same for a command that only reads. Where that cannot be done, it reads what there is.
pub fn end_before_reading(
    places: &Places,
    state: &StateDir,
    record: &mut RunRecord,
    output: &Output,
) {
    if !may_be_cut_short(state, record) {
        return;
    }
    let Ok(state) = places.open_state() else {
        return;
    };
    let Ok(ledger) = atoll_engine::events::open_ledger(&state) else {
        return;
    };
    let work = Work {
        state: &state,
        ledger: &ledger,
        surface: output,
        is_unseen: false,
        is_unattended: false,
        checked: None,
    };
    if let Err(failure) = end_cut_short(&work, record, output) {
        output.warn(&failure.what);
    }
    if may_be_cut_short(&state, record) {
        let run = &record.run;
        output.warn(&format!(
            "an apply of run {run} was cut short, and the workspace has a part of it: atoll apply {run} \
             --finish goes on, --take-back takes it back"
        ));
    }
}

/// Returns whether a run did not come to its end by itself, as far as its state before an apply and
/// its ending tell.
pub fn is_cut_off(ending: Option<Ending>, was: RunState) -> bool {
    was == RunState::Interrupted || ending.is_some_and(Ending::is_cut_off)
}

/// Tells whoever applies what such a run has written that it was interrupted, and how.
pub fn interrupted(record: &RunRecord, events: &[Event]) -> String {
    let closed = events.iter().rfind(|event| event.kind == "run.closed");
    let stopped = closed.and_then(|event| stopped_of_event(event.body.get("details")));
    let how = stopped.or_else(|| record.ending.map(describe_ending));
    let how = how.unwrap_or_else(|| "nobody saw its end".to_owned());
    format!(
        "Run {}: it was interrupted ({how}); what it had written until then is applied.\n",
        record.run
    )
}

#[cfg(test)]
mod tests {
    use atoll_model::LimitHit;

    use super::*;

    #[test]
    fn run_without_its_own_end_is_known() {
        let check = |was: RunState, ending: Option<Ending>, expected: bool| {
            assert_eq!(is_cut_off(ending, was), expected, "{was:?} {ending:?}");
        };
        check(RunState::Kept, Some(Ending::Exited { status: 1 }), false);
        check(RunState::Kept, None, false);
        check(RunState::Kept, Some(Ending::Signalled { signal: 2 }), true);
        check(RunState::Interrupted, None, true);
        let limit = LimitHit::WallClock;
        check(
            RunState::PartlyApplied,
            Some(Ending::Limited { limit }),
            true,
        );
    }
}
