//! Programs that run outside for a run: none of what programs inside have written.

use std::path::Path;

use atoll_sandbox::{Unfit, WrittenInside};
use atoll_store::list_runs;

use crate::configuration::Places;
use crate::escape::printable;
use crate::failure::Failure;

/// Where programs inside write: the workspace of a run, those of all that are known, and what
/// Atoll keeps of them.
pub fn written(places: &Places, workspace: Option<&Path>) -> WrittenInside {
    // Of a record that cannot be read nobody knows where it was.
    let records = places
        .read_state()
        .ok()
        .and_then(|state| list_runs(&state).ok())
        .map(|list| list.records)
        .unwrap_or_default();
    let others = records.into_iter().map(|record| record.workspace);
    let own = workspace.map(Path::to_owned);
    own.into_iter()
        .chain([places.state.clone()])
        .chain(others)
        .collect()
}

/// That a program does not run.
pub fn refused(what: &str, unfit: &Unfit) -> Failure {
    let shown = |path: &Path| printable(path.as_os_str().as_encoded_bytes());
    match unfit {
        Unfit::Written(path) => Failure::new(format!(
            "{what}: {} is in the workspace or in that of another run, or a link to it is",
            shown(path)
        ))
        .because("it runs outside, and a program inside may have written it")
        .advise("name a program that nobody inside has written"),
        Unfit::Open(path) => Failure::new(format!(
            "{what}: others than you can write {}, by which its program is found",
            shown(path)
        ))
        .because("it runs outside, with what you may do")
        .advise(format!(
            "ls -ld {0} shows who; chmod go-w {0} keeps it",
            shown(path)
        )),
    }
}
