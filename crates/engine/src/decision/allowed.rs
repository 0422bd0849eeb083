//! The permission to apply a run's changes, or to undo them.

use atoll_layer::Selection;
use atoll_store::RunRecord;

use super::{UNRECORDED, Work};
use crate::changes::LayerChanges;
use crate::events::next_question;
use crate::failure::{Doing, Failure};
use crate::promotion::{self, Allowed, By, Meant, Planned, Taking};

/// Returns the permission to apply the changes, asking a person where one is needed.
///
/// # Errors
/// When policies refuse it, or the person does.
pub(super) fn to_apply(
    work: &Work<'_>,
    record: &RunRecord,
    all: &[LayerChanges],
    selection: &Selection,
    plans: &[Planned<'_>],
) -> Result<Allowed, Failure> {
    let meant = Meant {
        workspace: Some(&record.workspace),
        purposes: &record.purposes,
        by: By::Run(work.state, record, work.is_unseen),
        is_undo: false,
        checked: work.checked,
        all,
        plans,
        anew: &|| promotion::digests(&promotion::plans(all, selection)?),
    };
    let command = match work.checked {
        Some(_) => "apply --checks",
        None => "apply",
    };
    ask(work, &meant, command)
}

/// Returns the permission to undo what was written of a run, or to undo an undo of it.
///
/// # Errors
/// When policies refuse it, or the person does.
pub(super) fn to_undo(work: &Work<'_>, record: &RunRecord) -> Result<Allowed, Failure> {
    let meant = Meant {
        workspace: Some(&record.workspace),
        purposes: &record.purposes,
        by: By::Run(work.state, record, work.is_unseen),
        is_undo: true,
        checked: None,
        all: &[],
        plans: &[],
        anew: &|| Ok(Vec::new()),
    };
    ask(work, &meant, "undo")
}

fn ask(work: &Work<'_>, meant: &Meant<'_>, command: &str) -> Result<Allowed, Failure> {
    let run = meant.by.run();
    let taking = Taking {
        surface: work.surface,
        is_unattended: work.is_unattended,
        command: &format!("atoll {command} {run}"),
        ledger: work.ledger,
        number: &|| next_question(work.state, run).map(Some),
        record: &|step, body| {
            let recorded = work.ledger.record_question(Some(run), step, &body);
            recorded.map(drop).doing(UNRECORDED)
        },
    };
    promotion::allowed(meant, &taking)
}
