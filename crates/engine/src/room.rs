//! The room on the disk that Atoll's state takes, and what frees some of it.

use std::time::{Duration, SystemTime};

use atoll_store::{CollectPolicy, plan_collection};

use crate::configuration::Places;

/// The age until which an applied run can be undone, by default.
const APPLIED_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Returns the retention times of runs, without rules of the person's own.
fn retention() -> CollectPolicy {
    CollectPolicy {
        now: SystemTime::now(),
        discarded_after: Duration::ZERO,
        applied_after: APPLIED_AFTER,
        undecided_after: None,
    }
}

/// Returns the remedy where no space is left: a command that frees some, if there is one.
#[must_use]
pub fn advice() -> String {
    match frees() {
        Some(true) => "atoll gc frees what old runs keep".to_owned(),
        Some(false) | None => {
            "atoll gc --dry-run says what is held, by whom, and what frees it".to_owned()
        }
    }
}

/// Returns whether there is something to remove; `None` where that cannot be told.
fn frees() -> Option<bool> {
    let state = Places::read().ok()?.read_state().ok()?;
    let plan = plan_collection(&state, &retention()).ok()?;
    Some(!plan.runs.is_empty() || !plan.leftovers.is_empty())
}
