//! Copies of an earlier run's layers, in which a sandbox begins, and which are thrown away with it.

use std::path::PathBuf;

use atoll_store::RunRecord;

/// Copies of a run's layers.
#[derive(Clone, Debug)]
pub struct LayerCopies {
    /// The run whose layers were copied.
    pub of: RunRecord,
    /// The directory of the copies, each in a directory by its layer's name. Layers that have none
    /// there begin empty.
    pub directory: PathBuf,
}
