use atoll_engine::failure::{Doing, Failure};
use atoll_engine::printable::printable;
use atoll_engine::transparency::{When, checkpoint, cosigned, found, give_to, keep};
use atoll_ledger::{StateDir, Witness};

use crate::arguments::WitnessLedgerArguments;
use crate::output::Output;
use crate::render;

/// Gives a new checkpoint to a witness, and each from now on where that is asked for.
pub fn give(
    state: &StateDir,
    arguments: &WitnessLedgerArguments,
    output: &Output,
) -> Result<u8, Failure> {
    if arguments.never {
        keep(None)?;
        output.say("No checkpoint is given to anybody at the end of runs.\n");
        return Ok(0);
    }
    let witness = match (&arguments.file, &arguments.url) {
        (Some(file), _) => Witness::File(std::path::absolute(file).doing("FILE cannot be used")?),
        (None, Some(url)) => cosigned::witness(url, arguments.key.as_deref().unwrap_or_default())?,
        (None, None) => Witness::Command(found(&arguments.command)?),
    };
    let checkpoint = checkpoint(state)?;
    if let Some(note) = give_to(state, &witness, &checkpoint, When::Asked)? {
        output.result(&note);
    }
    // Only one that has taken it is to have each: whoever was before stays otherwise.
    if arguments.always {
        keep(Some(&witness))?;
    }
    let always = match arguments.always {
        true => ", and each from now on will be",
        false => "",
    };
    output.say(&format!(
        "A checkpoint of {} was given to {}{always}.\n",
        render::counted(checkpoint.size(), "event", "events"),
        named(&witness)
    ));
    Ok(0)
}

fn named(witness: &Witness) -> String {
    match witness {
        Witness::File(file) => printable(file.as_os_str().as_encoded_bytes()),
        Witness::Command(words) => printable(atoll_engine::shell::command_line(words).as_bytes()),
        Witness::Network { key, .. } => printable(key.name().as_bytes()),
    }
}
