use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use atoll_store::{Checkpoint, Durability, StateDir, Witness, add_to_witness, host_text};
use serde_json::json;

use crate::advice;
use crate::arguments::WitnessLedgerArguments;
use crate::configuration::Places;
use crate::escape::printable;
use crate::failure::{Doing, Failure};
use crate::output::Output;
use crate::render;

/// How long a witness's command may take.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);
/// The same at the end of a run, for which a person waits.
const COMMAND_TIME_AT_END_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Signs how far the ledger is now.
pub fn checkpoint(read: &StateDir) -> Result<Checkpoint, Failure> {
    // Events are there, so the state may be written to; without any nothing is made.
    let nothing_yet = || Failure::new("the ledger has no events yet");
    if !read.path().join("ledger").exists() {
        return Err(nothing_yet().advise("atoll run -- COMMAND starts a run"));
    }
    let state = Places::read()?.open_state()?;
    let ledger = crate::run::open_ledger(&state)?;
    ledger.checkpoint(&state).map_err(|error| {
        Failure::new("no checkpoint can be made")
            .because(&error)
            .advise(advice::signing(&error))
    })
}

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
    let witness = match &arguments.file {
        Some(file) => Witness::File(std::path::absolute(file).doing("FILE cannot be used")?),
        None => Witness::Command(arguments.command.clone()),
    };
    if arguments.always {
        keep(Some(&witness))?;
    }
    let checkpoint = checkpoint(state)?;
    give_to(&witness, &checkpoint, COMMAND_TIME_MAX)?;
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

/// Gives a run's checkpoint to the witness that is to have each.
pub fn give_each(state: &StateDir, checkpoint: &Checkpoint) -> Result<(), Failure> {
    let unusable = "who the ledger's witness is cannot be read";
    match Witness::read(state).doing(unusable)? {
        Some(witness) => give_to(&witness, checkpoint, COMMAND_TIME_AT_END_MAX),
        None => Ok(()),
    }
}

/// Records who is to have each checkpoint, and keeps it.
fn keep(witness: Option<&Witness>) -> Result<(), Failure> {
    let state = Places::read()?.open_state()?;
    let ledger = crate::run::open_ledger(&state)?;
    let body = match witness {
        None => json!({}),
        Some(Witness::File(file)) => json!({ "file": host_text(file) }),
        Some(Witness::Command(words)) => {
            json!({ "command": words.iter().map(host_text).collect::<Vec<_>>() })
        }
    };
    ledger
        .record(None, "witness.set", body, Durability::Durable)
        .doing("the change cannot be recorded")?;
    Witness::keep(&state, witness).doing("the witness cannot be kept")
}

fn named(witness: &Witness) -> String {
    match witness {
        Witness::File(file) => printable(file.as_os_str().as_encoded_bytes()),
        Witness::Command(words) => printable(render::command_line(words).as_bytes()),
    }
}

fn give_to(witness: &Witness, checkpoint: &Checkpoint, longest: Duration) -> Result<(), Failure> {
    match witness {
        Witness::File(file) => {
            add_to_witness(file, checkpoint).doing("the witness's file cannot be added to")
        }
        Witness::Command(words) => hand_over(words, checkpoint, longest),
    }
}

fn hand_over(
    command: &[OsString],
    checkpoint: &Checkpoint,
    longest: Duration,
) -> Result<(), Failure> {
    let failed = "the witness's command failed";
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::new(failed).because("no command is named"));
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .doing(failed)?;
    // Smaller than what a pipe holds, so that this never waits for the command.
    let written = match child.stdin.take() {
        Some(mut stdin) => stdin.write_all(checkpoint.text().as_bytes()),
        None => Ok(()),
    };
    let begin = Instant::now();
    let status: ExitStatus = loop {
        match child.try_wait().doing(failed)? {
            Some(status) => break status,
            None if begin.elapsed() > longest => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure::new(failed)
                    .because(format!("it did not end within {} s", longest.as_secs())));
            }
            None => std::thread::sleep(PAUSE),
        }
    };
    if !status.success() {
        return Err(Failure::new(failed).because(status));
    }
    written.doing(failed)
}
