//! Programs that run outside for a run: none of what programs inside have written.

use std::path::Path;

use atoll_sandbox::{Unfit, Writers, WrittenInside};

use crate::configuration::Places;
use crate::escape::printable;
use crate::failure::{Doing, Failure};

/// Who writes inside: in the workspace of a run, and in those of all that are known.
pub fn writers(places: &Places, workspace: Option<&Path>) -> Writers {
    Writers::new(workspace, &places.state)
}

/// Where they write by now.
pub fn written(writers: &Writers) -> Result<WrittenInside, Failure> {
    let unknown = "nobody knows where programs inside have written, so that none runs outside";
    let advice = "atoll runs says which cannot be read; mend it, or remove its directory";
    let written = writers.written().doing(unknown);
    written.map_err(|failure| failure.advise(advice))
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
