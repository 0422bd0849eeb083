//! The runs that another one can continue.

use atoll_store::RunState;

/// Returns the reason why a run in this state has no layers that another could continue, if
/// there is one.
pub(crate) fn decided_about(state: RunState) -> Option<&'static str> {
    match state {
        RunState::Kept | RunState::Interrupted => None,
        RunState::Running => Some("it is still running"),
        RunState::Applied => Some("its changes were applied: they are in the workspace already"),
        RunState::PartlyApplied => Some("a part of its changes was applied to the workspace"),
        RunState::Discarded => Some("its changes were discarded, or went on in a later run"),
        RunState::Undone => Some("its changes were applied and taken back"),
        RunState::Failed => Some("it was never carried out"),
    }
}
