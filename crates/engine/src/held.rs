//! Legal holds, where a person is about to remove something.

use atoll_ledger::{Holds, StateDir};
use atoll_model::RunId;

use crate::failure::{Doing, Failure, Kind};

/// Returns the holds; as long as the returned value is there none is set.
///
/// # Errors
/// When that cannot be told.
pub fn holds(state: &StateDir) -> Result<Holds, Failure> {
    Holds::lock(state).doing("what is held cannot be told, so nothing is removed")
}

/// Refuses to remove what is of a run or session under a hold.
///
/// # Errors
/// When it is held.
pub fn refuse_held(holds: &Holds, run: &RunId) -> Result<(), Failure> {
    match holds.keeps(run) {
        false => Ok(()),
        true => Err(
            Failure::new(format!("run {run} is held: nothing of it is removed"))
                .advise("atoll ledger release WHAT ends a hold")
                .of_kind(Kind::Denied),
        ),
    }
}
