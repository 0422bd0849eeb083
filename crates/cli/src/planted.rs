//! Files that a live run has put into the workspace and that programs on the host run or trust.

use atoll_engine::changes::{self, LayerChanges};
use atoll_engine::printable::printable;
use atoll_layer::{Change, Class};
use atoll_model::WorkspaceMode;
use atoll_store::RunRecord;

/// Names in the warning about control files.
const PLANTED_SHOWN_MAX: usize = 8;

/// Returns the control files that a live run has put into the workspace or changed there.
pub fn planted(record: &RunRecord, all: &[LayerChanges]) -> Vec<Vec<u8>> {
    if record.mode != WorkspaceMode::Live {
        return Vec::new();
    }
    let changed = |one: &LayerChanges, change: &Change| {
        (change.class == Class::Control).then(|| changes::shown_path(one, change.path.as_bytes()))
    };
    all.iter()
        .flat_map(|one| one.set.changes.iter().filter_map(|it| changed(one, it)))
        .collect()
}

/// Formats the warning about them.
pub fn planted_warning(record: &RunRecord, planted: &[Vec<u8>]) -> String {
    let shown = planted.iter().take(PLANTED_SHOWN_MAX);
    let names: Vec<String> = shown.map(|path| printable(path)).collect();
    let more = match planted.len().saturating_sub(PLANTED_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "in the workspace already, and run or trusted by programs outside: {}{more}.\n\
         Look at them before you use anything there: atoll diff {run}; \
         atoll undo {run} takes them back with the rest",
        names.join(", "),
        run = record.run
    )
}
