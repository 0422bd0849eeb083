//! The choice of a run by its name, where a person is told of the run that `last` means, or asked
//! about it.

use std::os::unix::ffi::OsStrExt;

use atoll_engine::failure::{Doing, Failure};
use atoll_engine::finding::{self, Last};
use atoll_engine::printable::printable;
use atoll_ledger::StateDir;
use atoll_model::RunId;
use atoll_sandbox::Signals;

use crate::output::Output;
use crate::terminal::{Typed, typed};

/// Finds a run of which something is kept.
///
/// # Errors
/// When there is none, or the last one is gone: then with the newest that is left.
pub fn find(state: &StateDir, text: &str) -> Result<RunId, Failure> {
    finding::find(state, text, &tell)
}

/// Finds a run in order to decide on its changes, as `apply` does: a last run that worked elsewhere
/// needs a person's confirmation, and is refused where nobody can be asked.
///
/// # Errors
/// As [`find`]; and when the person denies or is not there.
pub fn find_to_decide(
    state: &StateDir,
    text: &str,
    doing: &str,
    output: &Output,
) -> Result<RunId, Failure> {
    let command = format!("atoll {doing}");
    finding::find(state, text, &|last| agree(last, &command, output))
}

/// Finds a run that may live on in the ledger only: discarded, or refused.
///
/// # Errors
/// When there is none.
pub fn find_in_ledger(state: &StateDir, text: &str) -> Result<RunId, Failure> {
    finding::find_in_ledger(state, text, &tell)
}

/// Finds a run by its whole id, or the last one, for an irreversible operation: one whose beginning
/// is in the ledger. A last run that worked elsewhere needs a person's confirmation if `asked` is
/// given, and is reported otherwise.
///
/// # Errors
/// When there is none, or as [`find_to_decide`].
pub fn find_begun(state: &StateDir, text: &str, asked: Option<&Output>) -> Result<RunId, Failure> {
    finding::find_begun(state, text, &|last| match asked {
        Some(output) => agree(last, "atoll ledger shred", output),
        None => tell(last),
    })
}

/// Describes the workspace of the last run, if it is another directory.
fn place(last: &Last) -> Option<String> {
    let place = last.elsewhere.as_ref()?.as_os_str().as_bytes();
    Some(match place {
        [] => "in a directory that is not known any more".to_owned(),
        place => format!("in {}", printable(place)),
    })
}

/// Tells where the last run worked, if not here.
pub fn tell(last: &Last) -> Result<(), Failure> {
    if let Some(place) = place(last) {
        let run = &last.run;
        let told = format!("The last run is {run}, {place}; none worked here.\n");
        Output::of_process().say(&told);
    }
    Ok(())
}

/// Asks about a last run that did not work here.
fn agree(last: &Last, command: &str, output: &Output) -> Result<(), Failure> {
    let Some(place) = place(last) else {
        return Ok(());
    };
    let run = &last.run;
    let refused = || {
        Failure::new("no run has worked in this directory")
            .because(format!("the last run of all is {run}, {place}"))
            .advise(format!("{command} {run}, if that is meant"))
    };
    if !output.can_ask {
        return Err(refused());
    }
    let question =
        format!("No run has worked here. The last run of all is {run}, {place}.\n{command} {run}?");
    match says_yes(&question, output)? {
        true => Ok(()),
        false => Err(refused()),
    }
}

/// Asks the person at the terminal.
///
/// # Errors
/// When signals cannot be handled.
pub fn says_yes(question: &str, output: &Output) -> Result<bool, Failure> {
    let signals = Signals::take().doing("signals cannot be taken over")?;
    output.say(&format!("{question} [y/N] "));
    Ok(match typed(&signals, None) {
        Typed::Line(line) => ["y", "yes"].contains(&line.trim().to_lowercase().as_str()),
        Typed::Left | Typed::Late => false,
    })
}
