//! The layers of a run that another one continues.

use atoll_layer::restore_modes;
use atoll_ledger::Durability;
use atoll_model::WorkspaceMode;
use atoll_store::{RunRecord, update_run};

use super::{LAYERS, Placing};
use crate::PlaceError;
use crate::resuming::decided_about;

impl Placing<'_> {
    /// Moves an earlier run's layers to this run, which continues them.
    pub(super) fn take_over(&mut self, earlier: &RunRecord) -> Result<(), PlaceError> {
        let not = |why| PlaceError::NotResumable(earlier.run.clone(), why);
        if let Some(why) = decided_about(earlier.state) {
            return Err(not(why));
        }
        if earlier.mode == WorkspaceMode::Live {
            return Err(not(
                "it wrote straight to its workspace, so there is no layer to go on in",
            ));
        }
        if earlier.workspace != self.request.call.workspace() {
            return Err(not("it worked on another workspace; start this one there"));
        }
        let (from, to) = (
            self.request.state.run_dir(&earlier.run).join(LAYERS),
            self.run_dir().join(LAYERS),
        );
        // What was opened up to be read is closed again for the program.
        let kept = earlier.layers.iter().filter(|layer| !layer.shared);
        for layer in kept {
            let directory = self.request.state.run_dir(&earlier.run);
            restore_modes(&directory.join(&layer.upper))?;
        }
        // Noted first: after a sudden end the layers are found by one of the two.
        let taken = |kept: &mut RunRecord| {
            kept.layers.clone_from(&earlier.layers);
            kept.base = earlier.base;
        };
        let call = &self.request.call;
        update_run(self.request.state, call.run(), Durability::Buffered, taken)?;
        std::fs::rename(&from, &to).map_err(|error| PlaceError::Resume {
            run: earlier.run.clone(),
            error,
        })?;
        self.layers.clone_from(&earlier.layers);
        Ok(())
    }
}
